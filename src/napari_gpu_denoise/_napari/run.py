"""A run of a filter on a layer: its request and report; no Qt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise._napari.layers.arrays import at
from napari_gpu_denoise._napari.layers.provenance import SOURCE, name_of
from napari_gpu_denoise._napari.layers.regions import Part
from napari_gpu_denoise._napari.layers.results import at_places
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.tasks import Outcome, doing
from napari_gpu_denoise._napari.wording import counted, duration
from napari_gpu_denoise.assessment.recommend import models_in_words
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.image.levels import convert, put_together
from napari_gpu_denoise.noise.models import NoiseModel, summary_of
from napari_gpu_denoise.noise.record import LOG_SPECKLE, NoiseEstimate
from napari_gpu_denoise.protocol.settings import size_in_words
from napari_gpu_denoise.run import denoise
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.progress import Progress
from napari_gpu_denoise.run.record import Record, Result
from napari_gpu_denoise.run.request import Run


@dataclass(frozen=True)
class Request:
    """All that a run needs: the layer, what to do, and which part of it.

    It holds no napari or Qt objects. Without `frame` and `slice`, places along T and Z, and without
    `rows` and `columns` everything is filtered. Axes are named in `run`. `memory` is what is known
    of noise that is found automatically.
    """

    source: Source
    run: Run
    frame: int | None = None
    slice: int | None = None
    memory: NoiseMemory | None = None
    rows: slice | None = None
    columns: slice | None = None

    @property
    def time(self) -> int | None:
        """The axis of time, if it is longer than one frame."""
        axis = self.run.axes.find("T")
        return axis if axis >= 0 and self.source.data.shape[axis] > 1 else None

    @property
    def alone(self) -> dict[str, int]:
        """The frame and the slice that are filtered alone, by the words for them."""
        chosen = {"frame": self.frame, "slice": self.slice}
        return {word: place for word, place in chosen.items() if place is not None}

    @property
    def cut(self) -> dict[str, int | slice]:
        """What is filtered along axes that are not filtered whole, as arguments of `denoise`."""
        found = {f"{word}s": place for word, place in self.alone.items()}
        spans = {"rows": self.rows, "columns": self.columns}
        return found | {name: span for name, span in spans.items() if span is not None}

    @property
    def places(self) -> dict[int, slice]:
        """The same by axis."""
        axes = self.run.axes.upper()
        return {
            axes.index(denoise.CUT[name]): one if isinstance(one, slice) else slice(one, one + 1)
            for name, one in self.cut.items()
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
        return self.source.identity, self.run, *self.cut.items()

    @property
    def name(self) -> str:
        """The name of the result."""
        known = {"filter": self.run.filter.name, "settings": self.run.filter.as_dict()}
        return name_of({SOURCE: self.source.name, **known})


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
    memory: NoiseMemory


@dataclass(frozen=True)
class Denoised:
    """The result of a run; `folder` holds one that is too large for memory."""

    result: Result
    folder: str | None = None


def denoise_layer(request: Request, progress: Progress) -> Denoised:
    """Filter a layer; it can be stopped after every part, and before lazy data are read."""
    data, t, alpha = request.source.data, request.time, request.source.alpha
    image = out = folder = None
    if not arrays.is_read_by_parts(data, t):
        image = arrays.load(data, progress)
    named = progress.within(doing("Denoising"))
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
        t = request.run.axes.find("T")
        frames = (slice(k, k + 1) for k in range(data.shape[t]))
        axis = max(t, 0)
        whole = index[axis]
        for some in frames if t >= 0 else arrays.cuts(data, 0):
            start, stop = max(some.start, whole.start), min(some.stop, whole.stop)
            if start < stop:
                part = (*index[:axis], slice(start, stop), *index[axis + 1 :])
                where = at(axis, slice(start - whole.start, stop - whole.start))
                convert(np.asarray(data[part])[..., 3:], out[where][..., 3:])
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
        if isinstance(known, NoiseEstimate) and known.log_speckle:
            kind = LOG_SPECKLE
        words = f"{words[:1].upper()}{words[1:]}"
        return f"{kind[:1].upper()}{kind[1:]} ({how}).", f"{words}."
    return (f"Noise {sigma} grey levels ({how})." if sigma else f"Sigma {record.sigma_source}."), ""
