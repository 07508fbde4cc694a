"""Controls of a run beside the settings of its filter: noise, strength, frame, device, result."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from napari.components import Dims
from napari.layers import Image
from qtpy import QtWidgets
from qtpy.QtCore import QEvent, QObject, QSignalBlocker, Qt, Signal

from napari_gpu_denoise._napari import parts, preferences
from napari_gpu_denoise._napari.layers.source import place_shown
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.model import (
    AUTO,
    MEASURED,
    ONE_SIGMA,
    TYPED,
    NoiseChoice,
    Options,
    PanelModel,
)
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.noise.models import MODELS, summary_of
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.opencl import device as opencl
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers

_CHOICES = {
    AUTO: (
        "Automatic",
        "Measure the noise before filtering, and choose a model: photon noise, Rician noise of MRI "
        "magnitudes, speckle, correlated noise, or one sigma. Noise that depends on brightness is "
        "made uniform before the filter, and this is undone afterwards.",
    ),
    ONE_SIGMA: (
        "One sigma",
        "Measure one standard deviation for all grey levels before filtering. Where noise grows "
        "with brightness this is a compromise.",
    ),
    TYPED: ("Type sigma", "Use the standard deviation on the right."),
}
_SIGMA = (
    "Standard deviation of the noise in grey levels of the image: one number, or one for each "
    "channel, separated by commas. Typing a value replaces the estimate."
)

_STEPS = 20  # of the slider from 1 to either end
_HALF = _STEPS // 2
_STRENGTH_TIP = (
    "Multiplies the noise level that is measured or typed: to the right more noise is removed, and "
    "more detail. 1 is best where the noise level is right. Double click sets 1."
)

_PLACES = {"T": "Only the frame shown", "Z": "Only the slice shown"}
_PLACE_TIP = (
    "Filter only what is at the viewer's slider, to try settings. Its pixels are those of a full "
    "run."
)


class NoiseInput(QtWidgets.QWidget):
    """The noise of a model; `automatic` is said of that choice until more is known."""

    def __init__(self, model: PanelModel, automatic: str):
        super().__init__()
        self.model, self._automatic = model, automatic
        self.mode = parts.narrow(parts.told(QtWidgets.QComboBox(), name="Noise"), 6)
        for name, (text, tip) in _CHOICES.items():
            parts.add_item(self.mode, text, name, tip)
        self.edit = parts.told(QtWidgets.QLineEdit(), name="Noise standard deviation")
        self.edit.setMinimumWidth(50)
        self.button = parts.button(
            "Measure…",
            "Open the panel Estimated noise, which measures this layer and shows the results.",
        )
        self.caption = parts.Caption()
        line = parts.row_of(self.mode, self.edit, self.button, spacing=4, shares=(3, 2))
        parts.stack(QtWidgets.QVBoxLayout(self), (line, self.caption), spacing=2)
        self.edit.textChanged.connect(lambda text: self.choose(TYPED, typed=text))
        self.mode.currentIndexChanged.connect(lambda _: self.choose(self.mode.currentData()))
        model.events.noise.connect(self._show)
        self.set_unused("")

    def set_unused(self, reason: str) -> None:
        """Enable the control, or disable it where there is a reason why it is not used."""
        for widget, tip in ((self.mode, "Source of the noise level."), (self.edit, _SIGMA)):
            widget.setEnabled(not reason)
            widget.setToolTip(parts.wrapped(f"Sigma is {reason}." if reason else tip))
        self.edit.setPlaceholderText("not used" if reason else "sigma")
        self._show(self.model.noise)

    def choose(self, kind: str, **known: Any) -> None:
        """Choose a kind of noise, with what is known of it, as in `NoiseChoice`."""
        self.model.noise = replace(self.model.noise, kind=kind, **known)

    def hand_over(self, estimate: NoiseEstimate, origin: str) -> None:
        """Choose an estimate that was measured in `origin`, in words."""
        self.choose(MEASURED, estimate=estimate, origin=origin)

    def explain(self, known: NoiseEstimate | None) -> None:
        """Say what is assumed; `known` is what has been measured in the layer by any panel."""
        chosen, text = self.model.noise, ""
        if chosen.kind == MEASURED:
            text = f"{_models(chosen.estimate)} (measured in {chosen.origin})"
        elif known is not None and chosen.kind != TYPED:
            text = _models(known)
        elif chosen.kind == AUTO:
            text = self._automatic
        text *= self.mode.isEnabled()
        self.caption.setText(text)
        self.caption.setVisible(bool(text))

    def _show(self, noise: NoiseChoice) -> None:
        with QSignalBlocker(self.mode):
            if noise.estimate is not None:
                if self.mode.findData(MEASURED) < 0:
                    self.mode.addItem("Measured", MEASURED)
                tip = f"Measured in {noise.origin}: {_models(noise.estimate)}."
                at = self.mode.findData(MEASURED)
                self.mode.setItemData(at, parts.wrapped(tip), Qt.ItemDataRole.ToolTipRole)
            if self.mode.findData(noise.kind) < 0:
                title = next(each.title for each in MODELS if each.name == noise.kind)
                self.mode.addItem(title, noise.kind)
            self.mode.setCurrentIndex(self.mode.findData(noise.kind))
        text = noise.typed if noise.kind == TYPED and self.mode.isEnabled() else ""
        if self.edit.text() != text:
            with QSignalBlocker(self.edit):
                self.edit.setText(text)
        self.explain(None)


def _models(estimate: Any) -> str:
    return summary_of(each.as_dict() for each in getattr(estimate, "models", estimate))


def _factor(step: int) -> float:
    return round(2.0 ** (step / _STEPS), 2)


class StrengthInput(QtWidgets.QWidget):
    """A slider from 0.5 to 2, in equal ratios, and the value beside it."""

    changed = Signal(float)

    def __init__(self):
        super().__init__()
        slider = QtWidgets.QSlider(Qt.Orientation.Horizontal)
        self.slider = parts.told(slider, name="Strength")
        slider.setRange(-_STEPS, _STEPS)
        slider.setPageStep(_STEPS // 4)
        self.label = QtWidgets.QLabel("1.00")
        self.label.setMinimumWidth(self.label.fontMetrics().horizontalAdvance("0.00"))
        self.setToolTip(parts.wrapped(_STRENGTH_TIP))
        self.setLayout(parts.row_of(self.slider, self.label, shares=(1,)))
        self._scrolling = parts.WheelGuard(self)
        self._scrolling.watch(self.slider)
        self.slider.installEventFilter(self)
        self.slider.valueChanged.connect(lambda _: self.changed.emit(self.value()))
        self.changed.connect(lambda value: self.label.setText(f"{value:.2f}"))

    def value(self) -> float:
        """Return the factor, with two decimals."""
        return _factor(self.slider.value())

    def choose(self, factor: float) -> None:
        """Set the factor, to the nearest one of the slider."""
        self.slider.setValue(round(_STEPS * math.log2(factor)))

    def around(self) -> tuple[float, ...]:
        """Return three factors half an octave apart: the value in the middle, if that is possible.

        They are 0.71, 1 and 1.41 times the value.
        """
        middle = min(max(self.slider.value(), _HALF - _STEPS), _STEPS - _HALF)
        return tuple(_factor(middle + step) for step in (-_HALF, 0, _HALF))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Set 1 on a double click."""
        if watched is self.slider and event.type() == QEvent.Type.MouseButtonDblClick:
            self.choose(1.0)
            return True
        return super().eventFilter(watched, event)


