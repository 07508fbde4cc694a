"""Small plots of a noise estimate, by pyqtgraph, in the colours of napari's theme."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import qtpy
from qtpy.QtCore import QEvent, Qt
from qtpy.QtGui import QPalette
from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_gpu_denoise._napari.parts import stack
from napari_gpu_denoise.noise.record import NoiseEstimate, SigmaSeries

# Bright enough for dark themes and dark enough for light ones: at least 3 : 1 on both.
COLOURS = ("#d9730d", "#3d8bcd", "#1b9e77", "#c45ca0", "#9a7d0a", "#7a73d1")
_GREY = "#8c8c8c"  # on both themes, too
_HEIGHT = 210
MOST_CHANNELS = 6  # drawn in one plot
_MARGIN = 0.1  # of the range, on each side: pyqtgraph drops a tick's text that has no room


@dataclass(frozen=True)
class Series:
    """Values drawn in one style; those that are not finite are left out.

    `name` is the entry in the legend, empty for none. `look` is "points", "rings", "line", "dashes"
    or "faint", grey rings; `colour` an index into `COLOURS`, from 0 again at their end; `error`
    half the length of a bar through each point.
    """

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    look: str = "points"
    colour: int = 0
    error: Sequence[float] = ()

    def points(self) -> np.ndarray:
        """Return x, y and error of the finite values, as rows."""
        rows = np.array([self.x, self.y, self.error or np.zeros(len(self.x))], float)
        rows[2, ~np.isfinite(rows[2])] = 0
        return rows[:, np.isfinite(rows).all(axis=0)]


def load_library() -> Any:
    """Import pyqtgraph, which takes long the first time; in the GUI thread, as in `loading`."""
    # With the Qt that napari has.
    os.environ.setdefault("PYQTGRAPH_QT_LIB", qtpy.API_NAME)
    import pyqtgraph

    return pyqtgraph


class Plot(QWidget):
    """A title, a legend, two axes with ticks and labels, and series of values.

    It is made when there is something to draw. One that `fills` takes all height that is left.
    """

    def __init__(self, title: str, x_label: str, y_label: str, *, fills: bool = False):
        super().__init__()
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.series: list[Series] = []
        self._layout = QVBoxLayout(self)
        stack(self._layout, (), spacing=0)
        (self.setMinimumHeight if fills else self.setFixedHeight)(_HEIGHT)
        self.setMinimumWidth(260)
        self.hide()

    @cached_property
    def _canvas(self) -> Any:
        canvas = load_library().PlotWidget(enableMenu=False)
        # It is a picture: the wheel scrolls the panel, and nothing opens, zooms or takes focus.
        canvas.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        canvas.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        canvas.setAntialiasing(True)
        area = canvas.plotItem
        area.hideButtons()
        for side in ("bottom", "left"):
            # Here, where there are no values yet: later it would scale them once more.
            area.getAxis(side).enableAutoSIPrefix(False)
        area.showGrid(x=True, y=True, alpha=0.25)
        area.layout.setContentsMargins(4, 0, 8, 5)
        # Below the axes; it takes up whatever has a name.
        area.legend = load_library().LegendItem(colCount=len(COLOURS))
        area.legend.layout.setContentsMargins(0, 0, 0, 0)
        area.layout.addItem(area.legend, 4, 0, 1, 3)
        self._layout.addWidget(canvas)
        return canvas

    @property
    def area(self) -> Any:
        """Axes and what is drawn between them."""
        return self._canvas.plotItem

    def show_series(self, series: Sequence[Series], x_label: str | None = None) -> None:
        """Replace what is drawn; an empty plot is hidden."""
        self.series = [each for each in series if each.points().size]
        self.x_label = x_label or self.x_label
        if "_canvas" in vars(self) or self.series:
            self.area.clear()
        for each in self.series:
            self._draw(each)
        if self.series:
            x, y, error = np.hstack([each.points() for each in self.series])
            ends = {"xRange": _ends(x), "yRange": _ends((y - error, y + error, 0 * y))}
            self.area.setRange(**ends, padding=_MARGIN)
        self._colour()
        self.setVisible(bool(self.series))
        self.setAccessibleName(self.title)
        self.setAccessibleDescription(f"{self.y_label} against {self.x_label}")

    def changeEvent(self, event: QEvent) -> None:
        """Follow napari's theme."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.StyleChange):
            self._colour()

    def _draw(self, series: Series) -> None:
        (x, y, error), colour = series.points(), COLOURS[series.colour % len(COLOURS)]
        colour = _GREY if series.look == "faint" else colour
        dash = Qt.PenStyle.DashLine if series.look == "dashes" else Qt.PenStyle.SolidLine
        library = load_library()
        pen = library.mkPen(colour, width=1.6, style=dash)
        how = {"pen": pen}
        if series.look in ("points", "rings", "faint"):
            how = {"pen": None, "symbol": "o", "symbolSize": 7, "symbolPen": pen}
            how["symbolBrush"] = colour if series.look == "points" else None
            self.area.addItem(library.ErrorBarItem(x=x, y=y, height=2 * error, pen=pen))
        self.area.plot(x, y, antialias=True, name=series.name or None, **how)

    def _colour(self) -> None:
        if "_canvas" not in vars(self):
            return
        ink = self.palette().color(QPalette.ColorRole.WindowText)
        self._canvas.setBackground(self.palette().color(QPalette.ColorRole.Window))
        self.area.setTitle(self.title, color=ink, bold=True, size="9pt")
        for _, label in self.area.legend.items:
            label.setText(label.text, color=ink)
        for side, text in (("bottom", self.x_label), ("left", self.y_label)):
            axis = self.area.getAxis(side)
            axis.setTickDensity(1.3)
            axis.setStyle(maxTickLevel=0, tickTextHeight=14)
            axis.setPen(ink)
            axis.setTextPen(ink)
            axis.setLabel(text, color=ink.name())


