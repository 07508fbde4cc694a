"""Photon and read noise of a sensor, from single images.

A line is fitted to the noise at levels of brightness. The power of texture falls with frequency,
that of white noise does not: relative to a first line texture is measured and subtracted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.coefficients import (
    PATCH,
    SETS,
    coefficient_order,
    frequency_order,
    frequency_sets,
    nested,
    range_moments,
    weights,
)
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patches.variance import LEAST_LEVELS, MEMBERS, Parts, VarianceCurve
from napari_gpu_denoise.noise.robust import huber_weights, median_power
from napari_gpu_denoise.noise.sampling import sample_planes

# The line of photon and read noise through variances at levels of brightness.
FLOOR = 0.02  # lowest variance used for a weight, as a share of the median variance
SYSTEMATIC = 0.01  # relative error of a variance that more pixels do not reduce
ROUNDS = 20  # of a robust fit
OUTLIER = 4.0  # distance from the line, over the scatter, beyond which a level is left out
SIGNIFICANT = 4.0  # standard errors by which a gain is above 0
DISAGREE = 2.0  # standard errors by which two gains differ
GROWTH = 1.5  # ratio of variances, brightest level to darkest, that matters
SHIFTED = 0.25  # sigma at level 0 by which levels are below 0 only if something was subtracted


@dataclass(frozen=True)
class PhotonNoise:
    """Photon and read noise: variance = gain * mean + intercept."""

    gain: float  # grey levels per electron; near 0 where noise does not grow with brightness
    gain_error: float
    intercept: float  # variance at grey level 0; negative where the camera adds an offset
    offset: float  # grey level of no light: where the line reaches 0, if 0 is not it
    read_noise: float  # standard deviation at `offset`, in grey levels
    read_noise_error: float  # half its range, where a larger offset and more of it fit as well
    curve: VarianceCurve  # that the line was fitted to
    method: str  # in words

    @property
    def grows(self) -> bool:
        """Whether noise clearly grows with brightness."""
        level, _ = self.curve.fitted
        if not self.significant or len(level) < 2:
            return False
        dark, bright = self.gain * level[[0, -1]] + self.intercept
        return bool(bright > GROWTH * max(dark, 0.0))

    @property
    def significant(self) -> bool:
        """Whether the gain is clearly above 0."""
        return self.gain > SIGNIFICANT * self.gain_error

    def exceeds(self, other: PhotonNoise) -> bool:
        """Whether this gain is clearly above another one of the same image."""
        error = math.hypot(self.gain_error, other.gain_error)
        return self.gain - other.gain > DISAGREE * error

    @property
    def most_offset(self) -> float:
        """The largest offset that fits as well, with more read noise: that of the darkest level."""
        return max(min(self.curve.mean), self.offset) if self.offset else 0.0


def weighted_line(
    x: np.ndarray, y: np.ndarray, error: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Fit y = gain * x + intercept, given the standard error of y, above 0.

    Returns gain (0 where all x are the same), intercept, and their covariance (2, 2).
    """
    weight = 1 / np.square(error)
    total = float(weight.sum()) or 1e-300  # of the largest float64 no weight is left
    centre, middle = float(weight @ x) / total, float(weight @ y) / total
    spread = float(weight @ np.square(x - centre))
    some = spread > 1e-18 * total * max(centre**2, 1e-300)
    slope = 1 / spread if some else 0.0
    gain = float((weight * (x - centre)) @ (y - middle)) * slope
    covariance = np.array(
        [[slope, -centre * slope], [-centre * slope, 1 / total + centre**2 * slope]]
    )
    return gain, middle - gain * centre, covariance


def least_variance(variances: np.ndarray) -> float:
    """Return the lowest variance used for a weight."""
    typical = float(np.median(variances)) if len(variances) else 0.0
    return FLOOR * typical if typical > 0 else 1e-300


def line_values(x: np.ndarray, gain: float, intercept: float, least: float) -> np.ndarray:
    """Return the line at x, kept above 0 so that it can serve for weights."""
    return np.maximum(gain * x + intercept, least)


