"""Photon and read noise of a sensor, from single images.

A first line is fitted to the noise at levels of brightness, texture included. Relative to that line
the strength of texture is measured, which is then subtracted (`photon.texture`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import (
    Squares,
    matmul_in_blocks,
    nested,
    range_moments,
    range_sums,
)
from napari_gpu_denoise.noise.patches.spectra import (
    SETS,
    PatchSpectra,
    frequency_sets,
    read_spectra,
    weights,
)
from napari_gpu_denoise.noise.patches.variance import (
    LEAST_LEVELS,
    MEMBERS,
    LevelNoise,
    Parts,
    VarianceCurve,
    brightness_levels,
    level_noise,
)
from napari_gpu_denoise.noise.patches.white import MAX_PATCHES, PATCH, frequency_order
from napari_gpu_denoise.noise.robust import medians
from napari_gpu_denoise.noise.sampling import sample_planes

# The line of photon and read noise through variances at levels of brightness.
FLOOR = 0.02  # lowest variance used for a weight, as a share of the median variance
SAMPLE = 512  # variances that median is taken of, about
SYSTEMATIC = 0.01  # relative error of a variance that more pixels do not reduce
ROUNDS = 20  # of a robust fit, at most
SETTLED = 1e-6  # change of its weights, and of a gain, from which on it has come to an end
OUTLIER = 4.0  # distance from the line, over the scatter, beyond which a level is left out
SIGNIFICANT = 4.0  # standard errors by which a gain is above 0
KNOWN = 2.0  # standard errors, below which a gain says nothing
DISAGREE = 2.0  # standard errors by which two gains differ
GROWTH = 1.5  # ratio of variances, brightest level to darkest, that matters


@dataclass(frozen=True)
class PhotonNoise:
    """Photon and read noise: variance = gain * mean + intercept."""

    gain: float  # grey levels per electron; near 0 where noise does not grow with brightness
    gain_error: float
    intercept: float  # variance at grey level 0; negative where the camera adds an offset
    offset: float  # grey level of no light: where the line reaches 0, if 0 is not it
    read_noise: float  # standard deviation at `offset`, in grey levels
    read_noise_error: float
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

    @property
    def known(self) -> bool:
        """Whether the gain is above 0 by more than chance."""
        return self.gain > KNOWN * self.gain_error

    def exceeds(self, other: PhotonNoise) -> bool:
        """Whether this gain is clearly above another one of the same image."""
        error = math.hypot(self.gain_error, other.gain_error)
        return self.gain - other.gain > DISAGREE * error


def weighted_line(
    x: np.ndarray, y: np.ndarray, error: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Fit y = gain * x + intercept, given the standard error of y, above 0.

    Returns gain (0 where all x are the same), intercept, and their covariance (2, 2).
    """
    gain, centre, middle, spread, total = _weighted_sums(x, y, error)
    slope = 1 / spread if spread else 0.0
    covariance = np.array(
        [[slope, -centre * slope], [-centre * slope, 1 / total + centre**2 * slope]]
    )
    return gain, middle - gain * centre, covariance


def _weighted_sums(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, ...]:
    """Return the gain, the middle of x and y, the weighted spread of x, 0 if none, the weight."""
    weight = 1 / np.square(error)
    total = float(weight.sum()) or 1e-300  # of the largest float64 no weight is left
    centre, middle = float(weight @ x) / total, float(weight @ y) / total
    apart = x - centre
    weight *= apart
    spread = float(weight @ apart)
    if spread <= 1e-18 * total * max(centre**2, 1e-300):
        return 0.0, centre, middle, 0.0, total
    return float(weight @ (y - middle)) / spread, centre, middle, spread, total


