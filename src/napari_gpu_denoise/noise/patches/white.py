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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import NonFiniteError, Note
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import (
    SMALL,
    Squares,
    transformed,
)
from napari_gpu_denoise.noise.patches.laws import Trend, VarianceLaws, brightness_trend
from napari_gpu_denoise.noise.patches.variance import (
    FIRST_PATCHES,
    PatchStatistics,
    pooled_variance,
)
from napari_gpu_denoise.noise.sampling import PlaneReader

# White noise of one plane.
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


class PlaneSigma(NamedTuple):
    """Noise of a plane in grey levels: standard deviation, its standard error, and its trend."""

    sigma: float
    error: float
    trend: Trend | None = None


def plane_noise(
    plane: np.ndarray,
    blank: np.ndarray | None = None,
    patches: PatchStatistics | None = None,
    levels: list | None = None,
    laws: VarianceLaws | None = None,
    every: tuple[float, float] | None = None,
) -> PlaneSigma | None:
    """Estimate the noise of one plane of any real dtype; None where no pixel is finite.

    Pixels of `blank`, a mask as `not_image` returns it, are left out. `patches` of 8 x 8 pixels
    of the plane serve for its own, where they are known, and so do its `clipping_levels`. `laws`
    of these patches may show that there is no trend to look for, and `every` is the variance of all
    of them, if no pixel is clipped, and its error.
    """
    levels = selection.clipping_levels(plane, blank) if levels is None else levels
    # Differences of large integers of 64 bits do not fit float64.
    if patches is None or (plane.dtype.kind in "iu" and plane.dtype.itemsize == 8):
        read = _read(plane, blank, levels)
        if read is None:
            return None
        (patches, levels, unit), every = read, None
    else:
        unit = 1.0
        levels = [float(level) for level in levels]
    if not patches.energy.shape[1]:
        return PlaneSigma(0.0, 0.0)  # single pixels: nothing to compare them with

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
        mean = patches.mean[patches.order]
        distance = reduce(np.minimum, (np.abs(mean - level) for level in levels))
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
    sigma = math.sqrt(variance) * unit
    return PlaneSigma(sigma, sigma * error, trend)


