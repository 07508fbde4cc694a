"""Frames of a video on their way to a device and back; 8- and 16-bit integers travel as they are.

They are converted on the device, which takes a hundredth of the time that a host needs for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.work_items import value_grid
from napari_gpu_denoise.run.plan import Launches
from napari_gpu_denoise.run.tiles import Tile
from napari_gpu_denoise.run.transfer import level_constants, pinned_of, transfer_dtype
from napari_gpu_denoise.run.work import Work

_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class FrameTypes:
    """Types in which frames travel, and the rows and columns of a result that are kept.

    Without `kept` all are.
    """

    given: np.dtype = _FLOAT
    made: np.dtype = _FLOAT
    kept: tuple[int, int] | None = None

    @classmethod
    def of(cls, work: Work, tile: Tile) -> FrameTypes:
        """Return the types for a part of the frames of a work."""
        levels = Levels(0, 1.0) if work.filter.yields_map else work.levels
        types = transfer_dtype(work.source, work.levels), transfer_dtype(work.out, levels)
        return cls(*types, work.kept(tile))


class FrameTransfer:
    """Buffers and conversions for the frames of one flow; at most `batch` travel at once."""

    def __init__(self, arena: Arena, types: FrameTypes, tile: Tile, batch: int):
        self._arena, self._device = arena, arena.session.device
        self._given, self._made = types.given, types.made
        self._tile = tile
        self._most = tile.channels * batch
        ny, nx = tile.shape[2:]
        # Values of the host are float32 unless they are kept as they are: no rows are left out.
        self._kept = (ny, nx) if types.kept is None or self._made.kind == "f" else types.kept
        self._load = self._store = None
        # What was counted so far: filling a buffer with 0 each time would stop the device.
        self._clipped: dict[str, np.ndarray] = {}
        if self._given.kind != "f":
            constants = level_constants(self._given, self._device)
            self._load = arena.kernel("levels/levels_to_float", constants)
        if self._made.kind != "f":
            constants = level_constants(self._made, self._device)
            self._store = arena.kernel("levels/float_to_levels", constants)

    def room(self, name: str, count: int, queue) -> np.ndarray:
        """Return host memory (channels, count, nz, ny, nx) for frames to upload."""
        tile = self._tile
        shape = (self._most // tile.channels, tile.channels, *tile.source_shape[1:])
        whole = pinned_of(self._arena, name, shape, self._given, queue).ravel()
        size = tile.channels * count * math.prod(tile.source_shape[1:])
        return whole[:size].reshape(tile.channels, count, *tile.source_shape[1:])

    def upload(self, queue, name: str, frames: np.ndarray) -> tuple[Any, Any]:
        """Copy frames, contiguous host memory, to the device; return the buffer and the event."""
        import pyopencl as cl

        most = self._most * math.prod(self._tile.source_shape[1:])
        buffer = self._arena.buffer(name, self._given.itemsize * most)
        return buffer, cl.enqueue_copy(queue, buffer, frames, is_blocking=False)

    def as_float(self, queue, buffer, count: int) -> tuple[Any, Launches]:
        """Return `count` uploaded values as float32, until the next are converted."""
        if self._load is None:
            return buffer, []
        most = self._most * math.prod(self._tile.source_shape[1:])
        values = self._arena.buffer("frames in", 4 * most)
        grid = value_grid(count, self._device)
        event = self._load(*(queue, *grid), *(buffer, np.uint64(count), values))
        return values, [("to float", event)]

    def result(self, name: str):
        """Return the float32 buffer for the filter to write; `name` as in `download`."""
        name = name if self._store is None else "frames out"
        return self._arena.buffer(name, 4 * self._most * math.prod(self._tile.shape[1:]))

    def as_levels(self, queue, values, name: str, count: int) -> tuple[Any, Any, Launches]:
        """Return `count` frames of each channel as they travel, and counts of clipped values.

        There are none of floats, which are clipped when they are stored.
        """
        if self._store is None:
            return values, None, []
        import pyopencl as cl

        (nz, ny, nx), kept = self._tile.shape[1:], self._kept
        frames = self._tile.channels * count
        clipped = self._arena.buffer(f"{name} clipped", 4 * self._most)
        if name not in self._clipped:
            cl.enqueue_fill_buffer(queue, clipped, np.int32(0), 0, 4 * self._most)
            self._clipped[name] = np.zeros(self._most, np.int32)
        most = self._most * nz * math.prod(kept)
        buffer = self._arena.buffer(name, self._made.itemsize * most)
        planes = nz
        if kept == (ny, nx):
            ny, nx, kept, planes = 1, nz * ny * nx, (1, nz * ny * nx), 1  # as one row
        (across,), group = value_grid(kept[1], self._device)
        event = self._store(
            *(queue, (across, kept[0], frames * planes), (*group, 1, 1), values),
            *map(np.uint64, (ny, nx, *kept)),
            *(buffer, clipped, np.int32(0), np.int32(planes)),
        )
        return buffer, clipped, [("to levels", event)]

    def download(
        self, queue, buffer, clipped, name: str, count: int, after: list
    ) -> tuple[np.ndarray, np.ndarray | None, Any]:
        """Copy results to the host after some events.

        Returns the frames (channels, count, nz, ny, nx), the counts for `clipped`, and the event
        after which both are there.
        """
        import pyopencl as cl

        tile = self._tile
        shape = (tile.channels, count, tile.shape[1], *self._kept)
        # Counts come first, in the same memory: a driver may not pin a few bytes, and a copy to
        # memory that is not pinned would wait for the device here.
        counts, head = None, 4 * self._most * (clipped is not None)
        size = self._made.itemsize * self._most * math.prod(shape[2:])
        whole = pinned_of(self._arena, name, (head + size,), np.dtype(np.uint8), queue)
        host = whole[head:].view(self._made)[: math.prod(shape)].reshape(shape)
        if clipped is not None:
            counts = whole[:head].view(np.int32)
            cl.enqueue_copy(queue, counts, clipped, wait_for=after, is_blocking=False)
        return host, counts, cl.enqueue_copy(queue, host, buffer, wait_for=after, is_blocking=False)

    def clipped(self, name: str, counts: np.ndarray | None, count: int) -> np.ndarray | None:
        """Return how many values were clipped in each frame (channels, count) of a download."""
        if counts is None:
            return None
        new = counts - self._clipped[name]
        self._clipped[name] = counts.copy()
        channels = self._tile.channels
        return new[: channels * count].reshape(channels, count)
