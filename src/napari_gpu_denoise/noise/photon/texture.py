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

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.white import PATCH
from napari_gpu_denoise.noise.photon.curve import FLOOR, least_variance, line_values
from napari_gpu_denoise.noise.photon.readings import Readings, frequency_bands

STRONG = 3  # the first bands, in which the strength of texture is measured


# The spectrum of texture is exp(-fall * frequency^exponent), averaged over falls and exponents by
# how well they fit.
FALLS = np.geomspace(0.8, 40, 24)
EXPONENTS = (1, 2)
USUAL_FALL, FALL_SPREAD = 2.5, 0.7  # before something is learned, and its spread as a logarithm
MISFIT = 0.15  # relative deviation of a band from these
STRONGEST = 8.0  # texture, relative to noise, of the sets it is learned from, at most
WEAK = 1.0  # texture below which a set counts less there: it is hard to tell from noise
SMOOTH_FALL = 0.8  # smooth patches have a flatter spectrum than textured ones: exponent of it
DEVIATION = 0.3  # relative standard deviation of the power of a band from that spectrum
SHARED = 0.3  # the same, shared by all bands that are read
LINE = 0.05  # relative error of the line relative to which the strength of texture is measured
STANDS_OUT = 1.0  # standard errors by which the mean of a band is above its median, from there on
UNEVEN = 2.0  # variance between the frequencies of a band over that by chance, from there on
LOWEST = 0.3  # lowest relative power that a statistical error is computed from


class LevelVariances(NamedTuple):
    """Noise variance at levels of brightness."""

    mean: np.ndarray  # grey level
    variance: np.ndarray
    error: np.ndarray  # relative
    count: np.ndarray  # number of patches


def level_variances(
    readings: Readings, gain: float, intercept: float, overlap: float
) -> LevelVariances:
    """Return the noise of each level, given a line that is near it.

    The strength of texture is measured relative to the line; errors of the line matter little.
    """
    *_, first = frequency_bands()
    sizes = _bands_of()[1]
    overall = readings.power.mean(axis=1)
    least = least_variance(overall[overall > 0])
    own_line, line = (
        line_values(seen, gain, intercept, least) for seen in (readings.own_seen, readings.seen)
    )
    own = np.add.reduceat(readings.own / own_line, first, axis=1) / sizes
    texture = texture_spectrum(own, readings.added, readings.level, overlap)

    relative = readings.power / line
    relative = relative - _chosen(readings, gain, intercept, line)
    independent = np.maximum(readings.count / overlap, 1.0)
    power, stripes = _band_powers(relative, first, sizes, independent)
    # What is expected, not what was found: weights that follow chance favour what is low by chance.
    expected = 1 + np.maximum(power[:, :STRONG].mean(axis=1) - 1, 0)[:, None] * texture
    error = np.sqrt(2 * np.square(expected) / (independent[:, None] * sizes) + stripes)
    strength, uncertain = _strength(power, error, texture)
    strength = np.maximum(strength, power[:, :STRONG].mean(axis=1) - 1)
    chance = np.linalg.norm(error[:, :STRONG], axis=1) / STRONG
    uncertain = np.minimum(uncertain, np.hypot(chance, LINE))
    square = np.square(np.maximum(strength, 0)) + np.square(uncertain)

    # Best linear unbiased estimate: power = variance + texture of unknown strength + chance. The
    # covariance of the bands is diagonal but for the strength that they share.
    alone = np.square(error) + square[:, None] * np.square(DEVIATION * texture)
    free = 1 / alone
    shared = square * (free @ texture) / (1 + square * (free @ np.square(texture)))
    weight = free * (1 - shared[:, None] * texture)
    known = 1 / weight.sum(axis=1)
    weight *= known[:, None]
    variance = np.maximum((weight * power).sum(axis=1), FLOOR * power.mean(axis=1))
    # What the same weights see of the brightness.
    seen = (weight * np.add.reduceat(readings.seen, first, axis=1) / sizes).sum(axis=1)
    variance = variance * line_values(seen, gain, intercept, least)
    known += square * np.square(SHARED * (np.abs(weight) @ texture))

    best = np.lexsort((known, readings.level))  # of each level the one with the least error
    chosen = best[_begins(readings.level)]
    return LevelVariances(
        seen[chosen],
        variance[chosen],
        np.sqrt(known[chosen]),
        readings.count[chosen],
    )


def _begins(level: np.ndarray) -> np.ndarray:
    """Return which of the sets, sorted by level, is the first of its level."""
    return np.concatenate([[True], level[1:] != level[:-1]])


def _chosen(readings: Readings, gain: float, intercept: float, line: np.ndarray) -> np.ndarray:
    """Return how much too low the relative power is because smooth patches were chosen.

    A pixel with a photon more has more power at all frequencies, so where photons are few, patches
    that happen to be smooth at those that rank are so at those that are read.
    """
    ranks, *_ = frequency_bands()
    photons = np.maximum(line - max(intercept, 0.0), 0.0) * max(gain, 0.0) ** 2
    shared = photons / (PATCH * line) ** 2
    return shared / (2 / len(ranks) + shared) * np.minimum(readings.rank - 1, 0.0)[:, None]


