"""Gaussian noise, white or correlated between neighbouring pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from napari_gpu_denoise.errors import Note, SettingsError
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.correlation import LAGS, NoiseSpectrum, autocovariance, power_of_lags
from napari_gpu_denoise.noise.models import base
from napari_gpu_denoise.noise.patches.spectra import METHOD

UNCORRELATED = np.pad([[1.0]], ((0, LAGS), (0, LAGS))).tolist()  # autocorrelation of white noise


@dataclass(frozen=True)
class Additive:
    """Mixin for models of additive noise of one `sigma`: there is nothing to stabilise."""

    additive: ClassVar[bool] = True
    sigma: ClassVar[Any]  # no field of its own: some models compute it from theirs

    @property
    def sigma_after(self) -> float:
        return self.sigma

    @classmethod
    def of_sigma(cls: Any, sigma: float) -> Any:
        return cls(sigma)

    def scaled(self, factor: float) -> Self:
        return replace(self, sigma=factor * self.sigma)

    def variance(self, mean: np.typing.ArrayLike) -> np.ndarray:
        return np.zeros_like(mean, np.float64) + self.sigma * self.sigma  # which may be infinite

    def forward(self, levels: np.ndarray) -> np.ndarray:
        return levels

    def backward(self, means: np.ndarray) -> np.ndarray:
        return means


@dataclass(frozen=True)
class Gaussian(Additive, base.NoiseModel):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Additive white Gaussian noise of the same strength everywhere.

    Parameters
    ----------
    sigma : float
        Standard deviation, grey levels; 0 for no noise.
    shared : float, optional
        Mean correlation with the noise of the other colours of an RGB image, -1 to 1, as after a
        colour correction. `BM3D` and `VBM3D` in opponent colours take it into account.
    """

    sigma: float = base.parameter("sigma", "grey levels", low=0)  # pyright: ignore[reportIncompatibleVariableOverride]
    shared: float = base.shared_with_colours()
    name: ClassVar[str] = "gaussian"
    title: ClassVar[str] = "Gaussian"
    description: ClassVar[str] = "One standard deviation for all grey levels."

    @classmethod
    def misfit(cls, channel: base.Evidence) -> base.Misfit:
        """Return that of a constant variance; this is the model to assume in doubt."""
        if channel.log_speckle:
            reason = "it is speckle on a logarithmic scale, as its skewness shows"
            return base.Misfit(-2 * limits.PROOF_WORTH, reason)
        laws = channel.laws
        if laws is None:
            reason = (
                "there are too few levels of brightness without clipped pixels to distinguish "
                "other noise from Gaussian noise"
            )
            return base.Misfit(0.0, reason)
        reason = "the variance does not clearly grow with brightness"
        if channel.grows_over_time is False and laws.is_linear:
            reason = (
                "the variance grows with brightness, but not that of differences between frames"
            )
        elif not laws.tells:
            reason = (
                "there is hardly more than one level of brightness, which does not show whether "
                "noise grows with it"
            )
        return base.Misfit(laws.constant, reason)

    @classmethod
    def fit(cls, channel: base.Evidence) -> base.Fit:
        """Return the sigma that filters measure where none is given."""
        method, notes = METHOD, ()
        sigma, error = channel.sigma, channel.error
        laws = channel.laws
        if (
            sigma
            and laws is not None
            and laws.proven
            and laws.grows
            and laws.growth >= limits.MIN_FACTOR_SAID
        ):
            _, variance = laws.curve.fitted
            dark, bright = np.sqrt(variance[[0, -1]])
            fact = (
                f"the noise grows with brightness, from {dark:.3g} in the dark to {bright:.3g} in "
                "the bright parts: one sigma is a compromise; a noise model works better"
            )
            notes = (Note(fact, "noise='auto'", code="uneven"),)
            method, relative = "mean variance over the levels of brightness", error / sigma
            sigma = math.sqrt(np.average(laws.curve.variance, weights=laws.curve.count))
            error = sigma * relative
        return base.Fit(cls(sigma), {"sigma": error}, sigma, error, method, channel.curve, notes)

    def summary(self) -> str:
        return f"Gaussian noise, sigma {self.sigma:.4g}"


