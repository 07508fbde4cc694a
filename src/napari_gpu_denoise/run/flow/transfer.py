"""Upload pixels and download results; 8- and 16-bit integers are converted on the device.

A CPU takes longer to convert a frame than a GPU to filter it, and a byte transfers four times as
fast as a float.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from napari_gpu_denoise.image.axes import Frames
from napari_gpu_denoise.image.levels import Levels, convert, is_plain
from napari_gpu_denoise.image.threads import in_bands
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import value_grid, values_per_item
from napari_gpu_denoise.protocol.plan import Launches
from napari_gpu_denoise.protocol.tiles import Tile
from napari_gpu_denoise.run.flow.work import Queues, Work

# Most pixels converted on the host at once, so that intermediate arrays stay in the cache.
_CONVERTED = 1 << 20
_FLOAT = np.dtype(np.float32)
_ALIGNED = 4096  # bytes at which a part of a buffer may begin on any device


def _travels_as(frames: Frames, levels: Levels) -> np.dtype:
    """Return the type in which frames travel: their own, if they are not converted here."""
    dtype = frames.view.dtype
    return dtype.newbyteorder("=") if levels.plain and is_plain(dtype) else _FLOAT


class Transfer:
    """Buffers and conversions for the pixels of one flow.

    Integers of 8 and 16 bits are converted on the device. Results are rounded and clipped there;
    NaN becomes 0 and does not count as clipped. At most `given` values of a work are uploaded at
    once, and `made` downloaded, with `counts` numbers of clipped values.
    """

    def __init__(self, arena: Arena, work: Work, given: int, made: int, counts: int = 1):
        self._arena, self._device = arena, arena.session.device
        self._given, self._made = given, made
        self._upload = _travels_as(work.source, work.levels)
        self._download = _travels_as(work.out, work.out_levels)
        self._load = self._kernel("levels_to_float", self._upload)
        self._store = self._kernel("float_to_levels", self._download)
        # Bytes of counts, by name what was counted so far, and the parts of buffers.
        self._head = 0 if self._store is None else -(-4 * counts // _ALIGNED) * _ALIGNED
        self._clipped: dict[str, np.ndarray] = {}
        self._parts: dict[str, tuple[Any, Any, Any]] = {}

    def _kernel(self, name: str, dtype: np.dtype) -> Any:
        """Return the kernel that converts integers; None for floats, which stay as they are."""
        if dtype.kind == "f":
            return None
        constants = {"BITS": 8 * dtype.itemsize, "SIGNED": int(dtype.kind == "i")}
        constants["VALUES"] = values_per_item(self._device)
        return self._arena.kernel(f"levels/{name}", constants)

    def room(self, name: str, shape: tuple[int, ...], queue) -> np.ndarray:
        """Return host memory for pixels to upload."""
        whole = pinned_of(self._arena, name, (self._given,), self._upload, queue)
        return whole[: math.prod(shape)].reshape(shape)

    def send(
        self, queues: Queues, name: str, pixels: np.ndarray, uploads: Sequence[Any] = ()
    ) -> tuple[Any, Launches]:
        """Copy pixels, contiguous host memory, to the device; return them as float32.

        They stay so until the next are sent. The buffer and the host memory of this name must not
        be in use. The first of the launches is the upload; kernels wait for it and for `uploads`.
        """
        import pyopencl as cl

        buffer = self._arena.buffer(name, self._upload.itemsize * self._given)
        upload = cl.enqueue_copy(queues.up, buffer, pixels, is_blocking=False)
        queues.after_upload([upload, *uploads])
        launches = [("upload", upload)]
        if self._load is None:
            return buffer, launches
        values = self._arena.buffer("pixels in", 4 * self._given)
        grid, count = value_grid(pixels.size, self._device), pixels.size
        event = self._load(queues.compute, *grid, levels=buffer, count=count, values=values)
        return values, [*launches, ("to float", event)]

    def result(self, name: str):
        """Return the float32 buffer for the filter to write; `name` as in `fetch`."""
        return self._arena.buffer(name if self._store is None else "pixels out", 4 * self._made)

    def fetch(
        self,
        queues: Queues,
        values,
        names: tuple[str, str],
        shape: tuple[int, ...],
        kept: tuple[int, int],
        planes: int,
        launches: Launches,
    ) -> tuple[np.ndarray, np.ndarray | None, Any]:
        """Copy results, float32 of a shape (…, ny, nx), to host memory after some launches.

        `names` are those of their buffer and of the memory. Of integers only the `kept` rows and
        columns travel, with counts of clipped values, each of so many `planes`; floats are clipped
        when they are stored. Returns the pixels, the counts for `clipped`, and the event after
        which both are there; launches are added to those given.
        """
        import pyopencl as cl

        name, room = names
        if self._store is not None:
            values, event = self._as_levels(queues.compute, values, name, shape, kept, planes)
            launches.append(("to levels", event))
            shape = *shape[:-2], *kept
        queues.compute.flush()
        dtype = self._download
        place = room, (self._head + self._made * dtype.itemsize,), np.dtype(np.uint8)
        size = self._head + math.prod(shape) * dtype.itemsize
        whole = pinned_of(self._arena, *place, queues.down)[:size]
        after = [launches[-1][1]]
        event = cl.enqueue_copy(queues.down, whole, values, wait_for=after, is_blocking=False)
        queues.down.flush()
        launches.append(("download", event))
        counts = whole[: self._head].view(np.int32) if self._head else None
        return whole[self._head :].view(dtype).reshape(shape), counts, event

    def _as_levels(
        self, queue, values, name: str, shape: tuple[int, ...], kept: tuple[int, int], planes: int
    ) -> tuple[Any, Any]:
        """Convert results to integers; return the buffer to download and the event."""
        whole, counts, levels = self._counted(queue, name)
        *stack, ny, nx = shape
        count = math.prod(stack)
        if kept == (ny, nx):  # as few long rows
            count, kept, planes = count // planes, (1, planes * ny * nx), 1
            ny, nx = kept
        (across,), group = value_grid(kept[1], self._device)
        event = self._store(
            *(queue, (across, kept[0], count), (*group, 1, 1)),
            **{"values": values, "ny": ny, "nx": nx, "kept_y": kept[0], "kept_x": kept[1]},
            **{"levels": levels, "clipped": counts, "tile": 0, "planes": planes},
        )
        return whole, event

    def _counted(self, queue, name: str) -> tuple[Any, Any, Any]:
        """Return a buffer for results, its first part for counts, and the other for pixels.

        One buffer, as NVIDIA's driver waits for the device wherever a few bytes are copied.
        """
        import pyopencl as cl

        size = self._download.itemsize * self._made
        whole = self._arena.buffer(name, self._head + size)
        if name not in self._parts:
            counts = whole.get_sub_region(0, self._head)
            levels = whole.get_sub_region(self._head, size)
            # Once: filling a buffer would stop the device each time.
            cl.enqueue_fill_buffer(queue, whole, np.zeros(1, np.int32), 0, self._head)
            self._parts[name] = whole, counts, levels
            self._clipped[name] = np.zeros(self._head // 4, np.int32)
        return self._parts[name]

    def clipped(self, name: str, counts: np.ndarray | None) -> np.ndarray | None:
        """Return how many values were clipped in a download of the buffer of a name, if known."""
        if counts is None:
            return None
        new = counts - self._clipped[name]
        self._clipped[name] = counts.copy()
        return new


def read_frames(work: Work, tile: Tile, start: int, stop: int, host: np.ndarray) -> None:
    """Copy what a tile reads of the frames of some times to host memory, as it travels."""
    source, levels = work.source, work.levels
    region, most = source.region(*tile.source_region), converted_at_once(source, levels)
    for c in range(tile.channels):
        for k, block in frame_blocks(source, tile.sequence, start, stop, c, most):
            in_bands(levels.load, block[:, *region], host[c, k : k + len(block)])


def write_frames(work: Work, tile: Tile, start: int, values: np.ndarray) -> int:
    """Write what is kept of what a tile yields from time `start` on.

    Values, which may be overwritten, are converted here if they came as floats. Return how many
    were clipped here.
    """
    out, levels, kept = work.out, work.out_levels, work.kept(tile)
    region, values = out.region(*tile.kept_region(*kept)), values[..., : kept[0], : kept[1]]
    store, most = partial(levels.store, spare=True), converted_at_once(out, levels)
    if values.dtype.kind != "f":
        store, most = convert, None
    clipped, stop = 0, start + values.shape[1]
    for c in range(tile.channels):
        for k, block in frame_blocks(out, tile.sequence, start, stop, c, most):
            clipped += sum(in_bands(store, values[c, k : k + len(block)], block[:, *region]))
    return clipped


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
