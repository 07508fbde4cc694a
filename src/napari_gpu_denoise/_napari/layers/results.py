"""Layers of results: filtered images, and maps beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import napari.layers
import numpy as np
from napari.layers import Layer
from napari.viewer import Viewer

from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.source import PLACE, Source, set_changed

# Of records whose result is made anew.
_SAME = ("filter", "frame", "slice", "rows", "columns", provenance.MAP, provenance.SOURCE_ID)
_COVERING = ("opaque", "translucent", "translucent_no_depth")


@dataclass(frozen=True)
class NewLayer:
    """A result, or a map with a title such as "classes", as ``viewer.add_<kind>`` takes it.

    `data` have the axes of the source, those of a map without the colours of RGB; `attributes` are
    how it looks.
    """

    title: str
    kind: str
    data: Any = field(repr=False)
    attributes: dict[str, Any] = field(repr=False)


def shines_through(layer: Layer) -> bool:
    """Return whether a layer is seen together with one that lies on it and looks like it."""
    alpha = getattr(layer, "rgb", False) and layer.data.shape[-1] == 4
    return str(layer.blending) not in _COVERING or layer.opacity < 1 or alpha


def add_layer(
    viewer: Viewer,
    source: Source,
    new: NewLayer,
    record: dict[str, Any],
    keep: bool = True,
) -> None:
    """Add a layer above its source, with its record under `METADATA_KEY`.

    Where the source is itself a result, the records of how it was made are kept, oldest first.
    Unless `keep`, a layer that the same filter made from the same source, and that still has the
    name it was given, gets the new data instead.
    """
    attributes = {key: source.attributes[key] for key in PLACE if key in source.attributes}
    attributes |= new.attributes
    record = {**record, provenance.SOURCE: source.name, provenance.SOURCE_ID: source.identity}
    if new.title:
        record[provenance.MAP] = new.title
    if earlier := source.attributes["metadata"].get(provenance.METADATA_KEY):
        record[provenance.HISTORY] = provenance.runs_in(earlier)
    attributes["metadata"] = {**source.attributes["metadata"], provenance.METADATA_KEY: record}
    attributes["name"] = provenance.name_of(record)
    found = None if keep else _earlier(viewer, new, record)
    if found is not None:
        _replace(viewer, found, new, attributes)
        return
    shown, place = _shown(viewer, source), _place(viewer, source)
    attributes["visible"] = shown and new.attributes.get("visible", True)
    kind = getattr(napari.layers, new.kind.capitalize())
    # napari would otherwise guess from the shape.
    viewer.layers.insert(place, kind(new.data, multiscale=False, **attributes))


def _shown(viewer: Viewer, source: Source) -> bool:
    """Return whether a result is shown at first: as its source, or where that hides behind one."""
    layer = _layer_of(viewer, source)
    return layer is None or layer.visible or bool(provenance.made_from(layer, viewer.layers))


def _layer_of(viewer: Viewer, source: Source) -> Layer | None:
    found = (e for e in viewer.layers if provenance.identity(e) == source.identity)
    return next(found, None)


def _place(viewer: Viewer, source: Source) -> int:
    """Return the place of a result in the layer list: above its source and earlier results."""
    layer = _layer_of(viewer, source)
    if layer is None:
        return len(viewer.layers)
    place, family = viewer.layers.index(layer) + 1, {source.identity}
    for each in viewer.layers[place:]:
        if provenance.record_of(each).get(provenance.SOURCE_ID) not in family:
            break
        family.add(provenance.identity(each))
        place += 1
    return place


def _earlier(viewer: Viewer, new: NewLayer, record: dict[str, Any]) -> Layer | None:
    """Return the newest layer that the same run made; none that was renamed or worked on."""
    same = [record.get(key) for key in _SAME]
    axes = new.data.ndim - bool(new.attributes.get("rgb"))
    made = provenance.made_from(record[provenance.SOURCE_ID], viewer.layers)
    for each in reversed(made):
        known = provenance.record_of(each)
        fits = type(each).__name__.lower() == new.kind and each.ndim == axes
        rgb = bool(new.attributes.get("rgb")) == bool(getattr(each, "rgb", False))
        if [known.get(key) for key in _SAME] == same and fits and rgb:
            used = provenance.is_renamed(each) or provenance.made_from(each, viewer.layers)
            return None if used else each
    return None


def _replace(viewer: Viewer, layer: Layer, new: NewLayer, attributes: dict[str, Any]) -> None:
    """Give a layer the data of a rerun, and its place; how it looks is the user's."""
    set_changed(layer, {key: attributes[key] for key in PLACE if key in attributes})
    layer.metadata, layer.data = attributes["metadata"], new.data
    if not new.title:
        layer.visible = True
        viewer.layers.selection.active = layer


def at_places(source: Source, places: dict[int, int]) -> Source:
    """Return a source that puts a frame or slice where it lies: the index along some axes."""
    from napari.utils.transforms import Affine

    given = {name: source.attributes[name] for name in ("scale", "translate", "rotate", "shear")}
    first = np.zeros(len(given["scale"]))
    for axis, place in places.items():
        first[axis] = place
    return replace(source, attributes={**source.attributes, "translate": Affine(**given)(first)})
