"""Noise of magnitude images: Rayleigh in the background, Rician in the object.

One sigma explains both: the blocks whose squares are those of noise alone, wherever they are, and
the variance at each level of brightness. Blocks take the part of the repetitions in C. G. Koay,
E. Özarslan and C. Pierpaoli, *Probabilistic identification and estimation of noise (PIESNO)*,
Journal of Magnetic Resonance 199 (2009).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import ranked
from napari_gpu_denoise.noise.patches.laws import VarianceLaws, capped_cost
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra
from napari_gpu_denoise.noise.patches.variance import pooled_variance, unclipped

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.evidence import Evidence

BLOCK = 4  # width of a block of the background, pixels
MIN_BLOCKS = 24  # of a background


class Magnitudes(NamedTuple):
    """Sigma of Rician noise, and how well it explains an image."""

    sigma: float  # of the real and of the imaginary part, grey levels
    error: float  # standard error of sigma; NaN of a sigma that `object_noise` has to refine
    misfit: float  # squared standard errors of the levels
    proof: float  # the same by which other evidence is better explained than by other noise
    share: float  # of the image that is background, and sigma read from; else 0


def mean_magnitude(signal: np.ndarray) -> np.ndarray:
    """Return the mean of the Rice distribution of sigma 1."""
    from scipy.special import ive

    half = np.square(signal) / 2
    both = (1 + half) * ive(0, half / 2) + half * ive(1, half / 2)
    return math.sqrt(math.pi / 2) * both


@cache
def magnitude_variance() -> tuple[np.ndarray, np.ndarray]:
    """Return the variance of a magnitude as a function of its mean, both of sigma 1."""
    signal = np.linspace(0, 40, 2001)
    mean = mean_magnitude(signal)
    return mean, 2 + np.square(signal) - np.square(mean)


def magnitude_noise(channel: Evidence) -> Magnitudes | None:
    """Measure Rician noise by the background, or where none agrees by the levels of brightness.

    None where there are negative values, neither a background nor dark levels, or where a line
    explains the levels better.
    """
    laws = channel.laws
    if laws is not None and laws.is_linear and laws.growth > limits.MAX_GROWTH_OF_MAGNITUDES:
        return None
    if any(itertools.starmap(_has_negative, channel.examined)):
        return None
    found = [_by_background(channel), _by_levels(channel)]
    return min(filter(None, found), key=lambda each: each.misfit - each.proof, default=None)


def _by_background(channel: Evidence) -> Magnitudes | None:
    found = rayleigh_background(channel.examined)
    if found is None or channel.laws is None:
        return found
    (distance,) = _level_distances(channel.laws, np.array([found.sigma]), 0.0)
    # Texture of the object may raise levels, and never lowers them; photons raise them as well.
    lowered = float(capped_cost(np.minimum(distance, 0)))
    if lowered > limits.MIN_COST_GAIN:
        return None
    grows = channel.laws.line + limits.MIN_COST_GAIN < channel.laws.constant
    cost = float(capped_cost(distance)) if grows else lowered
    return found._replace(misfit=cost, proof=found.proof + _missing_values(channel))


def _by_levels(channel: Evidence) -> Magnitudes | None:
    laws = channel.laws
    if laws is None:
        return None
    mean, variance = laws.curve.fitted
    if mean[0] > limits.MAX_MEAN_OF_DARK_LEVEL * math.sqrt(variance[0]):
        return None
    low, high = map(float, np.sqrt([0.8 * variance.min(), 3 * variance.max()]))
    sigma = np.geomspace(low, high, 400)
    cost = capped_cost(_level_distances(laws, sigma, 2.0))
    best = int(cost.argmin())
    limit = limits.MAX_MISFIT_OF_MAGNITUDES * laws.levels
    if laws.line + limits.MIN_COST_GAIN < laws.constant:
        limit = min(limit, laws.line)
    if cost[best] > limit:
        return None
    proof = _missing_values(channel)
    return Magnitudes(float(sigma[best]), math.nan, float(cost[best]), proof, 0.0)


def object_noise(patches: PatchSpectra, sigma: float) -> tuple[float, float]:
    """Return sigma of the smoothest patches of magnitudes and its error, from about `sigma` on."""
    members, error = unclipped(patches.clipped), 0.0
    low = patches.energy_of("low")
    for _ in range(3 if sigma else 0):
        weight = 1 / np.interp(patches.mean / sigma, *magnitude_variance())
        rank = low * weight.astype(low.dtype)
        order = members[ranked(rank[members])]
        variance, relative, _ = pooled_variance(order, patches.squares, patches.overlap, weight)
        sigma = math.sqrt(variance)
        error = sigma * relative
    return sigma, error


def _has_negative(plane: np.ndarray, blank: np.ndarray | None, ends: Sequence[Any]) -> bool:
    """Return whether a plane has negative values that are no fill."""
    step = 1 + (plane.size >> 18)
    plane, blank = plane[::step], blank if blank is None else blank[::step]
    if plane.dtype.kind == "u" or not np.fmin.reduce(plane, axis=None) < 0:
        return False
    negative = (plane < 0) & ~np.isin(plane, ends)
    return bool(negative.any() if blank is None else negative[~blank].any())


def _level_distances(laws: VarianceLaws, sigma: np.ndarray, mixed: float) -> np.ndarray:
    """Return how far the variance of levels is above the law, in errors, (sigma, level).

    It is lower in patches that hold both background and object, at most by as much as on the line
    between the two: down to there, a level is at most `mixed` errors from the law.
    """
    mean, variance = laws.curve.fitted
    at, law = magnitude_variance()
    ratio = mean / sigma[:, None]
    highest = np.interp(ratio, at, law)
    slope = (highest[:, -1:] - law[0]) / np.maximum(ratio[:, -1:] - at[0], 1e-9)
    # Means of patches of noise alone differ by chance, most by less than 0.16 sigma.
    lowest = np.minimum(highest, law[0] + slope * np.maximum(ratio - at[0] - 0.16, 0))
    lowest *= np.minimum(ratio / at[0], 1) ** 2  # patches that are dark by chance vary less
    found = np.log(variance / np.square(sigma[:, None]))
    above, below = (laws.distance(found - np.log(each)) for each in (highest, lowest))
    # The mean of a level without signal is 1.25 sigma, and less by chance.
    found = np.where(above > 0, above, np.minimum(below, np.maximum(above, -mixed)))
    return np.where(ratio < 1, -np.inf, found)


def _missing_values(channel: Evidence) -> float:
    """Return the deviance by which fewer values are 0 or below than of normal noise.

    Noise whose variance is on a line, such as that of photons, may have none of them either. Of
    values that may be counts of photons, clearly fewer than of these are needed.
    """
    laws = channel.laws
    if laws is None or laws.line + limits.MIN_COST_GAIN < laws.constant:
        return 0.0
    from scipy.special import ndtr

    images = [plane[... if blank is None else ~blank] for plane, blank, _ in channel.examined]
    values = sum(image.size for image in images)
    found = sum(int(np.count_nonzero(image <= 0)) for image in images)
    mean, variance = laws.curve.fitted
    chance, least = ndtr(-mean / np.sqrt(variance)), 0.0
    photons = mean * _step(_blocks(channel.examined))
    low, high = limits.COUNT_DISPERSION
    if ((low * photons <= variance) & (variance <= high * photons)).all():
        chance, least = np.exp(-np.square(mean) / photons), limits.MIN_COST_GAIN_BESIDE_PROOF
    count = np.array(laws.curve.count)[np.array(laws.curve.used, bool)]
    return _deviance(found, values * float(count @ chance / count.sum())) - least


def lacks_values(values: np.ndarray) -> bool:
    """Return whether values below 0 are missing that noise of sigma 1 would have if it were normal.

    These are measurements of the same pixels, (measurement, pixel). Of normal noise the projection
    on some components is independent of the rest.
    """
    from scipy.special import ndtr

    _, vectors = np.linalg.eigh(values @ values.T)
    half = vectors[:, len(vectors) // 2 :]
    rest = math.sqrt(1 - half.shape[1] / len(values))
    expected = float(ndtr(half @ (half.T @ values) / -rest).sum())
    found = int(np.count_nonzero(values <= 0))
    # A sigma that is not exact changes what is expected by a part, and magnitudes lack nearly all.
    return 2 * found < expected and _deviance(found, expected) > limits.MIN_COST_GAIN


def _deviance(found: int, expected: float) -> float:
    """Return the deviance of a count below what is expected; 0 of one that is not."""
    if found >= expected:
        return 0.0
    return 2 * (expected - found - (found * math.log(expected / found) if found else 0.0))


def rayleigh_background(planes: Sequence[selection.Plane]) -> Magnitudes | None:
    """Find the background of magnitude images; None where nothing is distributed like one.

    Of all sets of blocks that agree with one sigma, the one is taken that a Rayleigh law explains
    best, compared with a normal and a gamma law, and with counts of photons where all values are
    whole steps.
    """
    blocks = _blocks(planes)
    if len(blocks) < MIN_BLOCKS or blocks.min() < 0:
        return None
    # In noise alone the ratio is 1.27.
    dark = blocks[np.argsort(blocks.mean(axis=1))[: max(len(blocks) // 20, MIN_BLOCKS)]]
    if np.square(dark).mean() < 1.14 * dark.mean() ** 2:
        return None
    step = _step(blocks)
    if not step:
        return _of_blocks(blocks, 0.0, 0.0)
    rounded, cut = (_of_blocks(blocks, step, shift) for shift in (0.0, step / 2))
    if rounded is None or cut is None:
        return rounded or cut
    values = blocks[np.square(blocks).mean(axis=1) < 2 * rounded.sigma**2]
    likelihood = [
        np.log(_rayleigh_chance(np.maximum(values + low, 0), values + high, each.sigma)).sum()
        for each, low, high in ((rounded, -step / 2, step / 2), (cut, 0.0, step))
    ]
    return rounded if likelihood[0] >= likelihood[1] else cut


def _rayleigh_chance(low: np.ndarray, high: np.ndarray, sigma: float) -> np.ndarray:
    """Return the probability of magnitudes of noise alone between two limits."""
    low, high = (np.exp(-np.square(each / sigma) / 2) for each in (low, high))
    return np.maximum(low - high, 1e-300)


def _blocks(planes: Sequence[selection.Plane]) -> np.ndarray:
    """Read blocks of planes, (block, pixel), without filled ones."""
    found: list[np.ndarray] = []
    for plane, blank, ends in planes:
        blocks = selection.blocks_of(plane, BLOCK)
        step = math.ceil(math.sqrt(blocks.size / BLOCK**2 * len(planes) / 10_000)) or 1
        blocks = blocks[::step, ::step].reshape(-1, BLOCK**2)
        keep = np.isfinite(blocks).all(axis=1)
        if blank is not None:
            keep &= ~selection.blocks_of(blank, BLOCK)[::step, ::step].any(axis=(2, 3)).ravel()
        for level in ends:
            # Rounding piles up zeros too; a fill is flat.
            keep &= (blocks == level).mean(axis=1) <= 0.5
        found.append(blocks[keep].astype(np.float64))
    return np.concatenate(found)


def _step(values: np.ndarray) -> float:
    """Return the usual step of grey levels if values repeat, else 0."""
    some = values.ravel()[:: 1 + values.size // 2048]
    level = np.unique(some)
    return float(np.median(np.diff(level))) if 1 < len(level) < some.size / 2 else 0.0


@cache
def _energy_limits(most: float) -> tuple[np.ndarray, float]:
    """Return the range of the energy of blocks of noise alone, and its mean there, over sigma²."""
    from scipy.special import gammainc, gammaincinv

    shares = np.array([0.005, most])
    limits = gammaincinv(BLOCK**2, shares)
    mean = np.diff(gammainc(BLOCK**2 + 1, limits)) / np.diff(shares)
    return limits[:, None] / BLOCK**2, float(mean[0])


def _of_blocks(blocks: np.ndarray, step: float, shift: float) -> Magnitudes | None:
    """Find the background in blocks of values in steps, with `shift` missing in each value."""
    # Rounding adds a twelfth of a squared step.
    energy = np.maximum(np.square(blocks + shift).mean(axis=1) - step**2 / 12, 0) / 2
    order = np.argsort(energy)
    energy, blocks = energy[order], blocks[order]
    summed = np.append(0, np.cumsum(energy))

    def converge(square: np.ndarray, most: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        limits, expected = _energy_limits(most)
        for _ in range(40):
            first, last = np.searchsorted(energy, limits * square)
            square = (summed[last] - summed[first]) / np.maximum(last - first, 1) / expected
        return square, first, last  # pyright: ignore[reportPossiblyUnboundVariable]

    starts = energy[np.linspace(0, len(energy) - 1, 64).astype(int)]
    square, first, last = converge(starts, 0.995)
    shifted = blocks + shift
    least = step / 8 or 1e-3 * math.sqrt(float(energy.mean())) or 1.0
    mean = np.maximum(shifted.mean(axis=1), least)
    variance = np.maximum(shifted.var(axis=1, ddof=1) - step**2 / 12, 0)
    # A mean of few values is a little off, and its logarithm too low.
    log_mean = np.log(mean) + variance / mean**2 / (2 * BLOCK**2)
    columns = [energy, variance, np.log(np.maximum(shifted, least)).mean(axis=1), log_mean]

    def gains() -> np.ndarray:
        sums = np.pad(np.cumsum(columns, axis=1), ((0, 0), (1, 0)))
        means = (sums[:, last] - sums[:, first]) / np.maximum(last - first, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.nan_to_num(_gain(*means), nan=-1.0)
        return np.where(last - first < MIN_BLOCKS, -1, gain * 2 * BLOCK**2 * (last - first))

    gain = gains()
    if step and gain.max() > 0:
        from scipy.special import gammaln  # which takes most of the time

        photons = np.maximum((mean - shift) / step, 1e-9)
        chance = photons * (np.log(photons) - 1) - gammaln((blocks / step).clip(0) + 1).mean(axis=1)
        columns.append(chance - math.log(step))
        gain = gains()
    best = int(gain.argmax())
    if gain[best] <= 0:
        return None
    # Faint signals add energy: the brightest tenth, where they hide, is left out.
    (square,), (first,), (last,) = converge(square[[best]], 0.9)
    sigma, count = math.sqrt(square), last - first
    values = np.sort(shifted[first:last], axis=None)
    expected = -np.expm1(-np.square(values + step / 2) / (2 * energy[first:last].mean()))
    found = np.searchsorted(values, values, "right") / len(values)
    away = np.abs(found - expected).max() - 1 / math.sqrt(len(values))
    if away > limits.MAX_DEVIATION_OF_BACKGROUND:
        return None
    # Sigma of n values has a relative error of 0.5 / sqrt(n), and more for the choice of blocks.
    error = sigma * math.hypot(0.6 / math.sqrt(BLOCK**2 * count), 0.003)
    return Magnitudes(sigma, error, 0.0, float(gain[best]), count / 0.9 / len(blocks))


def _gain(
    energy: np.ndarray,
    variance: np.ndarray,
    logarithm: np.ndarray,
    log_mean: np.ndarray,
    *counts: np.ndarray,
) -> np.ndarray:
    """Return the mean log likelihood of noise alone over that of blocks of other noise.

    Blocks of a normal or a gamma law, or counts of photons, each have a mean of their own.
    """
    from scipy.special import gammaln

    rayleigh = logarithm - np.log(energy) - 1
    normal = -0.5 * np.log(2 * np.pi * np.e * variance)
    spread = log_mean - logarithm
    shape = (3 - spread + np.sqrt((spread - 3) ** 2 + 24 * spread)) / (12 * spread)
    gamma = shape * (np.log(shape) - spread - 1) - gammaln(shape) - logarithm
    return rayleigh - np.max([normal, gamma, *(each - 0.5 / BLOCK**2 for each in counts)], axis=0)
