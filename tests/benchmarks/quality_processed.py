"""Noise that was processed after it was recorded: registered, resampled, compressed, demosaiced.

    python tests/benchmarks/quality_processed.py [--pictures N] [--device D] [--only TABLE ...]

"images": BM3D on photographs of BSD68, white noise of sigma 20 before processing. Mean PSNR in dB
against the processed photograph without noise, beside each other: as it is, automatic noise, the
best single white sigma of 0.25 to 2 times 20, and the true mean autocovariance of the processed
noise. "stacks": the same for eight frames of a photograph (Set12) that were shifted by parts of a
pixel and registered linearly; here the truth is that of each frame for BM3D, the mean for VBM3D.
"videos": VBM3D on the clip of cars with blurred noise (frames 5 to 9), and on eight frames of
tractor and foliage with noise blurred by a Gaussian.
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


def registered() -> tuple[np.ndarray, np.ndarray]:
    """Return eight registered frames without noise and with noise."""
    photograph = list(pictures("set12").values())[2].astype(np.float64)
    moves = [(0.7 * k - 2, 1.3 * k - 4) for k in range(8)]
    rng, pairs = np.random.default_rng(0), []
    for y, x in moves:
        frame = ndimage.shift(photograph, (y, x), order=3, mode="reflect")
        given = frame, frame + rng.normal(0, SIGMA, frame.shape)
        pairs.append([ndimage.shift(one, (-y, -x), order=1)[12:-12, 12:-12] for one in given])
    return tuple(np.array(each) for each in zip(*pairs, strict=True))


def mean_model(models: list[gd.Correlated]) -> gd.Correlated:
    """Return the model of frames that are filtered by one."""
    power = np.mean([one.sigma**2 * np.array(one.autocorrelation) for one in models], axis=0)
    return gd.Correlated(float(np.sqrt(power[0, 0])), np.clip(power / power[0, 0], -1, 1))


def compared(clean: np.ndarray, noisy: np.ndarray, filter: object, noise: object, device: object):
    """Return PSNR as it is, of automatic noise, of the best white sigma, and of known `noise`."""
    axes, left = "TYXS"[: clean.ndim], noisy - clean

    def score(image: np.ndarray) -> float:
        error = np.square(image.astype(np.float64) - clean)
        return float(np.mean(10 * np.log10(255**2 / error.reshape(len(error), -1).mean(axis=1))))

    def filtered(**given: object) -> float:
        options = {"axes": axes, "dtype": "float32", "device": device, **given}
        return score(gd.denoise(noisy, filter, **options).image)

    white = max(filtered(sigma=k * left.std()) for k in (*TIMES[2:], 2.4, 2.9))
    if isinstance(noise, list):
        alone = zip(noisy, noise, strict=True)
        told = score(np.array([gd.bm3d(one, noise=each, device=device) for one, each in alone]))
    else:
        told = filtered(noise=noise)
    return score(noisy), filtered(), white, told


def stacks(device: object):
    """Yield the rows of registered stacks."""
    clean, noisy = registered()
    noise = noisy - clean
    told = [gd.Correlated(float(one.std()), np.clip(autocorrelation(one), -1, 1)) for one in noise]
    noisy = noisy.astype(np.float32)
    yield "registered, BM3D", compared(clean, noisy, gd.BM3D(), told, device)
    yield "registered, VBM3D", compared(clean, noisy, gd.VBM3D(), mean_model(told), device)


def videos(device: object):
    """Yield the rows of videos."""

    def told(noise: np.ndarray) -> gd.Correlated:
        tables = [autocorrelation(one) for one in noise]
        return gd.Correlated(float(noise.std()), np.clip(np.mean(tables, axis=0), -1, 1))

    folder = data_folder() / "video"
    names = [f"traffic_{kind}/frame_%d.png" for kind in ("clean", "correlated_noise")]
    cars = [np.stack([imageio.imread(folder / (name % k)) for k in range(5, 10)]) for name in names]
    known = tuple(told(cars[1][..., c] - cars[0][..., c].astype(float)) for c in range(3))
    yield "cars", compared(cars[0].astype(float), cars[1], gd.VBM3D(), known, device)
    tractor = np.stack(list(pictures("tractor").values())[:8])
    foliage = imageio.imread(folder / "foliage_clean" / "foliage_luma.tif")[:8]
    for name, frames in (("tractor", tractor), ("foliage", foliage)):
        clean = frames[:, :384, :512].astype(np.float64)
        for sigma, width in ((10, 0.5), (10, 0.8), (10, 1.2), (10, 2), (25, 0.8), (25, 1.2)):
            noise = np.random.default_rng(0).normal(size=clean.shape)
            noise = ndimage.gaussian_filter(noise, (0, width, width), mode="wrap")
            noise *= sigma / noise.std()
            noisy = (clean + noise).astype(np.float32)
            found = compared(clean, noisy, gd.VBM3D(), told(noise), device)
            yield f"{name}, noise of {sigma}, blur {width}", found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pictures", type=int, default=8)
    parser.add_argument("--device", help="number of the OpenCL device, or part of its name")
    tables = ("images", "stacks", "videos")
    parser.add_argument("--only", nargs="+", choices=tables, default=tables)
    options = parser.parse_args()
    if data_folder() is None:
        parser.error(REASON)
    every = list(pictures("bsd68").values())
    photographs = every[:: max(1, len(every) // options.pictures)][: options.pictures]
    print(f"On {gd.choose(options.device)}.\n")
    for way in (stacks, videos):
        if way.__name__ in options.only:
            print("| frames | noisy | automatic | best white sigma | true spectrum |")
            print("| :--- | ---: | ---: | ---: | ---: |")
            for name, values in way(options.device):
                print(f"| {name} | {' | '.join(f'{v:.2f}' for v in values)} |", flush=True)
            print()
    if "images" not in options.only:
        return
    print("| processed | noisy | automatic | best white sigma | true spectrum | model found |")
    print("| :--- | ---: | ---: | ---: | ---: | :--- |")
    for name, process in WAYS.items():
        print(f"| {name} | {' | '.join(row(process, photographs, options.device))} |", flush=True)


if __name__ == "__main__":
    main()
