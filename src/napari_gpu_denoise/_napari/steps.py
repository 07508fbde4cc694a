"""One run as a generator: read the data, filter it, tell how far it is; no Qt, no napari."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from napari_gpu_denoise import run
from napari_gpu_denoise._napari import maps, reading, storage
from napari_gpu_denoise._napari.maps import MapLayer
from napari_gpu_denoise._napari.reading import Stage, at
from napari_gpu_denoise.axes import Levels, check_axes, is_plain, output_dtype, value_range
from napari_gpu_denoise.errors import DeviceMemoryError, NonFiniteError
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate
from napari_gpu_denoise.noise_choice import resolve_noise
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers
from napari_gpu_denoise.prepare import convert, put_together, settings_for
from napari_gpu_denoise.sigma import Sigma, from_zero
from napari_gpu_denoise.streaming import FrameStream
from napari_gpu_denoise.tiles import span_around
from napari_gpu_denoise.video import over_time


@dataclass(frozen=True)
class Request:
    """All that a run needs; nothing of it is a napari or Qt object.

    Attributes
    ----------
    data : array-like
        What to filter: NumPy, dask, zarr, anything that can be sliced.
    settings : dataclass instance
        An entry of FILTERS, filled in.
    sigma : float, tuple of float or None
        None to estimate.
    axes, dtype, nonfinite, device, memory_limit
        As `run.denoise_steps` takes them.
    alpha : bool
        Whether the last axis is RGBA: alpha then passes as it is.
    frame : int or None
        The one frame along T that is wanted; None for all there is.
    maps : bool
        Whether to show what the filter saw as well.
    noise : str, NoiseEstimate or None
        What filters take as `noise`; None for one sigma. A sigma goes before it.
    """

    data: Any = field(repr=False)
    settings: Any
    sigma: float | tuple[float, ...] | None
    axes: str
    dtype: str | None
    nonfinite: str
    device: Any
    memory_limit: int | None
    alpha: bool = False
    frame: int | None = None
    maps: bool = False
    noise: str | NoiseEstimate | None = None

    @property
    def time(self) -> int | None:
        """Which axis of the data is time, where it is longer than one frame."""
        axis = check_axes(self.axes, self.data.shape).find("T")
        return axis if axis >= 0 and self.data.shape[axis] > 1 else None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that every way to filter takes."""
        names = ("dtype", "nonfinite", "device", "memory_limit")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Outcome:
    """What a run came to: a result, or the error that ended it.

    `folder` is where a result that is too large for memory is kept, `seen` is what the filter saw,
    if that was asked for, and `unseen` why it is not shown.
    """

    seconds: float
    result: run.Result | None = None
    error: Exception | None = None
    folder: str | None = None
    seen: list[MapLayer] = field(default_factory=list)
    unseen: str = ""


def steps(
    request: Request, stopped: Callable[[], bool] = lambda: False
) -> Generator[Stage, None, Outcome]:
    """Do a run; yields after every part, so that it can be stopped there.

    Where parts are long, `stopped` is asked as well, before frames are read.

    Errors are returned, not raised: superqt takes a RuntimeError out of a generator for the
    deletion of the worker, and would then never say that it has finished.
    """
    started = time.perf_counter()
    image = folder = None
    shown = [], ""
    load_bundled_drivers()
    try:
        if request.time is None or not reading.is_lazy(request.data):
            image = yield from reading.load(request.data)
            result = yield from _filtered(image, request)
        elif request.frame is not None:
            result = yield from _one_frame(request, stopped)
        else:
            result, folder = yield from _streamed(request, stopped)
        if request.maps:
            shown = yield from maps.seen(request, image, result, folder)
    except Exception as error:
        return Outcome(time.perf_counter() - started, error=error)
    return Outcome(time.perf_counter() - started, result, None, folder, *shown)


def _filtered(image: np.ndarray, request: Request) -> Generator[Stage, None, run.Result]:
    """Filter what is in memory: all, or one frame."""
    yield Stage("Preparing")
    filtering = run.denoise_steps(
        image[..., :3] if request.alpha else image,
        request.settings,
        request.sigma,
        noise=request.noise,
        axes=request.axes,
        frames=request.frame,
        **request.options,
    )
    with closing(filtering):
        result = yield from _stages(filtering)
    if request.alpha:
        if request.frame is not None:
            image = image[at(request.axes.index("T"), slice(request.frame, request.frame + 1))]
        whole = put_together(result.image, np.s_[..., :3], image, np.s_[..., 3:])
        result = replace(result, image=whole)
    return result


def _stages(filtering: Generator) -> Generator[Stage, None, run.Result]:
    while True:
        try:
            progress = next(filtering)
        except StopIteration as end:
            return end.value
        yield Stage(f"Denoising: {progress.unit}", progress.done, progress.total)