def _read(
    plane: np.ndarray, blank: np.ndarray | None, levels: list
) -> tuple[PatchStatistics, list[float], float] | None:
    """Return the patches of a plane, its clipping levels and the unit of both."""
    # Scattered non-finite pixels may leave no large patch whole, but still smaller ones.
    limit = selection.number_of_patches(MAX_PATCHES, [blank])
    for size in (PATCH, PATCH // 2, PATCH // 4, 1):
        patches, shape, overlap, _ = selection.read_patches(plane, size, limit, blank)
        if len(patches):
            break
    else:
        return None
    share = selection.clipped_shares(patches, levels)
    low, high, upper = frequencies(shape)
    if patches.dtype.str[1:] not in SMALL:
        patches, levels, unit = selection.as_floats(patches, levels)
    else:
        levels, unit = [float(level) for level in levels], 1.0
    matrix = np.concatenate([low, high])
    lows = np.arange(len(matrix)) < len(low)
    found = transformed(patches, matrix, np.array([lows, ~lows]))
    energy = Squares(found.coefficients, len(low))
    statistics = PatchStatistics(found.mean, found.energy[0], energy, upper, share, overlap)
    return statistics, levels, unit


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
    """Return the coefficients of the low and the high rows of `frequencies`.

    As positions j * m + k of coefficient (j, k) of an n x m patch.
    """
    high = _frequency(shape) > HIGH_FREQUENCY
    return np.flatnonzero(~high)[1:], np.flatnonzero(high)


def _frequency(shape: tuple[int, int]) -> np.ndarray:
    return np.add.outer(*((np.arange(n) + 0.5) / n for n in shape)).ravel()


# One sigma per channel, assuming additive white noise.
MIXED_METHOD = "mean variance over the levels of brightness"


@dataclass(frozen=True)
class SigmaEstimate:
    """Noise standard deviation of an image, in grey levels.

    The standard errors cover the number of pixels used and the spread between planes, not the bias
    from texture that looks like noise.
    """

    sigma: tuple[float, ...]  # one per channel
    standard_error: tuple[float, ...]
    method: str  # in words
    planes: int  # number of planes read, over all channels
    notes: tuple[str, ...] = ()  # remarks for the user, in sentences
    blank_width: int = 0  # width of constant squares that are not image; 0 where there are none


def estimate_sigma(image: Any, axes: str | None = None) -> SigmaEstimate:
    """Estimate the standard deviation of additive white noise of each channel.

    `image` and `axes` are as `estimate_noise` takes them, and so are the errors raised. A constant
    image gives exactly 0.

    At most 8 planes of each channel, spread evenly over every axis, and about 40 000 patches of 8 x
    8 pixels of each plane are read, so that the cost is bounded; several planes give their median.
    Pixels that are NaN or infinite are left out, and so are constant areas, such as padding, and
    places where values are clipped: at the ends of an integer dtype, or at an extreme value that
    piles up. Rounding to integers counts as
    noise, with a variance of 1/12.

    Where the noise of most planes clearly grows with brightness, as photon noise does, `sigma` is
    the square root of the mean variance over the levels of brightness: the best single value, too
    high for the dark parts and too low for the bright ones. `method` and `notes` say so. This is
    detected from a factor of about 1.5 between the standard deviations in the darkest and the
    brightest parts, if some places at several levels are free of fine texture.

    Noise is assumed white: the estimate is too low where it is correlated (interpolated, filtered
    or compressed images), where the noise of an integer image is below about half a grey level, and
    where single photons are counted.

    On the 68 images of the Berkeley test set with noise of standard deviation 5, 10, 20, 30 and 50
    on a scale of 255 the mean relative error is 2.6, 1.7, 1.2, 1.0 and 0.7 %.
    """
    source = PlaneReader(image, axes)
    results, notes, width = [], [], 0
    for channel in source.channels:
        planes = list(source.sampled(channel))
        areas = [selection.blank_area(plane) for plane in planes]
        blanks = selection.not_image(planes, areas)
        width = max(width, selection.blank_width(areas, blanks))
        measured = map(plane_noise, planes, blanks)
        value, error, ends = combined_sigma(measured)
        results.append((value, error))
        if ends is not None:
            place = f" of channel {channel[1]}" if len(source.channels) > 1 else ""
            notes.append(
                Note(
                    f"{uneven_note(place, *ends)}; a noise model works better",
                    "noise='auto'",
                    code="uneven",
                )
            )
    values, errors = zip(*results, strict=True)
    methods = [METHOD] * (len(notes) < len(results)) + [MIXED_METHOD] * bool(notes)
    method = ", or ".join(methods)
    return SigmaEstimate(values, errors, method, source.count, tuple(notes), width)


def combined_sigma(
    measured: Iterable[PlaneSigma | None],
) -> tuple[float, float, tuple[float, float] | None]:
    """Return sigma of all planes, its standard error, and the noise in dark and bright parts.

    The latter are None where noise does not clearly grow with brightness in most planes.
    NonFiniteError if no pixel of any plane is finite.
    """
    known = [each for each in measured if each is not None]
    if not known:
        raise NonFiniteError(
            "Too few finite pixels are left to estimate the noise; give sigma, or replace NaN and "
            "infinity first."
        )
    # Blank planes, such as padding at the end of a stack, say nothing about the noise.
    noisy = [each for each in known if each.sigma > 0] or known
    trends = [each.trend for each in noisy if each.trend is not None]
    if 2 * len(trends) > len(noisy):
        ends = tuple(float(np.median(each)) for each in zip(*(t[2:] for t in trends), strict=True))
        sigma, error = np.array([(each.trend or each)[:2] for each in noisy]).T
    else:
        ends = None
        sigma, error = np.array([each[:2] for each in noisy]).T
    if len(sigma) == 1:
        return float(sigma[0]), float(error[0]), ends
    spread = max(float(np.sqrt(np.mean(error**2))), float(np.std(sigma, ddof=1)))
    # The median of n normal values has pi/2 times the variance of their mean (n large).
    return float(np.median(sigma)), spread * float(np.sqrt(np.pi / (2 * len(sigma)))), ends


def uneven_note(place: str, dark: float, bright: float) -> str:
    """Return the note that no single sigma fits; `place` names the channel."""
    return (
        f"the noise{place} grows with brightness, from {dark:.3g} in the dark to {bright:.3g} in "
        "the bright parts: one sigma is a compromise"
    )


# When the noise of planes, or of places, is not the same.
# Planes differ if the middle four fifths of their sigmas differ by this factor,
RATIO = 1.25
# and by this many standard errors from their median, in the root mean square.
SIGNIFICANT = 3.0
SYSTEMATIC = 0.05  # relative error of a sigma that texture leaves


def planes_differ(sigma: Sequence[float], error: Sequence[float]) -> bool:
    """Return whether planes clearly differ in their noise; `error` is relative.

    Planes without noise, or where it is not known, do not count.
    """
    values, errors = np.array(sigma), np.array(error)
    known = np.isfinite(values) & (values > 0)
    values, errors = values[known], errors[known]
    if len(values) < 2:
        return False
    low, high = np.quantile(values, (0.1, 0.9))
    distance = np.log(values / np.median(values)) / np.hypot(errors, SYSTEMATIC)
    return bool(high >= RATIO * low and np.sqrt(np.mean(distance**2)) >= SIGNIFICANT)
