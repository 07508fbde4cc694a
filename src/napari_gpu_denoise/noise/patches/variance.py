"""Noise variance read at the high frequencies of smooth patches, overall and by brightness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.coefficients import Squares, range_sums, rising

FIRST_PATCHES = 64  # the smallest set of patches a variance is read from
SIGNIFICANT = 1.5  # standard errors by which more patches may raise the variance
CLIPPED = 0.01  # share of clipped pixels of a patch, or of a level of brightness, at most
LEVELS = 16  # of brightness, at most
MEMBERS = 64  # patches a level needs
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
    powers, counts = [], []
    for members in parts:
        stops = [0, min(FIRST_PATCHES, len(members))]
        while stops[-1] < len(members):
            stops.append(min(2 * stops[-1], len(members)))
        order = members[rising(rank[members])]
        powers.append(np.cumsum(range_sums(energy, order, stops, weight), axis=0))
        counts.append(stops[1:])
    power, count = np.concatenate(powers), np.concatenate(counts)
    # Overlapping patches share pixels, so they count as fewer independent numbers.
    independent = np.maximum(count / overlap, 1.0)
    # The median of chi-squared variables is below their mean, by nearly this factor.
    median = np.median(power, axis=1) / (1 - 2 / (9 * independent)) ** 3
    found = np.minimum(power.mean(axis=1), median) / count
    relative = np.sqrt(0.5 / (independent * power.shape[1]))
    results, start = [], 0
    for each in counts:
        best, bound = start, math.inf
        for k in range(start, start + len(each)):
            if found[k] <= bound:
                best = k
            # The variance varies twice as much as its square root.
            bound = min(bound, found[k] * (1 + SIGNIFICANT * 2 * relative[k]))
        results.append(Pooled(float(found[best]), float(relative[best]), power[best] / count[best]))
        start += len(each)
    return results


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
    ordered = np.sort(mean)
    edge = min(members, (len(mean) - 1) // 2)
    first, last = ordered[edge], ordered[-1 - edge]
    levels = min(most, max(len(mean) // (2 * members), 1))
    steps = np.arange(1, levels) / levels
    numbers = ordered[(steps * len(mean)).astype(int)]
    limits = (numbers + first + steps * (last - first)) / 2
    level = np.searchsorted(limits, mean, "right").astype(np.uint8)
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
    upper, rows = patches.upper, []
    pooled_each = pooled_variances(patches.rank, patches.energy, patches.overlap, levels)
    for part, pooled in zip(levels, pooled_each, strict=True):
        power = pooled.power
        # Texture and correlated noise have more power at the lower ones of the high frequencies.
        white = upper.all() or not upper.any()
        white = white or power[~upper].mean() <= WHITE * power[upper].mean()
        rows.append(
            (
                float(patches.mean[part].mean()),
                pooled.variance,
                2 * pooled.error,
                len(part),
                bool(patches.clipped[part].mean() <= CLIPPED),
                bool(white),
            )
        )
    return LevelNoise(*(np.array(each) for each in zip(*rows, strict=True)))
