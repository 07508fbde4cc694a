"""Denoise arrays that are not in memory: part by part, or frame by frame along time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError, Note
from napari_gpu_denoise.image.levels import Levels, as_array, is_plain, nonfinite_error, value_range
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import Job
from napari_gpu_denoise.run.ledger import Ledger, check_whole, check_written, parts_left
from napari_gpu_denoise.run.noise import Sigma
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.parts import Part, regions_of, size_of, unit_of
from napari_gpu_denoise.run.record import COMPILING, Progress, Result, Tally, change_note
from napari_gpu_denoise.run.several import filter_parts
from napari_gpu_denoise.run.stream import FrameStream


def denoise_parts(
    image: Any, job: Job, out: Any, devices: Sequence[Device], ledger: Ledger | None = None
) -> Generator[Progress, None, Result]:
    """Denoise an array in parts, each of a few chunks; `job` is prepared for it.

    The image is read by NumPy indexing: each part with its margin; and once more before, if the
    range of its values has to be known first. Each pixel of `out` is written once, in whole chunks
    wherever possible. Parts that `ledger` knows are left as they are. Progress is yielded per part.
    """
    unit = unit_of(out) or unit_of(image)
    locks, ledger = (threading.Lock(), threading.Lock()), ledger or Ledger()
    size = ledger.known("parts")
    if size is None:
        size = size_of(job, unit, devices)
        ledger.keep("parts", size)
    parts = [Part.of(job, region) for region in regions_of(job, size)]
    if job.levels is None and not is_plain(job.dtypes[0]):
        levels = ledger.known("levels")
        if levels is None:
            blocks = (as_array(image[part.yields]) for part in parts)
            levels = yield from range_of_levels(blocks, len(parts), "part read", job)
            ledger.keep("levels", levels)
        job = replace(job, levels=levels)
    rest, wrote = yield from parts_left(parts, ledger, out)
    before = ledger.tally

    def read(part: Part) -> Block:
        with locks[0]:
            pixels = as_array(image[part.reads])
        return Block.of(pixels, job.names, job.run.nonfinite)

    def room(part: Part) -> np.ndarray:
        return np.empty(part.shape, job.dtypes[1])

    def write(part: Part, made: np.ndarray, tally: Tally) -> None:
        # Parts may share a chunk.
        with locks[1]:
            out[part.yields] = made
            wrote(part, tally, ledger.mark(out, part.yields, made))

    yield COMPILING
    done = len(parts) - len(rest)
    shared = yield from filter_parts(devices, job, rest, read, room, write, done, ahead=True)
    yield from check_whole(ledger, out, [part.yields for part in parts])
    change = change_in_the_middle(image, out, job, parts)
    shared.used = shared.used or list(devices)
    return Result(out, shared.noted(job.record(before + shared.tally, change)))


def change_in_the_middle(image: Any, out: Any, job: Job, parts: Sequence[Part]) -> Note | None:
    """Return what `change_note` says of one part of a result that is complete."""
    if not job.sigma.array.any() or job.filter.yields_map:
        return None
    middle = parts[len(parts) // 2].yields
    pixels = Block.of(as_array(image[middle]), job.names, job.run.nonfinite)
    return change_note(pixels.finite, np.asarray(out[middle]), job.names)


def range_of_levels(
    blocks: Iterable[np.ndarray], count: int, unit: str, job: Job
) -> Generator[Progress, None, Levels]:
    """Choose the mapping of grey levels from the range of all pixels, read in `count` blocks."""
    range_of_values = ValueRange()
    for number, pixels in enumerate(blocks):
        yield Progress(number, count, unit)
        range_of_values += ValueRange.of(pixels)
    return range_of_values.levels(job)


@dataclass(frozen=True)
class ValueRange:
    """Range of the values of some pixels, their number, and how many are NaN or infinite."""

    low: Any = None
    high: Any = None
    nonfinite: int = 0
    size: int = 0

    @classmethod
    def of(cls, pixels: np.ndarray) -> ValueRange:
        """Look at pixels."""
        size, nonfinite = pixels.size, 0
        if pixels.dtype.kind == "f":
            finite = np.isfinite(pixels)
            nonfinite = size - int(np.count_nonzero(finite))
            pixels = pixels[finite]
        return cls(*(value_range(pixels) if pixels.size else (None, None)), nonfinite, size)

    def __add__(self, other: ValueRange) -> ValueRange:
        ends = [(one.low, one.high) for one in (self, other) if one.low is not None]
        low, high = (
            (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (None,) * 2
        )
        return ValueRange(low, high, self.nonfinite + other.nonfinite, self.size + other.size)

    def levels(self, job: Job) -> Levels:
        """Choose the mapping of grey levels for all of the pixels; refuse NaN."""
        if self.nonfinite and job.run.nonfinite == "raise":
            raise nonfinite_error(f"{self.nonfinite} of {self.size} pixels are NaN or infinite")
        if self.low is None:
            return Levels(0, 1.0)
        return Levels.spanning(self.low, self.high, job.filter.keeps_zero)


def denoise_series(
    image: Any, job: Job, out: Any, ledger: Ledger | None = None
) -> Generator[Progress, None, Result]:
    """Denoise an array along its axis T; `job` is prepared for it. Progress is yielded per frame.

    The image is read by NumPy indexing, once, or twice if the range of its values has to be known
    first. Frames are written to `out` by NumPy indexing, each once and in order. Frames that
    `ledger` knows are left as they are.
    """
    run, t, ledger = job.run, job.names.index("T"), ledger or Ledger()
    count = image.shape[t]
    levels = ledger.known("levels")
    if levels is None and not is_plain(job.dtypes[0]):
        levels = yield from range_of_levels(_frames(image, t), count, "frame read", job)
        ledger.keep("levels", levels)
    models, array, axes = job.sigma.models, job.sigma.array, job.names[:t] + job.names[t + 1 :]
    first = None if models else array.take(0, axis=t)
    one = replace(run, sigma=first, noise=models or None, axes=axes, dtype=job.dtypes[1])
    ledger.planned(["frames", count])
    yield from check_written(ledger, out, [_at(t, number) for number in range(count)])
    done, tally = _frames_done(ledger), ledger.tally
    # Frames before those that are left are read again, as far back as the filter looks.
    start = max(done - sum(job.margin_along("T")), 0) if done < count else count
    middle: list[np.ndarray] = []  # frame in the middle, before and after
    frames = _kept_at(count // 2 - start, _frames(image, t, start), middle)
    options = {"levels": levels, "sigma_of": _sigma_of(job.sigma, t, start)}
    first = as_array(image[_at(t, 0)]) if start else None
    stream = FrameStream(one, frames, like=first, **options)
    yield COMPILING
    yield Progress(done, count, "frame")
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
                yield Progress(number + 1, count, "frame")
    except DeviceMemoryError:
        if stream.count:
            raise
        # Whole frames are too large for the device; parts of them may fit.
        block = Block.of(as_array(image[...]), job.names, run.nonfinite)
        made = np.empty(job.shape, job.dtypes[1])
        tally = yield from filter_part(job, Part.of(job), block, made)
        out[...] = made
        return Result(out, job.record(tally))
    if len(middle) < 2:  # written by an earlier run
        where = _at(t, count // 2)
        middle = [as_array(image[where]), np.asarray(out[where])]
    change = change_note(*middle, axes) if job.sigma.array.any() else None
    return Result(out, job.record(tally, change))


def _frames_done(ledger: Ledger) -> int:
    """Return how many frames from the first on are written; forget those behind a lost one."""
    done = next(number for number in itertools.count() if number not in ledger.done)
    ledger.done = {number: ledger.done[number] for number in range(done)}
    return done


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