def texture_spectrum(
    power: np.ndarray, count: np.ndarray, level: np.ndarray, overlap: float
) -> np.ndarray:
    """Return the power of texture in each band, relative to its mean over the first ones.

    `power` (set, band) is that of disjoint sets of `count` patches of levels of brightness,
    relative to a line that may be wrong: sets of a level share their noise, so only how they differ
    from each other tells about texture.
    """
    strength = power[:, :STRONG].mean(axis=1)
    above = np.maximum(strength - 1, 0)
    weight = count * (above < STRONGEST) / (WEAK + np.square(above))
    begins = _begins(level)
    starts, place = np.flatnonzero(begins), np.cumsum(begins) - 1

    def alike(values: np.ndarray) -> np.ndarray:
        """Return weighted sums over the sets of the level of each set."""
        return np.add.reduceat(weight[:, None] * values, starts)[place]

    known = np.maximum(alike(np.ones((len(level), 1))), 1e-300)
    apart = weight * (strength - (alike(strength[:, None]) / known)[:, 0])
    found = apart @ (power - alike(power) / known)
    independent = np.maximum(count / overlap, 1.0)[:, None] * _bands_of()[1]
    chance = np.square(apart) @ (2 * np.square(power) / independent)
    shapes, prior = _spectra()
    # How strong texture is on the whole is free: least squares for each shape.
    error = np.maximum(chance, 1e-300) + np.square(MISFIT * found[:STRONG].mean() * shapes)
    scale = (shapes * found / error).sum(axis=1) / (np.square(shapes) / error).sum(axis=1)
    misfit = np.square(found - scale[:, None] * shapes) / error + np.log(error)
    chances = prior - misfit.sum(axis=1) / 2
    chances = np.exp(chances - chances.max())
    spectrum = (chances @ np.log(shapes)) / chances.sum()
    spectrum = np.exp(SMOOTH_FALL * spectrum)
    return spectrum / spectrum[:STRONG].mean()


@lru_cache(maxsize=1)
def _spectra() -> tuple[np.ndarray, np.ndarray]:
    """Return spectra that texture may have, (shape, band), and the logarithm of how likely.

    exp(-fall * frequency) is common in photographs, exp(-fall * frequency²) what a lens leaves.
    """
    frequency = _bands_of()[0] / PATCH
    shapes, likely = [], []
    for exponent in EXPONENTS:
        rise = (frequency**exponent - frequency[0] ** exponent) / exponent
        for fall in FALLS:
            shapes.append(np.exp(-fall * rise))
            likely.append(-np.square(np.log(fall / USUAL_FALL) / FALL_SPREAD) / 2)
    found = np.array(shapes)
    return found / found[:, :STRONG].mean(axis=1, keepdims=True), np.array(likely)


@lru_cache(maxsize=1)
def _bands_of() -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of j + k of each band, and how many frequencies it has."""
    *_, sums, first = frequency_bands()
    sizes = np.diff(np.append(first, len(sums)))
    return np.add.reduceat(sums, first) / sizes, sizes


def _band_powers(
    relative: np.ndarray, first: np.ndarray, sizes: np.ndarray, independent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the power of each band, and the variance that stripes add to it.

    Frequencies that stand out by more than chance are left to the median.
    """
    mean = np.add.reduceat(relative, first, axis=1) / sizes
    # The median of chi-squared variables is below their mean, by nearly this factor.
    middle = _medians(relative) / ((1 - 2 / (9 * independent)) ** 3)[:, None]
    expected = 2 * np.square(np.maximum(middle, LOWEST)) / independent[:, None]
    stands_out = mean - middle > STANDS_OUT * np.sqrt(expected / sizes)
    power = np.where(stands_out, middle, mean)
    spread = np.add.reduceat(np.square(relative), first, axis=1) / sizes - np.square(mean)
    uneven = stands_out | (spread > UNEVEN * expected)
    return power, np.where(uneven, spread / np.maximum(sizes - 1, 1), 0.0)


def _medians(values: np.ndarray) -> np.ndarray:
    """Return the median of each band of values (set, frequency)."""
    table, sizes = _table_of_bands()
    padded = np.full((len(values), values.shape[1] + 1), np.inf)
    padded[:, :-1] = values
    ordered = np.sort(padded[:, table], axis=2)
    bands = np.arange(len(sizes))
    return (ordered[:, bands, (sizes - 1) // 2] + ordered[:, bands, sizes // 2]) / 2


@lru_cache(maxsize=1)
def _table_of_bands() -> tuple[np.ndarray, np.ndarray]:
    """Return the frequencies of each band, (band, number), filled up with one too many; sizes."""
    *_, first = frequency_bands()
    sizes = _bands_of()[1]
    table = first[:, None] + np.arange(sizes.max())
    return np.where(table < (first + sizes)[:, None], table, sizes.sum()), sizes


def _strength(
    power: np.ndarray, error: np.ndarray, texture: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how strong texture is with nothing known of the noise, and the standard error."""
    weight = 1 / np.square(error)
    total = weight.sum(axis=1, keepdims=True)
    distance = texture - (weight @ texture)[:, None] / total
    square = (weight * np.square(distance)).sum(axis=1) + 1e-9
    return (weight * distance * power).sum(axis=1) / square, 1 / np.sqrt(square)