def least_variance(variances: np.ndarray) -> float:
    """Return the lowest variance used for a weight; some of many tell."""
    some = variances[:: max(1, len(variances) // SAMPLE)]
    typical = float(medians(some)) if len(some) else 0.0
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
    gain, centre, middle, *_ = _weighted_sums(x, y, error * least)
    weight = np.ones(len(x))
    for _ in range(ROUNDS):
        line = np.maximum(gain * (x - centre) + middle, least)
        spread = line * error
        distance = (y - line) / spread
        limit = np.where(distance > 0, upward, 3 * upward)
        before, weight = weight, np.minimum(1, limit / np.maximum(np.abs(distance), 1e-12))
        old = gain
        gain, centre, middle, *_ = _weighted_sums(x, y, spread / weight)
        if abs(gain - old) <= SETTLED * abs(gain) and np.abs(weight - before).max() < SETTLED:
            break
    gain, intercept, covariance = weighted_line(x, y, spread / weight)
    distance = (y - np.maximum(gain * x + intercept, least)) / spread
    scatter = max(1.0, math.sqrt(float(np.square(weight * distance).mean())))
    return gain, intercept, covariance * scatter**2, np.abs(distance) <= OUTLIER * scatter


def photon_noise(
    line: tuple[float, float, np.ndarray], curve: VarianceCurve, method: str
) -> PhotonNoise:
    """Return the noise of a line (gain, intercept, covariance) fitted to a curve."""
    gain, intercept, covariance = line
    # Levels below 0 by more than noise at 0 explains: something was subtracted.
    shifted = min(curve.mean, default=0.0) < -SHIFTED * math.sqrt(max(intercept, 0.0))
    offset = -intercept / gain if gain > 0 and (intercept < 0 or shifted) else 0.0
    at = np.array([offset, 1.0])
    variance = max(gain * offset + intercept, 0.0)
    spread = math.sqrt(max(float(at @ covariance @ at), 0.0))
    return PhotonNoise(
        gain,
        math.sqrt(covariance[0, 0]),
        intercept,
        offset,
        math.sqrt(variance),
        math.sqrt(variance + spread) - math.sqrt(variance),
        curve,
        method,
    )


# Sums over nested sets of patches of one brightness, from the smoothest few to all.
COEFFICIENTS = PATCH**2 - 1  # of a patch, without its mean
TOP = 11  # this and what is above are one band

SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # of a level, from the smoothest on
LEAST = 48  # patches by which a set is larger than the one before
SHIFTED = 0.25  # sigma at level 0 by which levels are below 0 only if something was subtracted
WEAKEST = 1e-24  # variance from which float32 holds what is relative to it


class Readings(NamedTuple):
    """Nested sets of the smoothest patches of levels of brightness."""

    level: np.ndarray  # (set,), number of the level
    count: np.ndarray  # (set,), patches
    mean: np.ndarray  # (set,), grey level
    power: np.ndarray  # (set, frequency), at each frequency that is read
    added: np.ndarray  # (set,), patches that the previous set does not have
    own: np.ndarray  # (set, frequency), the power of these
    seen: np.ndarray  # (set, frequency), grey level as each frequency that is read sees it
    own_seen: np.ndarray  # (set, frequency), the same of the added patches
    rank: np.ndarray  # (set,), mean power at the frequencies that rank, relative to the line


def read_levels(
    spectra: PatchSpectra, line: np.ndarray, levels: Parts, relative: bool = False
) -> Readings:
    """Sum up nested sets of the smoothest patches of each level of brightness.

    `line` (patch,) is about the noise variance of each patch. If `relative`, all is divided by it.
    """
    ranks, read, *_ = frequency_bands()
    sight = weights()[read]
    # The mean power at the frequencies that rank, relative to the line.
    rank = spectra.relative("ranks", len(ranks) * line)
    limits, level = [0], []
    for number, size in enumerate(levels.count.tolist()):
        stops = [0]
        for share in SHARES:
            stop = int(share * size)
            if stop - stops[-1] >= LEAST or stop == size:
                stops.append(stop)
        start = limits[-1]
        limits += [start + stop for stop in stops[1:]]
        level += [number] * (len(stops) - 1)
    order = levels.by_rank(rank).members
    first = np.array(limits[:-1])
    if relative:
        # What is relative to its own line sees no more of the brightness than the mean does.
        weight, mean, sums = 1 / line, spectra.seen, np.zeros((len(first), COEFFICIENTS))
        weak = weight.max() > 1 / WEAKEST
        coefficients = spectra.coefficients
        if weak:
            coefficients = np.asarray(coefficients, np.float64)
        squares = range_sums(Squares(coefficients), order, limits, weight)
    else:
        mean = spectra.mean
        sums, squares = range_moments(spectra.coefficients, order, limits)
    added, level = np.diff(limits), np.array(level)

    inside = partial(nested, sizes=np.bincount(level))
    own = squares[:, read]
    bright = np.add.reduceat(mean[order], first)
    seen = matmul_in_blocks(sums, sight.T) + bright[:, None]
    count = inside(added)
    return Readings(
        level,
        count,
        inside(bright) / count,
        inside(own) / count[:, None],
        added,
        own / added[:, None],
        inside(seen) / count[:, None],
        seen / added[:, None],
        inside(np.add.reduceat(rank[order].astype(np.float64), first)) / count,
    )


@lru_cache(maxsize=1)
def frequency_bands() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the coefficients that rank the patches, and those read, by rising frequency.

    Then the frequencies j + k of those that are read, and where in these each band begins.
    """
    total = sum(np.divmod(np.concatenate(frequency_order((PATCH, PATCH))), PATCH))
    low, _ = frequency_order((PATCH, PATCH))
    ranks = frequency_sets(len(low), COEFFICIENTS)[SETS.index("ranks")]
    read = np.flatnonzero(~ranks)
    read = read[np.argsort(total[read], kind="stable")]
    first = np.append(True, np.diff(np.minimum(total[read], TOP)) > 0)
    return np.flatnonzero(ranks), read, total[read], np.flatnonzero(first)


# Noise variance at levels of brightness, with the contribution of texture removed.
#
# The power of texture falls with frequency, that of white noise does not. In sets of patches of one
# brightness, from the smoothest few to all, the power at several bands of frequency is a sum of
# both. The best linear unbiased estimate of the noise follows from how strong the texture is, how
# its spectrum falls, and how well that is known: where there is none all bands are averaged, where
# there is much it is extrapolated from the fall. Of the nested sets the one with the smallest error
# speaks for its level: where texture is everywhere that error is large.
#
# The fall is learned from the textured patches of the image itself, beside what photographs show.
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
    """Return a mask of the first set of each level; sets are sorted by level."""
    return np.concatenate([[True], level[1:] != level[:-1]])


def _chosen(readings: Readings, gain: float, intercept: float, line: np.ndarray) -> np.ndarray:
    """Return the bias of the relative power by the choice of smooth patches.

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
    bands = [medians(band) for band in np.split(relative, first[1:], axis=1)]
    middle = np.stack(bands, axis=1) / ((1 - 2 / (9 * independent)) ** 3)[:, None]
    expected = 2 * np.square(np.maximum(middle, LOWEST)) / independent[:, None]
    stands_out = mean - middle > STANDS_OUT * np.sqrt(expected / sizes)
    power = np.where(stands_out, middle, mean)
    spread = np.add.reduceat(np.square(relative), first, axis=1) / sizes - np.square(mean)
    uneven = stands_out | (spread > UNEVEN * expected)
    return power, np.where(uneven, spread / np.maximum(sizes - 1, 1), 0.0)


def _strength(
    power: np.ndarray, error: np.ndarray, texture: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the strength of texture with nothing known of the noise, and its standard error."""
    weight = 1 / np.square(error)
    total = weight.sum(axis=1, keepdims=True)
    distance = texture - (weight @ texture)[:, None] / total
    square = (weight * np.square(distance)).sum(axis=1) + 1e-9
    return (weight * distance * power).sum(axis=1) / square, 1 / np.sqrt(square)


# How bright the surroundings of patches are: brightness that shares no noise with the patches.
WIDTH = 2 * PATCH  # of the square around the middle of a patch that is averaged, without the patch


def surroundings(
    planes: list[np.ndarray], limit: int, blanks: list[np.ndarray | None]
) -> np.ndarray:
    """Return the mean grey level around each of the patches that `read_spectra` reads.

    Pixels that are not finite, or blank, do not count.
    """
    found = []
    for plane, blank in zip(planes, blanks, strict=True):
        values = plane.astype(np.float64)
        finite = np.isfinite(values)
        seen = finite if blank is None else finite & ~blank
        total = _around(np.where(seen, values, 0.0)) / np.maximum(_around(seen * 1.0), 0.5)
        total[~finite] = np.nan  # so that the same patches are left out
        found.append(selection.read_patches(total, PATCH, limit // len(planes), blank).values[:, 0])
    return np.concatenate(found)


def _around(values: np.ndarray) -> np.ndarray:
    """Return the sum around each patch, at its first pixel; what is beyond the plane counts 0."""
    from scipy.ndimage import uniform_filter

    sums = [
        uniform_filter(values, size, mode="constant", origin=-PATCH // 2) * size**2
        for size in (WIDTH, PATCH)
    ]
    return sums[0] - sums[1]


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
    there is one level only, or nothing without clipped pixels.

    Patches are sorted by their own brightness, unless its noise is what mostly sets them apart;
    then by that of their surroundings. `known` are the patches that would be read, if they were
    before.
    """
    spectra = read_spectra(sample_planes(image)) if known is None else known
    if not spectra.energy_of("high").any():
        return _nothing(spectra)
    found, flattened = _line(spectra, spectra.seen, spectra.levels, spectra.level_noise)
    if flattened > 0.5 * found.gain_error:
        found = replace(found, gain_error=math.hypot(found.gain_error, flattened))
        planes = sample_planes(image)
        blanks = selection.not_image(planes)
        limit = selection.number_of_patches(MAX_PATCHES * min(len(planes), 2), blanks)
        key = surroundings(planes, limit, blanks)
        levels = brightness_levels(key, order=spectra.statistics.order)
        noise = level_noise(spectra.statistics, levels, spectra.seen)
        other, _ = _line(spectra, key, levels, noise)
        found = min(found, other, key=lambda each: each.gain_error)
    error = math.hypot(found.gain_error, SINGLE * found.gain)
    return replace(found, gain_error=error)


def _nothing(spectra: PatchSpectra) -> PhotonNoise:
    """Return no noise at the levels of brightness there are."""
    levels = brightness_levels(spectra.mean)
    means = levels.sums(spectra.mean) / levels.count
    found = LevelVariances(means, 0.0 * means, 0.0 * means, levels.count)
    curve = _curve(spectra.mean, levels, found, levels.count > 0)
    return photon_noise((0.0, 0.0, np.zeros((2, 2))), curve, METHOD)


def _line(
    spectra: PatchSpectra, key: np.ndarray, levels: Parts, noise: LevelNoise
) -> tuple[PhotonNoise, float]:
    """Return the noise along levels of a key, and how much the key's own noise flattens the line.

    The brightness of a patch is that which its high frequencies see, and `noise` is read at it.
    """
    known = np.count_nonzero(noise.open) > 1
    # If none is open: a mask, a drawing, whose extremes are what there is.
    used = noise.open if noise.open.any() else ~noise.open
    open_levels = levels.kept(used)
    found = _first_variances(noise, used)
    line = robust_line(found.mean, found.variance, found.error, TEXTURED)
    flattened = 0.0
    if spectra.whole:
        power = spectra.energy_of("high") / len(spectra.upper)
        expected = line_values(spectra.seen, *line[:2], least_variance(power))
        readings = read_levels(spectra, expected, open_levels)
        for _ in range(PASSES):
            found = level_variances(readings, *line[:2], spectra.overlap)
            line = robust_line(found.mean, found.variance, found.error, TEXTURED)
        flattened = _flattened(line[0], found, _variances(key, open_levels))
    result = photon_noise(line[:3], _curve(spectra.seen, levels, found, line[3]), METHOD)
    if not known:
        result = replace(result, gain_error=math.inf)
    return result, flattened


def _variances(values: np.ndarray, parts: Parts) -> np.ndarray:
    """Return the variance of values (patch,) in each part."""
    middle = float(values.mean())
    mean = parts.sums(values) / parts.count
    return parts.sums(np.square(values - middle)) / parts.count - np.square(mean - middle)


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


def _first_variances(noise: LevelNoise, used: np.ndarray) -> LevelVariances:
    """Return the noise of each level of brightness that is used, texture included."""
    many = used & (noise.count >= MEMBERS)
    used = many if many.any() else used
    white = used & noise.white
    if np.count_nonzero(white) < LEAST_LEVELS:
        white = used
    error = np.hypot(noise.error, 2 * SYSTEMATIC)
    return LevelVariances(
        *(each[white] for each in (noise.mean, noise.variance, error, noise.count))
    )


def _curve(
    mean: np.ndarray, levels: Parts, found: LevelVariances, used: np.ndarray
) -> VarianceCurve:
    """Return the noise of each level of brightness, with empty levels where nothing was found."""
    rows = [
        (mean, max(variance, 0.0), int(count), fits)
        for mean, variance, count, fits in zip(
            *(each.tolist() for each in (found.mean, found.variance, found.count, used)),
            strict=True,
        )
    ]
    inside = mean[levels.members]
    low, high = (each.reduceat(inside, levels.first)[:, None] for each in (np.minimum, np.maximum))
    empty = ~((found.mean >= low) & (found.mean <= high)).any(axis=1)
    means = np.add.reduceat(inside, levels.first) / levels.count
    rows += [(level, 0.0, 0, False) for level in means[empty].tolist()]
    return VarianceCurve(*zip(*sorted(rows), strict=True))
