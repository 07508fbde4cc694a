"""Move frames tile by tile through a device: upload, compute and download overlap."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from napari_gpu_denoise.axes import Frames, Levels
from napari_gpu_denoise.bands import in_bands
from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.sigma import FrameSigma
from napari_gpu_denoise.tile_sizes import (
    SMALLEST_TILE,
    Cost,
    bytes_per_pixel,
    tile_pixels,
    tile_yield,
)
from napari_gpu_denoise.tiles import Span, Tile, split


@dataclass(frozen=True)
class TileSigma:
    """Noise standard deviation of a tile, on the device, in the units of its pixels.

    Attributes
    ----------
    levels : pyopencl.Buffer
        float32 of shape (channels, nt * nz): one value for each frame yielded.
    variation : pyopencl.Buffer or None
        Of a map: float32 of shape (source ny, source nx), over all that the tile reads. Sigma of a
        pixel is the level of its frame times this, which is 0 to 1. None where sigma is the same
        all over a frame.
    """

    levels: Any
    variation: Any = None


class Plan(Protocol):
    """Programs and buffers of one filter on one device; belongs to one thread."""

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> list[tuple[str, Any]]:
        """Enqueue the filter for one tile; return the launches by name.

        `source` and `out` are float32 of shape ``(tile.channels, *tile.source_shape)`` and
        ``(tile.channels, *tile.shape)``.
        """


class Filter(Cost, Protocol):
    """What a settings dataclass in `FILTERS` offers to be run.

    Attributes
    ----------
    name, title, summary : str
        For programs, for people, and one line more.
    joint : str
        Which of the axes T and Z are filtered together with Y and X; C for the channels, be their
        axis named C or S.
    smallest : int
        Least height and width; shorter frames are extended by mirroring.

    Notes
    -----
    A filter whose settings depend on the array, such as which channels it joins, also has a method
    ``for_array(names, shape)`` that returns the settings that apply to axes of these names and
    lengths. `prepare.settings_for` calls it.
    """

    name: str
    title: str
    summary: str
    joint: str
    smallest: int

    def plan(self, arena: Arena) -> Plan:
        """Return a plan that keeps its buffers in `arena`."""


@dataclass(frozen=True)
class Progress:
    """How many parts of how many are done: tiles, or of a filter over time frames."""

    done: int
    total: int
    unit: str = "tile"


@dataclass
class _Slot:
    """One tile in flight."""

    number: int
    tile: Tile | None = None
    host_out: np.ndarray | None = None
    sigma: tuple[np.ndarray, np.ndarray | None] | None = None
    done: Any = None


class Pipeline:
    """Runs a filter over frames on one device, from one thread.

    Parameters
    ----------
    session : Session
        Device to run on.
    arena : Arena
        Keeps the buffers.
    settings : Filter
        What to run.
    profiling : bool, optional
        Whether to keep the events of every launch in `events`.
    """

    def __init__(self, session: Session, arena: Arena, settings: Filter, profiling: bool = False):
        self.arena = arena
        self.plan = settings.plan(arena)
        # On a CPU transfers and compute share the same cores: one queue does as well. It has no
        # core to spare for a second run, and PoCL aborts when 16 threads enqueue at once.
        alone = self.alone = session.device.kind in ("CPU", "simulator")
        self.turn = session.turn
        self.compute = session.queue(profiling)
        self.up = self.compute if alone else session.queue(profiling)
        self.down = self.compute if alone else session.queue(profiling)
        self.slots = [_Slot(k) for k in range(1 if alone else 2)]
        self.profiling = profiling
        self.events: list[tuple[str, Any]] = []

    def run(
        self, tiles: list[Tile], source: Frames, out: Frames, levels: Levels, sigma: FrameSigma
    ) -> Generator[int, None, int]:
        """Filter `source` into `out`, tile by tile.

        Yields
        ------
        int
            Number of tiles done, after each.

        Returns
        -------
        int
            Number of values clipped to the range of the output.
        """
        saturated, done = 0, 0
        flying: deque[_Slot] = deque()
        for number, tile in enumerate(tiles):
            if self.alone:
                with self.turn:
                    self._start(self.slots[0], tile, source, levels, sigma)
                    saturated += self._finish(self.slots[0], out, levels)
                done += 1
                yield done
                continue
            if len(flying) == len(self.slots):
                saturated += self._finish(flying.popleft(), out, levels)
                done += 1
                yield done
            slot = self.slots[number % len(self.slots)]
            self._start(slot, tile, source, levels, sigma)
            flying.append(slot)
        while flying:
            saturated += self._finish(flying.popleft(), out, levels)
            done += 1
            yield done
        return saturated

    def drain(self) -> None:
        """Wait until the device is idle, so that buffers may go."""
        for queue in {self.up, self.compute, self.down}:
            queue.finish()

    def _start(self, slot, tile: Tile, source: Frames, levels: Levels, sigma: FrameSigma) -> None:
        import pyopencl as cl

        shape, source_shape = ((tile.channels, *s) for s in (tile.shape, tile.source_shape))
        count, size = math.prod(source_shape), math.prod(shape)
        name = f"slot {slot.number} "
        host = self.arena.pinned(name + "in", count, self.up).reshape(source_shape)
        slot.host_out = self.arena.pinned(name + "out", size, self.up).reshape(shape)
        region = source.region(
            *(slice(s.source_start, s.source_stop) for s in (tile.z, tile.y, tile.x))
        )
        for c in range(tile.channels):
            for k, t in enumerate(range(tile.t.source_start, tile.t.source_stop)):
                in_bands(levels.load, source.frame(tile.sequence, t, c)[region], host[c, k])
        slot.sigma = sigma.levels(tile, levels.scale), sigma.variation(tile)

        buffer_in = self.arena.buffer(name + "in", 4 * count)
        buffer_out = self.arena.buffer(name + "out", 4 * size)
        uploads = [cl.enqueue_copy(self.up, buffer_in, host, is_blocking=False)]
        held = []
        for part, array in zip((" levels", " variation"), slot.sigma, strict=True):
            buffer = None
            if array is not None:
                buffer = self.arena.buffer(name + "sigma" + part, array.nbytes)
                uploads.append(cl.enqueue_copy(self.up, buffer, array, is_blocking=False))
            held.append(buffer)
        tile_sigma = TileSigma(*held)
        if self.up is not self.compute:
            self.up.flush()
            cl.enqueue_barrier(self.compute, wait_for=uploads)
        launches = self.plan.enqueue(self.compute, tile, buffer_in, buffer_out, tile_sigma)
        self.compute.flush()
        slot.done = cl.enqueue_copy(
            self.down, slot.host_out, buffer_out, wait_for=[launches[-1][1]], is_blocking=False
        )
        self.down.flush()
        slot.tile = tile
        if self.profiling:
            self.events += [("upload", uploads[0]), *launches, ("download", slot.done)]

    def _finish(self, slot: _Slot, out: Frames, levels: Levels) -> int:
        slot.done.wait()
        tile, saturated = slot.tile, 0
        # What was added by mirroring lies beyond the end and is dropped.
        y_stop = min(tile.y.stop, out.origin[2] + out.shape[-2])
        x_stop = min(tile.x.stop, out.origin[3] + out.shape[-1])
        if tile.y.start >= y_stop or tile.x.start >= x_stop:
            return 0
        region = out.region(
            slice(tile.z.start, tile.z.stop),
            slice(tile.y.start, y_stop),
            slice(tile.x.start, x_stop),
        )
        kept = slot.host_out[..., : y_stop - tile.y.start, : x_stop - tile.x.start]
        for c in range(tile.channels):
            for k, t in enumerate(range(tile.t.start, tile.t.stop)):
                frame = out.frame(tile.sequence, t, c)[region]
                saturated += sum(in_bands(levels.store, kept[c, k], frame))
        return saturated


def execute(
    source: Frames,
    out: Frames,
    levels: Levels,
    settings: Filter,
    sigma: FrameSigma,
    session: Session,
    memory_limit: int | None = None,
    part: tuple[Span, Span, Span, Span] | None = None,
) -> Generator[Progress, None, int]:
    """Filter `source` into `out`; when the device runs out of memory, again with smaller tiles.

    `sigma` is arranged as `source` is. With `part` given, all are that part of larger arrays.

    Yields
    ------
    Progress
        Before the first tile and after each.

    Returns
    -------
    int
        Number of values clipped to the range of the output.

    Raises
    ------
    DeviceMemoryError
        If even the smallest tile does not fit, or `memory_limit` is too little for it.
    """
    shape, channels = source.shape, source.joined
    whole = channels * math.prod(shape)
    each = bytes_per_pixel(settings, sigma.is_map)
    needed = math.ceil(min(SMALLEST_TILE, whole) * each)
    if memory_limit is not None and memory_limit < needed:
        raise DeviceMemoryError(
            f"A memory limit of {memory_limit} bytes is too little for a tile of this work: "
            f"allow at least {needed}."
        )
    pixels = tile_pixels(
        settings, session.device, whole, memory_limit, channels, is_map=sigma.is_map
    )
    pixels = min(pixels, whole)
    most = tile_yield(settings, session.device)
    while True:
        tiles = split(shape, settings.reach, pixels, part, most, channels)
        yield Progress(0, len(tiles))
        try:
            with device_errors(session), borrow(session) as arena:
                pipeline = Pipeline(session, arena, settings)
                run = pipeline.run(tiles, source, out, levels, sigma)
                try:
                    while True:
                        yield Progress(next(run), len(tiles))
                except StopIteration as end:
                    return end.value
                finally:
                    pipeline.drain()
        except DeviceMemoryError as error:
            smaller = tiles
            while smaller == tiles and pixels > SMALLEST_TILE:
                pixels //= 2
                smaller = split(shape, settings.reach, pixels, part, most, channels)
            if smaller == tiles:
                raise DeviceMemoryError(
                    f"{session.device} has too little free memory even for tiles of {pixels} "
                    "pixels: close other programs, use a smaller window, or choose another device."
                ) from error
