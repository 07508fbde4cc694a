"""The spectrum of noise, and whether it is white.

Every coefficient of the 8 x 8 cosine transform is read in the smoothest patches. Those that are
weak in what they are ranked by are weak there by chance too, so the coefficients are dealt into two
halves: the patches ranked by one half are read at the other. Texture is left mostly at the middle
frequencies, which therefore are allowed more before noise is called correlated.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.noise.patch_spectra import PatchSpectra, read_spectra, sample_planes
from napari_gpu_denoise.noise.strata import CLIPPED
from napari_gpu_denoise.noise.white import PATCH, cosine_transform, frequency_order

LAGS = 4  # largest displacement of the autocorrelation, in pixels
SHARE = 0.01  # of the patches are read
INDEPENDENT = 16  # patches, less their overlap, read at least
MIDDLE = 2.2  # power of the middle frequencies over that of the highest, at most, if white
EDGE = 1.5  # the same of frequencies that are high along one axis only
SIGNIFICANT = 2.0  # standard errors by which a ratio must be beyond that


@dataclass(frozen=True)
class NoiseSpectrum:
    """Power spectrum of noise, its autocorrelation, and the verdict.

    Parameters
    ----------
    white : bool
        False where a ratio is beyond its bounds by two standard errors.
    middle, across, down : float
        Power over that of the frequencies from 4 on along both axes: of the middle ones (2 and 3),
        of those from 4 on along x alone, and along y alone. 1 for white noise.
    ratio_error : float
        Relative standard error of these ratios.
    power : tuple of tuple of float, (8, 8)
        Variance of each coefficient of the orthonormal cosine transform, in grey levels squared,
        frequency along y first. The first coefficient cannot be told from the picture; it holds
        the larger one of its two neighbours.
    autocorrelation : tuple of tuple of float, (5, 5)
        For displacements of 0 to 4 pixels along y and x; 1 at no displacement.
    sigma : float
        Standard deviation of the noise with all of its frequencies, in grey levels.
    patches : int
        How many patches it was read from.
    """

    white: bool
    middle: float
    across: float
    down: float
    ratio_error: float
    power: tuple[tuple[float, ...], ...]
    autocorrelation: tuple[tuple[float, ...], ...]
    sigma: float
    patches: int

    def summary(self) -> str:
        """Return the verdict as one line."""
        verdict = "white" if self.white else "correlated"
        x, y = self.autocorrelation[0][1], self.autocorrelation[1][0]
        return f"noise is {verdict} (neighbours correlate {x:.2f} along x, {y:.2f} along y)"

    def model(self) -> Correlated:
        """Return the model of this noise that `BM3D` filters by.

        Returns
        -------
        Correlated
            Its variance is that of the autocovariance fitted to all of `power`, not `sigma`
            squared: slopes of the picture, which the lowest frequencies may hold, raise it less.
        """
        variance = float(_covariance(np.array(self.power))[0, 0])
        # Where hardly anything was measured a fit may be no covariance.
        table = np.clip(self.autocorrelation, -1.0, 1.0)
        return Correlated(math.sqrt(variance) if variance > 0 else self.sigma, table)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain numbers and containers, ready for JSON."""
        return asdict(self)


