"""Where patches lie: the grid of reference patches and the offsets of a search window."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.run.tiles import Span


def offset_table(window: int, frames: tuple[int, int] = (0, 0), slices: int = 0) -> np.ndarray:
    """Return the offsets of a search window, nearest first.

    Parameters
    ----------
    window : int
        Full width in Y and X, odd.
    frames : tuple of int, optional
        Frames before and after.
    slices : int, optional
        Slices above and below.

    Returns
    -------
    ndarray of int32, shape (offsets, 4)
        (dt, dz, dy, dx), sorted by length, then by components; the first one is zero.
    """
    radius = window // 2
    table = np.array(
        list(
            itertools.product(
                range(-frames[0], frames[1] + 1),
                range(-slices, slices + 1),
                range(-radius, radius + 1),
                range(-radius, radius + 1),
            )
        ),
        dtype=np.int32,
    )
    dt, dz, dy, dx = table.T
    return table[np.lexsort((dx, dy, dz, dt, (table**2).sum(axis=1)))]


@dataclass(frozen=True)
class Grid:
    """Reference patches of a tile along one axis, in pixels of the tile."""

    first: int
    last: int
    count: int
    regular: int

    @classmethod
    def of(cls, span: Span, patch: int, step: int) -> Grid:
        """Return the patches that cover the pixels a tile yields.

        Positions are those of the whole axis (every `step` pixels, and the last one that fits), so
        that the result does not depend on the tiles.
        """
        end = span.length - patch
        lowest = -(-max(span.start - patch + 1, 0) // step) * step
        lowest = min(lowest, end)
        highest = min(span.stop - 1, end)
        regular = (highest - lowest) // step + 1
        covered = lowest + (regular - 1) * step
        last = end if highest == end else covered
        shift = span.source_start
        return cls(lowest - shift, last - shift, regular + (last > covered), regular)

    def groups(self, size: int) -> int:
        """Groups of `size` references: the regular ones, and one more that ends with the last."""
        return -(-self.regular // size) + (self.count > self.regular)
