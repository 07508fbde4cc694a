"""Accuracy of the estimates of photon noise, speckle and correlation where the noise is known.

    python tests/benchmarks/noise_models.py [--tables photons speckle whiteness] [--quick]

Which model is found, and how exactly, is in noise_estimates.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from cases import with_noise
from scipy.ndimage import convolve1d
from tables import print_tables, show, show_rows

from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.frames import FramesInARow, noise_of_differences
from napari_gpu_denoise.noise.patches.selection import Plane
from napari_gpu_denoise.noise.patches.spectra import spectra_of
from napari_gpu_denoise.noise.photon import single_image_noise
from napari_gpu_denoise.noise.speckle import speckle_looks
from reference.data import pictures

PHOTONS = ((0.5, 2), (0.5, 10), (1, 5), (2, 2), (2, 5), (5, 2), (5, 10))  # gain, read noise
DRAWS = 100


def photons(options: argparse.Namespace) -> None:
    """Poisson-Gaussian noise on the photographs of BSD68: one image, and four frames of each."""
    clean = [picture.astype(np.float64) for picture in pictures("bsd68").values()]
    methods: dict[str, tuple[int, Callable]] = {
        "one image": (1, lambda frames: single_image_noise(spectra_of(frames[0]))),
        "four frames": (
            4,
            lambda frames: noise_of_differences(FramesInARow.of(frames).differences),
        ),
    }
    rows = []
    for gain, read in PHOTONS:
        for name, (number, method) in methods.items():
            found = []
            for seed, picture in enumerate(clean[:: options.stride]):
                rng = np.random.default_rng(seed)
                stack = gain * rng.poisson(picture / gain, (number, *picture.shape))
                found.append(method(stack + rng.normal(0, read, stack.shape)))
            error = 100 * np.array([each.gain / gain - 1 for each in found])
            stated = 100 * np.array([each.gain_error / gain for each in found])
            reads = np.array([each.read_noise for each in found])
            rows.append(
                {
                    "gain": gain,
                    "read noise": read,
                    "from": name,
                    "bias of gain %": error.mean(),
                    "mean error %": np.abs(error).mean(),
                    "worst %": np.abs(error).max(),
                    "stated error %": np.median(stated),
                    "read found": reads.mean(),
                    "± spread": reads.std(),
                }
            )
    show_rows(rows)


def speckle(options: argparse.Namespace) -> None:
    """Gamma noise on the photographs of denoiselab13: errors of the number of looks."""
    rows = []
    for looks in (1, 4, 16):
        found = []
        for seed, picture in enumerate(list(pictures("denoiselab13").values())[:: options.stride]):
            noise = np.random.default_rng(seed).gamma(looks, 1 / looks, picture.shape)
            found.append(speckle_looks(Plane.of_image([picture * noise]))[0])
        error = 100 * (np.array(found) / looks - 1)
        rows.append([looks, error.mean(), np.abs(error).mean(), np.abs(error).max()])
    show(["looks", "bias %", "mean error %", "worst %"], rows)


def whiteness(options: argparse.Namespace) -> None:
    """White and weakly correlated noise on photographs (BSD68), and how often it is called white.

    The last column is the median correlation of neighbours along x that was measured.
    """
    clean = list(pictures("bsd68").values())
    rows = []
    for low, high in ((5, 10), (10, 25), (25, 50)):
        rng, found = np.random.default_rng(0), []
        for draw in range(0, DRAWS, options.stride):
            picture = clean[draw % len(clean)]
            sigma = rng.uniform(low, high)
            found.append(noise_spectrum(picture + rng.normal(0, sigma, picture.shape)))
        rows.append(_verdicts(f"white, sigma {low} to {high}", found))
    for sigma in (5, 20):
        for correlation in (0.1, 0.2, 0.3, 0.4):
            found = []
            for seed, picture in enumerate(clean[:: options.stride]):
                noise = np.random.default_rng(seed).normal(size=picture.shape)
                found.append(noise_spectrum(picture + sigma * _shared(noise, correlation)))
            rows.append(_verdicts(f"sigma {sigma}, correlation {correlation}", found))
    for size in (40, 100):
        cuts = [each[60 : 60 + size, 100 : 100 + size] for each in clean[:: options.stride]]
        found = [noise_spectrum(with_noise(cut, 10, seed)) for seed, cut in enumerate(cuts)]
        rows.append(_verdicts(f"white, {size} x {size} pixels, sigma 10", found))
    show(["noise", "called white", "correlation"], rows)


def _shared(noise: np.ndarray, correlation: float) -> np.ndarray:
    """Return white noise blurred until neighbours correlate so much, of standard deviation 1."""
    weight = (1 - (1 - 2 * correlation**2) ** 0.5) / (2 * correlation)
    for axis in range(2):
        noise = convolve1d(noise, [weight, 1, weight], axis, mode="wrap")
    return noise / noise.std()


def _verdicts(name: str, found: list) -> list:
    lag = float(np.median([each.autocorrelation[0][1] for each in found]))
    return [name, f"{sum(each.white for each in found)} of {len(found)}", lag]


if __name__ == "__main__":
    print_tables(__doc__, (photons, speckle, whiteness))
