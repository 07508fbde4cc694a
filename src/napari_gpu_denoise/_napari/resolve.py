"""What follows from the state of a panel and of the viewer: one answer for every panel; no Qt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from napari.components import Dims
from napari.layers import Image, Layer

from napari_gpu_denoise._napari.layers import provenance, regions, source
from napari_gpu_denoise._napari.layers.results import shines_through
from napari_gpu_denoise._napari.model import AUTO, PanelModel, known_of, memory_for, memory_of
from napari_gpu_denoise._napari.run import NoiseRequest, Request
from napari_gpu_denoise.assessment.recommend import Advice, recommend, seconds_on, time_in_words
from napari_gpu_denoise.errors import AxesError, DenoiseError, LayerError, free_traceback
from napari_gpu_denoise.files.recommended import Recommended
from napari_gpu_denoise.image.axes import UNNAMED, check_axes
from napari_gpu_denoise.measurements.subspace import MEASUREMENTS, SLICES, Subspace
from napari_gpu_denoise.opencl.device import Device, choose_devices, was_used
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run.denoise import CUT
from napari_gpu_denoise.run.progress import Progress

_ALONE = {"T": "frame", "Z": "slice"}
# Likely letters and their meaning, by that which is wanted and the number of axes without a name.
_LIKELY = {
    "T": {
        1: {"T": "a time-lapse", "Z": "slices of a volume"},
        2: {"TZ": "a time-lapse of volumes", "TC": "a time-lapse in several channels"},
    },
    "Z": {
        1: {"Z": "slices of a volume"},
        2: {"TZ": "a time-lapse of volumes", "CZ": "volumes in several channels"},
    },
    MEASUREMENTS: {1: {MEASUREMENTS: "measurements of one object"}},
}
_MISTAKEN = {"T": "Z", MEASUREMENTS: "T"}  # what files often call them


@dataclass(frozen=True)
class Problem:
    """Why a panel cannot run as it is set."""

    error: DenoiseError

    @property
    def key(self) -> Any:
        """What is wrong."""
        return str(self.error)


@dataclass(frozen=True)
class Resolved:
    """What a panel would do as it is set: the runs, one for each layer, and what they mean.

    `what` names in words what is filtered, where that is not simply the layer.
    """

    layers: tuple[Image, ...]
    requests: tuple[Request, ...]
    what: str

    @property
    def key(self) -> Any:
        """What is to be done: what a panel says holds as long as this is the same."""
        return tuple(each.key for each in self.requests)

    def expected(self, devices: Sequence[Device]) -> str:
        """Return how long the runs take, in a sentence, after one on what is odd about them."""
        remark = ""
        for each in self.requests:
            sigma: Any = each.run.sigma
            dtype = np.dtype(each.source.data.dtype)
            if dtype.kind in "iu" and sigma and np.max(sigma) > np.iinfo(dtype).max:
                remark = "Sigma is larger than any grey level: hardly anything will be left. "
        seconds = sum(seconds_on(each.run.filter, each.pixels, devices) for each in self.requests)
        kinds = {each.run.filter.name for each in self.requests}
        first = any(not was_used(device, name) for device in devices for name in kinds)
        compiling = " First run on this device: compiling, once." if first else ""
        return f"{remark}Takes {time_in_words(seconds)}.{compiling}"


def resolve(model: PanelModel, dims: Dims) -> Resolved | Problem:
    """Return what a panel would do to the layers that it is set to, or why it cannot.

    `dims` are what the viewer shows.
    """
    try:
        if not model.layers:
            raise source.no_layer()
        if isinstance(model.settings, DenoiseError):
            raise model.settings
        settings = model.settings or Recommended()
        requests = tuple(request_of(model, each, settings, dims) for each in model.layers)
    except DenoiseError as error:
        # Frames and what is resolved would hold each other, and a worker free the widgets in them.
        free_traceback(error, kept=False)
        return Problem(error)
    return Resolved(model.layers, requests, _what(model, requests))


def request_of(model: PanelModel, layer: Image, settings: Filter, dims: Dims) -> Request:
    """Return the run of one of the layers of a panel; raises `DenoiseError` if it does not fit."""
    taken, axes = source.capture(layer), axes_for(model, layer, dims)
    shape = tuple(taken.data.shape)
    context = Context(axes, (*shape[:-1], 3) if taken.alpha else shape)
    if isinstance(settings, Recommended):
        settings = advice_on(model, layer, dims).filter
    if not getattr(settings, "voxel", True):
        settings = replace(settings, voxel=source.voxel_of(layer, axes))
    run = model.run(settings, axes, context.channels)
    cut: dict[str, Any] = {}
    for letter in sorted(model.options.alone & set(axes)):
        word, place = _ALONE[letter], source.place_shown(layer, axes, dims, letter)
        if place is None:
            raise LayerError(
                f"The viewer does not show a single {word} of {layer.name!r}: move the {letter} "
                f"slider to one, or untick Only the {word} shown."
            )
        cut[f"{word}s"] = place
    if not model.region.whole:
        index = model.region.part(layer, axes, dims).index
        cut |= {name: index[axes.index(CUT[name])] for name in ("rows", "columns")}
    request = Request(taken, run, cut, memory_for(layer, run))
    if isinstance(settings, Subspace) and not request.cut:
        settings.axis_of(axes)
    else:
        joint = settings.prepare(context).joint
        if settings.yields_map and layer.rgb and "C" not in joint:
            raise LayerError("A map of colours needs Channels set to joint or opponent.")
    return request


def repetition(result: Layer, layer: Image, dims: Dims) -> Request:
    """Return the runs that made a result, on all of another layer, one after another.

    Raises `DenoiseError` if a run does not fit the layer, or the record of the result does not tell
    one.
    """
    if layer == result:
        raise LayerError(f"The image that {result.name!r} was made from is not open.")
    found, records = [], provenance.records_of(result)
    for model in map(PanelModel.of_record, records):
        model.layers, model.axes = (result,), str(records[0].get("axes"))
        settings: Any = model.settings
        if hasattr(settings, "voxel") and source.voxel_of(layer, axes_for(model, layer, dims)):
            settings = replace(settings, voxel="")  # that of the layer
        found.append(request_of(model, layer, settings, dims))
    return replace(found[0], then=tuple(each.run for each in found[1:]))


def _what(model: PanelModel, requests: Sequence[Request]) -> str:
    several = f"{len(requests)} layers" if len(requests) > 1 else ""
    alone = [f"{word} {place}" for word, place in requests[0].alone.items()]
    region = "" if model.region.whole else model.region.kind
    return ", ".join(filter(None, (several, *alone, region)))


# --- recommendations --------------------------------------------------------------------------


class NotLookedAt(LayerError):
    """Which filter suits a layer is not known yet."""


def measurement(
    model: PanelModel, layer: Image, dims: Dims, kind: str = AUTO, *, whole: bool = True
) -> NoiseRequest:
    """Return the request to measure noise of a kind in all of a layer, or the region of a panel.

    By that in all of it a filter is recommended. The memory is that of runs which correct nothing
    first. Raises `DenoiseError` if it does not fit.
    """
    taken, axes = source.capture(layer), axes_for(model, layer, dims)
    region = model.region
    part = regions.part_of(axes, layer) if whole else region.part(layer, axes, dims)
    memory = memory_of(layer, AUTO, axes, None, "raise", model.device)
    return NoiseRequest(taken, axes, part, kind, region.flat, model.device, memory)


def advice_on(model: PanelModel, layer: Image, dims: Dims) -> Advice:
    """Return what is recommended for a layer; raises `DenoiseError` where that is not known."""
    axes = axes_for(model, layer, dims)
    found = memory_of(layer, AUTO, axes, None, "raise", model.device).advice
    if found is None:
        raise NotLookedAt(f"{layer.name} is measured before a filter is recommended.")
    if isinstance(found, DenoiseError):
        raise found
    return found


def advise(request: NoiseRequest, progress: Progress) -> Advice:
    """Find out which filter suits a layer, by its noise, which runs then know."""
    progress.stage(f"measuring the noise of {request.source.name}")
    data, device = request.source.pixels(progress), choose_devices(request.device)
    noise = request.memory.measured(data, request.axes, device[0])
    return recommend(data, request.axes, noise=noise, device=device)


# --- layers -----------------------------------------------------------------------------------


def inputs_of(selected: Iterable[Layer], layers: Iterable[Layer]) -> tuple[Image, ...]:
    """Return the images that selected layers stand for, in their order in the viewer.

    A result, and what a panel shows for a while, stand for the layer that they were made from.
    """
    layers, selected = list(layers), list(selected)
    origins = [provenance.first_origin(each, layers) for each in selected]
    usable = (each for each in layers if source.reason_unusable(each) is None)
    return tuple(each for each in usable if each in origins)


def channels_of(layer: Layer, layers: Iterable[Layer]) -> tuple[Image, ...]:
    """Return the layers that the file of a layer was opened as, such as one for each channel."""
    layers = list(layers)
    path, inputs = source.file_of(layer), inputs_of(layers, layers)
    alike = (each for each in inputs if source.file_of(each) == path is not None)
    found = tuple(e for e in alike if source.finest(e).shape == source.finest(layer).shape)
    return found if layer in found else ()


def channels_in_words(layers: Sequence[Image]) -> str:
    """Return what the layers of a file are called together."""
    origin = provenance.file_origin(layers[0].metadata)
    what = "layers" if origin is None or origin.split is None else "channels"
    number = "Both" if len(layers) == 2 else f"All {len(layers)}"
    return f"{number} {what} of {provenance.file_name(layers[0])}"


def hidden_by(shown: Iterable[Image], layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Return the layers that would be seen together with new versions of some layers above them.

    Of an image and its results only one should be seen at a time.
    """
    layers = list(layers)
    mixed = [provenance.first_origin(each, layers) for each in shown if shines_through(each)]
    family = (each for each in layers if each in mixed or provenance.is_result(each))
    return tuple(e for e in family if e.visible and provenance.first_origin(e, layers) in mixed)


