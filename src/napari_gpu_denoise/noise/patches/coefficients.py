"""Cosine coefficients of many patches, and sums of their squares.

They are single precision where their squares are, which halves the memory to go through: after
that, and not after arithmetic, the time of an estimate goes. For the same reason squares are not
kept: a few hundred patches at a time are squared where they are summed up, in the cache.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

# Products of many patches with a small matrix.
# OpenBLAS shares larger products, of more than 64 x 64 by 64 x 64, among threads. For the patches
# of a small plane these take longer to meet than to multiply: 1500 patches 0.23 ms at best instead
# of 0.15 ms, and 50 ms where the cores have other work.
ROWS = 64


def matmul_in_blocks(rows: np.ndarray, matrix: np.ndarray, block: int = ROWS) -> np.ndarray:
    """Return ``rows @ matrix`` of one type of floats, some rows at a time, in this thread alone."""
    out = np.empty((len(rows), matrix.shape[1]), rows.dtype)
    blocks = len(rows) // block
    whole = blocks * block
    many = rows[:whole].reshape(blocks, block, rows.shape[1])
    np.matmul(many, matrix, out=out[:whole].reshape(blocks, block, matrix.shape[1]))
    np.matmul(rows[whole:], matrix, out=out[whole:])
    return out


BLOCK = 8 * ROWS  # patches at a time
SMALL = ("u1", "i1", "u2", "i2", "f4")  # whose differences float32 holds, or rounds as they are
WEAKEST, STRONGEST = 1e-25, 1e25  # sums of squares that float32 is used for
OCTAVES = 20  # above and below their median in which values are told apart,
SAMPLE = 512  # taken from about so many of them
MARGIN = 0.05  # share of all values by which a limit from that sample is higher
ROUNDING = 1e-9  # energy of high frequencies over low ones, from which rounding does not matter


class Transformed(NamedTuple):
    """The coefficients of patches."""

    mean: np.ndarray  # (patch,), float64
    coefficients: np.ndarray  # (patch, coefficient), float32 or float64
    energy: np.ndarray  # (set, patch), sums of squares over sets of coefficients, of the same type
    seen: np.ndarray  # (patch,), float64, the mean and a weighted sum of coefficients


def transformed(
    patches: np.ndarray, matrix: np.ndarray, sets: np.ndarray, sight: np.ndarray | None = None
) -> Transformed:
    """Transform patches (patch, pixel) by an orthonormal matrix (coefficient, pixel).

    `sets` (set, coefficient) tells which coefficients make each energy, the first two the low and
    the high frequencies; `sight` (coefficient,) how coefficients add to what is seen of the mean.
    """
    if sight is None:
        sight = np.zeros(len(matrix))
    found = _transformed(patches, matrix, sets, sight, np.float32)
    if found.energy.any():
        suits = suit_float32(found.energy)
    else:
        suits = not (patches != patches[:, :1]).any()  # else their squares have vanished
    if suits:
        return found
    return _transformed(patches, matrix, sets, sight, np.float64)


def suit_float32(energy: np.ndarray) -> bool:
    """Return whether squares, whose sums are `energy` as in `Transformed`, suit float32."""
    # The first two sets hold every frequency.
    largest = float(energy[:2].max(initial=0))
    low, high = energy[:2].sum(axis=1, dtype=np.float64)
    return WEAKEST < largest < STRONGEST and high >= ROUNDING * low


def _transformed(
    patches: np.ndarray, matrix: np.ndarray, sets: np.ndarray, sight: np.ndarray, dtype: type
) -> Transformed:
    number, pixels = patches.shape
    exact = dtype if patches.dtype.newbyteorder("=").str[1:] in SMALL else np.float64
    # The mean comes last; whole numbers give it exactly.
    columns = np.vstack([matrix, sight @ matrix, np.full(pixels, 1 / pixels)]).T.astype(dtype)
    members = np.ascontiguousarray(sets.T, dtype)
    found, rest = np.empty((number, len(matrix)), dtype), np.empty((number, 2))
    energy = np.empty((number, len(sets)), dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # then float64 is used
        for start in range(0, number, BLOCK):
            part = patches[start : start + BLOCK].astype(exact)
            # Differences are small numbers, whatever the level of the patch.
            part -= part[:, :1].copy()
            part = matmul_in_blocks(part.astype(dtype, copy=False), columns)
            inside = found[start : start + BLOCK]
            inside[:], rest[start : start + BLOCK] = part[:, :-2], part[:, -2:]
            energy[start : start + BLOCK] = matmul_in_blocks(np.square(inside), members)
    mean = patches[:, 0] + rest[:, 1]
    return Transformed(mean, found, np.ascontiguousarray(energy.T), mean + rest[:, 0])


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
    """Return sums of `energy` (patch, frequency) over ranges of patches, (range, frequency).

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
    """Return sums as `range_sums` does, over spans of `order` that may overlap."""
    squared = isinstance(energy, Squares)
    rows = energy.coefficients if squared else energy
    if squared and not isinstance(rows, np.ndarray):
        return rows.sums(order, starts, stops, weight, energy.first)
    if squared:
        rows = rows[:, energy.first :]
    weight = None if weight is None else weight.astype(rows.dtype, copy=False)
    found = np.zeros((len(starts), rows.shape[1]))
    for row, first, last in zip(found, starts, stops, strict=True):
        for start in range(first, last, BLOCK):
            which = order[start : min(start + BLOCK, last)]
            part = rows[which]
            if squared:
                part *= part
            if weight is not None:
                part *= weight[which, None]
            row += part.sum(axis=0)
    return found


