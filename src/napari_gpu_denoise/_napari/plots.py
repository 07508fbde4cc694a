"""Small plots for panels, drawn by pyqtgraph, in the colours of napari's theme."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import qtpy
from qtpy.QtCore import QEvent, Qt
from qtpy.QtGui import QPalette
from qtpy.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

# Bright enough for dark themes and dark enough for light ones: at least 3 : 1 on both.
COLOURS = ("#d9730d", "#3d8bcd", "#1b9e77", "#c45ca0", "#9a7d0a", "#7a73d1")
HEIGHT = 190
_MARGIN = 0.06  # of what is shown, on each side


@dataclass(frozen=True)
class Series:
    """Values of a plot that look alike.

    Parameters
    ----------
    x, y : sequence of float
        As many of one as of the other; those that are not finite are left out.
    name : str
        What the legend calls it; empty for no entry.
    look : str
        ``"points"``, ``"rings"``, ``"line"`` or ``"dashes"``.
    colour : int
        Index into `COLOURS`, from 0 again at their end.
    error : sequence of float, optional
        Half the length of a bar through each point.
    """

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    look: str = "points"
    colour: int = 0
    error: Sequence[float] = ()

    def points(self) -> list[tuple[float, float, float]]:
        """Return x, y and error of what is finite."""
        errors = self.error or (0.0,) * len(self.x)
        return [
            (x, y, e if math.isfinite(e) else 0.0)
            for x, y, e in zip(self.x, self.y, errors, strict=True)
            if math.isfinite(x) and math.isfinite(y)
        ]


class Plot(QWidget):
    """A title, a legend, two axes with ticks and labels, and series of values.

    Parameters
    ----------
    title, x_label, y_label : str
        Labels have their unit in brackets.
    """

    def __init__(self, title: str, x_label: str, y_label: str):
        super().__init__()
        # Only now, for who opens no plot need not wait for it; and never another Qt than napari's.
        os.environ.setdefault("PYQTGRAPH_QT_LIB", qtpy.API_NAME)
        import pyqtgraph

        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.series: list[Series] = []
        self._canvas = canvas = pyqtgraph.GraphicsLayoutWidget()
        canvas.setAntialiasing(True)
        # It is a picture: the wheel scrolls the panel, and nothing opens, zooms or takes focus.
        canvas.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        canvas.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        canvas.ci.setContentsMargins(0, 0, 8, 5)
        canvas.ci.setSpacing(0)
        self._heading = canvas.addLabel(title, row=0, col=0, bold=True)
        self.legend = pyqtgraph.LegendItem(colCount=len(COLOURS))
        self.legend.layout.setContentsMargins(4, 0, 4, 0)
        canvas.addItem(self.legend, row=1, col=0)
        self.area = canvas.addPlot(row=2, col=0, enableMenu=False)
        self.area.hideButtons()
        self.area.showGrid(x=True, y=True, alpha=0.25)
        for name in ("bottom", "left"):
            axis = self.area.getAxis(name)
            axis.enableAutoSIPrefix(False)
            axis.setStyle(maxTickLevel=0, hideOverlappingLabels=False)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(canvas)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(HEIGHT)
        self.setMinimumWidth(220)

    def show_series(self, series: Sequence[Series], x_label: str | None = None) -> None:
        """Draw these instead; hidden where there is nothing to draw."""
        self.series = [each for each in series if each.points()]
        self.x_label = x_label or self.x_label
        self.area.clear()
        self.legend.clear()
        for each in self.series:
            self._draw(each)
        self.legend.setVisible(any(each.name for each in self.series))
        if self.series:
            x, y, error = np.array([p for each in self.series for p in each.points()]).T
            self.area.setXRange(*_ends(x), padding=_MARGIN)
            self.area.setYRange(*_ends(y - error, y + error, [0.0]), padding=_MARGIN)
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
        import pyqtgraph

        x, y, error = np.array(series.points()).T
        colour = COLOURS[series.colour % len(COLOURS)]
        dashed = Qt.PenStyle.DashLine if series.look == "dashes" else Qt.PenStyle.SolidLine
        pen = pyqtgraph.mkPen(colour, width=1.6, style=dashed)
        if series.look in ("line", "dashes"):
            item = self.area.plot(x, y, pen=pen, antialias=True)
        else:
            self.area.addItem(pyqtgraph.ErrorBarItem(x=x, y=y, height=2 * error, pen=pen))
            brush = colour if series.look == "points" else None
            marks = {"symbol": "o", "symbolSize": 7, "symbolPen": pen, "symbolBrush": brush}
            item = self.area.plot(x, y, pen=None, antialias=True, **marks)
        if series.name:
            self.legend.addItem(item, series.name)

    def _colour(self) -> None:
        ink = self.palette().color(QPalette.ColorRole.WindowText)
        self._canvas.setBackground(self.palette().color(QPalette.ColorRole.Window))
        self._heading.setText(self.title, color=ink)
        for _, label in self.legend.items:
            label.setText(label.text, color=ink)
        for name, label in (("bottom", self.x_label), ("left", self.y_label)):
            axis = self.area.getAxis(name)
            axis.setPen(ink)
            axis.setTextPen(ink)
            axis.setLabel(label, color=ink.name())


def _ends(*values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest; apart where they are the same."""
    low, high = float(np.min(np.hstack(values))), float(np.max(np.hstack(values)))
    half = 0.0 if low < high else abs(low) / 2 or 0.5
    return low - half, high + half