def _one_frame(request: Request, stopped: Callable[[], bool]) -> Generator[Stage, None, run.Result]:
    """Filter one frame of lazy data, of which only those are read that the filter looks at."""
    data, t = request.data, request.time
    yield Stage("Preparing")
    applied, found = _noise(request, stopped)
    reach = applied.reach.t if over_time(applied) else (0, 0)
    span = span_around(range(request.frame, request.frame + 1), reach, data.shape[t])
    start, stop = span.source_start, span.source_stop
    image = yield from reading.load_frames(data, t, range(start, stop))
    sigma = None if found.models else found.array
    if sigma is not None and sigma.shape[t] > 1:
        sigma = sigma[at(t, slice(start, stop))]
    noise, frame = found.models or None, request.frame - start
    part = replace(request, data=image, sigma=sigma, noise=noise, frame=frame)
    result = yield from _filtered(image, part)
    record = replace(
        result.record,
        sigma=found.values,
        sigma_source=found.source,
        notes=tuple(dict.fromkeys((*found.notes, *result.record.notes))),
    )
    return replace(result, record=record)


def _streamed(
    request: Request, stopped: Callable[[], bool]
) -> Generator[Stage, None, tuple[run.Result, str | None]]:
    """Filter lazy data frame by frame; neither they nor a large result are held in memory."""
    data, t, names = request.data, request.time, request.axes
    yield Stage("Preparing")
    running, found = _noise(request, stopped)
    levels = None
    if not is_plain(np.dtype(data.dtype)):
        levels = yield from _levels(request, running, stopped)
    dtype = output_dtype(request.dtype, np.dtype(data.dtype))
    image, folder = storage.room_for(tuple(data.shape), dtype)

    def read() -> Generator[np.ndarray, None, None]:
        for number, frame in enumerate(reading.frames_along(data, t, stopped)):
            if request.alpha:
                convert(frame[..., 3:], image[at(t, number)][..., 3:])
            yield frame[..., :3] if request.alpha else frame

    sigma = None if found.models else found.array[at(t, 0)]
    if sigma is not None and found.array.shape[t] > 1:

        def sigma(number: int) -> np.ndarray:
            return found.array[at(t, number)]

    work = FrameStream(
        request.settings,
        read(),
        sigma,
        noise=found.models or None,
        axes=names.replace("T", ""),
        levels=levels,
        **request.options,
    )
    yield Stage("Denoising: frame", 0, data.shape[t])
    try:
        with closing(iter(work)) as results:
            for number, frame in enumerate(results):
                kept = image[at(t, number)]
                kept[..., : frame.shape[-1]] = frame
                yield Stage("Denoising: frame", number + 1, data.shape[t])
    except DeviceMemoryError as error:
        if work.count:
            raise
        if image.nbytes >= storage.LARGEST_IN_MEMORY:
            raise DeviceMemoryError(
                "The device has too little memory for whole frames of this size: use fewer frames "
                "before and after, choose another device, or open a part of the stack."
            ) from error
        # In parts of frames it may fit.
        whole = yield from reading.load(data)
        return (yield from _filtered(whole, request)), None
    return run.Result(image, work.record(found, names)), folder


def _levels(
    request: Request, running: Any, stopped: Callable[[], bool]
) -> Generator[Stage, None, Levels]:
    """Choose how grey levels become pixels from the range of all frames, as for data in memory."""
    data, t = request.data, request.time
    ends, odd = [], 0
    for number, frame in enumerate(reading.frames_along(data, t, stopped)):
        yield Stage("Reading: frame", number, data.shape[t])
        values = frame[..., :3] if request.alpha else frame
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            odd += values.size - int(np.count_nonzero(finite))
            values = values[finite]
        if values.size:
            ends.append(value_range(values))
    if odd and request.nonfinite == "raise":
        raise NonFiniteError(f"{odd} pixels are NaN or infinite: they can be left in place.")
    if not ends:
        return Levels(0, 1.0)
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return Levels.spanning(low, high, from_zero(running))


def _noise(request: Request, stopped: Callable[[], bool]) -> tuple[Any, Sigma]:
    """Check or measure the noise of all of lazy data, as it is for data in memory.

    Returns
    -------
    settings : Filter
        What is run.
    sigma : Sigma
    """
    planes = reading.Planes(request.data, stopped, request.alpha)
    return resolve_noise(
        request.sigma,
        request.noise,
        planes,
        request.axes,
        settings_for(request.settings, request.axes, planes.shape),
        dtype=output_dtype(request.dtype, np.dtype(planes.dtype)),
    )
