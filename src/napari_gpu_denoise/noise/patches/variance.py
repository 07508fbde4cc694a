"""Noise variance read at the high frequencies of smooth patches, overall and by brightness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.patches.coefficients import Squares, ranked, span_sums
from napari_gpu_denoise.noise.robust import median_power

MEMBERS = 64  # patches a level of brightness needs; the smallest set that a variance is read from


class Parts(NamedTuple):
    """Patches of several parts, such as levels of brightness; none is empty."""

    members: np.ndarray  # indices of patches, those of one part after another
    count: np.ndarray  # pyright: ignore[reportIncompatibleMethodOverride] (part,), how many each has

    @property
    def first(self) -> np.ndarray:
        """Where each part begins in `members`, (part,)."""
        return np.cumsum(self.count) - self.count

    def each(self) -> list[np.ndarray]:
        """Return the members of each part."""
        return np.split(self.members, self.first[1:])

    def kept(self, which: np.ndarray) -> Parts:
        """Return the parts that a mask (part,) selects."""
        return Parts(self.members[np.repeat(which, self.count)], self.count[which])

    def sums(self, values: np.ndarray, count: np.ndarray | None = None) -> np.ndarray:
        """Return the sums of values (patch,) over each part, or its first `count` members."""
        listed, first = values[self.members], self.first
        if count is None:
            return np.add.reduceat(listed, first, dtype=np.float64)
        spans = np.stack([first, first + count], axis=1).ravel()
        return np.add.reduceat(np.append(listed, 0), spans, dtype=np.float64)[::2]

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
    members = np.argsort(part if order is None else part[order], kind="stable")
    count = np.bincount(part, minlength=number)
    return Parts(members if order is None else order[members], count[count > 0])


def brightness_levels(
    mean: np.ndarray, members: int = MEMBERS, most: int = 16, order: np.ndarray | None = None
) -> Parts:
    """Return the patches of each level of brightness, from dark to bright.

    There are at most `most` levels, and fewer where they would have less than twice `members`
    patches. The limits lie halfway between those of equal numbers and those of equal widths, so
    that a few bright cells on a dark background have levels of their own. `order` is as in
    `grouped`.
    """
    # Where there are many patches, some of them tell well enough where the limits are.
    some = mean[:: max(1, len(mean) // 4096)]
    edge = min(round(members * len(some) / len(mean)), (len(some) - 1) // 2)
    levels = min(most, max(len(mean) // (2 * members), 1))
    shares = np.arange(1, levels) / levels
    places = (shares * len(some)).astype(int)
    ordered = np.partition(some, [edge, len(some) - 1 - edge, *places])
    first, last = ordered[edge], ordered[-1 - edge]
    ends = (ordered[places] + first + shares * (last - first)) / 2
    # Ten times as fast as to look for each patch.
    return grouped((mean > ends[:, None]).sum(axis=0, dtype=np.uint8), levels, order)


class Pooled(NamedTuple):
    """Noise variances of parts of the patches."""

    variance: np.ndarray  # (part,)
    error: np.ndarray  # (part,), relative standard error of its root
    power: np.ndarray  # (part, frequency)
    count: np.ndarray  # pyright: ignore[reportIncompatibleMethodOverride] (part,), patches it was read from: the first members


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

    The members of each are listed from the smoothest on; `energy` (patch, frequency) is that at
    each of the high frequencies, `overlap` how many patches share a pixel. Of sets of the smoothest
    64, 128, 256 ... patches the largest is taken whose variance exceeds that of no smaller set by
    more than its standard error allows: beyond it, texture has come in. The energy of each patch is
    multiplied by its `weight`.
    """
    number = (int(parts.count.max()) - 1) // MEMBERS
    held = np.minimum(MEMBERS << np.arange(number.bit_length() + 1), parts.count[:, None])
    ends = parts.first[:, None] + held
    starts = np.concatenate([parts.first[:, None], ends[:, :-1]], axis=1)
    power = span_sums(energy, parts.members, starts.ravel(), ends.ravel(), weight)
    power = power.reshape(*held.shape, -1).cumsum(axis=1)
    # Overlapping patches share pixels, so they count as fewer independent numbers.
    independent = np.maximum(held / overlap, 1.0)
    found = np.minimum(power.mean(axis=2), median_power(power, independent)) / held
    error = np.sqrt(0.5 / (independent * power.shape[2]))
    # The variance varies twice as much as its square root.
    upper = found * (1 + limits.MAX_ERRORS_OF_MORE_PATCHES * 2 * error)
    alike = np.ones(held.shape, bool)
    alike[:, 1:] = found[:, 1:] <= np.fmin.accumulate(upper, axis=1)[:, :-1]
    best = np.arange(len(held)), held.shape[1] - 1 - alike[:, ::-1].argmax(axis=1)
    return Pooled(found[best], error[best], power[best] / held[best][:, None], held[best])


def unclipped(clipped: np.ndarray) -> np.ndarray:
    """Return the indices of patches with hardly any clipped pixels; all where there are none."""
    members = np.flatnonzero(clipped <= limits.MAX_CLIPPED_SHARE)
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
    count: np.ndarray  # pyright: ignore[reportIncompatibleMethodOverride] number of patches
    open: np.ndarray  # False where pixels are clipped
    flatness: np.ndarray  # of the patches it was read from; of white noise about 1
    dispersion: np.ndarray  # of their energies; of white noise about 1
