"""A run of a filter on a layer: its request and report; no Qt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise._napari.layers.provenance import SOURCE, name_of
from napari_gpu_denoise._napari.layers.regions import Part
from napari_gpu_denoise._napari.layers.results import at_places
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.model import LayerNoise
from napari_gpu_denoise._napari.tasks import Outcome, doing
from napari_gpu_denoise._napari.wording import counted, duration
from napari_gpu_denoise.assessment.recommend import models_in_words, noise_in_words
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.image.levels import convert, put_together
from napari_gpu_denoise.noise.models import NoiseModel, summary_of
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.protocol.settings import size_in_words
from napari_gpu_denoise.run import denoise
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.progress import Progress
from napari_gpu_denoise.run.record import Record, Result
from napari_gpu_denoise.run.request import Run


@dataclass(frozen=True)
class Request:
    """All that a run needs: the layer, what to do, and which part of it.

    It holds no napari or Qt objects. `cut` is what is filtered along axes that are not filtered
    whole, as arguments of `denoise`. Axes are named in `run`. `memory` is what is known of noise
    that is found automatically. Runs of `then` filter the result, one after another.
    """

    source: Source
    run: Run
    cut: dict[str, Any] = field(default_factory=dict)
    memory: NoiseMemory | None = None
    then: tuple[Run, ...] = ()

    @property
    def axes(self) -> str:
        """The letters of the axes of the layer."""
        return (self.run.axes or "").upper()

    @property
    def alone(self) -> dict[str, int]:
        """The frame and the slice that are filtered alone, by the words for them."""
        return {name[:-1]: at for name, at in self.cut.items() if isinstance(at, int)}

    @property
    def spans(self) -> dict[str, list[int]]:
        """Start and stop of the rows and columns that are filtered alone."""
        cut = self.cut.items()
        return {name: [at.start, at.stop] for name, at in cut if isinstance(at, slice)}

    @property
    def places(self) -> dict[int, slice]:
        """What is filtered along axes that are not filtered whole, by axis."""
        return {
            self.axes.index(denoise.CUT[name]): at if isinstance(at, slice) else slice(at, at + 1)
            for name, at in self.cut.items()
        }

    @property
    def index(self) -> tuple[slice, ...]:
        """The same as an index into the layer, with all of its axes."""
        places = self.places
        return tuple(places.get(axis, slice(0, n)) for axis, n in enumerate(self.source.data.shape))

    @property
    def placed(self) -> Source:
        """The layer, moved to where the first pixel of the result lies."""
        starts = {axis: one.start for axis, one in self.places.items()}
        return at_places(self.source, starts) if starts else self.source

    @property
    def pixels(self) -> int:
        """The number of pixels that are filtered."""
        return math.prod(each.stop - each.start for each in self.index)

    @property
    def key(self) -> tuple[Any, ...]:
        """What is done to which layer, to be compared."""
        return self.source.identity, self.run, *self.cut.items(), self.then

    @property
    def run_key(self) -> tuple[Any, ...]:
        """What is done to which pixels of a layer, wherever: results of the same are alike."""
        return self.source.identity, self.run, self.memory, self.then

    def with_noise(self, noise: str) -> Request:
        """Return the request with another noise in its last run, given or to be measured."""
        *first, last = self.run, *self.then
        run, *then = *first, replace(last, sigma=None, noise=noise)
        return replace(self, run=run, then=tuple(then), memory=self.memory if first else None)

    @property
    def name(self) -> str:
        """The name of the result."""
        name = self.source.name
        for each in (self.run, *self.then):
            known = {"filter": each.filter.name, "settings": each.filter.as_dict()}
            name = name_of({SOURCE: name, **known})
        return name


@dataclass(frozen=True)
class NoiseRequest:
    """All that a measurement needs: a part of a layer, without alpha, and how to measure it.

    It holds no napari or Qt objects. `axes` are those of the whole layer, `model` and
    `device` as `estimate_noise` takes them. A `flat` part holds no object; `memory` knows the noise
    of the layer, or measures it.
    """

    source: Source
    axes: str
    part: Part
    model: str
    flat: bool
    device: int | str | None
    memory: LayerNoise


@dataclass(frozen=True)
class Denoised:
    """The result of a request; `folder` holds one that is too large for memory.

    `earlier` are the records of the runs before its last.
    """

    result: Result
    folder: str | None = None
    earlier: tuple[Record, ...] = ()


def denoise_layer(request: Request, progress: Progress) -> Denoised:
    """Filter a layer; it can be stopped after every part, and before lazy data are read."""
    if not request.then:
        return _run(request, progress, "Denoising")
    done, earlier = _run(request, progress, request.run.filter.title), []
    for run in request.then:
        earlier.append(done.result.record)
        source = replace(request.source, data=done.result.image)
        done = _run(Request(source, run), progress, run.filter.title)
    return replace(done, earlier=tuple(earlier))


def _run(request: Request, progress: Progress, what: str) -> Denoised:
    """Filter a layer once; `what` is done in words."""
    data, t, alpha = request.source.data, request.axes.find("T"), request.source.alpha
    t = t if t >= 0 and data.shape[t] > 1 else None
    image = out = folder = None
    if not arrays.is_read_by_parts(data, t):
        progress.stage("reading")
        image = np.asarray(data[...])
    named = progress.within(doing(what))
    named.stage("denoising")
    # Alpha, the last of four colour samples, passes as it is.
    colours = np.s_[..., :3] if alpha else np.s_[...]
    source = request.source.pixels(progress, t) if image is None else image[colours]

    def allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        nonlocal out, folder
        out, folder = arrays.allocate((*shape[:-1], 4) if alpha else shape, dtype)
        return out[colours]

    into = allocate if image is None and not request.alone else None
    wanted = request.run
    if request.memory is not None:
        wanted = replace(wanted, noise=request.memory)
    result = denoise.denoise_image(source, wanted, into, progress=named, **request.cut)
    if alpha:
        result = Result(_with_alpha(request, result.image, out, image), result.record)
    return Denoised(result, folder)


def _with_alpha(
    request: Request, colours: np.ndarray, out: np.ndarray | None, image: np.ndarray | None
) -> np.ndarray:
    """Return filtered colours with the alpha of the input; `out` if that holds the colours."""
    data, index = request.source.data, request.index
    if out is not None:
        from dask.array.core import slices_from_chunks

        rest = arrays.as_dask(data, colours=True)[(*index[:-1], slice(3, None))]
        for part in slices_from_chunks(rest.chunks):
            convert(rest[part].compute(scheduler="synchronous"), out[..., 3:][part])
        return out
    given = (data if image is None else image)[index]
    return put_together(colours, np.s_[..., :3], np.asarray(given), np.s_[..., 3:])


def report(outcome: Outcome, worded: Callable[[Note | str], str]) -> tuple[str, str]:
    """Summarise a successful run: time, noise, and what is to be known or done; and details."""
    done, seconds = outcome.value, outcome.seconds
    record = done.result.record
    noise, parameters = _noise(record, outcome.request)
    sentences = [f"Done in {duration(seconds)}.", noise]
    details = [
        parameters,
        f"Strength {record.sigma_factor:g}." if record.sigma_factor != 1 else "",
        f"Device: {record.device}.",
    ]
    if record.corrected:
        sentences.append(f"Corrected first: {'; '.join(record.corrected)}.")
    if record.saturated:
        clipped = counted(record.saturated, "value was", "values were")
        sentences.append(f"{clipped} clipped to {record.output_dtype}.")
    if record.nonfinite:
        left = counted(record.nonfinite, "NaN or infinite pixel was", "NaN or infinite pixels were")
        sentences.append(f"{left} left in place.")
    # Notes stand alone elsewhere; here they become sentences. Those without a remedy are details.
    for note in filter(None, record.notes):
        remedy, text = getattr(note, "code", ""), worded(note)
        (sentences if remedy else details).append(f"{text[:1].upper()}{text[1:].rstrip('.')}.")
    if done.folder is not None:
        size = size_in_words(done.result.image.nbytes)
        sentences.append(
            f"The result, {size}, is kept in a temporary file in {done.folder} until its layer "
            "is removed or napari is closed: save it to keep it."
        )
    return " ".join(filter(None, sentences)), " ".join(filter(None, details))


def _noise(record: Record, request: Request) -> tuple[str, str]:
    """Return the noise in a few words, and its parameters if these are more."""
    how = "given" if record.sigma_source.startswith("given") else "estimated"
    words = summary_of(record.noise)
    sigma = ", ".join(f"{value:.4g}" for value in record.sigma)
    if words:
        kind = models_in_words([NoiseModel.from_dict(each) for each in record.noise])
        known = request.run.noise if request.memory is None else request.memory.estimate
        if isinstance(known, NoiseEstimate) and not request.then:
            kind = noise_in_words(known)
        words = f"{words[:1].upper()}{words[1:]}"
        return f"{kind[:1].upper()}{kind[1:]} ({how}).", f"{words}."
    return (f"Noise {sigma} grey levels ({how})." if sigma else f"Sigma {record.sigma_source}."), ""
