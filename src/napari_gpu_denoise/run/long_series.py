"""Denoise a time series frame by frame; neither the image nor the result has to be in memory."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.image.levels import (
    Levels,
    as_array,
    is_plain,
    nonfinite_error,
    value_range,
)
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.block import Block
from napari_gpu_denoise.run.change import change_note
from napari_gpu_denoise.run.job import Job, Part
from napari_gpu_denoise.run.ledger import Ledger, parts_left
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.record import COMPILING, Progress, Result, Tally
from napari_gpu_denoise.run.several import filter_parts
from napari_gpu_denoise.run.sigma import Sigma
from napari_gpu_denoise.run.stream import FrameStream

# Of a part that one of several devices filters: frames for each one that it reads beyond them, and
# bytes that it holds at least, if there are enough frames.
_FRAMES_PER_MARGIN = 8
_PART_BYTES = 1 << 26


def denoise_series(
    image: Any, job: Job, out: Any, devices: Sequence[Device], ledger: Ledger | None = None
) -> Generator[Progress, None, Result]:
    """Denoise an array along its axis T; `job` is prepared for it. Progress is yielded per frame.

    The image is read by NumPy indexing, once, or twice if the range of its values has to be known
    first. Frames are written to `out` by NumPy indexing, each once; on one device in order, while
    several devices take a part of the series each, in turn. Frames that `ledger` knows are left as
    they are.
    """
    run, t, ledger = job.run, job.names.index("T"), ledger or Ledger()
    count = image.shape[t]
    levels = ledger.known("levels")
    if levels is None and not is_plain(job.dtypes[0]):
        levels = yield from _range_of_levels(image, job, t)
        ledger.keep("levels", levels)
    if len(devices) > 1:
        levels = job.levels if levels is None or job.sigma.stabilised else levels
        return (yield from _on_several(devices, image, replace(job, levels=levels), out, t, ledger))
    models, array, axes = job.sigma.models, job.sigma.array, job.names[:t] + job.names[t + 1 :]
    first = None if models else array.take(0, axis=t)
    one = replace(run, sigma=first, noise=models or None, axes=axes, dtype=job.dtypes[1])
    ledger.planned(["frames", count])
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
                ledger.wrote(number, own)
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
    """Return how many frames from the first on are written."""
    return next(number for number in itertools.count() if number not in ledger.done)


def _on_several(
    devices: Sequence[Device], image: Any, job: Job, out: Any, t: int, ledger: Ledger
) -> Generator[Progress, None, Result]:
    """Filter parts of a series, of a few frames each, on several devices."""
    count, locks = image.shape[t], (threading.Lock(), threading.Lock())
    size = _frames_of_part(job, t, len(devices))
    whole = [slice(0, n) for n in job.shape]
    regions = (slice(a, min(a + size, count)) for a in range(0, count, size))
    parts = [Part.of(job, [*whole[:t], one, *whole[t + 1 :]]) for one in regions]
    rest, wrote = parts_left(parts, ledger)
    before = ledger.tally

    def read(part: Part) -> Block:
        with locks[0]:
            pixels = as_array(image[part.reads])
        return Block.of(pixels, job.names, job.run.nonfinite)

    def room(part: Part) -> np.ndarray:
        return np.empty([one.size for one in part.spans], job.dtypes[1])

    def write(part: Part, made: np.ndarray, tally: Tally) -> None:
        with locks[1]:
            for number, frame in enumerate(np.moveaxis(made, t, 0), part.spans[t].start):
                out[_at(t, number)] = frame
            wrote(part, tally)

    yield COMPILING
    done = len(parts) - len(rest)
    shared = yield from filter_parts(devices, job, rest, read, room, write, done)
    change = None
    if job.sigma.array.any():
        middle = _at(t, count // 2)
        axes = job.names[:t] + job.names[t + 1 :]
        change = change_note(as_array(image[middle]), np.asarray(out[middle]), axes)
    shared.used = shared.used or list(devices)
    return Result(out, shared.noted(job.record(before + shared.tally, change)))


def _frames_of_part(job: Job, t: int, devices: int) -> int:
    """Return how many frames a part of a series yields: few margins, in little memory."""
    count = job.shape[t]
    margin = sum(job.margin_along("T"))
    frame = math.prod(job.shape) // count * (job.dtypes[0].itemsize + job.dtypes[1].itemsize)
    wanted = max(_FRAMES_PER_MARGIN * margin, _PART_BYTES // max(frame, 1), 1)
    return min(wanted, max(math.ceil(count / devices), margin, 1))


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


def _range_of_levels(image: Any, job: Job, t: int) -> Generator[Progress, None, Levels]:
    """Choose the mapping of grey levels from the range of all frames."""
    ends, nonfinite, size = [], 0, 0
    for number, frame in enumerate(_frames(image, t)):
        yield Progress(number, image.shape[t], "frame read")
        size += frame.size
        if frame.dtype.kind == "f":
            finite = np.isfinite(frame)
            nonfinite += frame.size - int(np.count_nonzero(finite))
            frame = frame[finite]
        if frame.size:
            ends.append(value_range(frame))
    if nonfinite and job.run.nonfinite == "raise":
        raise nonfinite_error(f"{nonfinite} of {size} pixels are NaN or infinite")
    if not ends:
        return Levels(0, 1.0)
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return Levels.spanning(low, high, job.filter.keeps_zero)
