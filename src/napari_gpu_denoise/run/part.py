"""Parts of an image: how it is cut into them, and how one is filtered once it is in memory."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError, ImageError
from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import convert
from napari_gpu_denoise.image.threads import quiet
from napari_gpu_denoise.opencl.device import Device, choose_devices
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors
from napari_gpu_denoise.opencl.program import ProgramKey, program_key, session
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.tiles import Span, regions
from napari_gpu_denoise.run.flow.frame_flow import ArrayFrameFlow
from napari_gpu_denoise.run.flow.tile_flow import TileFlow
from napari_gpu_denoise.run.flow.work import FrameSigma, Work
from napari_gpu_denoise.run.input import Block, extend, extend_sigma, keep_blank, keep_noiseless
from napari_gpu_denoise.run.job import Job, check_kept, sigma_over, start
from napari_gpu_denoise.run.progress import SILENT, Progress
from napari_gpu_denoise.run.record import Tally
from napari_gpu_denoise.run.request import Devices, Run, on_cores

# As many times the bytes of a part for a GPU, which takes one in less time than its chunks are
# packed.
_ON_A_GPU = 4
# As many times as much where a part would read half as much again as it yields, along one axis.
_WIDE = 4
_MOST_PARTS = 1 << 20  # 64 TB; more are a shape that lies
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
        smallest, spans = job.filter.smallest, []
        yields = yields or [slice(0, n) for n in job.shape]
        for axis, one, n, margin in zip(job.names, yields, job.shape, job.margins, strict=True):
            if axis in "YX" and n < smallest and (one.start, one.stop) != (0, n):
                raise ValueError(f"the axis {axis} of {n} pixels is too short to be cut")
            spans.append(Span.whole(n).part(one.start, one.stop, margin))
        return cls(tuple(spans))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Lengths of what is yielded."""
        return tuple(span.size for span in self.spans)

    @cached_property
    def reads(self) -> tuple[slice, ...]:
        """What is read, as an index into the image."""
        return tuple(span.reads for span in self.spans)

    @cached_property
    def yields(self) -> tuple[slice, ...]:
        """What is yielded, as an index into the image."""
        return tuple(span.yields for span in self.spans)

    @cached_property
    def inner(self) -> tuple[slice, ...]:
        """What is yielded, as an index into what is read."""
        return tuple(slice(span.margin, span.stop - span.source_start) for span in self.spans)


def within(inner: Sequence[slice], outer: Sequence[slice]) -> tuple[slice, ...]:
    """Return a region as an index into a larger one that holds it."""
    return tuple(
        slice(one.start - all_.start, one.stop - all_.start)
        for one, all_ in zip(inner, outer, strict=True)
    )


def with_uncut_axes(
    filter: Filter, names: str, shape: Sequence[int], region: Sequence[slice]
) -> list[slice]:
    """Return a region with all of the axes not to cut: short ones, channels that are joined."""
    joined, smallest = "CS" if "C" in filter.joint else "", filter.smallest
    return [
        slice(0, n) if axis in joined or (axis in "YX" and n < smallest) else one
        for axis, n, one in zip(names, shape, region, strict=True)
    ]


def unit_of(array: Any) -> tuple[int, ...] | None:
    """Return the chunks of an array, of zarr for example, if there are any."""
    chunks = getattr(array, "chunks", None)
    chunks = getattr(array, "shards", None) or chunks
    if not chunks or not all(isinstance(one, (int, np.integer)) for one in chunks):
        return None
    return tuple(map(int, chunks))


