"""The panels' controls for what is not a setting: layer and device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox, QVBoxLayout, QWidget

from napari_gpu_denoise._napari import layers
from napari_gpu_denoise._napari.parts import caption, wrapped
from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers

if TYPE_CHECKING:
    import napari.layers
    import napari.viewer


class LayerInput(QComboBox):
    """The viewer's layers; those that cannot be filtered are shown but cannot be chosen.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
    tip : str, optional
        What the layer is chosen for.
    results : bool, optional
        Whether the result of a filter is chosen at first, where it is the selected layer; else the
        layer that it was made of.
    parent : QWidget, optional
    """

    chosen = Signal()

    def __init__(
        self,
        viewer: napari.viewer.Viewer,
        tip: str = "Image layer to denoise. The layer itself is never changed.",
        parent: QWidget | None = None,
        *,
        results: bool = False,
    ):
        super().__init__(parent)
        self._viewer = viewer
        self._results = results
        self._layers: list[napari.layers.Layer] = []
        self._last: napari.layers.Layer | None = None
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(12)
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
        if layer in self._layers and layers.refusal(layer) is None:
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
            reason = layers.refusal(layer)
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
        if self._results or layer is None or layers.METADATA_KEY not in layer.metadata:
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


class DeviceInput(QWidget):
    """The OpenCL devices of this machine, with a line below that says which is used and why.

    Parameters
    ----------
    preferred : str or None
        What the preferences name; chosen by "Automatic" when set.
    """

    def __init__(self, preferred: str | None = None, parent: QWidget | None = None):
        super().__init__(parent)
        self._preferred = preferred
        self.box = QComboBox()
        self.box.setAccessibleName("Device")
        self.box.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.box.setMinimumContentsLength(12)
        self.box.addItem("Automatic" if preferred is None else f"Automatic ({preferred})")
        self.caption = caption()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addWidget(self.box)
        layout.addWidget(self.caption)
        self.box.currentIndexChanged.connect(lambda _: self.explain())

    def fill(self) -> None:
        """List the devices; the first call in a process loads the OpenCL drivers."""
        from napari_gpu_denoise.opencl import device

        load_bundled_drivers()
        for found in device.devices():
            self.box.addItem(str(found), found.index)
            row = self.box.count() - 1
            tip = wrapped(found.problem or found.version)
            self.box.setItemData(row, tip, Qt.ItemDataRole.ToolTipRole)
            if found.problem:
                self.box.model().item(row).setEnabled(False)
        self.explain()

    def device(self) -> int | str | None:
        """Return what was chosen, as `opencl.device.choose` takes it."""
        chosen = self.box.currentData()
        return self._preferred if chosen is None else chosen

    def explain(self) -> None:
        """Say below the list which device will be used."""
        from napari_gpu_denoise.opencl import device

        try:
            self.caption.setText(device.why(self.device()))
        except NoDeviceError as error:
            self.caption.setText(str(error))

    def reset(self) -> None:
        """Go back to the automatic choice."""
        self.box.setCurrentIndex(0)