class PlacesInput:
    """One box for the axis of time and one for that of slices, shown where there is one."""

    def __init__(self, options: RunOptions):
        self.boxes = {e: parts.told(QtWidgets.QCheckBox(), _PLACE_TIP) for e in _PLACES}
        for box in self.boxes.values():
            options.bind("alone", box.toggled, self.ticked, self.tick)

    def ticked(self) -> frozenset[str]:
        """Return the axes of which only the place in view is filtered."""
        return frozenset(letter for letter, box in self.boxes.items() if box.isChecked())

    def tick(self, alone: frozenset[str]) -> None:
        """Choose the axes of which only the place in view is filtered."""
        for letter, box in self.boxes.items():
            box.setChecked(letter in alone)

    def offer(self, layer: Image | None, axes: str, dims: Dims) -> None:
        """Offer the frame and slice in view."""
        for letter, box in self.boxes.items():
            there = layer is not None and letter in axes
            place = place_shown(layer, axes, dims, letter) if there else None
            box.setVisible(there)
            box.setText(_PLACES[letter] + ("" if place is None else f": {place}"))


class DeviceInput(QtWidgets.QWidget):
    """The OpenCL devices; below, the one used and why.

    "Automatic" is the device of the preferences, as they are at the time, if there is one.
    """

    #: The devices are known.
    listed = Signal()

    def __init__(self):
        super().__init__()
        self.box = parts.narrow(parts.told(QtWidgets.QComboBox(), name="Device"))
        self.box.addItem("Automatic")
        self.caption = parts.Caption()
        parts.stack(QtWidgets.QVBoxLayout(self), (self.box, self.caption), spacing=2)
        self.box.currentIndexChanged.connect(self.explain)

    def fill(self) -> None:
        """List the devices once they are known; the first call loads the OpenCL drivers."""
        self.box.setItemText(0, "Automatic (testing devices)")
        Loading(_devices, self._list, self)

    def _list(self, devices: tuple[Any, ...] | None) -> None:
        for found in devices or ():
            parts.add_item(self.box, str(found), found.index, found.problem or found.version)
            if found.problem:
                parts.disable_item(self.box, self.box.count() - 1)
        with suppress(NoDeviceError):
            together = opencl.choose_devices(opencl.ALL)
            if len(together) > 1:
                text = f"All {len(together)}: {opencl.names_of(together)}"
                parts.add_item(self.box, text, opencl.ALL, "Divide the work.")
        self.explain()
        self.listed.emit()

    def explain(self, _: object = None) -> None:
        """Show the preferred device, and below the list which one will be used."""
        preferred, chosen = preferences.read().device, self.box.currentData()
        self.box.setItemText(0, "Automatic" if preferred is None else f"Automatic ({preferred})")
        try:
            self.caption.setText(opencl.why(preferred if chosen is None else chosen))
        except NoDeviceError as error:
            self.caption.setText(in_panel(error))


