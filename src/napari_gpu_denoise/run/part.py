"""Filter one part of an image; the pixels of the part are in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import Levels, convert
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors
from napari_gpu_denoise.opencl.program import ProgramKey, program_key, session
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.tiles import Span
from napari_gpu_denoise.run.flow.frame_flow import ArrayFrameFlow
from napari_gpu_denoise.run.flow.tile_flow import TileFlow
from napari_gpu_denoise.run.flow.work import FrameSigma, Work
from napari_gpu_denoise.run.input import Block, extend, extend_sigma, keep_blank, keep_noiseless
from napari_gpu_denoise.run.job import Job, check_kept, prepare, sigma_over
from napari_gpu_denoise.run.noise import clamp_sigma
from napari_gpu_denoise.run.parts import Part
from napari_gpu_denoise.run.record import Progress, Tally
from napari_gpu_denoise.run.request import Run


def filter_part(
    job: Job, part: Part, block: Block, out: np.ndarray
) -> Generator[Progress, None, Tally]:
    """Filter one part of an image: `block` holds the pixels it reads, `out` takes those it yields.

    Parts are independent: a pixel gets the same result in any part, wherever it is filtered. If the
    device runs out of memory, the part is filtered again in smaller tiles. Progress is yielded
    before any work and after each tile, or some of the frames.
    """
    if job.sigma.planes is not None:
        planes = job.sigma.planes
        if planes.axis is None:
            job = _for_kind(job, int(planes.kinds.flat[0]))
        elif job.names[planes.axis] not in job.filter.joint:
            return (yield from _filter_kinds(job, part, block, out))
    if job.levels is None:
        # The range of the whole image is not known, as of one frame of many.
        array = clamp_sigma(job.sigma, block.finite, job.filter, is_stream_frame=True)
        job = replace(job, sigma=replace(job.sigma, array=array))
    inner, sigma = block[part.inner], sigma_over(job.sigma.array, part.yields)
    check_kept(block, out.dtype)
    if not sigma.any():
        Levels.of(block.finite)  # refuses NaN and infinity
        yield Progress(0, 1)
        saturated = convert(job.unfiltered(inner.finite), out)
        inner.restore(out)
        yield Progress(1, 1)
        return Tally(saturated, inner.nonfinite)
    work = arrange_part(job, part, block.finite, out)
    coming = cache(partial(programs_of, job, block.finite.dtype, out.dtype))
    for shrink in count():
        flow = None
        try:
            with device_errors(work.session), borrow(work.session) as arena:
                arena.coming = coming
                flow = _flow_of(job)(work, arena, shrink)
                with closing(flow):
                    saturated = yield from flow.run()
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
    return Tally(saturated, inner.nonfinite)


def programs_of(job: Job, given: np.dtype, wanted: np.dtype) -> list[ProgramKey]:
    """Return the programs that filter pixels of one type to results of another."""
    return rehearse(job, (given, wanted), arrange_part, _flow_of(job))


def _flow_of(job: Job) -> type[ArrayFrameFlow] | type[TileFlow]:
    return ArrayFrameFlow if job.filter.over_time else TileFlow


def _filter_kinds(
    job: Job, part: Part, block: Block, out: np.ndarray
) -> Generator[Progress, None, Tally]:
    """Filter the planes of a part whose noise is of one kind after those of another."""
    axis, tally, done = job.sigma.planes.axis, Tally(), 0
    kinds = job.sigma.planes.at(part.yields)
    for kind in np.unique(kinds):
        chosen = np.flatnonzero(kinds == kind)
        one, spans = _for_kind(job, kind), list(part.spans)
        sigma, place = one.sigma, part.spans[axis].start + chosen
        if sigma.array.shape[axis] > 1:
            one = replace(one, sigma=replace(sigma, array=sigma.array.take(place, axis)))
        spans[axis] = Span.whole(len(chosen))
        index = (*(slice(None),) * axis, chosen)
        made = np.empty(out[index].shape, out.dtype)
        steps = filter_part(one, Part(tuple(spans)), block[index], made)
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                tally += end.value
                break
            share = len(chosen) * step.done // max(step.total, 1)
            yield Progress(done + share, len(kinds), "plane")
        out[index] = made
        done += len(chosen)
    return tally


def _for_kind(job: Job, kind: int) -> Job:
    """Return the job for planes whose noise is of one kind."""
    applied = job.filter.for_planes(job.sigma.planes.models[kind])
    return replace(job, filter=applied, sigma=replace(job.sigma, planes=None))


def arrange_part(job: Job, part: Part, pixels: np.ndarray, out: np.ndarray) -> Work:
    """View the pixels of a part as frames, extended if they are fewer than the filter needs."""
    names, filter = job.names, job.filter
    lengths = [span.length for span in part.spans]
    # An axis too short for the filter is never cut; it is extended as a whole.
    wide = extend(pixels, names, lengths, filter.smallest)
    sigma = extend_sigma(sigma_over(job.sigma.array, part.reads), names, lengths, filter.smallest)
    numbers, largest = job.sigma.numbers, job.largest_sigma
    numbers = None if numbers is None else sigma_over(numbers, part.reads)
    largest = None if largest is None else sigma_over(largest, part.reads)
    spans = {}
    for axis, span, length in zip(names, part.spans, wide.shape, strict=True):
        if axis in "YX":
            spans[axis] = Span.whole(length) if span.length < filter.smallest else span
        elif axis in "TZ" and axis in filter.joint:
            spans[axis] = span
    read = tuple(spans[a].source_start if a in spans else 0 for a in "TZYX")
    written = tuple(spans[a].start if a in spans else 0 for a in "TZYX")
    source = arrange(wide, names, filter.joint, read)
    # Axes that are not cut: independent frames, and axes that the filter does not join.
    whole = map(Span.whole, source.shape[1:])
    return Work(
        filter,
        source,
        arrange(out, names, filter.joint, written),
        job.levels_of(pixels),
        FrameSigma.of(sigma, wide.shape, names, filter.joint, read, largest, numbers),
        session(job.device),
        tuple(spans.get(a, span) for a, span in zip("TZYX", whole, strict=True)),
        job.stabilised,
        job.dtypes[1].kind != "u",
        job.run.memory_limit,
    )


# Lengths of axes that a filter joins: all that a plan does at its borders and between them.
_FEW = {"T": 5, "Z": 9, "Y": 48, "X": 48}


class _Recorder(Arena):
    """Buffers of a rehearsal, and kernels that are only noted."""

    def __init__(self, session: Any):
        super().__init__(session)
        self.programs: dict[ProgramKey, None] = {}

    def buffer(self, name: str, nbytes: int):
        """Return a buffer of zeros: what is in it may be converted on the host."""
        import pyopencl as cl

        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < nbytes:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            zeros = np.zeros(max(int(nbytes), 4), np.uint8)
            buffer = self._buffers[name] = cl.Buffer(self.session.context, flags, hostbuf=zeros)
        return buffer

    def kernel(self, name: str, constants: Mapping[str, int], standard: str = "CL1.2"):
        """Note a kernel; what is returned enqueues nothing but a marker."""
        import pyopencl as cl

        self.programs[program_key(name, constants, standard)] = None
        return lambda queue, *_: cl.enqueue_marker(queue)


def rehearse(
    job: Job, dtypes: tuple[Any, Any], arrange: Callable[..., Work], flow_of: Callable[..., Any]
) -> list[ProgramKey]:
    """Return the programs of a job for pixels and results of these types, in the order of use.

    `arrange` makes the work of a part, `flow_of` what runs it.
    """
    joint = job.filter.joint + "YX"
    few = [
        min(n, _FEW.get(axis, n)) if axis in joint else 1
        for axis, n in zip(job.names, job.shape, strict=True)
    ]
    pixels, out = (np.zeros(few, dtype) for dtype in dtypes)
    work = arrange(job, Part(tuple(map(Span.whole, few))), pixels, out)
    recorder = _Recorder(work.session)
    try:
        with closing(flow_of(work, recorder)) as flow:
            for _ in flow.run():
                pass
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
    job = prepare(run, image)
    return programs_of(job, image.dtype, job.dtypes[1])


def warm_up(settings: Filter, device: Device) -> None:
    """Build the programs of a filter for images of float32 and uint16.

    The drivers of CPUs build in the first run whatever is done here: for them nothing is.
    """
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