def regions_of(
    job: Job, size: Sequence[int], inside: Sequence[slice] | None = None
) -> list[tuple[slice, ...]]:
    """Cut an image, or a region of it, into regions of these lengths.

    Raises `ImageError` if these are too many.
    """
    inside = inside or [slice(0, n) for n in job.shape]
    shape = [one.stop - one.start for one in inside]
    if (count := math.prod(-(-n // s) for n, s in zip(shape, size, strict=True))) > _MOST_PARTS:
        raise ImageError(
            f"An image of shape {tuple(shape)} would be filtered in {count} parts: split it into "
            "several images."
        )
    return [
        tuple(slice(a.start + b.start, a.start + b.stop) for a, b in zip(inside, one, strict=True))
        for one in regions(shape, size)
    ]


def size_of(job: Job, unit: Sequence[int] | None, devices: Devices) -> tuple[int, ...]:
    """Return the lengths of regions of whole units, as large as `Limits` allow.

    Without a unit it is a plane. The margins of volumes are wide: their regions may be larger. Each
    of several devices gets frames, if there are more than a filter looks at. All stay within the
    memory that the run may take. Devices that are not known yet are None.
    """
    filter, names, shape = job.filter, job.names, job.shape
    host, limits = job.run.host_memory, job.run.limits
    whole = filter.uncut_axes(names)
    whole |= {i for i, a in enumerate(names) if a in "YX" and shape[i] < 2 * filter.smallest}
    plane = {names.index("Y"), names.index("X")}
    plane |= {i for i, a in enumerate(names) if a == "S"}  # colours lie side by side
    steps = [n if i in plane else 1 for i, n in enumerate(shape)] if unit is None else list(unit)
    steps = [
        n if i in whole else min(s, n) for i, (s, n) in enumerate(zip(steps, shape, strict=True))
    ]
    margins = [*map(sum, job.margins)]
    longest = list(shape)
    if "T" in names:
        t = names.index("T")
        longest[t] = min(shape[t], max(math.ceil(shape[t] / len(devices)), margins[t], 1))
    each = sum(one.itemsize for one in job.dtypes)
    aim = limits.part_bytes * (1 if on_cores(devices) else _ON_A_GPU)
    most = (aim if host is None else min(aim, host.part_bytes(devices))) // each
    if filter.over_time and "T" in names:
        frames = min(longest[t], limits.frames_per_margin * max(margins[t], 1))
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
    size = _grown([max(s, 1) for s in steps], longest, margins, most)
    if host is not None:
        host.check_part(_held(size, job), devices)
    return tuple(size)


def _grown(size: list[int], longest: Sequence[int], margins: Sequence[int], most: int) -> list[int]:
    """Return lengths that are doubled, up to the `longest`, within a number of pixels."""
    while True:
        # Where the margin is largest beside what is yielded; then the axis that varies fastest.
        grow = [i for i, n in enumerate(longest) if size[i] < n]
        axis = max(grow, key=lambda i: (margins[i] / size[i], i), default=None)
        if axis is None:
            return size
        larger = [*size]
        larger[axis] = min(longest[axis], 2 * size[axis])
        is_wide = margins[axis] > size[axis] / 2
        if math.prod(larger) > most * (_WIDE if is_wide else 1):
            return size
        size = larger


def _held(size: Sequence[int], job: Job) -> int:
    """Return the bytes of pixels and result of a region of these lengths, with its margins."""
    each = zip(size, job.margins, job.shape, strict=True)
    read = (min(s + sum(margin), n) for s, margin, n in each)
    given, made = (one.itemsize for one in job.dtypes)
    return math.prod(read) * given + math.prod(size) * made


def divide(job: Job, part: Part, devices: int, each: int = 1) -> list[Part]:
    """Cut a part, into `each` for a device, along the axis where that costs least, if it pays.

    The pixels of the parts are those of the whole. Filters over time compare whole frames, so that
    these are cut along other axes only.
    """
    filter, names = job.filter, job.names
    whole = filter.uncut_axes(names)
    count = min(each * devices, math.prod(part.shape) // job.run.limits.smallest_part)
    best, least = None, 1.0
    for axis, (letter, span) in enumerate(zip(names, part.spans, strict=True)):
        short = letter in "YX" and span.length < filter.smallest
        if axis in whole or short or not 1 < count <= span.size:
            continue
        # What one device has to do of all.
        pixels = math.ceil(span.size / count) + sum(job.margins[axis])
        share = math.ceil(count / devices) * pixels / span.size
        if share + _PART_COST < least:
            best, least = axis, share + _PART_COST
    if best is None:
        return [part]
    span = part.spans[best]
    ends = [span.start + span.size * k // count for k in range(count + 1)]
    regions = (
        [*part.yields[:best], slice(*both), *part.yields[best + 1 :]]
        for both in itertools.pairwise(ends)
    )
    return [Part.of(job, region) for region in regions]


@quiet()
def filter_part(
    job: Job, part: Part, block: Block, out: np.ndarray, progress: Progress = SILENT
) -> Tally:
    """Filter one part of an image: `block` holds the pixels it reads, `out` takes those it yields.

    Parts are independent: a pixel gets the same result in any part, wherever it is filtered. If the
    device runs out of memory, the part is filtered again in smaller tiles. `progress` is told
    before any work and after each tile, or some of the frames.
    """
    job = job.suited(block)
    inner, sigma = block[part.inner], sigma_over(job.sigma.array, part.yields)
    check_kept(block, out.dtype)
    if not sigma.any():
        progress.tell(0, 1)
        saturated = convert(job.unfiltered(inner.finite), out)
        inner.restore(out)
        progress.tell(1, 1)
        return Tally(saturated, inner.nonfinite, inner.fill)
    work = arrange_part(job, part, block.finite, out)
    coming = cache(partial(programs_of, job, block.finite.dtype, out.dtype))
    for shrink in itertools.count():
        flow = None
        try:
            with device_errors(work.session), borrow(work.session) as arena:
                arena.coming = coming
                flow = _flow_of(job)(work, arena, shrink)
                with closing(flow):
                    saturated = flow.run(progress)
            break
        except DeviceMemoryError as error:
            if flow is None:
                raise  # smaller tiles would not help: none has been made yet
            if flow.can_shrink:
                work = replace(work, session=session(job.device))  # opened anew if it was lost
                continue
            raise DeviceMemoryError(
                f"{work.session.device} has too little free memory even for {flow.size}: close "
                "other programs, choose settings with a smaller search range, or another device."
            ) from error
    keep_noiseless(job.unfiltered(inner.finite), out, job.names, sigma)
    keep_blank(block.given, out, part.inner, job.names, job.blank_width)
    inner.restore(out)
    return Tally(saturated, inner.nonfinite, inner.fill)


def _flow_of(job: Job) -> type[ArrayFrameFlow] | type[TileFlow]:
    return ArrayFrameFlow if job.filter.over_time else TileFlow


def arrange_part(job: Job, part: Part, pixels: np.ndarray, out: np.ndarray) -> Work:
    """View the pixels of a part as frames, extended if they are fewer than the filter needs."""
    names, filter = job.names, job.filter
    joint, smallest = filter.joint, filter.smallest
    lengths = [span.length for span in part.spans]
    # An axis too short for the filter is never cut; it is extended as a whole.
    wide = extend(pixels, names, lengths, smallest)
    sigma = extend_sigma(sigma_over(job.sigma.array, part.reads), names, lengths, smallest)
    numbers, largest = job.sigma.numbers, job.largest_sigma
    numbers = None if numbers is None else sigma_over(numbers, part.reads)
    largest = None if largest is None else sigma_over(largest, part.reads)
    spans: dict[str, Span] = {}
    for axis, span, length in zip(names, part.spans, wide.shape, strict=True):
        if axis in "YX":
            spans[axis] = Span.whole(length) if span.length < smallest else span
        elif axis in "TZ" and axis in joint:
            spans[axis] = span
    none = Span.whole(0)
    t, z, y, x = (spans.get(a, none) for a in "TZYX")
    read = t.source_start, z.source_start, y.source_start, x.source_start
    source = arrange(wide, names, joint, read)
    # Axes that are not cut: independent frames, and axes that the filter does not join.
    whole = zip("TZYX", source.shape[1:], strict=True)
    return Work(
        filter,
        source,
        arrange(out, names, joint, (t.start, z.start, y.start, x.start)),
        job.levels_of(pixels),
        FrameSigma.of(sigma, wide.shape, names, joint, read, largest, numbers),
        session(job.device),
        tuple(spans.get(a) or Span.whole(n) for a, n in whole),
        job.stabilised,
        job.dtypes[1].kind != "u",
        job.run.limit_of_memory,
    )


# Lengths of axes that a filter joins: all that a plan does at its borders and between them.
_FEW = {"T": 5, "Z": 9, "Y": 48, "X": 48}


class _Recorder(Arena):
    """Buffers of a rehearsal, and kernels that are only noted."""

    def __init__(self, session: Any):
        super().__init__(session)
        self.programs: dict[ProgramKey, None] = {}

    def buffer(self, name: str, nbytes: int) -> Any:
        """Return a buffer of zeros: what is in it may be converted on the host."""
        import pyopencl as cl

        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < nbytes:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            zeros = np.zeros(max(int(nbytes), 4), np.uint8)
            buffer = self._buffers[name] = cl.Buffer(self.session.context, flags, hostbuf=zeros)
        return buffer

    def kernel(self, name: str, constants: Mapping[str, int]):
        """Note a kernel; what is returned enqueues nothing but a marker."""
        import pyopencl as cl

        self.programs[program_key(name, constants)] = None
        return lambda queue, *_, **__: cl.enqueue_marker(queue)


def programs_of(job: Job, given: np.dtype, wanted: np.dtype) -> list[ProgramKey]:
    """Return the programs that filter pixels of one type to results of another, in order of use."""
    joint = job.filter.joint + "YX"
    few = [
        min(n, _FEW.get(axis, n)) if axis in joint else 1
        for axis, n in zip(job.names, job.shape, strict=True)
    ]
    pixels, out = (np.zeros(few, dtype) for dtype in (given, wanted))
    work = arrange_part(job, Part(tuple(map(Span.whole, few))), pixels, out)
    recorder = _Recorder(work.session)
    try:
        with closing(_flow_of(job)(work, recorder)) as flow:
            flow.run()
    finally:
        recorder.free()
    return list(recorder.programs)


SIGMA = 10.0
BUILDERS = 8  # processes at most, each of which has a context: some 0.3 GB of the device
_LENGTHS = {"T": 5, "Z": 9, "Y": 40, "X": 48}


def tiny_image(settings: Filter, dtype: Any = np.float32) -> tuple[np.ndarray, str]:
    """Return an image with the axes that a filter needs, and their names."""
    axes = "T" * settings.over_time + "Z" * ("Z" in settings.joint) + "YX"
    values = np.random.default_rng(0).normal(100, SIGMA, [_LENGTHS[axis] for axis in axes])
    return np.clip(values, 1, 200).astype(dtype), axes


def programs_for(run: Run, image: np.ndarray) -> list[ProgramKey]:
    """Return the programs of a run on images like this one."""
    job = start(run, image)
    return programs_of(job, image.dtype, job.dtypes[1])


def warm_up(settings: Filter, device: Device) -> None:
    """Build the programs of a filter for images of float32 and uint16.

    The drivers of CPUs build in the first run whatever is done here: they are only tested.
    """
    (device,) = choose_devices(device, settings.name)
    if device.shares_cores:
        return
    needed: dict[ProgramKey, None] = {}
    for dtype in (np.float32, np.uint16):
        image, axes = tiny_image(settings, dtype)
        run = Run(settings, SIGMA, axes=axes, device=device)
        needed.update(dict.fromkeys(programs_for(run, image)))
    for _ in session(device).build_all(needed, builders()):
        pass


def builders() -> int:
    """Return how many processes may build while a user waits for nothing else."""
    return min(BUILDERS, (os.cpu_count() or 1) - 1)
