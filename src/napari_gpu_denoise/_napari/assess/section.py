"""How good is this? The section of a filter's panel: button, half a page, plot and residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from napari.viewer import Viewer
from qtpy.QtWidgets import QFileDialog, QFormLayout, QHBoxLayout, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.assess.judging import (
    Judging,
    Outcome,
    error_map,
    judging_of,
    note,
    steps,
)
from napari_gpu_denoise._napari.assess.pictures import Residuals
from napari_gpu_denoise._napari.layer_panel import LayerPanel
from napari_gpu_denoise._napari.layers.results import NewLayer, add_layer, at_places
from napari_gpu_denoise._napari.noise.plots import Plot, Series
from napari_gpu_denoise._napari.noise.rows import Row, as_html
from napari_gpu_denoise._napari.parts import Caption, Section, button, stack
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.assessment.record import Assessment
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files.report import write_report

TITLE = "How good is this?"
_MOST_CHANNELS = 6  # drawn in one plot
_FORMATS = "Page with pictures (*.html);;JSON (*.json);;Text (*.txt)"


class AssessSection(Section):
    """Tells how good the result of a panel would be, for the region in view, off the GUI thread.

    `panel` is that of a filter, whose `remembered` request is assessed; `runs` makes the `Runs` of
    some steps.
    """

    def __init__(self, viewer: Viewer, panel: LayerPanel, runs: Callable[..., Any]):
        form = QFormLayout()
        super().__init__(TITLE, form)
        self.start_button = button(
            TITLE,
            "Predict error, PSNR and detail kept in the region in view, from the noisy image "
            "alone. The filter runs about nine times; no layer is added.",
        )
        self.map_button = button(
            "Error map as a layer", "Add the expected error around each pixel as a layer."
        )
        self.save_button = button("Save report …", "Save this as a page, as JSON or as text.")
        self.words, self.status = Caption(rich=True), Caption()
        self.plot = Plot("Detail kept", "Cycles per pixel", "Contrast")
        self.residuals = Residuals()
        self.assessment: Assessment | None = None
        self._judging: Judging | None = None
        self._viewer, self._panel = viewer, panel
        form.addRow(self._laid_out())
        self._runs = runs(self, steps)
        self._runs.staged.connect(lambda stage: self.status.setText(stage.words))
        self._runs.ended.connect(self._on_outcome)
        self._runs.stopped.connect(self._on_stopped)
        self.start_button.clicked.connect(self.start)
        self.map_button.clicked.connect(self.add_map)
        self.save_button.clicked.connect(self.save)
        self.show_assessment(None)

    def _laid_out(self) -> QWidget:
        inside, buttons = QWidget(), QHBoxLayout()
        buttons.addWidget(self.map_button)
        buttons.addWidget(self.save_button)
        parts = (self.start_button, self.status, self.words, self.plot, self.residuals, buttons)
        stack(QVBoxLayout(inside), parts, spacing=6)
        return inside

    @property
    def running(self) -> bool:
        """Whether an assessment is in progress."""
        return self._runs.running

    def start(self) -> None:
        """Assess what is in view, or stop; errors are shown in the panel."""
        if self._runs.running:
            self.stop()
            return
        panel, layer = self._panel, self._panel.layer.layer()
        try:
            request = panel.remembered()
            judging = judging_of(request, layer, self._viewer.dims)
        except DenoiseError as error:
            self.status.setText(in_panel(error))
            return
        self.start_button.setText("Cancel")
        self.status.setText("Starting …")
        self._runs.start(judging, f"{TITLE} {request.source.name}")

    def stop(self) -> None:
        """Leave an assessment in progress at once."""
        if self._runs.running:
            self._runs.stop()
            self._on_stopped()

    def show_assessment(self, found: Assessment | None) -> None:
        """Show an assessment; nothing without one."""
        self.assessment = found
        for widget in (self.words, self.map_button, self.save_button):
            widget.setVisible(found is not None)
        self.plot.show_series(() if found is None else _series(found))
        self.residuals.show_residuals(found)
        if found is not None:
            rows = [Row(title, text) for title, text in found.lines(in_panel)]
            self.words.setText(as_html(rows))

    def add_map(self) -> None:
        """Add the map of expected error as a layer."""
        found, source = self.assessment, self._judging.request.source
        values = error_map(found)
        starts = {
            axis: start for axis, (start, _) in enumerate(found.region) if found.axes[axis] != "S"
        }
        look = {"colormap": "inferno", "contrast_limits": (0.0, float(values.max()) or 1.0)}
        new = NewLayer("expected error", "image", values, look)
        title = f"{self._panel.title} {new.title}"
        add_layer(self._viewer, at_places(source, starts), new, title, found.as_dict())

    def save(self) -> None:
        """Ask for a file and write the report."""
        name = self._judging.request.source.name
        path, _ = QFileDialog.getSaveFileName(self, "Save report", f"{name}.html", _FORMATS)
        if path:
            self.write(path)

    def write(self, path: str) -> None:
        """Write the report; a file of this name is replaced, as the user was asked."""
        name = self._judging.request.source.name
        try:
            write_report(path, self.assessment, name, overwrite=True, said=in_panel)
        except DenoiseError as error:
            self.status.setText(in_panel(error))
            return
        self.status.setText(f"Saved {path}.")

    def note_results(self) -> None:
        """Put what was found into the records of layers that are results of the same run."""
        for layer in self._viewer.layers if self.assessment is not None else ():
            note(layer, self._judging.request.source, self.assessment)

    def _on_outcome(self, outcome: Outcome) -> None:
        self.start_button.setText(TITLE)
        try:
            if outcome.assessment is None:
                raise outcome.error
        except Exception as error:
            self.status.setText("")
            self._panel.show_error(error)
            return
        self._judging = outcome.request
        self.status.setText(_place(outcome.assessment))
        self.show_assessment(outcome.assessment)
        self.note_results()

    def _on_stopped(self) -> None:
        self.start_button.setText(TITLE)
        self.status.setText("Cancelled.")


def _series(found: Assessment) -> list[Series]:
    """Return the detail kept; rings where the noise hides it."""
    several, series = len(found.channels) > 1, []
    for k, each in enumerate(found.channels[:_MOST_CHANNELS]):
        rows = list(zip(each.detail.frequency, each.detail.kept, each.detail.judged, strict=True))
        sure = [(x, y) for x, y, judged in rows if judged]
        hidden = [(x, min(max(y, 0.0), 1.1)) for x, y, judged in rows if not judged]
        name = str(k) if several else "kept"
        if sure:
            series.append(Series(*zip(*sure, strict=True), name, "line", k))
        if hidden and not several:
            series.append(Series(*zip(*hidden, strict=True), "hidden by noise", "faint"))
    return series


def _place(found: Assessment) -> str:
    """Return what was judged, in words."""
    spans = dict(zip(found.axes, found.region, strict=True))
    y, x = (spans[axis][1] - spans[axis][0] for axis in "YX")
    return f"Judged {y} x {x} pixels in view."
