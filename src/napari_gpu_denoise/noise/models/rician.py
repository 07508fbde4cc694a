"""Rician noise of magnitude images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.models import base

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.evidence import Evidence

_LEAST = 1e-6  # sigma of a channel without noise, grey levels
_STEP = 1 / 512
_SIGNAL_STEP, _SIGNAL_END = 0.02, 40.0
SPLINE_END = 6.0  # above it the asymptotic curve is used
# Coefficients of cubic B-splines on nine even knots over 0 to 6; three more are 0, so that the
# curve joins its asymptote smoothly. Fitted by least squares, as tests/noise/test_models.py does
# again: standard deviation 1 (weight 1 for signals from 1 on, 0.1 below), skewness 0 (weight 0.2,
# below 2), second differences of the coefficients 0 (weight 0.02). Skewness matters most: filters
# are drawn to where values are densest, and a skewed distribution therefore leaves a bias.
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
    sigma, 0.96 at one sigma and 0.87 without signal. A curve that reached 1 there would give the
    noise a long tail, which filters treat as signal; this one keeps it symmetric.

    References
    ----------
    A. Foi, "Noise estimation and removal in MR imaging: the variance-stabilization approach", IEEE
    ISBI 2011, doi:10.1109/ISBI.2011.5872758. The curve here is a new fit.
    """

    sigma: float = base.parameter(base.POSITIVE, "sigma", "grey levels", squared=True)
    name: ClassVar[str] = "rician"
    title: ClassVar[str] = "Rician"
    description: ClassVar[str] = "Magnitude images of MRI."
    price: ClassVar[float] = limits.MIN_COST_GAIN_BESIDE_PROOF

    def variance(self, mean: Any) -> np.ndarray:
        curve = magnitude_variance()
        relative = np.interp(np.asarray(mean, np.float64) / self.sigma, *curve)
        return self.sigma * self.sigma * relative

    def variance_told_by(self, pixels: Any) -> np.ndarray:
        magnitude = np.asarray(pixels, np.float64) / self.sigma
        return self.sigma * self.sigma * np.interp(magnitude, *_variance_told_by())

    def representative(self, variance: np.ndarray) -> float:
        """Return sigma squared, the variance of the real and of the imaginary part."""
        return self.sigma * self.sigma

    def stabilise(self, image: Any) -> np.ndarray:
        return base.pointwise(lambda z: stabilised_magnitude(z / self.sigma), base.numbers(image))

    def inverse(self, stabilised: Any, *, signed: bool = True) -> np.ndarray:
        """Return the signal whose stabilised magnitudes have these means, as `NoiseModel.inverse`.

        Values below the mean of pure noise become negative, by as much as values above it become
        positive, so that errors in a background cancel in means over a region; or 0 unless
        `signed`: then all errors are positive, and so is the mean of a background.
        """
        return base.pointwise(
            lambda d: self.sigma * unbiased_signal(d, signed), base.numbers(stabilised)
        )

    def expected(self, result: Any) -> np.ndarray:
        """Return the mean magnitude where this is the signal; a negative one is as if positive."""
        signal = np.abs(np.asarray(result)) / self.sigma
        known, magnitude, probability = _signals()
        mean = np.interp(signal, known, (probability * magnitude).sum(axis=1))
        # Far above the noise the mean is x + 1 / (2 x).
        far = signal + 0.5 / np.maximum(signal, known[-1])
        found = self.sigma * np.where(signal > known[-1], far, mean)
        return found.astype(np.asarray(result).dtype, copy=False)

    def transform(self, signed: bool = True) -> base.Transform:
        return base.Transform(
            "magnitudes",
            (np.float32(1 / self.sigma), stabilising_table()),
            (
                np.float32(self.sigma),
                squared_signal_table(),
                np.int32(signed),
            ),
        )

    @classmethod
    def misfit(cls, channel: Evidence) -> base.Misfit:
        """Return that of one sigma for background and object; infinite where nothing is dark."""
        from napari_gpu_denoise.noise.magnitude import magnitude_noise

        found = magnitude_noise(channel, magnitude_variance)
        if found is None:
            return base.Misfit(math.inf)
        # What else would prove photons does so only where there is no background of magnitudes.
        photons = channel.grows_over_time or channel.photons is not None
        if photons and not found.share:
            return base.Misfit(math.inf)
        if found.share:
            why = (
                f"{found.share:.0%} of the image has a Rayleigh distribution, as magnitude images "
                "have in regions without signal"
            )
        else:
            why = "the variance depends on brightness as that of magnitudes does, "
            why += channel.laws.range()
        proof = min(found.proof, base.PROVEN) + base.PROVEN * bool(photons)
        return base.Misfit(found.misfit - proof, why)

    @classmethod
    def fit(cls, channel: Evidence) -> base.Fit:
        """Return sigma of the background and the object, or of the smoothest patches of all."""
        from napari_gpu_denoise.noise.magnitude import magnitude_noise, object_noise

        found = magnitude_noise(channel, magnitude_variance)
        sigma, error = (found.sigma, found.error) if found else (channel.sigma, channel.error)
        if not (found and found.share) and channel.spectra is not None:
            sigma, error = object_noise(channel.spectra, sigma, magnitude_variance())
        of_background = found is not None and found.share
        method = "smoothest patches, corrected for magnitudes"
        method = "distribution of the background" if of_background else method
        sigma = sigma or _LEAST
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


