"""Upload tiles and download results; 8- and 16-bit integers are converted on the device.

A CPU takes longer to convert a frame than a GPU to filter it, and a byte transfers four times as
fast as a float.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.image.axes import Frames
from napari_gpu_denoise.image.levels import Levels, is_plain
from napari_gpu_denoise.image.threads import in_bands
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import value_grid, values_per_item
from napari_gpu_denoise.protocol.plan import Launches
from napari_gpu_denoise.protocol.tiles import Tile
from napari_gpu_denoise.run.flow.work import Stabilisation, Work

# Most pixels converted on the host at once, so that intermediate arrays stay in the cache.
_CONVERTED = 1 << 20


class TileTransfer:
    """Uploads what tiles read, and downloads what they yield; `arena` keeps the buffers.

    Integers of 8 and 16 bits are converted on the device. Results are rounded and clipped there, by
    the compute queue; NaN becomes 0 and does not count as clipped. `tiles` is the number of tiles.
    """

    def __init__(
        self, arena: Arena, work: Work, stabilisation: Stabilisation | None, queue, tiles: int
    ):
        import pyopencl as cl

        self._arena, self._work, self._queue, self._tiles = arena, work, queue, tiles
        self._stabilisation = stabilisation
        types = FrameTypes.of(work)
        self._given, self._made = types.given, types.made
        self._kernels = Conversion(arena, types)
        if self._kernels.store is not None:
            self._clipped = arena.buffer("clipped", 4 * tiles)
            cl.enqueue_fill_buffer(queue, self._clipped, np.int32(0), 0, 4 * tiles)

    def upload(self, queue, name: str, tile: Tile) -> tuple[Any, Any]:
        """Copy a tile to the device; return the buffer and the event.

        The buffer and the host memory of this name must not be in use.
        """
        import pyopencl as cl

        shape = (tile.channels, *tile.source_shape)
        host = pinned_of(self._arena, name, shape, self._given, queue)
        source, levels = self._work.source, self._work.levels
        region = source.region(*tile.source_region)
        times = tile.t.source_start, tile.t.source_stop
        most = converted_at_once(source, levels)
        load = levels.load if self._kernels.load is None else copy_as_is
        for c in range(tile.channels):
            for k, block in frame_blocks(source, tile.sequence, *times, c, most):
                in_bands(load, block[:, *region], host[c, k : k + len(block)])
        buffer = self._arena.buffer(name, host.nbytes)
        return buffer, cl.enqueue_copy(queue, buffer, host, is_blocking=False)

    def as_float(self, queue, buffer, tile: Tile, models: np.ndarray) -> tuple[Any, Launches]:
        """Return the float32 tile for the filter, and the launches that make it.

        The next tile may overwrite it. `models` are the numbers of the noise models of its frames.
        """
        values, launches = buffer, []
        if self._kernels.load is not None:
            count = tile.channels * math.prod(tile.source_shape)
            values = self._arena.buffer("tile in", 4 * count)
            launches += self._kernels.as_float(queue, buffer, count, values)
        if self._stabilisation is not None:
            launches += self._stabilisation.forward_tile(queue, values, models, tile)
        return values, launches

    def buffer(self, name: str, tile: Tile):
        """Return the float32 buffer for the filter to write; `name` as in `download`."""
        name = name if self._kernels.store is None else "tile out"
        return self._arena.buffer(name, 4 * tile.channels * math.prod(tile.shape))

    def as_levels(
        self, values, name: str, tile: Tile, number: int, models: np.ndarray
    ) -> tuple[Any, Launches]:
        """Return the buffer to download, and the launches that make it.

        `number` is that of the tile; `models` are the numbers of the noise models of its frames.
        """
        launches: Launches = []
        if self._stabilisation is not None:
            pixels = math.prod(tile.shape[2:])
            launches += self._stabilisation.inverse(self._queue, values, models.ravel(), pixels)
        if self._kernels.store is None:
            return values, launches
        kept, planes = self._work.kept(tile), tile.channels * math.prod(tile.shape[:2])
        buffer = self._arena.buffer(name, planes * math.prod(kept) * self._made.itemsize)
        stack = planes, *tile.shape[2:]
        counted = self._clipped, planes, number
        launches += self._kernels.as_levels(self._queue, values, stack, kept, buffer, *counted)
        return buffer, launches

    def download(self, queue, buffer, name: str, tile: Tile, after: list) -> tuple[np.ndarray, Any]:
        """Copy a tile to host memory of this name after some events; return both and the event.

        The memory has the shape (channels, t, z, y, x), with all kept pixels along y and x.
        """
        import pyopencl as cl

        shape = (tile.channels, *tile.shape)
        if self._kernels.store is not None:
            shape = (*shape[:-2], *self._work.kept(tile))
        host = pinned_of(self._arena, name, shape, self._made, queue)
        return host, cl.enqueue_copy(queue, host, buffer, wait_for=after, is_blocking=False)

    def write(self, tile: Tile, host: np.ndarray, done) -> int:
        """Wait for a download and write the tile, in any thread; return the values clipped here."""
        done.wait()
        ny, nx = self._work.kept(tile)
        out, levels = self._work.out, self._work.out_levels
        region = out.region(*tile.kept_region(ny, nx))
        host = host[..., :ny, :nx]
        most = converted_at_once(out, levels)
        store = levels.store if self._kernels.store is None else copy_as_is
        clipped = 0
        for c in range(tile.channels):
            times = tile.t.start, tile.t.stop
            for k, block in frame_blocks(out, tile.sequence, *times, c, most):
                clipped += sum(in_bands(store, host[c, k : k + len(block)], block[:, *region]))
        return clipped

    def clipped(self) -> int:
        """Wait for all tiles; return how many values were clipped on the device."""
        import pyopencl as cl

        if self._kernels.store is None:
            return 0
        counts = np.empty(self._tiles, np.int32)
        cl.enqueue_copy(self._queue, counts, self._clipped)
        return int(counts.sum(dtype=np.int64))


def frame_blocks(
    frames: Frames, sequence: int, start: int, stop: int, channel: int, most: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """View the frames from time `start` to `stop` as few arrays, so that small ones are one copy.

    Yield how many frames came before, and the next ones, (count, nz, ny, nx), `most` at a time.
    """
    # Frames lie along time, or along the last of the independent axes.
    stack = frames.view[..., channel, :, :, :, :]
    if "T" not in frames.joint:
        stack = stack[..., 0, :, :, :] if frames.independent else stack
    *outer, length = stack.shape[:-3]
    at = first = sequence * length + start - frames.origin[0]
    while at < first + stop - start:
        row, place = divmod(at, length)
        count = min(first + stop - start - at, length - place, most or length)
        where = np.unravel_index(row, outer) if outer else ()
        yield at - first, stack[(*where, slice(place, place + count))]
        at += count


def transfer_dtype(frames: Frames, levels: Levels) -> np.dtype:
    """Return the type in which frames travel: as they are, if they are not converted here."""
    dtype = frames.view.dtype
    if levels.plain and is_plain(dtype):
        return dtype.newbyteorder("=")
    return np.dtype(np.float32)


class Conversion:
    """Kernels that convert integers to float32 and back; None for floats, which stay as they are.

    `load` converts what is given, `store` what is made.
    """

    def __init__(self, arena: Arena, types: FrameTypes):
        self._device = arena.session.device
        self.load = self._kernel(arena, "levels_to_float", types.given)
        self.store = self._kernel(arena, "float_to_levels", types.made)

    def _kernel(self, arena: Arena, name: str, dtype: np.dtype) -> Any:
        if dtype.kind == "f":
            return None
        constants = {"BITS": 8 * dtype.itemsize, "SIGNED": int(dtype.kind == "i")}
        return arena.kernel(
            f"levels/{name}", {**constants, "VALUES": values_per_item(self._device)}
        )

    def as_float(self, queue, levels, count: int, values) -> Launches:
        """Convert so many values."""
        grid = value_grid(count, self._device)
        return [("to float", self.load(queue, *grid, levels=levels, count=count, values=values))]

    def as_levels(
        self,
        queue,
        values,
        stack: tuple[int, int, int],
        kept: tuple[int, int],
        levels,
        clipped,
        planes: int,
        first: int = 0,
    ) -> Launches:
        """Round the `kept` rows and columns of planes, of which `stack` has number, rows, columns.

        Clipped values are counted together for so many `planes`, from `first` on in `clipped`.
        """
        count, ny, nx = stack
        if kept == (ny, nx):  # as few long rows
            count, ny, nx, planes = count // planes, 1, planes * ny * nx, 1
            kept = ny, nx
        (across,), group = value_grid(kept[1], self._device)
        grid = (across, kept[0], count), (*group, 1, 1)
        sizes = {"ny": ny, "nx": nx, "kept_y": kept[0], "kept_x": kept[1]}
        counted = {"clipped": clipped, "tile": first, "planes": planes}
        event = self.store(queue, *grid, values=values, levels=levels, **sizes, **counted)
        return [("to levels", event)]


def pinned_of(
    arena: Arena, name: str, shape: tuple[int, ...], dtype: np.dtype, queue
) -> np.ndarray:
    """Return pinned host memory for an array."""
    nbytes = math.prod(shape) * dtype.itemsize
    floats = arena.pinned(name, -(-nbytes // 4), queue)
    return floats.view(np.uint8)[:nbytes].view(dtype).reshape(shape)


def converted_at_once(frames: Frames, levels: Levels) -> int | None:
    """Return how many frames may be converted at once; None if they are only copied."""
    dtype = frames.view.dtype
    if levels.plain and (is_plain(dtype) or dtype == np.float32):
        return None
    return max(1, _CONVERTED // math.prod(frames.shape[-3:]))


def copy_as_is(values: np.ndarray, out: np.ndarray) -> int:
    """Copy values; none is clipped."""
    np.copyto(out, values)
    return 0


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
    def of(cls, work: Work, tile: Tile | None = None) -> FrameTypes:
        """Return the types for the frames of a work, or for a part of them."""
        given, made = (
            transfer_dtype(frames, levels)
            for frames, levels in ((work.source, work.levels), (work.out, work.out_levels))
        )
        return cls(given, made, tile and work.kept(tile))


class FrameTransfer:
    """Buffers and conversions for the frames of one flow; at most `batch` travel at once."""

    def __init__(self, arena: Arena, types: FrameTypes, tile: Tile, batch: int):
        self._arena = arena
        self._given, self._made = types.given, types.made
        self._tile = tile
        self._most = tile.channels * batch
        ny, nx = tile.shape[2:]
        # Values of the host are float32 unless they are kept as they are: no rows are left out.
        self._kept = (ny, nx) if types.kept is None or self._made.kind == "f" else types.kept
        self._kernels = Conversion(arena, types)
        # Bytes of counts, by name what was counted so far, and the parts of buffers.
        self._head = -(-4 * self._most // _ALIGNED) * _ALIGNED
        self._clipped: dict[str, np.ndarray] = {}
        self._parts: dict[str, tuple[Any, Any, Any]] = {}

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
        if self._kernels.load is None:
            return buffer, []
        most = self._most * math.prod(self._tile.source_shape[1:])
        values = self._arena.buffer("frames in", 4 * most)
        return values, self._kernels.as_float(queue, buffer, count, values)

    def result(self, name: str):
        """Return the float32 buffer for the filter to write; `name` as in `download`."""
        name = name if self._kernels.store is None else "frames out"
        return self._arena.buffer(name, 4 * self._most * math.prod(self._tile.shape[1:]))

    def as_levels(self, queue, values, name: str, count: int) -> tuple[Any, Launches]:
        """Return a buffer to download, with `count` frames of each channel as they travel.

        Before them it has counts of clipped values; not of floats, which are clipped when they are
        stored.
        """
        if self._kernels.store is None:
            return values, []
        nz, ny, nx = self._tile.shape[1:]
        kept, stack = self._kept, (self._tile.channels * count * nz, ny, nx)
        whole, counts, levels = self._counted(queue, name, self._most * nz * math.prod(kept))
        return whole, self._kernels.as_levels(queue, values, stack, kept, levels, counts, nz)

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

        tile, head = self._tile, 0 if self._kernels.store is None else self._head
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
