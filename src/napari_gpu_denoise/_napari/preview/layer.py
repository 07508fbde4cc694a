"""The layer of a preview: one, replaced in place, above its source."""

from __future__ import annotations

from typing import Any

import numpy as np
from napari.layers import Image
from napari.viewer import Viewer

from napari_gpu_denoise._napari.layers.results import at_places
from napari_gpu_denoise._napari.layers.source import METADATA_KEY, PLACE, TEMPORARY, Source
from napari_gpu_denoise._napari.preview.region import Region

_LOOKS = ("colormap", "contrast_limits", "gamma", "opacity", "blending", "interpolation2d")
# Drawn over its source, a preview would be added to it, or hidden by it.
_MIXED = ("additive", "minimum", "multiplicative")


class PreviewLayer:
    """Shows filtered regions of one source; `title` is that of the filter.

    Where the colours of the source are mixed with those of what lies above it, it is hidden
    meanwhile.
    """

    def __init__(self, viewer: Viewer, title: str):
        self._viewer, self._title = viewer, title
        self._layer: Image | None = None
        self._source: Image | None = None
        self._hidden = False  # the source
        self._away = False  # the preview

    @property
    def layer(self) -> Image | None:
        """The layer, while there is one in the viewer."""
        return self._layer if self._layer in self._viewer.layers else None

    def show(self, layer: Image, source: Source, region: Region, pixels: np.ndarray) -> None:
        """Show pixels of a region of a layer; `source` is the layer as it was filtered."""
        placed = at_places(source, region.starts).attributes
        place = {name: placed[name] for name in PLACE if name in placed}
        shown = self.layer
        if shown is not None and (layer is not self._source or shown.ndim != layer.ndim):
            self.remove()
            shown = None
        if shown is None:
            self._add(layer, source, pixels, place)
            return
        shown.data = pixels
        for name, value in place.items():
            if not _equal(getattr(shown, name), value):
                setattr(shown, name, value)
        self.come_back()

    def go_away(self) -> None:
        """Hide the layer, where the sliders move to a place that it does not show.

        napari would hide it, too, but the software renderer of Mesa may crash on what is left.
        """
        if (shown := self.layer) is not None and shown.visible:
            shown.visible, self._away = False, True

    def come_back(self) -> None:
        """Show the layer again."""
        if (shown := self.layer) is not None and self._away:
            shown.visible = True
        self._away = False

    def remove(self) -> None:
        """Remove the layer, and show its source again."""
        shown, self._layer = self.layer, None
        if self._source is not None:
            for event in _events(self._source):
                event.disconnect(self._follow)
            if self._hidden:
                self._source.visible = True
        self._source, self._hidden, self._away = None, False, False
        if shown is not None:
            self._viewer.layers.remove(shown)

    def _add(self, layer: Image, source: Source, pixels: np.ndarray, place: dict[str, Any]) -> None:
        # multiscale=False: napari would otherwise guess from the shape.
        self._layer = Image(
            pixels,
            name=f"Preview of {source.name} ({self._title})",
            rgb=layer.rgb,
            multiscale=False,
            metadata={METADATA_KEY: {TEMPORARY: "preview"}},
            **place,
        )
        self._source = layer
        self._follow()
        layers, chosen = self._viewer.layers, set(self._viewer.layers.selection)
        active = layers.selection.active
        layers.insert(layers.index(layer) + 1, self._layer)
        # napari selects new layers.
        layers.selection = chosen
        layers.selection.active = active
        for event in _events(layer):
            event.connect(self._follow)
        if layer.visible and str(layer.blending) in _MIXED:
            layer.visible, self._hidden = False, True

    def _follow(self, event: object = None) -> None:
        """Look like the source."""
        for name in _LOOKS:
            if not (self._source.rgb and name in ("colormap", "contrast_limits")):
                value = getattr(self._source, name)
                if not _equal(getattr(self._layer, name), value):
                    setattr(self._layer, name, value)


def _events(layer: Image) -> list[Any]:
    return [getattr(layer.events, name) for name in _LOOKS]


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(np.all(np.asarray(one) == np.asarray(other)))
    except (TypeError, ValueError):
        return False