def _ends(values: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return minimum and maximum, moved apart if they are equal."""
    low, high = float(np.min(values)), float(np.max(values))
    half = 0 if low < high else abs(low) / 2 or 0.5
    return low - half, high + half


def curve_series(estimate: NoiseEstimate) -> list[Series]:
    """Return variance against mean: levels used, levels left out, and the model's curve."""
    several = len(estimate.models) > 1
    found: list[Series] = []
    for k, (curve, model) in enumerate(zip(estimate.curves, estimate.models, strict=True)):
        if curve is None or k >= MOST_CHANNELS:
            continue
        rows = np.array([curve.mean, curve.variance, curve.used])[:, np.array(curve.count) > 0]
        if not rows.size:
            continue
        names = (f"{k}", "", "") if several else ("used", "left out", "model")
        (means, variances), used = rows[:2], rows[2] > 0
        grid = np.linspace(means.min(), means.max(), 64) if len(means) > 1 else means
        found += [
            Series(means[used].tolist(), variances[used].tolist(), names[0], "points", k),
            Series(means[~used].tolist(), variances[~used].tolist(), names[1], "rings", k),
            Series(grid.tolist(), model.variance(grid).tolist(), names[2], "line", k),
        ]
    return found


def along_series(series: SigmaSeries | None) -> list[Series]:
    """Return sigma along an axis, one series a channel; none for a single frame."""
    if series is None or len(series.index) < 2:
        return []
    several = len(series.sigma) > 1
    return [
        Series(series.index, values, f"{k}" if several else "", "points", k, error)
        for k, (values, error) in enumerate(zip(series.sigma, series.error, strict=True))
        if k < MOST_CHANNELS
    ]


def autocorrelation_series(estimate: NoiseEstimate) -> list[Series]:
    """Return the autocorrelation of the noise along x and y."""
    several = len(estimate.spectra) > 1
    found: list[Series] = []
    if not any(estimate.sigma):
        return found
    for k, spectrum in enumerate(estimate.spectra[:MOST_CHANNELS]):
        if spectrum is None:
            continue
        along_x = spectrum.autocorrelation[0]
        along_y = [row[0] for row in spectrum.autocorrelation]
        names = (str(k), "") if several else ("along x", "along y")
        lags = range(len(along_x))
        found.append(Series(lags, along_x, names[0], "line", k))
        found.append(Series(lags, along_y, names[1], "dashes", k if several else 1))
    return found
