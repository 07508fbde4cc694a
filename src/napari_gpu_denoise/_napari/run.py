"""A run of a filter on a layer: its request, maps and report; no Qt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise._napari.layers.arrays import at
from napari_gpu_denoise._napari.layers.provenance import SOURCE, name_of
from napari_gpu_denoise._napari.layers.regions import Part
from napari_gpu_denoise._napari.layers.results import NewLayer, at_places
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.tasks import Outcome, doing
from napari_gpu_denoise._napari.wording import counted, duration
from napari_gpu_denoise.assessment.recommend import models_in_words
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.filters.isoline import make_maps
from napari_gpu_denoise.filters.pixelwise import make_counts
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import convert, put_together
from napari_gpu_denoise.noise.models import NoiseModel, summary_of
from napari_gpu_denoise.noise.record import LOG_SPECKLE, NoiseEstimate
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.protocol.settings import setting_fields, size_in_words
from napari_gpu_denoise.run import denoise
from napari_gpu_denoise.run.noise import NoiseMemory, place
from napari_gpu_denoise.run.progress import Progress
from napari_gpu_denoise.run.record import Record, Result
from napari_gpu_denoise.run.request import Run

_CLASSES = ("low slope", "edge", "isoline")


@dataclass(frozen=True)
class Request:
    """All that a run needs: the layer, what to do, which part of it, and whether maps too.

    It holds no napari or Qt objects. Without `frame` and `slice`, places along T and Z, and without
    `rows` and `columns` everything is filtered. Axes are named in `run`. `memory` is what is known
    of noise that is found automatically.
    """

    source: Source
    run: Run
    frame: int | None = None
    maps: bool = False
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
        return self.source.identity, self.run, self.maps, *self.cut.items()

    @property
    def name(self) -> str:
        """The name of the result."""
        return name_of({SOURCE: self.source.name, "filter": self.run.filter.name})


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
class Offer:
    """The maps of a filter, and the panel's check box.

    `setting` yields a map in place of pixels. The panel has no control for it: the map would be
    taken for a result. `make` is the function with the arguments of `run.denoise_image`; `layers`
    makes layers of what it returns.
    """

    setting: str
    label: str
    tip: str
    make: Callable[..., Any]
    layers: Callable[[Any], list[NewLayer]]


def _isoline_layers(maps: Any) -> list[NewLayer]:
    # Below the classes, and hidden: it would hide the result.
    looks = {"rgb": False, "colormap": "hsv", "contrast_limits": (0, maps.period)}
    looks |= {"interpolation2d": "nearest", "visible": False}
    layers = [NewLayer("directions", "image", maps.directions, looks)]
    if maps.classes is not None:
        # 0 is the background of labels, which napari leaves clear.
        colours = {0: "transparent", 1: "orangered", 2: "deepskyblue", None: "transparent"}
        features = {"index": range(len(_CLASSES)), "class": _CLASSES}
        looks = {"colormap": colours, "features": features, "opacity": 0.5}
        layers.append(NewLayer("classes", "labels", maps.classes, looks))
    return layers


def _count_layers(count: np.ndarray) -> list[NewLayer]:
    looks = {"rgb": False, "colormap": "viridis", "visible": False}
    return [NewLayer("pixels averaged", "image", count, looks)]


_COUNTS = Offer(
    "show",
    "Show pixels averaged",
    "After a run, add a layer beside the result: how many pixels were averaged for each, 1 where "
    "none was similar. It is not an error bar.",
    make_counts,
    _count_layers,
)
OFFERS = {
    "isoline": Offer(
        "show",
        "Show edge and direction maps",
        "After a run, add layers beside the result: the class of each pixel (low slope, edge, "
        "isoline), and the directions of isolines, hidden at first.",
        make_maps,
        _isoline_layers,
    ),
    "nl_means_pixelwise": _COUNTS,
    "swnlm": _COUNTS,
}


def offer_of(kind: Any) -> Offer | None:
    """Return the maps that a filter offers; None for none."""
    return OFFERS.get(kind.name)


def map_layers(
    request: Request,
    image: np.ndarray | None,
    result: Result,
    folder: str | None,
    progress: Progress,
) -> tuple[list[NewLayer], str]:
    """Return the layers of a filter's maps after a run, or why there are none.

    `image` is the input, if it was read whole; `folder` that of a result too large for memory.
    """
    source, run, frame = request.source, request.run, request.frame
    data, names = source.data, run.axes.upper()
    shape = (*data.shape[:-1], 3) if source.alpha else tuple(data.shape)
    joined = "C" in run.filter.prepare(Context(names, shape)).joint
    channels = channel_axis(names)
    rgb = channels is not None and names[channels] == "S"
    if rgb and not joined:
        if "channels" not in {field.name for field in setting_fields(run.filter)}:
            return [], "This filter makes no maps of colours: split the layer into channels"
        return [], "Maps of colours need Channels set to joint or opponent"
    of_all = image is None and frame is None
    if folder or (of_all and 4 * math.prod(shape) >= arrays.LARGEST_IN_MEMORY):
        return [], "Maps are not made for stacks this large: try Only the frame shown"
    # As given or measured: of all frames, where one is filtered.
    models = tuple(NoiseModel.from_dict(each) for each in result.record.noise)
    given = 1.0 if models else result.record.sigma or 1.0
    sigma = place(np.array(given), shape, names)
    if image is None and frame is not None:
        one = at(request.time, slice(frame, frame + 1))
        image = np.asarray(data[one])
        if sigma.shape[request.time] > 1:
            sigma = sigma[one]
        frame = 0
    elif image is None:
        image = arrays.load(data, progress)
    if source.alpha:
        image = image[..., :3]
    offer = offer_of(run.filter)
    known = {"sigma": None, "noise": models} if models else {"sigma": sigma, "noise": None}
    cut = {**request.cut, "frames": frame}
    maps = offer.make(
        image, replace(run, **known), progress=progress.within(doing("Making maps")), **cut
    )
    layers = offer.layers(maps)
    if joined and not rgb:
        layers = [_spread(layer, channels, shape[channels]) for layer in layers]
    return layers, ""


def _spread(layer: NewLayer, axis: int, count: int) -> NewLayer:
    """Repeat the map of joined channels for each channel, without copying pixels."""
    data = np.expand_dims(layer.data, axis)
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    return replace(layer, data=np.broadcast_to(data, shape))


@dataclass(frozen=True)
class Denoised:
    """The result of a run.

    `folder` holds a result that is too large for memory; `maps` are layers of maps, if wanted, and
    `without_maps` says why there are none.
    """

    result: Result
    folder: str | None = None
    maps: list[NewLayer] = field(default_factory=list)
    without_maps: str = ""


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
    layers = [], ""
    if request.maps:
        layers = map_layers(request, image, result, folder, progress)
    return Denoised(result, folder, *layers)


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
    for note in filter(None, (*record.notes, done.without_maps)):
        remedy, text = getattr(note, "code", "") or note == done.without_maps, worded(note)
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
