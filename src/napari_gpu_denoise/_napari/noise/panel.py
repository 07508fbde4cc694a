"""The panel "Estimated noise": layer, region, measurement, and use in a filter."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import napari.viewer
from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_gpu_denoise._napari import docks, parts
from napari_gpu_denoise._napari.inputs import REGIONS
from napari_gpu_denoise._napari.layers.source import MOVES
from napari_gpu_denoise._napari.model import FLAT
from napari_gpu_denoise._napari.noise import plots, rows
from napari_gpu_denoise._napari.noise.measuring import measure, verdict
from napari_gpu_denoise._napari.noise.plots import Plot
from napari_gpu_denoise._napari.panel import ImagePanel
from napari_gpu_denoise._napari.resolve import measurement
from napari_gpu_denoise._napari.run import NoiseRequest
from napari_gpu_denoise._napari.snippets import noise_call
from napari_gpu_denoise._napari.tasks import Outcome, Task
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters import BM3D
from napari_gpu_denoise.noise.models import AUTO, MODELS
from napari_gpu_denoise.noise.record import NoiseEstimate

MODEL_CHOICES = {"Automatic": AUTO, **{each.title: each.name for each in MODELS}}

_SETTLED = 250  # milliseconds without a change before measuring begins


class NoiseResult(QWidget):
    """An estimate of noise: verdict, table and plots; hidden without one."""

    def __init__(self) -> None:
        super().__init__()
        self.verdict, self.rows = parts.Caption(rich=True), parts.Caption(rich=True)
        self.curve = Plot("Variance against mean", "Mean (grey levels)", "Variance (grey levels²)")
        self.frames = Plot("Noise along time", "Time point", "Sigma (grey levels)")
        self.slices = Plot("Noise along slices", "Slice", "Sigma (grey levels)")
        self.correlation = Plot("Autocorrelation of noise", "Distance (pixels)", "Correlation")
        # One after another: pyqtgraph takes long to load, and to make each plot.
        self._to_draw: list[Callable[[], Any]] = []
        self._drawing = parts.settling_timer(self, 0, self._draw_next)
        drawn = self.curve, self.frames, self.slices, self.correlation
        parts.stack(QVBoxLayout(self), (self.verdict, self.rows, *drawn), spacing=8)

    def clear(self) -> None:
        """Show no estimate."""
        self._to_draw = []
        self.verdict.clear()
        self.hide()

    def show_estimate(self, estimate: NoiseEstimate) -> None:
        """Show an estimate and its verdict."""
        self.verdict.setText(f"<b>{html.escape(verdict(estimate))}</b>")
        self.rows.setText(rows.as_html(rows.noise_rows(estimate)))
        self.show()
        distance = "Distance (pixels)" + ", dashed along y" * (len(estimate.spectra) > 1)
        correlation = plots.autocorrelation_series(estimate), distance
        self._to_draw = [
            plots.load_library,
            partial(self.curve.show_series, plots.curve_series(estimate)),
            partial(self.frames.show_series, plots.along_series(estimate.frames)),
            partial(self.slices.show_series, plots.along_series(estimate.slices)),
            partial(self.correlation.show_series, *correlation),
        ]
        self._drawing.start()

    def _draw_next(self) -> None:
        if self._to_draw:
            self._to_draw.pop(0)()
            self._drawing.start()


class NoisePanel(ImagePanel):
    """Measures noise of the layer that is selected, off the GUI thread, whenever it changes."""

    title = "Estimated noise"
    failed = "Not measured."
    out_of_memory = "There is not enough memory for the measurement: choose a region."

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(
            viewer,
            "Image layer whose noise is measured.",
            {**REGIONS, "Flat region, drawn": FLAT},
            "Pixels to measure. Current view: the visible part of the current slice. Rectangle: "
            "its pixels in all slices. Flat region: an area without objects, such as background, "
            "in the slice on which it was drawn; its plain statistics are used.",
        )
        self.kind = parts.choice(
            MODEL_CHOICES, "Automatic chooses the best fit and gives the reason."
        )
        self.result = NoiseResult()
        self.target = parts.choice({name: name for name in ("Filter", "Batch")}, "A panel.")
        self.use_button = parts.button(
            "Use in", "Open this panel with this noise; Filter, with this layer."
        )
        self.add_code_button(
            "that measures this noise and filters with it",
            lambda: noise_call(self._request(), BM3D.name, self.estimate()),
        )
        self._outcome: Outcome | None = None
        self._measuring = Task(self, measure, self.title, alone=True)
        self._settling = parts.settling_timer(self, _SETTLED, self._on_settled)
        self._lay_out()
        self._connect()
        self._take_layer()

    def _lay_out(self) -> None:
        where = {"Image": self.layer, "Axes": self.axes, "Region": self.region}
        form = parts.form_layout({**where, "Model": parts.narrow(self.kind, 8)})
        self.arrange(
            (form, parts.ruler(), self.result),
            ((self.status,), (self.use_button, self.target), (self.copy_button,)),
        )

    def say(self, text: str, stressed: str = "") -> None:
        """Show a sentence in the status line, which is hidden without one."""
        super().say(text, stressed)
        self.status.setVisible(bool(text))

    def _connect(self) -> None:
        self._measuring.ended.connect(self._on_done)
        self.layer.chosen.connect(self._take_layer)
        self.axes.changed.connect(self.measure)
        self.kind.currentIndexChanged.connect(self.measure)
        self.use_button.clicked.connect(self.use)
        changed = self._viewer.layers.selection.events.changed
        self.follow("selection", [(changed, self.layer.follow_selection)])

    def estimate(self) -> NoiseEstimate | None:
        """Return the estimate shown, or None."""
        return None if self._outcome is None else self._outcome.value

    def measure(self, _: object = None) -> None:
        """Measure again once the settings stop changing; until then the old values stay."""
        self.stop()
        if self._closed:
            return
        if self.layer.layer() is None:
            self._on_settled()
            return
        self.say("Measuring …")
        self._settling.start()

    def stop(self) -> None:
        """Stop measuring: the panel is being closed, or set to something else."""
        self._settling.stop()
        self._measuring.drop()
        self._outcome = None
        self.use_button.setEnabled(False)

    def use(self) -> None:
        """Pass the estimate to the panel that is chosen."""
        outcome, layer = self._outcome, self.layer.layer()
        if outcome is None or layer is None:
            return
        place = outcome.request.part.place
        origin = f"{layer.name}, {place}" if place else layer.name
        panel = docks.open_panel(self._viewer, self.target.currentData())
        panel.take_noise(layer, self.axes.axes(), outcome.value, origin)
        self.say(f"{self.target.currentText()} uses this noise from now on.")

    def _request(self) -> NoiseRequest:
        kind, dims = self.kind.currentData(), self._viewer.dims
        return measurement(self.model, self.layer.layer(), dims, kind, whole=False)

    def _take_layer(self) -> None:
        self.result.clear()
        self.model.layers = self.layer.layers()[:1]
        moved = [getattr(each.events, name) for each in self.model.layers for name in MOVES]
        self.follow("layers", [(event, self._on_moved) for event in moved])
        self.offer_axes()

    def _follow_region(self, event: object = None) -> None:
        super()._follow_region()
        self.measure()

    def _on_moved(self, event: Any = None) -> None:
        if event is not None and event.type == "data":
            self.offer_axes()
        elif not self.model.region.whole:
            self.measure()

    def _on_settled(self) -> None:
        # Not before: what the camera shows is known when it was drawn.
        try:
            self._measuring.start(self._request())
        except DenoiseError as error:
            self._give_up(error)

    def _on_done(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._give_up(outcome.error)
            return
        self._outcome = outcome
        self.result.show_estimate(outcome.value)
        self.use_button.setEnabled(True)
        self.say("")
        self._keep(outcome)

    def _keep(self, outcome: Outcome) -> None:
        """Let runs know the noise that they would have measured themselves."""
        request, layer = outcome.request, self.layer.layer()
        if request.part.place or request.flat or request.model != AUTO or layer is None:
            return
        # Runs do not look for structured noise.
        notes = tuple(n for n in outcome.value.notes if getattr(n, "code", "") != "structured")
        memory = request.memory
        memory.estimate = memory.estimate or replace(outcome.value, notes=notes)

    def _give_up(self, error: Exception) -> None:
        self.stop()
        self.result.clear()
        self.show_error(error)
