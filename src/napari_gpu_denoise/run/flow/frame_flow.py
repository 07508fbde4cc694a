"""Move the frames of one video through a device, each one once and in order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.run.flow.frame_transfer import FrameTransfer, FrameTypes
from napari_gpu_denoise.run.flow.work import Queues, Stages
from napari_gpu_denoise.run.frame_notes import FrameNote
from napari_gpu_denoise.run.plan import Launches
from napari_gpu_denoise.run.tiles import Tile


@dataclass
class _Slot:
    """Frames on their way to the device or back; `name` is that of their buffers.

    Memory of the host may be filled again when it is `uploaded`, the buffer when all is `done`.
    Launches are kept until they are done: they keep alive the memory that is copied.
    """

    name: str
    start: int = 0
    count: int = 0
    uploaded: Any = None
    done: Any = None
    written: Callable[[], Any] | None = None
    launches: Launches = field(default_factory=list)


class FrameFlow:
    """Runs a filter over the frames of a video, or of a part of each, on one device and thread.

    `tile` is what is read from each frame and yielded; its time is not used. At most `batch` frames
    are taken or yielded at once. `variation` is a map, float32 of the shape of what is read, that
    sigma is multiplied by. `types` are those of the frames on the host. With `prompt`, every result
    is waited for before the next frame is read, instead of keeping the device busy. With `ahead`,
    frames are read in a thread of their own, unless the device shares the cores of the host. With
    `profiling`, events of launches are kept in `events`.
    """

    def __init__(
        self,
        session: Session,
        arena: Arena,
        stages: Stages,
        tile: Tile,
        batch: int,
        variation: np.ndarray | None = None,
        types: FrameTypes | None = None,
        *,
        prompt: bool = False,
        ahead: bool = False,
        profiling: bool = False,
    ):
        self.arena = arena
        self.plan, self._stabilisation = stages.plan, stages.stabilisation
        self.tile, self.batch = tile, batch
        self._transfer = FrameTransfer(arena, types or FrameTypes(), tile, batch)
        # Noise model of each channel, the same in all frames.
        self._models = np.zeros(1, np.int32)
        alone = session.device.shares_cores
        self.turn = session.exclusive()
        self.queues = Queues.of(session, profiling)
        self.profiling = profiling
        self.events: list[tuple[str, Any]] = []
        self._most_in_flight = 0 if alone or prompt else 2
        self._ins = [_Slot(f"frames in {k}") for k in range(1 if alone else 2)]
        self._outs = [_Slot(f"frames out {k}") for k in range(1 + self._most_in_flight)]
        # Threads read the next frames and convert results while this one enqueues.
        self._reader = None if alone or not ahead else ThreadPoolExecutor(1, "frames in")
        self._writer = None if alone else ThreadPoolExecutor(1, "frames out")
        self._variation = variation

    def run(
        self,
        read: Callable[[int, np.ndarray], list[FrameNote]],
        write: Callable[[int, np.ndarray, np.ndarray | None], None],
        first: int = 0,
        start: int = 0,
        stop: int | None = None,
    ) -> Generator[int, None, None]:
        """Filter frames; yield the number written so far whenever some were read or written.

        Parameters
        ----------
        read : callable
            ``read(t, host)`` fills ``host`` (channels, count, nz, ny, nx) with frames from time t
            on and returns a note of each; fewer than there is room for only at the end.
        write : callable
            ``write(t, values, clipped)`` takes frames (channels, count, nz, ny, nx) from time t on,
            and of integers how many values were clipped (channels, count).
        first, start, stop : int
            Times of the first frame to read, the first to write, and the first not to write;
            without `stop` all are written.
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
        for thread in (self._reader, self._writer):
            if thread is not None:
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
            given = self._transfer.room(slot.name, wanted, self.queues.up)

            def fill() -> list[FrameNote]:
                if slot.uploaded is not None:
                    slot.uploaded.wait()
                # The device is not locked meanwhile: `read` may use it, too.
                notes = read(t, given)
                if self._stabilisation is not None:
                    notes = [self._stabilisation.note(note) for note in notes]
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
            buffer, upload = self._transfer.upload(self.queues.up, slot.name, host)
            self.queues.after_upload([upload])
            buffer, converted = self._transfer.as_float(self.queues.compute, buffer, size)
            slot.uploaded, slot.launches = upload, [("upload", upload), *converted]
            if self._stabilisation is not None:
                self._models = notes[0].models
                numbers = np.repeat(self._models, count)
                queue = self.queues.compute
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
        queues, transfer = self.queues, self._transfer
        values = transfer.result(slot.name)
        launches = self.plan.enqueue_frames(queues.compute, start, count, ended, values)
        if self._stabilisation is not None:
            numbers, pixels = np.repeat(self._models, count), math.prod(tile.shape[1:])
            launches += self._stabilisation.inverse(queues.compute, values, numbers, pixels)
        buffer, converted = transfer.as_levels(queues.compute, values, slot.name, count)
        launches += converted
        queues.compute.flush()
        after = [launches[-1][1]]
        host, counts, done = transfer.download(queues.down, buffer, slot.name, count, after)
        queues.down.flush()
        slot.launches = [*launches, ("download", done)]
        if self.profiling:
            self.events += slot.launches

        def finish() -> None:
            done.wait()
            write(start, host, transfer.clipped(slot.name, counts, count))

        slot.written = None
        if self._writer is None:
            finish()
        else:
            slot.written = self._writer.submit(finish).result
        return slot
