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
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.tiles import Reach, Span, Tile, split


class Plan(Protocol):
    """Programs and buffers of one filter on one device; belongs to one thread."""

    def enqueue(self, queue, tile: Tile, source, out, sigma) -> list[tuple[str, Any]]:
        """Enqueue the filter for one tile; return the launches by name."""


class Filter(Protocol):
    """What a settings dataclass in `FILTERS` offers to be run.

    Attributes
    ----------
    name, title, summary : str
        For programs, for people, and one line more.
    joint : str
        Which of the axes T and Z are filtered together with Y and X.
    smallest : int
        Least height and width; shorter frames are extended by mirroring.
    reach : Reach
        How far around a pixel the filter looks.
    bytes_per_pixel, operations_per_pixel : float
        Device memory and arithmetic a pixel of a tile needs.
    """

    name: str
    title: str
    summary: str
    joint: str
    smallest: int
    reach: Reach
    bytes_per_pixel: float
    operations_per_pixel: float

    def plan(self, arena: Arena) -> Plan:
        """Return a plan that keeps its buffers in `arena`."""


@dataclass(frozen=True)
class Progress:
    """How many tiles of how many are done."""

    done: int
    total: int


# Pixels a tile reads at most. On a GPU a few tiles an image let transfers overlap with compute; on
# a CPU a tile is also how often progress moves and a cancel is heard.
_LARGEST_TILE = {"CPU": 1 << 18, "simulator": 1 << 16}
_LARGEST_GPU_TILE = 1 << 22
_SMALLEST_TILE = 1 << 12

# Seconds a launch may take, far below what makes a display driver kill it.
_LAUNCH_SECONDS = 0.05

# Seconds a tile may take on a CPU: how long a cancel may go unheard.
_TILE_SECONDS = 0.25


