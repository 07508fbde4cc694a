"""Speckle on a logarithmic scale, as ultrasound and OCT images are displayed.

The logarithm of speckle varies by as much at all grey levels, and is skewed to the dark: that of
the exponential intensity of one look by -1.14. Noise of other origin is not skewed so, and texture
hardly ever is at all levels of brightness, and as strong in most of an image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from napari_gpu_denoise.noise.correlation import LAGS, LEAST, NoiseSpectrum, spectrum_of_covariance
from napari_gpu_denoise.noise.magnitude import orthonormal_slopes
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.white import PATCH
from napari_gpu_denoise.noise.robust import medians

WINDOW = 24  # pixels along a side: several grains of speckle
FIRST, MOST = 64, 400  # windows that rule it out in most images, and that measure it
FEWEST = 32  # without a common pixel
CLIPPED = 0.05  # share of the pixels of a window, at most
ALIKE = 0.3  # logarithm of a ratio, up to which standard deviations are the most frequent one
MOSTLY, HALF = 0.75, 0.22  # share that is, at least, and width of the narrowest half, at most
SKEWED = -0.4  # median skewness, at most
CONTRAST = 1.5  # range of brightness without its ends over the standard deviation, at least


def log_speckle_spectrum(
    planes: Sequence[np.ndarray],
    blanks: Sequence[np.ndarray | None],
    levels: Sequence[list],
) -> NoiseSpectrum | None:
    """Return the spectrum of speckle on a logarithmic scale; None where it is not clearly that.

    `blanks` and `levels` are masks and clipping levels of the planes. Windows of 24 x 24 pixels
    tell, the planes of which are subtracted. Unlike the smoothest patches of 8 x 8, they hold whole
    grains, so that the noise is measured at all frequencies.
    """
    for number in (FIRST, MOST):
        windows = _windows(planes, blanks, levels, number)
        alike = None if windows is None else _speckle(*windows)
        if alike is None:
            return None
    covariance = _autocovariance(alike)
    if max(covariance[0, 1], covariance[1, 0]) < LEAST * covariance[0, 0]:
        return None  # no grain
    found = spectrum_of_covariance(covariance, len(alike) * (WINDOW // PATCH) ** 2)
    return replace(found, log_speckle=True)


def _windows(
    planes: Sequence[np.ndarray],
    blanks: Sequence[np.ndarray | None],
    levels: Sequence[list],
    number: int,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return windows (window, y, x) without their planes, and their means; None if too few."""
    found, independent = [], 0.0
    number = math.ceil(selection.number_of_patches(number, blanks) / len(planes))
    for plane, blank, known in zip(planes, blanks, levels, strict=True):
        if min(plane.shape) < WINDOW:
            continue
        patches, _, overlap, _ = selection.read_patches(plane, WINDOW, number, blank)
        found.append(patches[selection.clipped_shares(patches, known) <= CLIPPED])
        independent += len(found[-1]) / overlap
    if independent < FEWEST:
        return None
    windows, slopes = np.concatenate(found).astype(np.float64), orthonormal_slopes((WINDOW, WINDOW))
    means = windows.mean(axis=1)
    windows -= means[:, None]
    windows -= windows @ slopes.T @ slopes
    return windows.reshape(-1, WINDOW, WINDOW), means


def _speckle(windows: np.ndarray, means: np.ndarray) -> np.ndarray | None:
    """Return the windows that vary by as much as most do, if these are speckle; else None."""
    square = np.square(windows)
    variance = square.mean(axis=(1, 2))
    if 2 * np.count_nonzero(variance) <= len(variance):
        return None
    skewness = (square * windows).mean(axis=(1, 2)) / np.maximum(variance, 1e-300) ** 1.5
    strength = 0.5 * np.log(np.maximum(variance, 1e-300))
    ordered = np.sort(strength)
    half = len(ordered) // 2
    widths = ordered[half:] - ordered[: len(ordered) - half]
    narrowest = int(widths.argmin())
    middle = (ordered[narrowest] + ordered[narrowest + half]) / 2
    alike = np.abs(strength - middle) < ALIKE
    if widths[narrowest] > HALF or alike.mean() < MOSTLY:
        return None
    brightness = np.sort(means[alike])
    rare = len(brightness) // 20
    contrast = (brightness[-1 - rare] - brightness[rare]) / math.exp(middle)
    return windows[alike] if contrast > CONTRAST and medians(skewness[alike]) < SKEWED else None


def _autocovariance(windows: np.ndarray) -> np.ndarray:
    """Return the mean autocovariance of windows, (5, 5), symmetric along both axes."""
    found = np.empty((LAGS + 1, LAGS + 1))
    for y in range(LAGS + 1):
        for x in range(LAGS + 1):
            upper, lower = windows[:, : WINDOW - y], windows[:, y:]
            found[y, x] = (upper[..., : WINDOW - x] * lower[..., x:]).mean() / 2
            found[y, x] += (upper[..., x:] * lower[..., : WINDOW - x]).mean() / 2
    return found
