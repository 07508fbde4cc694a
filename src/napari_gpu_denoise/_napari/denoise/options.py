"""Controls of a run beside the settings of its filter: noise, strength, frame, device, result."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from napari.layers import Image
from napari.viewer import Viewer
from qtpy import QtWidgets
from qtpy.QtCore import QEvent, QObject, QSignalBlocker, Qt, Signal

from napari_gpu_denoise._napari import parts, preferences
from napari_gpu_denoise._napari.layers.source import place_shown
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import LayerError, NoDeviceError, SigmaError
from napari_gpu_denoise.noise.models import summary_of
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers
from napari_gpu_denoise.run.request import Run

AUTO, ONE, TYPED, MEASURED = "auto", "one", "typed", "measured"

_CHOICES = {
    AUTO: (
        "Automatic",
        "Measure the noise before filtering, and choose a model: photon noise, Rician noise of MRI "
        "magnitudes, speckle, correlated noise, or one sigma. Noise that depends on brightness is "
        "made uniform before the filter, and this is undone afterwards.",
    ),
    ONE: (
        "One sigma",
        "Measure one standard deviation for all grey levels before filtering. Where noise grows "
        "with brightness this is a compromise.",
    ),
    TYPED: ("Type sigma", "Use the standard deviation on the right."),
}
_SIGMA = (
    "Standard deviation of the noise in grey levels of the image: one number, or one for each "
    "channel, separated by commas. Typing a value replaces the estimate. After a run with an "
    "estimate, the value used is shown here."
)

_STEPS = 20  # of the slider from 1 to either end
_HALF = _STEPS // 2
_STRENGTH_TIP = (
    "Multiplies the noise level that is measured or typed: to the right more noise is removed, and "
    "more detail. 1 is best where the noise level is right. Double click sets 1."
)

_WORDS = {"T": "frame", "Z": "slice"}
_PLACE_TIP = (
    "Filter only the {} at the viewer's slider, to try settings. Its pixels are those of a full "
    "run."
)


def numbers(text: str, channels: int) -> list[str]:
    """Return the numbers in a text, with decimal points; commas may be typed for these as well.

    Commas separate the numbers of several channels; where semicolons or spaces alone do, or for one
    channel, a comma belongs to a number.
    """
    if ";" in text:
        return text.replace(",", ".").split(";")
    words = text.split()
    if len(words) > 1 and not any(word.endswith(",") for word in words):
        return text.replace(",", ".").split()
    words = text.split(",")
    return [".".join(words)] if channels == 1 and len(words) == 2 else words


class NoiseInput(QtWidgets.QWidget):
    """The noise assumed by a filter; disabled if the filter's settings determine it."""

    #: The panel that measures noise is to be opened.
    wanted = Signal()
    #: What is assumed may have changed.
    changed = Signal()

    def __init__(self, automatic: str = "The noise is measured before filtering."):
        super().__init__()
        self._automatic = automatic  # what is said of that choice
        self._measured: NoiseEstimate | None = None
        self._origin = ""
        self._used = ""
        self._last = ""  # typed
        #: Channels of the layer.
        self.channels = 1
        self.mode = parts.narrow(QtWidgets.QComboBox(accessibleName="Noise"), 6)
        for name, (text, tip) in _CHOICES.items():
            parts.add_item(self.mode, text, name, tip)
        self.edit = QtWidgets.QLineEdit(accessibleName="Noise standard deviation", minimumWidth=50)
        self.button = parts.button(
            "Measure…",
            "Open the panel Estimated noise, which measures this layer and shows the results.",
        )
        self.caption = parts.Caption()
        line = parts.row_of(self.mode, self.edit, self.button, spacing=4, shares=(3, 2))
        parts.stack(QtWidgets.QVBoxLayout(self), (line, self.caption), spacing=2)
        self.edit.textEdited.connect(self._typed)
        self.mode.currentIndexChanged.connect(self._chosen)
        self.button.clicked.connect(self.wanted)
        self.set_unused("")

    def set_unused(self, reason: str) -> None:
        """Enable the control, or disable it where there is a reason why it is not used."""
        if reason:
            self._drop_used()
        for widget, tip in ((self.mode, "Source of the noise level."), (self.edit, _SIGMA)):
            widget.setEnabled(not reason)
            widget.setToolTip(parts.wrapped(f"Sigma is {reason}." if reason else tip))
        self.edit.setPlaceholderText("not used" if reason else "sigma")
        with QSignalBlocker(self):  # whoever asks for this knows it
            self._explain()

    def choose(self, name: str) -> None:
        """Choose one of `AUTO`, `ONE`, `TYPED` and, after `hand_over`, `MEASURED`."""
        self.mode.setCurrentIndex(self.mode.findData(name))

    def chosen(self) -> str:
        """Return the choice."""
        return self.mode.currentData()

    def sigma(self) -> float | tuple[float, ...] | None:
        """Return the sigma typed, or None where it is not to be used.

        Raises `SigmaError` if no number was typed.
        """
        if self.chosen() != TYPED or not self.mode.isEnabled():
            return None
        try:
            values = tuple(map(float, numbers(self.edit.text(), self.channels)))
        except ValueError:
            raise SigmaError(
                f"The noise {self.edit.text()!r} is not a number: type its standard deviation in "
                "grey levels, or choose Automatic."
            ) from None
        return values[0] if len(values) == 1 else values

    def noise(self) -> str | NoiseEstimate | None:
        """Return the noise as filters take it; None for automatic noise, or a sigma."""
        chosen = self.chosen() if self.mode.isEnabled() else None
        return {ONE: "gaussian", MEASURED: self._measured}.get(chosen)

    def hand_over(self, estimate: NoiseEstimate, origin: str) -> None:
        """Take an estimate that was measured in `origin`, in words, and choose it."""
        self._measured, self._origin = estimate, origin
        if self.mode.findData(MEASURED) < 0:
            self.mode.addItem("Measured", MEASURED)
        tip = parts.wrapped(f"Measured in {origin}: {estimate.verdict()}.")
        self.mode.setItemData(self.mode.findData(MEASURED), tip, Qt.ItemDataRole.ToolTipRole)
        self.edit.clear()
        self.choose(MEASURED)
        self._explain()

    def take_over(self, other: NoiseInput) -> None:
        """Assume the noise that another control does."""
        if (handed := other.handed()) is not None:
            self.hand_over(*handed)
            return
        self.choose(other.chosen())
        if other.chosen() == TYPED:
            self.edit.setText(other.edit.text())
            self._typed(other.edit.text())

    def handed(self) -> tuple[NoiseEstimate, str] | None:
        """Return the estimate that was handed over and its origin, if it is chosen."""
        return (self._measured, self._origin) if self.chosen() == MEASURED else None

    def show_used(self, sigma: tuple[float, ...], models: list[dict[str, Any]]) -> None:
        """Show the noise that a run has estimated and used."""
        if self.chosen() in (AUTO, ONE):
            self.edit.setText(", ".join(f"{value:.4g}" for value in sigma))
            self.edit.setCursorPosition(0)
        if self.chosen() == ONE:
            self._used = f"Used: {self.edit.text()}" if len(sigma) > 1 else ""
        elif self.chosen() == AUTO:
            one = f"One sigma: {self.edit.text()}" if sigma else ""
            self._used = summary_of(models) or one
        self._explain()

    def drop_estimates(self) -> None:
        """Drop estimates of another layer; one that was handed over can be chosen again."""
        self._drop_used()
        if self.chosen() == MEASURED:
            self.choose(AUTO)
        self._explain()

    def reset(self) -> None:
        """Go back to automatic measurement."""
        self.choose(AUTO)
        self.edit.clear()
        self._used = self._last = ""
        self._explain()

    def _drop_used(self) -> None:
        self._used = ""
        if self.chosen() != TYPED:
            self.edit.clear()

    def _chosen(self, _: int) -> None:
        # The value used belongs to one choice; but it can be edited.
        if self.chosen() != TYPED:
            self._drop_used()
        elif not self.edit.text():
            self.edit.setText(self._last)
        self._explain()

    def _typed(self, text: str) -> None:
        self._last = text
        self.choose(TYPED)
        self._explain()

    def _explain(self) -> None:
        chosen, text = self.chosen() if self.mode.isEnabled() else None, ""
        if chosen == ONE:
            text = self._used
        elif chosen == AUTO:
            text = self._used or self._automatic
        elif chosen == MEASURED and self._measured is not None:
            models = summary_of(each.as_dict() for each in self._measured.models)
            text = f"{models} (measured in {self._origin})"
        self.caption.setText(text)
        self.caption.setVisible(bool(text))
        self.changed.emit()