def range_moments(
    coefficients: Any, order: np.ndarray, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of coefficients over ranges, as `range_sums` has them, and of their squares."""
    if not isinstance(coefficients, np.ndarray):
        return coefficients.moments(order, limits)
    found = np.zeros((2, len(limits) - 1, coefficients.shape[1]))
    for k, (first, last) in enumerate(pairwise(limits)):
        for start in range(first, last, BLOCK):
            part = coefficients[order[start : min(start + BLOCK, last)]]
            found[0, k] += part.sum(axis=0)
            part *= part
            found[1, k] += part.sum(axis=0)
    return found[0], found[1]


def smallest(values: np.ndarray, number: int) -> np.ndarray:
    """Return the order of the smallest values, as `ranked` has them; 0.05 ms for a third."""
    few = values[:: max(1, len(values) // SAMPLE)]
    enough = min(len(few) - 1, math.ceil((number / len(values) + MARGIN) * len(few)))
    some = np.flatnonzero(values <= np.partition(few, enough)[enough])
    if len(some) < number:
        return ranked(values)[:number]
    return some[ranked(values[some])[:number]]


def ranked(values: np.ndarray, group: np.ndarray | None = None, groups: int = 1) -> np.ndarray:
    """Return the order of numbers that are not negative, group after group, at most 64 of them.

    Values that differ by little may stay as they are: over a range of a million by 0.1 % for one
    group, by 1 % for 16. In exchange keys have 16 bits, which are sorted in an eighth of the time:
    0.14 ms for 36 000 values.
    """
    if values.dtype != np.float32:
        positive = values[values > 0]
        with np.errstate(over="ignore", under="ignore"):
            values = (values / (np.median(positive) if len(positive) else 1)).astype(np.float32)
    # The bits of such floats rise with them.
    bits = (values + np.float32(0)).view(np.uint32)
    room = 16 - (groups - 1).bit_length()
    some = np.sort(bits[:: max(1, len(bits) // SAMPLE)])
    some = some[np.searchsorted(some, 1) :]
    middle = int(some[len(some) // 2]) if len(some) else 1
    most = int(bits.max(initial=1))
    highest = min(most, middle + (OCTAVES << 23))
    least = lowest = int(bits.min(initial=highest))
    if not lowest:
        lowest = int(bits.min(initial=highest, where=bits > 0))
    lowest = max(lowest, middle - (OCTAVES << 23))
    shift = max((highest - lowest).bit_length() - room, 0)
    shift += (highest - lowest) >> shift == (1 << room) - 1
    lowest = max(lowest - (1 << shift), 0)  # what is less, such as 0, has the lowest key
    if lowest > least or highest < most:
        bits = np.clip(bits, np.uint32(lowest), np.uint32(highest))
    keys = ((bits - np.uint32(lowest)) >> np.uint32(shift)).astype(np.uint16)
    if group is not None:
        keys += group.astype(np.uint16) << np.uint16(room)
    return np.argsort(keys, kind="stable")


def nested(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return sums over each set and those before it of its group, given those over the sets.

    `sums` (set, ...) are those of groups one after another, of so many sets each.
    """
    total = np.cumsum(sums, axis=0, dtype=np.float64)
    first = np.cumsum(sizes) - sizes
    before = np.concatenate([np.zeros_like(total[:1]), total[:-1]])[first]
    return total - np.repeat(before, sizes, axis=0)
