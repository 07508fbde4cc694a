"""Layers of results: filtered images, and maps beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise._napari.layers.source import METADATA_KEY, PLACE, Source

if TYPE_CHECKING:
    import napari.layers
    import napari.viewer


@dataclass(frozen=True)
class MapLayer:
    """A map of a filter, as napari takes it.

    Attributes
    ----------
    title : str
        Such as ``"classes"``.
    kind : str
        ``"labels"`` or ``"image"``.
    data : ndarray
        With the axes of the source, but for the colours of RGB.
    attributes : dict
        Keyword arguments of ``viewer.add_labels`` or ``viewer.add_image`` for its look.
    """

    title: str
    kind: str
    data: np.ndarray = field(repr=False)
    attributes: dict[str, Any] = field(repr=False)


def add_result(
    viewer: napari.viewer.Viewer,
    source: Source,
    image: np.ndarray,
    title: str,
    provenance: dict[str, Any],
) -> napari.layers.Image:
    """Add a filtered image to the viewer, with the look and place of its source.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
    source : Source
        The layer as captured at the start.
    image : ndarray
        Same shape as the source's data, or one frame of it.
    title : str
        Follows the source's name in brackets; napari numbers a name that is taken.
    provenance : dict
        Stored under `METADATA_KEY` in the layer's metadata.
    """
    attributes = {**source.attributes, **_labelled(source, title, provenance)}
    # multiscale=False: napari would otherwise guess from the shape.
    return viewer.add_image(image, multiscale=False, **attributes)


def add_map(
    viewer: napari.viewer.Viewer,
    source: Source,
    shown: MapLayer,
    title: str,
    provenance: dict[str, Any],
) -> napari.layers.Layer:
    """Add a map to the viewer, at the place of its source; parameters as in `add_result`."""
    place = {key: source.attributes[key] for key in PLACE if key in source.attributes}
    attributes = {**place, **shown.attributes, **_labelled(source, title, provenance)}
    if shown.kind == "labels":
        return viewer.add_labels(shown.data, multiscale=False, **attributes)
    return viewer.add_image(shown.data, multiscale=False, rgb=False, **attributes)


def at_frame(source: Source, axis: int, frame: int) -> Source:
    """Return a source whose attributes put one frame where it is shown in the whole stack."""
    from napari.utils.transforms import Affine

    given = {name: source.attributes[name] for name in ("scale", "translate", "rotate", "shear")}
    first = np.zeros(len(given["scale"]))
    first[axis] = frame
    return replace(source, attributes={**source.attributes, "translate": Affine(**given)(first)})


def _labelled(source: Source, title: str, provenance: dict[str, Any]) -> dict[str, Any]:
    metadata = {**source.attributes["metadata"], METADATA_KEY: provenance}
    return {"metadata": metadata, "name": f"{source.name} ({title})"}
