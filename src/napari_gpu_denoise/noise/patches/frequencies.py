"""Cosine frequencies of patches: transforms, and sets of them."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np

PATCH = 8
# A coefficient (j, k) of a patch counts as high where (j + k + 1) / 8 is above this: 21 of 64.
HIGH_FREQUENCY = 1.125
UPPER_FREQUENCY = 1.4  # the same sum, above which lies the upper half of those

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
