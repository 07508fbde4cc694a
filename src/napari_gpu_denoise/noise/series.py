"""Noise along the planes of a stack: frames, slices, or images that only share an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.correlation import spectrum_of_patches
from napari_gpu_denoise.noise.evidence import Evidence
from napari_gpu_denoise.noise.models.base import Fit
from napari_gpu_denoise.noise.models.gaussian import Correlated, Gaussian
from napari_gpu_denoise.noise.patches.selection import Plane
from napari_gpu_denoise.noise.patches.spectra import (
    PatchSpectra,
    planes_differ,
    read_spectra,
    sigma_of_differences,
)
from napari_gpu_denoise.noise.patches.variance import pooled_variances
from napari_gpu_denoise.noise.record import NoiseEstimate, SigmaSeries
from napari_gpu_denoise.noise.sampling import PlaneReader, PlaneStack, plane_axis, spread

# Planes that sigma is read from along an axis, and patches of each, about.
MOST = 256  # in memory; of others 32
FEW = 32  # of these are read first, and no others where they agree
PATCHES = 4096
FEW_PATCHES = 1024  # of the first planes, if they are all image


def sigma_series(
    source: PlaneReader, number: int, channels: list[Evidence], fits: list[Fit], place: Any
) -> SigmaSeries:
    """Return sigma along an axis, at some positions that are evenly spread.

    More are read if the first ones do not agree: all, or up to `MOST`. `channels` and `fits` belong
    to ``source.channels``; patches are read at a place that `patches_on` yields.

    Few patches are read first. Neither constant areas nor clipping are looked for where the sampled
    planes have none: a plane that has some would not agree with them, or seem to be without noise.
    """
    index = spread(source.shape[number], 32 if source.lazy else MOST)
    scales = list(map(_scale, channels, fits))
    read: dict[int, np.ndarray] = {}  # (channel, 3) by position
    positions = first_positions(index)
    plain = not source.lazy and all(each.is_plain for each in channels)
    while positions:
        stacks = (source.along(number, channel, positions) for channel in source.channels)
        rows = [
            _of_planes(*each, place, plain=plain, threads=source.threads)
            for each in zip(stacks, fits, scales, strict=True)
        ]
        read |= zip(positions, np.stack(rows, axis=1), strict=True)
        factors = np.array(list(read.values()))[..., 2].T
        if all(map(_agree, factors)) and not (plain and np.any(factors == 0)):
            break
        positions = [k for k in index if k not in read or plain]
        plain = False
    index = sorted(read)
    rows = np.array([read[k] for k in index]).swapaxes(0, 1)
    for row, channel, fit in zip(rows, source.channels, fits, strict=True):
        if fit.model.additive and _row_differs(*row.T):
            _set_by_spectra(row, source.along(number, channel, index), fit.sigma, place)
    sigma, error, factor = (tuple(tuple(one) for one in rows[..., k].tolist()) for k in range(3))
    return SigmaSeries(source.axes[number], tuple(index), sigma, error, factor)


def _of_planes(
    stack: PlaneStack, fit: Fit, scale: float, place: Any, *, plain: bool, threads: int
) -> np.ndarray:
    """Return sigma of each plane, its error, and sigma over that of the model, (plane, 3)."""
    found = np.full((len(stack), 3), np.nan)
    for start in range(0, len(stack), 64):  # planes whose patches are kept at once
        numbers = range(start, min(start + 64, len(stack)))
        planes = [stack[k] for k in numbers]
        with mapping(1 if plain else threads) as each:
            each_alone = each(Plane.of_image, ([one] for one in planes))
            examined = list(map(Plane, planes) if plain else (one for (one,) in each_alone))
        limit = (FEW_PATCHES if plain else PATCHES) * len(planes)
        try:
            spectra = read_spectra(examined, limit, place)
            shown = np.array(spectra.count) > 0
            found[np.array(numbers)[shown]] = _sigmas(spectra, fit, scale)
        except (ImageError, NonFiniteError):
            shown = np.zeros(len(planes), bool)
        for k in np.flatnonzero(~shown):  # no patch is whole
            if fit.sigma:
                sigma, error = sigma_of_differences(planes[k])
                found[start + k] = sigma, error, sigma / fit.sigma
    return found


def _sigmas(spectra: PatchSpectra, fit: Fit, scale: float) -> np.ndarray:
    """Return the same of each plane with patches, whose noise follows a model but for strength."""
    model, parts = fit.model, spectra.planes
    weight, total = None, np.ones(len(parts.count))
    expected = np.full(len(parts.count), fit.sigma)
    if not model.additive:
        line = model.variance(spectra.mean)
        # A small minimum keeps ratios finite where the model has no noise.
        typical = float(np.median(line))
        unit = typical or float(line.mean()) or 1.0
        weight = 1 / np.maximum(line / unit, 1e-3 if typical else 1e-12)
        parts = parts.by_rank(spectra.energy_of("low") * weight)
        each = parts.each()
        total = np.array([model.representative(unit / weight[part]) / unit for part in each])
        expected = np.sqrt([model.representative(line[part]) for part in each])
    variance, error, *_ = pooled_variances(parts, spectra.squares, spectra.overlap, weight)
    sigma = np.sqrt(variance * total * scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(expected > 0, sigma / expected, np.nan)
    return np.stack([sigma, sigma * error, factor], axis=1)


def first_positions(index: list[int]) -> list[int]:
    """Return the positions along an axis, of many, that are read first: one of each few.

    They are not the same distance apart, so that no rhythm of planes is missed: of 256 they hold
    every phase of rhythms of 2 to 16.
    """
    if len(index) <= FEW:
        return index
    ends = [len(index) * k // FEW for k in range(FEW + 1)]
    return [
        index[start + int((k * 0.725) % 1 * (stop - start))]
        for k, (start, stop) in enumerate(pairwise(ends))
    ]


def _agree(factor: np.ndarray) -> bool:
    """Return whether planes agree so well in their noise that others would hardly differ.

    `planes_differ` needs a tenth of them on either side: `FEW` miss all of one side in 3 % of such
    cases.
    """
    known = factor[np.isfinite(factor) & (factor > 0)]
    return 2 * len(known) > len(factor) and bool(
        known.max() <= limits.MAX_SIGMA_RATIO_ALIKE * known.min()
    )


def _set_by_spectra(row: np.ndarray, stack: PlaneStack, expected: float, place: Any) -> None:
    """Set sigma, error and factor of each plane by its own spectrum, if most are correlated.

    Planes that were shifted by parts of a pixel differ most at the high frequencies; a few may have
    texture that passes for such noise.
    """
    found = np.full(len(stack), np.nan)
    correlated = 0
    for k, plane in enumerate(stack):
        try:
            spectrum = spectrum_of_patches(read_spectra(Plane.of_image([plane]), None, place))
        except (ImageError, NonFiniteError):
            continue
        found[k] = Correlated.of_spectrum(spectrum).sigma
        correlated += not spectrum.white
    if 2 * correlated <= len(stack):
        return
    for values, sigma in zip(row, found, strict=True):
        if math.isfinite(sigma) and values[0] > 0 and expected > 0:
            values[:] = sigma, values[1] / values[0] * sigma, sigma / expected


def _scale(channel: Evidence, fit: Fit) -> float:
    """Return the variance at all frequencies over that at the high ones, for correlated noise."""
    model = fit.model
    if channel.spectra is None:
        return 1.0
    if not model.models_correlation and not (model.additive and fit.sigma != channel.sigma):
        return 1.0
    high = np.nanmedian(_sigmas(channel.spectra, fit, 1.0)[:, 0])
    return (fit.sigma / high) ** 2 if high else 1.0


# Repeats of a scene, such as frames, bound the noise from above: they share the scene, texture and
# all, and their differences hold motion besides the noise. What repeats share is not noise.
MAX_PIXELS = 1 << 16  # looked at in a plane, about


def limit_by_repeats(
    source: PlaneReader, channels: list[Evidence], fits: list[Fit]
) -> tuple[list[Fit], list[float]]:
    """Return fits no stronger than the differences of repeats, and the factor of each.

    Speckle is exempt, which tissue that stands still repeats.
    """
    fits, factors, claims = list(fits), [1.0] * len(fits), [0.0] * len(fits)
    if (axis := source.repeats) is None or any(each.log_speckle for each in channels):
        return fits, factors
    for number, (channel, fit) in enumerate(zip(source.channels, fits, strict=True)):
        row, planes = channels[number].row, channels[number].planes
        pairs = [(planes[k], planes[other]) for k, other in source.sampled_repeats(channel, axis)]
        if row is not None:
            # The second next frame: neighbours may share noise, or two states alternate.
            pairs = [(each[0], each[-1]) for each in row.rows]
        told = [(_difference_variance(*pair), _claimed_variance(fit, pair[0])) for pair in pairs]
        known = [each for each in told if all(map(math.isfinite, each))] or [(0.0, 0.0)]
        limit, claim = np.sqrt(np.maximum(np.mean(known, axis=0), 0.0)).tolist()
        claims[number], fits[number] = claim, fit._replace(limit=limit)
        if claim > limits.MAX_SIGMA_OVER_BOUND * limit > 0:
            factors[number] = limit / claim
    if all(factor == 1 for factor in factors):
        return fits, factors
    note = (
        f"differences of repeats along {source.axes[source.repeats]} hold less than single planes "
        f"suggest: sigma is {min(factors):.2g} of that, and fine texture stays"
    )
    pairs = zip(fits, factors, strict=True)
    scalable = all(fit.model.scaled(factor) is not None for fit, factor in pairs)
    for number, (fit, factor, claim) in enumerate(zip(fits, factors, claims, strict=True)):
        if factor < 1:
            if not scalable:
                fit = fit._replace(model=Gaussian(claim), sigma=claim, errors={})
            fits[number] = fit.scaled(factor)._replace(notes=(*fit.notes, note))
    return fits, factors


def _claimed_variance(fit: Fit, plane: np.ndarray) -> float:
    pixels = plane[:: 1 + plane.size // MAX_PIXELS].astype(np.float64)
    known = pixels[np.isfinite(pixels)]
    return float(np.mean(fit.model.variance_told_by(known))) if known.size else math.nan


def _difference_variance(plane: np.ndarray, other: np.ndarray) -> float:
    """Return half the mean square of the difference of two planes.

    Pixels that are equal are left out, such as padding, and with few others it is NaN.
    """
    step = 1 + plane.size // MAX_PIXELS
    apart = plane[::step].astype(np.float64) - other[::step]
    apart = apart[np.isfinite(apart) & (apart != 0)]
    return float(np.mean(np.square(apart))) / 2 if apart.size >= 256 else math.nan


def plane_factors(estimate: NoiseEstimate, shape: Sequence[int]) -> np.ndarray | None:
    """Return the factor of sigma at each plane, or None where planes agree.

    The array has the axes of the image, each with the length there or 1. It follows the measured
    planes, with straight lines between them, along each axis along which they clearly differ; where
    several do, the factors are multiplied.
    """
    channel, found = channel_axis(estimate.axes), None
    for series in estimate.series:
        axis = series.axis
        number = estimate.axes.find(axis) if axis in "TZ" else plane_axis(estimate.axes, shape)
        if number is None or not differ(series):
            continue
        curves = np.array([_curve(series, row, shape[number]) for row in series.factor])
        if found is not None:
            # Both are relative to the same plane in the middle.
            curves /= curves[:, [shape[number] // 2]]
        lengths = [1] * len(shape)
        lengths[number] = shape[number]
        if channel is not None:
            lengths[channel] = len(curves)
        ordered = curves if channel is None or channel < number else curves.T
        placed = ordered.reshape(lengths)
        found = placed if found is None else found * placed
    return found


def differ(series: SigmaSeries) -> bool:
    """Return whether the planes of any channel clearly differ in their noise."""
    return any(map(_row_differs, series.sigma, series.error, series.factor))


def _row_differs(sigma: Sequence[float], error: Sequence[float], factor: Sequence[float]) -> bool:
    return bool(np.nan_to_num(sigma).any()) and planes_differ(
        factor, np.array(error) / np.maximum(sigma, 1e-300)
    )


def _curve(series: SigmaSeries, factor: Sequence[float], length: int) -> np.ndarray:
    """Return the factor at every position along the axis."""
    index, values = np.array(series.index), np.array(factor)
    known = np.isfinite(values)
    if not known.any():
        return np.ones(length)
    return np.interp(np.arange(length), index[known], values[known])
