"""Denoise arrays part by part, on one device or several, or frame by frame along time."""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError, KernelError, NoDeviceError
from napari_gpu_denoise.image.levels import Levels, as_array, is_plain
from napari_gpu_denoise.image.threads import ahead, at_once, shared_executor
from napari_gpu_denoise.opencl.device import Device, names_of
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import Job
from napari_gpu_denoise.run.ledger import Ledger, check_whole, check_written
from napari_gpu_denoise.run.noise import Sigma
from napari_gpu_denoise.run.part import Part, filter_part, regions_of, size_of, unit_of, within
from napari_gpu_denoise.run.progress import COMPILING, Progress
from napari_gpu_denoise.run.record import DeviceReport, Record, Result, Tally
from napari_gpu_denoise.run.stream import FrameStream


class PartList:
    """The parts of a result; those that an earlier run has written are left as they are.

    `size` returns the lengths of a part, unless `ledger` knows them. `out` is the result, or a
    `region` of it, and is written by NumPy indexing: each pixel once. `left` are the parts to do.
    """

    def __init__(
        self,
        job: Job,
        out: Any,
        size: Callable[[], tuple[int, ...]],
        ledger: Ledger,
        progress: Progress,
        region: Sequence[slice] | None = None,
    ):
        self._job, self._out, self._ledger, self._progress = job, out, ledger, progress
        region = [slice(0, n) for n in job.shape] if region is None else region
        lengths = ledger.known("parts")
        if lengths is None:
            lengths = size()
            ledger.keep("parts", lengths)
        self._parts = [Part.of(job, one) for one in regions_of(job, lengths, region)]
        self._places = [within(part.yields, region) for part in self._parts]
        self._numbers = {part: number for number, part in enumerate(self._parts)}
        ledger.planned([[[one.start, one.stop] for one in part.yields] for part in self._parts])
        check_written(ledger, out, self._places, progress)
        self.left = [part for part, number in self._numbers.items() if number not in ledger.done]
        self.done, self._tally = len(self._parts) - len(self.left), ledger.tally

    def write(self, part: Part, made: np.ndarray, tally: Tally) -> None:
        """Write a part, and say so; one at a time, as parts may share a chunk."""
        place = self._places[self._numbers[part]]
        mark = partial(self._ledger.mark, self._out, place, made)
        if not hasattr(self._out, "mark_of_chunks"):  # it is that of the values
            mark = shared_executor("marks", 1).submit(mark).result
        self._out[place] = made
        self.wrote(part, tally, mark())

    def wrote(self, part: Part, tally: Tally, mark: int) -> None:
        """Say that a part is written."""
        self._ledger.wrote(self._numbers[part], tally, mark)

    def record(self, image: Any, report: DeviceReport, device: str) -> Record:
        """Return the record of a result that is complete; `report` is of what was done just now."""
        check_whole(self._ledger, self._out, self._places, self._progress)
        job, middle = self._job, len(self._parts) // 2

        def pair() -> tuple[np.ndarray, np.ndarray]:
            pixels = as_array(image[self._parts[middle].yields])
            return pixels, np.asarray(self._out[self._places[middle]])

        return job.record(replace(report, tally=self._tally + report.tally), pair, device)


def denoise_parts(
    image: Any,
    job: Job,
    out: Any,
    devices: Sequence[Device],
    ledger: Ledger,
    progress: Progress,
    region: Sequence[slice] | None = None,
) -> Result:
    """Denoise an array, or a region, in parts, each of a few chunks; `job` is for all of it.

    The image is read by NumPy indexing: each part with its margin. `out` is written in whole chunks
    wherever possible. `progress` is told of each part.
    """
    unit = unit_of(out) or unit_of(image)
    size = partial(size_of, job, unit, devices)
    parts = PartList(job, out, size, ledger, progress, region)
    reading, writing = threading.Lock(), threading.Lock()

    def read(part: Part) -> Block:
        with reading:
            pixels = as_array(image[part.reads])
        return job.block(pixels)

    def room(part: Part) -> np.ndarray:
        return np.empty(part.shape, job.dtypes[1])

    def write(part: Part, made: np.ndarray, tally: Tally) -> None:
        with writing:
            parts.write(part, made, tally)

    progress.stage(COMPILING)
    work = PartWork(job, parts.left, read, room, write, ahead=True)
    shared = filter_parts(devices, work, progress, parts.done)
    return Result(out, parts.record(image, shared, names_of(devices)))


