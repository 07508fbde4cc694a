"""A run as a generator of stages: read the data, filter it, make maps; no Qt, no napari."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import numpy as np

from napari_gpu_denoise._napari.denoise import maps
from napari_gpu_denoise._napari.denoise.request import Request
from napari_gpu_denoise._napari.layers import lazy, storage
from napari_gpu_denoise._napari.layers.lazy import LazyArray, at
from napari_gpu_denoise._napari.layers.results import MapLayer
from napari_gpu_denoise._napari.stage import Stage, staged
from napari_gpu_denoise.image.levels import convert, output_dtype
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers
from napari_gpu_denoise.run import denoise as run
from napari_gpu_denoise.run.record import Result


@dataclass(frozen=True)
class Outcome:
    """The end of a run: a result, or the error that ended it.

    `folder` holds a result that is too large for memory; `maps` are layers of maps, if wanted, and
    `without_maps` says why there are none.
    """

    seconds: float
    result: Result | None = None
    error: Exception | None = None
    folder: str | None = None
    maps: list[MapLayer] = field(default_factory=list)
    without_maps: str = ""


def steps(
    request: Request, stopped: Callable[[], bool] = lambda: False
) -> Generator[Stage, None, Outcome]:
    """Run; yields after every part, so that it can be stopped there.

    Before lazy data are read `stopped` is called as well.

    Errors are returned, not raised: superqt takes a RuntimeError out of a generator for the
    deletion of the worker, and would then never say that it has finished.
    """
    started = time.perf_counter()
    image = folder = None
    layers = [], ""
    load_bundled_drivers()
    try:
        if request.time is None or not lazy.is_lazy(request.data):
            image = yield from lazy.load(request.data)
        result, folder = yield from _filtered(image, request, stopped)
        if request.maps:
            layers = yield from maps.map_layers(request, image, result, folder)
    except Exception as error:
        return Outcome(time.perf_counter() - started, error=error)
    return Outcome(time.perf_counter() - started, result, None, folder, *layers)


def _filtered(
    image: np.ndarray | None, request: Request, stopped: Callable[[], bool]
) -> Generator[Stage, None, tuple[Result, str | None]]:
    """Filter what is in memory, or lazy data frame by frame; alpha passes as it is."""
    yield Stage("Preparing")
    data, t, frame, colours = request.data, request.time, request.frame, np.s_[..., :3]
    out = folder = None
    if image is not None:
        source = image[colours] if request.alpha else image
    else:
        whole = (slice(None),) * (len(data.shape) - 1)
        source = LazyArray(data, stopped, (*whole, slice(3 if request.alpha else None)), t)
        if frame is None:
            dtype = output_dtype(request.dtype, np.dtype(data.dtype))
            out, folder = storage.room_for(tuple(data.shape), dtype)
    into = out[colours] if request.alpha and out is not None else out
    steps = run.denoise_steps(source, request.run, frame, into)
    result = yield from staged(steps, "Denoising")
    if not request.alpha:
        return result, folder
    if out is None:
        out = np.empty((*result.image.shape[:-1], 4), result.image.dtype)
        out[colours] = result.image
        given = data if image is None else image
        if frame is not None:
            given = given[at(request.axes.index("T"), slice(frame, frame + 1))]
        convert(np.asarray(given[..., 3:]), out[..., 3:])
    else:
        for number in range(data.shape[t]):
            alpha = np.asarray(data[at(t, number)])[..., 3:]
            convert(alpha, out[at(t, number)][..., 3:])
    return Result(out, result.record), folder
