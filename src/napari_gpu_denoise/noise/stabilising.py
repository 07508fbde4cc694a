"""Curves that make the noise of pixels the same everywhere, and the exact unbiased way back.

All is in units of the noise: electrons for photons, sigma for magnitudes. Grey levels are the
business of `models`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.bands import in_bands

_BLOCK = 1 << 16  # values worked on at once: float64 of a few of them fit a cache
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
_REACH = 9.0  # standard deviations of a normal variable beyond which there is nothing

_LARGE_VARIANCE = 400.0  # electrons²; from here on the expansion is as exact as a table
_ELECTRONS_STEP = 0.01  # of the square root of the electrons

_MAGNITUDE_STEP = 1 / 512
_SIGNAL_STEP, _SIGNAL_END = 0.02, 40.0
_SPLINE_END = 6.0  # magnitudes above it have the asymptotic curve
# Coefficients of cubic B-splines on nine even knots over 0 to 6; three more are 0, so that the
# curve joins its asymptote smoothly. Fitted by least squares, as tests/noise/test_models.py does
# again: standard deviation 1 (weight 1 for signals from 1 on, 0.1 below), skewness 0 (weight 0.2,
# below 2), second differences of the coefficients 0 (weight 0.02). Skewness is what counts: filters
# are drawn to where values are densest, and leave its like as bias.
_SPLINE = (-1.4249, -0.8061, -0.1425, 0.0650, -0.0327, 0.0635, -0.0478, 0.0201)


class Curve(NamedTuple):
    """A function as a table; `at` grows, and numbers in between lie on straight lines."""

    at: np.ndarray
    value: np.ndarray


def pointwise(function: Callable[[np.ndarray], np.ndarray], image: np.ndarray) -> np.ndarray:
    """Apply a function of single values to an image, in several threads and little memory.

    Parameters
    ----------
    function : callable
        From float64 to float64, both (n,).
    image : ndarray, any shape and real dtype
        Not modified.

    Returns
    -------
    ndarray, float32
        Of the shape of `image`.
    """
    result = np.empty(image.shape, np.float32)

    def fill(source: np.ndarray, target: np.ndarray) -> None:
        blocks = np.nditer(
            [source, target],
            flags=["external_loop", "buffered", "zerosize_ok"],
            op_flags=[["readonly"], ["writeonly"]],
            op_dtypes=[np.float64, np.float32],
            casting="same_kind",
            buffersize=_BLOCK,
        )
        with blocks:
            for values, changed in blocks:
                changed[...] = function(values)

    in_bands(fill, image, result)
    return result


# Photons and read noise. One number says all: the read noise in electrons.


def anscombe(electrons: np.ndarray, read_noise: float) -> np.ndarray:
    """Return 2 √(x + 3/8 + s²), or 0 where there is no root."""
    return 2 * np.sqrt(np.maximum(electrons + (0.375 + read_noise**2), 0))


def expected_anscombe(electrons: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the mean of `anscombe` over photon and read noise.

    Parameters
    ----------
    electrons : ndarray, (n,)
        Expected numbers of electrons, not negative.
    read_noise : float
        Standard deviation, electrons.

    Returns
    -------
    ndarray, (n,)
    """
    from scipy.special import gammaln

    largest = float(electrons.max())
    counts = np.arange(math.ceil(largest + 10 * math.sqrt(largest) + 30))
    with np.errstate(divide="ignore", invalid="ignore"):
        exponents = counts * np.log(electrons)[:, None] - electrons[:, None] - gammaln(counts + 1)
    exponents[electrons == 0] = np.where(counts == 0, 0.0, -np.inf)
    return np.exp(exponents) @ _read_noise_mean(counts, read_noise)


