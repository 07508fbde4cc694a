"""The variance-stabilising curve of magnitudes, and its exact unbiased inverse.

Magnitudes of complex numbers with normal noise in both parts; all values are in units of the
standard deviation of that noise.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from napari_gpu_denoise.noise.models.curves import (
    NODES,
    REACH,
    TABLE_ENTRIES,
    WEIGHTS,
    Curve,
    Table,
    even_table,
)

_STEP = 1 / 512
_SIGNAL_STEP, _SIGNAL_END = 0.02, 40.0
SPLINE_END = 6.0  # above it the asymptotic curve is used
# Coefficients of cubic B-splines on nine even knots over 0 to 6; three more are 0, so that the
# curve joins its asymptote smoothly. Fitted by least squares, as tests/noise/test_models.py does
# again: standard deviation 1 (weight 1 for signals from 1 on, 0.1 below), skewness 0 (weight 0.2,
# below 2), second differences of the coefficients 0 (weight 0.02). Skewness matters most: filters
# are drawn to where values are densest, and a skewed distribution therefore leaves a bias.
SPLINE = (-1.4249, -0.8061, -0.1425, 0.0650, -0.0327, 0.0635, -0.0478, 0.0201)


def rice(signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return magnitudes and their probabilities, (n, nodes), for means over Rice distributions."""
    from scipy.special import ive

    low = np.maximum(signal - REACH, 0)[:, None]
    width = signal[:, None] + REACH - low
    magnitude = low + width * (NODES + 1) / 2
    density = magnitude * np.exp(-((magnitude - signal[:, None]) ** 2) / 2)
    return magnitude, density * ive(0, magnitude * signal[:, None]) * WEIGHTS * width / 2


def smooth_root(magnitude: np.ndarray) -> np.ndarray:
    """Return √(m² - 1/2), which stabilises large magnitudes, continued smoothly down to 0."""
    return np.sqrt(magnitude**2 - 0.5 + 0.5 * np.exp(-(magnitude**2)))


@lru_cache(maxsize=1)
def _stabilising_curve() -> Curve:
    """Return the stabilising curve of magnitudes up to where the asymptote takes over."""
    from scipy.interpolate import BSpline

    at = np.linspace(0, SPLINE_END, round(SPLINE_END / _STEP) + 1)
    inner = np.linspace(0, SPLINE_END, len(SPLINE) + 1)
    knots = np.concatenate([[0.0] * 3, inner, [SPLINE_END] * 3])
    return Curve(at, smooth_root(at) + BSpline(knots, [*SPLINE, 0, 0, 0], 3)(at))


def stabilised_magnitude(magnitude: np.ndarray) -> np.ndarray:
    """Return magnitudes with a standard deviation of about 1; negative ones are taken as 0."""
    far = np.sqrt(np.maximum(magnitude**2, SPLINE_END**2) - 0.5)
    return np.where(magnitude > SPLINE_END, far, np.interp(magnitude, *_stabilising_curve()))


@lru_cache(maxsize=1)
def _signals() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    signal = np.linspace(0, _SIGNAL_END, round(_SIGNAL_END / _SIGNAL_STEP) + 1)
    return signal, *rice(signal)


@lru_cache(maxsize=1)
def squared_signal() -> Curve:
    """Return the squared signal as a function of the mean of the stabilised magnitude."""
    signal, magnitude, probability = _signals()
    expected = (probability * stabilised_magnitude(magnitude)).sum(axis=1)
    return Curve(expected, signal**2)


@lru_cache(maxsize=1)
def magnitude_variance() -> Curve:
    """Return the variance of a magnitude as a function of its mean."""
    signal, magnitude, probability = _signals()
    mean = (probability * magnitude).sum(axis=1)
    return Curve(mean, signal**2 + 2 - mean**2)


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
def stabilising_table() -> Table:
    """Return the stabilising curve for the device, from 0 to where the asymptote takes over."""
    at = np.linspace(0, SPLINE_END, TABLE_ENTRIES)
    return even_table(stabilised_magnitude(at), 0.0, SPLINE_END)


@lru_cache(maxsize=1)
def squared_signal_table() -> Table:
    """Return `squared_signal` for the device."""
    magnitude, probability = rice(np.zeros(1))
    dark = float((probability * stabilised_magnitude(magnitude)).sum())
    at = np.linspace(dark, _SIGNAL_END, TABLE_ENTRIES)
    return even_table(unbiased_signal(at, False) ** 2, dark, _SIGNAL_END)
