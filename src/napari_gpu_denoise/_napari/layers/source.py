"""Image layers as sources: their data, axes, frame shown, file, and appearance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from napari.components import Dims
from napari.layers import Image, Layer, Shapes

from napari_gpu_denoise._napari.layers.arrays import LazyArray, as_dask, is_lazy
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY, file_origin, is_temporary
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.files import samples
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.run.progress import SILENT, Progress

# One place along an axis, in words.
AXIS_WORDS = {
    "T": "time point",
    "Z": "slice",
    "C": "channel",
    "S": "colour sample",
    "D": "measurement",
}

# Where a layer lies.
PLACE = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")

# How a layer looks, and what moves its pixels: names of events, too.
LOOKS = ("colormap", "contrast_limits", "gamma", "opacity", "blending", "interpolation2d")
MOVES = ("data", "scale", "translate", "rotate", "shear", "affine")

# What a result takes over from its source; all of it is still right when only the noise is gone.
_COLOURS = ("rgb", "colormap", "contrast_limits", "gamma", "blending", "opacity")
_INTERPOLATION = ("interpolation2d", "interpolation3d", "projection_mode")
_VOLUME = ("rendering", "depiction", "iso_threshold", "attenuation")
_INHERITED = (*PLACE, *_COLOURS, *_INTERPOLATION, *_VOLUME)

# Letters of axes by their labels in other programs.
_ROLES = {
    **dict.fromkeys(("t", "time", "frame"), "T"),
    **dict.fromkeys(("z", "slice", "depth"), "Z"),
    **dict.fromkeys(("y", "row"), "Y"),
    **dict.fromkeys(("x", "column"), "X"),
    **dict.fromkeys(("c", "channel"), "C"),
    **dict.fromkeys(("d", "measurement"), "D"),
}


@dataclass(frozen=True)
class Source:
    """A layer as it was when the run began; later changes to the layer do not reach it.

    `data` is its finest level, as the layer holds it, not copied; `attributes` are keyword
    arguments of ``viewer.add_image`` for the result. With `alpha` the last of the colour samples is
    not a colour. `path` is the file that the layer was read from, and `split` the axis of channels
    there, if the layer is one of them. Data of a `boolean` layer are 0 and 1. By `identity` the
    layer is found again.
    """

    name: str
    data: Any = field(repr=False)
    attributes: dict[str, Any] = field(repr=False, default_factory=dict)
    alpha: bool = False
    multiscale: bool = False
    path: str | None = None
    boolean: bool = False
    split: int | None = None
    identity: str = ""

    def pixels(self, progress: Progress = SILENT, time: int | None = None) -> Any:
        """Return the data without alpha; `progress` and `time` as `LazyArray` takes them."""
        if is_lazy(self.data):
            whole = (slice(None),) * (len(self.data.shape) - 1)
            return LazyArray(self.data, progress, (*whole, slice(3 if self.alpha else None)), time)
        return self.data[..., :3] if self.alpha else self.data


def reason_unusable(layer: Layer) -> str | None:
    """Return why a layer cannot be used, in one sentence; None if it can."""
    if is_temporary(layer):
        return f"{layer.name!r} is a temporary layer: choose the layer it was made from."
    if isinstance(layer, Image):
        return None
    kind = type(layer).__name__.lower()
    return f"{layer.name!r} is a {kind} layer: only image layers can be used."


def finest(layer: Image) -> Any:
    """Return the data of an image layer; for a multiscale layer, its finest level."""
    return layer.data[0] if layer.multiscale else layer.data


def place_of(layer: Layer) -> dict[str, Any]:
    """Return where a layer lies, as arguments of another one."""
    return {name: getattr(layer, name) for name in PLACE}


def looks_of(layer: Image) -> dict[str, Any]:
    """Return how a layer looks, as arguments of another one; colours have no colormap."""
    without = ("colormap", "contrast_limits") if layer.rgb else ()
    return {name: getattr(layer, name) for name in LOOKS if name not in without}


def set_changed(layer: Layer, attributes: dict[str, Any]) -> None:
    """Set the attributes of a layer that differ from what they are; each change is drawn."""
    for name, value in attributes.items():
        if not np.array_equal(getattr(layer, name), value):
            setattr(layer, name, value)


def shapes_on(layer: Image, name: str, width: float, **looks: Any) -> Shapes:
    """Return a layer of shapes on an image, whose lines take a share of its width."""
    across = finest(layer).shape[layer.ndim - 1]
    looks |= {"edge_color": "yellow", "edge_width": max(across * width, 1.0)}
    return Shapes(ndim=layer.ndim, name=name, **looks, **place_of(layer))


def file_of(layer: Layer) -> str | None:
    """Return the path of the file a layer was read from, if there is one."""
    if layer.source.path:
        return str(layer.source.path)
    plugin, name = layer.source.sample or (None, None)
    if plugin == METADATA_KEY and name in samples.names():
        return str(samples.path(name))
    return None


def no_layer() -> LayerError:
    """Return the error of a panel without a layer."""
    return LayerError(
        "There is no image layer: open an image first, or one of File > Open Sample > GPU Denoise."
    )


def capture(layer: Image | None) -> Source:
    """Return all of a layer that a run and its result need; raises `LayerError` without one."""
    if layer is None:
        raise no_layer()
    _, attributes, _ = layer.as_layer_data_tuple()
    kept = {key: attributes[key] for key in _INHERITED if key in attributes}
    if layer.rgb:
        # An RGB layer has neither; napari warns or fails when given them.
        kept.pop("contrast_limits", None)
        kept.pop("colormap", None)
    kept["metadata"] = dict(layer.metadata)
    data, boolean = finest(layer), np.dtype(finest(layer).dtype).kind == "b"
    if boolean:
        data = (
            data.view(np.uint8) if isinstance(data, np.ndarray) else as_dask(data).astype(np.uint8)
        )
    path, origin = file_of(layer), file_origin(layer.metadata)
    split = origin.split if path is not None and origin is not None else None
    alpha = layer.rgb and data.shape[-1] == 4
    known = alpha, layer.multiscale, path, boolean, split, str(layer.unique_id)
    return Source(layer.name, data, kept, *known)


def place_shown(layer: Image, axes: str, dims: Dims, letter: str) -> int | None:
    """Return the frame along T, or the slice along Z, of a layer that the viewer shows.

    None where there is no such axis, where it is drawn along the screen, and where the slider
    stands outside the layer. The viewer may have more axes, and other units, than the layer.
    """
    axis = axes.find(letter)
    if not 0 <= axis < layer.ndim or axis + dims.ndim - layer.ndim in dims.displayed:
        return None
    # Rounded as napari does.
    place = int(np.round(layer.world_to_data(dims.point)[axis]))
    return place if 0 <= place < finest(layer).shape[axis] else None


def voxel_of(layer: Image, axes: str) -> str:
    """Return the size of a voxel along Z, Y and X by the layer's scale; empty if it is not known.

    A scale of 1 in pixels, which layers have from the beginning, tells nothing.
    """
    if not set("ZYX") <= set(axes[: layer.ndim]):
        return ""
    sizes, unit = pixel_sizes(layer, [axes.index(letter) for letter in "ZYX"])
    if sizes is None or (str(unit) == "pixel" and len(set(sizes)) == 1):
        return ""
    return ", ".join(f"{size:.6g}" for size in sizes)


def pixel_sizes(layer: Image, axes: Sequence[int]) -> tuple[list[float] | None, Any]:
    """Return the size of a pixel along axes in the unit of the first, and that unit.

    The size is None where the axes have no unit in common.
    """
    first = layer.units[axes[0]]
    if not all(layer.units[axis].is_compatible_with(first) for axis in axes):
        return None, first
    factors = (float((1 * layer.units[axis]).to(first).magnitude) for axis in axes)
    sizes = (abs(float(layer.scale[axis])) for axis in axes)
    return [size * factor for size, factor in zip(sizes, factors, strict=True)], first


def suggest_axes(layer: Image, dims_labels: Sequence[str] = ()) -> str:
    """Return the axes of a layer, one letter each, from clear labels of the layer or the viewer.

    Colour and time are never guessed from lengths: without clear labels the last two axes are Y
    and X and all others independent planes, ``.``; the last axis of an RGB layer is S.
    """
    own = clear_letters(layer.axis_labels, layer.ndim)
    return (own or letters_of(dims_labels, layer.ndim)) + "S" * layer.rgb


def letters_of(labels: Sequence[str], ndim: int) -> str:
    """Return the letters of axes with these labels; of unclear ones those of independent planes."""
    return clear_letters(labels, ndim) or check_axes(None, (1,) * ndim)


def clear_letters(labels: Sequence[str], ndim: int) -> str:
    """Return the letters of axes with these labels; empty if they do not name Y and X."""
    roles = "".join(_ROLES.get(str(label).strip().lower(), ".") for label in labels)
    known = roles.replace(".", "")
    clear = len(roles) == ndim and {"Y", "X"} <= set(known) and len(set(known)) == len(known)
    return roles if clear else ""
