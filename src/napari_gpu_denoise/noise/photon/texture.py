"""Noise variance at levels of brightness, with the contribution of texture removed.

The power of texture falls with frequency, that of white noise does not. In sets of patches of one
brightness, from the smoothest few to all, the power at several bands of frequency is a sum of both.
The best linear unbiased estimate of the noise follows from how strong the texture is, how its
spectrum falls, and how well that is known: where there is none all bands are averaged, where there
is much it is extrapolated from the fall. Of the nested sets the one with the smallest error speaks
for its level: where texture is everywhere that error is large.

The fall is learned from the textured patches of the image itself, beside what photographs show.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.white import PATCH, frequency_order
from napari_gpu_denoise.noise.photon.curve import FLOOR, line_values

COEFFICIENTS = PATCH**2 - 1  # of a patch, without its mean

# Frequencies (j, k) are sorted by j + k. Up to LOW they measure how smooth a patch is; up to
# DEALT those with an odd smaller number do, the others are read; above, all are read.
LOW = 4
DEALT = 7
TOP = 11  # this and what is above are one band
STRONG = 3  # the first bands, in which the strength of texture is measured

SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # of a level, from the smoothest on
LEAST = 48  # patches by which a set is larger than the one before

# The spectrum of texture: exp(-fall * frequency) for falls in this range, before it is learned.
FALLS = np.linspace(1.2, 4.5, 8)
STRONGEST = 8.0  # texture, relative to noise, of the sets it is learned from, at most
WEAK = 1.0  # texture below which a set counts less there: it is hard to tell from noise
PRIOR = 0.05  # share of all patches that the spectrum before learning stands for
SMOOTH_FALL = 0.8  # smooth patches have a flatter spectrum than textured ones: exponent of it
DEVIATION = 0.3  # relative standard deviation of the power of a band from that spectrum
SHARED = 0.3  # the same, shared by all bands that are read
LINE = 0.05  # relative error of the line relative to which the strength of texture is measured
LOWEST = 0.3  # lowest relative power that a statistical error is computed from


class Readings(NamedTuple):
    """Nested sets of the smoothest patches of levels of brightness."""

    level: np.ndarray  # (set,), number of the level
    count: np.ndarray  # (set,), patches
    mean: np.ndarray  # (set,), grey level
    power: np.ndarray  # (set, frequency), at each frequency that is read
    added: np.ndarray  # (set,), patches that the previous set does not have
    own: np.ndarray  # (set, frequency), the power of these


class LevelVariances(NamedTuple):
    """Noise variance at levels of brightness."""

    mean: np.ndarray  # grey level
    variance: np.ndarray
    error: np.ndarray  # relative
    count: np.ndarray  # number of patches


def read_levels(
    mean: np.ndarray, energy: np.ndarray, line: np.ndarray, levels: list[np.ndarray]
) -> Readings:
    """Sum up nested sets of the smoothest patches of each level of brightness.

    `energy` (patch, 63) holds squared coefficients of 8 x 8 patches, low ones first, as
    `frequencies` orders them; `line` (patch,) is about the noise variance of each patch; `levels`
    are the indices of the patches of each level.
    """
    ranks, read, *_ = _bands()
    rank = energy[:, ranks].sum(axis=1) / line
    rows = []
    for number, part in enumerate(levels):
        order = part[np.argsort(rank[part], kind="stable")]
        stops = [0]
        for share in SHARES:
            stop = int(share * len(order))
            if stop - stops[-1] >= LEAST or stop == len(order):
                stops.append(stop)
        own = np.add.reduceat(energy[order][:, read], stops[:-1])
        added = np.diff(stops)
        count = np.cumsum(added)
        level = np.full(len(count), number)
        means = np.cumsum(np.add.reduceat(mean[order], stops[:-1])) / count
        power = np.cumsum(own, axis=0) / count[:, None]
        rows.append((level, count, means, power, added, own / added[:, None]))
    return Readings(*(np.concatenate(each) for each in zip(*rows, strict=True)))


def level_variances(
    readings: Readings, gain: float, intercept: float, overlap: float
) -> LevelVariances:
    """Return the noise of each level, given a line that is near it.

    The strength of texture is measured relative to the line; errors of the line matter little.
    """
    *_, first = _bands()
    sizes = np.diff(np.append(first, readings.power.shape[1]))
    overall = readings.power.mean(axis=1)
    line = line_values(readings.mean, gain, intercept, overall[overall > 0])
    own = np.add.reduceat(readings.own, first, axis=1) / sizes / line[:, None]
    texture = texture_spectrum(own, readings.added)

    relative = readings.power / line[:, None]
    independent = np.maximum(readings.count / overlap, 1.0)
    power, error = _band_powers(relative, first, sizes, independent)
    strength, uncertain = _strength(power, error, texture)
    strength = np.maximum(strength, power[:, :STRONG].mean(axis=1) - 1)
    chance = np.linalg.norm(error[:, :STRONG], axis=1) / STRONG
    uncertain = np.minimum(uncertain, np.hypot(chance, LINE))
    square = np.square(np.maximum(strength, 0)) + np.square(uncertain)

    # Best linear unbiased estimate: power = variance + texture of unknown strength + chance.
    shape = np.outer(texture, texture) + np.diag(np.square(DEVIATION * texture))
    covariance = square[:, None, None] * shape
    bands = np.arange(len(texture))
    covariance[:, bands, bands] += np.square(error)
    weight = np.linalg.solve(covariance, np.ones((*power.shape, 1)))[..., 0]
    known = 1 / weight.sum(axis=1)
    weight *= known[:, None]
    variance = np.maximum((weight * power).sum(axis=1), FLOOR * power.mean(axis=1))
    known += square * np.square(SHARED * (np.abs(weight) @ texture))

    chosen = []
    for level in np.unique(readings.level):
        inside = np.flatnonzero(readings.level == level)
        chosen.append(inside[np.argmin(known[inside])])
    return LevelVariances(
        readings.mean[chosen],
        variance[chosen] * line[chosen],
        np.sqrt(known[chosen]),
        readings.count[chosen],
    )


def texture_spectrum(power: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the power of texture in each band, relative to its mean over the first ones.

    `power` (set, band) is that of disjoint sets of `count` patches, relative to the noise.
    """
    *_, sums, first = _bands()
    frequency = np.add.reduceat(sums, first) / np.diff(np.append(first, len(sums)))
    fall = np.exp(-np.outer(FALLS, frequency - frequency[0]) / PATCH)
    before = (fall / fall[:, :STRONG].mean(axis=1, keepdims=True)).mean(axis=0)
    strength = np.maximum(power[:, :STRONG].mean(axis=1) - 1, 0)
    weight = count * (strength < STRONGEST) / (WEAK + np.square(strength))
    prior = PRIOR * count.sum()
    found = (weight * strength) @ (power - 1) + prior * before
    spectrum = np.maximum(found / (weight @ np.square(strength) + prior), 0.02)
    spectrum = spectrum**SMOOTH_FALL
    return spectrum / spectrum[:STRONG].mean()


