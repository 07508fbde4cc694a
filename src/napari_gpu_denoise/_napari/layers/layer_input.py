"""List of the image layers of the viewer."""

from __future__ import annotations

from napari.layers import Layer
from napari.viewer import Viewer
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox

from napari_gpu_denoise._napari.layers.provenance import first_origin, is_temporary
from napari_gpu_denoise._napari.layers.source import reason_unusable
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
        self._layers = self.listed()
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
        # What a panel shows for a while is chosen by hand only.
        offered = [each for each in usable if not is_temporary(each)]
        meant = None if active is None else self.meant_by(active)
        wanted = before if before in usable else meant if meant in offered else None
        wanted = wanted or next(iter(offered), None)
        self.setCurrentIndex(-1 if wanted is None else self._layers.index(wanted))
        self.blockSignals(False)
        self._tell()

    def listed(self) -> list[Layer]:
        """Return the layers in the list, topmost first, as in the layer list beside it."""
        return list(self._viewer.layers)[::-1]

    def meant_by(self, active: Layer) -> Layer | None:
        """Return the layer to choose at first, where one is selected."""
        return first_origin(active, self._layers)

    def _tell(self, _: int = 0) -> None:
        if self.layer() != self._last:
            self._last = self.layer()
            self.chosen.emit()
