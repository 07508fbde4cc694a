"""List of the OpenCL devices of this machine."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QVBoxLayout, QWidget

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.parts import Caption, add_item, narrow, stack
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers


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
