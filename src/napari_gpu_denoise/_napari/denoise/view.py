"""Controls of a filter's panel, and their layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QProgressBar
from superqt import QCollapsible

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.denoise.device_input import DeviceInput
from napari_gpu_denoise._napari.denoise.form import SettingsForm
from napari_gpu_denoise._napari.denoise.maps import offer_of
from napari_gpu_denoise._napari.denoise.noise_input import NoiseInput
from napari_gpu_denoise._napari.panel import Panel
from napari_gpu_denoise._napari.parts import (
    button,
    caption,
    choice,
    folded,
    form_layout,
    ruler,
    wrapped,
)

if TYPE_CHECKING:
    import napari.viewer

NO_TIME = "Name an axis T above to use it."


class DenoiseView(Panel):
    """Controls of one filter, Run and Cancel, progress and a status line."""

    #: An entry of FILTERS; set by the subclass.
    filter: ClassVar[Any]

    def __init__(self, viewer: napari.viewer.Viewer):
        tip = "Image layer to denoise. The layer itself is never changed."
        super().__init__(viewer, tip, self.filter)
        self.noise = NoiseInput()
        offer = offer_of(self.filter)
        self.form = SettingsForm(self.filter, without=() if offer is None else (offer.setting,))
        self.dtype = choice(
            {"Same as the layer": None, "float32 (keeps fractions)": "float32"},
            "Data type of the result. Values outside the range of the layer's type are clipped to "
            "it and counted.",
        )
        self.nonfinite = choice(
            {"Stop with an error": "raise", "Leave them in place": "keep"},
            "Treatment of pixels that are NaN or infinite.",
        )
        self.device = DeviceInput(preferences.read().device)
        self.maps = QCheckBox("" if offer is None else offer.label)
        self.maps.setToolTip("" if offer is None else wrapped(offer.tip))
        self.maps.setHidden(offer is None)
        self.one_frame = QCheckBox()
        self.run_button = button("", "Denoise the layer; the result is a new layer.")
        self.cancel_button = button(
            "Cancel", "Stop after the present tile or frame; no layer is added."
        )
        self.reset_button = button(
            "Reset to defaults", "Set everything but the layer to its default."
        )
        self.python_button = button(
            "Copy Python call", "Copy Python code that does the same as Run."
        )
        self.command_button = button(
            "Copy command line", "Copy a shell command that does the same."
        )
        self.progress = QProgressBar()
        keep_room = self.progress.sizePolicy()
        keep_room.setRetainSizeWhenHidden(True)
        self.progress.setSizePolicy(keep_room)
        self._lay_out()
        self.show_frame(None, NO_TIME)
        self.show_idle()

    def _lay_out(self) -> None:
        summary = caption()
        summary.setText(self.filter.summary)
        top = form_layout()
        top.addRow("Image", self.layer)
        top.addRow("Axes", self.axes)
        top.addRow("Noise", self.noise)
        output = form_layout()
        output.addRow("Result type", self.dtype)
        output.addRow("NaN, infinity", self.nonfinite)
        output.addRow("Device", self.device)
        reset = QHBoxLayout()
        reset.addWidget(self.reset_button, alignment=Qt.AlignmentFlag.AlignRight)
        self.arrange(
            (summary, top, ruler(), self.form, folded("Result and device", output), reset),
            (
                (self.maps,),
                (self.one_frame,),
                (self.run_button, self.cancel_button),
                (self.progress,),
                (self.status,),
                (self.python_button, self.command_button),
            ),
        )

    def reset(self) -> None:
        """Set everything but the layer to its default."""
        self.form.reset()
        self.noise.reset()
        self.device.reset()
        self.dtype.setCurrentIndex(0)
        self.nonfinite.setCurrentIndex(0)
        self.one_frame.setChecked(False)
        self.maps.setChecked(False)
        self.offer_axes()

    def sections(self) -> list[QCollapsible]:
        """Return the parts of the panel that can be folded away."""
        return self.findChildren(QCollapsible)

    def show_frame(self, frame: int | None, reason: str = "") -> None:
        """Offer to filter only the frame in view, or show the reason why not."""
        usable = not reason
        self.one_frame.setEnabled(usable)
        number = f": {frame}" if usable and frame is not None else ""
        self.one_frame.setText(f"Only the frame shown{number}")
        tip = "Filter only the frame at the viewer's time slider, to try settings. The pixels are "
        tip += "the same as in a run of all frames."
        self.one_frame.setToolTip(wrapped(reason or tip))
        chosen = usable and self.one_frame.isChecked()
        self.run_button.setText(f"Run frame{number.replace(':', '')}" if chosen else "Run")

    def show_running(self) -> None:
        """Show that a run can be cancelled, not started."""
        self.run_button.setEnabled(False)
        self.cancel_button.setEnabled(True)
        self.progress.setRange(0, 0)
        self.progress.setVisible(True)
        self.say("Starting …")

    def show_idle(self) -> None:
        """Show that the next run can be started."""
        self.run_button.setEnabled(True)
        self.cancel_button.setEnabled(False)
        self.progress.setVisible(False)