# --- axes, and places along them ------------------------------------------------------------------


def axes_of(layer: Layer, labels: Sequence[str] = ()) -> str:
    """Return the axes of a layer: as typed for it, where they fit, or by labels."""
    if (typed := known_of(layer).axes) is not None:
        with suppress(AxesError):
            check_axes(typed, source.finest(layer).shape)
            return typed
    return source.suggest_axes(layer, labels)


def axes_for(model: PanelModel, layer: Image, dims: Dims) -> str:
    """Return the axes of one of the layers of a panel, which shows those of the first.

    They are the same, unless its shape or its own labels say otherwise. Raises `AxesError`.
    """
    first = model.layers[0] if model.layers else layer
    axes = check_axes(model.axes, source.finest(first).shape)
    if layer == first:
        return axes
    labelled = source.clear_letters(layer.axis_labels, layer.ndim)
    same = layer.rgb == first.rgb and source.finest(layer).ndim == source.finest(first).ndim
    if same and (not labelled or source.suggest_axes(first).startswith(labelled)):
        return axes
    return axes_of(layer, dims.axis_labels)


def _joins(kind: Any, axis: str) -> bool:
    """Return whether a filter, if any, joins frames (T) or slices (Z) by default."""
    return kind is not None and axis in kind().joint


def likely_axes(axes: str, shape: tuple[int, ...], kind: Any) -> dict[str, str]:
    """Return likely letters for unnamed axes, and their meaning in words.

    `axes` are as `check_axes` returns them. Only axes that the filter uses are offered, if `kind`
    is one.
    """
    wanted = MEASUREMENTS if kind is Subspace else "Z" if _joins(kind, "Z") else "T"
    if wanted in axes:
        return {}
    unknown = [i for i, a in enumerate(axes) if a == UNNAMED and shape[i] > 1]
    meanings, mistaken = _LIKELY[wanted].get(len(unknown), {}), axes.find(_MISTAKEN.get(wanted, ""))
    needed = kind is Subspace or _joins(kind, "T")
    if not unknown and needed and mistaken >= 0 and shape[mistaken] > 1:
        unknown, meanings = [mistaken], _LIKELY[wanted][1]
    slices = kind is None or any(e.metadata["needs_axis"] == "Z" for e in setting_fields(kind))
    if wanted == "T" and not slices:
        meanings = {letters: words for letters, words in meanings.items() if letters != "Z"}
    found = {}
    for letters, meaning in meanings.items():
        if not set(letters) & set(axes):
            named = dict(zip(unknown, letters, strict=True))
            found["".join(named.get(i, a) for i, a in enumerate(axes))] = meaning
    return found


def advice_on_axes(axes: str, shape: tuple[int, ...], kind: Any, found: dict[str, str]) -> str:
    """Return advice on unnamed axes, in bold if the filter needs them."""
    if _joins(kind, "T") and "T" not in axes:
        works = f"{kind.title} works along time"
        if not found:
            return f". {works}: without an axis T each image is filtered alone."
        return f". <b>{works}: name the time axis T, as in {' or '.join(found)}.</b>"
    if _joins(kind, "Z") and "Z" not in axes:
        works = f"{kind.title} works on volumes"
        if not found:
            other = "VBM3D for time-lapses" if "T" in axes else "BM3D for images"
            return f". {works}: use {other}."
        return f". <b>{works}: name the slices Z, as in {' or '.join(found)}.</b>"
    hints = ", ".join(f"for {meaning} type {letters}" for letters, meaning in found.items())
    if hints:
        return f". {hints[0].upper()}{hints[1:]}."
    alone = not (kind in (None, Subspace) or _joins(kind, "T") or _joins(kind, "Z"))
    volume = "Z" in axes and shape[axes.index("Z")] >= SLICES
    return ". BM4D filters all slices of a volume together." * (alone and volume)