def denoise_series(image: Any, job: Job, out: Any, ledger: Ledger, progress: Progress) -> Result:
    """Denoise an array along its axis T; `job` is prepared for it.

    Frames are read, and written to `out`, by NumPy indexing, each once and in order; `progress` is
    told of each. Frames that `ledger` knows are left as they are. If memory allows, the next frame
    is read and the last one written meanwhile.
    """
    t = job.names.index("T")
    count, axes = image.shape[t], job.names[:t] + job.names[t + 1 :]
    ledger.planned(["frames", count])
    check_written(ledger, out, [_at(t, number) for number in range(count)], progress)
    # Frames from the first on; those behind a lost one are forgotten.
    done = next(number for number in itertools.count() if number not in ledger.done)
    ledger.done = {number: ledger.done[number] for number in range(done)}
    tally = ledger.tally
    # Frames before those that are left are read again, as far back as the filter looks.
    start = max(done - sum(job.margins[t]), 0) if done < count else count
    shape = job.shape[:t] + job.shape[t + 1 :]
    one = replace(job, run=replace(job.run, axes=axes), names=axes, shape=shape)
    if is_plain(job.dtypes[0]):
        one = replace(one, levels=Levels(0, 1.0))
    elif job.levels is None:
        one = replace(one, levels=one.suited(one.block(image[_at(t, 0)])).levels)
    host, pixels = job.run.host_memory, math.prod(shape)
    fits = host is None or host.fits(pixels * sum(one.itemsize for one in job.dtypes), [job.device])

    def flow(function: Callable[[Any], Any], items: Iterable[Any]) -> Generator[Any, None, None]:
        return ahead(function, items, 1) if fits else (function(each) for each in items)

    def read(number: int) -> np.ndarray:
        return as_array(image[_at(t, number)])

    def write(numbered: tuple[int, tuple[np.ndarray, Tally]]) -> tuple[int, Tally]:
        number, (frame, own) = numbered
        place = _at(t, number)
        out[place] = frame
        ledger.wrote(number, own, ledger.mark(out, place, frame))
        return number + 1, own

    progress.stage(COMPILING)
    progress.tell(done, count, "frame")
    number = None
    try:
        with ExitStack() as held:
            frames = held.enter_context(closing(flow(read, range(start, count))))
            stream = FrameStream(one.run, frames, job=one, sigma_of=_sigma_of(job.sigma, t, start))
            results = enumerate(held.enter_context(closing(iter(stream))), start)
            new = itertools.islice(results, done - start, None)
            for number, own in held.enter_context(closing(flow(write, new))):
                tally += own
                progress.tell(number, count, "frame")
    except DeviceMemoryError:
        if number is not None:
            raise
        # Whole frames are too large for the device; parts of them may fit.
        return denoise_parts(image, job, out, [job.device], Ledger(), progress)
    middle = _at(t, count // 2)

    def pair() -> tuple[np.ndarray, np.ndarray]:
        before, after = as_array(image[middle]), np.asarray(out[middle])
        return np.expand_dims(before, t), np.expand_dims(after, t)

    return Result(out, job.record(DeviceReport(tally), pair, str(job.device)))


def _sigma_of(sigma: Sigma, t: int, start: int) -> Callable[[int], Sigma]:
    """Return a function that gives the noise of a frame, counted from one of the series."""
    numbers = None if sigma.numbers is None else sigma.numbers.take(0, axis=t)
    varies = sigma.array.shape[t] > 1

    @lru_cache(maxsize=1)  # where it does not vary, it is one object
    def of_frame(number: int) -> Sigma:
        return replace(sigma, array=sigma.array.take(number, axis=t), numbers=numbers)

    return lambda place: of_frame(start + place if varies else 0)


def _at(t: int, number: int) -> tuple:
    return (*(slice(None),) * t, number)


_FAILURES = (DeviceMemoryError, KernelError, NoDeviceError)  # of a device, which is left out
_PAUSE = 0.05  # seconds between two looks at whether the run was cancelled


class PartWork:
    """Parts of an image to be filtered, and how they are read and written.

    `read` returns the pixels of a part, `room` the array for its result, and `write` takes it when
    it is complete, with what was counted in it; they are called in other threads. With `ahead`,
    while a device computes a part, the next one is read and the last one is written.
    """

    def __init__(
        self,
        job: Job,
        parts: Sequence[Part],
        read: Callable[[Part], Block],
        room: Callable[[Part], np.ndarray],
        write: Callable[[Part, np.ndarray, Tally], None] = lambda part, made, tally: None,
        *,
        ahead: bool = False,
    ):
        self.total, self.waiting = len(parts), deque(parts)
        self.written: SimpleQueue[tuple[Device, Tally]] = SimpleQueue()
        self._job, self._ahead = job, ahead
        self._read, self._room, self._write = read, room, write

    def by(self, device: Device, progress: Progress) -> None:
        """Filter parts on a device until none is left; if it fails, others may take its parts."""
        job, writing = self._job.on(device), None
        taken: list[Part] = []  # and not written yet

        def parts() -> Iterator[Part]:
            with suppress(IndexError):
                while True:
                    taken.append(self.waiting.popleft())
                    yield taken[-1]

        def read(part: Part) -> tuple[Part, Block]:
            return part, self._read(part)

        def put(part: Part, out: np.ndarray, tally: Tally) -> None:
            self._write(part, out, tally)
            taken.remove(part)
            self.written.put((device, tally))

        try:
            with ExitStack() as held:
                blocks, submit = map(read, parts()), at_once
                if self._ahead:
                    blocks = held.enter_context(closing(ahead(read, parts(), 1)))
                    submit = held.enter_context(ThreadPoolExecutor(1, "parts out")).submit
                for part, block in blocks:
                    progress.check()
                    out = self._room(part)
                    tally = filter_part(job, part, block, out, progress)
                    del block
                    if writing is not None:
                        writing.result()
                    writing = submit(put, part, out, tally)
                    del out
                if writing is not None:
                    writing.result()
        except _FAILURES:
            self.waiting.extend(taken)
            raise


def filter_parts(
    devices: Sequence[Device], work: PartWork, progress: Progress, before: int = 0
) -> DeviceReport:
    """Filter parts of an image: each device takes the next part whenever it is free.

    A device that fails is left out. `progress` is told of each part, `before` of which an earlier
    run has done.
    """
    report, done, total = DeviceReport(), before, before + work.total
    able, running, stopped = list(devices), {}, threading.Event()
    inside = Progress(stopped=stopped.is_set)
    progress.tell(done, total, "part")
    with ThreadPoolExecutor(len(devices), "parts") as pool:
        try:
            while done < total:
                # Parts may come back when others have ended.
                idle = [each for each in able if each not in running.values()]
                for device in idle if work.waiting else ():
                    running[pool.submit(work.by, device, inside)] = device
                if not running:
                    raise report.failed[-1][1]
                ended, _ = wait(running, _PAUSE, FIRST_COMPLETED)
                while not work.written.empty():
                    device, tally = work.written.get()
                    report.tally += tally
                    report.used[device] = device
                    done += 1
                    progress.tell(done, total, "part")
                progress.check()
                for future in ended:
                    device, error = running.pop(future), future.exception()
                    if isinstance(error, _FAILURES):
                        report.failed.append((device, error))
                        able.remove(device)
                    elif error is not None:
                        raise error
        finally:
            stopped.set()
    return report
