"""Maps of a filter, such as edges and directions, as layers beside its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise._napari.denoise.request import Request
from napari_gpu_denoise._napari.layers import lazy, storage
from napari_gpu_denoise._napari.layers.lazy import at
from napari_gpu_denoise._napari.layers.results import NewLayer
from napari_gpu_denoise._napari.stage import Stage, as_stages
from napari_gpu_denoise.filters.isoline.maps import map_steps
from napari_gpu_denoise.filters.pixelwise.maps import count_steps
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.run.record import Result
from napari_gpu_denoise.run.settings import setting_fields
from napari_gpu_denoise.run.sigma import place

_CLASSES = ("low slope", "edge", "isoline")


@dataclass(frozen=True)
class Offer:
    """The maps of a filter: the public function that makes them, and the panel's check box.

    `setting` yields a map in place of pixels. The panel has no control for it: the map would be
    taken for a result. `steps` is the function as a generator, with the arguments of
    `run.denoise_steps`; `layers` makes layers of what it returns.
    """

    function: str
    setting: str
    label: str
    tip: str
    steps: Callable[..., Generator]
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


OFFERS = {
    "isoline": Offer(
        "isoline_maps",
        "show",
        "Show edge and direction maps",
        "After a run, add layers beside the result: the class of each pixel (low slope, edge, "
        "isoline), and the directions of isolines, hidden at first.",
        map_steps,
        _isoline_layers,
    ),
    "nl_means_pixelwise": Offer(
        "pixels_averaged",
        "show",
        "Show pixels averaged",
        "After a run, add a layer beside the result: how many pixels were averaged for each. It "
        "shows where similar pixels were found; it is not an error bar.",
        count_steps,
        _count_layers,
    ),
    "swnlm": Offer(
        "similar_pixels",
        "show",
        "Show pixels averaged",
        "After a run, add a layer beside the result: how many pixels were averaged for each, 1 "
        "where none was similar. It is not an error bar.",
        count_steps,
        _count_layers,
    ),
}


def offer_of(kind: Any) -> Offer | None:
    """Return the maps that a filter offers; None for none."""
    return OFFERS.get(kind.name)


def map_layers(
    request: Request, image: np.ndarray | None, result: Result, folder: Path | str | None
) -> Generator[Stage, None, tuple[list[NewLayer], str]]:
    """Return the layers of a filter's maps after a run, or why there are none.

    `image` is the input, if it was read whole; `folder` that of a result too large for memory.
    """
    source, run, frame = request.source, request.run, request.frame
    data, names = source.data, run.axes.upper()
    shape = (*data.shape[:-1], 3) if source.alpha else tuple(data.shape)
    joined = "C" in run.filter.for_array(names, shape).joint
    channels = channel_axis(names)
    rgb = channels is not None and names[channels] == "S"
    if rgb and not joined:
        if "channels" not in {field.name for field in setting_fields(run.filter)}:
            return [], "This filter makes no maps of colours: split the layer into channels"
        return [], "Maps of colours need Channels set to joint or opponent"
    of_all = image is None and frame is None
    if folder or (of_all and 4 * math.prod(shape) >= storage.LARGEST_IN_MEMORY):
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
        image = yield from lazy.load(data)
    if source.alpha:
        image = image[..., :3]
    offer = offer_of(run.filter)
    known = {"sigma": None, "noise": models} if models else {"sigma": sigma, "noise": None}
    steps = offer.steps(image, replace(run, **known), frame, request.slice)
    layers = offer.layers((yield from as_stages(steps, "Making maps")))
    if joined and not rgb:
        layers = [_spread(layer, channels, shape[channels]) for layer in layers]
    return layers, ""


def _spread(layer: NewLayer, axis: int, count: int) -> NewLayer:
    """Repeat the map of joined channels for each channel, without copying pixels."""
    data = np.expand_dims(layer.data, axis)
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    return replace(layer, data=np.broadcast_to(data, shape))
