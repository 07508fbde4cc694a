"""Denoise a time series frame by frame; neither the image nor the result has to be in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.image.levels import as_array, is_plain
from napari_gpu_denoise.run.by_parts import range_of_levels
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import Job, Part
from napari_gpu_denoise.run.ledger import Ledger, check_written
from napari_gpu_denoise.run.noise import Sigma
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.record import COMPILING, Progress, Result, change_note
from napari_gpu_denoise.run.stream import FrameStream


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
