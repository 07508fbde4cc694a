"""The spectrum of noise, and whether it is white.

Every coefficient of the 8 x 8 cosine transform is read in the smoothest patches. Patches that are
ranked by some coefficients are weak there by chance too, so the coefficients are split into two
halves: patches are ranked by one half and read at the other. The texture that is left there is
separated from correlated noise by its shape (`fit_correlation`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.noise.patches.coefficients import (
    PATCH,
    SETS,
    Squares,
    coefficient_order,
    cosine_transform,
    frequency_sets,
    ranked,
    span_sums,
)
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patches.variance import brightness_levels, unclipped
from napari_gpu_denoise.noise.robust import medians
from napari_gpu_denoise.noise.sampling import sample_planes

# Whether the noise of neighbouring pixels is correlated, separated from texture.
#
# The smoothest patches of a picture hold its noise and a little texture. Rougher ones hold the same
# noise and more texture, so the difference is the spectrum of texture, whatever that of the noise
# is. The power of the smoothest patches is fitted by a multiple of it and correlated noise:
#
#     power = c(0,0) d(0,0) + c(0,1) d(0,1) + c(1,0) d(1,0) + c(1,1) d(1,1) + a texture,    a >= 0
#
# with c the autocovariance of the noise and d the power of each of its lags. The two have different
# shapes: texture falls steeply from the lowest frequencies on and leaves white noise flat at the
# highest ones, while correlated noise is flat at the lowest and falls to the very last.
LAGS = 4  # largest displacement of the autocovariance, in pixels
HIGHEST = np.s_[PATCH // 2 :, PATCH // 2 :]  # frequencies that hold least texture
FREQUENCY = np.maximum(*np.indices((PATCH, PATCH)))  # the larger of those along y and x
LOWEST_BAND, MIDDLE_BAND = FREQUENCY == 1, (FREQUENCY == 2) | (FREQUENCY == 3)
ROUGHER = (0.04, 0.32)  # patches that show the texture, from and to, as shares of all by smoothness
CALM = (0.08, 0.16)  # those whose highest frequencies hold hardly any texture in most pictures
UNLIKE = 0.3  # relative error of texture, which is not the same in smooth and in rough patches
ROUNDS = 4  # iterations: weights depend on the fit
CURVED = 0.03  # relative error of the power of noise that four lags describe
LOWEST = 0.05  # lowest relative power that a fit may give a coefficient
STEEP = 3.0  # largest ratio of power, lowest frequencies to middle ones, of noise alone
GROWTH = 0.6  # correlation that texture may mimic, per growth at the highest frequencies
LEAST = 0.1  # correlation of neighbours that matters
SIGNIFICANT = 3.0  # standard errors by which it differs from 0
# Mean squared error over its variance, up to which noise is told from texture, and its power too.
MAX_MISFIT, TRUSTED = 1.0, 0.75


class PatchPower(NamedTuple):
    """Power of the cosine coefficients, in patches from smooth to rough."""

    smoothest: np.ndarray  # (8, 8), of the smoothest patches
    rough: np.ndarray  # (8, 8), of rougher ones
    growth: float  # relative increase, at the highest frequencies, of patches in between
    independent: float  # number of smoothest patches that share no pixels


class CorrelationFit(NamedTuple):
    """Correlated noise: correlation of neighbouring pixels, and power without texture."""

    along_y: float  # correlation of neighbours
    along_x: float
    error: float  # the larger standard error of the two
    misfit: float  # mean squared error of the fit over its variance
    power: np.ndarray  # (8, 8), of the noise without texture

    @property
    def is_correlated(self) -> bool:
        """Whether neighbours are correlated beyond what texture or chance could cause."""
        largest = max(abs(self.along_y), abs(self.along_x))
        return self.misfit <= MAX_MISFIT and largest > max(LEAST, SIGNIFICANT * self.error)

    @property
    def trusted(self) -> bool:
        """Whether noise and texture were separated reliably."""
        return self.misfit <= TRUSTED


def fit_correlation(powers: PatchPower) -> CorrelationFit | None:
    """Separate correlated noise from texture in the power of the smoothest patches.

    None where there is no noise, or none that four lags would explain.
    """
    fit = _fit(powers)
    if fit is None:
        return None
    lags, errors = fit.lags, []  # at no displacement, along x, along y, along both
    for k in (1, 2):
        slope = np.zeros(len(fit.covariance))
        slope[0], slope[k] = -lags[k] / lags[0] ** 2, 1 / lags[0]
        errors.append(math.sqrt(slope @ fit.covariance @ slope))
    # Where texture hides the noise the fit replaces what was read.
    share = fit.chance / (fit.chance + fit.unlike)
    rest = powers.smoothest.ravel() - fit.texture - fit.noise
    clean = np.maximum(fit.noise + share * rest, LOWEST * fit.noise)
    return CorrelationFit(
        float(lags[2] / lags[0]),
        float(lags[1] / lags[0]),
        math.hypot(max(errors), GROWTH * max(powers.growth, 0.0)),
        fit.misfit,
        clean.reshape(PATCH, PATCH),
    )


class _Fit(NamedTuple):
    """A fit of noise and texture: autocovariance at each lag, and power by coefficient."""

    lags: np.ndarray  # relative to the power at the highest frequencies, as are all but the powers
    covariance: np.ndarray  # of the fitted lags and the strength of texture
    misfit: float  # mean squared error of the fit over its variance
    noise: np.ndarray  # power, squared grey levels
    texture: np.ndarray  # power, squared grey levels
    chance: np.ndarray  # variance by chance alone
    unlike: np.ndarray  # variance by texture that differs from that of rougher patches


def _fit(powers: PatchPower) -> _Fit | None:
    """Fit texture and noise with lags of 0 and 1 along y and x; None where no noise results."""
    level = float(medians(powers.smoothest[HIGHEST].ravel()))
    if not level > 0:
        return None
    power, rough = powers.smoothest.ravel() / level, powers.rough.ravel() / level
    texture = np.maximum(rough - power, 0)
    texture[0] = 0
    texture /= max(float(texture.max()), 1e-300)
    design, count = power_of_lags(2, 2), 4
    terms = np.concatenate([design, texture[:, None]], axis=1)[1:]
    relative = 2 / max(powers.independent, 1.0)
    # Start with white noise; all power above it is texture.
    noise = np.ones(len(power))
    strength = max(float((power - 1) @ texture / max(texture @ texture, 1e-300)), 0.0)
    for _ in range(ROUNDS):
        chance = relative * np.square(noise + strength * texture)
        unlike = np.square(UNLIKE * strength * texture)
        variance = chance + unlike + np.square(CURVED * noise)
        # The first coefficient, the mean, is not known.
        weighted = (terms / variance[1:, None]).T
        normal, seen = weighted @ terms, weighted @ power[1:]
        for number in (count + 1, count):
            try:
                covariance = np.linalg.inv(normal[:number, :number])
            except np.linalg.LinAlgError:  # no texture at all, for one
                covariance = np.linalg.pinv(normal[:number, :number])
            found = covariance @ seen[:number]
            strength = float(found[count]) if len(found) > count else 0.0
            if strength >= 0:
                break
        if not found[0] > 0:
            return None
        noise = np.maximum(design @ found[:count], LOWEST * found[0])
    error = np.square(power[1:] - terms[:, : len(found)] @ found) / variance[1:]
    misfit = float(error.sum()) / (len(error) - len(found))
    noise, texture = level * noise, level * strength * texture
    return _Fit(found[:count], covariance, misfit, noise, texture, chance, unlike)


def without_steep_texture(powers: PatchPower) -> np.ndarray:
    """Return the power of the smoothest patches less texture, (8, 8).

    So much texture is subtracted that the lowest frequencies have no more than 3 times the power of
    the middle ones, as in correlated noise of any range; none where texture is not steeper.
    """
    power, texture = powers.smoothest, np.maximum(powers.rough - powers.smoothest, 0)
    excess, steep = (
        float(each[LOWEST_BAND].mean() - STEEP * each[MIDDLE_BAND].mean())
        for each in (power, texture)
    )
    if excess <= 0 or steep <= 0:
        return power
    return np.maximum(power - excess / steep * texture, LOWEST * power)


@cache
def power_of_lags(ny: int, nx: int) -> np.ndarray:
    """Return the power of each coefficient, (64, ny * nx), for an autocovariance of (ny, nx).

    Stationary noise with autocovariance c has, in coefficient k of an axis, the variance sum over d
    of c(d) a(k, d): a is 1 for d = 0, else twice the correlation of row k of the transform with
    itself shifted by d. Along two axes the sums factor, if c is symmetric along each.
    """
    transform = cosine_transform(PATCH)

    def along(lags: int) -> np.ndarray:
        shifted = [
            (transform[:, d:] * transform[:, : PATCH - d]).sum(axis=1) * (2 if d else 1)
            for d in range(lags)
        ]
        return np.array(shifted).T

    found = np.kron(along(ny), along(nx))
    found.flags.writeable = False  # it is kept for the next call
    return found


def autocovariance(power: np.ndarray) -> np.ndarray:
    """Return the autocovariance, (5, 5), that best fits this power of coefficients, (8, 8).

    Least squares of relative errors. The first coefficient is ignored; 0 where there is no power.
    """
    values = power.ravel()
    if not values[1:].any():
        return np.zeros((LAGS + 1, LAGS + 1))
    weight = 1 / np.maximum(values, 1e-3 * values.max())
    weight[0] = 0  # not measured
    design = power_of_lags(LAGS + 1, LAGS + 1)
    weighted = design * weight[:, None]
    found = np.linalg.solve(weighted.T @ weighted, weighted.T @ (values * weight))
    return found.reshape(LAGS + 1, LAGS + 1)


# The power of smooth patches: of the smoothest of all, or of those at each level of brightness.
# Patches that are smoothest because the noise is weak there, as in the shadows of a JPEG file, are
# few: of white or correlated noise that is the same everywhere, more of an image is as smooth.
EXCEPTIONS = 0.04  # share of all patches, at most,
AS_SMOOTH = 1.5  # whose power is at most so many times that of the smoothest
LEVELS = 8  # of brightness
READ = 0.05  # of the patches of a level
NEXT = (0.15, 0.3)  # those they are compared with, to see how much texture there is
TEXTURED = 0.35  # relative growth of the power from those read to the next, that halves the weight
HALVES = "rest", "half"  # of the frequencies: those that rank where the others are read
EQUAL = 1e-6  # share of all frequencies that ranks patches that are equal, such as edges by rows
PROVEN = 0.2  # weight of all levels, of 1, from which they show noise and not only texture
LEAST_WEIGHT, FEWEST_LEVELS = 0.01, 3  # of levels that show how noise depends on brightness
LINE_ROUNDS = 10  # iterations: weights depend on the line
REFUTED = 2.0  # variance on a line over that of a level that refutes it, at least
RISES = 1.5  # growth of a variance that depends on brightness
WIDER = 0.15  # of the patches that are read where the smoothest are exceptions, and how many times
SEVERAL = 3.5  # the sigma of these their own may be; more is texture


def smooth_powers(spectra: PatchSpectra, members: np.ndarray, number: int) -> PatchPower:
    """Return the power of the `number` smoothest patches of `members`, and of rougher ones."""
    smoothest, rough, calm = _parts(spectra, members, number, (ROUGHER, CALM))
    return PatchPower(smoothest, rough, _growth(smoothest, calm), number / spectra.overlap)


def are_exceptions(spectra: PatchSpectra, members: np.ndarray, power: np.ndarray) -> bool:
    """Return whether hardly any patch has as little power as this, (8, 8), the mean left out."""
    energy = spectra.energy_of("low") + spectra.energy_of("high")
    return float(np.mean(energy[members] < AS_SMOOTH * (power.sum() - power[0, 0]))) < EXCEPTIONS


class LevelPowers(NamedTuple):
    """Power of the smoothest patches of each level of brightness; arrays (level,)."""

    mean: np.ndarray  # grey level
    total: np.ndarray  # power of all coefficients together, squared grey levels
    weight: np.ndarray  # share of the patches, less where rougher ones have more power

    @property
    def proof(self) -> float:
        """Share of the image, 0 to 1, that shows noise and not only texture."""
        return float(self.weight.sum())

    def line(self) -> VarianceLine | None:
        """Fit a line to the variance of a pixel over brightness; None where texture hides it.

        Levels far above the line count less: texture raises a variance, and never lowers it. So one
        far below it refutes it.
        """
        if self.proof < PROVEN or np.count_nonzero(self.weight > LEAST_WEIGHT) < FEWEST_LEVELS:
            return None
        variance = self.total / (PATCH**2 - 1)
        terms = np.stack([self.mean - self.mean[0], np.ones(len(self.mean))], axis=1)
        weight, line = self.weight, variance
        for _ in range(LINE_ROUNDS):
            scaled = terms / variance[:, None]
            normal = np.linalg.pinv((weight[:, None] * scaled).T @ scaled)
            slope, first = normal @ ((weight[:, None] * scaled).T @ np.ones(len(variance)))
            line = np.maximum(terms @ (slope, first), LOWEST * variance.min())
            above = np.maximum(variance / line - 1, 0) / TEXTURED
            weight = self.weight / (1 + above**2)
        if (variance * REFUTED < line).any():
            return None
        share = weight.sum()
        spread = math.sqrt(float(weight @ np.square(line / variance - 1)) / share)
        slope_error = spread * math.sqrt(normal[0, 0] * share / len(variance))
        dark, bright = self.mean[[0, -1]].tolist()
        error = slope_error * (bright - dark) / line[0]
        return VarianceLine(dark, bright, float(line[0]), float(line[-1] / line[0]), float(error))


class VarianceLine(NamedTuple):
    """Variance of a pixel, at all frequencies, as a line over brightness."""

    dark: float  # grey level of the darkest level
    bright: float
    variance: float  # at the darkest level
    growth: float  # variance at the brightest level over that
    error: float  # standard error of the growth

    @property
    def slope(self) -> float:
        """Growth of the variance for each grey level."""
        return (self.growth - 1) * self.variance / max(self.bright - self.dark, 1e-300)

    @property
    def rises(self) -> bool:
        """Whether the variance clearly grows with brightness."""
        return self.growth >= RISES and self.growth - 1 > RATIO_SIGNIFICANT * self.error

    def mean(self, brightness: np.ndarray) -> float:
        """Return the mean variance of patches of this brightness, (patch,)."""
        least = self.variance * min(self.growth, 1.0)
        line = self.variance + self.slope * (brightness - self.dark)
        return float(np.maximum(line, least).mean())

    def with_growth(self, growth: float, brightness: np.ndarray) -> VarianceLine:
        """Return the line of another growth, and the same mean variance of such patches."""
        other = self._replace(growth=growth)
        factor = self.mean(brightness) / other.mean(brightness)
        return other._replace(variance=factor * self.variance)


def powers_by_brightness(spectra: PatchSpectra, members: np.ndarray) -> LevelPowers:
    """Return the power at each level of brightness that has any.

    A level counts by the number of its patches, and by how little rougher ones differ from the
    smoothest: texture does, noise does not.
    """
    means, totals, weights = [], [], []
    for part in brightness_levels(spectra.mean[members], most=LEVELS).each():
        found = _parts(spectra, members[part], math.ceil(READ * len(part)), (NEXT,))
        total, rougher = found.sum(axis=(1, 2))
        if total > 0:
            growth = max(rougher / total - 1, 0.0)
            means.append(spectra.mean[members[part]].mean())
            totals.append(total)
            weights.append(len(part) / len(members) / (1 + (growth / TEXTURED) ** 4))
    return LevelPowers(np.array(means), np.array(totals), np.array(weights))


def _parts(
    spectra: PatchSpectra,
    members: np.ndarray,
    number: int,
    others: tuple[tuple[float, float], ...],
) -> np.ndarray:
    """Return the power of the `number` smoothest patches and of other shares of them, (n, 8, 8)."""
    places = coefficient_order()
    half = frequency_sets()[SETS.index("half")]
    parts = [(0, number)]
    for first, last in others:
        start = min(max(round(first * len(members)), number), len(members) - 1)
        parts.append((start, max(round(last * len(members)), start + 1)))
    starts, stops = np.array(parts).T
    found = np.zeros((len(parts), PATCH**2))
    # Ranked by one half, read at the other.
    energies = [spectra.energy_of(name) for name in HALVES]
    both = EQUAL * (energies[0] + energies[1])
    if len(members) == len(both):  # in their own order
        orders = [ranked(each + both)[: stops.max()] for each in energies]
    else:
        orders = [members[ranked((each + both)[members])[: stops.max()]] for each in energies]
    starts, stops = (np.concatenate([each, len(orders[0]) + each]) for each in (starts, stops))
    sums = span_sums(Squares(spectra.coefficients), np.concatenate(orders), starts, stops)
    sums /= (stops - starts)[:, None]
    for which, each in zip((half, ~half), np.split(sums, 2), strict=True):
        found[:, places[which]] = each[:, which]
    return found.reshape(-1, PATCH, PATCH)


def _growth(smoothest: np.ndarray, calm: np.ndarray) -> float:
    """Return the relative increase at the highest frequencies, from the smoothest patches on."""
    # Medians, as a regular pattern fills single frequencies.
    base = float(np.median(smoothest[HIGHEST]))
    return float(np.median(calm[HIGHEST])) / base - 1 if base > 0 else 0.0


# The spectrum of noise, and whether it is white.

# Frequencies that are high along both axes, those whose power is compared with theirs (middle ones,
# and those that are high along x alone and along y alone), and the smallest number in any of these.
_high = np.arange(PATCH) >= PATCH // 2
HIGHEST_BAND = np.logical_and.outer(_high, _high)
BANDS = MIDDLE_BAND, *(np.logical_and.outer(*each) for each in ((~_high, _high), (_high, ~_high)))
FEWEST = min(map(np.count_nonzero, (HIGHEST_BAND, *BANDS)))

SHARE = 0.01  # of the patches are read
INDEPENDENT = 16  # patches without a common pixel, read at least,
MOST = 1 / 16  # up to this share of all, as the others may hold texture
# Ratios of power up to which noise is white beyond doubt: `middle`, and `across` and `down`.
MIDDLE, EDGE = 2.2, 1.5
FAR_MIDDLE, FAR_EDGE = 5.0, 2.5  # beyond these it is correlated, whatever the texture
RATIO_SIGNIFICANT = 2.0  # standard errors by which a ratio must be beyond that


@dataclass(frozen=True)
class NoiseSpectrum:
    """Power spectrum of noise, its autocorrelation, and whether it is white.

    `middle`, `across` and `down` are power over that of the frequencies from 4 on along both axes:
    of the middle ones (2 and 3), of those from 4 on along x alone, and along y alone. Texture
    counts; 1 for white noise.

    `power` (8, 8) is the variance of each coefficient of the orthonormal cosine transform, in grey
    levels squared, frequency along y first, without texture where that can be separated. The first
    coefficient cannot be separated from the image; it holds the larger of its two neighbours.
    """

    white: bool  # False where noise of neighbouring pixels is clearly correlated
    middle: float
    across: float
    down: float
    ratio_error: float  # relative standard error of these ratios
    power: tuple[tuple[float, ...], ...]
    autocorrelation: tuple[tuple[float, ...], ...]  # (5, 5), for displacements along y and x
    sigma: float  # standard deviation of the noise at all frequencies, in grey levels
    patches: int  # how many patches were read
    any_range: bool = False  # whether sigma and autocorrelation are those of noise of any range
    log_speckle: bool = False  # whether it is that of speckle on a logarithmic scale

    def summary(self) -> str:
        """Return as one line whether noise is white, and how neighbours correlate."""
        verdict = "white" if self.white else "correlated"
        x, y = self.autocorrelation[0][1], self.autocorrelation[1][0]
        return f"noise is {verdict} (correlation of neighbours {x:.2f} along x, {y:.2f} along y)"

    @property
    def doubtful(self) -> bool:
        """Whether noise is called white though the ratios exceed those of white noise."""
        slack = math.exp(RATIO_SIGNIFICANT * self.ratio_error)
        limits = ((self.middle, MIDDLE), (self.across, EDGE), (self.down, EDGE))
        near = all(1 / (EDGE * slack) <= ratio <= limit * slack for ratio, limit in limits)
        return self.white and not near


def noise_spectrum(image: Any) -> NoiseSpectrum:
    """Measure the power spectrum of the noise, and decide whether it is white.

    `image` is (y, x) or (..., y, x), of any real dtype, with ``shape``, ``dtype`` and NumPy
    indexing; at most 8 planes are read. ImageError if y or x is below 8, NonFiniteError if NaN or
    infinity leave no patch of 8 x 8 pixels. A constant image gives a power of 0, and is white.

    The power of the smoothest patches is fitted by correlated noise and by the texture of rougher
    patches. Noise is called correlated where neighbours then correlate by more than 0.1 or less
    than -0.1, and by three standard errors; these grow where the highest frequencies show texture
    in most patches, and where the fit is poor. It is also called correlated where the middle
    frequencies have more than 5 times the power of the highest, or those high along one axis alone
    more than 2.5 times, steep texture subtracted, or either less than 1 / 1.5. Weak correlation
    passes as white where fine texture is everywhere.

    The power at the lowest frequencies may hold slopes of the image. About 40 000 patches are
    looked at, and the smoothest 1 % read; patches with clipped pixels are left out.
    """
    planes = sample_planes(image)
    if min(planes[0].shape) < PATCH:
        raise ImageError(
            f"A plane of {planes[0].shape} is too small for a spectrum; "
            f"give at least {PATCH} x {PATCH} pixels."
        )
    return spectrum_of_patches(read_spectra(planes))


def spectrum_of_patches(spectra: PatchSpectra) -> NoiseSpectrum:
    """Return the noise spectrum of patches."""
    return spectrum_and_line(spectra)[0]


def spectrum_and_line(spectra: PatchSpectra) -> tuple[NoiseSpectrum, VarianceLine | None]:
    """Return the same, and how the variance of correlated noise depends on brightness."""
    members = unclipped(spectra.clipped)
    few = min(INDEPENDENT * spectra.overlap, MOST * len(members))
    number = math.ceil(max(SHARE * len(members), few))
    powers = smooth_powers(spectra, members, number)
    smoothest = _with_mean(powers.smoothest)
    ratios, error = _ratios(smoothest, powers.independent)
    least, _ = _ratios(without_steep_texture(powers), powers.independent)
    shared = fit_correlation(powers)
    power = _without_texture(powers, shared)
    if _is_white(ratios, least, error, shared):
        return _spectrum(True, ratios, error, power, number), None
    # Texture that is alike everywhere passes for noise.
    levels = powers_by_brightness(spectra, members)
    white, line = levels.proof < PROVEN, levels.line()
    if not white and are_exceptions(spectra, members, power):
        wider = smooth_powers(spectra, members, round(WIDER * len(members)))
        even = _without_texture(wider, fit_correlation(wider))
        white = bool(even.mean() > SEVERAL**2 * smoothest.mean())
        if line is not None:
            raised = max(even.mean() / line.mean(spectra.mean[members]), 1.0)
            line = line._replace(variance=line.variance * raised)
        power = power if white else even
    return _spectrum(white, ratios, error, power, number), None if white else line


def spectral_fall(power: np.ndarray) -> float:
    """Return the power of the middle frequencies over that of the highest; infinite without any."""
    return _ratios(power, 1.0)[0][0]


def correlated_spectrum(power: np.ndarray, number: int) -> NoiseSpectrum:
    """Return the spectrum of correlated noise with this power, (8, 8), from `number` patches."""
    power = _with_mean(power)
    return _spectrum(False, _ratios(power, math.inf)[0], 0.0, power, number)


def mean_spectrum(spectra: Sequence[NoiseSpectrum]) -> NoiseSpectrum:
    """Return the mean spectrum of planes of unlike noise, most of it correlated."""
    power = np.mean([each.power for each in spectra], axis=0)
    ratios, _ = _ratios(power, math.inf)
    error = math.sqrt(np.mean([each.ratio_error**2 for each in spectra]) / len(spectra))
    number = sum(each.patches for each in spectra)
    return _spectrum(False, ratios, error, power, number)


def _spectrum(
    white: bool, ratios: tuple[float, ...], error: float, power: np.ndarray, number: int
) -> NoiseSpectrum:
    """Return the spectrum with this power of coefficients, (8, 8)."""
    covariance = autocovariance(power)
    variance = float(covariance[0, 0])
    if variance > 0:
        correlation = covariance / variance
    else:
        correlation = np.zeros((LAGS + 1, LAGS + 1))
        correlation[0, 0] = 1.0
    return NoiseSpectrum(
        white,
        *ratios,
        error,
        tuple(map(tuple, power.tolist())),
        tuple(map(tuple, correlation.tolist())),
        math.sqrt(float(power.mean())),
        number,
    )


def with_covariance(spectrum: NoiseSpectrum, covariance: np.ndarray) -> NoiseSpectrum:
    """Return the spectrum with sigma and autocorrelation of noise that reaches far, (5, 5)."""
    variance = float(covariance[0, 0])
    table = tuple(map(tuple, (covariance / variance).tolist()))
    return replace(spectrum, autocorrelation=table, sigma=math.sqrt(variance), any_range=True)


def spectrum_of_covariance(covariance: np.ndarray, number: int) -> NoiseSpectrum:
    """Return the spectrum of correlated noise with this autocovariance, from `number` patches."""
    power = np.maximum(power_of_lags(*covariance.shape) @ covariance.ravel(), 0.0)
    power = power.reshape(PATCH, PATCH)
    ratios, _ = _ratios(power, math.inf)
    return with_covariance(_spectrum(False, ratios, 0.0, power, number), covariance)


def _without_texture(powers: PatchPower, shared: CorrelationFit | None) -> np.ndarray:
    """Return the power of the noise, where it can be told from texture, else of both."""
    return _with_mean(shared.power if shared is not None and shared.trusted else powers.smoothest)


def _with_mean(power: np.ndarray) -> np.ndarray:
    """Return a power with that of the first coefficient, which is not known."""
    power = power.copy()
    power[0, 0] = max(power[0, 1], power[1, 0])
    return power


def _ratios(power: np.ndarray, independent: float) -> tuple[tuple[float, ...], float]:
    """Return the power at middle, across and down over that at the highest, and the error."""
    error = math.sqrt(2 / independent * (1 / FEWEST + 1 / np.count_nonzero(HIGHEST_BAND)))
    base = float(power[HIGHEST_BAND].mean())
    # Rounding errors of an image without noise do not count as a spectrum.
    if base <= 1e-20 * float(power.max()) or base == 0:
        flat = float(power.max()) == 0
        return ((1.0,) * 3 if flat else (math.inf,) * 3), error
    return tuple(float(power[each].mean()) / base for each in BANDS), error


def _is_white(
    ratios: tuple[float, ...], least: tuple[float, ...], error: float, shared: CorrelationFit | None
) -> bool:
    """Decide from the ratios, those with texture subtracted, and the fit."""
    if shared is not None and shared.is_correlated:
        return False
    slack = math.exp(RATIO_SIGNIFICANT * error)
    # Where noise grows with brightness, what is taken away as texture holds noise too.
    least = tuple(map(min, ratios, least))
    far = (
        least[0] > max(FAR_MIDDLE, MIDDLE * slack)
        or max(least[1:]) > max(FAR_EDGE, EDGE * slack)
        or min(ratios) < 1 / (EDGE * slack)
    )
    return not far
