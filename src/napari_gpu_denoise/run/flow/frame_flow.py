"""Move the frames of videos through a device, each one once and in order of time."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from napari_gpu_denoise.image.flicker import block_means, block_pixels
from napari_gpu_denoise.image.levels import Levels, convert
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import FrameNote, FramePlan
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow import transfer
from napari_gpu_denoise.run.flow.tile_flow import (
    MOST_FRAMES,
    frame_budget,
    frames_at_once,
    smallest_tile,
    spatial_tiles,
)
from napari_gpu_denoise.run.flow.work import InFlight, Queues, Stages, Work, runs
from napari_gpu_denoise.run.progress import SILENT, Progress

_MOST_SLICES = 16  # of a volume, whose brightness is compared
_MOST_ROWS = 16  # of a plane, by which frames are told apart
_TELLING = 256  # block means tell frames apart if there are so many


def note_frames(
    planes: Sequence[np.ndarray],
    noise: Sequence[tuple[np.ndarray, np.ndarray]],
    levels: Levels,
    filter: Filter,
    first_slice: int = 0,
) -> list[FrameNote]:
    """Measure whole frames of a video, given as one array (n, nz, ny, nx) of grey levels a channel.

    `levels` maps grey levels to pixels; `noise` has for each frame sigma in units of pixels, of
    shape (channels * nz,), and the model of each channel. The filter says what it compares. All
    frames are measured at once: each call of NumPy may wait for other threads.
    """
    slices = planes[0].shape[1]
    if slices > 1 and not filter.whole_volumes:
        # What is known about a volume must not depend on which of its slices are in memory.
        return [FrameNote(sigma, None, 1.0, first_slice, models) for sigma, models in noise]
    # A dropped frame, of one grey level: there is nothing to filter.
    empty = np.logical_and.reduce([_constant(each) for each in planes])
    read = [slices * k // min(slices, _MOST_SLICES) for k in range(min(slices, _MOST_SLICES))]
    means, pixels = [None] * len(empty), 1.0
    digests: list[bytes | None] = [None] * len(empty)
    if filter.compares_brightness:
        each = [np.mean([block_means(plane[:, z]) for z in read], axis=0) for plane in planes]
        found, pixels = np.stack(each, 1), len(read) * block_pixels(planes[0].shape[-2:])
        # That they agree by chance is out of the question: each averages at least 16 noisy pixels.
        told = (found != found[..., :1]).any(axis=(1, 2)) & (found.shape[-1] >= _TELLING)
        digests = [
            row.tobytes() if is_told else None for row, is_told in zip(found, told, strict=True)
        ]
        means = (found - float(levels.offset)) / levels.scale
    notes = []
    for k, (sigma, models) in enumerate(noise):
        note = FrameNote(np.zeros(np.shape(sigma)), None, 1.0, first_slice, models)
        if not empty[k]:
            digest = digests[k] or _digest([plane[k] for plane in planes], read)
            note = replace(note, sigma=sigma, means=means[k], block_pixels=pixels, digest=digest)
        notes.append(note)
    return notes


def _digest(planes: list[np.ndarray], slices: list[int]) -> bytes | None:
    """Return a digest of some rows of a frame; no two frames have the same noise."""
    step = -(-planes[0].shape[1] // _MOST_ROWS)
    parts = [np.ascontiguousarray(plane[z, ::step]) for plane in planes for z in slices]
    if all(np.all(part == part.flat[0]) for part in parts):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.data)
    return digest.digest()


def _constant(plane: np.ndarray) -> np.ndarray:
    """Return which frames of a channel, (n, nz, ny, nx), are of one grey level."""
    first = plane[:, :1, :1, :1]
    # A few pixels nearly always suffice.
    few = plane[:, :, :: max(1, plane.shape[2] // 8), :: max(1, plane.shape[3] // 8)]
    found = (few == first).all(axis=(1, 2, 3))
    for k in np.flatnonzero(found):
        found[k] = np.all(plane[k] == first[k])
    return found


@dataclass
class _Slot(InFlight):
    """Frames in flight, and how to wait for those that are written."""

    start: int = 0
    count: int = 0
    written: Callable[[], Any] | None = None


class FrameFlow:
    """Runs a filter over the frames of a video, or of a part of each, on one device and thread.

    `work` has the types and the noise of the frames, and `tile` is what is read from each and
    yielded; its time is not used. At most `batch` frames are taken or yielded at once. With
    `prompt`, every result is waited for before the next frame is read, instead of keeping the
    device busy. With `ahead`, frames are read in a thread of their own, unless the device shares
    the cores of the host. With `profiling`, events of launches are kept in `events`.
    """

    def __init__(
        self,
        work: Work,
        arena: Arena,
        stages: Stages[FramePlan],
        tile: Tile,
        batch: int,
        *,
        prompt: bool = False,
        ahead: bool = False,
        profiling: bool = False,
    ):
        self.arena = arena
        self.plan, self._stabilisation = stages.plan, stages.stabilisation
        self.tile, self.batch, frames = tile, batch, tile.channels * batch
        pixels = (frames * math.prod(shape[1:]) for shape in (tile.source_shape, tile.shape))
        self._transfer = transfer.Transfer(arena, work, *pixels, counts=frames)
        self._kept, self._variation = work.kept(tile), work.sigma.variation(tile)
        # Noise model of each channel, the same in all frames.
        self._models = np.zeros(1, np.int32)
        alone = work.session.device.shares_cores or prompt
        self.turn = work.session.exclusive()
        self.queues = Queues.of(work.session, profiling, alone)
        self.profiling = profiling
        self.events: list[tuple[str, Any]] = []
        self._most_in_flight = 0 if alone else 2
        self._ins = [_Slot(f"frames in {k}") for k in range(1 if alone else 2)]
        self._outs = [_Slot(f"frames out {k}") for k in range(1 + self._most_in_flight)]
        # Threads read the next frames and convert results while this one enqueues.
        self._reader = None if alone or not ahead else ThreadPoolExecutor(1, "frames in")
        self._writer = None if alone else ThreadPoolExecutor(1, "frames out")

    def run(
        self,
        read: Callable[[int, np.ndarray], list[FrameNote]],
        write: Callable[[int, np.ndarray, np.ndarray | None], None],
        first: int = 0,
        start: int = 0,
        stop: int | None = None,
    ) -> Generator[int, None, None]:
        """Filter frames; yield the number written so far whenever some were read or written.

        ``read(t, host)`` fills ``host`` (channels, count, nz, ny, nx) with frames from time t on
        and returns a note of each; fewer than there is room for only at the end. ``write(t, values,
        clipped)`` takes such frames, and of integers how many values were clipped (channels,
        count). Frames are read from time `first` on, and written from `start` to before `stop`.
        """
        import pyopencl as cl

        with self.turn:
            variation = None
            if self._variation is not None:
                variation = self.arena.buffer("variation", self._variation.nbytes)
                cl.enqueue_copy(self.queues.compute, variation, self._variation)
            self.plan.begin(self.tile, self.batch, first, start, variation)
        in_flight: deque[_Slot] = deque()
        reads = self._reads(read, first, start, stop)
        known, at, ended, done = first, start, False, 0
        while True:
            count = self.batch if stop is None else min(self.batch, stop - at)
            while not ended and count and known < at + count + self.plan.ahead:
                slot, given, notes = next(reads)
                self._take(slot, given, notes)
                known, ended = known + len(notes), len(notes) < given.shape[1]
                yield done  # so that a run can be stopped before the first frame is written
            with self.turn:
                count = min(count, (known if ended else known - self.plan.ahead) - at)
                if count > 0:
                    in_flight.append(self._yield_frames(at, count, ended, write))
                    at += count
            while len(in_flight) > (self._most_in_flight if count > 0 else 0):
                slot = in_flight.popleft()
                if slot.written is not None:
                    slot.written()
                done = slot.start + slot.count - start
                yield done
            if count <= 0:
                return

    def close(self) -> None:
        """Wait until the device is idle, so that buffers can be freed; run nothing after it."""
        for thread in filter(None, (self._reader, self._writer)):
            thread.shutdown(cancel_futures=True)
        self.queues.finish()

    def _schedule(self, first: int, start: int, stop: int | None) -> Iterator[tuple[int, int]]:
        """Yield the times of the frames to read before each batch is due, and how many at once."""
        known, at = first, start
        while stop is None or at < stop:
            at += self.batch if stop is None else min(self.batch, stop - at)
            while known < at + self.plan.ahead:
                wanted = min(self.batch, at + self.plan.ahead - known)
                yield known, wanted
                known += wanted

    def _reads(
        self, read, first: int, start: int, stop: int | None
    ) -> Iterator[tuple[_Slot, np.ndarray, list[FrameNote]]]:
        """Read frames until there are no more; yield slots, the memory filled, and the notes."""

        def begin(t: int, wanted: int) -> tuple[_Slot, np.ndarray, Callable[[], list[FrameNote]]]:
            slot = self._ins[0]
            self._ins.append(self._ins.pop(0))
            shape = self.tile.channels, wanted, *self.tile.source_shape[1:]
            given = self._transfer.room(slot.name, shape, self.queues.up)

            def fill() -> list[FrameNote]:
                if slot.uploaded is not None:
                    slot.uploaded.wait()
                # The device is not locked meanwhile: `read` may use it, too.
                notes = [*map(self._stabilisation.note, read(t, given))]
                self.plan.compare(t, notes)
                return notes

            return slot, given, self._reader.submit(fill).result if self._reader else fill

        schedule = self._schedule(first, start, stop)
        planned = next(schedule, None)
        begun = begin(*planned) if planned else None
        while begun is not None:
            slot, given, fill = begun
            notes = fill()
            planned = next(schedule, None) if len(notes) == given.shape[1] else None
            begun = begin(*planned) if planned else None  # while the caller enqueues these
            yield slot, given, notes

    def _take(self, slot: _Slot, given: np.ndarray, notes: list[FrameNote]) -> None:
        """Pass frames that were read to the device."""
        count, wanted = len(notes), given.shape[1]
        if not count:
            return
        tile = self.tile
        frame = math.prod(tile.source_shape[1:])
        size = tile.channels * count * frame
        host = given.reshape(-1)[:size]
        if count < wanted and tile.channels > 1:
            # The frames of each channel have to be contiguous: close the gap of missing ones.
            host[:] = given[:, :count].copy().ravel()
        if slot.done is not None:
            slot.done.wait()
        with self.turn:
            buffer, slot.launches = self._transfer.send(self.queues, slot.name, host)
            slot.uploaded = slot.launches[0][1]
            self._models, queue = notes[0].models, self.queues.compute
            numbers = np.repeat(self._models, count)
            slot.launches += self._stabilisation.forward(queue, buffer, numbers, frame)
            slot.launches += self.plan.take(self.queues.compute, buffer, notes)
            self.queues.compute.flush()
        # The queue is in order: whatever reads the buffer ends before the last launch.
        slot.done = slot.launches[-1][1]
        if self.profiling:
            self.events += slot.launches

    def _yield_frames(self, start: int, count: int, ended: bool, write) -> _Slot:
        slot = self._outs[0]
        self._outs.append(self._outs.pop(0))
        tile = self.tile
        slot.start, slot.count = start, count
        queues = self.queues
        values = self._transfer.result(slot.name)
        launches = self.plan.enqueue_frames(queues.compute, start, count, ended, values)
        numbers, pixels = np.repeat(self._models, count), math.prod(tile.shape[1:])
        launches += self._stabilisation.inverse(queues.compute, values, numbers, pixels)
        names, shape = (slot.name, slot.name), (tile.channels, count, *tile.shape[1:])
        host, counts, done = self._transfer.fetch(
            queues, values, names, shape, self._kept, tile.shape[1], launches
        )
        slot.launches = launches
        if self.profiling:
            self.events += slot.launches

        def finish() -> None:
            done.wait()
            new = self._transfer.clipped(slot.name, counts)
            if new is not None:
                new = new[: tile.channels * count].reshape(tile.channels, count)
            write(start, host, new)

        slot.written = None
        if self._writer is None:
            finish()
        else:
            slot.written = self._writer.submit(finish).result
        return slot


class ArrayFrameFlow:
    """Runs a filter over time over frames in memory: one video, and one part of it, after another.

    Each `shrink` halves the frames taken at once, or then the parts of frames, for a device that
    lacked memory; `size` says what was tried. With `profiling`, the events of every launch are
    kept in `events`.
    """

    def __init__(self, work: Work, arena: Arena, shrink: int = 0, profiling: bool = False):
        self.work, self.arena, self.profiling = work, arena, profiling
        self.events: list[tuple[str, Any]] = []
        self.stages = Stages.of(FramePlan, work, arena)
        plan, device = self.stages.plan, work.session.device
        budget, pixels = frame_budget(plan, work)
        most, smallest = MOST_FRAMES, smallest_tile(work)
        while True:
            self.tiles = spatial_tiles(work, pixels)
            largest = max(self.tiles, key=lambda tile: math.prod(tile.source_shape))
            self.batch = min(frames_at_once(plan, device, largest, budget), most)
            if shrink == 0:
                break
            shrink -= 1
            if self.batch > 1:
                most = self.batch // 2
            else:
                pixels = max(min(pixels, math.prod(largest.source_shape)) // 2, smallest)
        self.can_shrink = self.batch > 1 or pixels > smallest
        self.size = f"parts of {pixels} pixels"
        self._notes: dict[tuple[int, int], FrameNote] = {}
        self._saturated = 0

    def run(self, progress: Progress = SILENT) -> int:
        """Filter all frames, and return the number of clipped values."""
        work = self.work
        sequences, nt, *_ = work.source.shape
        time = work.whole[0]
        videos = [(k, time) for k in range(sequences)]
        if "T" not in work.source.joint:
            # Independent frames, side by side: each is a video of its own.
            videos = [(0, Span(t, t + 1, t, t + 1, nt)) for t in range(time.start, time.stop)]
        frames = sum(span.size for _, span in videos)
        total, done = len(self.tiles) * frames, 0
        # As many as there are time points only where there is one video, filtered whole.
        unit = "part of a frame" if len(self.tiles) > 1 else "frame"
        if unit == "frame" and frames > time.size:
            unit = "plane"
        progress.tell(0, total, unit)
        for part in self.tiles:
            given = work, self.arena, self.stages, part, self.batch
            with closing(FrameFlow(*given, ahead=True, profiling=self.profiling)) as flow:
                for sequence, span in videos:
                    tile = replace(part, sequence=sequence)
                    read = partial(self._read, tile, span.source_stop)
                    write = partial(self._write, tile)
                    for count in flow.run(read, write, span.source_start, span.start, span.stop):
                        progress.tell(done + count, total, unit)
                    done += span.size
            self.events += flow.events
        return self._saturated

    def close(self) -> None:
        """Do nothing: every part waits for the device itself."""

    def _read(self, tile: Tile, end: int, t: int, host: np.ndarray) -> list[FrameNote]:
        stop = min(t + host.shape[1], end)
        keys = [(tile.sequence, number) for number in range(t, stop)]
        if new := [key for key in keys if key not in self._notes]:
            # In this thread: short operations of NumPy in several of them wait for each other.
            self._notes |= zip(new, self._noted(*new[0], new[-1][1] + 1), strict=True)
        transfer.read_frames(self.work, tile, t, stop, host)
        return [self._notes[key] for key in keys]

    def _noted(self, sequence: int, start: int, stop: int) -> Iterator[FrameNote]:
        """Yield the notes of the frames of some times, which follow each other."""
        # Of whole frames, whatever part of them is read: all parts have to agree.
        work, source = self.work, self.work.source
        blocks = (
            transfer.frame_blocks(source, sequence, start, stop, c) for c in range(source.joined)
        )
        for channels in zip(*blocks, strict=True):
            planes, first = [block for _, block in channels], start + channels[0][0]
            times = range(first, first + len(planes[0]))
            noise = [work.sigma.of_frame(sequence, t, work.levels.scale) for t in times]
            yield from note_frames(planes, noise, work.levels, work.filter, source.origin[1])

    def _write(self, tile: Tile, t: int, values: np.ndarray, clipped: np.ndarray | None) -> None:
        work, source, out, kept = self.work, self.work.source, self.work.out, self.work.kept(tile)
        if not all(kept):
            return
        place = tile.kept_region(*kept)
        numbers = range(t, t + values.shape[1])
        empty = np.array([self._notes[tile.sequence, number].empty for number in numbers])
        if clipped is not None:
            self._saturated += int(clipped[:, ~empty].sum(dtype=np.int64))
        for first, count, is_empty in runs(empty):
            if not is_empty:
                some = values[:, first : first + count]
                self._saturated += transfer.write_frames(work, tile, t + first, some)
                continue
            # As they were given: the channels on the device may have been mixed.
            there, here = out.region(*place), source.region(*place)
            for number, c in itertools.product(
                numbers[first : first + count], range(tile.channels)
            ):
                given = source.frame(tile.sequence, number, c)[here]
                if work.filter.yields_map:
                    given = np.zeros_like(given)
                self._saturated += convert(given, out.frame(tile.sequence, number, c)[there])
