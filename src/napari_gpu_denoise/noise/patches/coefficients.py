"""Cosine coefficients of patches: their frequencies, and sums over lists of patches."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np

PATCH = 8
# A coefficient (j, k) of a patch counts as high where (j + k + 1) / 8 is above this: 21 of 64.
HIGH_FREQUENCY = 1.125
UPPER_FREQUENCY = 1.4  # the same sum, above which lies the upper half of those
MIDDLE_FREQUENCY, TOP_FREQUENCY = 1.4, 1.65  # up to and above which power is compared

# Sets of frequencies whose energy is known: low and high ones; those that rank patches where
# texture is subtracted (`RANKS`); and two halves that both hold frequencies along y, along x, and
# across.
SETS = "low", "high", "ranks", "half", "rest"
# Frequencies (j, k) are sorted by j + k. Up to LOW they measure how smooth a patch is; up to
# DEALT those with an odd smaller number do, the others are read; above, all are read.
LOW = 4
DEALT = 7


def cosine_transform(n: int) -> np.ndarray:
    """Return the orthonormal cosine transform of n values, (frequency, value)."""
    k = np.arange(n)
    transform = np.cos(np.pi * np.outer(k, k + 0.5) / n) * math.sqrt(2 / n)
    transform[0] /= math.sqrt(2)
    return transform


@lru_cache(maxsize=16)
def frequencies(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cosine transform of a patch as matrices for its low and high frequencies.

    Rows are orthonormal; the mean of the patch is in neither. The third array marks the upper ones
    of the high frequencies.
    """
    matrix = np.kron(*map(cosine_transform, shape))
    low, high = frequency_order(shape)
    upper = _frequency(shape)[high] > UPPER_FREQUENCY
    return matrix[low], matrix[high], upper


@lru_cache(maxsize=16)
def frequency_order(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of the low and the high rows of `frequencies`.

    As positions j * m + k of coefficient (j, k) of an n x m patch.
    """
    high = _frequency(shape) > HIGH_FREQUENCY
    return np.flatnonzero(~high)[1:], np.flatnonzero(high)


def _frequency(shape: tuple[int, int]) -> np.ndarray:
    return np.add.outer(*((np.arange(n) + 0.5) / n for n in shape)).ravel()


@cache
def coefficient_order() -> np.ndarray:
    """Return the places of coefficients, low frequencies first, in a patch (8, 8)."""
    return np.concatenate(frequency_order((PATCH, PATCH)))


@cache
def compared_bands() -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the middle and of the top ones of the high frequencies of a patch."""
    frequency = (sum(np.divmod(frequency_order((PATCH, PATCH))[1], PATCH)) + 1) / PATCH
    return frequency <= MIDDLE_FREQUENCY, frequency > TOP_FREQUENCY


def flatness_of(power: np.ndarray) -> np.ndarray:
    """Return the power of the top of the high frequencies, (..., high), over the middle of them."""
    middle, top = compared_bands()
    return power[..., top].mean(axis=-1) / np.maximum(power[..., middle].mean(axis=-1), 1e-300)


@cache
def frequency_sets(lows: int, number: int) -> np.ndarray:
    """Return a mask of the coefficients in each of `SETS`, (set, coefficient)."""
    low = np.arange(number) < lows
    j, k = np.divmod(coefficient_order(), PATCH)
    ranks = (j + k <= LOW) | ((j + k <= DEALT) & (np.minimum(j, k) % 2 == 1))
    half = np.where(k > j, k % 2 == 1, j % 2 == 0)
    return np.array([low, ~low, ranks, half, ~half])


@cache
def weights() -> np.ndarray:
    """Return the weights of coefficients in the mean that each frequency sees, (63, 63).

    A cosine of a high frequency is weak in the corners of a patch, so of the noise of a bright spot
    there it sees little. What it sees of noise that grows linearly with brightness is the same as
    in a patch whose mean is weighted by the squared cosine; that is linear in the coefficients.
    """
    basis = np.concatenate(frequencies((PATCH, PATCH))[:2])
    return np.square(basis) @ basis.T


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
