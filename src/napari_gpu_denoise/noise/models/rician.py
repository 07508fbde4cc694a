"""Rician noise of magnitude images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.magnitude import (
    magnitude_noise,
    magnitude_variance,
    mean_magnitude,
    object_noise,
)
from napari_gpu_denoise.noise.models import base

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.evidence import Evidence

SPLINE_END = 6.0  # above it the asymptotic curve is used
# Coefficients of cubic B-splines on nine even knots over 0 to 6; three more are 0, so that the
# curve joins its asymptote smoothly. Fitted by least squares: standard deviation 1 (weight 1 for
# signals from 1 on, 0.1 below), skewness 0 (weight 0.2, below 2), second differences of the
# coefficients 0 (weight 0.02). Skewness matters most: filters are drawn to where values are
# densest, and a skewed distribution therefore leaves a bias.
SPLINE = (-1.4249, -0.8061, -0.1425, 0.0650, -0.0327, 0.0635, -0.0478, 0.0201)


@dataclass(frozen=True)
class Rician(base.NoiseModel):
    """Noise of the magnitude of a complex signal, as in MRI with one coil.

    Parameters
    ----------
    sigma : float
        Standard deviation of the real and of the imaginary part, grey levels, above 0.

    Notes
    -----
    `inverse` gives the signal itself, not the mean of its magnitudes: 0 where there is only noise,
    with residual noise of both signs, so means over regions are correct.
    ``numpy.maximum(result, 0)`` removes the negative values, and leaves a background of about 0.15
    sigma. The standard deviation after stabilisation is within 2 % of 1 for signals above 1.25
    sigma, and less below: noise of the background stays symmetric.

    References
    ----------
    A. Foi, "Noise estimation and removal in MR imaging: the variance-stabilization approach", IEEE
    ISBI 2011, doi:10.1109/ISBI.2011.5872758. The curve here is a new fit.
    """

    sigma: float = base.parameter("sigma", "grey levels", low=0, above=True, squared=True)
    name: ClassVar[str] = "rician"
    title: ClassVar[str] = "Rician"
    description: ClassVar[str] = "Magnitude images of MRI."
    price: ClassVar[float] = limits.MIN_COST_GAIN_BESIDE_PROOF

    def variance(self, mean: np.typing.ArrayLike) -> np.ndarray:
        relative = np.interp(np.asarray(mean, np.float64) / self.sigma, *magnitude_variance())
        return self.sigma * self.sigma * relative

    def variance_told_by(self, pixels: np.typing.ArrayLike) -> np.ndarray:
        square = np.square(np.asarray(pixels, np.float64) / self.sigma)
        # The variance is 1 less these shares of exp(-fall x²) of the signal x, within 0.005. For
        # magnitudes m, exp(-k m²) has the mean exp(-fall x²) (1 - 2 fall).
        told = np.ones(square.shape)
        for share, fall in ((0.491, 0.4), (0.076, 0.047)):
            told -= share / (1 - 2 * fall) * np.exp(-fall / (1 - 2 * fall) * square)
        return self.sigma * self.sigma * told

    def representative(self, variance: np.ndarray) -> float:
        """Return sigma squared, the variance of the real and of the imaginary part."""
        return self.sigma * self.sigma

    def forward(self, levels: np.ndarray) -> np.ndarray:
        return stabilised_magnitude(levels / self.sigma)

    def backward(self, means: np.ndarray) -> np.ndarray:
        """Return the signal whose stabilised magnitudes have these means.

        Values below the mean of pure noise become negative, by as much as values above it become
        positive, so that errors in a background cancel in means over a region.
        """
        return self.sigma * unbiased_signal(means)

    def expected(self, result: np.typing.ArrayLike) -> np.ndarray:
        """Return the mean magnitude where this is the signal; a negative one is as if positive."""
        found = self.sigma * mean_magnitude(np.asarray(result, np.float64) / self.sigma)
        return found.astype(np.asarray(result).dtype, copy=False)

    def transform(self, signed: bool = True) -> base.Transform:
        return base.Transform(
            "magnitudes",
            {"per_sigma": 1 / self.sigma, "table": stabilising_table()},
            {"sigma": self.sigma, "table": squared_signal(), "is_signed": signed},
        )

    @classmethod
    def misfit(cls, channel: Evidence) -> base.Misfit:
        """Return that of one sigma for background and object; infinite where nothing is dark."""
        found = magnitude_noise(channel)
        if found is None:
            return base.Misfit(math.inf)
        # What else would prove photons does so only where there is no background of magnitudes.
        photons = channel.grows_over_time or channel.photons is not None
        if photons and not found.share:
            return base.Misfit(math.inf)
        why = f"{found.share:.0%} of the image has a Rayleigh distribution, as magnitude images "
        why += "have in regions without signal"
        if channel.laws is not None and not found.share:
            range_of = channel.laws.range()
            why = f"the variance depends on brightness as that of magnitudes does, {range_of}"
        proof = min(found.proof, limits.PROOF_WORTH) + limits.PROOF_WORTH * bool(photons)
        return base.Misfit(found.misfit - proof, why)

    @classmethod
    def fit(cls, channel: Evidence) -> base.Fit:
        """Return sigma of the background and the object, or of the smoothest patches of all."""
        found = magnitude_noise(channel)
        sigma, error = (found.sigma, found.error) if found else (channel.sigma, channel.error)
        method = "distribution of the background"
        if found is None or not found.share:
            method = "smoothest patches, corrected for magnitudes"
            if channel.spectra is not None:
                sigma, error = object_noise(channel.spectra, sigma)
        sigma = sigma or 1e-6
        return base.Fit(cls(sigma), {"sigma": error}, sigma, error, method, channel.curve)

    def summary(self) -> str:
        return f"Rician noise, sigma {self.sigma:.4g}"


def rice(signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return magnitudes and their probabilities, (n, nodes), for means over Rice distributions."""
    from scipy.special import ive

    low = np.maximum(signal - base.REACH, 0)[:, None]
    width = signal[:, None] + base.REACH - low
    nodes, weights = base.quadrature()
    magnitude = low + width * (nodes + 1) / 2
    density = magnitude * np.exp(-((magnitude - signal[:, None]) ** 2) / 2)
    return magnitude, density * ive(0, magnitude * signal[:, None]) * weights * width / 2


