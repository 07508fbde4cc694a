"""List of the OpenCL devices of this machine."""

from __future__ import annotations

from qtpy.QtWidgets import QComboBox, QWidget

from napari_gpu_denoise._napari.parts import add_item, below, caption, narrow
from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers


class DeviceInput(QWidget):
    """The OpenCL devices of this machine, and below it the one that is used and why.

    Parameters
    ----------
    preferred : str or None
        Device of the preferences, taken by "Automatic".
    """

    def __init__(self, preferred: str | None = None):
        super().__init__()
        self._preferred = preferred
        self.box = QComboBox()
        self.box.setAccessibleName("Device")
        narrow(self.box)
        self.box.addItem("Automatic" if preferred is None else f"Automatic ({preferred})")
        self.caption = caption()
        below(self.box, self.caption, parent=self)
        self.box.currentIndexChanged.connect(lambda _: self.explain())

    def fill(self) -> None:
        """List the devices; the first call in a process loads the OpenCL drivers."""
        from napari_gpu_denoise.opencl import device

        load_bundled_drivers()
        for found in device.devices():
            add_item(self.box, str(found), found.index, found.problem or found.version)
            if found.problem:
                self.box.model().item(self.box.count() - 1).setEnabled(False)
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