def _band_powers(
    relative: np.ndarray, first: np.ndarray, sizes: np.ndarray, independent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the power of each band and its standard error, by chance and by stripes."""
    mean = np.add.reduceat(relative, first, axis=1) / sizes
    spread = np.add.reduceat(np.square(relative), first, axis=1) / sizes - np.square(mean)
    middle = [np.median(band, axis=1) for band in np.split(relative, first[1:], axis=1)]
    # The median of chi-squared variables is below their mean, by nearly this factor.
    bias = (1 - 2 / (9 * independent)) ** 3
    power = np.minimum(mean, np.stack(middle, axis=1) / bias[:, None])
    chance = 2 * np.square(np.maximum(power, LOWEST)) / independent[:, None]
    return power, np.sqrt(np.maximum(chance, spread * sizes / (sizes - 1)) / sizes)


def _strength(
    power: np.ndarray, error: np.ndarray, texture: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how strong texture is with nothing known of the noise, and the standard error."""
    weight = 1 / np.square(error)
    total = weight.sum(axis=1, keepdims=True)
    distance = texture - (weight @ texture)[:, None] / total
    square = (weight * np.square(distance)).sum(axis=1) + 1e-9
    return (weight * distance * power).sum(axis=1) / square, 1 / np.sqrt(square)


def _bands() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return which columns of `energy` rank the patches, and which are read, by rising frequency.

    Then the frequencies j + k of those that are read, and where in these each band begins.
    """
    j, k = np.divmod(np.concatenate(frequency_order((PATCH, PATCH))), PATCH)
    total = j + k
    ranks = (total <= LOW) | ((total <= DEALT) & (np.minimum(j, k) % 2 == 1))
    read = np.flatnonzero(~ranks)
    read = read[np.argsort(total[read], kind="stable")]
    first = np.append(True, np.diff(np.minimum(total[read], TOP)) > 0)
    return np.flatnonzero(ranks), read, total[read], np.flatnonzero(first)
