"""The variance of white noise, read at the high frequencies of the smoothest patches."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

FIRST_PATCHES = 64  # the smallest set of patches a variance is read from
SIGNIFICANT = 1.5  # standard errors by which more patches may raise the variance
CLIPPED = 0.01  # share of clipped pixels of a patch, or of a level of brightness, at most


class PatchStatistics(NamedTuple):
    """Measurements on patches; those with pixels that are not finite are left out."""

    mean: np.ndarray  # (patch,), grey levels
    rank: np.ndarray  # (patch,), energy at the low frequencies: rises from smooth to textured
    energy: np.ndarray  # (patch, frequency), at each of the high frequencies
    upper: np.ndarray  # (frequency,), whether it is one of the upper ones of these
    clipped: np.ndarray  # (patch,), share of clipped pixels
    overlap: float  # how many patches share a pixel


class Pooled(NamedTuple):
    """A variance, the relative standard error of its root, and the power at each frequency."""

    variance: float
    error: float
    power: np.ndarray


def pooled_variance(
    rank: np.ndarray, energy: np.ndarray, overlap: float, members: np.ndarray
) -> Pooled:
    """Return the noise variance of the patches `members`; the rest is as in `PatchStatistics`.

    Of sets of the smoothest 64, 128, 256 ... patches the largest is taken whose variance exceeds
    that of no smaller set by more than its standard error allows: beyond it, texture has come in.
    """
    order = members[np.argsort(rank[members], kind="stable")]
    patches, frequencies = len(order), energy.shape[1]
    power = np.zeros(frequencies)
    best, bound = Pooled(0.0, 0.0, power), math.inf
    start, stop = 0, min(FIRST_PATCHES, patches)
    while True:
        power = power + energy[order[start:stop]].sum(axis=0)
        # Overlapping patches share pixels, so they count as fewer independent numbers.
        independent = max(stop / overlap, 1.0)
        # The median of chi-squared variables is below their mean, by nearly this factor.
        median = float(np.median(power)) / (1 - 2 / (9 * independent)) ** 3
        found = min(float(power.mean()), median) / stop
        relative = math.sqrt(0.5 / (independent * frequencies))
        if found <= bound:
            best = Pooled(found, relative, power / stop)
        # The variance varies twice as much as its square root.
        bound = min(bound, found * (1 + SIGNIFICANT * 2 * relative))
        if stop == patches:
            return best
        start, stop = stop, min(2 * stop, patches)


def unclipped(clipped: np.ndarray) -> np.ndarray:
    """Return the indices of patches with hardly any clipped pixels; all where there are none."""
    members = np.flatnonzero(clipped <= CLIPPED)
    return members if len(members) else np.arange(len(clipped))


def relative_variance(patches: PatchStatistics, expected: np.ndarray) -> Pooled:
    """Return the noise variance of patches relative to the one expected of each, above 0."""
    rank, energy = patches.rank / expected, patches.energy / expected[:, None]
    return pooled_variance(rank, energy, patches.overlap, unclipped(patches.clipped))
