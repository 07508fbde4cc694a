"""Denoise a time series that is not in memory, frame by frame, into an array that need not be."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError, NonFiniteError
from napari_gpu_denoise.image.levels import Levels, is_plain, value_range
from napari_gpu_denoise.run.block import Block
from napari_gpu_denoise.run.job import Job, Part, Run, prepare
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.record import Progress, Result
from napari_gpu_denoise.run.stream import FrameStream


def denoise_series(image: Any, run: Run, out: Any) -> Generator[Progress, None, Result]:
    """Denoise along T; neither the image nor the result is ever whole in memory.

    Parameters
    ----------
    image : array
        Anything with ``shape``, ``dtype`` and NumPy indexing, with an axis T. Read once, twice
        where the range of its values has to be known first.
    run : Run
        What to do; its axes are named.
    out : array
        Takes the frames by NumPy indexing, each once and in order.

    Yields
    ------
    Progress
        After each frame.

    Returns
    -------
    Result

    Raises
    ------
    AxesError, ImageError, NonFiniteError, SigmaError, SettingsError
        If the input does not fit.
    NoDeviceError, DeviceMemoryError, KernelError
        If the device does not.
    """
    job = prepare(run, image)
    t = job.names.index("T")
    count = image.shape[t]
    levels = None
    if not is_plain(job.dtypes[0]):
        levels = yield from _range_of_levels(image, job, t)
    one = replace(
        run,
        sigma=None if job.sigma.models else _sigma_of_frames(job, t),
        noise=job.sigma.models or None,
        axes=job.names[:t] + job.names[t + 1 :],
    )
    stream = FrameStream(one, _frames(image, t), levels=levels)
    yield Progress(0, count, "frame")
    try:
        with closing(iter(stream)) as results:
            for number, frame in enumerate(results):
                out[_at(t, number)] = frame
                yield Progress(number + 1, count, "frame")
    except DeviceMemoryError:
        if stream.count:
            raise
        # Whole frames are too large for the device; in parts they may fit.
        block = Block.of(np.asarray(image[...]), job.names, run.nonfinite)
        made = np.empty(job.shape, job.dtypes[1])
        tally = yield from filter_part(job, Part.of(job), block, made)
        out[...] = made
    else:
        tally = stream.tally
    return Result(out, job.record(tally))


def _frames(image: Any, t: int) -> Iterator[np.ndarray]:
    for number in range(image.shape[t]):
        yield np.asarray(image[_at(t, number)])


def _at(t: int, number: int) -> tuple:
    return (*(slice(None),) * t, number)


def _sigma_of_frames(job: Job, t: int) -> Any:
    """Return the sigma of a frame: the same for all, or a function of its number."""
    array = job.sigma.array
    if array.shape[t] == 1:
        return array.take(0, axis=t)
    return lambda number: array.take(number, axis=t)


def _range_of_levels(image: Any, job: Job, t: int) -> Generator[Progress, None, Levels]:
    """Choose how grey levels become what kernels see from the range of all frames."""
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
        raise NonFiniteError(
            f"{nonfinite} of {size} pixels are NaN or infinite",
            "pass nonfinite='keep' to leave them as they are and filter the others",
            code="nonfinite",
        )
    if not ends:
        return Levels(0, 1.0)
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return Levels.spanning(low, high, job.filter.keeps_zero)
