"""A form for any filter's settings: profiles, and a control for each field."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from functools import partial
from typing import Any

from magicgui.widgets import CheckBox, ComboBox, FloatSpinBox, LineEdit, SpinBox
from magicgui.widgets.bases import ValueWidget
from qtpy import QtWidgets
from qtpy.QtCore import QLocale, QSignalBlocker, Signal

from napari_gpu_denoise._napari import parts
from napari_gpu_denoise._napari.wording import label_of
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.files.recommended import Recommended
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.measurements.subspace import Subspace
from napari_gpu_denoise.protocol.settings import setting_fields

_CUSTOM = "custom"


def without_image(settings: Any) -> Any:
    """Return settings without what describes an image, the size of its voxels."""
    return dataclasses.replace(settings, voxel="") if hasattr(settings, "voxel") else settings


def profile_box(kind: type) -> QtWidgets.QComboBox:
    """Return a list of the profiles of a filter; "custom" stands for other settings."""
    box = parts.choice({}, "Sets all settings below; change any of them afterwards.", "Profile")
    parts.narrow(box, 6)  # beside the label, where names of settings are long
    units = {each.name: each.metadata["unit"] for each in setting_fields(kind)}
    for name, changes in kind.presets.items():
        lines = [f"{label_of(key, units[key])}: {value}" for key, value in changes.items()]
        parts.add_item(box, name, name, "; ".join(lines) or "The defaults")
    box.addItem(_CUSTOM)
    parts.disable_item(box, box.count() - 1)
    return box


class SettingsForm(QtWidgets.QWidget):
    """One control for each setting, with its help as tooltip; advanced ones are collapsed.

    `kind` is an entry of FILTERS. The list of profiles on top follows changes below.
    """

    changed = Signal()

    def __init__(self, kind: type):
        super().__init__()
        self.kind = kind
        self.controls: dict[str, ValueWidget] = {}
        self._labels: dict[str, QtWidgets.QLabel] = {}
        self._scrolling = parts.WheelGuard(self)
        plain, advanced = parts.form_layout(), parts.form_layout()
        self.profile = profile_box(kind)
        plain.addRow("Profile", self.profile)
        self._scrolling.watch(self.profile)
        self.profile.currentTextChanged.connect(self._choose)
        for field in setting_fields(kind):
            self._add(field, advanced if field.metadata["advanced"] else plain)
        more = (parts.Section("More settings", advanced),) if advanced.rowCount() else ()
        parts.stack(QtWidgets.QVBoxLayout(self), (plain, *more), spacing=6)

    def _add(self, field: dataclasses.Field, layout: QtWidgets.QFormLayout) -> None:
        control = make_control(field)
        label = QtWidgets.QLabel(label_of(field.name, field.metadata["unit"]))
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
        for field in setting_fields(self.kind):
            needed, text = field.metadata["needs_axis"], field.metadata["help"]
            usable = needed is None or needed in axes
            if not usable:
                text += f". Name an axis {needed} above to use it."
            for widget in (self._labels[field.name], self.controls[field.name].native):
                widget.setEnabled(usable)
                widget.setToolTip(parts.wrapped(text))
        self._tell()

    def show_settings(self, settings: Any) -> None:
        """Set every control, and emit one change when all are set."""
        with QSignalBlocker(self):
            for name, control in self.controls.items():
                control.value = getattr(settings, name)
        self._tell()

    def _choose(self, profile: str) -> None:
        """Set every control but the size of voxels."""
        if profile in self.kind.presets:
            kept = {n: each.value for n, each in self.controls.items() if n == "voxel"}
            self.show_settings(self.kind.of(profile=profile, **kept))

    def reset(self) -> None:
        """Set every control to its default."""
        self.show_settings(self.kind())

    def _tell(self) -> None:
        if self.signalsBlocked():  # half a profile may be settings that do not go together
            return
        try:
            name = without_image(self.settings()).profile_name()
        except SettingsError:
            name = _CUSTOM
        with QSignalBlocker(self.profile):
            self.profile.setCurrentText(name)
        self.changed.emit()


class FilterChoice(QtWidgets.QWidget):
    """The settings of the filter that is chosen in `box`, a list to be put elsewhere.

    `axes` are those to assume where none are known. At `Recommended` the settings that `advise` was
    given are shown; a change of them chooses their filter.
    """

    changed = Signal()

    def __init__(self, tip: str, axes: str):
        super().__init__()
        kinds = {"Recommended": Recommended, **{kind.title: kind for kind in FILTERS}}
        kinds["Subspace (measurements)"] = Subspace
        self.box = parts.narrow(parts.choice(kinds, tip, "Filter"))
        self._forms: dict[type, SettingsForm] = {}
        self._axes = self._usual = axes
        self._advised: Any = None
        self._showing = False  # and no user changes anything
        self._layout = QtWidgets.QVBoxLayout(self)
        parts.stack(self._layout, (), spacing=8)
        self.box.currentIndexChanged.connect(self._show)
        self._show()

    @property
    def kind(self) -> type:
        """The filter that is chosen."""
        return self.box.currentData()

    @property
    def form(self) -> SettingsForm:
        """The settings that are shown, made when they first are."""
        advised = self.kind is Recommended and self._advised is not None
        kind = type(self._advised) if advised else self.kind
        if kind not in self._forms:
            form = self._forms[kind] = SettingsForm(kind)
            form.changed.connect(partial(self._tell, kind))
            self._layout.addWidget(form)
        return self._forms[kind]

    def settings(self) -> Any:
        """Return what is chosen; raises `SettingsError` if settings do not go together."""
        return Recommended() if self.kind is Recommended else self.form.settings()

    def choose(self, name: str) -> None:
        """Choose a filter."""
        names = [self.box.itemData(row).name for row in range(self.box.count())]
        self.box.setCurrentIndex(names.index(name))

    def show_settings(self, settings: Any) -> None:
        """Choose the filter of settings, and show these."""
        self.choose(settings.name)
        self.form.show_settings(settings)

    def advise(self, settings: Any) -> None:
        """Show settings that are recommended, or none, where that is chosen."""
        if settings != self._advised:
            self._advised = settings
            self._show()

    def set_axes(self, axes: str) -> None:
        """Enable the settings that some axes allow."""
        axes = axes or self._usual
        if axes != self._axes:
            self._axes = axes
            self._show()

    def _show(self, _: int = 0) -> None:
        self._showing, shown = True, self.form
        if shown.kind is not self.kind:
            shown.show_settings(self._advised)
        for form in self._forms.values():
            form.setVisible(form is shown and bool(form.controls))
        shown.set_axes(self._axes)
        self._showing = False

    def _tell(self, kind: type) -> None:
        if self.kind is not Recommended:
            self.changed.emit()
        elif not self._showing:
            self.choose(kind.name)


def make_control(field: dataclasses.Field) -> ValueWidget:
    """Return the control that fits a field's type, bounds and choices, set to its default."""
    default: Any = field.default
    if choices := field.metadata["choices"]:
        return ComboBox(value=default, choices=choices)
    if isinstance(default, bool):
        return CheckBox(value=default, text="")
    if isinstance(default, str):
        return LineEdit(value=default)
    low, high = field.metadata["bounds"]
    if isinstance(default, int):
        control = SpinBox(value=default, min=low, max=high)
        if field.metadata["odd"]:
            control.changed.connect(lambda _: _step_past_even(control))
            _step_past_even(control)
        return control
    control = FloatSpinBox(min=low, max=high)
    # Before the value: a spin box rounds what it is given to the places it shows.
    control.native.setDecimals(max(2, decimals(default), decimals(low)))
    control.value = default
    # With a decimal point on every system, as in Python; a comma typed is taken for it.
    control.native.setLocale(QLocale.c())
    parts.DecimalComma(control.native)
    return control


def _step_past_even(control: SpinBox) -> None:
    """Let the arrows of a spin box go from odd to odd, and from 0 to 3."""
    control.step = 3 if control.value == 0 else 1 if control.value % 2 == 0 else 2


def decimals(number: float) -> int:
    """Return the number of decimal places of a number as it is written."""
    return max(0, -int(Decimal(str(number)).as_tuple().exponent))
