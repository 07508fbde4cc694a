"""How blocks of neighbouring frames move, measured once for all patches that lie in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.vbm3d.frame_rings import RingShape
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, allocated

BLOCK = 8
AROUND = BLOCK  # pixels around a block that are compared with it
_PAIRS = 2  # pairs of frames compared at once, which limits the memory
_CELL = 15  # most displacements along y that a work-item of a GPU compares at once


@dataclass(frozen=True)
class Motions:
    """Motion of the blocks of the frames in a ring."""

    buffer: Any  # short2 (images, 2, rows, columns), (dy, dx) forward and backward in time
    shape: RingShape

    @property
    def arguments(self) -> tuple:
        """Kernel arguments."""
        return (self.buffer, *map(np.int32, (*self.shape.blocks, *self.shape.shift)))


class BlockMotion:
    """Kernels and buffers of the measurement; belongs to one thread.

    `window` is the full width that is searched, and `frames` are those before and after. `vector`
    chooses the kernels for CPUs.
    """

    def __init__(
        self, window: int, frames: tuple[int, int], arena: Arena, vector: bool | None = None
    ):
        self._window, self._frames, self._arena = window, frames, arena
        self._device = arena.session.device
        self._vector = int(self._device.float_lanes >= 4 if vector is None else vector)
        self._columns = max(1, min(16, self._device.max_group // window))
        constants = {"PATCH": BLOCK, "NEAREST": window, "VECTOR": self._vector}
        constants["GROUP_X"] = self._columns
        # As even as possible: what is compared beyond the window is wasted.
        cell = -(-window // -(-window // _CELL))
        self._compare = arena.kernel("vbm3d/compare_blocks", {**constants, "CELL": cell, "KEPT": 1})
        self._choose = arena.kernel("vbm3d/block_motion", constants)

    def buffers(self, shape: RingShape) -> Sizes:
        """Return the ring of motions, and the buffer of costs."""
        rows, columns = shape.blocks
        blocks = (rows + 2) * self._pitch(columns)
        costs = 4 * 2 * _PAIRS * self._window**2 * blocks
        return {"motions": 8 * shape.images * rows * columns, "motion costs": costs}

    def enqueue(
        self,
        queue,
        images,
        shape: RingShape,
        first: int,
        count: int,
        links,
        held: Buffers | None = None,
    ) -> tuple[Motions, Launches]:
        """Enqueue the measurement from the frame of time `first` to the next `count`, and back.

        `images` is a ring of padded frames, and `links` the float32 table that `FrameLinks.links`
        returns for the guide, of all these frames.
        """
        held = held or allocated(self._arena, self.buffers(shape))
        launches: Launches = []
        for start in range(0, count, _PAIRS):
            pairs = min(_PAIRS, count - start)
            at = first, start, pairs
            launches += self._pairs(queue, images, shape, *at, links, held)
        return Motions(held["motions"], shape), launches

    def _pairs(self, queue, images, shape, first, start, pairs, links, held) -> Launches:
        i32 = np.int32
        rows, columns = shape.blocks
        pitch = self._pitch(columns)
        slot = (first + start) % shape.images
        size = i32(shape.ny), i32(shape.nx)
        linked = (links, i32(start), *map(i32, (*self._frames, *shape.shift)))
        compare = self._compare(
            queue,
            *self._grid(pitch, rows + 2, 2 * pairs),
            *(images, i32(shape.images), i32(slot), *shape.layout, *size),
            *(*linked, i32(rows), i32(pitch), held["motion costs"]),
        )
        choose = self._choose(
            queue,
            *self._grid(-(-columns // 8) if self._vector else columns, rows, 2 * pairs),
            *(held["motion costs"], i32(pitch), i32(shape.images), i32(slot), *size),
            *(*linked, i32(rows), i32(columns), held["motions"]),
        )
        return [("compare blocks", compare), ("block motion", choose)]

    def _grid(self, columns: int, rows: int, count: int) -> tuple[tuple, tuple]:
        """Return a grid of blocks; on a GPU, of all dx of each."""
        if self._vector:
            return (columns, rows, count), (1, 1, 1)
        group = self._columns
        across = -(-columns // group) * group
        return (self._window, across, rows * count), (self._window, group, 1)

    @staticmethod
    def _pitch(columns: int) -> int:
        """Return the length of a row of costs: vectors may read beyond the last block."""
        return -(-columns // 8) * 8 + 8
