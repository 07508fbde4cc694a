"""Amplitudes of waves in blocks of a plane, of several frequencies at once."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np

BLOCKS = 4  # along each axis
# OpenBLAS shares larger products among threads, which take longer to meet than to multiply.
_ALONE = 64**3
_TOGETHER = 16  # frequencies of one product
_LONGEST = 256  # pixels that one product adds up


def block_size(shape: tuple[int, int]) -> np.ndarray:
    """Return the size of a block along y and x, float64."""
    return np.array(shape) / BLOCKS


def along_x(plane: np.ndarray, fx: np.ndarray) -> np.ndarray:
    """Return the complex amplitudes of some frequencies along x in each row of each block.

    Of shape (frequency, block along x, row), complex64; see `along_y`.
    """
    ny, nx = plane.shape
    found = np.zeros((len(fx), BLOCKS, ny), np.complex64)
    cuts = _cuts(nx)
    for first in range(0, len(fx), _TOGETHER):
        some = fx[first : first + _TOGETHER]
        table = _table(some, nx)  # (2, frequency, pixel)
        for k in range(BLOCKS):
            parts = np.zeros((2 * len(some), ny), np.float32)
            count = -(-(cuts[k + 1] - cuts[k]) // _LONGEST)
            inside = cuts[k] + (cuts[k + 1] - cuts[k]) * np.arange(count + 1) // count
            for start, stop in pairwise(inside):
                of_pixels = table[:, :, start:stop].reshape(2 * len(some), -1)
                parts += _product(of_pixels, plane[:, start:stop])
            found[first : first + len(some), k].real = parts[: len(some)]
            found[first : first + len(some), k].imag = parts[len(some) :]
    return found


def along_y(rows: np.ndarray, fy: np.ndarray) -> np.ndarray:
    """Return the complex amplitudes in each block, (frequency, block along y, block along x).

    ``rows`` are those that `along_x` returns, `fy` the frequencies along y. A block has a window of
    Hann along both axes, whose sum is 1.
    """
    ny = rows.shape[-1]
    table = _table(fy, ny)
    turned = rows * (table[0] + 1j * table[1])[:, None]
    return np.add.reduceat(turned, _cuts(ny)[:-1], axis=-1).swapaxes(1, 2)


def _product(table: np.ndarray, plane: np.ndarray) -> np.ndarray:
    """Return ``table @ plane.T``, some rows of the plane at a time, in this thread alone."""
    rows = max(8, _ALONE // table.size)
    whole = len(plane) // rows * rows
    out = np.empty((len(plane), len(table)), np.float32)
    bands = plane[:whole].reshape(-1, rows, plane.shape[1])
    np.matmul(bands, table.T, out=out[:whole].reshape(-1, rows, len(table)))
    np.matmul(plane[whole:], table.T, out=out[whole:])
    return out.T


def _table(frequencies: np.ndarray, count: int) -> np.ndarray:
    """Return windows of blocks times ``exp(-2 pi i f k)``, (real or imaginary, frequency, k)."""
    turns = np.asarray(frequencies)[:, None] * np.arange(count)
    phase = ((turns - np.rint(turns)) * (-2 * math.pi)).astype(np.float32)
    table = np.empty((2, *phase.shape), np.float32)
    np.cos(phase, out=table[0])
    np.sin(phase, out=table[1])
    table *= _windows(count)
    return table


@lru_cache(maxsize=8)
def _cuts(count: int) -> np.ndarray:
    """Return where blocks begin, and the end of the last."""
    return np.arange(BLOCKS + 1) * count // BLOCKS


@lru_cache(maxsize=8)
def _windows(count: int) -> np.ndarray:
    """Return the windows of all blocks side by side, each with a sum of 1, float32."""
    windows = [np.hanning(size + 2)[1:-1] for size in np.diff(_cuts(count))]
    return np.concatenate([each / each.sum() for each in windows]).astype(np.float32)
