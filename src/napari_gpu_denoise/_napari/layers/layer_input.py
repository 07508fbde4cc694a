"""List of the image layers of the viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox

from napari_gpu_denoise._napari.layers.source import METADATA_KEY, refusal
from napari_gpu_denoise._napari.parts import narrow, wrapped

if TYPE_CHECKING:
    import napari.layers
    import napari.viewer


class LayerInput(QComboBox):
    """The viewer's layers; those that cannot be filtered are shown but cannot be chosen.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
    tip : str
        Tooltip.
    results : bool, optional
        Whether the result of a filter is chosen at first, where it is the selected layer; else the
        layer that it was made of.
    """

    chosen = Signal()

    def __init__(self, viewer: napari.viewer.Viewer, tip: str, *, results: bool = False):
        super().__init__()
        self._viewer = viewer
        self._results = results
        self._layers: list[napari.layers.Layer] = []
        self._last: napari.layers.Layer | None = None
        narrow(self)
        self.setToolTip(wrapped(tip))
        self.setPlaceholderText("No image layer")
        self.currentIndexChanged.connect(lambda _: self._tell())
        self.refresh()

    def layer(self) -> napari.layers.Layer | None:
        """Return the layer chosen, or None."""
        index = self.currentIndex()
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def choose(self, layer: napari.layers.Layer | None) -> None:
        """Choose a layer; one that is not there or cannot be filtered changes nothing."""
        if layer in self._layers and refusal(layer) is None:
            self.setCurrentIndex(self._layers.index(layer))

    def refresh(self) -> None:
        """Follow the viewer's layer list; the choice stays while its layer is there."""
        # Topmost first, as in the layer list beside it.
        self._layers = list(self._viewer.layers)[::-1]
        before, active = self._last, self._viewer.layers.selection.active
        self.blockSignals(True)
        self.clear()
        usable = []
        for index, layer in enumerate(self._layers):
            self.addItem(layer.name)
            reason = refusal(layer)
            self.setItemData(index, reason or layer.name, Qt.ItemDataRole.ToolTipRole)
            if reason:
                self.model().item(index).setEnabled(False)
            else:
                usable.append(layer)
        wanted = next((kept for kept in (before, self._origin(active)) if kept in usable), None)
        if wanted is None and usable:
            wanted = usable[0]
        self.setCurrentIndex(-1 if wanted is None else self._layers.index(wanted))
        self.blockSignals(False)
        self._tell()

    def _origin(self, layer: napari.layers.Layer | None) -> napari.layers.Layer | None:
        """Return the layer that a result was made of, where it is not to be chosen itself."""
        if self._results or layer is None or METADATA_KEY not in layer.metadata:
            return layer
        # Of its own name what stands before the brackets; a result of a result goes back further.
        names = {
            each.name: each for each in self._layers if layer.name.startswith(f"{each.name} (")
        }
        return names[min(names, key=len)] if names else layer

    def _tell(self) -> None:
        if self.layer() != self._last:
            self._last = self.layer()
            self.chosen.emit()
