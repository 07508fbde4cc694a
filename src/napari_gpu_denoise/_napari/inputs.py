"""The panel's controls for what is not a setting: layer, noise, device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from napari_gpu_denoise._napari import layers
from napari_gpu_denoise._napari.parts import caption, wrapped
from napari_gpu_denoise.errors import NoDeviceError, SigmaError
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers

if TYPE_CHECKING:
    import napari.layers
    import napari.viewer


class LayerInput(QComboBox):
    """The viewer's layers; those that cannot be filtered are shown but cannot be chosen.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
    """

    chosen = Signal()

    def __init__(self, viewer: napari.viewer.Viewer, parent: QWidget | None = None):
        super().__init__(parent)
        self._viewer = viewer
        self._layers: list[napari.layers.Layer] = []
        self._last: napari.layers.Layer | None = None
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(12)
        self.setToolTip(wrapped("Image layer to denoise. The layer itself is never changed."))
        self.setPlaceholderText("No image layer")
        self.currentIndexChanged.connect(lambda _: self._tell())
        self.refresh()

    def layer(self) -> napari.layers.Layer | None:
        """Return the layer chosen, or None."""
        index = self.currentIndex()
        return self._layers[index] if 0 <= index < len(self._layers) else None

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
        wanted = next((kept for kept in (before, active) if kept in usable), None)
        if wanted is None and usable:
            wanted = usable[0]
        self.setCurrentIndex(-1 if wanted is None else self._layers.index(wanted))
        self.blockSignals(False)
        self._tell()

    def _tell(self) -> None:
        if self.layer() != self._last:
            self._last = self.layer()
            self.chosen.emit()


_TYPED = (
    "Standard deviation of the noise in grey levels of the image. One number, or one for each "
    "channel, with commas between. Typing here turns the estimate off; after an estimate it shows "
    "the value used."
)


class SigmaInput(QWidget):
    """The noise standard deviation: estimated, or typed; or of no meaning to the filter as set."""

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        self.automatic = QCheckBox("Estimate")
        self.automatic.setChecked(True)
        self.edit = QLineEdit()
        self.edit.setAccessibleName("Noise standard deviation")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.automatic)
        layout.addWidget(self.edit, 1)
        self.edit.textEdited.connect(lambda _: self.automatic.setChecked(False))
        self.ask()

    def ask(self, instead: str | None = None) -> None:
        """Ask for sigma, or say what the noise is instead: then it is of no meaning."""
        self.setEnabled(instead is None)
        if instead is None:
            self.edit.setPlaceholderText("grey levels")
            self.automatic.setToolTip(wrapped("Measure the noise in the image before filtering."))
            self.edit.setToolTip(wrapped(_TYPED))
            return
        self.forget()
        self.edit.setPlaceholderText("not used")
        for widget in (self.automatic, self.edit):
            widget.setToolTip(wrapped(f"Sigma is {instead}."))

    def sigma(self) -> float | tuple[float, ...] | None:
        """Return what was typed, or None to estimate, and where it is of no meaning.

        Raises
        ------
        SigmaError
            If no number was typed.
        """
        if self.automatic.isChecked() or not self.isEnabled():
            return None
        words = self.edit.text().replace(";", ",").split(",")
        try:
            values = tuple(float(word) for word in words)
        except ValueError:
            raise SigmaError(
                f"The noise {self.edit.text()!r} is not a number: type its standard deviation in "
                "grey levels, or tick Estimate."
            ) from None
        return values[0] if len(values) == 1 else values

    def show_used(self, sigma: tuple[float, ...]) -> None:
        """Show the values a run has used, when it estimated them."""
        if self.automatic.isChecked():
            self.edit.setText(", ".join(f"{value:.4g}" for value in sigma))

    def forget(self) -> None:
        """Drop an estimate that was made for another layer."""
        if self.automatic.isChecked():
            self.edit.clear()

    def reset(self) -> None:
        """Go back to estimating."""
        self.automatic.setChecked(True)
        self.edit.clear()


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
