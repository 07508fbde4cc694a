"""Bring tiles to a device and back: small integers travel as they are, float is made of them there.

A CPU takes longer to convert a frame than a GPU to filter it; and a byte is sent four times as fast
as a float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.image.axes import Frames
from napari_gpu_denoise.image.bands import in_bands
from napari_gpu_denoise.image.levels import Levels, is_plain
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.work_items import value_grid, values_together
from napari_gpu_denoise.run.frame_blocks import frame_blocks
from napari_gpu_denoise.run.plan import Launches
from napari_gpu_denoise.run.stabilisation import Stabilisation
from napari_gpu_denoise.run.tiles import Tile

# Most pixels that are converted on the host at once, for what is in between to stay in the cache.
_CONVERTED = 1 << 20


class Sender:
    """Takes what tiles read to the device, where it is float32.

    Parameters
    ----------
    arena : Arena
        Keeps the buffers.
    source : Frames
        Grey levels.
    levels : Levels
        How they become kernel values.
    stabilisation : Stabilisation, optional
        Makes their noise even, once they are float32.
    """

    def __init__(
        self,
        arena: Arena,
        source: Frames,
        levels: Levels,
        stabilisation: Stabilisation | None = None,
    ):
        self._arena, self._source, self._levels = arena, source, levels
        self._stabilisation = stabilisation
        self._dtype = _travels_as(source, levels)
        self._kernel = None
        if self._dtype.kind != "f":
            constants = _constants(self._dtype, arena.session.device)
            self._kernel = arena.kernel("levels/levels_to_float", constants)

    def upload(self, queue, name: str, tile: Tile) -> tuple[Any, Any]:
        """Copy a tile to the device; return the buffer and the event.

        Buffer and host memory go by `name`: they are not to be in use.
        """
        import pyopencl as cl

        shape = (tile.channels, *tile.source_shape)
        host = _pinned(self._arena, name, shape, self._dtype, queue)
        region = self._source.region(
            *(slice(s.source_start, s.source_stop) for s in (tile.z, tile.y, tile.x))
        )
        times = tile.t.source_start, tile.t.source_stop
        most = _frames_at_once(self._source, self._levels)
        load = _copy if self._kernel is not None else self._levels.load
        for c in range(tile.channels):
            for k, block in frame_blocks(self._source, tile.sequence, *times, c, most):
                in_bands(load, block[:, *region], host[c, k : k + len(block)])
        buffer = self._arena.buffer(name, host.nbytes)
        return buffer, cl.enqueue_copy(queue, buffer, host, is_blocking=False)

    def as_float(self, queue, buffer, tile: Tile, models: np.ndarray) -> tuple[Any, Launches]:
        """Return the tile as the filter sees it, in float32, and what makes it.

        The next tile may overwrite it. `models` are the numbers of the noise models of its frames.
        """
        values, launches = buffer, []
        if self._kernel is not None:
            count = tile.channels * math.prod(tile.source_shape)
            values = self._arena.buffer("tile in", 4 * count)
            event = self._kernel(
                *(queue, *value_grid(count, self._arena.session.device)),
                *(buffer, np.uint64(count), values),
            )
            launches.append(("to float", event))
        if self._stabilisation is not None:
            launches += self._stabilisation.forward_tile(queue, values, models, tile)
        return values, launches


@dataclass(frozen=True)
class Arriving:
    """What a tile yields, on its way to the host.

    Attributes
    ----------
    tile : Tile
        Which one.
    host : ndarray
        Where it arrives: of shape (channels, t, z, y, x), at least what is kept along Y and X.
    done : pyopencl.Event
        When.
    """

    tile: Tile
    host: np.ndarray
    done: Any


class Receiver:
    """Takes what tiles yield back from the device and makes grey levels of it.

    Small integers are rounded and clipped on the device. There a NaN becomes 0 and is not counted
    as clipped.

    Parameters
    ----------
    arena : Arena
        Keeps the buffers.
    out : Frames
        Where it goes.
    levels : Levels
        How kernel values become grey levels.
    queue : pyopencl.CommandQueue
        The one that computes.
    tiles : int
        How many there are.
    stabilisation : Stabilisation, optional
        Turns what was filtered into grey levels again.
    """

    def __init__(
        self,
        arena: Arena,
        out: Frames,
        levels: Levels,
        queue,
        tiles: int,
        stabilisation: Stabilisation | None = None,
    ):
        import pyopencl as cl

        self._stabilisation = stabilisation
        self._arena, self._out, self._levels = arena, out, levels
        self._dtype = _travels_as(out, levels)
        self._queue, self._tiles = queue, tiles
        self._kernel = self._clipped = None
        if self._dtype.kind != "f":
            constants = _constants(self._dtype, arena.session.device)
            self._kernel = arena.kernel("levels/float_to_levels", constants)
            self._clipped = arena.buffer("clipped", 4 * tiles)
            cl.enqueue_fill_buffer(queue, self._clipped, np.int32(0), 0, 4 * tiles)

    def kept(self, tile: Tile) -> tuple[int, int]:
        """Return how much of a tile is wanted along Y and X; 0 where nothing is.

        What was added by mirroring lies beyond the end and is dropped.
        """
        ends = (n + self._out.origin[2 + i] for i, n in enumerate(self._out.shape[-2:]))
        ny, nx = (
            max(min(span.stop, end) - span.start, 0)
            for span, end in zip((tile.y, tile.x), ends, strict=True)
        )
        return ny, nx

    def buffer(self, name: str, tile: Tile):
        """Return the float32 buffer that a filter is to write; `name` is that of `download`."""
        name = name if self._kernel is None else "tile out"
        return self._arena.buffer(name, 4 * tile.channels * math.prod(tile.shape))

    def as_levels(
        self, values, name: str, tile: Tile, number: int, models: np.ndarray
    ) -> tuple[Any, Launches]:
        """Return the buffer to download, and what makes it.

        `number` is that of the tile, `models` are those of the noise models of its frames.
        """
        launches: Launches = []
        if self._stabilisation is not None:
            pixels = math.prod(tile.shape[2:])
            launches += self._stabilisation.inverse(self._queue, values, models.ravel(), pixels)
        if self._kernel is None:
            return values, launches
        (ny, nx), kept = tile.shape[2:], self.kept(tile)
        frames = tile.channels * math.prod(tile.shape[:2])
        size = frames * math.prod(kept)
        buffer = self._arena.buffer(name, size * self._dtype.itemsize)
        if kept == (ny, nx):
            frames, ny, nx, kept = 1, 1, size, (1, size)  # as one row
        (across,), group = value_grid(kept[1], self._arena.session.device)
        event = self._kernel(
            *(self._queue, (across, kept[0], frames), (*group, 1, 1), values),
            *map(np.uint64, (ny, nx, *kept)),
            *(buffer, self._clipped, np.int32(number)),
        )
        return buffer, [*launches, ("to levels", event)]

    def download(self, queue, buffer, name: str, tile: Tile, after: list) -> Arriving:
        """Copy a tile to host memory that goes by `name`, after some events."""
        import pyopencl as cl

        shape = (tile.channels, *tile.shape)
        if self._kernel is not None:
            shape = (*shape[:-2], *self.kept(tile))
        host = _pinned(self._arena, name, shape, self._dtype, queue)
        done = cl.enqueue_copy(queue, host, buffer, wait_for=after, is_blocking=False)
        return Arriving(tile, host, done)

    def write(self, arriving: Arriving) -> int:
        """Wait for a tile and write it; return how many values the host clipped.

        Another thread may do so than the one that enqueues.
        """
        arriving.done.wait()
        tile = arriving.tile
        ny, nx = self.kept(tile)
        region = self._out.region(
            slice(tile.z.start, tile.z.stop),
            slice(tile.y.start, tile.y.start + ny),
            slice(tile.x.start, tile.x.start + nx),
        )
        host = arriving.host[..., :ny, :nx]
        most = _frames_at_once(self._out, self._levels)
        store = _copy if self._kernel is not None else self._levels.store
        clipped = 0
        for c in range(tile.channels):
            times = tile.t.start, tile.t.stop
            for k, block in frame_blocks(self._out, tile.sequence, *times, c, most):
                clipped += sum(in_bands(store, host[c, k : k + len(block)], block[:, *region]))
        return clipped

    def clipped(self) -> int:
        """Wait for all tiles; return how many values the device clipped."""
        import pyopencl as cl

        if self._clipped is None:
            return 0
        counts = np.empty(self._tiles, np.int32)
        cl.enqueue_copy(self._queue, counts, self._clipped)
        return int(counts.sum(dtype=np.int64))


def _travels_as(frames: Frames, levels: Levels) -> np.dtype:
    dtype = frames.view.dtype
    if levels.plain and is_plain(dtype):
        return dtype.newbyteorder("=")
    return np.dtype(np.float32)


def _constants(dtype: np.dtype, device: Device) -> dict[str, int]:
    return {
        "BITS": 8 * dtype.itemsize,
        "SIGNED": int(dtype.kind == "i"),
        "VALUES": values_together(device),
    }


def _pinned(arena: Arena, name: str, shape: tuple[int, ...], dtype: np.dtype, queue) -> np.ndarray:
    nbytes = math.prod(shape) * dtype.itemsize
    floats = arena.pinned(name, -(-nbytes // 4), queue)
    return floats.view(np.uint8)[:nbytes].view(dtype).reshape(shape)


def _frames_at_once(frames: Frames, levels: Levels) -> int | None:
    """Return how many frames may be converted at once; None where they are only copied."""
    dtype = frames.view.dtype
    if levels.plain and (is_plain(dtype) or dtype == np.float32):
        return None
    return max(1, _CONVERTED // math.prod(frames.shape[-3:]))


def _copy(values: np.ndarray, out: np.ndarray) -> int:
    np.copyto(out, values)
    return 0
