"""Denoise an array part by part; neither the image nor the result has to be in memory."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, Note
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import (
    Levels,
    as_array,
    is_plain,
    nonfinite_error,
    value_range,
)
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import Job, Part
from napari_gpu_denoise.run.ledger import Ledger, check_whole, parts_left
from napari_gpu_denoise.run.record import COMPILING, Progress, Result, Tally, change_note
from napari_gpu_denoise.run.several import filter_parts

# Bytes of pixels and result that a part holds. Larger parts read fewer margins.
PART_BYTES = 1 << 26
# As many times as much where a part would read half as much again as it yields, along one axis.
_WIDE = 4
# Of a filter over time, frames for each one that a part reads beyond them, if they fit.
_FRAMES_PER_MARGIN = 8
_MOST_PARTS = 1 << 20  # 64 TB; more are a shape that lies


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
        return np.empty([one.size for one in part.spans], job.dtypes[1])

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


def unit_of(array: Any) -> tuple[int, ...] | None:
    """Return what is best read and written at once: the chunks of zarr, if there are any."""
    chunks = getattr(array, "chunks", None)
    chunks = getattr(array, "shards", None) or chunks
    if not chunks or not all(isinstance(one, (int, np.integer)) for one in chunks):
        return None
    return tuple(map(int, chunks))


def is_chunked(array: Any) -> bool:
    """Return whether an array, such as one of zarr, is stored in chunks of one shape."""
    return unit_of(array) is not None


def regions_of(job: Job, size: Sequence[int]) -> list[tuple[slice, ...]]:
    """Cut an image into regions of these lengths."""
    shape = job.shape
    starts = [range(0, n, s) for n, s in zip(shape, size, strict=True)]
    if (count := math.prod(map(len, starts))) > _MOST_PARTS:
        raise ImageError(
            f"An image of shape {shape} would be filtered in {count} parts: split it into "
            "several images."
        )
    return [
        tuple(slice(a, min(a + s, n)) for a, s, n in zip(start, size, shape, strict=True))
        for start in itertools.product(*starts)
    ]


def size_of(job: Job, unit: Sequence[int] | None, devices: Sequence[Device]) -> tuple[int, ...]:
    """Return the lengths of regions of whole units, as large as `PART_BYTES` allows.

    Without a unit it is a plane. The margins of volumes are wide: their regions may be larger. Each
    of several devices gets frames, if there are more than a filter looks at. All stay within the
    memory that the run may take.
    """
    filter, names, shape, host = job.filter, job.names, job.shape, job.run.host_memory
    whole = {channel_axis(names)} if "C" in filter.joint else set()
    if filter.over_time:
        # Whole frames are compared in brightness, and checked for being empty.
        whole |= {names.index(a) for a in ("YXZ" if filter.whole_volumes else "YX") if a in names}
    whole |= {i for i, a in enumerate(names) if a in "YX" and shape[i] < 2 * filter.smallest}
    plane = {names.index("Y"), names.index("X")}
    plane |= {i for i, a in enumerate(names) if a == "S"}  # colours lie side by side
    steps = [n if i in plane else 1 for i, n in enumerate(shape)] if unit is None else list(unit)
    steps = [
        n if i in whole else min(s, n) for i, (s, n) in enumerate(zip(steps, shape, strict=True))
    ]
    margins = [sum(job.margin_along(a)) for a in names]
    longest = list(shape)
    if "T" in names:
        t = names.index("T")
        longest[t] = min(shape[t], max(math.ceil(shape[t] / len(devices)), margins[t], 1))
    each = sum(one.itemsize for one in job.dtypes)
    most = (PART_BYTES if host is None else min(PART_BYTES, host.part_bytes(devices))) // each
    if filter.over_time and "T" in names:
        frames = min(longest[t], _FRAMES_PER_MARGIN * max(margins[t], 1))
        alone = math.prod(s for i, s in enumerate(steps) if i != t)
        if alone * frames > 4 * most:
            # Rather reading a chunk several times than margins of many frames with few.
            steps = [s if i in {t, *whole} else 1 for i, s in enumerate(steps)]
        if len(devices) == 1:
            # In whole units: parts that share none can be written by several processes.
            frames = math.ceil(frames / steps[t]) * steps[t]
        steps[t] = max(steps[t], frames)
        least = max(margins[t], 1)
        while host and steps[t] > least and not host.fits(_held(steps, job), devices):
            steps[t] = max(steps[t] // 2, least)
    size = [max(s, 1) for s in steps]
    while True:
        # Where the margin is largest beside what is yielded; then the axis that varies fastest.
        grow = [i for i, n in enumerate(longest) if size[i] < n]
        axis = max(grow, key=lambda i: (margins[i] / size[i], i), default=None)
        wide = _WIDE if axis is not None and margins[axis] > size[axis] / 2 else 1
        if axis is None or 2 * math.prod(size) > most * wide:
            break
        size[axis] = min(longest[axis], 2 * size[axis])
    if host is not None:
        host.check_part(_held(size, job), devices)
    return tuple(size)


def _held(size: Sequence[int], job: Job) -> int:
    """Return the bytes of pixels and result of a region of these lengths, with its margins."""
    read = (
        n if a in job.read_whole else min(s + sum(job.margin_along(a)), n)
        for s, a, n in zip(size, job.names, job.shape, strict=True)
    )
    given, made = (one.itemsize for one in job.dtypes)
    return math.prod(read) * given + math.prod(size) * made


def range_of_levels(
    blocks: Iterable[np.ndarray], count: int, unit: str, job: Job
) -> Generator[Progress, None, Levels]:
    """Choose the mapping of grey levels from the range of all pixels, read in `count` blocks."""
    found = Seen()
    for number, pixels in enumerate(blocks):
        yield Progress(number, count, unit)
        found += Seen.of(pixels)
    return found.levels(job)


@dataclass(frozen=True)
class Seen:
    """Range of the values of some pixels, their number, and how many are NaN or infinite."""

    low: Any = None
    high: Any = None
    nonfinite: int = 0
    size: int = 0

    @classmethod
    def of(cls, pixels: np.ndarray) -> Seen:
        """Look at pixels."""
        size, nonfinite = pixels.size, 0
        if pixels.dtype.kind == "f":
            finite = np.isfinite(pixels)
            nonfinite = size - int(np.count_nonzero(finite))
            pixels = pixels[finite]
        return cls(*(value_range(pixels) if pixels.size else (None, None)), nonfinite, size)

    def __add__(self, other: Seen) -> Seen:
        ends = [(one.low, one.high) for one in (self, other) if one.low is not None]
        low, high = (
            (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (None,) * 2
        )
        return Seen(low, high, self.nonfinite + other.nonfinite, self.size + other.size)

    def levels(self, job: Job) -> Levels:
        """Choose the mapping of grey levels for all of the pixels; refuse NaN."""
        if self.nonfinite and job.run.nonfinite == "raise":
            raise nonfinite_error(f"{self.nonfinite} of {self.size} pixels are NaN or infinite")
        if self.low is None:
            return Levels(0, 1.0)
        return Levels.spanning(self.low, self.high, job.filter.keeps_zero)
