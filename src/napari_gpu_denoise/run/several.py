"""Filter parts of an image on several devices at once; a device that fails is left out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError, KernelError, NoDeviceError, Note
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.several import names_of
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import Job
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.parts import Part, divide, within
from napari_gpu_denoise.run.record import Progress, Record, Tally

_FAILURES = (DeviceMemoryError, KernelError, NoDeviceError)


@dataclass
class DeviceReport:
    """What was done by several devices: clipped values, devices used, and those that failed."""

    tally: Tally = field(default_factory=Tally)
    used: list[Device] = field(default_factory=list)
    failed: list[tuple[Device, Exception]] = field(default_factory=list)

    def noted(self, record: Record) -> Record:
        """Return a record that names the devices, and those that were left out."""
        notes = [
            Note(f"{device} failed and was left out; other devices did its part: {error}")
            for device, error in self.failed
        ]
        return replace(record, device=names_of(self.used), notes=(*record.notes, *notes))


def filter_on(
    devices: Sequence[Device], job: Job, part: Part, block: Block, out: np.ndarray
) -> Generator[Progress, None, DeviceReport]:
    """Filter a part of an image, as `filter_part` does, on one device or several."""
    parts = divide(job, part, len(devices)) if len(devices) > 1 else [part]
    if len(parts) == 1:
        tally = yield from filter_part(job.on(devices[0]), part, block, out)
        return DeviceReport(tally, [devices[0]])

    def read(one: Part) -> Block:
        return block[within(one.reads, part.reads)]

    def room(one: Part) -> np.ndarray:
        return out[within(one.yields, part.yields)]

    return (yield from filter_parts(devices, job, parts, read, room))


def filter_parts(
    devices: Sequence[Device],
    job: Job,
    parts: Sequence[Part],
    read: Callable[[Part], Block],
    room: Callable[[Part], np.ndarray],
    write: Callable[[Part, np.ndarray, Tally], None] = lambda part, made, tally: None,
    before: int = 0,
    *,
    ahead: bool = False,
) -> Generator[Progress, None, DeviceReport]:
    """Filter parts of an image: each device takes the next part whenever it is free.

    `read` returns the pixels of a part, `room` the array for its result, and `write` takes it when
    it is complete, with what was counted in it; they are called in other threads. With `ahead`,
    while a device computes a part, the next one is read and the last one is written. A device that
    fails is left out. Progress is yielded after each part, `before` of which an earlier run has
    done. Closing the generator stops the work at the next tiles.
    """
    crew = _DeviceThreads(job, parts, ahead, read, room, write)
    shared, done = DeviceReport(), 0
    waiting = list(devices)
    yield Progress(before, before + len(parts), "part")
    try:
        while done < len(parts):
            # Again for those still able, if a part came back after they had ended.
            crew.start(waiting)
            waiting = []
            while crew.busy:
                device, outcome = crew.told.get()
                if outcome is None:
                    waiting.append(device)
                    crew.busy -= 1
                elif isinstance(outcome, Tally):
                    shared.tally += outcome
                    shared.used += [device] * (device not in shared.used)
                    done += 1
                    yield Progress(before + done, before + len(parts), "part")
                elif isinstance(outcome, _FAILURES):
                    shared.failed.append((device, outcome))
                    crew.busy -= 1
                else:
                    raise outcome
            if not waiting and done < len(parts):
                raise shared.failed[-1][1]
    finally:
        crew.stop()
    return shared


class _DeviceThreads:
    """Threads, one for each device, that take parts from one list."""

    def __init__(self, job: Job, parts: Sequence[Part], ahead: bool, *hands: Callable):
        self._job, self._parts, self._ahead = job, deque(parts), ahead
        self._read, self._room, self._write = hands
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        #: (device, the `Tally` of a part, an error, or None when nothing is left to do).
        self.told: SimpleQueue = SimpleQueue()
        self.busy = 0

    def start(self, devices: Sequence[Device]) -> None:
        """Let devices take parts until none is left."""
        self.busy += len(devices)
        for device in devices:
            thread = threading.Thread(target=self._work, args=(device,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop at the next tiles, and wait for that."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _work(self, device: Device) -> None:
        taken: list[Part] = []  # taken, and not written yet
        try:
            with ThreadPoolExecutor(1, "parts in") as inward, ThreadPoolExecutor(1) as outward:
                self._all(device, taken, inward, outward)
        except BaseException as error:
            if isinstance(error, _FAILURES):
                self._parts.extend(taken)
            self.told.put((device, error))
        else:
            self.told.put((device, None))

    def _all(
        self,
        device: Device,
        in_work: list[Part],
        inward: ThreadPoolExecutor,
        outward: ThreadPoolExecutor,
    ) -> None:
        """Filter parts until none is left, or the work is stopped."""
        job = self._job.on(device)

        def taken() -> tuple[Part, Future] | None:
            if self._stopped.is_set():
                return None
            try:
                part = self._parts.popleft()
            except IndexError:
                return None
            in_work.append(part)
            return part, inward.submit(self._read, part)

        def written(part: Part, out: np.ndarray, tally: Tally) -> None:
            self._write(part, out, tally)
            in_work.remove(part)
            self.told.put((device, tally))

        writing: Future | None = None
        following = taken()
        while following is not None:
            part, reading = following
            block, out = reading.result(), self._room(part)
            following = taken() if self._ahead else None
            tally = self._filtered(job, part, block, out)
            del block, reading
            if writing is not None:
                writing.result()
            if tally is None:
                return
            writing = outward.submit(written, part, out, tally)
            del out
            if not self._ahead:
                writing.result()
                following = taken()
        if writing is not None:
            writing.result()

    def _filtered(self, job: Job, part: Part, block: Block, out: np.ndarray) -> Tally | None:
        """Filter a part; None if the work was stopped."""
        with closing(filter_part(job, part, block, out)) as steps:
            while not self._stopped.is_set():
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
        return None
