"""White Gaussian noise of planes.

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
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.errors import NonFiniteError, Note
from napari_gpu_denoise.noise.patches.spectra import FEW_PIXELS, MOST_CLIPPED, PatchSpectra
from napari_gpu_denoise.noise.patches.variance import FIRST_PATCHES, VarianceCurve, pooled_variance

METHOD = "high frequencies of the smoothest patches"
MIXED_METHOD = "mean variance over the levels of brightness"
MARGIN = 3  # noise standard deviations that keep nearly all pixels from a clipping level
FEW_DIFFERENCES = 64  # up to which their mean square is taken, of more the median
MEDIAN_SQUARE = 0.4549  # of a standard normal variable


class PlaneSigma(NamedTuple):
    """Noise of a plane in grey levels: standard deviation, and its standard error."""

    sigma: float
    error: float


def plane_sigmas(spectra: PatchSpectra, levels: Sequence[list]) -> list[PlaneSigma | None]:
    """Return the noise of each plane; None where no patch is whole.

    `levels` are the clipping levels of each plane.
    """
    found: list[PlaneSigma | None] = [None] * len(levels)
    known = [k for k, count in enumerate(spectra.count) if count]
    pooled, parts = spectra.plane_noise, spectra.planes.each()
    for k, variance, error, part in zip(known, *pooled[:2], parts, strict=True):
        if levels[k] and spectra.clipped[part].max() <= MOST_CLIPPED:
            variance, error = _far_from(levels[k], spectra, k, variance, error)
        sigma = math.sqrt(variance)
        found[k] = PlaneSigma(sigma, sigma * float(error))
    return found


def _far_from(
    levels: list, spectra: PatchSpectra, plane: int, variance: float, error: float
) -> tuple[float, float]:
    """Return the variance and its error in patches of a plane far from its clipping levels.

    Near a clipping level, patches with few clipped pixels are those whose noise happens to be weak.
    Choosing patches by their mean avoids this bias, as the mean is independent of the high
    frequencies. A better estimate changes the choice, hence twice.
    """
    patches = spectra.statistics
    first = sum(spectra.count[:plane])
    inside = (patches.order >= first) & (patches.order < first + spectra.count[plane])
    order = patches.order[inside]
    distance = reduce(np.minimum, (np.abs(patches.mean[order] - float(k)) for k in levels))
    for _ in range(2):
        far = order[distance > MARGIN * math.sqrt(variance)]
        if len(far) < FIRST_PATCHES:
            break
        variance, error, _ = pooled_variance(far, patches.energy, patches.overlap)
    return variance, error


def sigma_of_differences(plane: np.ndarray) -> PlaneSigma | None:
    """Return the noise of a plane without whole patches, or extreme; None if nothing is finite.

    That is of differences of neighbours along both axes, in which slopes vanish; of a single row or
    column along it.
    """
    values = plane.astype(np.longdouble)
    finite = np.isfinite(values)
    if not finite.any():
        return None
    unit = max(np.abs(values[finite]).max(), np.finfo(np.float64).tiny)
    values = (np.where(finite, values, np.nan) / unit).astype(np.float64)
    terms = 1
    for axis in range(2):
        if values.shape[axis] > 1:
            values, terms = np.diff(values, axis=axis), 2 * terms
    squares = np.square(values[np.isfinite(values)]) / terms
    if terms == 1 or not squares.size:
        return PlaneSigma(0.0, 0.0)
    few = squares.size <= FEW_DIFFERENCES
    variance = float(squares.mean() if few else np.median(squares) / MEDIAN_SQUARE)
    sigma = math.sqrt(variance) * float(unit)
    return PlaneSigma(sigma, sigma * math.sqrt((1 if few else 2) * terms / squares.size))


def mixed_sigma(curve: VarianceCurve, error: float) -> PlaneSigma:
    """Return the root of the mean variance over levels of brightness; `error` is relative."""
    count = np.array(curve.count)
    sigma = math.sqrt(count @ np.array(curve.variance) / count.sum())
    return PlaneSigma(sigma, sigma * error)


@dataclass(frozen=True)
class SigmaEstimate:
    """Noise standard deviation of an image in grey levels, as a filter measures its own.

    The standard errors cover the number of pixels used and the spread between planes, not the bias
    from texture that looks like noise.
    """

    sigma: tuple[float, ...]  # one per channel
    standard_error: tuple[float, ...]
    method: str  # in words
    planes: int  # number of planes read, over all channels
    notes: tuple[str, ...] = ()  # remarks for the user, in sentences
    blank_width: int = 0  # width of constant squares that are not image; 0 where there are none


def combined_sigma(measured: Iterable[PlaneSigma | None]) -> tuple[float, float]:
    """Return sigma of all planes and its standard error.

    NonFiniteError if no pixel of any plane is finite.
    """
    known = [each for each in measured if each is not None]
    if not known:
        raise NonFiniteError(FEW_PIXELS)
    # Blank planes, such as padding at the end of a stack, say nothing about the noise.
    noisy = [each for each in known if each.sigma > 0] or known
    sigma, error = np.array(noisy).T
    if len(sigma) == 1:
        return float(sigma[0]), float(error[0])
    spread = max(float(np.sqrt(np.mean(error**2))), float(np.std(sigma, ddof=1)))
    # The median of n normal values has pi/2 times the variance of their mean (n large).
    return float(np.median(sigma)), spread * float(np.sqrt(np.pi / (2 * len(sigma))))


def uneven_note(dark: float, bright: float) -> Note:
    """Return the note that no single sigma fits noise of these sigmas."""
    return Note(
        f"the noise grows with brightness, from {dark:.3g} in the dark to {bright:.3g} in the "
        "bright parts: one sigma is a compromise; a noise model works better",
        "noise='auto'",
        code="uneven",
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
