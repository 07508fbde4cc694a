"""Plots: where their ticks are, and that they show what they are given."""

import math

import pytest

pytest.importorskip("qtpy", reason="Qt is not installed")

from napari_gpu_denoise._napari.plots import COLOURS, Plot, Series, ticks

pytestmark = pytest.mark.gui


@pytest.mark.parametrize(
    ("low", "high", "about", "said"),
    [
        (0, 1, 5, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (93, 212, 6, ["100", "120", "140", "160", "180", "200"]),
        (-0.012, 0.033, 5, ["-0.01", "0.00", "0.01", "0.02", "0.03"]),
        (0, 2.4e6, 5, ["0", "5e+05", "1e+06", "1.5e+06", "2e+06"]),
    ],
)
def test_ticks_are_round(low, high, about, said):
    assert [text for _, text in ticks(low, high, about)] == said


def test_limits_hold_all_and_zero(qtbot):
    plot = Plot("A", "x", "y")
    qtbot.addWidget(plot)
    plot.show_series(
        [Series((10, 20), (5, 9), error=(1, 2)), Series((math.nan, 30), (1, math.inf))]
    )
    x0, x1, y0, y1 = plot.limits()
    assert x0 < 10 and 20 < x1 < 30 and y0 == 0 and y1 > 11
    assert len(plot.series) == 1


def test_a_single_point_and_nothing(qtbot):
    plot = Plot("A", "x", "y")
    qtbot.addWidget(plot)
    plot.show_series([Series((3,), (0.0,))])
    x0, x1, y0, y1 = plot.limits()
    assert x0 < 3 < x1 and y0 < y1
    plot.resize(300, 190)
    assert not plot.grab().isNull()
    plot.show_series([])
    assert plot.isHidden()


def test_points_are_drawn_where_they_belong(qtbot):
    from qtpy.QtGui import QColor

    plot = Plot("A", "x", "y")
    qtbot.addWidget(plot)
    plot.resize(300, 190)
    plot.show_series([Series((0, 1), (0, 1), "low", colour=1), Series((1,), (0,), "", "rings", 2)])
    picture = plot.grab().toImage()
    found = {}
    for index in (1, 2):
        colour = QColor(COLOURS[index]).rgb()
        pixels = [
            (x, y)
            for x in range(45, picture.width())
            for y in range(34, picture.height())
            if picture.pixel(x, y) == colour
        ]
        assert pixels
        found[index] = pixels
    (left, bottom), (right, top) = (min(found[1]), max(found[1]))
    assert left < 80 < 200 < right and top < 80 < 120 < bottom
    # A point is filled, a ring has nothing inside.
    dot = [(x, y) for x, y in found[1] if x > 200]
    assert len(dot) > 20 > len(found[2]), (len(dot), len(found[2]))
    xs, ys = zip(*found[2], strict=True)
    middle = (min(xs) + max(xs)) // 2, (min(ys) + max(ys)) // 2
    assert min(xs) > 200 and max(ys) > 120
    assert picture.pixel(*middle) != QColor(COLOURS[2]).rgb()
