"""Denoise frames as they arrive, from a camera or a series that does not fit into memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from typing import Any

import numpy as np

from napari_gpu_denoise import errors
from napari_gpu_denoise.image.axes import arrange, check_axes
from napari_gpu_denoise.image.levels import Levels, as_array, convert, is_plain, nonfinite_error
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import FrameNote, FramePlan
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow, note_frames
from napari_gpu_denoise.run.flow.tile_flow import frame_budget, frames_at_once
from napari_gpu_denoise.run.flow.transfer import read_frames, write_frames
from napari_gpu_denoise.run.flow.work import Stages, Work
from napari_gpu_denoise.run.input import Block, Input, keep_blank, keep_noiseless
from napari_gpu_denoise.run.job import Job, check_kept, start
from napari_gpu_denoise.run.noise import Sigma, limit_sigma, resolve_sigma, scaled, varies_within
from napari_gpu_denoise.run.part import Part, arrange_part, filter_part
from napari_gpu_denoise.run.record import NO_NOISE, Tally, warn_of
from napari_gpu_denoise.run.request import Run, check_flags, takes_options


@dataclass(eq=False)
class StreamFrame:
    """One frame of a stream on its way: its pixels, its result, and the run with its noise.

    `clipped` counts values clipped to the range of the output by video, as each may have a thread;
    `constant` has the level of each channel for videos of only one grey level in this frame.
    """

    job: Job
    block: Block
    out: np.ndarray
    clipped: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    constant: dict[int, list] = field(default_factory=dict)

    @cached_property
    def work(self) -> Work:
        """Pixels and result as frames; slices and the like are frames of videos of their own."""
        return arrange_part(self.job, Part.of(self.job), self.block.finite, self.out)

    @property
    def tally(self) -> Tally:
        """What was counted; complete once the frame is finished."""
        return Tally(sum(self.clipped.values()), self.block.nonfinite, self.block.fill)

    def finished(self) -> np.ndarray:
        """Return the result, with the pixels that are not filtered as they were given."""
        unfiltered = self.job.unfiltered(self.block.finite)
        if not self.job.noisy:
            self.clipped[0] += convert(unfiltered, self.out)
        else:
            job, given = self.job, self.block.given
            keep_noiseless(unfiltered, self.out, job.names, job.sigma.array)
            whole = tuple(map(slice, given.shape))
            keep_blank(given, self.out, whole, job.names, job.blank_width)
        self.block.restore(self.out)
        return self.out


@takes_options()
def stream(
    filter: Filter,
    frames: Iterable[np.ndarray],
    sigma: Any = None,
    *,
    live: bool = False,
    **options: Any,
) -> Generator[np.ndarray, None, None]:
    """Denoise frames one after another, with memory use that does not depend on their number.

    Parameters
    ----------
    filter : Filter
        Such as ``VBM3D(frames_after=0)`` or ``NLMeans(frames_before=4)``; filters that do not look
        along time filter each frame by itself.
    frames : iterable of array_like
        Frames of one shape and type, in order of time. Never modified. A frame may be overwritten
        as soon as the next one is requested.
    sigma : float, array_like, callable or None, optional
        Noise standard deviation in grey levels, as `denoise` takes it for one frame; or a function
        that returns it for the number of a frame, from 0. None measures the noise of the first
        frame, for all.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, as `denoise` takes it; ``"auto"``, the default without `sigma`, and
        names measure it in the first frame.
    axes : str, optional
        Names of the axes of a frame, as ``"YX"``, ``"CYX"``, ``"YXS"`` or ``"ZYX"`` (every slice is
        then a video of its own). By default the last two are Y and X, the rest independent planes.
    {dtype}
    {nonfinite}
    correct : str, tuple of str or None, optional
        Structured noise to remove from each frame first, as in `denoise`: what is found in the
        first frame, measured again in each.
    {sigma_factor}
    live : bool, optional
        Return every frame as soon as possible, as for a camera. By default several are taken at
        once and results come a few frames later, which keeps the device busy.
    device : Device, int, str or None, optional
        Where to run, one device; by default the best available, see `choose`.
    {memory_limit}

    Yields
    ------
    ndarray
        The frames, denoised, in order; each a new array. A filter that looks at later frames yields
        the first one when it has seen them.

    Raises
    ------
    SettingsError, AxesError, SigmaError, ImageError, NonFiniteError
        If a frame does not fit the settings, or the ones before it.
    NoDeviceError, DeviceMemoryError, KernelError
        If the device does not.

    See Also
    --------
    vbm3d, nl_means : The same for a whole array, with the same result.

    Notes
    -----
    Results are those of `denoise` for the stack of all frames, to the last bit; of types other than
    integers of 8 and 16 bits only up to rounding if the middle of the first frame has one grey
    level. A frame far beyond the levels there, 2**18 times their spread, is refused. Settings that
    follow from several frames keep their default, as ``window_nearest=15`` of VBM3D. Closing the
    generator stops the work and frees the device. Clipped values are warned of once.

    Examples
    --------
    >>> for frame in stream(VBM3D(frames_after=0), camera, 12.0, live=True):  # doctest: +SKIP
    ...     show(frame)
    """
    run = Run(filter, sigma, **options)
    source, clipped = FrameStream(run, frames, live), None
    with closing(iter(source)) as results:
        for frame, tally in results:
            if clipped is None:  # it is the first
                notes = [*source._job.sigma.notes, *[NO_NOISE] * (not source._job.noisy)]
                warn_of(notes, run.measures_noise)
            if tally.saturated and not clipped:  # said once
                warn_of((), False, tally.saturated, frame.dtype)
            clipped = clipped or tally.saturated
            yield frame


class FrameStream:
    """`stream` as an object that can be iterated over once, and yields what was counted, too.

    The sigma of `run` may be a function of the frame number. Of a series that is known, `job` is
    the run prepared for one frame, and `sigma_of` returns the noise of each.

    Frames in use are held, and their videos read in step. The job has the noise of the last frame.
    """

    def __init__(
        self,
        run: Run,
        frames: Iterable[np.ndarray],
        live: bool = False,
        job: Job | None = None,
        sigma_of: Callable[[int], Sigma] | None = None,
    ):
        check_flags(live=live)
        self._run, self._frames, self._live = run, frames, live
        self._prepared = job
        self._sigma_of: Callable[[int], Any] | None = sigma_of

    def __iter__(self) -> Generator[tuple[np.ndarray, Tally], None, None]:
        try:
            source = iter(self._frames)
        except TypeError as error:
            raise errors.ImageError(
                f"frames={self._frames!r} cannot be iterated over: give a list or a generator of "
                "frames."
            ) from error
        try:
            first = next(source)
        except StopIteration:
            return
        image = Input.of(as_array(first), self._run)
        run, first = image.adapted(self._run), image.given
        if image.correction:
            first, source = image.corrected_frame(first), map(image.corrected_frame, source)
        self._begin(run, first, source)
        yield from self._over_time() if self._job.filter.over_time else self._one_by_one()

    def _begin(self, run: Run, first: np.ndarray, source: Iterator) -> None:
        """Prepare for frames: the first decides what all have in common, unless that is known."""
        names = check_axes(run.axes, first.shape)
        if "T" in names:
            raise errors.AxesError(
                f"axes={run.axes!r} names T within a frame: frames follow each other in time, "
                "name the axes of one."
            )
        if callable(run.sigma):
            function, run = run.sigma, replace(run, sigma=run.sigma(0), noise=None)
            # What it told of the first frame is not asked again.
            self._sigma_of = lambda number: function(number) if number else run.sigma
        self._given_dtype = first.dtype
        block = None if self._prepared else Input(first, names).block(run.nonfinite)
        self._job = self._prepared or start(run, block, is_stream_frame=True)
        videos = arrange(first, names, self._job.filter.joint).shape[1]
        self._reads_again = self._job.filter.over_time and videos > 1
        self._source, self._ended = source, False
        self._held = {0: self._checked(0, first)}
        self._known = 1
        # Of each video the sigma of the last frame, and what `FrameSigma.of_frame` made of it.
        self._noise: dict[int, tuple[Sigma, tuple[np.ndarray, np.ndarray]]] = {}

    def _get(self, number: int) -> StreamFrame | None:
        """Return a frame; None beyond the last one."""
        while number >= self._known and not self._ended:
            try:
                given = next(self._source)
            except StopIteration:
                self._ended = True
                break
            self._held[self._known] = self._checked(self._known, given)
            self._known += 1
        return self._held.get(number)

    def _forget(self, before: int) -> None:
        """Let go of frames."""
        for number in [n for n in self._held if n < before]:
            del self._held[number]

    def _read(self, video: int, first: int, host: np.ndarray) -> list[FrameNote]:
        """Read frames of a video, as `FrameFlow.run` does."""
        noises, corners = [], []
        for k in range(host.shape[1]):
            frame = self._get(first + k)
            if frame is None:
                break
            work = frame.work
            read_frames(work, self._tile, video, video + 1, host[:, k : k + 1])
            planes = [work.source.frame(0, video, c) for c in range(host.shape[0])]
            noises.append(noise := self._noise_of(frame, video))
            corners.append((noise[0].any(), [plane[0, 0, 0] for plane in planes]))
        # Of what is uploaded: the pixels of the frames may be others by then.
        given = list(host[:, : len(noises)])
        notes = note_frames(given, noises, Levels(0, 1.0), self._job.filter)
        for k, (note, (noisy, levels)) in enumerate(zip(notes, corners, strict=True)):
            if note.empty and noisy:
                self._held[first + k].constant[video] = levels
        return notes

    def _write(self, video: int, first: int, values: np.ndarray, counts: np.ndarray | None) -> None:
        """Write results of a video, as `FrameFlow.run` does."""
        for k in range(values.shape[1]):
            frame = self._held[first + k]
            if not frame.job.noisy:
                continue  # `finished` copies it
            work = frame.work
            if video in frame.constant:
                # As it was given: the channels on the device may have been mixed.
                for c, level in enumerate(frame.constant[video]):
                    out = work.out.frame(0, video, c)
                    given = frame.job.unfiltered(np.full(out.shape, level))
                    frame.clipped[video] += convert(given, out)
                continue
            if counts is not None:
                frame.clipped[video] += int(counts[:, k].sum())
            frame.clipped[video] += write_frames(work, self._tile, video, values[:, k : k + 1])

    def _checked(self, number: int, given) -> StreamFrame:
        """Check a frame and prepare it.

        Its pixels may be overwritten by those of the next one. They are copied if they are needed
        again: by several videos, or where they are returned as they are.
        """
        given, job = as_array(given), self._job
        if given.shape != job.shape or given.dtype != self._given_dtype:
            raise errors.ImageError(
                f"Frame {number} has the shape {given.shape} and type {given.dtype}, the first one "
                f"{job.shape} and {self._given_dtype}: give frames of one shape and type."
            )
        block = job.block(given)
        check_kept(block, job.dtypes[1])
        if not (job.levels is None or is_plain(given.dtype) or job.levels.takes(block.range)):
            if not np.isfinite(block.range).all():
                raise nonfinite_error(f"Frame {number} holds NaN or infinity")
            raise errors.ImageError(
                f"Frame {number} has grey levels far beyond those of the first frame: give frames "
                "of one scale, without infinite values."
            )
        if self._sigma_of is not None:
            sigma = self._sigma_of(number)
            if not isinstance(sigma, Sigma):
                sigma = resolve_sigma(sigma, block.finite, job.names, job.filter)
                sigma = scaled(sigma, 1.0 if job.filter.keeps_sigma else job.run.sigma_factor)
                if varies_within(sigma.array, job.names) and job.filter.over_time:
                    raise errors.SigmaError(
                        "A function that gives the sigma of each frame cannot give a map: give "
                        "one value or one per channel, or one map for all frames."
                    )
            sigma = limit_sigma(sigma, block.finite, is_stream_frame=True)
            self._job = job = replace(job, sigma=sigma)
        holes = block.nonfinite_mask is not None
        kept_as_given = holes or job.blank_width or not job.sigma.array.all()
        if self._reads_again or kept_as_given:
            kept = np.array(given)
            block = replace(block, given=kept, finite=block.finite if holes else kept)
        return StreamFrame(job, block, np.empty(job.shape, job.dtypes[1]))

    def _noise_of(self, frame: StreamFrame, video: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sigma in units of the pixels and the models, kept while sigma does not change."""
        sigma, work = frame.job.sigma, frame.work
        if video not in self._noise or self._noise[video][0] is not sigma:
            self._noise[video] = sigma, work.sigma.of_frame(0, video, work.levels.scale)
        return self._noise[video][1]

    def _one_by_one(self) -> Generator[tuple[np.ndarray, Tally], None, None]:
        """Filter each frame by itself; yield the results and what was counted."""
        for number in count():
            frame = self._get(number)
            if frame is None:
                return
            self._forget(number + 1)
            yield frame.out, filter_part(frame.job, Part.of(frame.job), frame.block, frame.out)

    def _over_time(self) -> Generator[tuple[np.ndarray, Tally], None, None]:
        """Filter each frame with those before and after it."""
        work = self._held[0].work
        session, device = work.session, work.session.device
        _, videos, nz, ny, nx = work.source.shape
        t, z, y, x = map(Span.whole, (1, nz, ny, nx))
        tile = self._tile = Tile(0, t, z, y, x, work.source.joined)
        with ExitStack() as stack:
            stack.enter_context(device_errors(session))
            arenas = [stack.enter_context(borrow(session)) for _ in range(videos)]
            all_stages = [Stages.of(FramePlan, work, arena) for arena in arenas]
            plan = all_stages[0].plan
            budget, pixels = frame_budget(plan, work, videos)
            if pixels < tile.channels * nz * ny * nx:
                raise errors.DeviceMemoryError(
                    f"A frame of {ny} x {nx} pixels needs more than the {budget} bytes of device "
                    "memory that may be used: allow more, look at fewer frames, or denoise the "
                    "whole stack."
                )
            batch = 1 if self._live else frames_at_once(plan, device, tile, budget // videos)
            flows = []
            for video, (arena, stages) in enumerate(zip(arenas, all_stages, strict=True)):
                flow = FrameFlow(work, arena, stages, tile, batch, prompt=self._live)
                stack.enter_context(closing(flow))
                steps = flow.run(partial(self._read, video), partial(self._write, video))
                flows.append(stack.enter_context(closing(steps)))
            written, running = 0, True
            while running:
                # All videos advance in step.
                counts = [next(steps, None) for steps in flows]
                running = counts[0] is not None
                upto = self._known if counts[0] is None else counts[0]
                for number in range(written, upto):
                    frame = self._held[number]
                    self._forget(number + 1)
                    yield frame.finished(), frame.tally
                written = upto
