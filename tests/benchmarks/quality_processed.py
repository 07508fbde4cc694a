"""Noise that was processed after it was recorded: registered, resampled, compressed, demosaiced.

    python tests/benchmarks/quality_processed.py [--pictures N] [--device D]

BM3D on photographs of BSD68, white noise of sigma 20 before processing. Mean PSNR in dB against the
processed photograph without noise, beside each other: as it is, automatic noise, the best single
white sigma of 0.25 to 2 times 20, and the true mean autocovariance of the processed noise.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from scipy import ndimage

import napari_gpu_denoise as gd

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import REASON, data_folder, pictures

SIGMA = 20.0
TIMES = (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0)
LAGS = 5


def jpeg(quality: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that compresses an image and reads it again."""

    def process(image: np.ndarray) -> np.ndarray:
        stored = io.BytesIO()
        values = np.rint(image).clip(0, 255).astype(np.uint8)
        imageio.imwrite(stored, values, extension=".jpg", quality=quality)
        stored.seek(0)
        return imageio.imread(stored, extension=".jpg").astype(np.float64)

    return process


def demosaiced(image: np.ndarray) -> np.ndarray:
    """Keep the green pixels of a Bayer pattern, and interpolate the others from four neighbours."""
    y, x = np.indices(image.shape)
    green = (y + x) % 2 == 0
    kernel = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]) / 4
    around = ndimage.convolve(np.where(green, image, 0), kernel, mode="mirror")
    return np.where(green, image, around)


WAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "shifted by half a pixel, linear": lambda i: ndimage.shift(i, 0.5, order=1, mode="mirror"),
    "shifted by 0.3 pixels, cubic": lambda i: ndimage.shift(i, 0.3, order=3, mode="mirror"),
    "rotated by 7 degrees, linear": lambda i: ndimage.rotate(i, 7, reshape=False, order=1),
    "enlarged 1.5 times, linear": lambda i: ndimage.zoom(i, 1.5, order=1),
    "reduced to 0.7, linear": lambda i: ndimage.zoom(i, 0.7, order=1),
    "demosaiced": demosaiced,
    "JPEG 95": jpeg(95),
    "JPEG 80": jpeg(80),
    "JPEG 60": jpeg(60),
}


def autocorrelation(noise: np.ndarray) -> np.ndarray:
    """Return the mean autocorrelation, (5, 5), of noise whose mean is 0."""
    rest = noise - noise.mean()
    ny, nx = rest.shape
    found = np.empty((LAGS, LAGS))
    for j, i in np.ndindex(LAGS, LAGS):
        right = (rest[j:, i:] * rest[: ny - j, : nx - i]).mean()
        left = (rest[j:, : nx - i] * rest[: ny - j, i:]).mean()
        found[j, i] = (right + left) / 2
    return found / found[0, 0]


def row(
    process: Callable[[np.ndarray], np.ndarray], photographs: list[np.ndarray], device: object
) -> list[str]:
    """Return the mean PSNR of each way, and the models that were found."""
    scores, models = [], []
    for seed, photograph in enumerate(photographs):
        clean = photograph.astype(np.float64)
        noise = np.random.default_rng(seed).normal(0, SIGMA, clean.shape)
        truth, noisy = process(clean), process(clean + noise).astype(np.float32)
        inner = np.s_[32:-32, 32:-32]  # without the corners of a rotated image

        def score(image: np.ndarray, truth: np.ndarray = truth, inner: tuple = inner) -> float:
            return 10 * np.log10(255**2 / np.mean((image[inner] - truth[inner]) ** 2))

        left = (noisy - truth)[inner]
        table = np.clip(autocorrelation(left), -1, 1)
        told = gd.Correlated(float(left.std()), table)
        estimate = gd.estimate_noise(noisy)
        models.append(estimate.name)
        white = [score(gd.bm3d(noisy, k * SIGMA, device=device)) for k in TIMES]
        scores.append(
            [
                score(noisy),
                score(gd.bm3d(noisy, device=device)),
                max(white),
                score(gd.bm3d(noisy, noise=told, device=device)),
            ]
        )
    most = max(set(models), key=models.count)
    return [*(f"{value:.2f}" for value in np.mean(scores, axis=0)), most]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pictures", type=int, default=8)
    parser.add_argument("--device", help="number of the OpenCL device, or part of its name")
    options = parser.parse_args()
    if data_folder() is None:
        parser.error(REASON)
    every = list(pictures("bsd68").values())
    photographs = every[:: max(1, len(every) // options.pictures)][: options.pictures]
    print(f"On {gd.choose(options.device)}.\n")
    print("| processed | noisy | automatic | best white sigma | true spectrum | model found |")
    print("| :--- | ---: | ---: | ---: | ---: | :--- |")
    for name, process in WAYS.items():
        print(f"| {name} | {' | '.join(row(process, photographs, options.device))} |", flush=True)


if __name__ == "__main__":
    main()
