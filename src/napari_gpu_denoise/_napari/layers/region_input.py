"""The region of a layer that is worked on: the whole layer, the view, or a drawn rectangle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napari.layers import Layer, Shapes
from napari.viewer import Viewer
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_gpu_denoise._napari import docks, parts
from napari_gpu_denoise._napari.layers.layer_input import LayerChoice
from napari_gpu_denoise._napari.layers.provenance import is_temporary
from napari_gpu_denoise._napari.layers.source import MOVES, shapes_on
from napari_gpu_denoise._napari.model import FLAT, RECTANGLE, VIEW, WHOLE, RegionChoice

#: Choices, by their text.
REGIONS = {
    "Whole layer": WHOLE,
    "Current view": VIEW,
    "Rectangle in a Shapes layer": RECTANGLE,
}
_DRAWN = RECTANGLE, FLAT


class RegionInput(QWidget):
    """A list of regions; below it, for drawn ones, the Shapes layers and a button to draw."""

    #: Another region was chosen, or it was moved.
    changed = Signal()

    def __init__(self, viewer: Viewer, choices: Mapping[str, str], tip: str):
        super().__init__()
        self._viewer = viewer
        self.box = parts.narrow(parts.choice(choices, tip), 8)
        self.box.setAccessibleName("Region")
        self.shapes = parts.narrow(
            LayerChoice(
                "Shapes layer with the region: its selected shape, else the last one. For a "
                "rotated or round shape, the upright bounding rectangle is used."
            ),
            8,
        )
        self.shapes.setAccessibleName("Shapes layer")
        self.shapes.setPlaceholderText("No Shapes layer")
        self.draw_button = parts.button("Draw", "Draw a rectangle on the image, in a Shapes layer.")
        self._drawn = parts.holding(parts.row_of(self.shapes, self.draw_button, shares=(1,)))
        parts.stack(QVBoxLayout(self), (self.box, self._drawn), spacing=4)
        self._drawn.hide()
        self.box.currentIndexChanged.connect(self._choose)
        self.shapes.chosen.connect(self.moved)

    def region(self) -> RegionChoice:
        """Return the choice."""
        return RegionChoice(self.box.currentData(), self.shapes.layer())

    def show_region(self, region: RegionChoice) -> None:
        """Choose a region."""
        self.box.setCurrentIndex(max(0, self.box.findData(region.kind)))
        if region.shapes is not None:
            self.refresh()
            self.shapes.choose(region.shapes)

    def refresh(self) -> None:
        """List the Shapes layers of the viewer."""
        layers = list(self._viewer.layers)[::-1]
        found = [each for each in layers if isinstance(each, Shapes) and not is_temporary(each)]
        self.shapes.offer(found)

    def events(self) -> list[tuple[Any, Any]]:
        """Return the events of the viewer and of the Shapes layer that move the region."""
        camera, dims = docks.camera_of(self._viewer).events, self._viewer.dims.events
        views = (camera.center, camera.zoom, dims.current_step, dims.ndisplay, dims.order)
        found = [(event, self._on_view) for event in views]
        if (shapes := self.shapes.layer()) is not None:
            found += [(getattr(shapes.events, name), self.moved) for name in MOVES]
            found.append((shapes.selected_data.events.items_changed, self.moved))
        return found

    def draw(self, layer: Layer | None) -> None:
        """Start drawing on a Shapes layer for a layer; add it if there is none."""
        if layer is None:
            return
        name = f"region of {layer.name}"
        named = [shapes for shapes in self._viewer.layers if shapes.name == name]
        shapes = next((each for each in named if isinstance(each, Shapes)), None)
        if shapes is None:
            shapes = shapes_on(layer, name, 1 / 200, face_color="transparent")
            self._viewer.layers.append(shapes)
        self.refresh()
        self.shapes.choose(shapes)
        self._viewer.layers.selection.active = shapes
        shapes.mode = "add_rectangle"

    def moved(self, event: object = None) -> None:
        """Tell that a drawn region has changed, if it is chosen."""
        if self.box.currentData() in _DRAWN:
            self.changed.emit()

    def _on_view(self, event: object = None) -> None:
        if self.box.currentData() == VIEW:
            self.changed.emit()

    def _choose(self, _: int) -> None:
        self.refresh()
        self._drawn.setVisible(self.box.currentData() in _DRAWN)
        self.changed.emit()
