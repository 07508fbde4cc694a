"""What a filter saw, as layers beside its result: which filters can show it, and how it looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napari_gpu_denoise import run
from napari_gpu_denoise._napari import reading, storage
from napari_gpu_denoise._napari.reading import Stage, at
from napari_gpu_denoise.axes import channel_axis
from napari_gpu_denoise.filters.isoline_maps import map_steps
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.prepare import settings_for
from napari_gpu_denoise.sigma import resolve_sigma

_CLASSES = ("low slope", "edge", "isoline")


@dataclass(frozen=True)
class MapLayer:
    """A map as napari takes it.

    Attributes
    ----------
    title : str
        What it is.
    kind : str
        ``"labels"`` or ``"image"``.
    data : ndarray
        Has the axes of the source, but for the colours of RGB.
    attributes : dict
        Keyword arguments of ``viewer.add_labels`` or ``viewer.add_image``: how it looks.
    """

    title: str
    kind: str
    data: np.ndarray = field(repr=False)
    attributes: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Offer:
    """That a filter can show what it saw.

    Attributes
    ----------
    function : str
        Public name of the function that makes its maps.
    setting : str
        The setting that yields a map in place of pixels. The panel has no control for it: the map
        would be taken for a result.
    steps : callable
        The function as a generator, that takes what `run.denoise_steps` does but for ``dtype``.
    layers : callable
        Makes layers of the maps.
    """

    function: str
    setting: str
    steps: Callable[..., Generator]
    layers: Callable[[Any], list[MapLayer]]


def _isoline_layers(maps: Any) -> list[MapLayer]:
    shown = []
    if maps.classes is not None:
        # 0 is the background of labels, which napari leaves clear.
        colours = {0: "transparent", 1: "orangered", 2: "deepskyblue", None: "transparent"}
        looks = {
            "colormap": colours,
            "features": {"index": range(len(_CLASSES)), "class": _CLASSES},
            "opacity": 0.5,
        }
        shown.append(MapLayer("classes", "labels", maps.classes, looks))
    looks = {
        "colormap": "hsv",
        "contrast_limits": (0, maps.period),
        "interpolation2d": "nearest",
        "visible": False,
    }
    # Below the classes, and hidden: it would hide the result.
    return [MapLayer("directions", "image", maps.directions, looks), *shown]


OFFERS = {"isoline": Offer("isoline_maps", "show", map_steps, _isoline_layers)}


def offer_of(kind: Any) -> Offer | None:
    """Return what a filter offers to show beside its result; None for nothing."""
    return OFFERS.get(kind.name)


def seen(
    request: Any, image: np.ndarray | None, result: run.Result, folder: str | None
) -> Generator[Stage, None, tuple[list[MapLayer], str]]:
    """Make the layers of what the filter saw, after a run.

    Parameters
    ----------
    request : Request
        The run.
    image : ndarray or None
        What was filtered, if it was read whole.
    result : run.Result
        What came of it.
    folder : str or None
        Where that is kept, if not in memory.

    Returns
    -------
    list of MapLayer
    str
        Why there are none; empty where there are.
    """
    data, names, frame = request.data, request.axes.upper(), request.frame
    shape = (*data.shape[:-1], 3) if request.alpha else tuple(data.shape)
    joined = "C" in settings_for(request.settings, names, shape).joint
    channels = channel_axis(names)
    rgb = channels is not None and names[channels] == "S"
    if rgb and not joined:
        return [], "Colours were filtered one by one: what was seen can only be shown of joint ones"
    of_all = image is None and frame is None
    if folder or (of_all and 4 * math.prod(shape) >= storage.LARGEST_IN_MEMORY):
        return [], "What was seen is not shown of a stack this large: try Only the frame shown"
    # As it was given or measured: of all frames, where one is looked at.
    models = tuple(NoiseModel.from_dict(each) for each in result.record.noise)
    given = result.record.sigma if not models and result.record.sigma else None
    sigma = resolve_sigma(given or 1.0, _Shape(shape), names, request.settings).array
    if image is None and frame is not None:
        image = yield from reading.load_frames(data, request.time, range(frame, frame + 1))
        if sigma.shape[request.time] > 1:
            sigma = sigma[at(request.time, slice(frame, frame + 1))]
        frame = 0
    elif image is None:
        image = yield from reading.load(data)
    if request.alpha:
        image = image[..., :3]
    options = {name: request.options[name] for name in ("nonfinite", "device", "memory_limit")}
    offer = offer_of(request.settings)
    noise = {"noise": models} if models else {"sigma": sigma}
    running = offer.steps(image, request.settings, **noise, axes=names, frames=frame, **options)
    with closing(running):
        while True:
            try:
                progress = next(running)
            except StopIteration as end:
                shown = offer.layers(end.value)
                break
            yield Stage(f"Showing what was seen: {progress.unit}", progress.done, progress.total)
    if joined and not rgb:
        shown = [_spread(layer, channels, shape[channels]) for layer in shown]
    return shown, ""


@dataclass(frozen=True)
class _Shape:
    """Stands for an array of which only the shape is looked at."""

    shape: tuple[int, ...]


def _spread(layer: MapLayer, axis: int, count: int) -> MapLayer:
    """Show the map of joined channels at each of them; no pixel is copied."""
    data = np.expand_dims(layer.data, axis)
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    return MapLayer(layer.title, layer.kind, np.broadcast_to(data, shape), layer.attributes)
