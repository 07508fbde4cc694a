"""The spectrum of noise, and whether it is white.

Every coefficient of the 8 x 8 cosine transform is read in the smoothest patches. Patches that are
ranked by some coefficients are weak there by chance too, so the coefficients are split into two
halves: patches are ranked by one half and read at the other. The texture that is left there is
separated from correlated noise by its shape (`fit_correlation`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.noise.correlation.fit import (
    LAGS,
    MIDDLE_BAND,
    CorrelationFit,
    PatchPower,
    autocovariance,
    fit_correlation,
    without_steep_texture,
)
from napari_gpu_denoise.noise.correlation.smooth import (
    are_exceptions,
    powers_by_brightness,
    smooth_powers,
)
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patches.variance import VarianceCurve, unclipped
from napari_gpu_denoise.noise.patches.white import PATCH, frequency_order
from napari_gpu_denoise.noise.sampling import sample_planes

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
SIGNIFICANT = 2.0  # standard errors by which a ratio must be beyond that


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

    def summary(self) -> str:
        """Return as one line whether noise is white, and how neighbours correlate."""
        verdict = "white" if self.white else "correlated"
        x, y = self.autocorrelation[0][1], self.autocorrelation[1][0]
        return f"noise is {verdict} (correlation of neighbours {x:.2f} along x, {y:.2f} along y)"

    def at_all_frequencies(self, curve: VarianceCurve) -> VarianceCurve:
        """Return a curve, read at the high frequencies, with the variance of whole pixels."""
        power = np.array(self.power)
        _, high = frequency_order(power.shape)
        rest = float(power.ravel()[high].mean())
        share = 1.0 if self.white or rest <= 0 else float(power.mean()) / rest
        return replace(curve, variance=tuple(share * each for each in curve.variance))

    @property
    def doubtful(self) -> bool:
        """Whether noise is called white though the ratios exceed those of white noise."""
        slack = math.exp(SIGNIFICANT * self.ratio_error)
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
    """Return the noise spectrum of patches; ImageError if they are not 8 x 8 pixels."""
    return spectrum_later(spectra)()


def spectrum_later(spectra: PatchSpectra) -> Callable[[], NoiseSpectrum]:
    """Return a function that returns the noise spectrum of patches, as `spectrum_of_patches`.

    What it needs is read together with what is read next of the patches.
    """
    if not spectra.whole:
        raise ImageError("No patch of 8 x 8 finite pixels is left; replace NaN and infinity first.")
    members = unclipped(spectra.clipped)
    few = min(INDEPENDENT * spectra.overlap, MOST * len(members))
    number = math.ceil(max(SHARE * len(members), few))
    return partial(_spectrum_of, smooth_powers(spectra, members, number), spectra, members, number)


def _spectrum_of(
    smooth: Callable[[], PatchPower], spectra: PatchSpectra, members: np.ndarray, number: int
) -> NoiseSpectrum:
    """Return the noise spectrum of the `members` of patches, given powers of the smoothest."""
    powers = smooth()
    power = powers.smoothest
    ratios, error = _ratios(power, powers.independent)
    least, _ = _ratios(without_steep_texture(powers), powers.independent)
    shared = fit_correlation(powers)
    white = _is_white(ratios, least, error, shared)
    power = _without_texture(powers, shared)
    if not white and are_exceptions(spectra, members, power):
        even = powers_by_brightness(spectra, members)
        if even is not None:
            power = _without_texture(even, fit_correlation(even))
    return _spectrum(white, ratios, error, power, number)


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


def _without_texture(powers: PatchPower, shared: CorrelationFit | None) -> np.ndarray:
    """Return the power of the noise, where it can be told from texture, else of both."""
    power = (shared.power if shared is not None and shared.trusted else powers.smoothest).copy()
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
    slack = math.exp(SIGNIFICANT * error)
    # Where noise grows with brightness, what is taken away as texture holds noise too.
    least = tuple(map(min, ratios, least))
    far = (
        least[0] > max(FAR_MIDDLE, MIDDLE * slack)
        or max(least[1:]) > max(FAR_EDGE, EDGE * slack)
        or min(ratios) < 1 / (EDGE * slack)
    )
    return not far
