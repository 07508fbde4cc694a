"""A run as a generator of stages, and its report; no Qt."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import numpy as np

from napari_gpu_denoise._napari.denoise import in_file, maps
from napari_gpu_denoise._napari.denoise.request import Request
from napari_gpu_denoise._napari.layers import lazy, storage
from napari_gpu_denoise._napari.layers.lazy import LazyArray, at
from napari_gpu_denoise._napari.layers.results import NewLayer
from napari_gpu_denoise._napari.stage import Stage, as_stages
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.image.levels import convert
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers
from napari_gpu_denoise.run import denoise as run
from napari_gpu_denoise.run.record import Record, Result


@dataclass(frozen=True)
class Outcome:
    """The end of a run: a result, or the error that ended it.

    `folder` holds a result that is too large for memory, and is not in a file of its own; `maps`
    are layers of maps, if wanted, and `without_maps` says why there are none.
    """

    request: Request
    seconds: float
    result: Result | None = None
    error: Exception | None = None
    folder: str | None = None
    maps: list[NewLayer] = field(default_factory=list)
    without_maps: str = ""


def steps(
    request: Request, stopped: Callable[[], bool] = lambda: False
) -> Generator[Stage, None, Outcome]:
    """Run; yields after every part, where it can be stopped.

    `stopped` is also called before lazy data are read.

    Errors are returned, not raised: superqt takes a RuntimeError out of a generator for the
    deletion of the worker, and would then never say that it has finished.
    """
    started = time.perf_counter()
    data, t, alpha = request.source.data, request.time, request.source.alpha
    image = out = folder = None
    layers = [], ""
    try:
        load_bundled_drivers()
        if not lazy.is_read_by_parts(data, t):
            image = yield from lazy.load(data)
        yield Stage("Preparing")
        # Alpha, the last of four colour samples, passes as it is.
        colours = np.s_[..., :3] if alpha else np.s_[...]
        if image is None:
            whole = (slice(None),) * (len(data.shape) - 1)
            source = LazyArray(data, stopped, (*whole, slice(3 if alpha else None)), t)
        else:
            source = image[colours]

        def allocate(_: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
            nonlocal out, folder
            out, folder = storage.allocate(tuple(data.shape), dtype)
            return out[colours]

        into = allocate if image is None and not request.places else None
        wanted = request.run
        if request.memory is not None:
            wanted = replace(wanted, noise=request.memory)
        if request.target is not None:
            result = yield from in_file.written(request, source, wanted)
        else:
            running = run.denoise_steps(source, wanted, request.frame, into, request.slice)
            result = yield from as_stages(running, "Denoising")
        if alpha:
            result = Result(_with_alpha(request, result.image, out, image), result.record)
        if request.maps:
            layers = yield from maps.map_layers(request, image, result, folder or request.target)
    except Exception as error:
        return Outcome(request, time.perf_counter() - started, error=error)
    return Outcome(request, time.perf_counter() - started, result, None, folder, *layers)


def _with_alpha(
    request: Request, colours: np.ndarray, out: np.ndarray | None, image: np.ndarray | None
) -> np.ndarray:
    """Return filtered colours with the alpha of the input; `out` if that holds the colours."""
    data = request.source.data
    if out is not None:
        t = request.run.axes.find("T")
        frames = (slice(k, k + 1) for k in range(data.shape[t]))
        for some in frames if t >= 0 else lazy.cuts(data, 0):
            where = at(max(t, 0), some)
            convert(np.asarray(data[where])[..., 3:], out[where][..., 3:])
        return out
    out = np.empty((*colours.shape[:-1], 4), colours.dtype)
    out[..., :3] = colours
    given = data if image is None else image
    for axis, place in request.places.items():
        given = given[at(axis, slice(place, place + 1))]
    convert(np.asarray(given[..., 3:]), out[..., 3:])
    return out


def report(outcome: Outcome) -> str:
    """Summarise a successful run: time, noise, device, and notes."""
    record, seconds = outcome.result.record, outcome.seconds
    sentences = [
        f"Done in {seconds:.2g} s." if seconds < 9.5 else f"Done in {seconds:.0f} s.",
        _noise(record),
        f"Strength {record.sigma_factor:g}." if record.sigma_factor != 1 else "",
        f"Device: {record.device}.",
    ]
    if record.corrected:
        sentences.append(f"Corrected first: {'; '.join(record.corrected)}.")
    if record.saturated:
        sentences.append(f"{record.saturated} values were clipped to {record.output_dtype}.")
    if record.nonfinite:
        sentences.append(f"{record.nonfinite} NaN or infinite pixels were left in place.")
    notes = [*map(in_panel, record.notes), outcome.without_maps]
    # Notes stand alone elsewhere; here they become sentences.
    sentences += [f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in notes if note]
    if outcome.request.target is not None:
        sentences.append(f"The result is in {outcome.request.target}.")
    if outcome.folder is not None:
        size = storage.gigabytes(outcome.result.image.nbytes)
        sentences.append(
            f"The result, {size}, is kept in a temporary file in {outcome.folder} until its layer "
            "is removed or napari is closed: save it to keep it."
        )
    return " ".join(filter(None, sentences))


def _noise(record: Record) -> str:
    how = "given" if record.sigma_source.startswith("given") else "estimated"
    models = dict.fromkeys(NoiseModel.from_dict(each).summary() for each in record.noise)
    sigma = ", ".join(f"{value:.4g}" for value in record.sigma)
    if models:
        words = "; ".join(models)
        return f"{words[:1].upper()}{words[1:]} ({how})."
    return f"Noise {sigma} grey levels ({how})." if sigma else f"Sigma {record.sigma_source}."
