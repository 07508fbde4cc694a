"""The generalised Anscombe transform of electron counts, and its exact unbiased inverse.

All values are in electrons, so that the read noise is the only parameter.
"""

from __future__ import annotations

import math
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

_LARGE_VARIANCE = 400.0  # electrons²; above it the expansion is as exact as a table
_STEP = 0.01  # of the square root of the electrons


def anscombe(electrons: np.ndarray, read_noise: float) -> np.ndarray:
    """Return 2 √(x + 3/8 + s²), or 0 where the root is not real."""
    return 2 * np.sqrt(np.maximum(electrons + (0.375 + read_noise**2), 0))


def expected_anscombe(electrons: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the mean of `anscombe` under photon and read noise, for expected electrons (n,)."""
    from scipy.special import gammaln

    largest = float(electrons.max())
    counts = np.arange(math.ceil(largest + 10 * math.sqrt(largest) + 30))
    with np.errstate(divide="ignore", invalid="ignore"):
        exponents = counts * np.log(electrons)[:, None] - electrons[:, None] - gammaln(counts + 1)
    exponents[electrons == 0] = np.where(counts == 0, 0.0, -np.inf)
    return np.exp(exponents) @ _mean_over_read_noise(counts, read_noise)


def _mean_over_read_noise(counts: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the expected value of `anscombe` for each number of electrons counted."""
    if read_noise == 0:
        return anscombe(counts, 0.0)
    # In the root of the distance from where the curve begins the integrand has no corner.
    start = np.maximum(-REACH, -(counts + 0.375) / read_noise - read_noise)[:, None]
    root = (NODES + 1) / 2
    normal = start + (REACH - start) * root**2
    weights = WEIGHTS * root * (REACH - start) * np.exp(-(normal**2) / 2)
    curve = anscombe(counts[:, None] + read_noise * normal, read_noise)
    return (weights * curve).sum(axis=1) / math.sqrt(2 * math.pi)


def expansion(stabilised: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the inverse of `anscombe` for a large variance V, exact to the order 1 / V."""
    square = stabilised**2 / 4
    return square - 0.125 - read_noise**2 + read_noise**2 / (8 * square**2)


@lru_cache(maxsize=64)
def correction(read_noise: float) -> Curve:
    """Return what `expansion` lacks, as a function of the stabilised value."""
    end = math.sqrt(max(_LARGE_VARIANCE - read_noise**2, 1.0))
    electrons = np.linspace(0, end, math.ceil(end / _STEP) + 1) ** 2
    expected = expected_anscombe(electrons, read_noise)
    lacking = electrons - expansion(expected, read_noise)
    return Curve(expected, lacking)


def unbiased_electrons(stabilised: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the expected number of electrons for an expected value of `anscombe`.

    Below the value without light it is 0.
    """
    curve = correction(read_noise)
    inside = np.maximum(stabilised, curve.at[0])
    return expansion(inside, read_noise) + np.interp(inside, *curve)


@lru_cache(maxsize=64)
def correction_table(read_noise: float) -> Table:
    """Return `correction` for the device, in electrons; 0 at its end and beyond."""
    dark = float(expected_anscombe(np.zeros(1), read_noise)[0])
    # A large read noise leaves hardly a range: the table is then nearly 0.
    end = max(2 * (_LARGE_VARIANCE + 1) ** 0.5, dark + 1)
    at = np.linspace(dark, end, TABLE_ENTRIES)
    lacking = unbiased_electrons(at, read_noise) - expansion(at, read_noise)
    lacking[-1] = 0
    return even_table(lacking, dark, end)
