"""Several image layers that are filtered together, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from napari.layers import Image, Layer
from napari.viewer import Viewer

from napari_gpu_denoise._napari.layers.provenance import first_origin
from napari_gpu_denoise._napari.layers.source import (
    file_of,
    finest,
    reason_unusable,
    suggest_axes,
)


@dataclass(frozen=True, eq=False)
class Group:
    """Layers under one text; the first is the one that axes and settings are shown for."""

    text: str
    layers: tuple[Image, ...]

    def __eq__(self, other: object) -> bool:
        # By the layers themselves: layers have no order and no value.
        return isinstance(other, Group) and [*map(id, self.layers)] == [*map(id, other.layers)]

    __hash__ = None


def selected(layers: Sequence[Layer], selection: Sequence[Layer]) -> Group | None:
    """Return the selected image layers, in their order, if there are several."""
    found = tuple(each for each in layers if each in selection and _is_usable(each))
    return Group(f"{len(found)} selected layers", found) if len(found) > 1 else None


def of_file(layers: Sequence[Layer], layer: Layer | None) -> Group | None:
    """Return the layers that a file was opened as, such as one for each channel, if several."""
    if layer is None or not _is_usable(layer) or _is_made(layer, layers):
        return None
    path = file_of(layer)
    if path is None:
        return None
    usable = [each for each in layers if _is_usable(each) and not _is_made(each, layers)]
    found = tuple(each for each in usable if _fits(each, layer, path))
    text = f"All {len(found)} images of {Path(path).name}"
    return Group(text, found) if len(found) > 1 else None


def _is_usable(layer: Layer) -> bool:
    return reason_unusable(layer) is None


def _is_made(layer: Layer, layers: Sequence[Layer]) -> bool:
    """Return whether a layer was made of another one that is still there."""
    return first_origin(layer, layers) is not layer


def _fits(layer: Image, other: Image, path: str) -> bool:
    """Return whether a layer is of the same file and size."""
    return file_of(layer) == path and tuple(finest(layer).shape) == tuple(finest(other).shape)


def same_axes(axes: str, shown: Image, layer: Image, viewer: Viewer) -> str:
    """Return the axes of a layer that is filtered together with the one shown, which has `axes`."""
    same = layer.rgb == shown.rgb and finest(layer).ndim == finest(shown).ndim
    return axes if same else suggest_axes(layer, viewer.dims.axis_labels)
