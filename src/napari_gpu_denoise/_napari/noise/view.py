"""Controls, table and plots of the panel "Estimated noise", and their layout."""

from __future__ import annotations

import html

import napari.viewer
from qtpy.QtCore import QSignalBlocker
from qtpy.QtWidgets import QHBoxLayout, QWidget

from napari_gpu_denoise._napari.layer_panel import LayerPanel
from napari_gpu_denoise._napari.noise import plots, rows
from napari_gpu_denoise._napari.noise.plots import Plot
from napari_gpu_denoise._napari.parts import Caption, button, choice, form_layout, narrow, ruler
from napari_gpu_denoise.filters import BM3D, FILTERS
from napari_gpu_denoise.noise.models import AUTO, MODELS
from napari_gpu_denoise.noise.record import NoiseEstimate

WHOLE, VIEW, RECTANGLE, FLAT = "whole", "view", "rectangle", "flat"

REGIONS = {
    "Whole layer": WHOLE,
    "Current view": VIEW,
    "Rectangle in a Shapes layer": RECTANGLE,
    "Flat region, drawn": FLAT,
}
MODEL_CHOICES = {"Automatic": AUTO, **{each.title: each.name for each in MODELS if each.selectable}}


class NoiseView(LayerPanel):
    """Settings, then table and plots of the estimate, then what can be done with it."""

    title = "Estimated noise"

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer, "Image layer whose noise is measured.")
        self.channel = choice({"All": None}, "Channels to measure; each has its own noise.")
        self.region = choice(
            REGIONS,
            "Pixels to measure. Current view: the visible part of the current slice. Rectangle: "
            "its pixels in all slices. Flat region: an area without objects, such as background, "
            "in the slice on which it was drawn; its plain statistics are used.",
        )
        self.shapes = choice(
            {},
            "Shapes layer with the region: its selected shape, else the last one. For a rotated or "
            "round shape, the upright bounding rectangle is used.",
        )
        self.shapes.setAccessibleName("Shapes layer")
        self.shapes.setPlaceholderText("No Shapes layer")
        self.draw_button = button("Draw", "Draw a rectangle on the image, in a Shapes layer.")
        self.model = choice(MODEL_CHOICES, "Automatic chooses the best fit and gives the reason.")
        self.verdict, self.rows = Caption(rich=True), Caption(rich=True)
        self.curve = Plot("Variance against mean", "Mean (grey levels)", "Variance (grey levels²)")
        self.frames = Plot("Noise along time", "Time point", "Sigma (grey levels)")
        self.slices = Plot("Noise along slices", "Slice", "Sigma (grey levels)")
        self.correlation = Plot("Autocorrelation of noise", "Distance (pixels)", "Correlation")
        targets = {kind.title: kind.name for kind in FILTERS}
        self.target = choice({**targets, "Batch": BM3D.name}, "What to use this noise for.")
        self.use_button = button(
            "Use in", "Open this panel with this noise; a filter, with this layer."
        )
        code = "Copy Python code that measures this noise and filters with it."
        self.python_button = button("Copy Python call", code)
        self._lay_out()
        self.show_region(False)

    def _lay_out(self) -> None:
        for box in (self.region, self.model, self.shapes, self.channel):
            narrow(box, 8)
        self._drawn = QWidget()
        row = QHBoxLayout(self._drawn)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.shapes, 1)
        row.addWidget(self.draw_button)
        where = {"Channel": self.channel, "Region": self.region, "Shapes": self._drawn}
        layer = {"Image": self.layer, "Axes": self.axes}
        self._form = form_layout({**layer, **where, "Model": self.model})
        self.arrange(
            (self._form, ruler(), self.verdict, self.rows, *self.plots()),
            ((self.status,), (self.use_button, self.target), (self.python_button,)),
        )

    def plots(self) -> tuple[Plot, ...]:
        """Return the plots, from top to bottom."""
        return self.curve, self.frames, self.slices, self.correlation

    def show_region(self, drawn: bool) -> None:
        """Show the list of Shapes layers only for drawn regions."""
        self._show_row(self._drawn, drawn)

    def _show_row(self, control: QWidget, shown: bool) -> None:
        control.setVisible(shown)
        self._form.labelForField(control).setVisible(shown)

    def offer_channels(self, count: int) -> None:
        """List the channels, from 0; keep the choice if possible."""
        before = self.channel.currentData()
        with QSignalBlocker(self.channel):
            while self.channel.count() > 1:
                self.channel.removeItem(1)
            for number in range(count):
                self.channel.addItem(str(number), number)
            self.channel.setCurrentIndex(max(self.channel.findData(before), 0))
        self._show_row(self.channel, count > 1)

    def say(self, text: str, stressed: str = "") -> None:
        """Show a sentence in the status line, which is hidden without one."""
        super().say(text, stressed)
        self.status.setVisible(bool(text))

    def clear(self) -> None:
        """Show no estimate."""
        for widget in (self.verdict, self.rows):
            widget.clear()
            widget.hide()
        for plot in self.plots():
            plot.show_series(())
        self.use_button.setEnabled(False)

    def show_estimate(self, estimate: NoiseEstimate, planes: str) -> None:
        """Show an estimate; `planes` names those that were read."""
        verdict = estimate.verdict()
        self.verdict.setText(f"<b>{html.escape(verdict[:1].upper() + verdict[1:])}.</b>")
        self.rows.setText(rows.as_html(rows.table(estimate, planes)))
        self.verdict.show()
        self.rows.show()
        self.curve.show_series(plots.curve_series(estimate))
        self.frames.show_series(plots.along_series(estimate.frames))
        self.slices.show_series(plots.along_series(estimate.slices))
        distance = "Distance (pixels)" + ", dashed along y" * (len(estimate.spectra) > 1)
        self.correlation.show_series(plots.autocorrelation_series(estimate), distance)
        self.use_button.setEnabled(True)
