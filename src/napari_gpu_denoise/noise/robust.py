"""Medians, and deviations from them, that few values far off do not change.

`numpy.median` imports `numpy.ma`, which takes as long as some calls, and is slow for short rows.
"""

from __future__ import annotations

import numpy as np


def medians(values: np.ndarray) -> np.ndarray:
    """Return the medians along the last axis, of values none of which is NaN."""
    ordered, count = np.sort(values, axis=-1), values.shape[-1]
    return (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2


def finite_medians(values: np.ndarray) -> np.ndarray:
    """Return the medians of what is finite in each row, which is something; else it is NaN."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    count = np.count_nonzero(np.isfinite(values), axis=1)
    rows = np.arange(len(values))
    return (ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2


def median_power(power: np.ndarray, independent: np.ndarray) -> np.ndarray:
    """Return what medians along the last axis say of the mean of chi-squared variables.

    These have so many degrees of freedom; their median is below their mean by nearly this factor.
    """
    return medians(power) / (1 - 2 / (9 * independent)) ** 3


def huber_weights(distance: np.ndarray, above: float, below: float) -> np.ndarray:
    """Return weights of 1, less for distances beyond a limit above 0 and another one below it."""
    limit = np.where(distance > 0, above, below)
    return np.minimum(1, limit / np.maximum(np.abs(distance), 1e-12))


def deviation(values: np.ndarray) -> float:
    """Return the standard deviation of all finite values, from their median deviation."""
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0
    return float(1.4826 * medians(np.abs(known - medians(known))))
