"""A form for any filter's settings, made from the fields of its dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from decimal import Decimal
from typing import Any

from magicgui.widgets import CheckBox, ComboBox, FloatSpinBox, LineEdit, SpinBox
from magicgui.widgets.bases import ValueWidget
from qtpy.QtCore import QLocale, Signal
from qtpy.QtWidgets import QFormLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.denoise.presets import OF_IMAGE
from napari_gpu_denoise._napari.denoise.profile_input import PresetButton, ProfileInput
from napari_gpu_denoise._napari.parts import (
    DecimalComma,
    Section,
    WheelGuard,
    form_layout,
    wrapped,
)
from napari_gpu_denoise._napari.wording import label_of
from napari_gpu_denoise.errors import SettingsError

_NO_BOUNDS = {int: (-(2**31), 2**31 - 1), float: (-1e12, 1e12)}


class SettingsForm(QWidget):
    """One control for each setting, with its help as tooltip; advanced ones are collapsed.

    `kind` is an entry of FILTERS; settings named in `without` get no control and stay at their
    defaults. The list of profiles on top follows changes below.
    """

    changed = Signal()

    def __init__(self, kind: type, without: Collection[str] = ()):
        super().__init__()
        self.kind = kind
        self.controls: dict[str, ValueWidget] = {}
        self._labels: dict[str, QLabel] = {}
        self._scrolling = WheelGuard(self)
        self._filling = False
        plain, advanced = form_layout(), form_layout()
        self.profile = ProfileInput(kind)
        self.presets = PresetButton(self.profile, self.settings)
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.profile, 1)
        row.addWidget(self.presets)
        plain.addRow("Profile", row)
        self._scrolling.watch(self.profile)
        self.profile.wanted.connect(self._apply)
        for field in dataclasses.fields(kind):
            if field.name not in without:
                self._add(field, advanced if field.metadata["advanced"] else plain)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(plain)
        if advanced.rowCount():
            layout.addWidget(Section("More settings", advanced))

    def _add(self, field: dataclasses.Field, layout: QFormLayout) -> None:
        control = make_control(field)
        label = QLabel(label_of(field.name, field.metadata["unit"]))
        label.setBuddy(control.native)
        control.native.setAccessibleName(label.text())
        self._scrolling.watch(control.native)
        control.changed.connect(self._tell)
        layout.addRow(label, control.native)
        self.controls[field.name] = control
        self._labels[field.name] = label

    def settings(self) -> Any:
        """Return the settings; those that need a missing axis have their defaults.

        Raises `SettingsError` if they do not go together.
        """
        usable = {n: each for n, each in self.controls.items() if each.native.isEnabled()}
        return self.kind(**{name: control.value for name, control in usable.items()})

    def set_axes(self, axes: str) -> None:
        """Enable only the settings whose axis is among the named ones."""
        for field in dataclasses.fields(self.kind):
            if field.name not in self.controls:
                continue
            needed, text = field.metadata["needs_axis"], field.metadata["help"]
            usable = needed is None or needed in axes
            if not usable:
                text += f". Name an axis {needed} above to use it."
            for widget in (self._labels[field.name], self.controls[field.name].native):
                widget.setEnabled(usable)
                widget.setToolTip(wrapped(text))
        self._tell()

    def show_settings(self, settings: Any) -> None:
        """Set every control, and emit one change when all are set."""
        self._filling = True
        try:
            for name, control in self.controls.items():
                control.value = getattr(settings, name)
        finally:
            self._filling = False
        self._tell()

    def _apply(self, settings: Any) -> None:
        """Set every control but those that describe the image."""
        kept = {name: self.controls[name].value for name in OF_IMAGE if name in self.controls}
        self.show_settings(self.kind.of(settings, **kept))

    def reset(self) -> None:
        """Set every control to its default."""
        self.show_settings(self.kind())

    def _tell(self) -> None:
        # Half a profile may be settings that do not go together.
        if self._filling:
            return
        try:
            self.profile.show_name(self.settings())
        except SettingsError:
            self.profile.show_name(None)
        self.changed.emit()


def make_control(field: dataclasses.Field) -> ValueWidget:
    """Return the control that fits a field's type, bounds and choices, set to its default."""
    kind, choices = type(field.default), field.metadata["choices"]
    if choices:
        return ComboBox(value=field.default, choices=choices)
    if kind is bool:
        return CheckBox(value=field.default, text="")
    if kind in _NO_BOUNDS:
        low, high = field.metadata["bounds"] or _NO_BOUNDS[kind]
        if kind is int:
            control = SpinBox(value=field.default, min=low, max=high)
            if field.metadata["odd"]:
                control.changed.connect(lambda _: _step_past_even(control))
                _step_past_even(control)
            return control
        control = FloatSpinBox(min=low, max=high)
        # Before the value: a spin box rounds what it is given to the places it shows.
        control.native.setDecimals(max(2, decimals(field.default), decimals(low)))
        control.value = field.default
        # With a decimal point on every system, as in Python; a comma typed is taken for it.
        control.native.setLocale(QLocale.c())
        DecimalComma(control.native)
        return control
    return LineEdit(value=field.default)


def _step_past_even(control: SpinBox) -> None:
    """Let the arrows of a spin box go from odd to odd, and from 0, which means none, to 3."""
    control.step = 3 if control.value == 0 else 1 if control.value % 2 == 0 else 2


def decimals(number: float) -> int:
    """Return the number of decimal places of a number as it is written."""
    return max(0, -Decimal(str(number)).as_tuple().exponent)
