"""Denoise arrays part by part, on one device or several, or frame by frame along time."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import Cancelled, DeviceMemoryError, KernelError, NoDeviceError, Note
from napari_gpu_denoise.image.levels import as_array
from napari_gpu_denoise.opencl.device import Device, names_of
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import Job
from napari_gpu_denoise.run.ledger import Ledger, check_whole, check_written, parts_left
from napari_gpu_denoise.run.noise import Sigma
from napari_gpu_denoise.run.part import Part, filter_part, regions_of, size_of, unit_of
from napari_gpu_denoise.run.progress import COMPILING, Progress
from napari_gpu_denoise.run.record import Record, Result, Tally, change_note
from napari_gpu_denoise.run.stream import FrameStream


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

    The image is read by NumPy indexing: each part with its margin. Each pixel of `out` is written
    once, in whole chunks wherever possible. Parts that `ledger` knows are left as they are.
    `progress` is told of each.
    """
    region = [slice(0, n) for n in job.shape] if region is None else region
    unit = unit_of(out) or unit_of(image)
    locks = threading.Lock(), threading.Lock()
    size = ledger.known("parts")
    if size is None:
        size = size_of(job, unit, devices)
        ledger.keep("parts", size)
    parts = [Part.of(job, one) for one in regions_of(job, size, region)]
    places = [part.place_in(region) for part in parts]
    rest, wrote = parts_left(parts, places, ledger, out, progress)
    before = ledger.tally

    def read(part: Part) -> Block:
        with locks[0]:
            pixels = as_array(image[part.reads])
        return Block.of(pixels, job.names, job.run.nonfinite, job.levels)

    def room(part: Part) -> np.ndarray:
        return np.empty(part.shape, job.dtypes[1])

    def write(part: Part, made: np.ndarray, tally: Tally) -> None:
        place = part.place_in(region)
        # Parts may share a chunk.
        with locks[1]:
            out[place] = made
            wrote(part, tally, ledger.mark(out, place, made))

    progress.stage(COMPILING)
    done = len(parts) - len(rest)
    shared = filter_parts(devices, job, rest, read, room, progress, write, done, ahead=True)
    check_whole(ledger, out, places, progress)
    change = change_in_the_middle(image, out, job, parts, places)
    shared.used = shared.used or list(devices)
    return Result(out, shared.noted(job.record(before + shared.tally, change)))


def change_in_the_middle(
    image: Any, out: Any, job: Job, parts: Sequence[Part], places: Sequence[tuple[slice, ...]]
) -> Note | None:
    """Return what `change_note` says of one part of a result that is complete."""
    if not job.sigma.array.any() or job.filter.yields_map:
        return None
    middle = len(parts) // 2
    given = as_array(image[parts[middle].yields])
    pixels = Block.of(given, job.names, job.run.nonfinite, job.levels)
    return change_note(pixels.finite, np.asarray(out[places[middle]]), job.names)


