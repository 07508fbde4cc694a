"""White Gaussian noise of one plane.

Patches are described by their discrete cosine transform. White noise is spread evenly and
independently over all coefficients, texture is strong at the low frequencies first. So patches
are ranked by their energy at the low frequencies and the noise is read at the high frequencies of
the smoothest ones: ranking and reading use independent numbers, so that preferring smooth patches
does not favour patches whose noise happens to be weak. Fine regular texture fills a few of the high
frequencies, so where their mean is above their median, the median counts. How many patches are used
follows from the image (`pooled_variance`): few where texture is everywhere, all where there is
none.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.blank import number_of_patches
from napari_gpu_denoise.noise.patches.coefficients import SMALL, Squares, transformed
from napari_gpu_denoise.noise.patches.compressed import noise_before
from napari_gpu_denoise.noise.patches.laws import Trend, VarianceLaws, brightness_trend
from napari_gpu_denoise.noise.patches.selection import as_floats, clipping_levels, read_patches
from napari_gpu_denoise.noise.patches.variance import (
    FIRST_PATCHES,
    PatchStatistics,
    pooled_variance,
)

METHOD = "high frequencies of the smoothest patches"

MAX_PATCHES = 40_000  # patches read of a plane, about
PATCH = 8
# A coefficient (j, k) of an n x m patch counts as high where (j + 1/2)/n + (k + 1/2)/m is above
# this: the upper 28 of the 64 of an 8 x 8 patch, and at least one of any patch above one pixel.
HIGH_FREQUENCY = 1.125
UPPER_FREQUENCY = 1.4  # the same sum, above which lies the upper half of those
CLIPPED_SHARE = 0.5  # patches with more clipped pixels than this are not used
GROWS = 1.3  # growth of the variance along the line of laws, below which there is no trend
MARGIN = 3  # noise standard deviations that keep nearly all pixels from a clipping level


class PlaneNoise(NamedTuple):
    """Noise of a plane in grey levels: standard deviation, its standard error, and its trend."""

    sigma: float
    error: float
    trend: Trend | None = None
    compressed: bool = False  # as JPEG; sigma is that before


def plane_noise(
    plane: np.ndarray,
    blank: np.ndarray | None = None,
    patches: PatchStatistics | None = None,
    levels: list | None = None,
    laws: VarianceLaws | None = None,
    every: tuple[float, float] | None = None,
) -> PlaneNoise | None:
    """Estimate the noise of one plane of any real dtype; None where no pixel is finite.

    Pixels of `blank`, a mask as `not_image` returns it, are left out. `patches` of 8 x 8 pixels
    of the plane serve for its own, where they are known, and so do its `clipping_levels`. `laws`
    of these patches may show that there is no trend to look for, and `every` is the variance of all
    of them, if no pixel is clipped, and its error.
    """
    levels = clipping_levels(plane, blank) if levels is None else levels
    # Differences of large integers of 64 bits do not fit float64.
    if patches is None or (plane.dtype.kind in "iu" and plane.dtype.itemsize == 8):
        read = _read(plane, blank, levels)
        if read is None:
            return None
        (patches, shape, levels, unit), every = read, None
    else:
        shape, unit = (PATCH, PATCH), 1.0
        levels = [float(level) for level in levels]
    if not patches.energy.shape[1]:
        return PlaneNoise(0.0, 0.0)  # single pixels: nothing to compare them with

    order = patches.order
    if levels:
        share = patches.clipped
        last, least = min(FIRST_PATCHES, len(share)) - 1, 0.0
        if np.count_nonzero(share <= least) <= last:
            least = np.partition(share, last)[last]
        if least > CLIPPED_SHARE:
            # A mask, a drawing, a blank plane: its extremes are what there is.
            levels, patches = [], replace(patches, clipped=np.zeros(len(share)))
        else:
            order = order[share[order] <= least]

    if levels or every is None:
        variance, error, _ = pooled_variance(order, patches.energy, patches.overlap)
    else:
        variance, error = every
    if levels:
        # Near a clipping level, patches with few clipped pixels are those whose noise happens to be
        # weak. Choosing patches by their mean avoids this bias, as the mean is independent of the
        # high frequencies. A better estimate changes the choice, hence twice.
        distance = np.min([np.abs(patches.mean - level) for level in levels], axis=0)
        distance = distance[patches.order]
        for _ in range(2):
            far = patches.order[distance > MARGIN * math.sqrt(variance)]
            if len(far) < FIRST_PATCHES:
                break
            variance, error, _ = pooled_variance(far, patches.energy, patches.overlap)
    trend = None
    if laws is None or laws.growth >= GROWS:
        trend = brightness_trend(patches)
    if trend is not None:
        trend = Trend(*(unit * value for value in trend))
    elif shape == (PATCH, PATCH) and unit == 1.0:
        low, high, upper = frequencies(shape)
        before = noise_before(plane, np.concatenate([low, high]), len(low), upper, levels)
        if before is not None:
            return PlaneNoise(before[0], before[0] * before[1], compressed=True)
    sigma = math.sqrt(variance) * unit
    return PlaneNoise(sigma, sigma * error, trend)


def _read(
    plane: np.ndarray, blank: np.ndarray | None, levels: list
) -> tuple[PatchStatistics, tuple[int, int], list[float], float] | None:
    """Return the patches of a plane, their shape, its clipping levels and the unit of both."""
    # Scattered non-finite pixels may leave no large patch whole, but still smaller ones.
    limit = number_of_patches(MAX_PATCHES, [blank])
    for size in (PATCH, PATCH // 2, PATCH // 4, 1):
        patches, shape, overlap, _ = read_patches(plane, size, limit, blank)
        if len(patches):
            break
    else:
        return None
    share = np.zeros(len(patches))  # of clipped pixels
    for level in levels:
        share += np.mean(patches == level, axis=1)
    low, high, upper = frequencies(shape)
    if patches.dtype.str[1:] not in SMALL:
        patches, levels, unit = as_floats(patches, levels)
    else:
        levels, unit = [float(level) for level in levels], 1.0
    matrix = np.concatenate([low, high])
    lows = np.arange(len(matrix)) < len(low)
    found = transformed(patches, matrix, np.array([lows, ~lows]))
    energy = Squares(found.coefficients, len(low))
    statistics = PatchStatistics(found.mean, found.energy[0], energy, upper, share, overlap)
    return statistics, shape, levels, unit


def cosine_transform(n: int) -> np.ndarray:
    """Return the orthonormal cosine transform of n values, (frequency, value)."""
    k = np.arange(n)
    transform = np.cos(np.pi * np.outer(k, k + 0.5) / n) * math.sqrt(2 / n)
    transform[0] /= math.sqrt(2)
    return transform


@lru_cache(maxsize=16)
def frequencies(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cosine transform of a patch as matrices for its low and high frequencies.

    Rows are orthonormal; the mean of the patch is in neither. The third array marks the upper ones
    of the high frequencies.
    """
    matrix = np.kron(*map(cosine_transform, shape))
    low, high = frequency_order(shape)
    upper = _frequency(shape)[high] > UPPER_FREQUENCY
    return matrix[low], matrix[high], upper


@lru_cache(maxsize=16)
def frequency_order(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return which coefficients are the low and the high rows of `frequencies`.

    As positions j * m + k of coefficient (j, k) of an n x m patch.
    """
    high = _frequency(shape) > HIGH_FREQUENCY
    return np.flatnonzero(~high)[1:], np.flatnonzero(high)


def _frequency(shape: tuple[int, int]) -> np.ndarray:
    return np.add.outer(*((np.arange(n) + 0.5) / n for n in shape)).ravel()
