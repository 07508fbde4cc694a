"""What the panel of a filter looks like; what it does is in `panel`."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, ClassVar

from qtpy.QtCore import QSize, Qt
from qtpy.QtWidgets import (
    QCheckBox,
    QGridLayout,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)
from superqt import QCollapsible

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.axes_input import AxesInput
from napari_gpu_denoise._napari.form import SettingsForm
from napari_gpu_denoise._napari.inputs import DeviceInput, LayerInput
from napari_gpu_denoise._napari.maps import offer_of
from napari_gpu_denoise._napari.noise_input import NoiseInput
from napari_gpu_denoise._napari.parts import (
    WIDTH,
    Scrolled,
    caption,
    choice,
    folded,
    form_layout,
    ruler,
    wrapped,
)

if TYPE_CHECKING:
    import napari.viewer


class PanelView(QWidget):
    """Controls of one filter, Run and Cancel, progress and a status line, and their layout.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
        Where layers are taken from.
    """

    #: An entry of FILTERS; set by the subclass.
    filter: ClassVar[Any]

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__()
        self.title = self.filter.title
        self.layer = LayerInput(viewer)
        self.axes = AxesInput(self.filter)
        self.noise = NoiseInput()
        offer = offer_of(self.filter)
        self.form = SettingsForm(self.filter, without=() if offer is None else (offer.setting,))
        self.dtype = choice(
            {"Same as the layer": None, "float32 (keeps fractions)": "float32"},
            "Number type of the result. Values that do not fit the layer's type are clipped to its "
            "range, and their number is told.",
        )
        self.nonfinite = choice(
            {"Stop and say so": "raise", "Leave them in place": "keep"},
            "What to do when the image holds NaN or infinity.",
        )
        self.device = DeviceInput(preferences.read().device)
        self.maps = QCheckBox("Show what the filter saw")
        if offer is None:
            self.maps.hide()
        self.one_frame = QCheckBox()
        self.run_button = QPushButton()
        self.cancel_button = QPushButton("Cancel")
        self.reset_button = QPushButton("Reset to defaults")
        self.python_button = QPushButton("Copy Python call")
        self.command_button = QPushButton("Copy command line")
        self.progress = QProgressBar()
        self.status = caption()
        # Not left to Qt's guess, which takes escaped text without tags for plain text.
        self.status.setTextFormat(Qt.TextFormat.RichText)
        self._arrange()
        self.show_frame(None, "Name an axis T above to use it.")
        self.show_idle()

    def _arrange(self) -> None:
        what = caption()
        what.setText(self.filter.summary)
        top = form_layout()
        top.addRow("Image", self.layer)
        top.addRow("Axes", self.axes)
        top.addRow("Noise", self.noise)
        output = form_layout()
        output.addRow("Result type", self.dtype)
        output.addRow("NaN, infinity", self.nonfinite)
        output.addRow("Device", self.device)

        inside = QWidget()
        rows = QVBoxLayout(inside)
        rows.setContentsMargins(0, 0, 4, 0)
        rows.setSpacing(8)
        rows.addWidget(what)
        rows.addLayout(top)
        rows.addWidget(ruler())
        rows.addWidget(self.form)
        rows.addWidget(folded("Result and device", output))
        rows.addWidget(self.reset_button, alignment=Qt.AlignmentFlag.AlignRight)
        rows.addStretch(1)
        scrolled = Scrolled(inside)

        buttons = QGridLayout()
        buttons.setSpacing(6)
        buttons.addWidget(self.maps, 0, 0, 1, 2)
        buttons.addWidget(self.one_frame, 1, 0, 1, 2)
        buttons.addWidget(self.run_button, 2, 0)
        buttons.addWidget(self.cancel_button, 2, 1)
        buttons.addWidget(self.progress, 3, 0, 1, 2)
        buttons.addWidget(self.status, 4, 0, 1, 2)
        buttons.addWidget(self.python_button, 5, 0)
        buttons.addWidget(self.command_button, 5, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.addWidget(scrolled, 1)
        layout.addLayout(buttons)

        keep_room = self.progress.sizePolicy()
        keep_room.setRetainSizeWhenHidden(True)
        self.progress.setSizePolicy(keep_room)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        self.maps.setToolTip(
            wrapped(
                "After a run adds layers beside the result: the class of each pixel (low slope, "
                "edge, isoline), and the directions of isolines, hidden at first."
            )
        )
        self.run_button.setToolTip(wrapped("Denoise the layer; the result is a new layer."))
        self.cancel_button.setToolTip(wrapped("Stop at the next tile or frame; no layer is added."))
        self.python_button.setToolTip(wrapped("Copy the Python lines that do what Run does."))
        self.command_button.setToolTip(wrapped("Copy the shell command that does what Run does."))

    def sizeHint(self) -> QSize:
        """Return a width at which rows can be read well."""
        hint = super().sizeHint()
        return QSize(max(hint.width(), WIDTH), hint.height())

    def sections(self) -> list[QCollapsible]:
        """Return the parts of the panel that can be folded away."""
        return self.findChildren(QCollapsible)

    def say(self, text: str, stressed: str = "") -> None:
        """Show a sentence in the status line, a word of it in bold before it."""
        lead = f"<b>{stressed}</b> " if stressed else ""
        self.status.setText(lead + html.escape(text))

    def show_frame(self, frame: int | None, reason: str = "") -> None:
        """Offer to filter only the frame the viewer shows, or say why that cannot be."""
        usable = not reason
        self.one_frame.setEnabled(usable)
        number = f": {frame}" if usable and frame is not None else ""
        self.one_frame.setText(f"Only the frame shown{number}")
        what = "Filters only the frame at the viewer's time slider, to try settings on. Its pixels "
        what += "are those of the whole run."
        self.one_frame.setToolTip(wrapped(reason or what))
        chosen = usable and self.one_frame.isChecked()
        self.run_button.setText(f"Run frame{number.replace(':', '')}" if chosen else "Run")

    def show_running(self) -> None:
        """Look as in a run: it can be cancelled, not started."""
        self.run_button.setEnabled(False)
        self.cancel_button.setEnabled(True)
        self.progress.setRange(0, 0)
        self.progress.setVisible(True)
        self.say("Starting …")

    def show_idle(self) -> None:
        """Look ready for the next run."""
        self.run_button.setEnabled(True)
        self.cancel_button.setEnabled(False)
        self.progress.setVisible(False)
