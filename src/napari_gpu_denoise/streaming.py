"""Denoise frames as they come: from a camera, a file, anything that is longer than memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import (
    Levels,
    arrange,
    check_axes,
    check_numbers,
    convert,
    output_dtype,
)
from napari_gpu_denoise.bands import in_bands
from napari_gpu_denoise.errors import (
    AxesError,
    DeviceMemoryError,
    ImageError,
    NonFiniteError,
    SigmaError,
)
from napari_gpu_denoise.modelled import levels_for
from napari_gpu_denoise.noise_choice import resolve_noise
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.pipeline import Filter, execute
from napari_gpu_denoise.prepare import (
    extend,
    extend_sigma,
    fill_nonfinite,
    keep_noiseless,
    settings_for,
    unfiltered,
)
from napari_gpu_denoise.run import Record, record_of
from napari_gpu_denoise.sigma import (
    FrameSigma,
    Sigma,
    resolve_sigma,
    sigma_unit,
    varies_within,
)
from napari_gpu_denoise.tiles import Span, Tile
from napari_gpu_denoise.video import (
    FrameFlow,
    FrameNote,
    frame_budget,
    frames_at_once,
    note_frame,
    over_time,
)


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
        that returns it for the number of a frame, from 0. None estimates it from the first frame,
        for all.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, as `denoise` takes it; ``"auto"`` measures it in the first frame.
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
        self._levels = levels
        self.chosen = settings
        self._frames, self._given_sigma, self._given_noise = frames, sigma, noise
        self._axes, self._given_dtype, self.nonfinite = axes, dtype, nonfinite
        self._live, self._memory_limit = live, memory_limit
        self.device = choose(device)
        self.reads_again = False
        self.arranged_sigma: FrameSigma | None = None  # that of the last frame
        self._clipped: list[int] = []  # several threads add to it
        self.odd = 0
        self.count = 0

    @property
    def saturated(self) -> int:
        """Values so far that were clipped to the range of the output."""
        return sum(self._clipped)

    def clipped(self, count: int) -> None:
        """Count values that were clipped."""
        if count:
            self._clipped.append(count)

    def __iter__(self) -> Generator[np.ndarray, None, None]:
        source = iter(self._frames)
        first = next(source, None)
        if first is None:
            return
        self._begin(np.asarray(first))
        feed = _Feed(self, source)
        run = self._over_time if over_time(self.settings) else self._one_by_one
        with closing(run(feed)) as steps:
            for frame in steps:
                self.count += 1
                yield frame

    def record(self, sigma: Sigma | None = None, axes: str | None = None) -> Record:
        """Return the record of the frames that were yielded, of which there was one at least.

        Parameters
        ----------
        sigma : Sigma, optional
            What `sigma` comes from, where the frames are those of a stack.
        axes : str, optional
            The axes of that stack.
        """
        notes, sigma = (), sigma or self.sigma
        if sigma is None:
            notes = ("sigma was given for each frame",)
            sigma = self._last_sigma
        else:
            notes = sigma.notes
            if not sigma.array.any():
                notes += ("sigma is 0: the image is returned unchanged",)
        return record_of(
            self.chosen,
            sigma,
            axes or "T" + self.names,
            (self.first.dtype, self.dtype),
            self.device,
            saturated=self.saturated,
            nonfinite=self.odd,
            notes=notes,
        )

    def _begin(self, first: np.ndarray) -> None:
        self.first = first
        self.names = check_axes(self._axes, first.shape)
        if "T" in self.names:
            raise AxesError(
                f"axes={self._axes!r} names T within a frame: frames follow each other in time, "
                "name the axes of one."
            )
        check_numbers(first)
        # There is time, however many frames will come.
        self.settings = settings_for(self.chosen, "T" + self.names, (2, *first.shape))
        self.dtype = output_dtype(self._given_dtype, first.dtype)
        finite, _ = fill_nonfinite(first, self.names, self.nonfinite)
        if self._levels is None:
            Levels.of(finite)  # refuses NaN and infinity
        given = self._given_sigma
        self._sigma_of: Callable[[int], Any] | None = given if callable(given) else None
        self.sigma = None
        if self._sigma_of is None:
            self.settings, self.sigma = resolve_noise(
                *(given, self._given_noise, finite, self.names, self.settings),
                dtype=self.dtype,
                device=self.device,
            )
        self.levels = levels_for(self.settings, finite, self._levels)
        self._last_sigma = self.sigma
        videos = arrange(first, self.names, self.settings.joint).shape[1]
        self.reads_again = over_time(self.settings) and videos > 1

    def _resolved(self, sigma, frame: np.ndarray) -> Sigma:
        return resolve_sigma(sigma, frame, self.names, self.settings)

    def take(self, number: int, given) -> _Frame:
        """Check and prepare a frame."""
        array = np.asarray(given)
        if array.shape != self.first.shape or array.dtype != self.first.dtype:
            raise ImageError(
                f"Frame {number} has the shape {array.shape} and type {array.dtype}, the first one "
                f"{self.first.shape} and {self.first.dtype}: give frames of one shape and type."
            )
        finite, odd = fill_nonfinite(array, self.names, self.nonfinite)
        if odd is not None and self.dtype.kind != "f":
            raise NonFiniteError(
                f"NaN and infinity cannot be kept in a result of type {self.dtype}: use "
                "dtype='float32'."
            )
        if odd is not None:
            self.odd += int(np.count_nonzero(odd))
        sigma = self.sigma
        if self._sigma_of is not None:
            sigma = self._last_sigma = self._resolved(self._sigma_of(number), finite)
            if varies_within(sigma.array, self.names) and over_time(self.settings):
                raise SigmaError(
                    "A function that tells the sigma of each frame cannot tell a map: give one "
                    "value or one a channel, or one map for all frames."
                )
        return _Frame(self, array, finite, odd, sigma)

    def check_finite(self, number: int, values: np.ndarray) -> None:
        """Refuse a frame, as the kernels see it, if it holds NaN or infinity."""
        if self.first.dtype.kind == "f" and not is_finite(values):
            raise NonFiniteError(
                f"Frame {number} holds NaN or infinity: pass nonfinite='keep' to leave them as "
                "they are and filter the others."
            )

    def _one_by_one(self, feed: _Feed) -> Generator[np.ndarray, None, None]:
        for number in _count():
            frame = feed.get(number)
            if frame is None:
                return
            feed.forget(number + 1)
            self.check_finite(number, frame.source.view)
            if frame.sigma.array.any():
                steps = execute(
                    frame.source,
                    frame.result,
                    self.levels,
                    self.settings,
                    frame.frame_sigma,
                    session(self.device),
                    self._memory_limit,
                )
                self.clipped(_value(steps))
            yield frame.finished()

    def _over_time(self, feed: _Feed) -> Generator[np.ndarray, None, None]:
        device, live = self.device, self._live
        first = feed.get(0)
        _, videos, nz, ny, nx = first.source.shape
        channels = first.source.joined
        spans = tuple(map(Span.whole, (1, nz, ny, nx)))
        tile = Tile(0, *spans, channels)
        is_map = first.frame_sigma.is_map
        budget, pixels = frame_budget(
            self.settings, device, first.source, self._memory_limit, is_map, videos
        )
        if pixels < first.source.shape[-1] * first.source.shape[-2] * nz * channels:
            raise DeviceMemoryError(
                f"A frame of {ny} x {nx} pixels needs more than the {budget} bytes of device "
                "memory that may be used: allow more, look at fewer frames, or denoise the whole "
                "stack."
            )
        batch = 1 if live else frames_at_once(self.settings, device, tile, budget // videos)
        held = session(device)
        with ExitStack() as stack:
            stack.enter_context(device_errors(held))
            if not (device.shares_cores or live):
                feed.looker = stack.enter_context(ThreadPoolExecutor(1, "frames in"))
            flows = []
            for video in range(videos):
                arena = stack.enter_context(borrow(held))
                variation = first.frame_sigma.variation(tile)
                flow = FrameFlow(*(held, arena, self.settings, tile, batch, variation), prompt=live)
                stack.callback(flow.drain)
                steps = flow.run(feed.reader(video), feed.writer(video))
                stack.enter_context(closing(steps))
                flows.append(steps)
            written, running = 0, True
            while running:
                # Every video goes on as far as the others.
                counts = [next(steps, None) for steps in flows]
                running = counts[0] is not None
                upto = counts[0] if running else feed.known
                for number in range(written, upto):
                    frame = feed.get(number)
                    feed.forget(number + 1)
                    yield frame.finished()
                written = upto


class _Frame:
    """One frame on its way: what goes to the device, and where the result goes.

    Its pixels may be overwritten by those of the next frame. They are copied where they are wanted
    again: by several videos, or where they come back as they are.
    """

    def __init__(self, stream: FrameStream, given, finite, odd, sigma: Sigma):
        settings, names = stream.settings, stream.names
        if stream.reads_again or odd is not None or not sigma.array.all():
            given = np.array(given)
            finite = given if odd is None else finite
        self._stream, self._given, self._odd = stream, given, odd
        self.sigma = sigma
        self.corners: list = []
        self.constant: dict[int, list] = {}  # what videos are all over, in each channel
        wide = extend(finite, names, given.shape, settings.smallest)
        self._finite = finite
        self.out = np.empty(given.shape, stream.dtype)
        self.source = arrange(wide, names, settings.joint)
        self.result = arrange(self.out, names, settings.joint)
        self.frame_sigma = stream.arranged_sigma
        if self.frame_sigma is None or sigma is not stream.sigma:
            spread = extend_sigma(sigma.array, names, given.shape, settings.smallest)
            self.frame_sigma = FrameSigma.of(
                spread, wide.shape, names, settings.joint, numbers=sigma.numbers
            )
            stream.arranged_sigma = self.frame_sigma

    def finished(self) -> np.ndarray:
        """Return the result, with what was not to be filtered as it was given."""
        kept = unfiltered(self._stream.settings, self._finite)
        if not self.sigma.array.any():
            self._stream.clipped(convert(kept, self.out))
        else:
            keep_noiseless(kept, self.out, self._stream.names, self.sigma.array)
        if self._odd is not None:
            self.out[self._odd] = self._given[self._odd]
        return self.out


class _Feed:
    """The frames that came and are not yet done with; videos of one frame read them in step."""

    def __init__(self, stream: FrameStream, source: Iterator):
        self._stream, self._source = stream, source
        self._held = {0: stream.take(0, stream.first)}
        self._ended = False
        self.known = 1
        # A thread that looks at frames while others are read.
        self.looker: ThreadPoolExecutor | None = None
        self._brightness = bool(getattr(stream.settings, "flicker", False))

    def get(self, number: int) -> _Frame | None:
        """Return a frame; None beyond the last one."""
        while number >= self.known and not self._ended:
            given = next(self._source, None)
            if given is None:
                self._ended = True
            else:
                self._held[self.known] = self._stream.take(self.known, given)
                self.known += 1
        return self._held.get(number)

    def forget(self, before: int) -> None:
        """Let go of frames."""
        for number in [n for n in self._held if n < before]:
            del self._held[number]

    def reader(self, video: int):
        """Return what `FrameFlow.run` reads one of the videos by."""
        levels, told = self._stream.levels, {}

        def noise(sigma: FrameSigma, channels: int, slices: int) -> tuple[np.ndarray, np.ndarray]:
            # Nearly always that of the frame before.
            if told.get("of") is not sigma:
                here = Span(video, video + 1, video, video + 1, video + 1)
                at = Tile(0, here, Span.whole(slices), *_ONE, channels)
                unit = sigma_unit(self._stream.settings, levels)
                values = sigma.levels(at, unit).ravel().astype(np.float64)
                told.update({"of": sigma, "values": (values, sigma.models(at)[:, 0])})
            return told["values"]

        def read(first: int, host: np.ndarray) -> list[FrameNote]:
            notes, given = [], []
            for k in range(host.shape[1]):
                frame = self.get(first + k)
                if frame is None:
                    break
                channels = range(host.shape[0])
                planes = [frame.source.frame(0, video, c) for c in channels]
                for plane, values in zip(planes, host[:, k], strict=True):
                    in_bands(levels.load, plane, values)
                sigma, models = noise(frame.frame_sigma, len(planes), planes[0].shape[0])
                look = partial(self._look, first + k, host[:, k], sigma, models)
                given.append(sigma)
                frame.corners = [plane[0, 0, 0] for plane in planes]
                notes.append(look if self.looker is None else self.looker.submit(look).result)
            found = [note() for note in notes]
            for k, note in enumerate(found):
                if note.empty and given[k].any():
                    frame = self._held[first + k]
                    frame.constant[video] = frame.corners
            return found

        return read

    def _look(self, number: int, values: np.ndarray, sigma: np.ndarray, models) -> FrameNote:
        """Take note of a frame, from what was made of it: its own pixels may be others by now."""
        self._stream.check_finite(number, values)
        # Pixels as the kernels see them.
        note = note_frame(list(values), sigma, Levels(0, 1.0), brightness=self._brightness)
        return replace(note, models=models)

    def writer(self, video: int):
        """Return what `FrameFlow.run` writes one of the videos by."""

        def write(first: int, values: np.ndarray) -> None:
            levels = self._stream.levels
            for k in range(values.shape[1]):
                frame = self._held[first + k]
                for c in range(values.shape[0]):
                    out = frame.result.frame(0, video, c)
                    ny, nx = out.shape[-2:]
                    kept = values[c, k, :, :ny, :nx]
                    if video not in frame.constant:
                        self._stream.clipped(levels.store(kept, out, spare=True))
                    else:
                        # As it was given, whatever its channels were mixed to meanwhile.
                        self._stream.clipped(
                            convert(np.full(out.shape, frame.constant[video][c]), out)
                        )

        return write


_ONE = (Span.whole(1),) * 2


def is_finite(array: np.ndarray) -> bool:
    """Return whether floats hold neither NaN nor infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    # A sum beyond the range of its type says nothing.
    return bool(np.isfinite(total)) or bool(np.all(np.isfinite(array)))


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _value(steps: Generator) -> int:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
