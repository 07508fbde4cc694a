"""Parts of an image: what they yield and read, and how an image is cut into them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.protocol.tiles import Span
from napari_gpu_denoise.run.job import Job

# Bytes of pixels and result that a part holds. Larger parts read fewer margins.
PART_BYTES = 1 << 26
# As many times as much where a part would read half as much again as it yields, along one axis.
_WIDE = 4
# Of a filter over time, frames for each one that a part reads beyond them, if they fit.
_FRAMES_PER_MARGIN = 8
_MOST_PARTS = 1 << 20  # 64 TB; more are a shape that lies
# Fewest pixels of a part: for fewer, a second device would not be worth its transfers.
_SMALLEST_PART = 1 << 18
# Parts for each device: the more, the less a slow device delays the others at the end.
_PARTS_EACH = 4
# What a part costs besides its pixels, as a share of the image.
_PART_COST = 0.005


@dataclass(frozen=True)
class Part:
    """A part of an image that is filtered on its own: what it yields and reads along each axis."""

    spans: tuple[Span, ...]

    @classmethod
    def of(cls, job: Job, yields: Sequence[slice] | None = None) -> Part:
        """Return the part that yields a region, by default all, and reads the margin around it.

        It must not cut an axis Y or X that has to be extended by mirroring.
        """
        noisy = job.sigma.array.any()  # without noise nothing is filtered, and no margin needed
        spans = []
        yields = yields or [slice(0, n) for n in job.shape]
        for axis, one, n in zip(job.names, yields, job.shape, strict=True):
            if axis in "YX" and n < job.filter.smallest and (one.start, one.stop) != (0, n):
                raise ValueError(f"the axis {axis} of {n} pixels is too short to be cut")
            margin = job.margin_along(axis) if noisy else (0, 0)
            if noisy and axis in job.read_whole:
                margin = n, n
            spans.append(Span.whole(n).part(one.start, one.stop, margin))
        return cls(tuple(spans))

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of what is yielded."""
        return tuple(span.size for span in self.spans)

    @property
    def reads(self) -> tuple[slice, ...]:
        """What is read, as an index into the image."""
        return tuple(span.reads for span in self.spans)

    @property
    def yields(self) -> tuple[slice, ...]:
        """What is yielded, as an index into the image."""
        return tuple(span.yields for span in self.spans)

    @property
    def inner(self) -> tuple[slice, ...]:
        """What is yielded, as an index into what is read."""
        return tuple(slice(span.margin, span.margin + span.size) for span in self.spans)


def within(inner: Sequence[slice], outer: Sequence[slice]) -> tuple[slice, ...]:
    """Return a region as an index into a larger one that holds it."""
    return tuple(
        slice(one.start - all_.start, one.stop - all_.start)
        for one, all_ in zip(inner, outer, strict=True)
    )


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
    whole = filter.uncut_axes(names)
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


def divide(job: Job, part: Part, devices: int) -> list[Part]:
    """Cut a part for several devices, along the axis where that costs least; or leave it whole.

    The pixels of the parts are those of the whole. Filters over time compare whole frames, so that
    these are cut along other axes only.
    """
    filter, names = job.filter, job.names
    whole = filter.uncut_axes(names)
    most = min(_PARTS_EACH * devices, math.prod(part.shape) // _SMALLEST_PART)
    best, cost = (0, 1), 1.0
    for axis, (letter, span) in enumerate(zip(names, part.spans, strict=True)):
        if axis in whole or (letter in "YX" and span.length < filter.smallest):
            continue
        margin = sum(job.margin_along(letter)) / span.size
        for count in range(devices, min(most, span.size) + 1):
            each = math.ceil(span.size / count) / span.size + margin + _PART_COST
            taken = math.ceil(count / devices) * each
            if taken < cost:
                best, cost = (axis, count), taken
    axis, count = best
    span = part.spans[axis]
    ends = [span.start + span.size * k // count for k in range(count + 1)]
    regions = (
        [*part.yields[:axis], slice(*both), *part.yields[axis + 1 :]]
        for both in itertools.pairwise(ends)
    )
    return [part] if count == 1 else [Part.of(job, region) for region in regions]
