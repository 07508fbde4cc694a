"""The spectrum of noise, and whether it is white.

Every coefficient of the 8 x 8 cosine transform is read in the smoothest patches. Patches that are
ranked by some coefficients are weak there by chance too, so the coefficients are split into two
halves: patches are ranked by one half and read at the other. The texture that is left there is
separated from correlated noise by its shape (`fit_correlation`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np

from napari_gpu_denoise.noise import limits
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
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, spectra_of
from napari_gpu_denoise.noise.patches.variance import brightness_levels, unclipped

LAGS = 4  # largest displacement of the autocovariance, in pixels
HALVES = "rest", "half"  # of the frequencies: those that rank where the others are read


@dataclass(frozen=True)
class NoiseSpectrum:
    """Power spectrum of noise, its autocorrelation, and whether it is white.

    `power` (8, 8) is the variance of each coefficient of the orthonormal cosine transform, in grey
    levels squared, frequency along y first, without texture where that can be separated. The first
    coefficient cannot be separated from the image; it holds the larger of its two neighbours.
    """

    white: bool  # False where noise of neighbouring pixels is clearly correlated
    power: tuple[tuple[float, ...], ...]
    autocorrelation: tuple[tuple[float, ...], ...]  # (5, 5), for displacements along y and x
    sigma: float  # standard deviation of the noise at all frequencies, in grey levels
    patches: int  # how many patches were read
    doubtful: bool = False  # whether noise is called white, and its power is not the same at all
    any_range: bool = False  # whether sigma and autocorrelation are those of noise of any range
    log_speckle: bool = False  # whether it is that of speckle on a logarithmic scale

    @classmethod
    def of_power(cls, power: np.ndarray, patches: int, white: bool = False) -> Self:
        """Return the spectrum with this power, (8, 8), but for the mean, read from patches."""
        power = power.copy()
        power[0, 0] = max(power[0, 1], power[1, 0])
        covariance = autocovariance(power)
        if not covariance[0, 0] > 0:
            covariance = np.zeros((LAGS + 1, LAGS + 1))
            covariance[0, 0] = 1.0
        correlation = covariance / covariance[0, 0]
        sigma = math.sqrt(float(power.mean()))
        return cls(white, _table(power), _table(correlation), sigma, patches)

    @classmethod
    def of_covariance(cls, covariance: np.ndarray, patches: int) -> Self:
        """Return the spectrum of correlated noise with this autocovariance, (5, 5)."""
        power = np.maximum(power_of_lags(*covariance.shape) @ covariance.ravel(), 0.0)
        return cls.of_power(power.reshape(PATCH, PATCH), patches).with_covariance(covariance)

    def with_covariance(self, covariance: np.ndarray) -> Self:
        """Return the same with sigma and autocorrelation of noise that reaches far, (5, 5)."""
        variance = float(covariance[0, 0])
        table = _table(covariance / variance)
        return replace(self, autocorrelation=table, sigma=math.sqrt(variance), any_range=True)

    def summary(self) -> str:
        """Return as one line whether noise is white, and how neighbours correlate."""
        verdict = "white" if self.white else "correlated"
        x, y = self.autocorrelation[0][1], self.autocorrelation[1][0]
        return f"noise is {verdict} (correlation of neighbours {x:.2f} along x, {y:.2f} along y)"


def _table(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, values.tolist()))


def noise_spectrum(image: Any) -> NoiseSpectrum:
    """Measure the power spectrum of the noise, and decide whether it is white.

    `image` is (y, x) or (..., y, x), of any real dtype, with ``shape``, ``dtype`` and NumPy
    indexing; at most 8 planes are read. ImageError if y or x is below 8, NonFiniteError if NaN or
    infinity leave no patch of 8 x 8 pixels. A constant image gives a power of 0, and is white.

    The power of the smoothest patches is fitted by correlated noise and by the texture of rougher
    patches. Noise is called correlated where neighbours then correlate by more than 0.1 or less
    than -0.1, and by three standard errors; also where the middle frequencies have more than 5
    times the power of the highest, or those high along one axis alone more than 2.5 times, or
    either less than 1 / 1.5. A single image does not prove it: fine texture may look the same.

    The power at the lowest frequencies may hold slopes of the image. About 40 000 patches are
    looked at, and the smoothest 1 % read; patches with clipped pixels are left out.
    """
    return spectrum_of_patches(spectra_of(image))


def spectrum_of_patches(spectra: PatchSpectra) -> NoiseSpectrum:
    """Return the noise spectrum of the smoothest 1 % of patches, 16 without a common pixel."""
    members = unclipped(spectra.clipped)
    few = min(16 * spectra.overlap, len(members) / 16)  # more of few patches hold texture
    number = math.ceil(max(0.01 * len(members), few))
    # Those with 4 to 32 % of all before them show the texture.
    smoothest, rougher = patch_powers(spectra, members, number, (0.04, 0.32))
    fit = fit_correlation(smoothest, rougher, number / spectra.overlap)
    far, near = _beyond_white(fit.power, number / spectra.overlap)
    spectrum = NoiseSpectrum.of_power(fit.power, number, not (fit.is_correlated or far))
    return replace(spectrum, doubtful=spectrum.white and near)


# The smoothest patches of a picture hold its noise and a little texture. Rougher ones hold the same
# noise and more texture, so the difference is the spectrum of texture, whatever that of the noise
# is. The power of the smoothest patches is fitted by a multiple of it and correlated noise:
#
#     power = c(0,0) d(0,0) + c(0,1) d(0,1) + c(1,0) d(1,0) + c(1,1) d(1,1) + a texture,    a >= 0
#
# with c the autocovariance of the noise and d the power of each of its lags. The two have different
# shapes: texture falls steeply from the lowest frequencies on and leaves white noise flat at the
# highest ones, while correlated noise is flat at the lowest and falls to the very last.


class CorrelationFit(NamedTuple):
    """Correlated noise: correlation of neighbouring pixels, and power without texture."""

    along_y: float  # correlation of neighbours, 0 where the fit does not describe the power
    along_x: float
    error: float  # the larger standard error of the two
    power: np.ndarray  # (8, 8), of the noise without texture, if that could be separated

    @property
    def is_correlated(self) -> bool:
        """Whether neighbours are correlated beyond what chance could cause."""
        largest = max(abs(self.along_y), abs(self.along_x))
        least = limits.MIN_NEIGHBOUR_CORRELATION, limits.MIN_CORRELATION_ERRORS * self.error
        return largest > max(least)


def fit_correlation(power: np.ndarray, rougher: np.ndarray, independent: float) -> CorrelationFit:
    """Separate correlated noise from texture in the power of the smoothest patches, (8, 8).

    `rougher` is that of rougher patches, `independent` the number of the smoothest that share no
    pixels. The mean is not known.
    """
    read = power.ravel()[1:]
    texture = np.maximum(rougher - power, 0)
    weight = 1 / np.maximum(read, 1e-3 * read.max()) if read.any() else np.zeros(len(read))
    columns = [power_of_lags(2, 2), texture.reshape(-1, 1)]
    terms = np.concatenate(columns, axis=1)[1:] * weight[:, None]
    for number in (5, 4):
        found = np.linalg.lstsq(terms[:, :number], read * weight)[0]
        if 0 <= found[-1] <= 1:
            break
    chance = 2 / max(independent, 1.0)
    rest = read * weight - terms[:, :number] @ found
    misfit = float(np.square(rest).sum()) / (len(rest) - number) / chance
    spread = chance * np.diag(np.linalg.pinv(terms.T @ terms))[1:3].max()
    error = math.sqrt(spread) / found[0] if found[0] > 0 else math.inf
    if misfit > limits.MAX_SPECTRUM_MISFIT or error > limits.MAX_CORRELATION_ERROR:
        return CorrelationFit(0.0, 0.0, math.inf, power)
    strength = found[4] if number == 5 else 0.0
    clean = np.maximum(power - strength * texture, 0.05 * power)
    # Texture that reaches the highest frequencies is like correlated noise.
    fine = float(texture[HIGHEST_BAND].mean() / power[HIGHEST_BAND].mean())
    along_y, along_x = (found[[2, 1]] / found[0]).tolist()
    return CorrelationFit(along_y, along_x, math.hypot(error, 0.1 * fine), clean)


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


# Frequencies that are high along both axes, those whose power is compared with theirs: middle ones,
# and those that are high along x alone and along y alone.
_high = np.arange(PATCH) >= PATCH // 2
HIGHEST_BAND = np.logical_and.outer(_high, _high)
BANDS = (
    np.isin(np.maximum(*np.indices((PATCH, PATCH))), (2, 3)),
    *(np.logical_and.outer(*each) for each in ((~_high, _high), (_high, ~_high))),
)


def band_ratios(power: np.ndarray) -> np.ndarray:
    """Return the power of each of `BANDS` over that of the highest; infinite without any."""
    base, largest = float(power[HIGHEST_BAND].mean()), float(power.max())
    # Rounding errors of an image without noise do not count as a spectrum.
    if base <= 1e-20 * largest:
        return np.full(len(BANDS), math.inf if largest else 1.0)
    return np.array([float(power[each].mean()) / base for each in BANDS])


def _beyond_white(power: np.ndarray, independent: float) -> tuple[bool, bool]:
    """Return whether no white noise has such ratios of power, and whether hardly any has."""
    ratios, size = band_ratios(power), min(map(np.count_nonzero, (HIGHEST_BAND, *BANDS)))
    slack = math.exp(2 * math.sqrt(4 / independent / size))  # two standard errors of a logarithm
    most = np.array([limits.MAX_MIDDLE_RATIO, *[limits.MAX_EDGE_RATIO] * 2])
    near = np.sqrt(most) * slack
    low = bool((ratios * slack < limits.MIN_BAND_RATIO).any())
    return low or bool((ratios > np.maximum(most, near)).any()), bool((ratios > near).any())


def noise_share(spectra: PatchSpectra) -> float:
    """Return the share of an image, 0 to 1, that shows noise and not only texture.

    Each level of brightness counts by the number of its patches, and by how little rougher ones
    differ from the smoothest: texture does, noise does not.
    """
    members, share = unclipped(spectra.clipped), 0.0
    for part in brightness_levels(spectra.mean[members], most=8).each():
        # The smoothest 5 % of a level, and those after 15 to 30 %.
        powers = patch_powers(spectra, members[part], math.ceil(0.05 * len(part)), (0.15, 0.3))
        total, rougher = (float(each.sum()) for each in powers)
        if total > 0:
            growth = max(rougher / total - 1, 0.0)
            share += len(part) / len(members) / (1 + (growth / limits.MAX_TEXTURE_GROWTH) ** 4)
    return share


def patch_powers(
    spectra: PatchSpectra, members: np.ndarray, number: int, rougher: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the power of the `number` smoothest patches and of rougher ones, (8, 8) each.

    The rougher ones are given by the shares of all that are smoother, from and to.
    """
    places = coefficient_order()
    half = frequency_sets()[SETS.index("half")]
    start = min(max(round(rougher[0] * len(members)), number), len(members) - 1)
    stop = max(round(rougher[1] * len(members)), start + 1)
    starts, stops = np.array([0, start]), np.array([number, stop])
    # Ranked by one half, read at the other; of those that are equal, as edges by rows, the one with
    # less energy in all comes first.
    energies = [spectra.energy_of(name) for name in HALVES]
    both = 1e-6 * (energies[0] + energies[1])
    if len(members) == len(both):  # in their own order
        orders = [ranked(each + both)[: stops.max()] for each in energies]
    else:
        orders = [members[ranked((each + both)[members])[: stops.max()]] for each in energies]
    starts, stops = (np.concatenate([each, len(orders[0]) + each]) for each in (starts, stops))
    sums = span_sums(Squares(spectra.coefficients), np.concatenate(orders), starts, stops)
    sums /= (stops - starts)[:, None]
    found = np.zeros((2, PATCH**2))
    for which, each in zip((half, ~half), np.split(sums, 2), strict=True):
        found[:, places[which]] = each[:, which]
    return found[0].reshape(PATCH, PATCH), found[1].reshape(PATCH, PATCH)
