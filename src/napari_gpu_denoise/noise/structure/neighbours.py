"""Pixels and their eight neighbours, and the noise that these show at each brightness."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# A sorting network for eight values (Batcher's).
_NETWORK = (
    *((0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3)),
    *((4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6)),
)
AROUND = tuple((y, x) for y in (0, 1, 2) for x in (0, 1, 2) if (y, x) != (1, 1))
SAMPLE = 1 << 16  # pixels of a plane that levels of brightness are taken from, about
_ENTRIES = 4096  # of the table of the noise at each level of brightness


def sorted_neighbours(padded: np.ndarray, rows: slice) -> list[np.ndarray]:
    """Return the eight neighbours of each pixel of some rows, sorted."""
    height, width = rows.stop - rows.start, padded.shape[1] - 2
    return in_order(
        [padded[rows.start + y : rows.start + y + height, x : x + width] for y, x in AROUND]
    )


def in_order(values: list[np.ndarray]) -> list[np.ndarray]:
    """Return eight arrays with the values at each place sorted."""
    spare = np.empty_like(values[0])
    for k, (a, b) in enumerate(_NETWORK):
        if k < len(values) // 2:  # these are views, each of which comes up once
            values[a], values[b] = (
                np.minimum(values[a], values[b]),
                np.maximum(values[a], values[b]),
            )
            continue
        np.minimum(values[a], values[b], out=spare)
        np.maximum(values[a], values[b], out=values[b])
        values[a], spare = spare, values[a]
    return values


class NoiseTable(NamedTuple):
    """The noise at each brightness: a table, as `numpy.interp` takes ten times as long."""

    low: float  # brightness of the first entry
    step: float  # entries per grey level
    noise: np.ndarray  # float32

    def at(self, middle: np.ndarray) -> np.ndarray:
        """Return the noise at levels of brightness, float32."""
        place = middle - np.float32(self.low)
        place *= np.float32(self.step)
        np.clip(place, 0, len(self.noise) - 1, out=place)
        return self.noise[np.rint(place, out=place).astype(np.int16)]


def noise_levels(plane: np.ndarray, padded: np.ndarray) -> NoiseTable:
    """Return the root of the mean squared deviation at each brightness, of some pixels."""
    ny, nx = plane.shape
    step = max(2, math.isqrt(plane.size // SAMPLE))
    ranked = in_order([padded[y : y + ny : step, x : x + nx : step] for y, x in AROUND])
    levels = ((ranked[3] + ranked[4]) / 2).ravel()
    sizes = np.abs(plane[::step, ::step].ravel() - levels)
    order = np.argsort(levels)
    parts = np.array_split(order, min(16, max(1, levels.size // 256)))
    where = np.array([levels[part].mean(dtype=np.float64) for part in parts])
    found = []
    for part in parts:
        inside = sizes[part]
        last = int(0.99 * (inside.size - 1))
        most = np.partition(inside, last)[last]
        found.append(math.sqrt(np.mean(np.minimum(inside, most) ** 2, dtype=np.float64)))
    low, high = where[0], where[-1]
    if not high > low:
        return NoiseTable(low, 0.0, np.full(1, found[0], np.float32))
    table = np.interp(np.linspace(low, high, _ENTRIES), where, found).astype(np.float32)
    return NoiseTable(low, (_ENTRIES - 1) / (high - low), table)
