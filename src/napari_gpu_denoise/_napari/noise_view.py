"""What the panel "Estimated noise" looks like; what it does is in `noise_panel`."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from qtpy.QtCore import QSize, Qt
from qtpy.QtWidgets import (
    QComboBox,
    QGridLayout,
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_gpu_denoise._napari import noise_words
from napari_gpu_denoise._napari.axes_input import AxesInput
from napari_gpu_denoise._napari.inputs import LayerInput
from napari_gpu_denoise._napari.parts import (
    WIDTH,
    Scrolled,
    caption,
    choice,
    form_layout,
    ruler,
    wrapped,
)
from napari_gpu_denoise._napari.plots import Plot
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate

if TYPE_CHECKING:
    import napari.viewer

WHOLE, VIEW, RECTANGLE, FLAT = "whole", "view", "rectangle", "flat"

REGIONS = {
    "Whole layer": WHOLE,
    "What the camera shows": VIEW,
    "Rectangle of a Shapes layer": RECTANGLE,
    "Flat region I draw": FLAT,
}
MODELS = {
    "Automatic": "auto",
    "Gaussian": "gaussian",
    "Poisson-Gaussian": "poisson-gaussian",
    "Rician": "rician",
    "Speckle": "speckle",
}


class NoiseView(QWidget):
    """Choices on top, then what was measured in words and plots, and what to do with it.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
        Where layers are taken from.
    """

    title = "Estimated noise"

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__()
        self.layer = LayerInput(viewer, "Image layer whose noise is measured.", results=True)
        self.axes = AxesInput()
        self.channel = choice({"All": None}, "Channels to measure; each has its own noise.")
        self.region = choice(
            REGIONS,
            "Where to measure. The camera: the pixels in view, of the slice shown. A rectangle: "
            "its pixels in all slices. A flat region holds no object, such as background: its "
            "plain statistics count, in the slice it was drawn on.",
        )
        self.shapes = QComboBox()
        self.shapes.setAccessibleName("Shapes layer")
        self.shapes.setToolTip(
            wrapped(
                "Its selected shape counts, else the last one; of a turned or round shape the "
                "upright rectangle around it."
            )
        )
        self.shapes.setPlaceholderText("No Shapes layer")
        self.draw_button = QPushButton("Draw")
        self.draw_button.setToolTip(
            wrapped("Add a Shapes layer, and drag a rectangle over the image.")
        )
        self.model = choice(
            MODELS, "Kind of noise; Automatic chooses one by what the pixels say, and tells why."
        )
        self.verdict = caption()
        self.rows = caption()
        for label in (self.verdict, self.rows):
            # Not left to Qt's guess, which takes escaped text without tags for plain text.
            label.setTextFormat(Qt.TextFormat.RichText)
        self.curve = Plot("Variance against mean", "Mean (grey levels)", "Variance (grey levels²)")
        self.frames = Plot("Noise along time", "Time point", "Sigma (grey levels)")
        self.slices = Plot("Noise along slices", "Slice", "Sigma (grey levels)")
        self.correlation = Plot("Noise of neighbours", "Distance (pixels)", "Correlation")
        self.status = caption()
        self.status.setTextFormat(Qt.TextFormat.RichText)
        self.target = choice(
            {kind.title: kind.name for kind in FILTERS}, "Filter that gets model and sigma."
        )
        self.use_button = QPushButton("Use in")
        self.use_button.setToolTip(
            wrapped(
                "Open the panel of this filter, for the same layer, with the noise as measured."
            )
        )
        self.python_button = QPushButton("Copy Python call")
        self.python_button.setToolTip(
            wrapped("Copy the Python lines that measure the same, and filter with it.")
        )
        self._arrange()
        self.show_region(False)
        self.clear()

    def _arrange(self) -> None:
        for box in (self.region, self.model, self.shapes, self.channel):
            box.setSizeAdjustPolicy(
                QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
            box.setMinimumContentsLength(8)
        self._form = form_layout()
        self._form.addRow("Image", self.layer)
        self._form.addRow("Axes", self.axes)
        self._form.addRow("Channel", self.channel)
        self._form.addRow("Region", self.region)
        self._drawn = QWidget()
        row = QHBoxLayout(self._drawn)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.shapes, 1)
        row.addWidget(self.draw_button)
        self._form.addRow("Shapes", self._drawn)
        self._form.addRow("Model", self.model)

        inside = QWidget()
        rows = QVBoxLayout(inside)
        rows.setContentsMargins(0, 0, 4, 0)
        rows.setSpacing(8)
        rows.addLayout(self._form)
        rows.addWidget(ruler())
        for widget in (self.verdict, self.rows, *self.plots()):
            rows.addWidget(widget)
        rows.addStretch(1)

        below = QGridLayout()
        below.setSpacing(6)
        below.addWidget(self.status, 0, 0, 1, 2)
        below.addWidget(self.use_button, 1, 0)
        below.addWidget(self.target, 1, 1)
        below.addWidget(self.python_button, 2, 0, 1, 2)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.addWidget(Scrolled(inside), 1)
        layout.addLayout(below)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)

    def sizeHint(self) -> QSize:
        """Return a width at which plots and rows can be read well."""
        hint = super().sizeHint()
        return QSize(max(hint.width(), WIDTH), hint.height())

    def plots(self) -> tuple[Plot, ...]:
        """Return the plots, from top to bottom."""
        return self.curve, self.frames, self.slices, self.correlation

    def show_region(self, drawn: bool) -> None:
        """Offer Shapes layers only where the region is drawn."""
        self._drawn.setVisible(drawn)
        self._form.labelForField(self._drawn).setVisible(drawn)

    def offer_channels(self, count: int) -> None:
        """Offer channels, from 0; the choice stays where it can."""
        before = self.channel.currentData()
        self.channel.blockSignals(True)
        while self.channel.count() > 1:
            self.channel.removeItem(1)
        for number in range(count):
            self.channel.addItem(str(number), number)
        self.channel.setCurrentIndex(max(self.channel.findData(before), 0))
        self.channel.blockSignals(False)
        self.channel.setVisible(count > 1)
        self._form.labelForField(self.channel).setVisible(count > 1)

    def say(self, text: str, stressed: str = "") -> None:
        """Show a sentence in the status line, a word of it in bold before it."""
        lead = f"<b>{stressed}</b> " if stressed else ""
        self.status.setText(lead + html.escape(text))
        self.status.setVisible(bool(text))

    def clear(self) -> None:
        """Show no estimate."""
        self.verdict.clear()
        self.rows.clear()
        for widget in (self.verdict, self.rows):
            widget.hide()
        for plot in self.plots():
            plot.show_series(())
        self.show_usable(False)

    def show_usable(self, usable: bool) -> None:
        """Allow to hand the estimate on, or not."""
        self.use_button.setEnabled(usable)

    def show_estimate(self, estimate: NoiseEstimate, read: str) -> None:
        """Show an estimate, and what was read for it."""
        verdict = estimate.verdict()
        self.verdict.setText(f"<b>{html.escape(verdict[:1].upper() + verdict[1:])}.</b>")
        rows = [
            *noise_words.parameters(estimate),
            ("Because", estimate.reason),
            ("Noise is", noise_words.whiteness(estimate)),
            ("Clipped", noise_words.clipped(estimate)),
            ("Channels", noise_words.shared(estimate)),
            ("Read", read),
            ("By", estimate.method),
            *(("Note", note) for note in estimate.notes),
        ]
        self.rows.setText(_table([row for row in rows if row[1]]))
        for widget in (self.verdict, self.rows):
            widget.show()
        self.curve.show_series(noise_words.curve_series(estimate))
        self.frames.show_series(noise_words.along_series(estimate.frames))
        self.slices.show_series(noise_words.along_series(estimate.slices))
        distance = "Distance (pixels)"
        if len(estimate.spectra) > 1:
            distance += ", dashed along y"
        self.correlation.show_series(noise_words.autocorrelation_series(estimate), distance)
        self.show_usable(True)


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><td style='padding-right: 8px'>{html.escape(name)}</td>"
        f"<td>{html.escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<table cellspacing='0' cellpadding='1'>{cells}</table>"
