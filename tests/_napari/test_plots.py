"""Plots: that they show what they are given, where it belongs, and leave napari alone."""

import math

import numpy as np
import pytest

pytest.importorskip("pyqtgraph", reason="pyqtgraph is not installed")

from qtpy.QtCore import QPoint, QPointF, Qt
from qtpy.QtGui import QWheelEvent
from qtpy.QtWidgets import QApplication

from napari_gpu_denoise._napari.noise.plots import Plot, Series


@pytest.fixture
def plot(qtbot):
    """An empty plot in a window."""
    plot = Plot("A", "Mean (grey levels)", "Variance (grey levels²)")
    qtbot.addWidget(plot)
    plot.resize(300, plot.height())
    return plot


def texts(plot, side):
    """What the ticks of an axis say that is drawn."""
    plot.grab()
    axis = plot.area.getAxis(side)
    low, high = axis.range
    length = axis.width() if side == "bottom" else axis.height()
    spacing, values = axis.tickValues(low, high, length)[0]
    return axis.tickStrings(values, axis.autoSIPrefixScale * axis.scale, spacing)


def bars(plot):
    """The items that draw error bars."""
    return [each for each in plot.area.items if type(each).__name__ == "ErrorBarItem"]


@pytest.mark.parametrize("scale", [1e-5, 1, 1e7])
def test_ticks_have_the_unit_of_the_label(plot, scale):
    plot.show_series([Series((0, scale), (0, scale))])
    for side in ("bottom", "left"):
        ticks = [float(text) for text in texts(plot, side)]
        assert {0, scale} <= set(ticks) and len(ticks) > 2
        axis = plot.area.getAxis(side)
        label = plot.x_label if side == "bottom" else plot.y_label
        assert axis.label.toPlainText().strip() == label


def test_limits_hold_all_and_zero(plot):
    plot.show_series([Series((1e6, 2e6), (1e6, 2e6))])  # whose range must be forgotten
    plot.show_series(
        [Series((10, 20), (5, 9), error=(1, 2)), Series((math.nan, 30), (1, math.inf))]
    )
    (x0, x1), (y0, y1) = plot.area.viewRange()
    assert 8 < x0 < 10 and 20 < x1 < 22 and -2 < y0 <= 0 and 11 < y1 < 13
    assert len(plot.series) == 1
    plot.show_series([Series((0,), (0,), error=(math.nan,))])
    assert not plot.grab().isNull() and not plot.isHidden()
    plot.show_series([])
    assert plot.isHidden() and not plot.area.items and not plot.area.legend.items


def test_values_and_error_bars_are_those_given(plot):
    x, y, error = (1, 2, math.nan, 4), (5, math.inf, 7, 8), (0.5, 1, 1, math.nan)
    plot.show_series([Series(x, y, "used", error=error), Series((1, 2), (3, 4), "model", "dashes")])
    assert [label.text for _, label in plot.area.legend.items] == ["used", "model"]
    points, line = plot.area.listDataItems()
    np.testing.assert_array_equal(points.getData(), [[1, 4], [5, 8]])
    np.testing.assert_array_equal(line.getData(), [[1, 2], [3, 4]])
    (bar,) = bars(plot)
    np.testing.assert_array_equal(bar.opts["height"], [1, 0])
    np.testing.assert_array_equal([bar.opts["x"], bar.opts["y"]], [[1, 4], [5, 8]])
    assert points.opts["pen"] is None and points.opts["symbol"] == "o"
    assert line.opts["symbol"] is None and line.opts["pen"].style().name == "DashLine"


def test_the_wheel_scrolls_what_is_around(plot, qtbot):
    plot.show_series([Series((0, 1), (0, 1))])
    before = plot.area.viewRange()
    none, spot = Qt.MouseButton.NoButton, QPointF(150, 90)
    turn = QWheelEvent(
        *(spot, spot, QPoint(), QPoint(0, -240), none, Qt.KeyboardModifier.NoModifier),
        *(Qt.ScrollPhase.NoScrollPhase, False),
    )
    turn.ignore()
    QApplication.sendEvent(plot.childAt(150, 90) or plot, turn)
    assert not turn.isAccepted() and plot.area.viewRange() == before
    assert not plot.area.menuEnabled() and not plot.area.autoBtn.isVisible()
    for each in (plot, plot.area.scene().views()[0]):
        assert each.focusPolicy() == Qt.FocusPolicy.NoFocus
