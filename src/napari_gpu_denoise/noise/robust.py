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
    """Return the medians of what is finite in each row; NaN without a warning where nothing is.

    None of the values is infinite.
    """
    ordered = np.sort(values, axis=1)  # NaN comes last
    count = np.count_nonzero(np.isfinite(values), axis=1)
    rows = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    found = (ordered[rows, low] + ordered[rows, np.minimum(high, values.shape[1] - 1)]) / 2
    return np.where(count > 0, found, np.nan)


def deviation(values: np.ndarray) -> float:
    """Return the standard deviation of all finite values, from their median deviation."""
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0
    return float(1.4826 * medians(np.abs(known - medians(known))))
