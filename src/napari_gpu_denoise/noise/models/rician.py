"""Rician noise of magnitude images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from napari_gpu_denoise.noise.models import magnitude_curves
from napari_gpu_denoise.noise.models.base import Fit, NoiseModel, Transform, numbers
from napari_gpu_denoise.noise.models.curves import pointwise
from napari_gpu_denoise.noise.models.parameters import POSITIVE, parameter

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.channel import ChannelNoise

_LEAST = 1e-6  # sigma of a channel without noise, relative to that of white noise
BACKGROUND = 0.05  # share of an image without signal, at least
DEVIATION = 0.012  # of its distribution from theory, at most, and more where there are few values
DEVIATION_ERROR = 1.0  # of one value
MAGNITUDE_GROWTH = 4.0  # of the variance; that of magnitudes grows by 2.33 at most


@dataclass(frozen=True)
class Rician(NoiseModel):
    """Noise of the magnitude of a complex signal, as in MRI with one coil.

    Parameters
    ----------
    sigma : float
        Standard deviation of the real and of the imaginary part, grey levels, above 0.

    Notes
    -----
    `inverse` gives the signal itself, not the mean of its magnitudes: 0 where there is only noise,
    and residual noise there with both signs, so that means over regions are right.
    ``numpy.maximum(result, 0)`` removes the negative values, and leaves a background of about
    0.15 sigma. The standard deviation after stabilising is within 2 % of 1 from a signal of
    1.25 sigma on, 0.96 at one sigma and 0.87 without signal; a curve that reached 1 there would
    give the noise a long tail, which filters take for signal. This one keeps it symmetric.

    References
    ----------
    A. Foi, "Noise estimation and removal in MR imaging: the variance-stabilization approach",
    IEEE ISBI 2011, doi:10.1109/ISBI.2011.5872758. The curve here is fitted anew.
    """

    sigma: float = parameter(POSITIVE, "sigma", "grey levels", squared=True)
    name: ClassVar[str] = "rician"
    title: ClassVar[str] = "Rician"
    description: ClassVar[str] = "Magnitude images of MRI."

    def variance(self, mean: Any) -> np.ndarray:
        curve = magnitude_curves.magnitude_variance()
        return self.sigma**2 * np.interp(np.asarray(mean, np.float64) / self.sigma, *curve)

    def representative(self, variance: np.ndarray) -> float:
        """Return sigma squared, the variance of the real and of the imaginary part."""
        return self.sigma**2

    def stabilise(self, image: Any) -> np.ndarray:
        return pointwise(
            lambda z: magnitude_curves.stabilised_magnitude(z / self.sigma), numbers(image)
        )

    def inverse(self, stabilised: Any, *, signed: bool = True) -> np.ndarray:
        """Return the signal whose stabilised magnitudes have these means.

        Parameters
        ----------
        stabilised : array, any shape
            What a filter made of the result of `stabilise`. Not modified.
        signed : bool, optional
            What lies below the mean of pure noise is by default as far below 0 as it would lie
            above: errors that a filter left in a background cancel in means over a region. False
            gives 0 instead; then all errors are positive, and so is the mean of a background.

        Returns
        -------
        ndarray, float32
            Of the shape of `stabilised`, grey levels.

        Raises
        ------
        ImageError
            If the array is empty, or not of real numbers.
        """
        return pointwise(
            lambda d: self.sigma * magnitude_curves.unbiased_signal(d, signed), numbers(stabilised)
        )

    def transform(self, signed: bool = True) -> Transform:
        return Transform(
            "magnitudes",
            (np.float32(1 / self.sigma), magnitude_curves.stabilising_table()),
            (
                np.float32(self.sigma),
                magnitude_curves.squared_signal_table(),
                np.int32(signed),
            ),
        )

    @classmethod
    def evidence(cls, channel: ChannelNoise) -> str | None:
        from napari_gpu_denoise.noise.magnitude.rician import rayleigh_background

        laws = channel.laws
        if laws is not None and laws.is_linear and laws.growth > MAGNITUDE_GROWTH:
            return None
        background = rayleigh_background(list(channel.planes))
        if background is None or background.share < BACKGROUND:
            return None
        if background.deviation > DEVIATION + DEVIATION_ERROR / math.sqrt(background.values):
            return None
        return (
            f"{background.share:.0%} of the image has a Rayleigh distribution, as magnitude "
            "images have where there is no signal"
        )

    @classmethod
    def fit(cls, channel: ChannelNoise) -> Fit:
        """Measure sigma by PIESNO on repetitions of a slice, else on single images."""
        from napari_gpu_denoise.noise.magnitude.piesno import piesno_of_any
        from napari_gpu_denoise.noise.magnitude.rician import rician_noise

        notes: tuple[str, ...] = ()
        sigma, error, method = 0.0, 0.0, ""
        if channel.repeats is not None:
            found, coils = piesno_of_any(np.stack(list(channel.repeats)))
            sigma, error, method = found.sigma, found.error, "PIESNO, repetitions of one slice"
            if coils > 1:
                notes = (
                    f"the noise is that of {coils} coils: this model, which is for one coil, is "
                    "right for bright parts only",
                )
        if not sigma:
            single = rician_noise(channel.planes)
            sigma, error = single.sigma, single.error
            method = "distribution of the background"
            if single.background is None:
                method = "variance at each level of brightness, corrected for magnitudes"
        sigma = sigma or _LEAST * channel.sigma or _LEAST
        return Fit(cls(sigma), {"sigma": error}, sigma, error, method, channel.curve, notes)

    def summary(self) -> str:
        return f"Rician noise, sigma {self.sigma:.4g}"