def _read_noise_mean(counts: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the mean of `anscombe` over read noise, for each number of electrons counted."""
    if read_noise == 0:
        return anscombe(counts, 0.0)
    # In the root of the distance from where the curve begins the integrand has no corner.
    start = np.maximum(-_REACH, -(counts + 0.375) / read_noise - read_noise)[:, None]
    root = (_NODES + 1) / 2
    normal = start + (_REACH - start) * root**2
    weights = _WEIGHTS * root * (_REACH - start) * np.exp(-(normal**2) / 2)
    curve = anscombe(counts[:, None] + read_noise * normal, read_noise)
    return (weights * curve).sum(axis=1) / math.sqrt(2 * math.pi)


def expansion(stabilised: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the exact unbiased inverse of `anscombe` where the variance V is large, to 1 / V."""
    square = stabilised**2 / 4
    return square - 0.125 - read_noise**2 + read_noise**2 / (8 * square**2)


@lru_cache(maxsize=64)
def _photon_curve(read_noise: float) -> Curve:
    """Return what `expansion` lacks, as a function of the stabilised value."""
    end = math.sqrt(max(_LARGE_VARIANCE - read_noise**2, 1.0))
    electrons = np.linspace(0, end, math.ceil(end / _ELECTRONS_STEP) + 1) ** 2
    expected = expected_anscombe(electrons, read_noise)
    lacking = electrons - expansion(expected, read_noise)
    return Curve(expected, lacking)


def unbiased_electrons(stabilised: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the expected number of electrons whose `anscombe` has this mean; 0 below the least.

    Parameters
    ----------
    stabilised : ndarray
    read_noise : float
        Standard deviation, electrons.

    Returns
    -------
    ndarray
    """
    curve = _photon_curve(read_noise)
    inside = np.maximum(stabilised, curve.at[0])
    return expansion(inside, read_noise) + np.interp(inside, *curve)


# Magnitudes of complex numbers whose parts have normal noise of standard deviation 1.


def rice(signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return magnitudes and their probabilities, for means over the Rice distribution.

    Parameters
    ----------
    signal : ndarray, (n,)

    Returns
    -------
    magnitude, probability : ndarray, (n, nodes)
    """
    from scipy.special import ive

    low = np.maximum(signal - _REACH, 0)[:, None]
    width = signal[:, None] + _REACH - low
    magnitude = low + width * (_NODES + 1) / 2
    density = magnitude * np.exp(-((magnitude - signal[:, None]) ** 2) / 2)
    return magnitude, density * ive(0, magnitude * signal[:, None]) * _WEIGHTS * width / 2


def smooth_root(magnitude: np.ndarray) -> np.ndarray:
    """Return √(m² - 1/2), which stabilises large magnitudes, led smoothly down to 0."""
    return np.sqrt(magnitude**2 - 0.5 + 0.5 * np.exp(-(magnitude**2)))


@lru_cache(maxsize=1)
def _magnitude_curve() -> Curve:
    """Return the stabilising curve of magnitudes up to where the asymptote takes over."""
    from scipy.interpolate import BSpline

    at = np.linspace(0, _SPLINE_END, round(_SPLINE_END / _MAGNITUDE_STEP) + 1)
    inner = np.linspace(0, _SPLINE_END, len(_SPLINE) + 1)
    knots = np.concatenate([[0.0] * 3, inner, [_SPLINE_END] * 3])
    return Curve(at, smooth_root(at) + BSpline(knots, [*_SPLINE, 0, 0, 0], 3)(at))


def stabilised_magnitude(magnitude: np.ndarray) -> np.ndarray:
    """Return magnitudes with a standard deviation of about 1; negative ones are taken as 0."""
    far = np.sqrt(np.maximum(magnitude**2, _SPLINE_END**2) - 0.5)
    return np.where(magnitude > _SPLINE_END, far, np.interp(magnitude, *_magnitude_curve()))


@lru_cache(maxsize=1)
def _signals() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    signal = np.linspace(0, _SIGNAL_END, round(_SIGNAL_END / _SIGNAL_STEP) + 1)
    return signal, *rice(signal)


@lru_cache(maxsize=1)
def _signal_curve() -> Curve:
    """Return the square of the signal as a function of the mean of the stabilised magnitude."""
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

    Parameters
    ----------
    stabilised : ndarray
    signed : bool
        What lies below the mean of pure noise: 0, or if True as far below 0 as it would lie above.

    Returns
    -------
    ndarray
    """
    curve = _signal_curve()
    least = curve.at[0]
    above = np.abs(stabilised - least) + least if signed else np.maximum(stabilised, least)
    far = np.maximum(above, curve.at[-1])
    signal = np.where(
        above < curve.at[-1],
        np.sqrt(np.interp(above, *curve)),
        (far + np.sqrt(far**2 - 1)) / 2,  # the mean is x + 1 / (4 x) there
    )
    return np.copysign(signal, stabilised - least) if signed else signal