def _devices() -> tuple[Any, ...]:
    load_bundled_drivers()
    return opencl.devices()


class RunOptions(QObject):
    """Controls of a run that are the same for every filter.

    They show the noise and the options of `model`, and set them. `of` is what is filtered,
    `automatic` as in `NoiseInput`.
    """

    changed = Signal()

    def __init__(
        self,
        parent: QObject,
        model: PanelModel,
        of: str = "layer",
        automatic: str = "The noise is measured before filtering.",
    ):
        super().__init__(parent)
        self.model, self.noise = model, NoiseInput(model, automatic)
        self.strength, self.device = StrengthInput(), DeviceInput()
        self.dtype = parts.choice(
            {
                "Automatic": None,
                f"Same as the {of}": "same",
                "float32 (keeps fractions)": "float32",
            },
            f"Data type of the result. Automatic: that of the {of}, or float32 where rounding to "
            f"whole grey levels would cost quality. Values outside the range of the {of}'s type "
            "are clipped to it and counted.",
        )
        self.nonfinite = parts.choice(
            {"Stop with an error": "raise", "Leave them in place": "keep"},
            "Treatment of pixels that are NaN or infinite.",
        )
        self.correct = parts.choice(
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
        #: Rows of a form, by label.
        self.rows = {"Correct first": self.correct, "Noise": self.noise, "Strength": self.strength}
        output = {"Result type": self.dtype, "NaN, infinity": self.nonfinite, "Device": self.device}
        self.section = parts.Section("Result and device", parts.form_layout(output))
        boxes = {"correct": self.correct, "dtype": self.dtype, "nonfinite": self.nonfinite}
        boxes["device"] = self.device.box
        for name, box in boxes.items():
            self.bind(name, box.currentIndexChanged, box.currentData, partial(_show, box))
        self.device.listed.connect(lambda: _show(self.device.box, model.options.device))
        strength = self.strength
        self.bind("strength", strength.changed, strength.value, strength.choose)
        for event in (self.model.events.noise, self.model.events.options):
            event.connect(lambda _: self.changed.emit())

    def bind(self, name: str, changed: Any, read: Callable[[], Any], show: Callable) -> None:
        """Let a control set one of the options, and show it."""
        model = self.model
        changed.connect(
            lambda _: setattr(model, "options", replace(model.options, **{name: read()}))
        )
        model.events.options.connect(lambda options: show(getattr(options, name)))

    def reset(self) -> None:
        """Set every control to its default."""
        self.model.noise, self.model.options = NoiseChoice(), Options()


def _show(box: QtWidgets.QComboBox, value: Any) -> None:
    box.setCurrentIndex(max(0, box.findData(value)))
