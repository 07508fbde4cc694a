"""The panel "Estimated noise": layer, region, measurement, and use in a filter."""

from __future__ import annotations

import html
import math
from dataclasses import replace
from typing import Any

import napari.viewer
from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_gpu_denoise._napari import docks, parts, preferences
from napari_gpu_denoise._napari.inputs import REGIONS, RegionInput
from napari_gpu_denoise._napari.layers import regions
from napari_gpu_denoise._napari.layers.source import MOVES
from napari_gpu_denoise._napari.model import FLAT, memory_of
from napari_gpu_denoise._napari.noise import plots, rows
from napari_gpu_denoise._napari.noise.measuring import measure, verdict
from napari_gpu_denoise._napari.noise.plots import Plot
from napari_gpu_denoise._napari.panel import LayerPanel
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
        parts.stack(QVBoxLayout(self), (self.verdict, self.rows, *self.plots()), spacing=8)

    def plots(self) -> tuple[Plot, ...]:
        """Return the plots, from top to bottom."""
        return self.curve, self.frames, self.slices, self.correlation

    def clear(self) -> None:
        """Show no estimate."""
        for widget in (self.verdict, self.rows):
            widget.clear()
            widget.hide()
        for plot in self.plots():
            plot.show_series(())

    def show_estimate(self, estimate: NoiseEstimate, planes: str) -> None:
        """Show an estimate and its verdict; `planes` names those that were read."""
        self.verdict.setText(f"<b>{html.escape(verdict(estimate))}</b>")
        self.rows.setText(rows.as_html(rows.table(estimate, planes)))
        self.verdict.show()
        self.rows.show()
        self.curve.show_series(plots.curve_series(estimate))
        self.frames.show_series(plots.along_series(estimate.frames))
        self.slices.show_series(plots.along_series(estimate.slices))
        distance = "Distance (pixels)" + ", dashed along y" * (len(estimate.spectra) > 1)
        self.correlation.show_series(plots.autocorrelation_series(estimate), distance)


class NoisePanel(LayerPanel):
    """Measures noise of the layer that is selected, off the GUI thread, whenever it changes."""

    title = "Estimated noise"
    failed = "Not measured."
    out_of_memory = "There is not enough memory for the measurement: choose a region."

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(viewer, "Image layer whose noise is measured.")
        self.region = RegionInput(
            self._viewer,
            {**REGIONS, "Flat region, drawn": FLAT},
            "Pixels to measure. Current view: the visible part of the current slice. Rectangle: "
            "its pixels in all slices. Flat region: an area without objects, such as background, "
            "in the slice on which it was drawn; its plain statistics are used.",
        )
        self.model = parts.choice(
            MODEL_CHOICES, "Automatic chooses the best fit and gives the reason."
        )
        self.result = NoiseResult()
        self.target = parts.choice({name: name for name in ("Filter", "Batch")}, "A panel.")
        self.use_button = parts.button(
            "Use in", "Open this panel with this noise; Filter, with this layer."
        )
        self.add_code_button("that measures this noise and filters with it")
        self.command_action.setVisible(False)
        self._outcome: Outcome | None = None
        self._measuring = Task(self, measure, self.title, alone=True)
        self._settling = parts.settling_timer(self, _SETTLED, self._on_settled)
        self._lay_out()
        self._connect()
        self._take_layer()

    def _lay_out(self) -> None:
        where = {"Image": self.layer, "Axes": self.axes, "Region": self.region}
        form = parts.form_layout({**where, "Model": parts.narrow(self.model, 8)})
        self.arrange(
            (form, parts.ruler(), self.result),
            ((self.status,), (self.use_button, self.target), (self.copy_button,)),
        )

    def say(self, text: str, stressed: str = "") -> None:
        """Show a sentence in the status line, which is hidden without one."""
        super().say(text, stressed)
        self.status.setVisible(bool(text))

    def _clear(self) -> None:
        self.result.clear()
        self.use_button.setEnabled(False)

    def _connect(self) -> None:
        self._measuring.ended.connect(self._on_done)
        self.layer.chosen.connect(self._take_layer)
        self.axes.changed.connect(self.measure)
        self.model.currentIndexChanged.connect(self.measure)
        self.region.changed.connect(self.measure)
        self.region.shapes.chosen.connect(self._follow)
        self.region.draw_button.clicked.connect(lambda: self.region.draw(self.layer.layer()))
        self.use_button.clicked.connect(self.use)
        changed = self._viewer.layers.selection.events.changed
        self.follow("selection", [(changed, self.layer.follow_selection)])

    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        super().reset_choices(event)
        self.region.refresh()

    def estimate(self) -> NoiseEstimate | None:
        """Return the estimate shown, or None."""
        return None if self._outcome is None else self._outcome.value

    def measure(self, _: object = None) -> None:
        """Measure again once the settings stop changing; until then the old values stay."""
        self._drop()
        self.use_button.setEnabled(False)
        if self._closed:
            return
        if self.layer.layer() is None:
            self._on_settled()
            return
        self.say("Measuring …")
        self._settling.start()

    def stop(self) -> None:
        """Stop measuring; the panel is being closed."""
        self._settling.stop()
        self._measuring.drop()

    def use(self) -> None:
        """Pass the estimate to the panel that is chosen."""
        estimate, layer = self.estimate(), self.layer.layer()
        if estimate is None or layer is None:
            return
        place = self._outcome.request.part.place
        origin = f"{layer.name}, {place}" if place else layer.name
        panel = docks.open_panel(self._viewer, self.target.currentData())
        panel.take_noise(layer, self.axes.axes(), estimate, origin)
        self.say(f"{self.target.currentText()} uses this noise from now on.")

    def python_code(self) -> str:
        """Return Python code that measures, and filters with the result."""
        return noise_call(self._request(), BM3D.name, self.estimate())

    def _request(self) -> NoiseRequest:
        source, axes = self.captured(), self.axes.axes()
        part = self.region.region().part(self.layer.layer(), axes, self._viewer.dims)
        device = preferences.read().device
        return NoiseRequest(
            source=source,
            axes=axes,
            part=regions.without_alpha(part, source.data.shape) if source.alpha else part,
            model=self.model.currentData(),
            flat=self.region.region().kind == FLAT,
            device=device,
            memory=memory_of(self.layer.layer(), AUTO, axes, None, "raise", device),
        )

    def _take_layer(self) -> None:
        self._clear()
        self._follow()
        self.offer_axes()

    def _follow(self) -> None:
        """Follow changes of the chosen layer, and of the region."""
        layer, connections = self.layer.layer(), self.region.events()
        if layer is not None:
            connections += [(getattr(layer.events, name), self._on_moved) for name in MOVES]
        self.follow("layers", connections)

    def _on_moved(self, event: Any = None) -> None:
        if event is not None and event.type == "data":
            self.offer_axes()
        elif not self.region.region().whole:
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
        self.result.show_estimate(outcome.value, _planes(outcome))
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
        self._settling.stop()
        self._drop()
        self._clear()
        self.show_error(error)

    def _drop(self) -> None:
        self._measuring.drop()
        self._outcome = None


def _planes(outcome: Outcome) -> str:
    """Return how many planes were read, and of which part."""
    part = outcome.request.part
    spans = [at for at in part.index if isinstance(at, slice)]
    total = math.prod(
        at.stop - at.start
        for at, letter in zip(spans, part.axes, strict=True)
        if letter not in "YX"
    )
    read = f"{outcome.value.planes} of {total} plane{'s' * (total != 1)}"
    return f"{read}; {part.place}" if part.place else read