def _factor(step: int) -> float:
    return round(2.0 ** (step / _STEPS), 2)


class StrengthInput(QtWidgets.QWidget):
    """A slider from 0.5 to 2, in equal ratios, and the value beside it."""

    changed = Signal()

    def __init__(self):
        super().__init__()
        self.slider = QtWidgets.QSlider(
            Qt.Orientation.Horizontal,
            minimum=-_STEPS,
            maximum=_STEPS,
            pageStep=_STEPS // 4,
            accessibleName="Strength",
        )
        self.label = QtWidgets.QLabel()
        self.label.setMinimumWidth(self.label.fontMetrics().horizontalAdvance("0.00"))
        self.setToolTip(parts.wrapped(_STRENGTH_TIP))
        self.setLayout(parts.row_of(self.slider, self.label, shares=(1,)))
        self._scrolling = parts.WheelGuard(self)
        self._scrolling.watch(self.slider)
        self.slider.installEventFilter(self)
        self.slider.valueChanged.connect(self._tell)
        self._tell()

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
        self.boxes = {letter: QtWidgets.QCheckBox() for letter in _WORDS}
        for box in self.boxes.values():
            box.toggled.connect(self.changed)

    def reset(self) -> None:
        """Choose everything."""
        for box in self.boxes.values():
            box.setChecked(False)

    def show(self, layer: Image | None, axes: str) -> str:
        """Offer the frame and slice in view; return the choice, such as "frame 3"."""
        chosen = []
        for letter, box in self.boxes.items():
            word, there = _WORDS[letter], letter in axes
            place = self._shown(layer, axes, letter)
            number = "" if place is None else f" {place}"
            box.setEnabled(there)
            box.setVisible(there)
            box.setText(f"Only the {word} shown" + (number and f":{number}"))
            box.setToolTip(parts.wrapped(_PLACE_TIP.format(word)))
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


