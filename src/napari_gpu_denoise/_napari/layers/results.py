"""Layers of results: filtered images, and maps beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from napari.viewer import Viewer

from napari_gpu_denoise._napari.layers.source import METADATA_KEY, PLACE, Source

HISTORY = "history"  # in a record: those of the source, a result itself


@dataclass(frozen=True)
class NewLayer:
    """A result, or a map with a title such as "classes", as ``viewer.add_<kind>`` takes it.

    `data` have the axes of the source, those of a map without the colours of RGB; `attributes` are
    how it looks.
    """

    title: str
    kind: str
    data: np.ndarray = field(repr=False)
    attributes: dict[str, Any] = field(repr=False)


def add_layer(
    viewer: Viewer,
    source: Source,
    new: NewLayer,
    title: str,
    provenance: dict[str, Any],
) -> None:
    """Add a layer at the place of its source, with its provenance under `METADATA_KEY`.

    The title follows the source's name in brackets; napari numbers a name that is taken. Where the
    source is itself a result, the records of how it was made are kept, oldest first.
    """
    attributes = {key: source.attributes[key] for key in PLACE if key in source.attributes}
    attributes |= new.attributes
    earlier = source.attributes["metadata"].get(METADATA_KEY)
    if earlier is not None:
        last = {name: value for name, value in earlier.items() if name != HISTORY}
        provenance = {**provenance, HISTORY: [*earlier.get(HISTORY, ()), last]}
    attributes["metadata"] = {**source.attributes["metadata"], METADATA_KEY: provenance}
    attributes["name"] = f"{source.name} ({title})"
    # multiscale=False: napari would otherwise guess from the shape.
    getattr(viewer, f"add_{new.kind}")(new.data, multiscale=False, **attributes)


def at_places(source: Source, places: dict[int, int]) -> Source:
    """Return a source that puts a frame or slice where it lies: the index along some axes."""
    from napari.utils.transforms import Affine

    given = {name: source.attributes[name] for name in ("scale", "translate", "rotate", "shear")}
    first = np.zeros(len(given["scale"]))
    for axis, place in places.items():
        first[axis] = place
    return replace(source, attributes={**source.attributes, "translate": Affine(**given)(first)})
