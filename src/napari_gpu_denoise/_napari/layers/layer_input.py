"""List of the image layers of the viewer."""

from __future__ import annotations

from napari.layers import Layer
from napari.viewer import Viewer
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox

from napari_gpu_denoise._napari.layers.source import METADATA_KEY, is_preview, reason_unusable
from napari_gpu_denoise._napari.parts import narrow, wrapped


class LayerInput(QComboBox):
    """The viewer's layers; those that cannot be filtered are shown but cannot be chosen.

    At first the selected layer is chosen. If that is the result of a filter, the layer that it was
    made of is chosen instead.
    """

    chosen = Signal()

    def __init__(self, viewer: Viewer, tip: str):
        super().__init__()
        self._viewer = viewer
        self._layers: list[Layer] = []
        self._last: Layer | None = None
        narrow(self)
        self.setToolTip(wrapped(tip))
        self.setPlaceholderText("No image layer")
        self.currentIndexChanged.connect(self._tell)
        self.refresh()

    def layer(self) -> Layer | None:
        """Return the layer chosen, or None."""
        index = self.currentIndex()
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def choose(self, layer: Layer | None) -> None:
        """Choose a layer; one that is not there or cannot be filtered changes nothing."""
        if layer in self._layers and reason_unusable(layer) is None:
            self.setCurrentIndex(self._layers.index(layer))

    def refresh(self) -> None:
        """Follow the viewer's layer list; the choice stays while its layer is there."""
        # Topmost first, as in the layer list beside it.
        self._layers = [each for each in self._viewer.layers if not is_preview(each)][::-1]
        before, active = self._last, self._viewer.layers.selection.active
        self.blockSignals(True)
        self.clear()
        usable = []
        for index, layer in enumerate(self._layers):
            self.addItem(layer.name)
            reason = reason_unusable(layer)
            self.setItemData(index, reason or layer.name, Qt.ItemDataRole.ToolTipRole)
            if reason:
                self.model().item(index).setEnabled(False)
            else:
                usable.append(layer)
        wanted = next(
            (each for each in (before, self._origin(active), *usable) if each in usable), None
        )
        self.setCurrentIndex(-1 if wanted is None else self._layers.index(wanted))
        self.blockSignals(False)
        self._tell()

    def _origin(self, layer: Layer | None) -> Layer | None:
        """Return the layer that a result was made from; any other layer itself."""
        if layer is None or METADATA_KEY not in layer.metadata:
            return layer
        # The source's name stands before the brackets; of a result of a result, the first source's.
        found = [each for each in self._layers if layer.name.startswith(f"{each.name} (")]
        return min(found, key=lambda each: len(each.name), default=layer)

    def _tell(self, _: int = 0) -> None:
        if self.layer() != self._last:
            self._last = self.layer()
            self.chosen.emit()
