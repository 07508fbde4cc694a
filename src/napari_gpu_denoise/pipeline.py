"""Move frames tile by tile through a device: upload, compute and download overlap."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from napari_gpu_denoise.axes import Frames, Levels
from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.sigma import FrameSigma, sigma_unit
from napari_gpu_denoise.tile_sizes import (
    SMALLEST_TILE,
    Cost,
    bytes_per_pixel,
    tile_pixels,
    tile_yield,
)
from napari_gpu_denoise.tiles import Span, Tile, split
from napari_gpu_denoise.transfer import Arriving, Receiver, Sender


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
    models : ndarray of int32
        Of shape (channels, nt * nz), on the host: which model of noise each frame yielded has.
    """

    levels: Any
    variation: Any = None
    models: np.ndarray | None = None


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
    A filter that yields no grey levels but numbers of its own, as classes, says so by an attribute
    `yields_map`.

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


def yields_map(settings: Filter) -> bool:
    """Return whether a filter yields numbers of its own in place of grey levels."""
    return getattr(settings, "yields_map", False)


@dataclass(frozen=True)
class Progress:
    """How many parts of how many are done: tiles, or of a filter over time frames."""

    done: int
    total: int
    unit: str = "tile"


# Tiles whose results may be on their way to the output, beside the two that the device holds.
_ARRIVING = 3


@dataclass
class _Slot:
    """Buffers of one tile in flight; what was uploaded is kept until the device has it."""

    name: str
    levels: np.ndarray | None = None
    variation: np.ndarray | None = None
    seen: tuple[Span, Span] | None = None
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
        self.settings = settings
        self.yields_map = yields_map(settings)
        self.plan = settings.plan(arena)
        # On a CPU transfers and compute share the same cores: one queue does as well.
        alone = session.device.shares_cores
        self.turn = session.exclusive()
        self.compute = session.queue(profiling)
        self.up = self.compute if alone else session.queue(profiling)
        self.down = self.compute if alone else session.queue(profiling)
        self.slots = [_Slot(f"slot {k} ") for k in range(1 if alone else 2)]
        # Results are written while the next tiles are read, by a thread of their own.
        self._writer = None if alone else ThreadPoolExecutor(1, "tiles out")
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
        with self.turn:
            sender = Sender(self.arena, source, levels)
            made = Levels(0, 1.0) if self.yields_map else levels
            receiver = Receiver(self.arena, out, made, self.compute, len(tiles))
        for slot in self.slots:
            slot.seen = None
        clipped, done, started = 0, 0, 0
        flying: deque[Callable[[], int]] = deque()
        for number, tile in enumerate(tiles):
            if len(flying) == _ARRIVING:
                clipped += flying.popleft()()
                done += 1
                yield done
            if not all(receiver.kept(tile)):
                done += 1
                yield done
                continue
            with self.turn:
                arriving = self._start(number, started, tile, sender, receiver, levels, sigma)
                started += 1
                write = partial(receiver.write, arriving)
                if self._writer is not None:
                    flying.append(self._writer.submit(write).result)
                    continue
                clipped += write()
            done += 1
            yield done
        while flying:
            clipped += flying.popleft()()
            done += 1
            yield done
        with self.turn:
            return clipped + receiver.clipped()

    def drain(self) -> None:
        """Wait until nothing is under way, so that buffers may go; nothing is run after it."""
        if self._writer is not None:
            self._writer.shutdown(cancel_futures=True)
        for queue in {self.up, self.compute, self.down}:
            queue.finish()

    def _start(
        self,
        number: int,
        started: int,
        tile: Tile,
        sender: Sender,
        receiver: Receiver,
        levels: Levels,
        sigma: FrameSigma,
    ) -> Arriving:
        import pyopencl as cl

        # Buffers go by how many were started: tiles that are left out have a number, too.
        slot = self.slots[started % len(self.slots)]
        if slot.done is not None:
            slot.done.wait()
        buffer_in, upload = sender.upload(self.up, slot.name + "in", tile)
        uploads = [upload]

        def sent(name: str, array: np.ndarray | None, *, known: bool = False):
            if array is None:
                return None
            buffer = self.arena.buffer(f"{slot.name}sigma {name}", array.nbytes)
            if not known:
                uploads.append(cl.enqueue_copy(self.up, buffer, array, is_blocking=False))
            return buffer

        slot.levels = sigma.levels(tile, sigma_unit(self.settings, levels))
        # A map is the same in all planes: the tiles of a stack mostly see the same part of it.
        known = slot.seen == (tile.y, tile.x)
        if not known:
            slot.variation, slot.seen = sigma.variation(tile), (tile.y, tile.x)
        tile_sigma = TileSigma(
            sent("levels", slot.levels),
            sent("variation", slot.variation, known=known),
            sigma.models(tile),
        )
        if self.up is not self.compute:
            self.up.flush()
            cl.enqueue_barrier(self.compute, wait_for=uploads)
        values, launches = sender.as_float(self.compute, buffer_in, tile)
        out = receiver.buffer(slot.name + "out", tile)
        launches += self.plan.enqueue(self.compute, tile, values, out, tile_sigma)
        result, last = receiver.as_levels(out, slot.name + "out", tile, number)
        launches += last
        self.compute.flush()
        host = f"out {started % (1 if self._writer is None else _ARRIVING)}"
        arriving = receiver.download(self.down, result, host, tile, [launches[-1][1]])
        self.down.flush()
        slot.done = arriving.done
        if self.profiling:
            self.events += [("upload", upload), *launches, ("download", slot.done)]
        return arriving


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
                    run.close()
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