def tile_pixels(
    settings: Filter, device: Device, pixels: int, memory_limit: int | None = None
) -> int:
    """Return how many pixels a tile may read.

    Parameters
    ----------
    settings : Filter
        Tells memory and operations a pixel.
    device : Device
        Its kind, speed and memory.
    pixels : int
        Size of the whole array: small work is not given large buffers.
    memory_limit : int, optional
        Bytes of device memory to stay within.
    """
    each = settings.bytes_per_pixel + 16
    # Six images' worth of float32 beside the two copies in flight, and never a large share of the
    # device: other programs, the display first of all, live there too.
    budget = min(device.memory // 2, max(24 * pixels, 1 << 26))
    if memory_limit is not None:
        budget = min(budget, memory_limit)
    limit = min(budget / each, device.max_alloc / max(settings.bytes_per_pixel, 4.0))
    limit = min(limit, _LARGEST_TILE.get(device.kind, _LARGEST_GPU_TILE))
    return max(int(limit), 1)


def tile_yield(settings: Filter, device: Device) -> int:
    """Return how many pixels a tile may yield, so that its launches take no longer than they may.

    Parameters
    ----------
    settings : Filter
        Tells operations a pixel.
    device : Device
        Its kind and speed.
    """
    # Operations a clock and unit: a tenth of the peak, what a poor driver reaches (Intel's GPUs
    # count small units); on a CPU, where no display waits, what is reached.
    seconds, per_clock = _LAUNCH_SECONDS, 1.6 if "intel" in device.vendor.lower() else 12.8
    if device.kind in _LARGEST_TILE:
        seconds, per_clock = _TILE_SECONDS, 4.0
    speed = per_clock * device.compute_units * max(device.clock, 500) * 1e6
    return max(int(seconds * speed / settings.operations_per_pixel), _SMALLEST_TILE)


@dataclass
class _Slot:
    """One tile in flight."""

    number: int
    tile: Tile | None = None
    host_out: np.ndarray | None = None
    sigma: np.ndarray | None = None
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
        self, tiles: list[Tile], source: Frames, out: Frames, levels: Levels, sigmas: np.ndarray
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
                    self._start(self.slots[0], tile, source, levels, sigmas)
                    saturated += self._finish(self.slots[0], out, levels)
                done += 1
                yield done
                continue
            if len(flying) == len(self.slots):
                saturated += self._finish(flying.popleft(), out, levels)
                done += 1
                yield done
            slot = self.slots[number % len(self.slots)]
            self._start(slot, tile, source, levels, sigmas)
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

    def _start(self, slot, tile: Tile, source: Frames, levels: Levels, sigmas) -> None:
        import pyopencl as cl

        count, size = math.prod(tile.source_shape), math.prod(tile.shape)
        name = f"slot {slot.number} "
        host = self.arena.pinned(name + "in", count, self.up).reshape(tile.source_shape)
        slot.host_out = self.arena.pinned(name + "out", size, self.up).reshape(tile.shape)
        region = source.region(
            *(slice(s.source_start, s.source_stop) for s in (tile.z, tile.y, tile.x))
        )
        for k, t in enumerate(range(tile.t.source_start, tile.t.source_stop)):
            in_bands(levels.load, source.frame(tile.sequence, t)[region], host[k])
        # One sigma a frame yielded, in the units the kernels see.
        per_frame = [
            sigmas[source.channel(tile.sequence, t)] for t in range(tile.t.start, tile.t.stop)
        ]
        sigma = np.repeat(np.asarray(per_frame, np.float64) / levels.scale, tile.z.size)
        slot.sigma = np.ascontiguousarray(sigma, np.float32)

        buffer_in = self.arena.buffer(name + "in", 4 * count)
        buffer_out = self.arena.buffer(name + "out", 4 * size)
        buffer_sigma = self.arena.buffer(name + "sigma", slot.sigma.nbytes)
        uploads = [
            cl.enqueue_copy(self.up, buffer_in, host, is_blocking=False),
            cl.enqueue_copy(self.up, buffer_sigma, slot.sigma, is_blocking=False),
        ]
        if self.up is not self.compute:
            self.up.flush()
            cl.enqueue_barrier(self.compute, wait_for=uploads)
        launches = self.plan.enqueue(self.compute, tile, buffer_in, buffer_out, buffer_sigma)
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
        for k, t in enumerate(range(tile.t.start, tile.t.stop)):
            frame = out.frame(tile.sequence, t)[region]
            saturated += sum(in_bands(levels.store, kept[k], frame))
        return saturated


def execute(
    source: Frames,
    out: Frames,
    levels: Levels,
    settings: Filter,
    sigmas: tuple[float, ...],
    session: Session,
    memory_limit: int | None = None,
    part: tuple[Span, Span, Span, Span] | None = None,
) -> Generator[Progress, None, int]:
    """Filter `source` into `out`; when the device runs out of memory, again with smaller tiles.

    With `part` given, `source` and `out` are that part of larger arrays.

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
    per_channel = np.asarray(sigmas if len(sigmas) > 1 else sigmas * source.channels, np.float64)
    shape = source.shape
    whole = math.prod(shape)
    needed = math.ceil(min(_SMALLEST_TILE, whole) * (settings.bytes_per_pixel + 16))
    if memory_limit is not None and memory_limit < needed:
        raise DeviceMemoryError(
            f"A memory limit of {memory_limit} bytes is too little for a tile of this work: "
            f"allow at least {needed}."
        )
    pixels = min(tile_pixels(settings, session.device, whole, memory_limit), whole)
    most = tile_yield(settings, session.device)
    while True:
        tiles = split(shape, settings.reach, pixels, part, most)
        yield Progress(0, len(tiles))
        try:
            with device_errors(session), borrow(session) as arena:
                pipeline = Pipeline(session, arena, settings)
                run = pipeline.run(tiles, source, out, levels, per_channel)
                try:
                    while True:
                        yield Progress(next(run), len(tiles))
                except StopIteration as end:
                    return end.value
                finally:
                    pipeline.drain()
        except DeviceMemoryError as error:
            smaller = tiles
            while smaller == tiles and pixels > _SMALLEST_TILE:
                pixels //= 2
                smaller = split(shape, settings.reach, pixels, part, most)
            if smaller == tiles:
                raise DeviceMemoryError(
                    f"{session.device} has too little free memory even for tiles of {pixels} "
                    "pixels: close other programs, use a smaller window, or choose another device."
                ) from error
