"""Denoise frames as they arrive, from a camera or a series that does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError, ImageError, SettingsError
from napari_gpu_denoise.image.levels import Levels, as_array
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.opencl.several import choose_devices
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow
from napari_gpu_denoise.run.flow.frame_transfer import FrameTypes
from napari_gpu_denoise.run.flow.tile_sizes import frame_budget, frames_at_once
from napari_gpu_denoise.run.flow.work import Stages
from napari_gpu_denoise.run.input import Input
from napari_gpu_denoise.run.job import Part
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.record import Record, Tally, finish
from napari_gpu_denoise.run.request import Run, takes_options
from napari_gpu_denoise.run.sigma import Sigma
from napari_gpu_denoise.run.stream_feed import FrameFeed
from napari_gpu_denoise.run.tiles import Span, Tile


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
    Results are those of `denoise` for the stack of all frames, to the last bit, for integers of 8
    and 16 bits; for other types they may differ by rounding, as the range of grey levels is read
    from the first frame alone. Closing the generator stops the work and frees the device.

    Examples
    --------
    >>> for frame in stream(VBM3D(frames_after=0), camera, 12.0, live=True):  # doctest: +SKIP
    ...     show(frame)
    """
    run = Run(filter, sigma, **options)
    with closing(iter(FrameStream(run, frames, live))) as results:
        yield from results


class FrameStream:
    """`stream` as an object that can be iterated over once and then returns a record.

    The sigma of `run` may be a function of the frame number; `levels` maps grey levels to kernel
    values, if the range of all frames is known. `sigma_of` returns the noise of a frame whose
    strength was measured in the series; `run` then has the models. `like` is the first frame of a
    series whose later frames are given. `count` is the number of frames yielded so far, and `tally`
    what was counted in them.
    """

    def __init__(
        self,
        run: Run,
        frames: Iterable[np.ndarray],
        live: bool = False,
        levels: Levels | None = None,
        sigma_of: Callable[[int], Sigma] | None = None,
        like: np.ndarray | None = None,
    ):
        if not isinstance(live, (bool, np.bool_)):
            raise SettingsError(f"live={live!r} is neither True nor False: choose one of them.")
        self._run = replace(run, device=choose_devices(run.device)[0])
        self._frames, self._live, self._levels, self._sigma_of = frames, live, levels, sigma_of
        self._like, self.count, self.tally = like, 0, Tally()

    def __iter__(self) -> Generator[np.ndarray, None, None]:
        try:
            source = iter(self._frames)
        except TypeError as error:
            raise ImageError(
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
        self._feed = feed = FrameFeed(run, first, source, self._levels, self._sigma_of, self._like)
        filtered = self._over_time if feed.job.filter.over_time else self._one_by_one
        with closing(filtered(feed)) as steps:
            for out, tally in steps:
                self.tally += tally
                self.count += 1
                yield out

    def record(self) -> Record:
        """Return the record of the frames that were yielded, at least one."""
        record = self._feed.job.record(self.tally)
        if self._feed.sigma_varies:
            record = replace(record, notes=("sigma was given for each frame",))
        return replace(record, axes="T" + record.axes)

    def _one_by_one(self, feed: FrameFeed) -> Generator[tuple[np.ndarray, Tally], None, None]:
        """Filter each frame by itself; yield the results and what was counted."""
        for number in count():
            frame = feed.get(number)
            if frame is None:
                return
            feed.forget(number + 1)
            feed.check_values(number, frame.block.finite, frame.job.levels)
            steps = filter_part(frame.job, Part.of(frame.job), frame.block, frame.out)
            yield frame.out, finish(steps)

    def _over_time(self, feed: FrameFeed) -> Generator[tuple[np.ndarray, Tally], None, None]:
        """Filter each frame with those before and after it."""
        work = feed.get(0).work
        held, is_map = work.session, work.sigma.is_map
        device = held.device
        _, videos, nz, ny, nx = work.source.shape
        tile = Tile(0, *map(Span.whole, (1, nz, ny, nx)), work.source.joined)
        with ExitStack() as stack:
            stack.enter_context(device_errors(held))
            arenas = [stack.enter_context(borrow(held)) for _ in range(videos)]
            all_stages = [Stages.of(work, arena) for arena in arenas]
            plan = all_stages[0].plan
            budget, pixels = frame_budget(
                *(plan, work.filter, device, work.source, work.memory_limit, is_map, videos)
            )
            if pixels < tile.channels * nz * ny * nx:
                raise DeviceMemoryError(
                    f"A frame of {ny} x {nx} pixels needs more than the {budget} bytes of device "
                    "memory that may be used: allow more, look at fewer frames, or denoise the "
                    "whole stack."
                )
            batch = 1 if self._live else frames_at_once(plan, device, tile, budget // videos)
            flows = []
            for video, (arena, stages) in enumerate(zip(arenas, all_stages, strict=True)):
                variation = work.sigma.variation(tile)
                types = FrameTypes.of(work, tile)
                flow = FrameFlow(
                    *(held, arena, stages, tile, batch, variation, types), prompt=self._live
                )
                stack.enter_context(closing(flow))
                steps = flow.run(partial(feed.read, video), partial(feed.write, video))
                flows.append(stack.enter_context(closing(steps)))
            if not (device.shares_cores or self._live):
                # Entered last, so that the thread ends before the memory that it reads is freed.
                feed.note_thread = stack.enter_context(ThreadPoolExecutor(1, "frames in"))
            written, running = 0, True
            while running:
                # All videos advance in step.
                counts = [next(steps, None) for steps in flows]
                running = counts[0] is not None
                upto = counts[0] if running else feed.known
                for number in range(written, upto):
                    frame = feed.get(number)
                    feed.forget(number + 1)
                    yield frame.finished(), frame.tally
                written = upto
