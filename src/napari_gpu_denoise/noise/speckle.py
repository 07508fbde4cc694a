"""Speckle, the multiplicative noise of coherent imaging: of intensities, and of their logarithms.

In a homogeneous window of intensities the variance over the squared mean is 1 / looks. On a
logarithmic scale, as ultrasound and OCT images are displayed, speckle varies by as much at all grey
levels, and is skewed to the dark: that of one look by -1.14. Noise of other origin is not, and
texture hardly ever at all levels of brightness, and as strong in most of an image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.correlation import LAGS, NoiseSpectrum
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import PATCH
from napari_gpu_denoise.noise.robust import medians


class Windows(NamedTuple):
    """Windows of a plane, without their mean and slopes of brightness."""

    rest: np.ndarray  # (window, pixel)
    mean: np.ndarray  # (window,)
    freedom: int  # degrees of freedom of a window
    overlap: float  # how many windows share a pixel


def read_windows(
    planes: Sequence[selection.Plane], width: int, number: int, clipped: float
) -> Iterator[Windows]:
    """Yield the windows of each plane, of a width, about a number of all, clipped up to a share.

    They are finite, touch no blank, are evenly spread and, of a plane with a shorter axis, shorter
    along it.
    """
    for plane, blank, ends in planes:
        shape = (min(width, plane.shape[0]), min(width, plane.shape[1]))
        windows = sliding_window_view(plane, shape)
        limit = math.ceil(number / len(planes))
        down, across = selection.grid_steps(*windows.shape[:2], limit=limit)
        windows = windows[::down, ::across]
        kept = np.isfinite(windows).all(axis=(2, 3))
        if blank is not None:
            kept &= selection.clear_patches(blank, width, down, across)
        overlap = max(1.0, shape[0] / down) * max(1.0, shape[1] / across)
        windows = windows[kept].reshape(-1, shape[0] * shape[1])
        rest = windows[np.isin(windows, ends).mean(axis=1) <= clipped].astype(np.float64)
        mean = rest.mean(axis=1)
        rest -= mean[:, None]
        slopes = [at.ravel() - at.mean() for at in np.indices(shape) if at.any()]
        for slope in slopes:
            slope /= np.linalg.norm(slope)
            rest -= (rest @ slope)[:, None] * slope
        yield Windows(rest, mean, rest.shape[1] - 1 - len(slopes), overlap)


# Intensities. Texture and edges only ever raise variance over squared mean. For independent pixels
# the ratio follows about a gamma law, whose density over the logarithm of the ratio is highest at
# the true value, however small the window.
INTENSITY_WINDOW = 8  # pixels


def speckle_looks(planes: Sequence[selection.Plane]) -> tuple[float, float]:
    """Estimate the equivalent number of looks of intensities, and its standard error.

    The mode over windows of 8 x 8 pixels. Windows with NaN, infinity, clipped pixels or a mean that
    is not above 0 are left out. A constant image, and one without finite pixels, has infinitely
    many looks. Where the grain of the speckle is not much smaller than a window, looks come out too
    many. The standard error comes from resampling the windows.
    """
    ratios: list[np.ndarray] = []
    overlap = 1.0
    for rest, mean, freedom, shared in read_windows(planes, INTENSITY_WINDOW, 40_000, 0.01):
        if freedom > 0:
            lit = mean > 0
            ratios.append(np.square(rest[lit]).sum(axis=1) / freedom / np.square(mean[lit]))
            overlap = max(overlap, shared)
    ratio = np.concatenate(ratios) if ratios else np.empty(0)
    noisy = ratio[ratio > 1e-14]
    if 2 * len(noisy) <= len(ratio):
        return math.inf, 0.0
    mode, error = _mode(np.log(noisy), overlap)
    # Few looks have no gamma law of the ratio: 6 % at one look, measured.
    looks = 1 / (math.exp(mode) * (1 + 0.06 * math.exp(mode)))
    return looks, looks * error


def _mode(values: np.ndarray, overlap: float) -> tuple[float, float]:
    """Return the mode of logarithms of ratios, and its standard error.

    The logarithm of gamma variables with n degrees of freedom spreads by sqrt(2 / n). Noise with a
    long tail, as few looks have, spreads more.
    """
    from scipy.ndimage import gaussian_filter1d

    low, high = np.quantile(values, [0.001, 0.999], method="nearest")
    bins = int(min(max(math.ceil((high - low) * 200), 8), 4000))
    counts, edges = np.histogram(values, bins, (low, max(high, low + 1e-6)))
    width = edges[1] - edges[0]
    chance = math.sqrt((2 + 6 * math.exp(float(np.median(values)))) / INTENSITY_WINDOW**2)
    # Overlapping windows share pixels, so they count as fewer.
    number = max(int(counts.sum() / overlap), 1)
    drawn = np.random.default_rng(0).multinomial(number, counts / counts.sum(), 50)
    curves = np.concatenate([counts[None], drawn]).astype(np.float64)
    # As a share of the spread that chance gives the windows.
    smooth = min(max(0.4 * chance / width, 1.0), 1e4)  # of a single window it would take seconds
    curves = gaussian_filter1d(curves, smooth, axis=1, mode="constant")
    places = edges[0] + width * (0.5 + curves.argmax(axis=1))
    return float(places[0]), float(places[1:].std())


# Logarithms. Unlike the smoothest patches of 8 x 8, windows of 24 x 24 hold whole grains, so that
# the noise is measured at all frequencies.
LOG_WINDOW = 24  # pixels


def log_speckle_spectrum(planes: Sequence[selection.Plane]) -> NoiseSpectrum | None:
    """Return the spectrum of speckle on a logarithmic scale; None where it is not clearly that."""
    if min(planes[0].pixels.shape) < LOG_WINDOW:
        return None
    for number in (64, 400):  # few rule it out in most images
        number = selection.number_of_patches(number, planes)
        found = list(read_windows(planes, LOG_WINDOW, number, 0.05))
        if sum(len(each.mean) / each.overlap for each in found) < 32:
            return None
        rest = np.concatenate([each.rest for each in found])
        alike = _log_speckle(rest, np.concatenate([each.mean for each in found]))
        if alike is None:
            return None
    covariance = _autocovariance(alike.reshape(-1, LOG_WINDOW, LOG_WINDOW))
    spectrum = NoiseSpectrum.of_covariance(covariance, len(alike) * (LOG_WINDOW // PATCH) ** 2)
    return replace(spectrum, log_speckle=True)


def _log_speckle(windows: np.ndarray, means: np.ndarray) -> np.ndarray | None:
    """Return the windows that vary by as much as most do, if these are speckle; else None."""
    square = np.square(windows)
    variance = square.mean(axis=1)
    skewness = (square * windows).mean(axis=1) / np.maximum(variance, 1e-300) ** 1.5
    strength = 0.5 * np.log(np.maximum(variance, 1e-300))
    ordered = np.sort(strength)
    half = len(ordered) // 2
    widths = ordered[half:] - ordered[: len(ordered) - half]
    narrowest = int(widths.argmin())
    middle = (ordered[narrowest] + ordered[narrowest + half]) / 2
    alike = np.abs(strength - middle) < 0.3
    if alike.mean() < limits.MIN_SPECKLE_SHARE:
        return None
    brightness = np.sort(means[alike])
    rare = len(brightness) // 20
    contrast = (brightness[-1 - rare] - brightness[rare]) / math.exp(middle)
    skewed = medians(skewness[alike]) < limits.MAX_SPECKLE_SKEWNESS
    return windows[alike] if skewed and contrast > limits.MIN_SPECKLE_CONTRAST else None


def _autocovariance(windows: np.ndarray) -> np.ndarray:
    """Return the mean autocovariance of windows, (5, 5), symmetric along both axes."""
    found = np.empty((LAGS + 1, LAGS + 1))
    for y, x in np.ndindex(found.shape):
        upper, lower = windows[:, : LOG_WINDOW - y], windows[:, y:]
        found[y, x] = (upper[..., : LOG_WINDOW - x] * lower[..., x:]).mean() / 2
        found[y, x] += (upper[..., x:] * lower[..., : LOG_WINDOW - x]).mean() / 2
    return found
