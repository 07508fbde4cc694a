"""Denoise frames as they come: from a camera, a file, anything that is longer than memory."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import Levels
from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.frame_flow import FrameFlow
from napari_gpu_denoise.frame_sizes import frame_budget, frames_at_once
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.pipeline import Filter, execute
from napari_gpu_denoise.run import Record, record_of
from napari_gpu_denoise.sigma import Sigma
from napari_gpu_denoise.stream_feed import FrameFeed
from napari_gpu_denoise.stream_frames import FrameIntake, StreamFrame
from napari_gpu_denoise.tiles import Span, Tile
from napari_gpu_denoise.video import over_time


def stream(
    settings: Filter,
    frames: Iterable[np.ndarray],
    sigma: Any = None,
    *,
    noise: Any = None,
    axes: str | None = None,
    dtype=None,
    nonfinite: str = "raise",
    live: bool = False,
    device: Device | int | str | None = None,
    memory_limit: int | None = None,
) -> Generator[np.ndarray, None, None]:
    """Denoise frames one after another, in memory that does not grow with their number.

    Parameters
    ----------
    settings : filter settings
        Such as ``VBM3D(frames_after=0)`` or ``NLMeans(frames_before=4)``; filters that do not look
        along time filter each frame by itself.
    frames : iterable of array_like
        Frames of one shape and type, in the order of time. Never modified. One that is given may be
        overwritten as soon as the next one is asked for.
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
    dtype : data type, optional
        Type of the results, by default that of the frames. Integers are rounded and saturated.
    nonfinite : {"raise", "keep"}, optional
        Refuse NaN and infinity, or leave them as they are without letting them spread.
    live : bool, optional
        Give every frame back as soon as it can be: for a camera. By default several are taken at
        once and results come a few frames later, which keeps the device busy.
    device : Device, int, str or None, optional
        Where to run; by default the best device there is.
    memory_limit : int, optional
        Largest number of bytes of device memory to use.

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
    options = {"noise": noise, "axes": axes, "dtype": dtype, "nonfinite": nonfinite, "live": live}
    work = FrameStream(settings, frames, sigma, **options, device=device, memory_limit=memory_limit)
    with closing(iter(work)) as results:
        yield from results


class FrameStream:
    """A stream of frames, and after it the record of what was done; iterate over it once.

    Parameters
    ----------
    settings, frames, sigma, noise, axes, dtype, nonfinite, live, device, memory_limit
        As `stream` takes them.
    levels : Levels, optional
        How grey levels become pixels, where the range of all frames is known.

    Attributes
    ----------
    count : int
        Frames yielded so far.
    saturated, nonfinite : int
        Values in them that were clipped to the range of the output, and that are NaN or infinite.
    """

    def __init__(
        self,
        settings: Filter,
        frames: Iterable[np.ndarray],
        sigma: Any = None,
        *,
        noise: Any = None,
        axes: str | None = None,
        dtype=None,
        nonfinite: str = "raise",
        live: bool = False,
        device: Device | int | str | None = None,
        memory_limit: int | None = None,
        levels: Levels | None = None,
    ):
        self._chosen, self._frames = settings, frames
        self._live, self._memory_limit = live, memory_limit
        self.device = choose(device)
        # What the first frame is taken in with.
        self._terms = {"sigma": sigma, "noise": noise, "axes": axes, "dtype": dtype}
        self._terms |= {"nonfinite": nonfinite, "levels": levels}
        self.saturated = self.nonfinite = self.count = 0

    def __iter__(self) -> Generator[np.ndarray, None, None]:
        source = iter(self._frames)
        first = next(source, None)
        if first is None:
            return
        first = np.asarray(first)
        self._intake = FrameIntake(first, self._chosen, **self._terms)
        run = self._over_time if over_time(self._intake.settings) else self._one_by_one
        with closing(run(FrameFeed(self._intake, first, source))) as steps:
            for frame in steps:
                out = frame.finished()
                self.saturated += sum(frame.clipped.values())
                self.nonfinite += frame.nonfinite
                self.count += 1
                yield out

    def record(self, sigma: Sigma | None = None, axes: str | None = None) -> Record:
        """Return the record of the frames that were yielded, of which there was one at least.

        Parameters
        ----------
        sigma : Sigma, optional
            What `sigma` comes from, where the frames are those of a stack.
        axes : str, optional
            The axes of that stack.
        """
        intake = self._intake
        notes, sigma = (), sigma or intake.sigma
        if sigma is None:
            notes = ("sigma was given for each frame",)
            sigma = intake.last_sigma
        else:
            notes = sigma.notes
            if not sigma.array.any():
                notes += ("sigma is 0: the image is returned unchanged",)
        return record_of(
            self._chosen,
            sigma,
            axes or "T" + intake.names,
            (intake.input_dtype, intake.dtype),
            self.device,
            saturated=self.saturated,
            nonfinite=self.nonfinite,
            notes=notes,
        )

    def _one_by_one(self, feed: FrameFeed) -> Generator[StreamFrame, None, None]:
        """Filter each frame by itself."""
        for number in count():
            frame = feed.get(number)
            if frame is None:
                return
            feed.forget(number + 1)
            self._intake.check_finite(number, frame.source.view)
            if not frame.noiseless:
                steps = execute(
                    frame.source,
                    frame.result,
                    self._intake.levels,
                    self._intake.settings,
                    frame.frame_sigma,
                    session(self.device),
                    self._memory_limit,
                )
                frame.clipped[0] += _value(steps)
            yield frame

    def _over_time(self, feed: FrameFeed) -> Generator[StreamFrame, None, None]:
        """Filter each frame with those before and after it."""
        device, settings = self.device, self._intake.settings
        first = feed.get(0)
        _, videos, nz, ny, nx = first.source.shape
        tile = Tile(0, *map(Span.whole, (1, nz, ny, nx)), first.source.joined)
        is_map = first.frame_sigma.is_map
        budget, pixels = frame_budget(
            settings, device, first.source, self._memory_limit, is_map, videos
        )
        if pixels < tile.channels * nz * ny * nx:
            raise DeviceMemoryError(
                f"A frame of {ny} x {nx} pixels needs more than the {budget} bytes of device "
                "memory that may be used: allow more, look at fewer frames, or denoise the whole "
                "stack."
            )
        batch = 1 if self._live else frames_at_once(settings, device, tile, budget // videos)
        held = session(device)
        with ExitStack() as stack:
            stack.enter_context(device_errors(held))
            flows = []
            for video in range(videos):
                arena = stack.enter_context(borrow(held))
                variation = first.frame_sigma.variation(tile)
                flow = FrameFlow(
                    *(held, arena, settings, tile, batch, variation), prompt=self._live
                )
                stack.callback(flow.drain)
                steps = flow.run(feed.reader(video), feed.writer(video))
                flows.append(stack.enter_context(closing(steps)))
            if not (device.shares_cores or self._live):
                # Entered last, so that it ends before the memory goes that it looks at.
                feed.looker = stack.enter_context(ThreadPoolExecutor(1, "frames in"))
            written, running = 0, True
            while running:
                # Every video goes on as far as the others.
                counts = [next(steps, None) for steps in flows]
                running = counts[0] is not None
                upto = counts[0] if running else feed.known
                for number in range(written, upto):
                    frame = feed.get(number)
                    feed.forget(number + 1)
                    yield frame
                written = upto


def _value(steps: Generator) -> int:
    """Return what steps return when they are done."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