def noise_spectrum(image: Any) -> NoiseSpectrum:
    """Measure the power spectrum of the noise, and tell whether it is white.

    Parameters
    ----------
    image : array, (y, x) or (..., y, x), any real dtype, y and x at least 8
        Anything with ``shape``, ``dtype`` and NumPy indexing; at most 8 planes are read. Not
        modified.

    Returns
    -------
    NoiseSpectrum
        A constant image gives a power of 0, and is white.

    Raises
    ------
    ImageError
        If there are no pixels, no plane, or too few pixels along an axis.
    NonFiniteError
        If NaN or infinity leave no patch of 8 x 8 pixels.

    Notes
    -----
    The test: noise is called correlated where the power at the middle frequencies is above 2.2
    times that at the highest ones, or below 1 / 1.5 of it, or where that of frequencies high along
    one axis alone is above 1.5 times it, or below 1 / 1.5; each by two standard errors. White noise
    has ratios of 1, and Gaussian noise blurred to a correlation of 0.26 between neighbours has 3.5
    and 2. Weaker correlations pass as white, and no single image can tell them from texture.

    The power at the two lowest frequencies may hold slopes of the picture. About 40 000 patches are
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
    """Return the spectrum of the noise of patches of 8 x 8 pixels; see `noise_spectrum`.

    Raises
    ------
    ImageError
        If the patches are smaller.
    """
    if spectra.low.shape[1] + spectra.high.shape[1] + 1 != PATCH**2:
        raise ImageError(
            "NaN or infinite pixels leave no patch of 8 x 8 pixels; replace those pixels first."
        )
    members = np.flatnonzero(spectra.clipped <= CLIPPED)
    if not len(members):
        members = np.arange(len(spectra.mean))
    number = int(max(SHARE * len(members), INDEPENDENT * spectra.overlap))
    number = min(number, len(members))
    power = _smooth_power(spectra, members, number)
    power[0, 0] = max(power[0, 1], power[1, 0])
    ratios, error = _ratios(power, number / spectra.overlap)
    covariance = _covariance(power)
    variance = float(covariance[0, 0])
    if variance > 0:
        correlation = covariance / variance
    else:
        correlation = np.zeros((LAGS + 1, LAGS + 1))
        correlation[0, 0] = 1.0
    return NoiseSpectrum(
        _is_white(ratios, error),
        *ratios,
        error,
        tuple(map(tuple, power.tolist())),
        tuple(map(tuple, correlation.tolist())),
        math.sqrt(float(power.mean())),
        number,
    )


def _smooth_power(spectra: PatchSpectra, members: np.ndarray, number: int) -> np.ndarray:
    """Return the mean square of each coefficient in the smoothest patches, (8, 8), mean 0."""
    y, x = np.divmod(np.arange(PATCH**2), PATCH)
    places = np.concatenate(frequency_order((PATCH, PATCH)))
    coefficients = np.concatenate([spectra.low, spectra.high], axis=1)[members]
    # Both halves hold frequencies along y, along x, and across.
    half = np.where(x > y, x % 2 == 1, y % 2 == 0)[places]
    power = np.zeros(PATCH**2)
    for read in (half, ~half):
        rank = np.square(coefficients[:, ~read]).sum(axis=1)
        smooth = np.argsort(rank, kind="stable")[:number]
        power[places[read]] = np.square(coefficients[smooth][:, read]).mean(axis=0)
    return power.reshape(PATCH, PATCH)


def _ratios(power: np.ndarray, independent: float) -> tuple[tuple[float, ...], float]:
    """Return the power of the middle, across and down over that of the highest, and the error."""
    y, x = np.indices(power.shape)
    upper = PATCH // 2
    highest = (y >= upper) & (x >= upper)
    middle = (np.maximum(y, x) >= upper // 2) & (np.maximum(y, x) < upper)
    across, down = (x >= upper) & (y < upper), (y >= upper) & (x < upper)
    count = min(int(np.count_nonzero(each)) for each in (highest, middle, across, down))
    error = math.sqrt(2 / independent * (1 / count + 1 / np.count_nonzero(highest)))
    base = float(power[highest].mean())
    # Rounding errors of a picture without noise are no spectrum.
    if base <= 1e-20 * float(power.max()) or base == 0:
        flat = float(power.max()) == 0
        return ((1.0,) * 3 if flat else (math.inf,) * 3), error
    return tuple(float(power[each].mean()) / base for each in (middle, across, down)), error


def _is_white(ratios: tuple[float, ...], error: float) -> bool:
    slack = math.exp(SIGNIFICANT * error)
    return all(
        1 / (EDGE * slack) <= ratio <= limit * slack
        for ratio, limit in zip(ratios, (MIDDLE, EDGE, EDGE), strict=True)
    )


def _covariance(power: np.ndarray) -> np.ndarray:
    """Return the autocovariance that has this power, for displacements of 0 to 4 pixels.

    Stationary noise with autocovariance c has, in coefficient k of an axis, the variance
    sum over d of c(d) a(k, d): a is 1 for d = 0, else twice the correlation of row k of the
    transform with itself shifted by d. Along two axes the sums factor, for noise that is the same
    seen in a mirror. Solved by least squares of relative errors.
    """
    transform = cosine_transform(PATCH)
    shifted = [
        (transform[:, d:] * transform[:, : PATCH - d]).sum(axis=1) * (2 if d else 1)
        for d in range(LAGS + 1)
    ]
    design = np.kron(np.array(shifted).T, np.array(shifted).T)
    values = power.ravel()
    if not values[1:].any():
        return np.zeros((LAGS + 1, LAGS + 1))
    weight = 1 / np.maximum(values, 1e-3 * values.max())
    weight[0] = 0  # not measured
    found, *_ = np.linalg.lstsq(design * weight[:, None], values * weight, rcond=None)
    return found.reshape(LAGS + 1, LAGS + 1)
