"""Speckle: multiplicative noise of coherent imaging, measured as a number of looks.

In a homogeneous window the variance over the squared mean is 1 / looks; slopes of brightness are
subtracted first. Texture and edges only ever raise it. For independent pixels the ratio follows
about a gamma law, whose density over the logarithm of the ratio is highest at the true value,
however small the window. So the looks are read at the mode of the logarithm over all windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter1d

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise.patches.blank import not_image
from napari_gpu_denoise.noise.patches.selection import clipping_levels, read_patches
from napari_gpu_denoise.noise.sampling import sample_planes

WINDOW = 8
MAX_WINDOWS = 40_000
CLIPPED = 0.01  # share of clipped pixels of a window, at most
BINS = 200  # an e-fold of the ratio
RESAMPLES = 50
TINY = 1e-14  # squared contrast that is only rounding
FEW_LOOKS = 0.06  # relative, at one look; measured: few looks have no gamma law of the ratio
RESOLUTION = 0.4  # width of the smoothing, as a share of the spread that chance gives the windows


@dataclass(frozen=True)
class SpeckleNoise:
    """Multiplicative noise of mean 1 and variance 1 / looks."""

    looks: float  # equivalent number of looks; infinite without noise
    error: float  # standard error of the looks
    contrast: float  # standard deviation over mean, 1 / sqrt(looks); 0 without noise


def speckle_noise(image: Any) -> SpeckleNoise:
    """Estimate the equivalent number of looks of intensities, (y, x) or (..., y, x).

    At most 8 planes are read, and about 40 000 windows of 8 x 8 pixels. Windows with NaN, infinity,
    clipped pixels or a mean that is not above 0 are left out; NonFiniteError if none is finite. A
    constant image has infinitely many looks. Where the grain of the speckle is not much smaller
    than a window, values vary less within a window than over the image, so that looks come out too
    many. The standard error comes from resampling the windows.
    """
    planes = sample_planes(image)
    ratios, overlaps = [], []
    finite = 0
    for plane, blank in zip(planes, not_image(planes), strict=True):
        patches, shape, overlap, _ = read_patches(plane, WINDOW, MAX_WINDOWS // len(planes), blank)
        finite += len(patches)
        clipped = np.zeros(len(patches))
        for level in clipping_levels(plane, blank):
            clipped += np.mean(patches == level, axis=1)
        values = patches[clipped <= CLIPPED].astype(np.float64)
        mean = values.mean(axis=1)
        keep = mean > 0
        trend = _trend(shape)
        freedom = values.shape[1] - 1 - len(trend)
        if freedom > 0:
            rest = values[keep] - mean[keep, None]
            square = np.square(rest).sum(axis=1) - np.square(rest @ trend.T).sum(axis=1)
            ratios.append(square / freedom / np.square(mean[keep]))
            overlaps.append(overlap)
    if not finite:
        raise NonFiniteError(
            "No window of finite pixels is left to estimate speckle; replace NaN and "
            "infinity first."
        )
    ratio = np.concatenate(ratios) if ratios else np.empty(0)
    number = len(ratio)
    ratio = ratio[ratio > TINY]
    if 2 * len(ratio) <= number:
        return SpeckleNoise(math.inf, 0.0, 0.0)
    mode, error = _mode(np.log(ratio), max(overlaps))
    found = math.exp(mode)
    found *= 1 + FEW_LOOKS * found
    looks = 1 / found
    return SpeckleNoise(looks, looks * error, math.sqrt(found))


def _trend(shape: tuple[int, int]) -> np.ndarray:
    """Return orthonormal slopes along y and x, (slope, pixel), of axes longer than 1."""
    slopes = []
    for axis, length in enumerate(shape):
        if length > 1:
            slope = np.arange(length) - (length - 1) / 2
            slope = np.broadcast_to(np.expand_dims(slope, 1 - axis), shape).ravel()
            slopes.append(slope / np.linalg.norm(slope))
    return np.array(slopes).reshape(len(slopes), shape[0] * shape[1])


def _mode(values: np.ndarray, overlap: float) -> tuple[float, float]:
    """Return the mode of values, and its standard error.

    The logarithm of gamma variables with n degrees of freedom spreads by sqrt(2 / n). Noise with a
    long tail, as few looks have, spreads more.
    """
    low, high = np.quantile(values, [0.001, 0.999], method="nearest")
    bins = int(min(max(math.ceil((high - low) * BINS), 8), 4000))
    counts, edges = np.histogram(values, bins, (low, max(high, low + 1e-6)))
    width = edges[1] - edges[0]
    looks = math.exp(-float(np.median(values)))
    chance = math.sqrt((2 + 6 / looks) / WINDOW**2)
    smooth = max(RESOLUTION * chance / width, 1.0)
    rng = np.random.default_rng(0)
    # Overlapping windows share pixels, so they count as fewer.
    number = max(int(counts.sum() / overlap), 1)
    drawn = rng.multinomial(number, counts / counts.sum(), RESAMPLES).astype(np.float64)
    curves = gaussian_filter1d(
        np.concatenate([counts[None].astype(np.float64), drawn]), smooth, axis=1, mode="constant"
    )
    places = edges[0] + width * (0.5 + curves.argmax(axis=1))
    return float(places[0]), float(places[1:].std())
