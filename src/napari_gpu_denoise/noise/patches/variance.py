"""Noise variance read at the high frequencies of smooth patches, overall and by brightness."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.coefficients import Squares, nested, range_sums, ranked
from napari_gpu_denoise.noise.robust import median_power

# Parts of the patches, such as levels of brightness, as lists of patches one after another.
LEVELS = 16  # of brightness, at most
MEMBERS = 64  # patches a level needs
SAMPLE = 4096  # patches whose brightness the limits of levels are taken from, about
STEPS = 4096  # of brightness that are told apart between these


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
        order = ranked(rank[self.members])
        order = order[np.argsort(group[order], kind="stable")]
        return self._replace(members=self.members[order])


def grouped(part: np.ndarray, number: int, order: np.ndarray | None = None) -> Parts:
    """Group patches into parts, given the number of the part of each, (patch,), uint8 or uint16.

    Members stand in the `order` in which patches are listed there, by default in their own. Empty
    parts are left out.
    """
    listed = part if order is None else part[order]
    members = np.argsort(listed, kind="stable")
    count = np.searchsorted(listed[members], np.arange(number, dtype=part.dtype), "right")
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
    shares = np.arange(1, levels) / levels
    numbers = ordered[(shares * len(ordered)).astype(int)]
    limits = (numbers + first + shares * (last - first)) / 2
    # A table of steps of brightness is faster than to look for each patch.
    steps = np.linspace(first, last, STEPS)
    table = np.searchsorted(limits, steps, "right").astype(np.uint8)
    step = (mean - first) * ((STEPS - 1) / ((last - first) or 1.0))
    return grouped(table[np.clip(step, 0, STEPS - 1).astype(np.int16)], levels, order)


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


class Pooled(NamedTuple):
    """Noise variances of parts of the patches."""

    variance: np.ndarray  # (part,)
    error: np.ndarray  # (part,), relative standard error of its root
    power: np.ndarray  # (part, frequency)
    count: np.ndarray  # (part,), patches it was read from: the first members


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
    median = median_power(power, independent)
    found = np.minimum(power.mean(axis=1), median) / count
    error = np.sqrt(0.5 / (independent * power.shape[1]))
    # The variance varies twice as much as its square root.
    best = _largest_alike(found, found * (1 + SIGNIFICANT * 2 * error), sizes)
    return Pooled(found[best], error[best], power[best] / count[best, None], count[best])


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
    patches: PatchStatistics, levels: Parts, mean: np.ndarray, pooled: Pooled
) -> LevelNoise:
    """Read the noise of each level of brightness in its smoothest patches.

    The members of a level are listed by their rank; `mean` (patch,) is how bright they are.
    `pooled` begins with the noise variances of the levels.
    """
    upper = patches.upper
    variance, error, power, count = (each[: len(levels.count)] for each in pooled)
    # Texture and correlated noise have more power at the lower ones of the high frequencies.
    white = np.ones(len(levels.count), bool)
    if upper.any() and not upper.all():
        high, low = (power[:, each].mean(axis=1) for each in (upper, ~upper))
        white = low <= WHITE * high
    clipped = np.zeros(len(levels.count))
    if patches.clipped.any():
        read = zip(levels.each(), count.tolist(), strict=True)
        clipped = np.array([patches.clipped[part[:number]].mean() for part, number in read])
    return LevelNoise(
        levels.sums(mean) / levels.count,
        variance,
        2 * error,
        levels.count,
        clipped <= CLIPPED,
        white,
    )
