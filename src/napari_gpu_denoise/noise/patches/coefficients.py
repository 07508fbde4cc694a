"""Cosine coefficients of patches: their frequencies, and sums over lists of patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

PATCH = 8
# Sets of frequencies whose energy is known: low and high ones, and two halves that both hold
# frequencies along y, along x, and across.
SETS = "low", "high", "half", "rest"


def cosine_transform(n: int) -> np.ndarray:
    """Return the orthonormal cosine transform of n values, (frequency, value)."""
    k = np.arange(n)
    transform = np.cos(np.pi * np.outer(k, k + 0.5) / n) * math.sqrt(2 / n)
    transform[0] /= math.sqrt(2)
    return transform


@cache
def frequencies() -> np.ndarray:
    """Return j + k + 1 of each coefficient (j, k) of a patch over its width, (64,)."""
    return (np.indices((PATCH, PATCH)).sum(axis=0).ravel() + 1) / PATCH


@cache
def frequency_order() -> tuple[np.ndarray, np.ndarray]:
    """Return the places j * 8 + k of the low and of the high coefficients; the mean is neither."""
    high = frequencies() > 1.125  # 21 of 64
    return np.flatnonzero(~high)[1:], np.flatnonzero(high)


@cache
def coefficient_order() -> np.ndarray:
    """Return the places of coefficients, low frequencies first, in a patch (8, 8)."""
    return np.concatenate(frequency_order())


LOWS, HIGHS = map(len, frequency_order())


@cache
def compared_bands() -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the middle and of the top ones of the high frequencies of a patch."""
    frequency = frequencies()[frequency_order()[1]]
    return frequency <= 1.4, frequency > 1.65


def flatness_of(power: np.ndarray) -> np.ndarray:
    """Return the power of the top of the high frequencies, (..., high), over the middle of them."""
    middle, top = compared_bands()
    return power[..., top].mean(axis=-1) / np.maximum(power[..., middle].mean(axis=-1), 1e-300)


@cache
def frequency_sets() -> np.ndarray:
    """Return a mask of the coefficients in each of `SETS`, (set, coefficient)."""
    low = np.arange(LOWS + HIGHS) < LOWS
    j, k = divmod(coefficient_order(), PATCH)
    half = ((k > j) & (k % 2 == 1)) | ((k <= j) & (j % 2 == 0))
    return np.array([low, ~low, half, ~half])


@cache
def weights() -> np.ndarray:
    """Return the weights of coefficients in the mean that the high frequencies see, (63,).

    A cosine of a high frequency is weak in the corners of a patch, so of the noise of a bright spot
    there it sees little. What it sees of noise that grows linearly with brightness is the same as
    in a patch whose mean is weighted by the squared cosine; that is linear in the coefficients.
    """
    basis = np.kron(*(cosine_transform(PATCH),) * 2)[coefficient_order()]
    return np.square(basis[LOWS:]).mean(axis=0) @ basis.T


class Squares:
    """Squares of coefficients (patch, coefficient), not computed before they are summed up.

    `coefficients` are in memory, or `DeviceCoefficients`; those before `first` are left out.
    """

    def __init__(self, coefficients: Any, first: int = 0):
        self.coefficients, self.first = coefficients, first


def span_sums(
    energy: Squares | np.ndarray,
    order: np.ndarray,
    starts: Sequence[int] | np.ndarray,
    stops: Sequence[int] | np.ndarray,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Sum up `energy` (patch, frequency) over spans of patches, (span, frequency).

    Span k goes from ``starts[k]`` to ``stops[k]`` of `order`. Each patch counts by its `weight`.
    """
    squared = isinstance(energy, Squares)
    if squared and hasattr(energy.coefficients, "sums"):
        sums = energy.coefficients.sums(order, np.asarray(starts), np.asarray(stops), weight)
        return sums[:, energy.first :]
    rows = energy.coefficients[:, energy.first :] if squared else energy
    found = np.zeros((len(starts), rows.shape[1]))
    for total, begin, end in zip(found, starts, stops, strict=True):
        for start in range(begin, end, 512):  # patches that fit the cache
            which = order[start : min(start + 512, end)]
            part = np.square(rows[which]) if squared else rows[which]
            total += part.sum(axis=0) if weight is None else weight[which] @ part
    return found


def ranked(values: np.ndarray) -> np.ndarray:
    """Return the order of numbers that are not negative, to 0.4 %: keys of 16 bits sort fast."""
    if values.dtype != np.float32:
        with np.errstate(over="ignore", under="ignore"):
            values = (values / (values.max(initial=0) or 1.0)).astype(np.float32)
    # The bits of such floats rise with them: eight of the exponent, eight of the digits.
    keys = ((values + np.float32(0)).view(np.uint32) >> 15).astype(np.uint16)
    return np.argsort(keys, kind="stable")
