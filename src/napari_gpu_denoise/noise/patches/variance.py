"""Noise variance read at the high frequencies of smooth patches, overall and by brightness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.coefficients import Squares, nested, range_sums, ranked
from napari_gpu_denoise.noise.patches.selection import DISPERSION
from napari_gpu_denoise.noise.robust import medians

# Parts of the patches, such as levels of brightness, as lists of patches one after another.
LEVELS = 16  # of brightness, at most
MEMBERS = 64  # patches a level needs
SAMPLE = 4096  # patches whose brightness the limits of levels are taken from, about


class Parts(NamedTuple):
    """Patches of several parts; none is empty."""

    members: np.ndarray  # indices of patches, those of one part after another
    count: np.ndarray  # (part,), how many each has

    @property
    def first(self) -> np.ndarray:
        """Where each part begins in `members`, (part,)."""
        return np.cumsum(self.count) - self.count

    def each(self) -> list[np.ndarray]:
        """Return the members of each part."""
        return np.split(self.members, self.first[1:])

    def kept(self, which: np.ndarray) -> Parts:
        """Return the parts that a mask (part,) selects."""
        if which.all():
            return self
        return Parts(self.members[np.repeat(which, self.count)], self.count[which])

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values (patch,) over each part."""
        return np.add.reduceat(values[self.members], self.first)

    def by_rank(self, rank: np.ndarray) -> Parts:
        """Return the same parts, the members of each from the lowest rank (patch,) on."""
        group = np.repeat(np.arange(len(self.count), dtype=np.uint8), self.count)
        order = ranked(rank[self.members], group, len(self.count))
        return self._replace(members=self.members[order])


def grouped(part: np.ndarray, number: int, order: np.ndarray | None = None) -> Parts:
    """Group patches into parts, given the number of the part of each, (patch,), uint8.

    Members stand in the `order` in which patches are listed there, by default in their own. Empty
    parts are left out.
    """
    listed = part if order is None else part[order]
    members = np.argsort(listed, kind="stable")
    count = np.searchsorted(listed[members], np.arange(number, dtype=np.uint8), "right")
    count[1:] -= count[:-1].copy()
    return Parts(members if order is None else order[members], count[count > 0])


