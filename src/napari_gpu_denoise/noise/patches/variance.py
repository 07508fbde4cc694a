"""Noise variance read at the high frequencies of smooth patches, overall and by brightness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.coefficients import Squares, nested, range_sums, ranked

FIRST_PATCHES = 64  # the smallest set of patches a variance is read from
SIGNIFICANT = 1.5  # standard errors by which more patches may raise the variance
CLIPPED = 0.01  # share of clipped pixels of a patch, or of a level of brightness, at most
LEVELS = 16  # of brightness, at most
MEMBERS = 64  # patches a level needs
SAMPLE = 4096  # patches whose brightness the limits of levels are taken from, about
LEAST_LEVELS = 5  # with white noise, to see how it depends on brightness
WHITE = 1.3  # power at the lower high frequencies over that at the upper ones, at most


class PatchStatistics(NamedTuple):
    """Measurements on patches; those with pixels that are not finite are left out."""

    mean: np.ndarray  # (patch,), grey levels
    rank: np.ndarray  # (patch,), energy at the low frequencies: rises from smooth to textured
    energy: Squares | np.ndarray  # (patch, frequency), at each of the high frequencies
    upper: np.ndarray  # (frequency,), whether it is one of the upper ones of these
    clipped: np.ndarray  # (patch,), share of clipped pixels
    overlap: float  # how many patches share a pixel


class Pooled(NamedTuple):
    """A variance, the relative standard error of its root, and the power at each frequency."""

    variance: float
    error: float
    power: np.ndarray


def pooled_variance(
    rank: np.ndarray, energy: Squares | np.ndarray, overlap: float, members: np.ndarray
) -> Pooled:
    """Return the noise variance of the patches `members`; the rest is as in `PatchStatistics`."""
    return pooled_variances(rank, energy, overlap, [members])[0]


def pooled_variances(
    rank: np.ndarray,
    energy: Squares | np.ndarray,
    overlap: float,
    parts: list[np.ndarray],
    weight: np.ndarray | None = None,
) -> list[Pooled]:
    """Return the noise variance of each of several parts of the patches.

    Of sets of the smoothest 64, 128, 256 ... patches the largest is taken whose variance exceeds
    that of no smaller set by more than its standard error allows: beyond it, texture has come in.
    The energy of each patch is multiplied by its `weight`; its rank already is.
    """
    limits, sizes = [0], []
    for members in parts:
        stops = [min(FIRST_PATCHES, len(members))]
        while stops[-1] < len(members):
            stops.append(min(2 * stops[-1], len(members)))
        sizes.append(len(stops))
        start = limits[-1]
        limits += [start + stop for stop in stops]
    order = by_rank(rank, parts)
    added, sizes = np.diff(limits), np.array(sizes)
    power = nested(range_sums(energy, order, np.array(limits), weight), sizes)
    count = nested(added, sizes)
    # Overlapping patches share pixels, so they count as fewer independent numbers.
    independent = np.maximum(count / overlap, 1.0)
    # The median of chi-squared variables is below their mean, by nearly this factor.
    median = np.median(power, axis=1) / (1 - 2 / (9 * independent)) ** 3
    found = np.minimum(power.mean(axis=1), median) / count
    relative = np.sqrt(0.5 / (independent * power.shape[1]))
    known, errors, results, start = found.tolist(), relative.tolist(), [], 0
    for size in sizes.tolist():
        best, bound = start, math.inf
        for k in range(start, start + size):
            if known[k] <= bound:
                best = k
            # The variance varies twice as much as its square root.
            bound = min(bound, known[k] * (1 + SIGNIFICANT * 2 * errors[k]))
        results.append(Pooled(known[best], errors[best], power[best] / count[best]))
        start += size
    return results


def by_rank(rank: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    """Return the patches of each of several parts, one after another, from the smoothest on."""
    if len(parts) == 1:
        return parts[0][ranked(rank[parts[0]])]
    members = np.concatenate(parts)
    group = np.repeat(np.arange(len(parts), dtype=np.uint8), [len(part) for part in parts])
    return members[ranked(rank[members], group, len(parts))]


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


def brightness_levels(
    mean: np.ndarray, members: int = MEMBERS, most: int = LEVELS
) -> list[np.ndarray]:
    """Return the indices of the patches of each level of brightness, from dark to bright.

    There are at most `most` levels, and fewer where they would have less than twice `members`
    patches. The limits lie halfway between those of equal numbers and those of equal widths, so
    that a few bright cells on a dark background have levels of their own.
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
    for limit in limits:
        level += mean >= limit
    ends = np.cumsum(np.bincount(level, minlength=levels))[:-1]
    parts = np.split(np.argsort(level, kind="stable"), ends)
    return [part for part in parts if len(part)]


class LevelNoise(NamedTuple):
    """White noise read at levels of brightness; arrays (level,), from dark to bright."""

    mean: np.ndarray  # grey level
    variance: np.ndarray
    error: np.ndarray  # relative standard error of the variance
    count: np.ndarray  # number of patches
    open: np.ndarray  # False where pixels are clipped
    white: np.ndarray  # False where texture or correlated noise shows


def level_noise(patches: PatchStatistics, levels: list[np.ndarray]) -> LevelNoise:
    """Read the noise of each level of brightness in its smoothest patches."""
    upper = patches.upper
    pooled = pooled_variances(patches.rank, patches.energy, patches.overlap, levels)
    power = np.array([each.power for each in pooled])
    # Texture and correlated noise have more power at the lower ones of the high frequencies.
    white = np.ones(len(levels), bool)
    if upper.any() and not upper.all():
        white = power[:, ~upper].mean(axis=1) <= WHITE * power[:, upper].mean(axis=1)
    count = np.array([len(part) for part in levels])
    members, first = np.concatenate(levels), np.cumsum(count) - count
    clipped = np.zeros(len(levels))
    if patches.clipped.any():
        clipped = np.add.reduceat(patches.clipped[members], first) / count
    return LevelNoise(
        np.add.reduceat(patches.mean[members], first) / count,
        np.array([each.variance for each in pooled]),
        np.array([2 * each.error for each in pooled]),
        count,
        clipped <= CLIPPED,
        white,
    )
