"""Controls beside the settings of a filter: strength, frame and slice, device, result."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from napari.layers import Image
from napari.viewer import Viewer
from qtpy.QtCore import QEvent, QObject, Qt, Signal
from qtpy.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QLabel, QSlider, QVBoxLayout, QWidget

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.layers.source import place_shown
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.parts import (
    Caption,
    WheelGuard,
    add_item,
    choice,
    narrow,
    stack,
    wrapped,
)
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import LayerError, NoDeviceError
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers

_STEPS = 20  # of the slider from 1 to either end
_STRENGTH_TIP = (
    "Multiplies the noise level that is measured or typed: to the right more noise is removed, and "
    "more detail. 1 is best where the noise level is right. Double click sets 1."
)

_WORDS = {"T": "frame", "Z": "slice"}
_PLACE_TIP = (
    "Filter only the {} at the viewer's slider, to try settings. Its pixels are those of a full "
    "run."
)


class StrengthInput(QWidget):
    """A slider from 0.5 to 2, in equal ratios, and the value beside it."""

    changed = Signal()

    def __init__(self):
        super().__init__()
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(-_STEPS, _STEPS)
        self.slider.setPageStep(_STEPS // 4)
        self.slider.setAccessibleName("Strength")
        self.label = QLabel()
        self.label.setMinimumWidth(self.label.fontMetrics().horizontalAdvance("0.00"))
        for widget in (self.slider, self.label):
            widget.setToolTip(wrapped(_STRENGTH_TIP))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.slider, 1)
        row.addWidget(self.label)
        self._scrolling = WheelGuard(self)
        self._scrolling.watch(self.slider)
        self.slider.installEventFilter(self)
        self.slider.valueChanged.connect(self._tell)
        self._tell()

    def value(self) -> float:
        """Return the factor, with two decimals."""
        return round(2.0 ** (self.slider.value() / _STEPS), 2)

    def reset(self) -> None:
        """Set the factor to 1."""
        self.slider.setValue(0)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Set 1 on a double click."""
        if watched is self.slider and event.type() == QEvent.Type.MouseButtonDblClick:
            self.reset()
            return True
        return super().eventFilter(watched, event)

    def _tell(self, _: int = 0) -> None:
        self.label.setText(f"{self.value():.2f}")
        self.changed.emit()


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
            box.setToolTip(wrapped(_PLACE_TIP.format(word)))
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


class DeviceInput(QWidget):
    """The OpenCL devices; below, the one used and why.

    "Automatic" is the device of the preferences, as they are at the time, if there is one.
    """

    #: The devices are known.
    listed = Signal()

    def __init__(self):
        super().__init__()
        self.box = narrow(QComboBox())
        self.box.setAccessibleName("Device")
        self.box.addItem("Automatic")
        self._wanted: Any = None
        self.caption = Caption()
        stack(QVBoxLayout(self), (self.box, self.caption), spacing=2)
        self.box.currentIndexChanged.connect(self.explain)

    def fill(self) -> None:
        """List the devices once they are known; the first call loads the OpenCL drivers."""
        self.box.setItemText(0, "Automatic (testing devices)")
        Loading(_devices, self._list, self)

    def _list(self, devices: tuple[Any, ...] | None) -> None:
        from napari_gpu_denoise.opencl import several
        from napari_gpu_denoise.opencl.device import ALL

        for found in devices or ():
            add_item(self.box, str(found), found.index, found.problem or found.version)
            if found.problem:
                self.box.model().item(self.box.count() - 1).setEnabled(False)
        with suppress(NoDeviceError):
            together = several.choose_devices(ALL)
            if len(together) > 1:
                names = several.names_of(together)
                add_item(self.box, f"All {len(together)}: {names}", ALL, "Divide the work.")
        if self._wanted is not None:
            self.box.setCurrentIndex(max(0, self.box.findData(self._wanted)))
        self.explain()
        self.listed.emit()

    def device(self) -> int | str | None:
        """Return what was chosen, as `opencl.device.choose` takes it."""
        chosen = self.box.currentData()
        return preferences.read().device if chosen is None else chosen

    def choose(self, other: DeviceInput) -> None:
        """Choose what another list has chosen, once the devices are known."""
        self._wanted = other.box.currentData()
        self.box.setCurrentIndex(max(0, self.box.findData(self._wanted)))

    def explain(self, _: object = None) -> None:
        """Show the preferred device, and below the list which one will be used."""
        from napari_gpu_denoise.opencl.several import why_devices

        preferred = preferences.read().device
        self.box.setItemText(0, "Automatic" if preferred is None else f"Automatic ({preferred})")
        try:
            self.caption.setText(why_devices(self.device()))
        except NoDeviceError as error:
            self.caption.setText(in_panel(error))


def _devices() -> tuple[Any, ...]:
    from napari_gpu_denoise.opencl import device

    load_bundled_drivers()
    return device.devices()


def type_input(of: str = "layer") -> QComboBox:
    """Return the list of types of the result; `of` is what is filtered."""
    return choice(
        {
            "Automatic": None,
            f"Same as the {of}": "same",
            "float32 (keeps fractions)": "float32",
        },
        f"Data type of the result. Automatic: that of the {of}, or float32 where rounding to "
        f"whole grey levels would cost quality. Values outside the range of the {of}'s type "
        "are clipped to it and counted.",
    )


def nonfinite_input() -> QComboBox:
    """Return the list of what is done about NaN and infinity."""
    return choice(
        {"Stop with an error": "raise", "Leave them in place": "keep"},
        "Treatment of pixels that are NaN or infinite.",
    )


def correction_input() -> QComboBox:
    """Return the list of corrections."""
    return choice(
        {
            "Nothing": None,
            "Stripes": "stripes",
            "Hot and dead pixels": "outliers",
            "What is found": "found",
        },
        "Structured noise to remove first, only where it is found. Stripes are rows and "
        "columns with individual offsets, and periodic hum. Estimated noise shows what was "
        "found.",
    )