class DeviceInput(QtWidgets.QWidget):
    """The OpenCL devices; below, the one used and why.

    "Automatic" is the device of the preferences, as they are at the time, if there is one.
    """

    #: The devices are known.
    listed = Signal()

    def __init__(self):
        super().__init__()
        self.box = parts.narrow(QtWidgets.QComboBox(accessibleName="Device"))
        self.box.addItem("Automatic")
        self._wanted: Any = None
        self.caption = parts.Caption()
        parts.stack(QtWidgets.QVBoxLayout(self), (self.box, self.caption), spacing=2)
        self.box.currentIndexChanged.connect(self.explain)

    def fill(self) -> None:
        """List the devices once they are known; the first call loads the OpenCL drivers."""
        self.box.setItemText(0, "Automatic (testing devices)")
        Loading(_devices, self._list, self)

    def _list(self, devices: tuple[Any, ...] | None) -> None:
        from napari_gpu_denoise.opencl.device import ALL, choose_devices, names_of

        for found in devices or ():
            parts.add_item(self.box, str(found), found.index, found.problem or found.version)
            if found.problem:
                self.box.model().item(self.box.count() - 1).setEnabled(False)
        with suppress(NoDeviceError):
            together = choose_devices(ALL)
            if len(together) > 1:
                names = names_of(together)
                parts.add_item(self.box, f"All {len(together)}: {names}", ALL, "Divide the work.")
        if self._wanted is not None:
            self.box.setCurrentIndex(max(0, self.box.findData(self._wanted)))
        self.explain()
        self.listed.emit()

    def device(self) -> int | str | None:
        """Return the choice, as `opencl.device.choose` takes it."""
        chosen = self.box.currentData()
        return preferences.read().device if chosen is None else chosen

    def choose(self, other: DeviceInput) -> None:
        """Choose what another list has chosen, once the devices are known."""
        self._wanted = other.box.currentData()
        self.box.setCurrentIndex(max(0, self.box.findData(self._wanted)))

    def explain(self, _: object = None) -> None:
        """Show the preferred device, and below the list which one will be used."""
        from napari_gpu_denoise.opencl.device import why

        preferred = preferences.read().device
        self.box.setItemText(0, "Automatic" if preferred is None else f"Automatic ({preferred})")
        try:
            self.caption.setText(why(self.device()))
        except NoDeviceError as error:
            self.caption.setText(in_panel(error))


def _devices() -> tuple[Any, ...]:
    from napari_gpu_denoise.opencl import device

    load_bundled_drivers()
    return device.devices()


class RunOptions(QObject):
    """Controls of a run that are the same for every filter; `of` is what is filtered."""

    changed = Signal()

    def __init__(self, parent: QObject, noise: NoiseInput, of: str = "layer"):
        super().__init__(parent)
        self.noise, self.strength, self.device = noise, StrengthInput(), DeviceInput()
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
        self.rows = {"Correct first": self.correct, "Noise": noise, "Strength": self.strength}
        output = {"Result type": self.dtype, "NaN, infinity": self.nonfinite, "Device": self.device}
        self.section = parts.Section("Result and device", parts.form_layout(output))
        for box in (*self._boxes(), self.device.box):
            box.currentIndexChanged.connect(lambda _: self.changed.emit())
        for control in (noise, self.strength):
            control.changed.connect(self.changed)

    def run(self, settings: Any, axes: str | None) -> Run:
        """Return a run of a filter; raises `DenoiseError` if it does not fit together."""
        return Run(
            filter=settings,
            sigma=self.noise.sigma(),
            noise=self.noise.noise(),
            axes=axes,
            dtype=self.dtype.currentData(),
            nonfinite=self.nonfinite.currentData(),
            device=self.device.device(),
            memory_limit=preferences.read().memory_limit,
            correct=self.correct.currentData(),
            sigma_factor=self.strength.value(),
        )

    def reset(self) -> None:
        """Set every control to its default."""
        self.noise.reset()
        self.strength.reset()
        for box in (*self._boxes(), self.device.box):
            box.setCurrentIndex(0)

    def take_over(self, other: RunOptions) -> None:
        """Set every control as another panel has it."""
        for box, wanted in zip(self._boxes(), other._boxes(), strict=True):
            box.setCurrentIndex(wanted.currentIndex())
        self.device.choose(other.device)
        self.strength.slider.setValue(other.strength.slider.value())
        self.noise.take_over(other.noise)

    def _boxes(self) -> tuple[QtWidgets.QComboBox, ...]:
        return self.correct, self.dtype, self.nonfinite
