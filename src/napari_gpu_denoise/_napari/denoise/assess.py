"""The section "How good is this?" of a filter's panel."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from napari.viewer import Viewer
from qtpy.QtCore import Qt, QTimer
from qtpy.QtGui import QImage, QPixmap
from qtpy.QtWidgets import QFormLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.layers.regions import in_view
from napari_gpu_denoise._napari.layers.source import pixel_sizes
from napari_gpu_denoise._napari.model import known_of
from napari_gpu_denoise._napari.noise.plots import MOST_CHANNELS, Plot, Series
from napari_gpu_denoise._napari.noise.rows import as_html
from napari_gpu_denoise._napari.panel import LayerPanel
from napari_gpu_denoise._napari.parts import Caption, Scrolled, Section, button, stack, told
from napari_gpu_denoise._napari.run import Request
from napari_gpu_denoise._napari.tasks import Outcome, Task, doing, words_of
from napari_gpu_denoise.assessment.assess import Options, assess_image
from napari_gpu_denoise.assessment.record import Assessment
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.run.progress import Progress

_SIDE = 168  # pixels
_RESIDUALS = 3.0  # standard deviations of the noise that are black and white

TITLE = "How good is this?"
_START = "Assess the region in view"
_RESIDUAL_TIPS = {
    "Residual": "What the filter removes; black and white are 3 standard deviations of the noise. "
    "It reveals noise that differs from what was assumed, but not what detail was lost.",
    "Residual of a twin": "The same for the result with fresh noise: what a residual looks like if "
    "the noise is as assumed. Compare the residual only with this.",
}


@dataclass(frozen=True)
class Judging:
    """What is assessed: the `Request` that the panel of a filter is set to, and where."""

    request: Request
    options: Options


def assess_view(judging: Judging, progress: Progress) -> Assessment:
    """Assess what is in view."""
    request, run = judging.request, judging.request.run
    progress.stage("assessing")
    data = request.source.pixels(progress)
    if request.memory is not None:
        run = replace(run, noise=request.memory)
    return assess_image(data, run, judging.options, progress.within(doing("Assessing")))


class Residuals(QWidget):
    """The residual and that of its twin, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = [told(QLabel(), tip, title) for title, tip in _RESIDUAL_TIPS.items()]
        columns = QHBoxLayout(self)
        columns.setContentsMargins(0, 0, 0, 0)
        for picture, title in zip(self.pictures, _RESIDUAL_TIPS, strict=True):
            caption, column = Caption(), QVBoxLayout()
            caption.setText(title)
            stack(column, (caption, picture), spacing=2)
            column.addStretch(1)
            columns.addLayout(column)

    def show_residuals(self, assessment: Assessment | None) -> None:
        """Show the residuals of one plane; hidden without an assessment."""
        self.setVisible(assessment is not None)
        if assessment is None:
            return
        both = assessment.residual, assessment.twin_residual
        for picture, values in zip(self.pictures, both, strict=True):
            picture.setPixmap(_pixmap(middle_plane(values, assessment.axes)))


