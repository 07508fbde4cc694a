"""Frames of a video on their way to a device and back; 8- and 16-bit integers travel as they are.

They are converted on the device, which takes a hundredth of the time that a host needs for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.kernel import value_grid
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.flow.transfer import level_constants, pinned_of, transfer_dtype
from napari_gpu_denoise.run.flow.work import Work
from napari_gpu_denoise.run.plan import Launches
from napari_gpu_denoise.run.tiles import Tile

_FLOAT = np.dtype(np.float32)
_ALIGNED = 4096  # bytes at which a part of a buffer may begin on any device


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
        # Bytes of counts, by name what was counted so far, and the parts of buffers.
        self._head = -(-4 * self._most // _ALIGNED) * _ALIGNED
        self._clipped: dict[str, np.ndarray] = {}
        self._parts: dict[str, tuple[Any, Any, Any]] = {}
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

    def as_levels(self, queue, values, name: str, count: int) -> tuple[Any, Launches]:
        """Return a buffer to download, with `count` frames of each channel as they travel.

        Before them it has counts of clipped values; not of floats, which are clipped when they are
        stored.
        """
        if self._store is None:
            return values, []
        (nz, ny, nx), kept = self._tile.shape[1:], self._kept
        frames, planes = self._tile.channels * count, nz
        whole, counts, levels = self._counted(queue, name, self._most * nz * math.prod(kept))
        if kept == (ny, nx):
            ny, nx, kept, planes = 1, nz * ny * nx, (1, nz * ny * nx), 1  # as one row
        (across,), group = value_grid(kept[1], self._device)
        event = self._store(
            *(queue, (across, kept[0], frames * planes), (*group, 1, 1), values),
            *map(np.uint64, (ny, nx, *kept)),
            *(levels, counts, np.int32(0), np.int32(planes)),
        )
        return whole, [("to levels", event)]

    def _counted(self, queue, name: str, values: int) -> tuple[Any, Any, Any]:
        """Return a buffer for results, its first part for counts, and the other for `values`.

        One buffer, as NVIDIA's driver waits for the device wherever a few bytes are copied.
        """
        import pyopencl as cl

        size = self._made.itemsize * values
        whole = self._arena.buffer(name, self._head + size)
        if name not in self._parts:
            counts = whole.get_sub_region(0, self._head)
            levels = whole.get_sub_region(self._head, size)
            # Once: filling a buffer would stop the device each time.
            cl.enqueue_fill_buffer(queue, counts, np.int32(0), 0, self._head)
            self._parts[name] = whole, counts, levels
            self._clipped[name] = np.zeros(self._head // 4, np.int32)
        return self._parts[name]

    def download(
        self, queue, buffer, name: str, count: int, after: list
    ) -> tuple[np.ndarray, np.ndarray | None, Any]:
        """Copy results to the host after some events.

        Returns the frames (channels, count, nz, ny, nx), the counts for `clipped`, and the event
        after which both are there.
        """
        import pyopencl as cl

        tile, head = self._tile, 0 if self._store is None else self._head
        shape = (tile.channels, count, tile.shape[1], *self._kept)
        size = self._made.itemsize * math.prod(shape[2:])
        place = name, (head + self._most * size,), np.dtype(np.uint8)
        whole = pinned_of(self._arena, *place, queue)[: head + tile.channels * count * size]
        host = whole[head:].view(self._made).reshape(shape)
        counts = whole[:head].view(np.int32) if head else None
        done = cl.enqueue_copy(queue, whole, buffer, wait_for=after, is_blocking=False)
        return host, counts, done

    def clipped(self, name: str, counts: np.ndarray | None, count: int) -> np.ndarray | None:
        """Return how many values were clipped in each frame (channels, count) of a download."""
        if counts is None:
            return None
        new = counts - self._clipped[name]
        self._clipped[name] = counts.copy()
        channels = self._tile.channels
        return new[: channels * count].reshape(channels, count)