@lru_cache(maxsize=1)
def _stabilising_curve() -> base.Curve:
    """Return the stabilising curve of magnitudes up to where the asymptote takes over."""
    from scipy.interpolate import BSpline

    at = np.linspace(0, SPLINE_END, round(SPLINE_END / _STEP) + 1)
    inner = np.linspace(0, SPLINE_END, len(SPLINE) + 1)
    knots = np.concatenate([[0.0] * 3, inner, [SPLINE_END] * 3])
    return base.Curve(at, smooth_root(at) + BSpline(knots, [*SPLINE, 0, 0, 0], 3)(at))


def stabilised_magnitude(magnitude: np.ndarray) -> np.ndarray:
    """Return magnitudes with a standard deviation of about 1; negative ones are taken as 0."""
    far = np.sqrt(np.maximum(magnitude**2, SPLINE_END**2) - 0.5)
    return np.where(magnitude > SPLINE_END, far, np.interp(magnitude, *_stabilising_curve()))


@lru_cache(maxsize=1)
def _signals() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    signal = np.linspace(0, _SIGNAL_END, round(_SIGNAL_END / _SIGNAL_STEP) + 1)
    return signal, *rice(signal)


@lru_cache(maxsize=1)
def squared_signal() -> base.Curve:
    """Return the squared signal as a function of the mean of the stabilised magnitude."""
    signal, magnitude, probability = _signals()
    expected = (probability * stabilised_magnitude(magnitude)).sum(axis=1)
    return base.Curve(expected, signal**2)


@lru_cache(maxsize=1)
def magnitude_variance() -> base.Curve:
    """Return the variance of a magnitude as a function of its mean."""
    _, magnitude, probability = _signals()
    mean = (probability * magnitude).sum(axis=1)
    return base.Curve(mean, (probability * magnitude**2).sum(axis=1) - mean**2)


_KNOTS, _KNOTS_END = 81, 20.0  # of a function of magnitudes that is linear in between
_STIFF = 0.037  # weight of its second differences: without, it would swing


@lru_cache(maxsize=1)
def _variance_told_by() -> base.Curve:
    """Return a function of the magnitude whose mean is the variance, within 0.002 sigma squared."""
    signals = slice(0, round(_KNOTS_END / _SIGNAL_STEP), 5)
    _, magnitude, probability = (each[signals] for each in _signals())
    mean = (probability * magnitude).sum(axis=1)
    variance = (probability * magnitude**2).sum(axis=1) - mean**2
    at = np.linspace(0, _KNOTS_END, _KNOTS)
    hats = [(probability * np.interp(magnitude, at, each)).sum(axis=1) for each in np.eye(_KNOTS)]
    stiff = _STIFF * np.diff(np.eye(_KNOTS), 2, axis=0)
    wanted = np.concatenate([variance, np.zeros(_KNOTS - 2)])
    values, *_ = np.linalg.lstsq(np.vstack([np.transpose(hats), stiff]), wanted, rcond=None)
    return base.Curve(at, values)


def unbiased_signal(stabilised: np.ndarray, signed: bool) -> np.ndarray:
    """Return the signal whose stabilised magnitudes have this mean.

    What lies below the mean of pure noise becomes 0, or if `signed` as far below 0 as it would lie
    above.
    """
    curve = squared_signal()
    least = curve.at[0]
    above = np.abs(stabilised - least) + least if signed else np.maximum(stabilised, least)
    far = np.maximum(above, curve.at[-1])
    signal = np.where(
        above < curve.at[-1],
        np.sqrt(np.interp(above, *curve)),
        (far + np.sqrt(far**2 - 1)) / 2,  # the mean is x + 1 / (4 x) there
    )
    return np.copysign(signal, stabilised - least) if signed else signal


@lru_cache(maxsize=1)
def stabilising_table() -> base.Table:
    """Return the stabilising curve for the device, from 0 to where the asymptote takes over."""
    return base.tabulated(stabilised_magnitude, 0.0, SPLINE_END)


@lru_cache(maxsize=1)
def squared_signal_table() -> base.Table:
    """Return `squared_signal` for the device."""
    magnitude, probability = rice(np.zeros(1))
    dark = float((probability * stabilised_magnitude(magnitude)).sum())
    return base.tabulated(lambda at: unbiased_signal(at, False) ** 2, dark, _SIGNAL_END)
