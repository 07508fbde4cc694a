"""Boxes that limit a run to the frame and the slice that the viewer shows."""

from __future__ import annotations

from napari.layers import Image
from napari.viewer import Viewer
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox

from napari_gpu_denoise._napari.layers.source import place_shown
from napari_gpu_denoise._napari.parts import wrapped
from napari_gpu_denoise.errors import LayerError

_WORDS = {"T": "frame", "Z": "slice"}
_TIP = (
    "Filter only the {} at the viewer's slider, to try settings. Its pixels are those of a full "
    "run."
)


class PlacesInput(QObject):
    """One box for the axis of time and one for that of slices, shown where there is one."""

    #: A box was ticked or unticked.
    changed = Signal()

    def __init__(self, viewer: Viewer, parent: QObject):
        super().__init__(parent)
        self._viewer = viewer
        self.boxes = {letter: QCheckBox() for letter in _WORDS}
        for box in self.boxes.values():
            box.toggled.connect(self.changed)

    def reset(self) -> None:
        """Choose everything."""
        for box in self.boxes.values():
            box.setChecked(False)

    def show(self, layer: Image | None, axes: str) -> str:
        """Offer what the viewer shows of a layer; returns what is chosen, such as "frame 3"."""
        chosen = []
        for letter, box in self.boxes.items():
            word, there = _WORDS[letter], letter in axes
            place = self._shown(layer, axes, letter)
            number = "" if place is None else f" {place}"
            box.setEnabled(there)
            box.setVisible(there)
            box.setText(f"Only the {word} shown" + (number and f":{number}"))
            box.setToolTip(wrapped(_TIP.format(word)))
            if there and box.isChecked():
                chosen.append(word + number)
        return ", ".join(chosen)

    def chosen(self, layer: Image, axes: str, letter: str) -> int | None:
        """Return the place to filter alone; None for all of them.

        Raises `LayerError` if the viewer shows no single one.
        """
        box, word = self.boxes[letter], _WORDS[letter]
        if not (box.isEnabled() and box.isChecked()):
            return None
        place = self._shown(layer, axes, letter)
        if place is None:
            raise LayerError(
                f"The viewer does not show a single {word} of {layer.name!r}: move the {letter} "
                f"slider to one, or untick Only the {word} shown."
            )
        return place

    def _shown(self, layer: Image | None, axes: str, letter: str) -> int | None:
        if layer is None or letter not in axes:
            return None
        return place_shown(layer, axes, self._viewer.dims, letter)
