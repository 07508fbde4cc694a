"""Sums over lists of patches of their cosine coefficients, and the order of patches."""

from __future__ import annotations

from typing import Any

import numpy as np

BLOCK = 512  # patches summed up at a time, in the cache


class Squares:
    """Squares of coefficients (patch, coefficient), not computed before they are summed up.

    `coefficients` are in memory, or `DeviceCoefficients`; those before `first` are left out.
    """

    def __init__(self, coefficients: Any, first: int = 0):
        self.coefficients, self.first = coefficients, first
        self.shape = coefficients.shape[0], coefficients.shape[1] - first

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        values = np.asarray(self.coefficients)[:, self.first :].astype(np.float64)
        return np.square(values).astype(dtype or np.float64)


def range_sums(
    energy: Squares | np.ndarray,
    order: np.ndarray,
    limits: np.ndarray,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Sum up `energy` (patch, frequency) over ranges of patches, (range, frequency).

    Range k goes from ``limits[k]`` to ``limits[k + 1]`` of `order`. Each patch counts by its
    `weight`.
    """
    limits = np.asarray(limits)
    return span_sums(energy, order, limits[:-1], limits[1:], weight)


def span_sums(
    energy: Squares | np.ndarray,
    order: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Sum up as `range_sums`, over spans of `order` that may overlap."""
    if not isinstance(energy, Squares):
        return _host_sums(energy, order, starts, stops, weight, 1)
    rows = energy.coefficients
    if isinstance(rows, np.ndarray):
        return _host_sums(rows[:, energy.first :], order, starts, stops, weight, 2)
    return rows.sums(order, starts, stops, weight)[0][:, energy.first :]


def range_moments(
    coefficients: Any, order: np.ndarray, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sum up coefficients over ranges, as `range_sums` does, and their squares."""
    spans = np.asarray(limits)[:-1], np.asarray(limits)[1:]
    if isinstance(coefficients, np.ndarray):
        return tuple(_host_sums(coefficients, order, *spans, None, power) for power in (1, 2))
    squares, sums = coefficients.sums(order, *spans, moments=True)
    return sums, squares


def _host_sums(
    rows: np.ndarray,
    order: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    weight: np.ndarray | None,
    power: int,
) -> np.ndarray:
    """Sum up a power of rows in memory over spans of `order`."""
    found = np.zeros((len(starts), rows.shape[1]))
    for row, first, last in zip(found, starts, stops, strict=True):
        for start in range(first, last, BLOCK):
            which = order[start : min(start + BLOCK, last)]
            part = rows[which] if power == 1 else np.square(rows[which])
            row += part.sum(axis=0) if weight is None else weight[which] @ part
    return found


def ranked(values: np.ndarray) -> np.ndarray:
    """Return the order of numbers that are not negative, to 0.4 %: keys of 16 bits sort fast."""
    if values.dtype != np.float32:
        with np.errstate(over="ignore", under="ignore"):
            values = (values / (values.max(initial=0) or 1.0)).astype(np.float32)
    # The bits of such floats rise with them: eight of the exponent, eight of the digits.
    keys = ((values + np.float32(0)).view(np.uint32) >> 15).astype(np.uint16)
    return np.argsort(keys, kind="stable")


def smallest(values: np.ndarray, number: int) -> np.ndarray:
    """Return the order of the smallest values, as `ranked` has them."""
    return ranked(values)[:number]


def nested(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return sums over each set and those before it of its group, given those over the sets.

    `sums` (set, ...) are those of groups one after another, of so many sets each.
    """
    total = np.cumsum(sums, axis=0, dtype=np.float64)
    first = np.cumsum(sizes) - sizes
    before = np.concatenate([np.zeros_like(total[:1]), total[:-1]])[first]
    return total - np.repeat(before, sizes, axis=0)
