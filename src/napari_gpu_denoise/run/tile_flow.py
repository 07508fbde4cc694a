"""Move frames tile by tile through a device: upload, compute and download overlap."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.plan import TileSigma
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.tile_sizes import (
    SMALLEST_TILE,
    check_limit,
    tile_pixels,
    tile_yield,
)
from napari_gpu_denoise.run.tiles import Span, Tile, split
from napari_gpu_denoise.run.transfer import Receiver, Sender
from napari_gpu_denoise.run.work import Queues, Stages, Work

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


class TileFlow:
    """Runs a filter over frames in memory, cut into tiles, on one device and from one thread.

    Parameters
    ----------
    work : Work
        What to filter.
    arena : Arena
        Keeps the buffers.
    shrink : int, optional
        How often the size of a tile is halved: 0 at first, more when the device lacked memory.
    profiling : bool, optional
        Whether to keep the events of every launch in `events`.

    Raises
    ------
    DeviceMemoryError
        If `work.memory_limit` is too little for the smallest tile.
    """

    unit = "tile"

    def __init__(self, work: Work, arena: Arena, shrink: int = 0, profiling: bool = False):
        self.work, self.arena = work, arena
        self.stages = Stages.of(work.filter, work.stabilised, work.signed, arena)
        self._pixels, self.tiles = self._first_tiles()
        for _ in range(shrink):
            self._pixels, self.tiles = self._smaller()
        self.turn = work.session.exclusive()
        self.queues = Queues.of(work.session, profiling)
        alone = work.session.device.shares_cores
        self.slots = [_Slot(f"slot {k} ") for k in range(1 if alone else 2)]
        # Results are written while the next tiles are read, by a thread of their own.
        self._writer = None if alone else ThreadPoolExecutor(1, "tiles out")
        self.profiling = profiling
        self.events: list[tuple[str, Any]] = []

    @property
    def can_shrink(self) -> bool:
        """Whether the tiles could be smaller."""
        return self._smaller()[1] != self.tiles

    def _first_tiles(self) -> tuple[int, list[Tile]]:
        """Cut the frames into tiles; return the pixels that one may read, and the tiles."""
        work, filter, device = self.work, self.work.filter, self.work.session.device
        channels, is_map = work.source.joined, work.sigma.is_map
        whole = channels * math.prod(work.source.shape)
        plan, limit = self.stages.plan, work.memory_limit
        check_limit(plan, filter, limit, whole, channels, is_map)
        pixels = tile_pixels(plan, filter, device, whole, limit, channels, is_map)
        pixels = min(pixels, whole)
        return pixels, self._cut(pixels)

    def _smaller(self) -> tuple[int, list[Tile]]:
        """Return the same for tiles of half the size or less; the same tiles if there are none."""
        pixels, tiles = self._pixels, self.tiles
        while tiles == self.tiles and pixels > SMALLEST_TILE:
            pixels //= 2
            tiles = self._cut(pixels)
        return pixels, tiles

    def _cut(self, pixels: int) -> list[Tile]:
        work = self.work
        most = tile_yield(work.filter, work.session.device)
        whole, channels = work.whole, work.source.joined
        return split(work.source.shape, work.filter.reach, pixels, whole, most, channels)

    def run(self) -> Generator[Progress, None, int]:
        """Filter all tiles.

        Yields
        ------
        Progress
            Before the first tile and after each.

        Returns
        -------
        int
            Number of values clipped to the range of the output.
        """
        work, queues, total = self.work, self.queues, len(self.tiles)
        yield Progress(0, total)
        made = Levels(0, 1.0) if work.filter.yields_map else work.levels
        with self.turn:
            around = self.stages.stabilisation
            sender = Sender(self.arena, work.source, work.levels, around)
            receiver = Receiver(self.arena, work.out, made, queues.compute, total, around)
        for slot in self.slots:
            slot.seen = None
        clipped, done, started = 0, 0, 0
        flying: deque[Callable[[], int]] = deque()
        for number, tile in enumerate(self.tiles):
            if len(flying) == _ARRIVING:
                clipped += flying.popleft()()
                done += 1
                yield Progress(done, total)
            if not all(receiver.kept(tile)):
                done += 1
                yield Progress(done, total)
                continue
            with self.turn:
                # Buffers go by how many were started: tiles that are left out have a number, too.
                slot = self.slots[started % len(self.slots)]
                if slot.done is not None:
                    slot.done.wait()
                buffer, upload = sender.upload(queues.up, slot.name + "in", tile)
                sigma, uploads = self._send_sigma(slot, tile)
                queues.after_upload([upload, *uploads])
                values, launches = sender.as_float(queues.compute, buffer, tile, sigma.models)
                out = receiver.buffer(slot.name + "out", tile)
                launches += self.stages.plan.enqueue(queues.compute, tile, values, out, sigma)
                result, last = receiver.as_levels(
                    out, slot.name + "out", tile, number, sigma.models
                )
                launches += last
                queues.compute.flush()
                host = f"out {started % (1 if self._writer is None else _ARRIVING)}"
                after = [launches[-1][1]]
                arriving = receiver.download(queues.down, result, host, tile, after)
                queues.down.flush()
                slot.done = arriving.done
                if self.profiling:
                    self.events += [("upload", upload), *launches, ("download", slot.done)]
                started += 1
                write = partial(receiver.write, arriving)
                if self._writer is not None:
                    flying.append(self._writer.submit(write).result)
                    continue
                clipped += write()
            done += 1
            yield Progress(done, total)
        while flying:
            clipped += flying.popleft()()
            done += 1
            yield Progress(done, total)
        with self.turn:
            return clipped + receiver.clipped()

    def close(self) -> None:
        """Wait until nothing is under way, so that buffers may go; nothing is run after it."""
        if self._writer is not None:
            self._writer.shutdown(cancel_futures=True)
        self.queues.finish()

    def too_large(self) -> str:
        """Say what the device had too little memory for."""
        return f"tiles of {self._pixels} pixels"

    def _send_sigma(self, slot: _Slot, tile: Tile) -> tuple[TileSigma, list]:
        """Upload the noise of a tile; return it, and the events to wait for."""
        import pyopencl as cl

        sigma, uploads = self.work.sigma, []

        def sent(name: str, array: np.ndarray | None, *, known: bool = False):
            if array is None:
                return None
            buffer = self.arena.buffer(f"{slot.name}sigma {name}", array.nbytes)
            if not known:
                uploads.append(cl.enqueue_copy(self.queues.up, buffer, array, is_blocking=False))
            return buffer

        slot.levels = sigma.levels(tile, self.work.levels.scale**self.work.filter.sigma_power)
        # A map is the same in all planes: the tiles of a stack mostly see the same part of it.
        known = slot.seen == (tile.y, tile.x)
        if not known:
            slot.variation, slot.seen = sigma.variation(tile), (tile.y, tile.x)
        levels = sent("levels", slot.levels)
        variation = sent("variation", slot.variation, known=known)
        return TileSigma(levels, variation, sigma.models(tile)), uploads
