"""List of the profiles of a filter and of the user's presets, and the menu to keep them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from napari.utils.notifications import show_error
from qtpy.QtCore import QSignalBlocker, Signal
from qtpy.QtWidgets import QComboBox, QInputDialog, QMenu, QToolButton

from napari_gpu_denoise._napari.denoise import presets
from napari_gpu_denoise._napari.parts import add_item, narrow, wrapped
from napari_gpu_denoise._napari.wording import in_panel, label_of
from napari_gpu_denoise.errors import SettingsError

_CUSTOM = "custom"


class ProfileInput(QComboBox):
    """The profiles of a filter, and presets; "custom" is shown for others, not to be chosen."""

    #: Settings were chosen.
    wanted = Signal(object)

    def __init__(self, kind: type):
        super().__init__()
        self.kind = kind
        self._own: dict[str, Any] = {}
        narrow(self)
        self.setToolTip(wrapped("Sets all settings below; change any of them afterwards."))
        self.setAccessibleName("Profile")
        self.fill()
        self.currentTextChanged.connect(self._choose)

    def fill(self) -> None:
        """List the profiles, and the presets as they are kept now."""
        units = {each.name: each.metadata["unit"] for each in dataclasses.fields(self.kind)}
        self._own = presets.own(self.kind)
        with QSignalBlocker(self):
            shown = self.currentText()
            self.clear()
            for name, changes in self.kind.presets.items():
                lines = [f"{label_of(key, units[key])}: {value}" for key, value in changes.items()]
                add_item(self, name, name, "; ".join(lines) or "The defaults")
            for name in self._own:
                add_item(self, name, name, "A preset of yours")
            self.addItem(_CUSTOM)
            self.model().item(self.count() - 1).setEnabled(False)
            self.setCurrentText(shown)

    def show_name(self, settings: Any) -> None:
        """Show the name of settings without applying it; "custom" for None."""
        name = _CUSTOM
        if settings is not None:
            plain = presets.without_image(settings)
            name = plain.profile_name()
            if name == _CUSTOM:
                name = next((key for key, each in self._own.items() if each == plain), name)
        with QSignalBlocker(self):
            self.setCurrentText(name)

    def own(self) -> str:
        """Return the name of the preset that is shown; empty for a profile."""
        name = self.currentText()
        return name if name in self._own and name not in self.kind.presets else ""

    def _choose(self, name: str) -> None:
        if name in self.kind.presets:
            self.wanted.emit(self.kind.of(profile=name))
        elif name in self._own:
            self.wanted.emit(self._own[name])


class PresetButton(QToolButton):
    """A button beside the list: saves the settings shown as a preset, or deletes one."""

    def __init__(self, profile: ProfileInput, settings: Callable[[], Any]):
        super().__init__()
        self._profile, self._settings = profile, settings
        self.setText("…")
        self.setToolTip(wrapped("Save these settings as a preset of your own, or delete one."))
        self.setAccessibleName("Presets")
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setStyleSheet("QToolButton::menu-indicator { image: none; }")
        menu = QMenu(self)
        self.save_action = menu.addAction("Save as a preset …")
        self.delete_action = menu.addAction("")
        menu.aboutToShow.connect(self.offer)
        self.save_action.triggered.connect(lambda _=False: self.save())
        self.delete_action.triggered.connect(lambda _=False: self.delete())
        self.setMenu(menu)
        self.offer()

    def offer(self) -> None:
        """Offer to delete the preset that is shown."""
        name = self._profile.own()
        self.delete_action.setText(f"Delete {name}" if name else "Delete")
        self.delete_action.setEnabled(bool(name))

    def save(self) -> None:
        """Ask for a name, and save the settings under it."""
        name = self._profile.own() or "my settings"
        name, agreed = QInputDialog.getText(self, "Save a preset", "Name:", text=name)
        if not agreed:
            return
        try:
            settings = self._settings()
            presets.save(settings, name)
        except SettingsError as error:
            show_error(in_panel(error))
            return
        self._profile.fill()
        self._profile.show_name(settings)

    def delete(self) -> None:
        """Delete the preset that is shown; the settings stay."""
        try:
            presets.delete(self._profile.kind, self._profile.own())
        except SettingsError as error:
            show_error(in_panel(error))
        self._profile.fill()
        self._profile.show_name(None)
