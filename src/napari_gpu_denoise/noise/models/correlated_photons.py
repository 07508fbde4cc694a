"""Photon noise and read noise that is correlated between neighbouring pixels."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from napari_gpu_denoise.noise.models.base import Fit, NoiseModel
from napari_gpu_denoise.noise.models.correlated import Correlated
from napari_gpu_denoise.noise.models.parameters import LINE, SHARE, TABLE, parameter
from napari_gpu_denoise.noise.models.poisson_gaussian import PoissonGaussian

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.channel import ChannelNoise


@dataclass(frozen=True)
class CorrelatedPhotons(PoissonGaussian, NoiseModel):
    """Photon noise and read noise, correlated between neighbouring pixels.

    As in images that a camera or software has interpolated, registered or filtered.

    Parameters
    ----------
    gain, read_noise, offset : float
        As in `PoissonGaussian`: variance of a pixel = gain (mean - offset) + read_noise².
    autocorrelation : sequence, (5, 5)
        As in `Correlated`; the same at every brightness.
    shared, along_z : optional
        As in `Correlated`.

    Notes
    -----
    Noise is stabilised as that of `PoissonGaussian`. `BM3D`, `VBM3D` and `BM4D` then take the
    spectrum into account; other filters treat stabilised noise as white noise that is strong enough
    to cover it.
    """

    _: KW_ONLY
    autocorrelation: tuple[tuple[float, ...], ...] = parameter(TABLE)
    shared: float = parameter(SHARE, "shared between colours", default=0.0, optional=True)
    along_z: tuple[float, ...] = parameter(LINE, default=(1.0,))
    name: ClassVar[str] = "correlated-photons"
    title: ClassVar[str] = "Correlated Poisson-Gaussian"
    description: ClassVar[str] = "Photon noise that is correlated between neighbouring pixels."
    models_correlation: ClassVar[bool] = True
    refines: ClassVar[type[NoiseModel]] = PoissonGaussian

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "along_z", self.spectral.along_z)

    @property
    def spectral(self) -> Correlated:
        """The noise after stabilisation."""
        return Correlated(1.0, self.autocorrelation, self.shared, self.along_z)

    @classmethod
    def evidence(cls, channel: ChannelNoise) -> str | None:
        # Frames only pass as still if their differences are white.
        return None if channel.temporal is not None else Correlated.evidence(channel)

    @classmethod
    def fit(cls, channel: ChannelNoise) -> Fit:
        """Read how noise grows with brightness at the high frequencies, its strength at all."""
        from napari_gpu_denoise.noise.correlation.spectrum import noise_spectrum

        photons = PoissonGaussian.fit(channel)
        model, planes = photons.model, channel.planes
        stable = np.stack([model.stabilise(plane) for plane in planes])
        spectrum = noise_spectrum(stable)
        if channel.frames is not None:
            spectrum = channel.frames.changed(model.stabilise).spectrum(spectrum) or spectrum
        found = Correlated.of_spectrum(spectrum)
        # Noise has this standard deviation after stabilisation, where it should have 1.
        factor = found.sigma
        fitted = cls(
            model.gain * factor**2,
            model.read_noise * factor,
            model.offset,
            autocorrelation=found.autocorrelation,
        )
        errors = dict(photons.errors)
        errors["gain"] *= factor**2
        errors["read_noise"] *= factor
        sigma = math.sqrt(float(fitted.variance(channel.spectra.mean).mean()))
        relative = photons.error / photons.sigma if photons.sigma else math.nan
        curve = photons.curve
        if curve is not None and channel.spectrum is not None:
            curve = channel.spectrum.at_all_frequencies(curve)
        return photons._replace(
            model=fitted,
            curve=curve,
            errors=errors,
            sigma=sigma,
            error=relative * sigma,
            method=f"{photons.method}, and {channel.spectrum_of}",
        )

    @classmethod
    def suggestion(cls, video: bool, volume: bool = False) -> str:
        """Return a filter that takes the spectrum into account."""
        name = "VBM3D" if video else "BM4D" if volume else "BM3D"
        return f"{name} with variance stabilisation and this noise spectrum"

    def summary(self) -> str:
        x, y = self.autocorrelation[0][1], self.autocorrelation[1][0]
        text = super().summary()
        return f"{text}, correlation of neighbours {x:.2f} along x, {y:.2f} along y"