@dataclass(frozen=True)
class Correlated(Additive, base.NoiseModel):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Additive Gaussian noise that is correlated between neighbouring pixels.

    Parameters
    ----------
    sigma : float
        Standard deviation of a pixel, grey levels; 0 for no noise.
    autocorrelation : sequence, (5, 5)
        For displacements of 0 to 4 pixels along y and x: 1 at no displacement, between -1 and 1 at
        others. It is symmetric in both directions, and 0 at larger displacements.
    shared : float, optional
        As of `Gaussian`; typical of image files from a camera.
    along_z : sequence of up to 5, optional
        Correlation of slices 0, 1, ... apart, 0 further apart, such as ``(1, 0.4)``. By default
        slices are independent; it is not measured by any estimate. The autocorrelation of a volume
        is its product with that of a plane. `BM4D` takes it into account.

    Notes
    -----
    `BM3D`, `VBM3D` and `BM4D` take the spectrum into account; other filters treat the noise as
    white noise of a larger sigma, `white_sigma`.
    """

    sigma: float = base.parameter("sigma", "grey levels", low=0, squared=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    autocorrelation: tuple[tuple[float, ...], ...] = base.parameter(axes=2, low=-1, high=1)
    shared: float = base.shared_with_colours()
    along_z: tuple[float, ...] = base.parameter(axes=1, low=-1, high=1, default=(1.0,))
    name: ClassVar[str] = "correlated"
    title: ClassVar[str] = "Correlated Gaussian"
    description: ClassVar[str] = (
        "Noise that is correlated between neighbouring pixels, as after interpolation."
    )
    models_correlation: ClassVar[bool] = True
    white_form: ClassVar[type[base.NoiseModel]] = Gaussian

    def __post_init__(self) -> None:
        super().__post_init__()
        table, line = np.array(self.autocorrelation), np.array(self.along_z)
        if table.shape != (LAGS + 1, LAGS + 1) or table[0, 0] != 1:
            raise SettingsError(
                f"An autocorrelation of shape {table.shape} with {table.flat[0]:.4g} at no "
                f"displacement is not valid: give {LAGS + 1} x {LAGS + 1} values, the first one 1."
            )
        if len(line) > LAGS + 1 or line[0] != 1:
            raise SettingsError(
                f"along_z={self.along_z} is not valid: give up to {LAGS + 1} values, the first 1."
            )
        object.__setattr__(self, "along_z", (*self.along_z, *(0.0,) * (LAGS + 1 - len(line))))

    @classmethod
    def of_spectrum(cls, spectrum: NoiseSpectrum) -> Self:
        """Return the model of a measured spectrum, as `BM3D` uses it.

        Its variance is that of the autocovariance fitted to all of ``spectrum.power``, not
        ``spectrum.sigma`` squared: slopes of the image, which the lowest frequencies may hold,
        raise it less. Where the noise alone was measured, and reaches far, it is that.
        """
        # Where hardly anything was measured a fit may not be a valid covariance.
        table = np.clip(spectrum.autocorrelation, -1.0, 1.0).tolist()
        if spectrum.any_range:
            return cls(spectrum.sigma, table)
        variance = float(autocovariance(np.array(spectrum.power))[0, 0])
        return cls(math.sqrt(variance) if variance > 0 else spectrum.sigma, table)

    @property
    def white_sigma(self) -> float:
        """Sigma for filters that assume white noise: above `sigma`, so that blotches are removed.

        It is halfway, on a logarithmic scale, from sigma to the root of the largest power at any
        frequency of a patch, where white noise of this power would leave nothing.
        """
        power = power_of_lags(LAGS + 1, LAGS + 1) @ np.ravel(self.autocorrelation)
        return self.sigma * max(float(power[1:].max()), 1.0) ** 0.25

    @property
    def white(self) -> bool:
        """Whether the noise of different pixels of a plane is independent after all."""
        return not any(map(any, self.autocorrelation[1:])) and not any(self.autocorrelation[0][1:])

    @classmethod
    def misfit(cls, channel: base.Evidence) -> base.Misfit:
        return Gaussian.misfit(channel)

    @classmethod
    def fit(cls, channel: base.Evidence) -> base.Fit:
        """Read sigma and autocorrelation from the spectrum of the noise."""
        spectrum, error = channel.spectrum, channel.error
        if spectrum is None or channel.spectra is None or not spectrum.sigma:
            model = cls(channel.sigma, UNCORRELATED)
        else:
            model = cls.of_spectrum(spectrum)
            power = np.array(spectrum.power)
            # Few frequencies hold most of the noise, so that it is known from fewer numbers.
            count = power.sum() ** 2 / np.square(power).sum()
            independent = max(spectrum.patches / channel.spectra.overlap, 1.0) * count
            # Texture of single planes adds 6 %, as noise_estimates.py of tests/benchmarks shows.
            texture = 0.0 if channel.frames is not None else 0.06
            error = model.sigma * math.hypot(math.sqrt(0.5 / independent), texture)
        curve = channel.at_all_frequencies(channel.curve)
        return base.Fit(model, {"sigma": error}, model.sigma, error, channel.spectrum_of, curve)

    def summary(self) -> str:
        x, y = self.autocorrelation[0][1], self.autocorrelation[1][0]
        return (
            f"correlated noise, sigma {self.sigma:.4g}, correlation of neighbours {x:.2f} along x, "
            f"{y:.2f} along y"
        )
