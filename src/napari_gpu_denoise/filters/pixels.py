"""Images on the device with their place in a tile and their noise, and work enqueued on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import pixel_grid
from napari_gpu_denoise.protocol.plan import Buffers, Launches
from napari_gpu_denoise.protocol.tiles import Span, Tile


@dataclass(frozen=True)
class Pixels:
    """float32 pixels on the device: those that `tile` yields."""

    buffer: Any
    tile: Tile


@dataclass(frozen=True)
class Noisy:
    """An image of shape (channels, frames, ny, nx), and the standard deviation of its noise."""

    pixels: Pixels
    levels: Any  # device buffer, float32 of shape (channels, frames)
    variation: Pixels | None = None  # map that the levels are multiplied by


def map_arguments(variation: Pixels | None, y: int, x: int) -> dict[str, Any]:
    """Return the kernel arguments of a map of sigma, if any, for an image that begins at (y, x)."""
    if variation is None or variation.buffer is None:
        return {}
    spans = variation.tile.y, variation.tile.x
    place = {"map_y": y - spans[0].start, "map_x": x - spans[1].start}
    return {"variation": variation.buffer, "map_pitch": spans[1].size, **place}


def spread(tile: Tile, around: int | Sequence[int]) -> Tile:
    """Return a tile that yields `around` more pixels, as far as what it reads allows.

    One number is for Y and X, three are for Z, Y and X.
    """

    def wider(span: Span, around: int) -> Span:
        start = max(span.start - around, span.source_start)
        stop = min(span.stop + around, span.source_stop)
        # Not by `replace`, which takes several times as long.
        return Span(start, stop, span.source_start, span.source_stop, span.length)

    if isinstance(around, int):
        return replace(tile, y=wider(tile.y, around), x=wider(tile.x, around))
    z, y, x = around
    return replace(tile, z=wider(tile.z, z), y=wider(tile.y, y), x=wider(tile.x, x))


def including_margins(tile: Tile) -> Tile:
    """Return a tile that yields all that it reads in Z, Y and X."""
    return spread(tile, tile.source_shape[1:])


def restrict_to(tile: Tile, available: Tile) -> Tile:
    """Return a tile that reads no more than another one yields in Z, Y and X."""

    def restricted(span: Span, part: Span) -> Span:
        return Span(span.start, span.stop, part.start, part.stop, span.length)

    return replace(
        tile,
        z=restricted(tile.z, available.z),
        y=restricted(tile.y, available.y),
        x=restricted(tile.x, available.x),
    )


def channels_as_frames(tile: Tile) -> Tile:
    """Return a tile of separate channels as one that has these as frames."""
    return replace(tile, t=Span.whole(tile.channels * tile.t.size), channels=1)


_NOTHING = np.zeros(1, np.int32)


class Launcher:
    """Enqueues kernels, copies and fills on one device, and lists the events of all by name.

    `held` are the buffers of the work, where these are allocated.
    """

    def __init__(self, arena: Arena, queue, held: Buffers | None = None):
        self.arena, self.device, self.queue = arena, arena.device, queue
        self.held = Buffers() if held is None else held
        self.launches: Launches = []
        self._prefix = ""

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Put a name before those of what the block enqueues."""
        self._prefix = f"{name} "
        yield
        self._prefix = ""

    def add(self, name: str, event: Any) -> None:
        """List what was enqueued."""
        self.launches.append((self._prefix + name, event))

    def run(self, name: str, kernel, size: tuple, group: tuple | None, /, **arguments) -> None:
        """Enqueue a kernel over `size` work-items in groups of `group`."""
        self.add(name, kernel(self.queue, size, group, **arguments))

    def over_pixels(self, name: str, kernel, nx: int, ny: int, count: int, /, **arguments) -> None:
        """Enqueue a kernel with a work-item for each pixel of `count` images."""
        size, group = pixel_grid(self.device, nx, ny, count)
        self.add(name, kernel(self.queue, size, group, **arguments))

    def pad(
        self,
        source,
        shape: Sequence[int],
        padded,
        padded_shape: Sequence[int],
        place: Sequence[int],
        *,
        channels: int = 1,
        split: int = 1,
        ring: tuple[int, int] | None = None,
        alike: Any = None,
        mirrored: tuple[int, Tile] | None = None,
        into: tuple[int, int] | None = None,
    ) -> None:
        """Enqueue a copy of frames of a shape (t, z, y, x) with FAR around, see search/pad_far.cl.

        They begin at a `place` (t, z, y, x) of `padded`. In each channel `ring` and `into` are the
        first slot and the number of slots, if frames are read from, or written to, some of them. As
        far as a radius outside the image, of which they are a tile, they may be `mirrored`.
        """
        (nt, nz, ny, nx), (pnt, pnz, pny, pitch) = shape, padded_shape
        constants, more = {"SPLIT": split, "ALIKE": alike is not None}, {}
        if alike is not None:
            more["alike"] = alike
        if mirrored is not None:
            constants["RADIUS"], tile = mirrored
            more |= {"tile_y": tile.y.source_start, "tile_x": tile.x.source_start}
            more |= {"length_y": tile.y.length, "length_x": tile.x.length}
        if into is not None:
            constants["RINGS"] = 1
            more |= dict(zip(("into", "slots"), into, strict=True))
        first, slots = ring or (0, nt)
        self.over_pixels(
            *("pad", self.arena.kernel("search/pad_far", constants)),
            *(pitch, pny, channels * pnt * pnz),
            **{"tile": source, "first": first, "ring": slots, "padded": padded},
            **{"nt": nt, "nz": nz, "ny": ny, "nx": nx},
            **{"pnt": pnt, "pnz": pnz, "pny": pny, "pitch": pitch},
            **dict(zip(("t0", "z0", "y0", "x0"), place, strict=True)),
            **more,
        )

    def clear(self, buffer, nbytes: int, offset: int = 0) -> None:
        """Fill a part of a buffer with 0."""
        import pyopencl as cl

        fill = cl.enqueue_fill_buffer(self.queue, buffer, _NOTHING, offset, nbytes)
        self.add("clear", fill)

    def store(self, source, place: int, target, slot: int, nbytes: int) -> None:
        """Copy one of several equal parts of a buffer to the place of one in another buffer."""
        import pyopencl as cl

        first, into = place * nbytes, slot * nbytes
        copied = cl.enqueue_copy(
            self.queue, target, source, byte_count=nbytes, src_offset=first, dst_offset=into
        )
        self.add("store", copied)

    def send(self, values: np.ndarray, name: str):
        """Copy a small float32 array to a buffer that does not hold it yet; return the buffer."""
        import pyopencl as cl

        array = np.ascontiguousarray(values, np.float32)
        buffer, known = self.held[name], array.tobytes()
        # Most tables are the same for frame after frame, and a driver may wait for the device.
        if self.held.sent.get(name) != known:
            self.held.sent[name] = known
            # On a CPU there is nothing to gain by not waiting; else the event keeps the array.
            blocking = self.device.shares_cores
            self.add("tables", cl.enqueue_copy(self.queue, buffer, array, is_blocking=blocking))
        return buffer
