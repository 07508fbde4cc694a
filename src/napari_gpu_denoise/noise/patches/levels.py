"""Levels of brightness, and the noise variance at each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.pooling import CLIPPED, PatchStatistics, pooled_variance

LEVELS = 16  # of brightness, at most
MEMBERS = 64  # patches a level needs
LEAST_LEVELS = 5  # with white noise, to see how it depends on brightness
WHITE = 1.3  # power at the lower high frequencies over that at the upper ones, at most


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
    order = np.argsort(mean, kind="stable")
    ordered = mean[order]
    edge = min(members, (len(mean) - 1) // 2)
    first, last = ordered[edge], ordered[-1 - edge]
    levels = min(most, max(len(mean) // (2 * members), 1))
    steps = np.arange(1, levels) / levels
    numbers = ordered[(steps * len(mean)).astype(int)]
    limits = (numbers + first + steps * (last - first)) / 2
    parts = np.split(order, np.searchsorted(ordered, limits))
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
    for part in levels:
        pooled = pooled_variance(patches.rank, patches.energy, patches.overlap, part)
        rows.append(
            (
                float(patches.mean[part].mean()),
                pooled.variance,
                2 * pooled.error,
                len(part),
                bool(patches.clipped[part].mean() <= CLIPPED),
                bool(upper.all() or not upper.any()) or _is_white(pooled.power, upper),
            )
        )
    return LevelNoise(*(np.array(each) for each in zip(*rows, strict=True)))


def _is_white(power: np.ndarray, upper: np.ndarray) -> bool:
    """Return whether the lower high frequencies have hardly more power than the upper ones."""
    return bool(power[~upper].mean() <= WHITE * power[upper].mean())
