"""The grid of reference patches and the offsets of a search window."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.run.tiles import Span


def offset_table(window: int, frames: tuple[int, int] = (0, 0), slices: int = 0) -> np.ndarray:
    """Return the offsets of a search window as int32 rows (dt, dz, dy, dx), nearest first.

    `window` is the full width in Y and X, odd; `frames` are those before and after. Offsets of the
    same length are sorted by their components.
    """
    radius = window // 2
    reaches = (frames, (slices, slices), (radius, radius), (radius, radius))
    axes = (range(-before, after + 1) for before, after in reaches)
    table = np.array(list(itertools.product(*axes)), dtype=np.int32)
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

        They lie at every `step` pixels of the whole axis, and where the last one fits, so that the
        result does not depend on the tiles.
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
        """Return the number of groups of `size` references, with one for an irregular last one."""
        return -(-self.regular // size) + (self.count > self.regular)


def grid_arguments(rows: Grid, columns: Grid) -> tuple:
    """Return the kernel arguments that say where the reference patches are."""
    values = (rows.first, rows.last, rows.count, columns.first, columns.last, columns.count)
    return tuple(map(np.int32, values))
