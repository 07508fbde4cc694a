"""The parameters of a model of noise, measured on planes of an image."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from napari_gpu_denoise.noise.autocovariance import LAGS
from napari_gpu_denoise.noise.models import (
    Correlated,
    Gaussian,
    NoiseModel,
    PoissonGaussian,
    Rician,
    Speckle,
)
from napari_gpu_denoise.noise.patch_spectra import PatchSpectra
from napari_gpu_denoise.noise.photon import single_image_noise
from napari_gpu_denoise.noise.photon_curve import PhotonNoise, VarianceCurve
from napari_gpu_denoise.noise.piesno import piesno_of_any
from napari_gpu_denoise.noise.pooling import pooled_variance
from napari_gpu_denoise.noise.rician import rician_noise
from napari_gpu_denoise.noise.sampling import PlaneStack
from napari_gpu_denoise.noise.sigma_estimate import MIXED_METHOD, uneven_note
from napari_gpu_denoise.noise.speckle import speckle_noise
from napari_gpu_denoise.noise.spectrum import NoiseSpectrum
from napari_gpu_denoise.noise.strata import CLIPPED
from napari_gpu_denoise.noise.variance_laws import VarianceLaws
from napari_gpu_denoise.noise.white import METHOD

LEAST = 1e-6  # of the noise of a model that a channel without noise is given, relative
NO_LOOKS = 1e9  # looks of an image without speckle


@dataclass(frozen=True)
class ChannelNoise:
    """What was read of one channel, before a model is chosen.

    `sigma`, `error` and `ends` are what `planes_sigma` returns; `temporal` is the noise of frames
    that stand still, None without such frames; `repeats` are the planes of one slice measured many
    times, None where there are not.
    """

    planes: PlaneStack
    sigma: float
    error: float
    ends: tuple[float, float] | None
    spectra: PatchSpectra | None
    spectrum: NoiseSpectrum | None
    laws: VarianceLaws | None
    temporal: PhotonNoise | None
    repeats: PlaneStack | None
    clipped: tuple[float, float]


@dataclass(frozen=True)
class Fit:
    """A model of one channel with its standard errors, its sigma and how that was measured."""

    model: NoiseModel
    errors: dict[str, float]
    sigma: float
    error: float
    method: str
    curve: VarianceCurve | None = None
    notes: tuple[str, ...] = field(default=())


def fit_model(name: str, channel: ChannelNoise) -> Fit:
    """Return the model of this name that fits a channel."""
    return _FITS[name](channel)


def _gaussian(channel: ChannelNoise) -> Fit:
    curve = channel.laws.curve if channel.laws else None
    method, notes = METHOD, ()
    if channel.ends is not None:
        method, notes = MIXED_METHOD, (uneven_note("", *channel.ends),)
    model = Gaussian(channel.sigma)
    return Fit(model, {"sigma": channel.error}, channel.sigma, channel.error, method, curve, notes)


def _correlated(channel: ChannelNoise) -> Fit:
    spectrum = channel.spectrum
    if spectrum is None or not spectrum.sigma:
        spectrum = None
    model = _white(channel.sigma) if spectrum is None else spectrum.model()
    curve = channel.laws.curve if channel.laws else None
    error = channel.error
    if spectrum is not None:
        power = np.array(spectrum.power)
        # Few frequencies hold most of the noise, so that it is known from fewer numbers.
        numbers = power.sum() ** 2 / np.square(power).sum()
        independent = max(spectrum.patches / channel.spectra.overlap, 1.0) * numbers
        error = model.sigma * math.sqrt(0.5 / independent)
    sigma = model.sigma
    return Fit(model, {"sigma": error}, sigma, error, "spectrum of the smoothest patches", curve)


def _white(sigma: float) -> Correlated:
    row = (0.0,) * (LAGS + 1)
    return Correlated(sigma, ((1.0, *row[1:]), *(row,) * LAGS))


def _poisson_gaussian(channel: ChannelNoise) -> Fit:
    found = channel.temporal or single_image_noise(channel.planes)
    gain, read, notes = found.gain, found.read_noise, ()
    if not gain > 0:
        notes = ("the noise does not grow with brightness: the gain says nothing",)
        read = channel.sigma
        gain = LEAST * read or LEAST**2
    elif found.intercept < 0:
        notes = (_either(found),)
    # Beyond that many electrons of read noise no photon matters.
    gain = max(gain, 1e-4 * read)
    model = PoissonGaussian(gain, read, found.offset)
    errors = {"gain": found.gain_error, "read_noise": found.read_noise_error, "offset": math.nan}
    sigma, error = _overall(model, channel)
    return Fit(model, errors, sigma, error, found.method, found.curve, notes)


def _either(found: PhotonNoise) -> str:
    """Say what else the line through the variances may mean."""
    darkest = min(found.curve.mean)
    most = math.sqrt(max(found.gain * darkest + found.intercept, 0.0))
    return (
        "without dark frames offset and read noise cannot be told apart: from an offset of "
        f"{found.offset:.4g} without read noise to one of {darkest:.4g} with {most:.3g} fits as "
        "well"
    )


def _rician(channel: ChannelNoise) -> Fit:
    notes: tuple[str, ...] = ()
    if channel.repeats is not None:
        stack = np.stack([channel.repeats[k] for k in range(len(channel.repeats))])
        found, coils = piesno_of_any(stack)
        sigma, error, method = found.sigma, found.error, "PIESNO, repetitions of one slice"
        if coils > 1:
            notes = (f"the noise is that of {coils} coils: this model is right for bright parts",)
    else:
        sigma, error, method = 0.0, 0.0, ""
    if not sigma:
        found = rician_noise(channel.planes)
        sigma, error = found.sigma, found.error
        method = "distribution of the background"
        if found.background is None:
            method = "variance at each level of brightness, corrected for magnitudes"
    sigma = sigma or LEAST * channel.sigma or LEAST
    curve = channel.laws.curve if channel.laws else None
    return Fit(Rician(sigma), {"sigma": error}, sigma, error, method, curve, notes)


def _speckle(channel: ChannelNoise) -> Fit:
    found = speckle_noise(channel.planes)
    looks = found.looks if math.isfinite(found.looks) else NO_LOOKS
    model = Speckle(looks)
    sigma, _ = _overall(model, channel)
    error = sigma * found.error / (2 * looks)
    curve = channel.laws.curve if channel.laws else None
    method = "commonest contrast of windows"
    return Fit(model, {"looks": found.error}, sigma, error, method, curve)


_FITS = {
    "gaussian": _gaussian,
    "correlated": _correlated,
    "poisson-gaussian": _poisson_gaussian,
    "rician": _rician,
    "speckle": _speckle,
}


def _overall(model: NoiseModel, channel: ChannelNoise) -> tuple[float, float]:
    """Return the root of the mean variance over the image, and its standard error."""
    if channel.spectra is None:
        return channel.sigma, channel.error
    sigma, error = spectra_sigma(model, channel.spectra)
    expected = math.sqrt(float(model.variance(channel.spectra.mean).mean()))
    return expected, expected * error / sigma if sigma else channel.error


def spectra_sigma(model: NoiseModel, spectra: PatchSpectra) -> tuple[float, float]:
    """Return what `patches_sigma` does, of patches that are there as spectra."""
    rank, energy = np.square(spectra.low).sum(axis=1), np.square(spectra.high)
    return patches_sigma(model, 1.0, spectra.mean, rank, energy, spectra.clipped, spectra.overlap)


def patches_sigma(
    model: NoiseModel,
    scale: float,
    mean: np.ndarray,
    rank: np.ndarray,
    energy: np.ndarray,
    clipped: np.ndarray,
    overlap: float,
) -> tuple[float, float]:
    """Return sigma of patches whose noise follows a model, but for its strength.

    Parameters
    ----------
    model : NoiseModel
        How the variance goes with brightness.
    scale : float
        Variance of all frequencies over that of the high ones; 1 for white noise.
    mean, rank, clipped : ndarray, (patch,)
        Brightness, what orders patches from smooth to textured, and the share of clipped pixels.
    energy : ndarray, (patch, frequency)
        Squared coefficients of the high frequencies.
    overlap : float
        How many patches share a pixel.

    Returns
    -------
    sigma, error : float
        Root of the mean variance, and its standard error. Of magnitudes the sigma of the model.
    """
    members = np.flatnonzero(clipped <= CLIPPED)
    if not len(members):
        members = np.arange(len(mean))
    constant = isinstance(model, (Gaussian, Correlated))
    line = np.ones_like(mean) if constant else model.variance(mean)
    # Where a model knows no noise, a little keeps the ratio finite.
    line = np.maximum(line, 1e-3 * float(np.median(line)) or 1e-300)
    pooled = pooled_variance(rank / line, energy / line[:, None], overlap, members)
    level = model.sigma**2 if isinstance(model, Rician) else float(line.mean())
    sigma = math.sqrt(pooled.variance * level * scale)
    return sigma, sigma * pooled.error