def denoise_series(image: Any, job: Job, out: Any, ledger: Ledger, progress: Progress) -> Result:
    """Denoise an array along its axis T; `job` is prepared for it.

    Frames are read, and written to `out`, by NumPy indexing, each once and in order; `progress` is
    told of each. Frames that `ledger` knows are left as they are.
    """
    run, t = job.run, job.names.index("T")
    count = image.shape[t]
    models, array, axes = job.sigma.models, job.sigma.array, job.names[:t] + job.names[t + 1 :]
    first = None if models else array.take(0, axis=t)
    one = replace(run, sigma=first, noise=models or None, axes=axes, dtype=job.dtypes[1])
    ledger.planned(["frames", count])
    check_written(ledger, out, [_at(t, number) for number in range(count)], progress)
    # Frames from the first on; those behind a lost one are forgotten.
    done = next(number for number in itertools.count() if number not in ledger.done)
    ledger.done = {number: ledger.done[number] for number in range(done)}
    tally = ledger.tally
    # Frames before those that are left are read again, as far back as the filter looks.
    start = max(done - sum(job.margin_along("T")), 0) if done < count else count
    middle: list[np.ndarray] = []  # frame in the middle, before and after
    frames = _kept_at(count // 2 - start, _frames(image, t, start), middle)
    options = {"levels": job.levels, "filter": job.filter}
    first = as_array(image[_at(t, 0)]) if start else None
    noise = _sigma_of(job.sigma, t, start)
    stream = FrameStream(one, frames, like=first, sigma_of=noise, **options)
    progress.stage(COMPILING)
    progress.tell(done, count, "frame")
    try:
        with closing(iter(stream)) as results:
            seen = stream.tally
            for number, frame in enumerate(results, start):
                own, seen = stream.tally - seen, stream.tally
                if number < done:
                    continue
                out[_at(t, number)] = frame
                tally += own
                ledger.wrote(number, own, ledger.mark(out, _at(t, number), frame))
                if number == count // 2:
                    middle.append(frame)
                progress.tell(number + 1, count, "frame")
    except DeviceMemoryError:
        if stream.count:
            raise
        # Whole frames are too large for the device; parts of them may fit.
        block = Block.of(as_array(image[...]), job.names, run.nonfinite, job.levels)
        made = np.empty(job.shape, job.dtypes[1])
        tally = filter_part(job, Part.of(job), block, made, progress)
        out[...] = made
        return Result(out, job.record(tally))
    if len(middle) < 2:  # written by an earlier run
        where = _at(t, count // 2)
        middle = [as_array(image[where]), np.asarray(out[where])]
    change = change_note(*middle, axes) if job.sigma.array.any() else None
    return Result(out, job.record(tally, change))


def _frames(image: Any, t: int, start: int = 0) -> Iterator[np.ndarray]:
    for number in range(start, image.shape[t]):
        yield as_array(image[_at(t, number)])


def _kept_at(
    place: int, frames: Iterator[np.ndarray], kept: list[np.ndarray]
) -> Iterator[np.ndarray]:
    """Yield frames, and append a copy of the one at a place to a list."""
    for number, frame in enumerate(frames):
        if number == place:
            kept.append(frame.copy())
        yield frame


def _sigma_of(sigma: Sigma, t: int, start: int) -> Callable[[int], Sigma]:
    """Return a function that gives the noise of a frame, counted from one of the series."""
    numbers = None if sigma.numbers is None else sigma.numbers.take(0, axis=t)
    varies, planes = sigma.array.shape[t] > 1, sigma.planes

    def of_frame(place: int) -> Sigma:
        number = start + place
        array = sigma.array.take(number if varies else 0, axis=t)
        own = None if planes is None else planes.without(t, number)
        return replace(sigma, array=array, numbers=numbers, planes=own)

    if not varies and planes is None:
        same = of_frame(0)
        return lambda _: same
    return of_frame


def _at(t: int, number: int) -> tuple:
    return (*(slice(None),) * t, number)


# Parts that several devices filter at once; a device that fails is left out.
_FAILURES = (DeviceMemoryError, KernelError, NoDeviceError)
_PAUSE = 0.05  # seconds between two looks at whether the run was cancelled


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


def filter_parts(
    devices: Sequence[Device],
    job: Job,
    parts: Sequence[Part],
    read: Callable[[Part], Block],
    room: Callable[[Part], np.ndarray],
    progress: Progress,
    write: Callable[[Part, np.ndarray, Tally], None] = lambda part, made, tally: None,
    before: int = 0,
    *,
    ahead: bool = False,
) -> DeviceReport:
    """Filter parts of an image: each device takes the next part whenever it is free.

    `read` returns the pixels of a part, `room` the array for its result, and `write` takes it when
    it is complete, with what was counted in it; they are called in other threads. With `ahead`,
    while a device computes a part, the next one is read and the last one is written. A device that
    fails is left out. `progress` is told of each part, `before` of which an earlier run has done.
    """
    crew = _DeviceThreads(job, parts, ahead, read, room, write)
    shared, done = DeviceReport(), 0
    waiting = list(devices)
    progress.tell(before, before + len(parts), "part")
    try:
        while done < len(parts):
            # Again for those still able, if a part came back after they had ended.
            crew.start(waiting)
            waiting = []
            while crew.busy:
                try:
                    device, outcome = crew.told.get(timeout=_PAUSE)
                except Empty:
                    progress.check()
                    continue
                if outcome is None:
                    waiting.append(device)
                    crew.busy -= 1
                elif isinstance(outcome, Tally):
                    shared.tally += outcome
                    shared.used += [device] * (device not in shared.used)
                    done += 1
                    progress.tell(before + done, before + len(parts), "part")
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
        job, writing = self._job.on(device), None
        progress = Progress(stopped=self._stopped.is_set)
        following = self._take(in_work, inward)
        while following is not None:
            part, reading = following
            block, out = reading.result(), self._room(part)
            following = self._take(in_work, inward) if self._ahead else None
            try:
                tally = filter_part(job, part, block, out, progress)
            except Cancelled:
                tally = None
            del block, reading
            if writing is not None:
                writing.result()
            if tally is None:
                return
            writing = outward.submit(self._put, device, in_work, part, out, tally)
            del out
            if not self._ahead:
                writing.result()
                following = self._take(in_work, inward)
        if writing is not None:
            writing.result()

    def _take(self, in_work: list[Part], inward: ThreadPoolExecutor) -> tuple[Part, Future] | None:
        """Take the next part and begin to read it; None if none is left, or the work is stopped."""
        if self._stopped.is_set():
            return None
        try:
            part = self._parts.popleft()
        except IndexError:
            return None
        in_work.append(part)
        return part, inward.submit(self._read, part)

    def _put(
        self, device: Device, in_work: list[Part], part: Part, out: np.ndarray, tally: Tally
    ) -> None:
        """Write the result of a part, and tell of it."""
        self._write(part, out, tally)
        in_work.remove(part)
        self.told.put((device, tally))