def brightness_levels(
    mean: np.ndarray,
    members: int = MEMBERS,
    most: int = LEVELS,
    order: np.ndarray | None = None,
) -> Parts:
    """Return the patches of each level of brightness, from dark to bright.

    There are at most `most` levels, and fewer where they would have less than twice `members`
    patches. The limits lie halfway between those of equal numbers and those of equal widths, so
    that a few bright cells on a dark background have levels of their own. `order` is as in
    `grouped`.
    """
    # Where there are many patches, some of them tell well enough where the limits are.
    ordered = np.sort(mean[:: max(1, len(mean) // SAMPLE)])
    edge = min(round(members * len(ordered) / len(mean)), (len(ordered) - 1) // 2)
    first, last = ordered[edge], ordered[-1 - edge]
    levels = min(most, max(len(mean) // (2 * members), 1))
    steps = np.arange(1, levels) / levels
    numbers = ordered[(steps * len(ordered)).astype(int)]
    limits = (numbers + first + steps * (last - first)) / 2
    level = np.zeros(len(mean), np.uint8)
    above = np.empty(len(mean), bool)
    for limit in limits:
        np.greater_equal(mean, limit, out=above)
        level += above.view(np.uint8)
    return grouped(level, levels, order)


# Noise variance of the smoothest patches.
FIRST_PATCHES = 64  # the smallest set of patches a variance is read from
SIGNIFICANT = 1.5  # standard errors by which more patches may raise the variance
CLIPPED = 0.01  # share of clipped pixels of a patch, or of a level of brightness, at most
LEAST_LEVELS = 5  # with white noise, to see how it depends on brightness
WHITE = 1.3  # power at the lower high frequencies over that at the upper ones, at most


@dataclass(frozen=True, eq=False)
class PatchStatistics:
    """Measurements on patches; those with pixels that are not finite are left out."""

    mean: np.ndarray  # (patch,), grey levels
    rank: np.ndarray  # (patch,), energy at the low frequencies: rises from smooth to textured
    energy: Squares | np.ndarray  # (patch, frequency), at each of the high frequencies
    upper: np.ndarray  # (frequency,), whether it is one of the upper ones of these
    clipped: np.ndarray  # (patch,), share of clipped pixels
    overlap: float  # how many patches share a pixel

    @cached_property
    def order(self) -> np.ndarray:
        """Patches by their rank, from the smoothest on."""
        return ranked(self.rank)

    def unclipped(self, weight: np.ndarray | None = None) -> np.ndarray:
        """Return patches with hardly any clipped pixels, by their rank; all if there are none.

        Where a `weight` (patch,) is given, by their rank multiplied by it.
        """
        if weight is None:
            order = self.order
        else:
            with np.errstate(over="ignore"):
                order = ranked((self.rank * weight).astype(self.rank.dtype, copy=False))
        clear = self.clipped[order] <= CLIPPED
        return order[clear] if clear.any() else order


class Pooled(NamedTuple):
    """Noise variances of parts of the patches."""

    variance: np.ndarray  # (part,)
    error: np.ndarray  # (part,), relative standard error of its root
    power: np.ndarray  # (part, frequency)


def pooled_variance(
    order: np.ndarray,
    energy: Squares | np.ndarray,
    overlap: float,
    weight: np.ndarray | None = None,
) -> tuple[float, float, np.ndarray]:
    """Return the noise variance of patches, its error and power, as `pooled_variances`."""
    found = pooled_variances(Parts(order, np.array([len(order)])), energy, overlap, weight)
    return float(found.variance[0]), float(found.error[0]), found.power[0]


def pooled_variances(
    parts: Parts,
    energy: Squares | np.ndarray,
    overlap: float,
    weight: np.ndarray | None = None,
) -> Pooled:
    """Return the noise variance of each of several parts of the patches.

    The members of each are listed from the smoothest on; the rest is as in `PatchStatistics`. Of
    sets of the smoothest 64, 128, 256 ... patches the largest is taken whose variance exceeds that
    of no smaller set by more than its standard error allows: beyond it, texture has come in. The
    energy of each patch is multiplied by its `weight`.
    """
    limits, sizes, count = _nested_sets(parts)
    power = nested(range_sums(energy, parts.members, limits, weight), sizes)
    # Overlapping patches share pixels, so they count as fewer independent numbers.
    independent = np.maximum(count / overlap, 1.0)
    # The median of chi-squared variables is below their mean, by nearly this factor.
    median = medians(power) / (1 - 2 / (9 * independent)) ** 3
    found = np.minimum(power.mean(axis=1), median) / count
    error = np.sqrt(0.5 / (independent * power.shape[1]))
    # The variance varies twice as much as its square root.
    best = _largest_alike(found, found * (1 + SIGNIFICANT * 2 * error), sizes)
    return Pooled(found[best], error[best], power[best] / count[best, None])


def _nested_sets(parts: Parts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sets of the smoothest patches of each part, one part after another.

    These are where in the members each set begins to be larger than the one before it, and where
    the last one ends; how many sets each part has; and how many patches each set has.
    """
    number = (int(parts.count.max()) - 1) // FIRST_PATCHES
    stops = FIRST_PATCHES << np.arange(number.bit_length() + 1)
    count = parts.count[:, None]
    there = np.ones((len(count), len(stops)), bool)
    there[:, 1:] = stops[:-1] < count
    held = np.minimum(stops, count)
    limits = (parts.first[:, None] + held)[there]
    return np.concatenate([[0], limits]), there.sum(axis=1), held[there]


def _largest_alike(found: np.ndarray, upper: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return of each part its last set that is not above the `upper` limit of any before it."""
    there = np.arange(sizes.max()) < sizes[:, None]
    value, bound = np.full((2, *there.shape), np.inf)
    value[there], bound[there] = found, upper
    alike = there.copy()
    alike[:, 1:] &= value[:, 1:] <= np.fmin.accumulate(bound, axis=1)[:, :-1]
    last = there.shape[1] - 1 - alike[:, ::-1].argmax(axis=1)
    return np.cumsum(sizes) - sizes + last


def unclipped(clipped: np.ndarray) -> np.ndarray:
    """Return the indices of patches with hardly any clipped pixels; all where there are none."""
    members = np.flatnonzero(clipped <= CLIPPED)
    return members if len(members) else np.arange(len(clipped))


@dataclass(frozen=True)
class VarianceCurve:
    """Noise variance at several levels of brightness, from dark to bright."""

    mean: tuple[float, ...]  # grey level
    variance: tuple[float, ...]  # grey levels squared; 0 where `count` is 0
    count: tuple[int, ...]  # number of patches or blocks that were read
    used: tuple[bool, ...]  # False if not fitted: clipped, too few patches, or far from the line

    @property
    def fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the levels that were used."""
        used = np.array(self.used, bool)
        return np.array(self.mean)[used], np.array(self.variance)[used]


class LevelNoise(NamedTuple):
    """White noise read at levels of brightness; arrays (level,), from dark to bright."""

    mean: np.ndarray  # grey level
    variance: np.ndarray
    error: np.ndarray  # relative standard error of the variance
    count: np.ndarray  # number of patches
    open: np.ndarray  # False where pixels are clipped
    white: np.ndarray  # False where texture or correlated noise shows


def level_noise(
    patches: PatchStatistics, levels: Parts, mean: np.ndarray, pooled: Pooled | None = None
) -> LevelNoise:
    """Read the noise of each level of brightness in its smoothest patches.

    The members of a level are listed by their rank; `mean` (patch,) is how bright they are.
    `pooled` begins with the noise variances of the levels, if they are known.
    """
    upper = patches.upper
    if pooled is None:
        pooled = pooled_variances(levels, patches.energy, patches.overlap)
    variance, error, power = (each[: len(levels.count)] for each in pooled)
    # Texture and correlated noise have more power at the lower ones of the high frequencies.
    white = np.ones(len(levels.count), bool)
    if upper.any() and not upper.all():
        high, low = (power[:, each].mean(axis=1) for each in (upper, ~upper))
        white = low <= WHITE * high
    clipped = np.zeros(len(levels.count))
    if patches.clipped.any():
        clipped = levels.sums(patches.clipped) / levels.count
    return LevelNoise(
        levels.sums(mean) / levels.count,
        variance,
        2 * error,
        levels.count,
        clipped <= CLIPPED,
        white,
    )


# How the noise variance depends on brightness: constant, linear or quadratic.
#
# Texture raises the variance of a level of brightness, and never lowers it. So a level above a law
# costs no more than a little, one below it much more; a law that does not fit most levels is
# refused.
SYSTEMATIC = 0.08  # relative error of a variance that texture and few patches leave
ABOVE, BELOW = 9.0, 25.0  # most that a level above or below a law costs
STEPS = 50  # of each end of a line that is tried
DARK, BRIGHT = np.triu_indices(STEPS, 1)  # of the ends of rising lines
CONSTANTS = np.linspace(-3, 1, 400)  # values of a law of one parameter that are tried

PIXELS = 64  # of a patch
FARTHER = (
    10.0  # standard deviations of the mean of a patch, between the darkest and brightest level
)
GROWTH = 1.5  # of the variance over the levels of brightness, at least, to matter
CLEARLY = 16.0  # squared standard errors by which a law must be better than a constant
LIKELY = 9.0  # the same, where something else tells, too
AS_WELL = 5.0  # the same, by which the square may be worse than the line, which has one more number
FITS = 3.0  # squared standard errors a level, above which no law fits
SCALES = 300  # values of sigma of magnitudes that are tried
LEAST_MAGNITUDE = 1.0  # mean of a level without signal over sigma: 1.25, and less by chance
SPREAD = 2.5  # of brightness, below which a line and a square are the same

# Of a trend within one plane:
MOST_LEVELS = 12  # fewer than elsewhere: more of them show a trend less reliably
ORDERED = 0.65  # share of pairs of levels that rise, less that of those that fall, at least
STRAIGHT = 0.7  # share of the differences that a straight line explains, at least
RELEVANT = 2.0  # ratio of variances, brightest to darkest, below which one sigma does well
TREND_SIGNIFICANT = 4.0  # standard errors by which that ratio is above 1, at least


class VarianceLaws(NamedTuple):
    """How badly each law fits, as sums of squared standard errors over the levels."""

    curve: VarianceCurve  # that they were fitted to
    error: tuple[float, ...]  # of the logarithms of the variances used
    levels: int
    constant: float
    line: float
    square: float
    spread: float  # largest mean of a level over the smallest; infinite if that is not above 0
    growth: float  # of the variance from the darkest level to the brightest, along the line
    white: bool  # whether the noise of most levels is

    @property
    def is_quadratic(self) -> bool:
        """Whether the variance is proportional to the squared mean."""
        return (
            self.spread >= SPREAD
            and self.square <= FITS * self.levels
            and self.square + CLEARLY <= self.constant
            and self.square <= self.line + AS_WELL
        )

    @property
    def grows(self) -> bool:
        """Whether a rising line fits the variance clearly better than a constant."""
        return self.growth >= GROWTH and self.line + CLEARLY <= self.constant

    @property
    def is_linear(self) -> bool:
        """Whether the variance grows linearly with the mean."""
        return self.grows and self.line <= FITS * self.levels

    @property
    def tells(self) -> bool:
        """Whether levels of brightness are further apart than noise puts them."""
        mean, variance = self.curve.fitted
        noise = math.sqrt(float(medians(variance)) / PIXELS)
        return bool(mean[-1] - mean[0] > FARTHER * noise)

    @property
    def is_irregular(self) -> bool:
        """Whether the variance is not constant, though another law may not fit either."""
        least = min(self.line, self.square)
        return self.constant > FITS * self.levels and self.constant > least + CLEARLY

    def below(self, law: Callable[[np.ndarray], np.ndarray]) -> float:
        """Return the cost of the levels below a function from mean to variance.

        Those above may have texture, and do not count.
        """
        mean, variance = self.curve.fitted
        distance = np.log(variance / law(mean)) / np.array(self.error)
        return float(capped_cost(np.minimum(distance, 0)))

    def is_of_magnitudes(self, law: Callable[[np.ndarray], np.ndarray], likely: bool) -> bool:
        """Return whether the variance is clearly that of magnitudes.

        Their variance over sigma squared is `law` of their mean over sigma, which is nowhere below
        about 1.25. This law has one parameter, as the constant has; the line has two. If something
        else makes magnitudes `likely`, less is required.
        """
        mean, variance = self.curve.fitted
        darkest = min(self.curve.mean)
        if self.levels < LEAST_LEVELS or darkest <= 0:
            return False
        least, most = (math.sqrt(each) for each in (variance.min(), variance.max()))
        tried = np.geomspace(least, 2 * most, SCALES)
        tried = tried[tried <= darkest / LEAST_MAGNITUDE]
        if not len(tried):
            return False
        expected = np.log(np.square(tried[:, None]) * law(mean / tried[:, None]))
        cost = capped_cost((np.log(variance) - expected) / np.array(self.error))
        clearly, line = (LIKELY, AS_WELL) if likely else (CLEARLY, 1)
        limits = FITS * self.levels, self.constant - clearly, self.line + line
        return bool(cost.min() <= min(limits))

    def share_below_zero(self) -> float:
        """Return the share of the values that normal noise would put below 0."""
        from scipy.special import ndtr

        mean, variance = self.curve.fitted
        count = np.array(self.curve.count)[np.array(self.curve.used, bool)]
        return float(count @ ndtr(-mean / np.sqrt(variance)) / count.sum())

    def counts(self, step: float) -> bool:
        """Return whether the variance is the mean, in steps, at every level, as of photon counts.

        Texture may raise some of them.
        """
        mean, variance = self.curve.fitted
        ratio = variance / mean
        most = float(medians(ratio))
        return bool(DISPERSION[0] * step <= ratio.min() and most <= DISPERSION[1] * step)

    def range(self) -> str:
        """Return the variance at both ends of the levels used, in words."""
        (low, high), (dark, bright) = (each[[0, -1]] for each in self.curve.fitted)
        return f"from {dark:.3g} at a grey level of {low:.4g} to {bright:.3g} at {high:.4g}"


def variance_laws(found: LevelNoise) -> VarianceLaws | None:
    """Fit a constant, a line and a square to the variance at each level of brightness.

    None where fewer than two levels show any noise.
    """
    used = (found.variance > 0) & found.open & (found.count >= MEMBERS)
    if np.count_nonzero(used & found.white) >= LEAST_LEVELS:
        used &= found.white
    if np.count_nonzero(used) < 2:
        return None
    x, y = found.mean[used], np.log(found.variance[used])
    error = np.hypot(found.error[used], SYSTEMATIC)
    line, growth = _line(x, y, error)
    positive = x[0] > 0
    columns = (found.mean, found.variance, found.count, used)
    return VarianceLaws(
        VarianceCurve(*(tuple(each.tolist()) for each in columns)),
        tuple(error.tolist()),
        len(x),
        _constant(y, error),
        line,
        _constant(y - 2 * np.log(x), error) if positive else np.inf,
        float(x[-1] / x[0]) if positive else np.inf,
        growth,
        2 * np.count_nonzero(found.white[used]) > len(x),
    )


def capped_cost(distance: np.ndarray) -> np.ndarray:
    """Return the cost of distances in standard errors, summed over the last axis.

    A value above costs no more than a little, one below more: texture only raises a variance.
    """
    kept = np.maximum(np.minimum(distance, math.sqrt(ABOVE)), -math.sqrt(BELOW))
    return np.einsum("...k,...k->...", kept, kept)


def _constant(y: np.ndarray, error: np.ndarray) -> float:
    """Return the least cost of a constant; texture makes it lower than the median, if anything."""
    tried = medians(y) + CONSTANTS
    return float(capped_cost((y - tried[:, None]) / error).min())


def _line(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Return the least cost of a rising line fitted to the logarithms y, and its growth."""
    ends = np.exp(np.linspace(y.min() - 1, y.max() + 0.5, STEPS))
    share = (x - x[0]) / max(x[-1] - x[0], 1e-300)
    dark, bright = ends[:, None] * (1 - share), ends[:, None] * share
    cost = capped_cost((y - np.log(dark[DARK] + bright[BRIGHT])) / error)
    best = int(cost.argmin())
    return float(cost[best]), float(ends[BRIGHT[best]] / ends[DARK[best]])


class Trend(NamedTuple):
    """Noise that grows with brightness."""

    sigma: float  # square root of the mean variance
    error: float  # standard error of sigma
    dark: float  # standard deviation at the dark end
    bright: float


def brightness_trend(patches: PatchStatistics) -> Trend | None:
    """Return the growth of noise with brightness; None where it does not clearly grow.

    Photon noise has a variance that rises linearly with brightness. Texture raises the variance of
    a level too, but irregularly, and more at the lower of the high frequencies than at the upper
    ones, where white noise has the same power at both. So levels whose noise is not white are left
    out, and the rest must rise one after the other, near a straight line, and by a factor that
    matters.
    """
    upper = patches.upper
    if len(patches.mean) < LEAST_LEVELS * MEMBERS or not upper.any() or upper.all():
        return None
    levels = brightness_levels(patches.mean, most=MOST_LEVELS, order=patches.order)
    found = level_noise(patches, levels, patches.mean)
    # Clipping weakens the noise. Whole levels are left out, not single patches: those without
    # clipped pixels are the ones whose noise happens to be weak.
    usable = (found.count >= MEMBERS) & found.open
    mean, y, error, counts, _, white = (each[usable] for each in found)
    if np.count_nonzero(white) < LEAST_LEVELS:
        return None
    x = mean - mean[0]
    fit = _rising_line(x[white], y[white])
    if fit is None:
        return None
    line = np.maximum(np.polyval(fit, x), y[white].min())
    spread = float(np.hypot(*error[white][[0, -1]]))
    factor = max(RELEVANT, math.exp(TREND_SIGNIFICANT * spread))
    if not line[white][-1] >= factor * line[white][0]:
        return None
    # Texture may have raised the levels that are not white, but never lowered one.
    variance = np.where(white, y, np.minimum(y, line))
    weight = counts / counts.sum()
    sigma = math.sqrt(weight @ variance)
    return Trend(
        sigma,
        float(np.linalg.norm(weight * variance * error)) / (2 * sigma),
        math.sqrt(variance[0]),
        math.sqrt(variance[-1]),
    )


@lru_cache(maxsize=MOST_LEVELS)
def _pairs(number: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(number, 1)


def _rising_line(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return slope and offset of the line through points that rise along one, else None."""
    i, j = _pairs(len(x))
    if np.sign(y[j] - y[i]).mean() < ORDERED:
        return None
    away, rise = x - x.mean(), y - y.mean()
    if not (away @ rise) ** 2 >= STRAIGHT * (away @ away) * (rise @ rise):
        return None
    # The median of all slopes: one level with texture does not tilt it.
    slope = medians((y[j] - y[i]) / (x[j] - x[i]))
    return np.array([slope, medians(y - slope * x)])
