"""Which layers can be filtered, what is taken from them, and the layer that comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise import samples
from napari_gpu_denoise.axes import check_axes
from napari_gpu_denoise.errors import LayerError

if TYPE_CHECKING:
    import napari.components
    import napari.layers
    import napari.viewer

    from napari_gpu_denoise._napari.maps import MapLayer

METADATA_KEY = "napari-gpu-denoise"

# Where a layer lies.
PLACE = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")

# What a result takes over from its source; all of it is still right when only the noise is gone.
INHERITED = (
    *PLACE,
    "rgb",
    "colormap",
    "contrast_limits",
    "gamma",
    "blending",
    "opacity",
    "interpolation2d",
    "interpolation3d",
    "rendering",
    "depiction",
    "iso_threshold",
    "attenuation",
    "projection_mode",
)

_ROLES = {
    "t": "T",
    "time": "T",
    "frame": "T",
    "z": "Z",
    "slice": "Z",
    "depth": "Z",
    "y": "Y",
    "row": "Y",
    "x": "X",
    "column": "X",
    "c": "C",
    "channel": "C",
}


@dataclass(frozen=True)
class Source:
    """A layer as it was when the run began; later changes to the layer do not reach it.

    Attributes
    ----------
    name : str
        Name of the layer.
    data : array-like
        Its finest level: NumPy, dask or whatever the layer holds. Not copied.
    attributes : dict
        Keyword arguments of ``viewer.add_image`` for the result.
    alpha : bool
        Whether the last of the colour samples is no colour but alpha.
    """

    name: str
    data: Any = field(repr=False)
    attributes: dict[str, Any] = field(repr=False)
    alpha: bool = False


def refusal(layer: napari.layers.Layer) -> str | None:
    """Say why a layer cannot be filtered, in one sentence; None if it can."""
    from napari.layers import Image

    if isinstance(layer, Image):
        return None
    kind = type(layer).__name__.lower()
    return f"{layer.name!r} is a {kind} layer: only image layers can be denoised."


def finest(layer: napari.layers.Image) -> Any:
    """Return the data of an image layer, of a multiscale one its finest level."""
    return layer.data[0] if layer.multiscale else layer.data


def has_alpha(layer: napari.layers.Image) -> bool:
    """Say whether an image layer is RGBA; its alpha holds no noise to take away."""
    return layer.rgb and finest(layer).shape[-1] == 4


def file_of(layer: napari.layers.Layer) -> str | None:
    """Return the path of the file a layer was read from, if there is one."""
    if layer.source.path:
        return str(layer.source.path)
    plugin, name = layer.source.sample or (None, None)
    if plugin == METADATA_KEY and name in samples.names():
        return str(samples.path(name))
    return None


def capture(layer: napari.layers.Layer | None) -> Source:
    """Take from a layer all that a run and its result need.

    Parameters
    ----------
    layer : napari layer or None

    Returns
    -------
    Source

    Raises
    ------
    LayerError
        If there is no layer, or it is not an image.
    """
    if layer is None:
        raise LayerError(
            "There is no image layer to denoise: open an image first, "
            "or one of File > Open Sample > GPU Denoise."
        )
    if (reason := refusal(layer)) is not None:
        raise LayerError(reason)
    _, attributes, _ = layer.as_layer_data_tuple()
    kept = {key: attributes[key] for key in INHERITED if key in attributes}
    if layer.rgb:
        # An RGB layer has neither; napari warns or fails when given them.
        kept.pop("contrast_limits", None)
        kept.pop("colormap", None)
    kept["metadata"] = dict(layer.metadata)
    return Source(layer.name, finest(layer), kept, has_alpha(layer))


def add_result(
    viewer: napari.viewer.Viewer,
    source: Source,
    image: np.ndarray,
    title: str,
    provenance: dict[str, Any],
) -> napari.layers.Image:
    """Add a filtered image to the viewer, looking and lying like its source.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
    source : Source
        The layer as captured at the start.
    image : ndarray
        Same shape as the source's data, or one frame of it.
    title : str
        What is put after the source's name, in brackets; napari numbers a name that is taken.
    provenance : dict
        Stored under `METADATA_KEY` in the layer's metadata.

    Returns
    -------
    napari.layers.Image
    """
    metadata = {**source.attributes["metadata"], METADATA_KEY: provenance}
    attributes = {**source.attributes, "metadata": metadata, "name": f"{source.name} ({title})"}
    # multiscale=False: napari would otherwise guess from the shape.
    return viewer.add_image(image, multiscale=False, **attributes)


def add_map(
    viewer: napari.viewer.Viewer,
    source: Source,
    shown: MapLayer,
    title: str,
    provenance: dict[str, Any],
) -> napari.layers.Layer:
    """Add a map of what a filter saw to the viewer, lying like its source.

    Parameters
    ----------
    viewer, source, title, provenance
        As `add_result` takes them.
    shown : MapLayer
        What is seen, and how it looks.

    Returns
    -------
    napari.layers.Layer
    """
    place = {key: source.attributes[key] for key in PLACE if key in source.attributes}
    metadata = {**source.attributes["metadata"], METADATA_KEY: provenance}
    attributes = {
        **place,
        **shown.attributes,
        "metadata": metadata,
        "name": f"{source.name} ({title})",
    }
    if shown.kind == "labels":
        return viewer.add_labels(shown.data, multiscale=False, **attributes)
    return viewer.add_image(shown.data, multiscale=False, rgb=False, **attributes)


def frame_shown(layer: napari.layers.Image, axes: str, dims: napari.components.Dims) -> int | None:
    """Return which frame along T of a layer the viewer shows.

    Parameters
    ----------
    layer : napari.layers.Image
    axes : str
        Axes of its data.
    dims : napari.components.Dims
        The viewer's; its world may have more axes, and other units, than the layer's data.

    Returns
    -------
    int or None
        From 0; None where there is no axis T, where T is drawn along the screen, and where the
        slider stands on no frame of the layer.
    """
    axis = axes.find("T")
    if not 0 <= axis < layer.ndim or axis + dims.ndim - layer.ndim in dims.displayed:
        return None
    # Rounded as napari does.
    frame = int(np.round(layer.world_to_data(dims.point)[axis]))
    return frame if 0 <= frame < finest(layer).shape[axis] else None


def at_frame(source: Source, axis: int, frame: int) -> Source:
    """Return a source whose attributes put one frame where it is shown in the whole stack."""
    from napari.utils.transforms import Affine

    given = {name: source.attributes[name] for name in ("scale", "translate", "rotate", "shear")}
    first = np.zeros(len(given["scale"]))
    first[axis] = frame
    return replace(source, attributes={**source.attributes, "translate": Affine(**given)(first)})


def suggest_axes(layer: napari.layers.Image, dims_labels: Sequence[str] = ()) -> str:
    """Read the axes of a layer from its labels where they are clear.

    Colour and time are never guessed from lengths: without clear labels the last two axes are Y
    and X and all others independent planes; the last axis of an RGB layer is S.

    Parameters
    ----------
    layer : napari.layers.Image
    dims_labels : sequence of str, optional
        The viewer's own axis labels, read when the layer's say nothing.

    Returns
    -------
    str
        One letter an axis of the layer's data, ``.`` for an independent one.
    """
    colour = "S" if layer.rgb else ""
    for labels in (getattr(layer, "axis_labels", ()), dims_labels):
        roles = "".join(_ROLES.get(str(label).strip().lower(), ".") for label in labels)
        known = roles.replace(".", "") + colour
        if len(roles) == layer.ndim and {"Y", "X"} <= set(known) and len(set(known)) == len(known):
            return roles + colour
    return check_axes(None, (1,) * layer.ndim) + colour
