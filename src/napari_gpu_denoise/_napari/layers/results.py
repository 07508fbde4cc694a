"""Layers of results: filtered images, and maps beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from weakref import ref

import napari.layers
import numpy as np
from napari.layers import Layer
from napari.viewer import Viewer

from napari_gpu_denoise._napari.layers import arrays, provenance
from napari_gpu_denoise._napari.layers.source import PLACE, Source, place_of, set_changed

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


@dataclass
class Replaced:
    """The former state of a layer that a rerun replaced; `swap` exchanges the two.

    The layer is not kept alive, nor are pixels that take 1 GiB or more: such a result has none.
    """

    layer: ref[Layer]
    was: dict[str, Any]

    def swap(self) -> None:
        """Bring the earlier result back, or the later one again."""
        if (layer := self.layer()) is not None:
            self.was, was = _state(layer), self.was
            _show(layer, was)


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
) -> Replaced | None:
    """Add a layer above its source, with its record under `METADATA_KEY`.

    Where the source is itself a result, the records of how it was made are kept, oldest first.
    Unless `keep`, a layer that the same filter made from the same source, and that still has the
    name it was given, gets the new data instead; returned is what it was.
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
        return _replace(viewer, found, new, attributes)
    shown, place = _shown(viewer, source), _place(viewer, source)
    attributes["visible"] = shown and new.attributes.get("visible", True)
    kind = getattr(napari.layers, new.kind.capitalize())
    # napari would otherwise guess from the shape.
    viewer.layers.insert(place, kind(new.data, multiscale=False, **attributes))
    return None


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


def _replace(
    viewer: Viewer, layer: Layer, new: NewLayer, attributes: dict[str, Any]
) -> Replaced | None:
    """Give a layer the data of a rerun, and its place; how it looks is the user's."""
    was = _state(layer)
    state = {key: attributes[key] for key in PLACE if key in attributes}
    _show(layer, {"data": new.data, "metadata": attributes["metadata"], **state})
    if not new.title:
        layer.visible = True
        viewer.layers.selection.active = layer
    large = getattr(was["data"], "nbytes", 0) >= arrays.LARGEST_IN_MEMORY
    return None if large else Replaced(ref(layer), was)


def _state(layer: Layer) -> dict[str, Any]:
    # A copy: napari's setter changes the dictionary itself.
    return {**place_of(layer), "data": layer.data, "metadata": dict(layer.metadata)}


def _show(layer: Layer, state: dict[str, Any]) -> None:
    """Set the attributes of a layer that differ from a state; each change is drawn."""
    set_changed(layer, {name: state[name] for name in PLACE if name in state})
    layer.metadata = state["metadata"]
    if layer.data is not state["data"]:
        layer.data = state["data"]


def at_places(source: Source, places: dict[int, int]) -> Source:
    """Return a source that puts a frame or slice where it lies: the index along some axes."""
    from napari.utils.transforms import Affine

    given = {name: source.attributes[name] for name in ("scale", "translate", "rotate", "shear")}
    first = np.zeros(len(given["scale"]))
    for axis, place in places.items():
        first[axis] = place
    return replace(source, attributes={**source.attributes, "translate": Affine(**given)(first)})
