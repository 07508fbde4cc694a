"""Small plots for panels, drawn with Qt alone, in the colours of napari's theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qtpy.QtCore import QPointF, QRectF, Qt
from qtpy.QtGui import QColor, QPainter, QPalette, QPen, QPolygonF
from qtpy.QtWidgets import QSizePolicy, QWidget

# Bright enough for dark themes and dark enough for light ones: at least 3 : 1 on both.
COLOURS = ("#d9730d", "#3d8bcd", "#1b9e77", "#c45ca0", "#9a7d0a", "#7a73d1")
HEIGHT = 190
_MARKER = 3.0  # pixels, radius
_FAINT = 45  # of 255, opacity of the grid


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
    """A title, two axes with ticks and labels, a legend, and series of values.

    Parameters
    ----------
    title, x_label, y_label : str
        Labels have their unit in brackets.
    zero : bool, optional
        Whether the axis of y reaches 0.
    """

    def __init__(self, title: str, x_label: str, y_label: str, *, zero: bool = True):
        super().__init__()
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.series: list[Series] = []
        self._zero = zero
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(HEIGHT)
        self.setMinimumWidth(220)

    def show_series(self, series: Sequence[Series], x_label: str | None = None) -> None:
        """Draw these instead; hidden where there is nothing to draw."""
        self.series = [each for each in series if each.points()]
        if x_label is not None:
            self.x_label = x_label
        self.setVisible(bool(self.series))
        self.setAccessibleName(self.title)
        self.setAccessibleDescription(f"{self.y_label} against {self.x_label}")
        self.update()

    def limits(self) -> tuple[float, float, float, float]:
        """Return the least and largest x and y that the axes reach to."""
        points = [point for each in self.series for point in each.points()]
        xs = [x for x, _, _ in points]
        ys = [y - e for _, y, e in points] + [y + e for _, y, e in points]
        if self._zero:
            ys.append(0.0)
        return (*_widened(min(xs), max(xs), False), *_widened(min(ys), max(ys), self._zero))

    def paintEvent(self, _: object) -> None:
        """Draw all."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.series:
            self._draw(painter)
        painter.end()

    def _draw(self, painter: QPainter) -> None:
        ink = self.palette().color(QPalette.ColorRole.WindowText)
        metrics = painter.fontMetrics()
        line = metrics.height()
        x0, x1, y0, y1 = self.limits()
        y_ticks = ticks(y0, y1, 5)
        wide = max(metrics.horizontalAdvance(text) for _, text in y_ticks)
        left, right, top, bottom = line + wide + 10, 12, line + 6, 2 * line + 8
        named = [each for each in self.series if each.name]
        top += line + 2 if named else 0
        area = QRectF(left, top, self.width() - left - right, self.height() - top - bottom)

        def at(x: float, y: float) -> QPointF:
            return QPointF(
                area.left() + (x - x0) / (x1 - x0) * area.width(),
                area.bottom() - (y - y0) / (y1 - y0) * area.height(),
            )

        faint = QColor(ink)
        faint.setAlpha(_FAINT)
        middle, end = Qt.AlignmentFlag.AlignCenter, Qt.AlignmentFlag.AlignRight
        painter.setPen(ink)
        font = painter.font()
        font.setBold(True)
        painter.setFont(font)
        painter.drawText(QRectF(0, 0, self.width(), line), middle, self.title)
        font.setBold(False)
        painter.setFont(font)
        if named:
            self._legend(painter, named, QRectF(left, line + 4, area.width() + right, line), ink)
        for value, text in y_ticks:
            y = at(x0, value).y()
            painter.setPen(faint)
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            painter.setPen(ink)
            box = QRectF(line, y - line / 2, wide + 4, line)
            painter.drawText(box, end | Qt.AlignmentFlag.AlignVCenter, text)
        for value, text in _spaced(ticks(x0, x1, 6), area.width(), metrics.horizontalAdvance):
            x = at(value, y0).x()
            painter.setPen(faint)
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
            painter.setPen(ink)
            half = min(50.0, self.width() - x)
            painter.drawText(QRectF(x - half, area.bottom() + 3, 2 * half, line), middle, text)
        label = QRectF(area.left(), area.bottom() + line + 4, area.width(), line)
        painter.drawText(label, middle, self.x_label)
        painter.save()
        painter.translate(0, area.center().y())
        painter.rotate(-90)
        half = self.height() / 2
        painter.drawText(QRectF(-half, 0, 2 * half, line), middle, self.y_label)
        painter.restore()
        for each in self.series:
            painter.setClipRect(area.adjusted(-_MARKER - 1, -_MARKER - 1, _MARKER + 1, _MARKER + 1))
            _draw_series(painter, each, at)
        painter.setClipping(False)

    def _legend(self, painter: QPainter, named: list[Series], box: QRectF, ink: QColor) -> None:
        metrics = painter.fontMetrics()
        x, middle = box.left(), box.center().y()
        for each in named:
            wide = metrics.horizontalAdvance(each.name)
            if x + 18 + wide > box.right() and x > box.left():
                painter.setPen(ink)
                painter.drawText(QPointF(x, box.bottom() - metrics.descent()), "…")
                return
            if each.look in ("line", "dashes"):
                painter.setPen(_pen(each))
                painter.drawLine(QPointF(x, middle), QPointF(x + 14, middle))
            else:
                _draw_series(
                    painter,
                    Series((0,), (0,), "", each.look, each.colour),
                    lambda *_, x=x: QPointF(x + 7, middle),
                )
            painter.setPen(ink)
            painter.drawText(QPointF(x + 18, box.bottom() - metrics.descent()), each.name)
            x += 18 + wide + 12


def _pen(series: Series) -> QPen:
    pen = QPen(QColor(COLOURS[series.colour % len(COLOURS)]), 1.6)
    if series.look == "dashes":
        pen.setStyle(Qt.PenStyle.DashLine)
    return pen


def _draw_series(painter: QPainter, series: Series, at) -> None:
    pen, points = _pen(series), series.points()
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if series.look in ("line", "dashes"):
        painter.drawPolyline(QPolygonF([at(x, y) for x, y, _ in points]))
        return
    if series.look == "points":
        painter.setBrush(pen.color())
    for x, y, error in points:
        if error > 0:
            painter.drawLine(at(x, y - error), at(x, y + error))
        painter.drawEllipse(at(x, y), _MARKER, _MARKER)


def _widened(low: float, high: float, from_zero: bool) -> tuple[float, float]:
    """Return limits with a margin; a bar of 0 at one end stays there."""
    margin = 0.06 * (high - low) if high > low else abs(low) / 2 or 0.5
    return (
        low if from_zero and low == 0 else low - margin,
        high if from_zero and high == 0 > low else high + margin,
    )


def ticks(low: float, high: float, about: int) -> list[tuple[float, str]]:
    """Return round values between limits, and how they are written.

    Parameters
    ----------
    low, high : float
        Limits, the first one lower.
    about : int
        How many are wanted; there may be half or twice as many.
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    values = [number * step for number in range(first, last + 1)]
    largest = max(map(abs, values), default=0.0)
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    if largest >= 1e5 or places > 4:
        return [(value, f"{value:.3g}") for value in values]
    return [(value, f"{value:.{places}f}") for value in values]


def _spaced(marks: list[tuple[float, str]], width: float, measure) -> list[tuple[float, str]]:
    """Leave out every other tick until their texts have room."""
    while len(marks) > 2 and sum(measure(text) + 10 for _, text in marks) > width:
        marks = marks[::2]
    return marks