def smooth_root(magnitude: np.ndarray) -> np.ndarray:
    """Return √(m² - 1/2), which stabilises large magnitudes, continued smoothly down to 0."""
    return np.sqrt(magnitude**2 - 0.5 + 0.5 * np.exp(-(magnitude**2)))


@cache
def stabilising_table() -> base.Table:
    """Return the stabilising curve of magnitudes up to where the asymptote takes over."""
    from scipy.interpolate import BSpline

    inner = np.linspace(0, SPLINE_END, len(SPLINE) + 1)
    spline = BSpline(np.pad(inner, 3, "edge"), [*SPLINE, 0, 0, 0], 3)
    return base.tabulated(lambda at: smooth_root(at) + spline(at), 0.0, SPLINE_END)


def stabilised_magnitude(magnitude: np.ndarray) -> np.ndarray:
    """Return magnitudes with a standard deviation of about 1; negative ones are taken as 0."""
    far = np.sqrt(np.maximum(magnitude**2, SPLINE_END**2) - 0.5)
    return np.where(magnitude > SPLINE_END, far, stabilising_table()(magnitude))


@cache
def squared_signal() -> base.Table:
    """Return the squared signal as a function of the mean of the stabilised magnitude."""
    signal = np.linspace(0, 40, 2001)
    magnitude, probability = rice(signal)
    expected = (probability * stabilised_magnitude(magnitude)).sum(axis=1)
    square = np.square(signal)
    return base.tabulated(lambda at: np.interp(at, expected, square), *expected[[0, -1]])


def unbiased_signal(stabilised: np.ndarray) -> np.ndarray:
    """Return the signal whose stabilised magnitudes have this mean.

    What lies below the mean of pure noise becomes as far below 0 as it would lie above.
    """
    table = squared_signal()
    beyond = stabilised - table.start
    above = np.abs(beyond) + table.start
    far = np.maximum(above, end := table.at[-1])
    far = (far + np.sqrt(far**2 - 1)) / 2  # the mean is x + 1 / (4 x) there
    return np.copysign(np.where(above < end, np.sqrt(table(above)), far), beyond)