def robust_line(
    x: np.ndarray, y: np.ndarray, error: np.ndarray, upward: float
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Fit a line that single points do not tilt; `error` is relative to the line.

    Points count less from `upward` standard errors above the line, and from three times as many
    below it, as texture and motion only ever raise a variance. Returns gain, intercept, their
    covariance, scaled up where points scatter more than `error` suggests, and the points used.
    """
    least = least_variance(y)
    weight, spread = np.ones(len(x)), error * least
    for _ in range(ROUNDS):
        gain, intercept, covariance = weighted_line(x, y, spread / weight)
        line = line_values(x, gain, intercept, least)
        spread = line * error
        distance = (y - line) / spread
        weight = huber_weights(distance, upward, 3 * upward)
    scatter = max(1.0, math.sqrt(float(np.square(weight * distance).mean())))
    return gain, intercept, covariance * scatter**2, np.abs(distance) <= OUTLIER * scatter


def photon_noise(
    line: tuple[float, float, np.ndarray], curve: VarianceCurve, method: str
) -> PhotonNoise:
    """Return the noise of a line (gain, intercept, covariance) fitted to a curve.

    One line does not tell an offset from read noise: unless 0 can be the level without light, the
    offset is the smallest that fits.
    """
    gain, intercept, covariance = line
    # Levels below 0 by more than noise at 0 explains: something was subtracted.
    shifted = min(curve.mean, default=0.0) < -SHIFTED * math.sqrt(max(intercept, 0.0))
    if gain > 0 and (intercept < 0 or shifted):
        # No level is darker than that without light.
        offset, read = min(-intercept / gain, min(curve.mean)), 0.0
        error = math.sqrt(max(gain * (min(curve.mean) - offset), 0.0)) / 2
    else:
        spread = math.sqrt(max(covariance[1, 1], 0.0))
        offset, read = 0.0, math.sqrt(max(intercept, 0.0))
        error = spread / (2 * read) if read**2 > spread else math.sqrt(read**2 + spread) - read
    return PhotonNoise(
        gain, math.sqrt(covariance[0, 0]), intercept, offset, read, error, curve, method
    )


# Sums over nested sets of patches of one brightness, from the smoothest few to all.
COEFFICIENTS = PATCH**2 - 1  # of a patch, without its mean
TOP = 11  # this sum j + k of frequencies and what is above are one band
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # of a level, from the smoothest on
LEAST = 48  # patches by which a set is larger than the one before
UNEVEN = 2.0  # variance between the frequencies of a band over that by chance, from there on
STANDS_OUT = 1.0  # standard errors by which the mean of a band is above its median, from there on


class Readings(NamedTuple):
    """Nested sets of the smoothest patches of levels of brightness."""

    level: np.ndarray  # (set,), number of the level
    count: np.ndarray  # (set,), patches
    power: np.ndarray  # (set, band), mean over each band of frequencies that is read
    uneven: np.ndarray  # (set, band), variance of that, where frequencies differ as stripes make
    seen: np.ndarray  # (set, band), grey level as the band sees it
    added: np.ndarray  # (set,), patches that the previous set does not have
    own: np.ndarray  # (set, band), the power of these
    own_seen: np.ndarray  # (set, band), what these see


def read_levels(spectra: PatchSpectra, line: np.ndarray, levels: Parts) -> Readings:
    """Sum up nested sets of the smoothest patches of each level of brightness.

    `line` (patch,) is about the noise variance of each patch.
    """
    bands, _, sizes = frequency_bands()
    limits, level = [0], []
    for number, size in enumerate(levels.count.tolist()):
        stops = [0]
        for share in SHARES:
            stop = int(share * size)
            if stop - stops[-1] >= LEAST or stop == size:
                stops.append(stop)
        limits += [limits[-1] + stop for stop in stops[1:]]
        level += [number] * (len(stops) - 1)
    order = levels.by_rank(spectra.relative("ranks", line)).members
    sums, squares = range_moments(spectra.coefficients, order, limits)
    added, level = np.diff(limits), np.array(level)
    bright = np.add.reduceat(spectra.mean[order], limits[:-1])
    seen = sums @ weights() @ bands.T / sizes + bright[:, None]
    inside = partial(nested, sizes=np.bincount(level))
    count, overlap = inside(added), spectra.overlap
    return Readings(
        level,
        count,
        *_band_powers(inside(squares) / count[:, None], count / overlap),
        inside(seen) / count[:, None],
        added,
        _band_powers(squares / added[:, None], added / overlap)[0],
        seen / added[:, None],
    )


def _band_powers(power: np.ndarray, independent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the power of each band, and its variance where frequencies differ: by stripes.

    It is the mean, or the median where a frequency stands out.
    """
    independent = np.maximum(independent, 1.0)[:, None]
    bands, _, sizes = frequency_bands()
    each = [median_power(power[:, band > 0], independent[:, 0]) for band in bands]
    middle = np.stack(each, axis=1)
    mean, square = (each @ bands.T / sizes for each in (power, np.square(power)))
    chance, spread = np.square(middle) * 2 / independent, square - np.square(mean)
    stands_out = mean - middle > STANDS_OUT * np.sqrt(chance / sizes)
    uneven = stands_out | (spread > UNEVEN * chance)
    return np.where(stands_out, middle, mean), np.where(uneven, spread / (sizes - 1), 0.0)


@lru_cache(maxsize=1)
def frequency_bands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the coefficients of each band that is read, (band, coefficient).

    Then the mean of j + k of each band, and how many coefficients it has.
    """
    total = sum(np.divmod(coefficient_order(), PATCH))
    low, _ = frequency_order((PATCH, PATCH))
    read = ~frequency_sets(len(low), COEFFICIENTS)[SETS.index("ranks")]
    capped = np.minimum(total, TOP)
    bands = np.array([(capped == each) & read for each in np.unique(capped[read])], float)
    sizes = bands.sum(axis=1)
    return bands, bands @ total / sizes, sizes


# Noise variance at levels of brightness, with the contribution of texture removed.
#
# In sets of patches of one brightness, from the smoothest few to all, the power of each band of
# frequencies is a sum of noise and texture. The best linear unbiased estimate of the noise follows
# from how strong the texture is, how its spectrum falls, and how well that is known: where there is
# none all bands are averaged, where there is much it is extrapolated from the fall. Of the nested
# sets the one with the smallest error speaks for its level.
STRONG = 3  # the first bands, in which the strength of texture is measured
FALLS = np.geomspace(0.8, 40, 24)  # the spectrum of texture is exp(-fall frequency² / 2)
MISFIT = 0.15  # relative deviation of a band from these
STRONGEST = 8.0  # texture, relative to noise, of the sets it is learned from, at most
SMOOTH_FALL = 0.8  # smooth patches have a flatter spectrum than textured ones: exponent of it
DEVIATION = (
    0.3  # relative standard deviation of the power of a band from that spectrum, also shared
)
LINE = 0.05  # relative error of the line relative to which the strength of texture is measured


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
    _, _, sizes = frequency_bands()
    overall = readings.power.mean(axis=1)
    least = least_variance(overall[overall > 0])
    own_line, line = (
        line_values(seen, gain, intercept, least) for seen in (readings.own_seen, readings.seen)
    )
    texture = texture_spectrum(readings.own / own_line, readings.added, readings.level, overlap)
    power = readings.power / line
    independent = np.maximum(readings.count / overlap, 1.0)[:, None] * sizes
    # What is expected, not what was found: weights that follow chance favour what is low by chance.
    strength = np.maximum(power[:, :STRONG].mean(axis=1) - 1, 0)
    expected = 1 + strength[:, None] * texture
    error = np.sqrt(2 / independent * np.square(expected) + readings.uneven / np.square(line))
    chance = np.linalg.norm(error[:, :STRONG], axis=1) / STRONG
    square = np.square(strength) + np.square(np.hypot(chance, LINE))

    # Best linear unbiased estimate: power = variance + texture of unknown strength + chance. The
    # covariance of the bands is diagonal but for the strength that they share.
    alone = np.square(error) + square[:, None] * np.square(DEVIATION * texture)
    free = 1 / alone
    shared = square * (free @ texture) / (1 + square * (free @ np.square(texture)))
    weight = free * (1 - shared[:, None] * texture)
    known = 1 / weight.sum(axis=1)
    weight *= known[:, None]
    variance = np.maximum((weight * power).sum(axis=1), FLOOR * power.mean(axis=1))
    seen = (weight * readings.seen).sum(axis=1)  # the brightness, with the same weights
    variance = variance * line_values(seen, gain, intercept, least)
    known += square * np.square(DEVIATION * (np.abs(weight) @ texture))
    best = np.lexsort((known, readings.level))  # of each level the one with the least error
    chosen = best[np.diff(readings.level, prepend=-1) > 0]
    return LevelVariances(
        seen[chosen], variance[chosen], np.sqrt(known[chosen]), readings.count[chosen]
    )


def texture_spectrum(
    power: np.ndarray, count: np.ndarray, level: np.ndarray, overlap: float
) -> np.ndarray:
    """Return the power of texture in each band, relative to its mean over the first ones.

    `power` (set, band) is that of disjoint sets of `count` patches of levels of brightness,
    relative to a line that may be wrong: sets of a level share their noise, so only how they differ
    from each other tells about texture.
    """
    _, place, sizes = frequency_bands()
    strength = power[:, :STRONG].mean(axis=1)
    above = np.maximum(strength - 1, 0)
    weight = count * (above < STRONGEST) / (1 + np.square(above))
    same = (level[:, None] == level) * weight
    same /= np.maximum(same.sum(axis=1, keepdims=True), 1e-300)
    apart = weight * (strength - same @ strength)
    found = apart @ (power - same @ power)
    independent = np.maximum(count / overlap, 1.0)[:, None] * sizes
    chance = np.square(apart) @ (2 * np.square(power) / independent)
    rise = (np.square(place) - place[0] ** 2) / (2 * PATCH**2)
    shapes = np.exp(-FALLS[:, None] * rise)
    shapes /= shapes[:, :STRONG].mean(axis=1, keepdims=True)
    # How strong texture is on the whole is free: least squares for each shape.
    error = np.maximum(chance, 1e-300) + np.square(MISFIT * found[:STRONG].mean() * shapes)
    scale = (shapes * found / error).sum(axis=1) / (np.square(shapes) / error).sum(axis=1)
    misfit = np.square(found - scale[:, None] * shapes) / error + np.log(error)
    chances = -misfit.sum(axis=1) / 2
    chances = np.exp(chances - chances.max())
    spectrum = np.exp(SMOOTH_FALL * (chances @ np.log(shapes)) / chances.sum())
    return spectrum / spectrum[:STRONG].mean()


# Photon noise of single images.
TEXTURED = 1.0  # standard errors above the line from which texture is suspected
PASSES = 2
SINGLE = 0.025  # relative error of a gain from one image that statistics do not show
MOST_FLATTENED = 0.95  # share of a line's spread that noise is held for, at most
METHOD = "high frequencies of smooth patches"


def single_image_noise(image: Any, known: PatchSpectra | None = None) -> PhotonNoise:
    """Estimate gain and read noise from images of one sensor, (y, x) or (..., y, x).

    At most 8 planes are read, which together make one curve. A constant image gives 0.
    NonFiniteError if NaN or infinity leave no patch.

    About 40 000 patches of 8 x 8 pixels are read. Noise is assumed white: where it is correlated,
    gain and read noise are too low. Fixed pattern counts as noise. `gain_error` is large where the
    image has hardly more than one level of brightness, or texture everywhere, and infinite where
    there is one level only, or nothing without clipped pixels. `known` are the patches that would
    be read, if they were before.
    """
    spectra = read_spectra(sample_planes(image)) if known is None else known
    noise, levels = spectra.level_noise, spectra.levels
    open_levels = noise.open if noise.open.any() else ~noise.open  # a mask, a drawing
    used = open_levels & (noise.variance > 0)
    if not used.any():
        columns = noise.mean, noise.variance, noise.count, noise.count > 0
        return photon_noise((0.0, 0.0, np.zeros((2, 2))), _curve(*columns), METHOD)
    many = used & (noise.count >= MEMBERS)
    first = many if many.any() else used
    if np.count_nonzero(first & noise.white) >= LEAST_LEVELS:
        first &= noise.white
    error = np.hypot(noise.error[first], 2 * SYSTEMATIC)
    line = robust_line(noise.mean[first], noise.variance[first], error, TEXTURED)
    power = spectra.energy_of("high") / len(spectra.upper)
    expected = line_values(spectra.seen, *line[:2], least_variance(power))
    parts = levels.kept(used)
    readings = read_levels(spectra, expected, parts)
    for _ in range(PASSES):
        found = level_variances(readings, *line[:2], spectra.overlap)
        line = robust_line(found.mean, found.variance, found.error, TEXTURED)
    curve = noise.mean.copy(), 0 * noise.variance, 0 * noise.count, np.zeros_like(used)
    for column, values in zip(
        curve, (found.mean, found.variance, found.count, line[3]), strict=True
    ):
        column[used] = values
    result = photon_noise(line[:3], _curve(*curve), METHOD)
    flattened = _flattened(line[0], found, _variances(spectra.seen, parts))
    error = math.hypot(result.gain_error, flattened, SINGLE * result.gain)
    return replace(result, gain_error=error if np.count_nonzero(noise.open) > 1 else math.inf)


def _curve(*columns: np.ndarray) -> VarianceCurve:
    """Return mean, variance, count and use of levels as a curve, from dark to bright."""
    order = np.argsort(columns[0], kind="stable")
    return VarianceCurve(*(tuple(column[order].tolist()) for column in columns))


def _variances(values: np.ndarray, parts: Parts) -> np.ndarray:
    """Return the variance of values (patch,) in each part."""
    return np.array([values[part].var() for part in parts.each()])


def _flattened(gain: float, found: LevelVariances, within: np.ndarray) -> float:
    """Return by how much a gain may be too low, as patches of the same light are in many levels.

    The noise of a mean that is not within the levels, `within`, sets them apart.
    """
    weight = 1 / np.square(found.error * np.maximum(found.variance, 1e-300))
    weight /= weight.sum()
    spread = weight @ np.square(found.mean - weight @ found.mean)
    between = weight @ np.maximum(found.variance / PATCH**2 - within, 0.0)
    share = min(float(between / max(spread, 1e-300)), MOST_FLATTENED)
    return abs(gain) * share / (1 - share)