def middle_plane(values: np.ndarray, axes: str) -> np.ndarray:
    """Return the middle plane of the first channel, (y, x)."""
    index = tuple(
        slice(None) if axis in "YX" else (0 if axis in "CS" else length // 2)
        for axis, length in zip(axes, values.shape, strict=True)
    )
    return values[index] if axes.index("Y") < axes.index("X") else values[index].T


def _pixmap(plane: np.ndarray) -> QPixmap:
    """Return the middle of a plane, one pixel of it for each of the screen."""
    part = tuple(slice(max(n - _SIDE, 0) // 2, max(n - _SIDE, 0) // 2 + _SIDE) for n in plane.shape)
    shades = 255 * (plane[part] / _RESIDUALS + 1) / 2
    shades = np.ascontiguousarray(np.clip(shades, 0, 255).astype(np.uint8))
    height, width = shades.shape
    image = QImage(shades.data, width, height, width, QImage.Format.Format_Grayscale8)
    scaled = image.copy().scaled(_SIDE, _SIDE, Qt.AspectRatioMode.KeepAspectRatio)
    return QPixmap.fromImage(scaled)


class AssessSection(Section):
    """Tells how good the result of a panel would be, for the region in view, off the GUI thread.

    `panel` is that of filters, and `request` returns what is assessed. `set_strength` takes the
    factor of sigma that the check found best.
    """

    def __init__(
        self,
        viewer: Viewer,
        panel: LayerPanel,
        request: Callable[[], Request],
        set_strength: Callable[[float], None],
    ):
        form = QFormLayout()
        super().__init__(TITLE, form)
        self.start_button = button(
            _START,
            "Predict error and detail kept in the region in view, from the noisy image "
            "alone. The filter runs about nine times; no layer is added.",
            self.start,
        )
        self.sigma_button = button(
            "",
            "Set Strength to the sigma at which unseen pixels are predicted best.",
            lambda: set_strength(self._off or 1.0),
        )
        self._request = request
        self.words, self.status = Caption(rich=True), Caption()
        self.plot = Plot("Detail kept", "Cycles per pixel", "Contrast")
        self.residuals = Residuals()
        self.assessment: Assessment | None = None
        self._judging: Judging | None = None
        self._viewer, self._panel = viewer, panel
        inside, words = QWidget(), (self.words, self.sigma_button)
        rows = (self.start_button, self.status, *words, self.plot, self.residuals)
        stack(QVBoxLayout(inside), rows, spacing=6)
        form.addRow(inside)
        self._task = Task(self, assess_view)
        self._task.told.connect(lambda step: self.status.setText(words_of(step)))
        self._task.ended.connect(self._on_outcome)
        self._task.stopped.connect(self._on_stopped)
        self.show_assessment(None)

    def start(self) -> None:
        """Assess the region in view, or stop; errors are shown in the panel."""
        if self._task.running:
            self.stop()
            return
        layer = self._panel.layer.layer()
        dims, region = self._viewer.dims, None
        try:
            request = self._request()
            if dims.ndisplay == 2:
                region = in_view(layer, request.axes, dims).index
        except DenoiseError as error:
            self.status.setText(self._panel.worded(error))
            return
        self.start_button.setText("Cancel")
        self.status.setText("Starting …")
        options = Options(region=region)
        sizes, unit = pixel_sizes(layer, [request.axes.index(letter) for letter in "YX"])
        if sizes is not None and str(unit) != "pixel":  # which layers have from the beginning
            options = replace(options, spacing=(sizes[0], sizes[1]), unit=f"{unit:~}")
        judging = Judging(request, options)
        self._task.start(judging, f"{TITLE} {request.source.name}")

    def stop(self) -> None:
        """Leave an assessment in progress at once."""
        if self._task.running:
            self._task.drop()
            self._on_stopped()

    def show_assessment(self, found: Assessment | None) -> None:
        """Show an assessment; nothing without one."""
        self.assessment = found
        self.words.setVisible(found is not None)
        check = None if found is None else found.check
        self._off = None if check is None or check.fits else check.best
        self.sigma_button.setVisible(self._off is not None)
        if self._off is not None:
            self.sigma_button.setText(f"Use {self._off:.2g} times this sigma")
        unit = found.unit if found is not None and found.spacing else "pixel"
        self.plot.show_series(() if found is None else _series(found), f"Cycles per {unit}")
        self.residuals.show_residuals(found)
        if found is not None:
            table = as_html(found.lines(self._panel.worded))
            self.words.setText(f"<p><b>{html.escape(found.sentence())}</b></p>{table}")
            QTimer.singleShot(0, self._scroll_to)  # when it has its height

    def _scroll_to(self) -> None:
        """Show the answer, where the panel scrolls."""
        for around in self._panel.findChildren(Scrolled):
            around.ensureWidgetVisible(self.words)

    def note_results(self) -> None:
        """Put the assessment into the records of results of the same run."""
        judging, found = self._judging, self.assessment
        if judging is None or found is None:
            return
        for layer in self._viewer.layers:
            if known_of(layer).made_by == judging.request.run_key:
                layer.metadata[METADATA_KEY] |= {"assessment": found.as_dict()}

    def _on_outcome(self, outcome: Outcome) -> None:
        self.start_button.setText(_START)
        if outcome.error is not None:
            self.status.setText("")
            self._panel.show_error(outcome.error)
            return
        self._judging, found = outcome.request, outcome.value
        spans = dict(zip(found.axes, found.region, strict=True))
        y, x = (spans[axis][1] - spans[axis][0] for axis in "YX")
        self.status.setText(f"Judged {y} x {x} pixels in view.")
        self.show_assessment(found)
        self.note_results()

    def _on_stopped(self) -> None:
        self.start_button.setText(_START)
        self.status.setText("Cancelled.")


def _series(found: Assessment) -> list[Series]:
    """Return the detail kept; rings where the noise hides it."""
    several, series = len(found.channels) > 1, []
    pixel = min(found.spacing) if found.spacing else 1.0
    for k, each in enumerate(found.channels[:MOST_CHANNELS]):
        frequency = [x / pixel for x in each.detail.frequency]
        rows = list(zip(frequency, each.detail.kept, each.detail.judged, strict=True))
        sure = [(x, y) for x, y, judged in rows if judged]
        hidden = [(x, min(max(y, 0.0), 1.1)) for x, y, judged in rows if not judged]
        name = str(k) if several else "kept"
        if sure:
            x, y = zip(*sure, strict=True)
            series.append(Series(x, y, name, "line", k))
        if hidden and not several:
            x, y = zip(*hidden, strict=True)
            series.append(Series(x, y, "hidden by noise", "faint"))
    return series
