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

from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.flow.tile_sizes import (
    check_limit,
    smallest_tile,
    tile_pixels,
    tile_yield,
)
from napari_gpu_denoise.run.flow.transfer import Receiver, Sender
from napari_gpu_denoise.run.flow.work import Queues, Stages, Work
from napari_gpu_denoise.run.plan import TileSigma
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.tiles import Span, Tile, split

# Tiles whose results may be on their way to the output, besides the two on the device.
_MOST_DOWNLOADS = 3


@dataclass
class _Slot:
    """Buffers of one tile in flight; what is uploaded is kept until the device has it."""

    name: str
    levels: np.ndarray | None = None
    read_levels: np.ndarray | None = None
    variation: np.ndarray | None = None
    seen: tuple[Span, Span] | None = None
    done: Any = None


class TileFlow:
    """Runs a filter over frames in memory, cut into tiles, on one device and from one thread.

    Each `shrink` halves the tiles, for a device that lacked memory; `size` says what was tried.
    With `profiling`, the events of every launch are kept in `events`.
    """

    def __init__(self, work: Work, arena: Arena, shrink: int = 0, profiling: bool = False):
        self.work, self.arena = work, arena
        self.stages = Stages.of(work, arena)
        filter, device, limit = work.filter, work.session.device, work.memory_limit
        plan, channels, is_map = self.stages.plan, work.source.joined, work.sigma.is_map
        whole = channels * math.prod(work.source.shape)
        check_limit(plan, filter, limit, work.source, is_map)
        pixels = tile_pixels(plan, filter, device, whole, limit, channels, is_map)
        self._pixels = min(pixels, whole)
        self.tiles = self._cut(self._pixels)
        for _ in range(shrink):
            self._pixels, self.tiles = self._smaller()
        self.size = f"tiles of {self._pixels} pixels"
        self.turn = work.session.exclusive()
        self.queues = Queues.of(work.session, profiling)
        alone = work.session.device.shares_cores
        self.slots = [_Slot(f"slot {k} ") for k in range(1 if alone else 2)]
        # A thread writes results while the next tiles are read.
        alone = alone or len(self.tiles) == 1
        self._writer = None if alone else ThreadPoolExecutor(1, "tiles out")
        self.profiling = profiling
        self.events: list[tuple[str, Any]] = []

    @property
    def can_shrink(self) -> bool:
        """Whether the tiles could be smaller."""
        return self._smaller()[1] != self.tiles

    def _smaller(self) -> tuple[int, list[Tile]]:
        """Return tiles of half the size or less, if possible, and the pixels that one may read."""
        pixels, tiles = self._pixels, self.tiles
        smallest = smallest_tile(self.work.filter, self.work.source)
        while tiles == self.tiles and pixels > smallest:
            pixels = max(pixels // 2, smallest)
            tiles = self._cut(pixels)
        return pixels, tiles

    def _cut(self, pixels: int) -> list[Tile]:
        work = self.work
        most = tile_yield(work.filter, work.session.device)
        whole, channels = work.whole, work.source.joined
        return split(work.source.shape, work.filter.reach, pixels, whole, most, channels)

    def run(self) -> Generator[Progress, None, int]:
        """Filter all tiles; yield before the first and after each, return the clipped values."""
        work, queues, total = self.work, self.queues, len(self.tiles)
        yield Progress(0, total)
        with self.turn:
            stabilisation = self.stages.stabilisation
            sender = Sender(self.arena, work, stabilisation)
            receiver = Receiver(self.arena, work, queues.compute, total, stabilisation)
        for slot in self.slots:
            slot.seen = None
        clipped, done, started = 0, 0, 0
        in_flight: deque[Callable[[], int]] = deque()
        for number, tile in enumerate(self.tiles):
            if len(in_flight) == _MOST_DOWNLOADS:
                clipped += in_flight.popleft()()
                done += 1
                yield Progress(done, total)
            if not all(work.kept(tile)):
                done += 1
                yield Progress(done, total)
                continue
            with self.turn:
                # Buffers are chosen by tiles started: tiles that are left out have a number, too.
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
                host = f"out {started % (1 if self._writer is None else _MOST_DOWNLOADS)}"
                after = [launches[-1][1]]
                arrived, slot.done = receiver.download(queues.down, result, host, tile, after)
                queues.down.flush()
                if self.profiling:
                    self.events += [("upload", upload), *launches, ("download", slot.done)]
                started += 1
                write = partial(receiver.write, tile, arrived, slot.done)
                if self._writer is not None:
                    in_flight.append(self._writer.submit(write).result)
                    continue
                clipped += write()
            done += 1
            yield Progress(done, total)
        while in_flight:
            clipped += in_flight.popleft()()
            done += 1
            yield Progress(done, total)
        with self.turn:
            return clipped + receiver.clipped()

    def close(self) -> None:
        """Wait until the device is idle, so that buffers can be freed; run nothing after it."""
        if self._writer is not None:
            self._writer.shutdown(cancel_futures=True)
        self.queues.finish()

    def _send_sigma(self, slot: _Slot, tile: Tile) -> tuple[TileSigma, list]:
        """Upload the noise of a tile; return it and the events to wait for."""
        import pyopencl as cl

        sigma, uploads = self.work.sigma, []

        def sent(name: str, array: np.ndarray | None, *, known: bool = False):
            if array is None:
                return None
            buffer = self.arena.buffer(f"{slot.name}sigma {name}", array.nbytes)
            if not known:
                uploads.append(cl.enqueue_copy(self.queues.up, buffer, array, is_blocking=False))
            return buffer

        slot.levels = sigma.levels(tile, self.work.sigma_unit)
        # A map is the same in all planes, so that tiles of a stack mostly use the same part of it.
        known = slot.seen == (tile.y, tile.x)
        if not known:
            slot.variation, slot.seen = sigma.variation(tile), (tile.y, tile.x)
        levels = read_levels = sent("levels", slot.levels)
        if (tile.t.size, tile.z.size) != tile.source_shape[:2]:
            slot.read_levels = sigma.read_levels(tile, self.work.sigma_unit)
            read_levels = sent("read levels", slot.read_levels)
        variation = sent("variation", slot.variation, known=known)
        even = not sigma.is_map and bool(np.all(slot.levels == slot.levels.flat[0]))
        return TileSigma(levels, variation, sigma.models(tile), read_levels, even), uploads
