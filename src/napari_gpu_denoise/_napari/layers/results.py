"""Layers of results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from napari.layers import Image, Layer
from napari.viewer import Viewer

from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.source import PLACE, Source, set_changed

# Of records whose result is made anew.
_SAME = ("filter", "frame", "slice", "rows", "columns", provenance.SOURCE_ID)
_COVERING = ("opaque", "translucent", "translucent_no_depth")


def shines_through(layer: Layer) -> bool:
    """Return whether a layer is seen together with one that lies on it and looks like it."""
    alpha = getattr(layer, "rgb", False) and layer.data.shape[-1] == 4
    return str(layer.blending) not in _COVERING or layer.opacity < 1 or alpha


def add_layer(
    viewer: Viewer, source: Source, data: Any, runs: list[dict[str, Any]], keep: bool = True
) -> Image:
    """Add a result above its source, with its record under `METADATA_KEY`; return its layer.

    `data` have the axes of the source; `runs` are the records of what made them of it. Where the
    source is itself a result, the records of how it was made are kept, oldest first. Unless `keep`,
    a layer that the same filter made from the same source, and that still has the name it was
    given, gets the new data instead.
    """
    history = provenance.runs_in(provenance.record_in(source.attributes["metadata"]))
    name = source.name
    for each in runs:
        named = {provenance.SOURCE: name, provenance.SOURCE_ID: source.identity}
        history.append({**each, **named})
        name = provenance.name_of(history[-1])
    record = history.pop()
    if history:
        record[provenance.HISTORY] = history
    attributes = dict(source.attributes)
    if provenance.map_of(record):
        # Its numbers are no grey levels or colours.
        data = data[..., 0] if attributes.get("rgb") else data
        attributes = {name: attributes[name] for name in PLACE if name in attributes}
        attributes["rgb"] = False
    attributes["metadata"] = {**source.attributes["metadata"], provenance.METADATA_KEY: record}
    attributes["name"] = name
    found = None if keep else _earlier(viewer, record, data.ndim - bool(attributes.get("rgb")))
    if found is not None:
        # How it looks is the user's.
        set_changed(found, {key: attributes[key] for key in PLACE if key in attributes})
        found.metadata, found.data, found.visible = attributes["metadata"], data, True
        return found
    # napari would otherwise guess from the shape.
    made = Image(data, multiscale=False, visible=_shown(viewer, source), **attributes)
    viewer.layers.insert(place_above(source.identity, viewer), made)
    return made


def _shown(viewer: Viewer, source: Source) -> bool:
    """Return whether a result is shown at first: as its source, or where that hides behind one."""
    found = (e for e in viewer.layers if provenance.identity(e) == source.identity)
    made = provenance.made_from(source.identity, viewer.layers)
    return bool(made) or all(layer.visible for layer in found)


def place_above(source: str, viewer: Viewer) -> int:
    """Return the place above a layer of this identity and all that was made from it."""
    place, family = len(viewer.layers), set()
    for number, each in enumerate(viewer.layers):
        own, of = provenance.identity(each), provenance.record_of(each).get(provenance.SOURCE_ID)
        if own == source or of in family:
            family.add(own)
            place = number + 1
    return place


def _earlier(viewer: Viewer, record: dict[str, Any], axes: int) -> Image | None:
    """Return the newest layer that the same run made; none that was renamed or worked on."""
    made = provenance.made_from(record[provenance.SOURCE_ID], viewer.layers)
    for each in reversed(made):
        if _run_of(provenance.record_of(each)) == _run_of(record) and each.ndim == axes:
            used = provenance.is_renamed(each) or provenance.made_from(each, viewer.layers)
            return None if used or not isinstance(each, Image) or each.multiscale else each
    return None


def _run_of(record: dict[str, Any]) -> list[Any]:
    """Return what is the same in the records of a run that is made anew."""
    runs = len(provenance.runs_in(record))
    return [provenance.map_of(record), runs, *map(record.get, _SAME)]


def at_places(source: Source, places: dict[int, int]) -> Source:
    """Return a source that puts a frame or slice where it lies: the index along some axes."""
    from napari.utils.transforms import Affine

    given = {name: source.attributes[name] for name in ("scale", "translate", "rotate", "shear")}
    first = [places.get(axis, 0) for axis in range(len(given["scale"]))]
    return replace(source, attributes={**source.attributes, "translate": Affine(**given)(first)})
