"""Accuracy of the estimates of photon, Rician, multiplicative and correlated noise.

    python tests/benchmarks/noise_models.py [--quick] [--only TABLE] [--json FILE]

Prints one table for each kind of noise. The data folder holds what they are measured on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
from scipy.ndimage import convolve1d

from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.covariance import channel_covariance
from napari_gpu_denoise.noise.frames import FramesInARow
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.photon import single_image_noise
from napari_gpu_denoise.noise.speckle import speckle_noise

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import REASON, data_folder, pictures

SENSOR_GAIN, SENSOR_DARK = 0.28, 9.45**0.5
PHOTONS = ((0.5, 2), (0.5, 10), (1, 5), (2, 2), (2, 5), (5, 2), (5, 10))  # gain, read noise
MOST_LIMIT = 0.05  # pictures whose limit is above this hold no gain
DRAWS = 100


def sensor(folder: Path, step: int) -> list[dict]:
    """Gain and dark noise of a 12-bit CCD."""

    def frame(name: str, number: int = 1) -> np.ndarray:
        return imageio.imread(folder / f"sensor/emva_ccd12/{name}_snap_00{number}.png")

    flat = [f"b_{k:03}" for k in (0, 6, 12, 24, 36)]
    pairs = [(frame(name), frame(name, 2)) for name in flat]
    dark = frame("d_000"), frame("d_000", 2)
    singles = [
        ("single flat fields, snap 1", np.stack([pair[0] for pair in pairs])),
        ("single flat fields, snap 2", np.stack([pair[1] for pair in pairs])),
    ]
    found = [("flat and dark pairs", FramesInARow((*pairs, dark)).differences.noise())]
    found += [(name, single_image_noise(frames)) for name, frames in singles]
    rows = []
    for name, each in found:
        # What the line says of the dark level, which single flat fields do not know.
        read = max(each.gain * np.mean(dark) + each.intercept, 0) ** 0.5
        rows.append(
            {
                "from": name,
                "gain": each.gain,
                "± gain": each.gain_error,
                "gain error %": 100 * (each.gain / SENSOR_GAIN - 1),
                "dark noise": read,
                "dark error %": 100 * (read / SENSOR_DARK - 1),
            }
        )
    return rows


def photons(folder: Path, step: int) -> list[dict]:
    """Poisson-Gaussian noise on the photographs of BSD68: one image, and four frames of each."""
    clean = [picture.astype(np.float64) for picture in pictures("bsd68").values()][::step]
    methods: dict[str, tuple[int, Callable]] = {
        "one image": (1, lambda frames: single_image_noise(frames[0])),
        "four frames": (4, lambda frames: FramesInARow.of(frames).differences.noise()),
    }
    rows = []
    for gain, read in PHOTONS:
        for name, (number, method) in methods.items():
            found, seconds = [], 0.0
            for seed, picture in enumerate(clean):
                rng = np.random.default_rng(seed)
                stack = gain * rng.poisson(picture / gain, (number, *picture.shape))
                stack = stack + rng.normal(0, read, stack.shape)
                start = time.perf_counter()
                found.append(method(stack))
                seconds += time.perf_counter() - start
            error = np.array([each.gain / gain - 1 for each in found])
            stated = np.array([each.gain_error / gain for each in found])
            limits = np.array([_limit(each, gain, read) for each in clean])
            possible = limits <= MOST_LIMIT
            reads = np.array([each.read_noise for each in found])
            rows.append(
                {
                    "gain": gain,
                    "read noise": read,
                    "from": name,
                    "bias of gain %": 100 * error.mean(),
                    "mean error %": 100 * np.abs(error).mean(),
                    "of the odd numbers %": 100 * np.abs(error[::2]).mean(),
                    "median error %": 100 * np.median(np.abs(error)),
                    "worst %": 100 * np.abs(error).max(),
                    "stated error %": 100 * np.median(stated),
                    "spread of error / stated": np.std(error / stated),
                    "limit %": 100 * np.median(limits),
                    "pictures within": f"{np.count_nonzero(possible)} of {len(clean)}",
                    "mean error of those %": 100 * np.abs(error[possible]).mean(),
                    "read found": reads.mean(),
                    "± spread": reads.std(),
                    "± stated": np.median([each.read_noise_error for each in found]),
                    "time ms": 1000 * seconds / len(found),
                }
            )
    return rows


def _limit(picture: np.ndarray, gain: float, read: float) -> float:
    """Return the relative error of the gain if the smooth patches were known and all else lost.

    Smooth are patches whose texture at the high frequencies is below a tenth of the noise. The
    bound of Cramér and Rao for a line through the variance of all their frequencies.
    """
    spectra = read_spectra([picture])
    line = gain * spectra.mean + read**2
    high = spectra.coefficients.shape[1] - spectra.lows
    smooth = spectra.energy_of("high") / high < line / 10
    weight = 63 / spectra.overlap / 2 / np.square(line[smooth])
    x = spectra.mean[smooth]
    if not len(x):
        return float("inf")
    spread = weight @ np.square(x - weight @ x / weight.sum())
    return 1 / (gain * float(np.sqrt(spread))) if spread > 0 else float("inf")


def magnitudes(folder: Path, step: int) -> list[dict]:
    """Rician noise on slices of a head."""
    rows = []
    for percent in (3, 5, 9):
        sigma = 255 * percent / 100
        found = []
        for seed, picture in enumerate(list(pictures("colin27").values())[::step]):
            real, imaginary = np.random.default_rng(seed).normal(0, sigma, (2, *picture.shape))
            estimate = estimate_noise(np.hypot(picture + real, imaginary), model="rician")
            found.append(estimate.sigma[0] / sigma - 1)
        rows.append(
            {
                "case": f"colin27, {percent} %",
                "bias %": 100 * np.mean(found),
                "mean error %": 100 * np.mean(np.abs(found)),
                "worst %": 100 * np.max(np.abs(found)),
            }
        )
    return rows


def speckle(folder: Path, step: int) -> list[dict]:
    """Gamma noise on the photographs of denoiselab13."""
    rows = []
    for looks in (1, 4, 16):
        found = []
        for seed, picture in enumerate(list(pictures("denoiselab13").values())[::step]):
            noise = np.random.default_rng(seed).gamma(looks, 1 / looks, picture.shape)
            found.append(speckle_noise(picture * noise))
        error = np.array([each.looks / looks - 1 for each in found])
        rows.append(
            {
                "looks": looks,
                "bias %": 100 * error.mean(),
                "mean error %": 100 * np.abs(error).mean(),
                "worst %": 100 * np.abs(error).max(),
                "within 15 %": f"{np.count_nonzero(np.abs(error) <= 0.15)} of {len(error)}",
            }
        )
    return rows


def whiteness(folder: Path, step: int) -> list[dict]:
    """White and weakly correlated noise on photographs, and a clip with correlated noise."""
    clean = list(pictures("bsd68").values())
    rows = []
    for low, high in ((10, 25), (5, 10), (25, 50)):
        rng = np.random.default_rng(0)
        found = []
        for draw in range(0, DRAWS, step):
            picture = clean[draw % len(clean)]
            sigma = rng.uniform(low, high)
            found.append(noise_spectrum(picture + rng.normal(0, sigma, picture.shape)))
        rows.append(_verdicts(f"white, BSD68, sigma {low} to {high}", found))
    for sigma in (5, 20):
        for correlation in (0.1, 0.2, 0.3, 0.4):
            found = []
            for seed, picture in enumerate(clean[::step]):
                noise = np.random.default_rng(seed).normal(size=picture.shape)
                found.append(noise_spectrum(picture + sigma * _shared(noise, correlation)))
            rows.append(_verdicts(f"BSD68, sigma {sigma}, correlation {correlation}", found))
    for size in (40, 100):
        found = []
        for seed, picture in enumerate(clean[::step]):
            cut = picture[60 : 60 + size, 100 : 100 + size]
            noise = np.random.default_rng(seed).normal(0, 10, cut.shape)
            found.append(noise_spectrum(cut + noise))
        rows.append(_verdicts(f"white, BSD68, {size} x {size} pixels, sigma 10", found))
    clip = folder / "video/traffic_correlated_noise"
    found, between = [], []
    for number in (0, 1, 3, 5, 6, 7, 8, 9):  # 2 and 4 are to be left out
        file = clip / f"frame_{number}.png"
        if file.exists():
            noisy = imageio.imread(file)
            found += [noise_spectrum(noisy[..., channel]) for channel in range(3)]
            covariance = np.array(channel_covariance(np.moveaxis(noisy, -1, 0)).correlation)
            between.append(np.abs(covariance[np.triu_indices(3, 1)]).max())
    rows.append(_verdicts("traffic clip, each channel", found))
    rows[-1]["largest between channels"] = float(np.median(between))
    return rows


def _shared(noise: np.ndarray, correlation: float) -> np.ndarray:
    """Return white noise blurred until neighbours correlate so much, of standard deviation 1."""
    weight = (1 - (1 - 2 * correlation**2) ** 0.5) / (2 * correlation)
    for axis in range(2):
        noise = convolve1d(noise, [weight, 1, weight], axis, mode="wrap")
    return noise / noise.std()


def _verdicts(name: str, found: list) -> dict:
    lag = [each.autocorrelation[0][1] for each in found]
    return {
        "case": name,
        "called white": f"{sum(each.white for each in found)} of {len(found)}",
        "correlation along x": float(np.median(lag)),
        "largest between channels": float("nan"),
    }


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.3g}"
    return str(value)


def main() -> None:
    """Measure, print, and write JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="every eighth picture")
    parser.add_argument("--only", help="one table: sensor, photons, magnitudes, ...")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    folder = data_folder()
    if folder is None:
        parser.error(REASON)
    tables = {}
    for table in (sensor, photons, magnitudes, speckle, whiteness):
        if options.only not in (None, table.__name__):
            continue
        rows = table(folder, 8 if options.quick else 1)
        tables[table.__name__] = rows
        print(f"\n{table.__doc__}\n")
        print("|", " | ".join(rows[0]), "|")
        print("|", " | ".join("---:" for _ in rows[0]), "|")
        for row in rows:
            print("|", " | ".join(_cell(value) for value in row.values()), "|", flush=True)
    if options.json:
        text = json.dumps(tables, indent=1, default=float)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
