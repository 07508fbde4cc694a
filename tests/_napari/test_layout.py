"""Readable panels: in narrow docks, in low ones, beside other panels."""

import pytest
from qtpy.QtCore import QPoint, QRect, Qt
from qtpy.QtWidgets import (
    QAbstractSpinBox,
    QComboBox,
    QDockWidget,
    QLabel,
    QMainWindow,
    QScrollArea,
)

from napari_gpu_denoise.filters import FILTERS

pytestmark = pytest.mark.gui

NARROW = 300  # pixels
LONG = "A sentence that needs more than a line where the panel is narrow. " * 5


def dock_of(panel):
    """The dock a panel is in."""
    while not isinstance(panel, QDockWidget):
        panel = panel.parent()
    return panel


def shown_in(area, kind):
    """Where the parts of a kind are in what a panel scrolls."""
    inside = area.widget()
    for each in inside.findChildren(kind):
        if each.isVisible() and not isinstance(each.parent(), QComboBox):
            yield QRect(each.mapTo(inside, QPoint(0, 0)), each.size())


@pytest.fixture
def shown(make_napari_viewer, plugin):
    """A napari window on the screen."""
    viewer = make_napari_viewer(show=True)
    viewer.window._qt_window.resize(1100, 700)
    return viewer


def assert_readable(panel):
    """Nothing is cut off at the side, squeezed or covered."""
    area = panel.findChildren(QScrollArea)[0]
    assert area.widget().width() <= area.viewport().width()
    boxes = [
        each for kind in (QLabel, QComboBox, QAbstractSpinBox) for each in shown_in(area, kind)
    ]
    assert len(boxes) > 4
    for k, box in enumerate(boxes):
        assert box.height() >= 10
        assert not any(box.intersects(other) for other in boxes[:k])


@pytest.mark.parametrize("title", [*(kind.title for kind in FILTERS), "Estimated noise", "Compare"])
def test_a_panel_fits_a_narrow_dock(shown, qtbot, click, title):
    _, panel = shown.window.add_plugin_dock_widget("napari-gpu-denoise", title)
    dock = dock_of(panel)

    def narrow():
        qtbot.wait(100)
        dock.parent().resizeDocks([dock], [NARROW], Qt.Orientation.Horizontal)
        qtbot.wait(100)

    def readable():
        qtbot.waitUntil(lambda: assert_readable(panel))

    narrow()
    qtbot.waitUntil(lambda: panel.width() <= NARROW)
    if hasattr(panel, "noise"):
        panel.options.noise.caption.setText(LONG)
        panel.options.noise.caption.show()
        qtbot.wait(100)
    readable()
    for section in getattr(panel, "sections", list)():
        click(section.toggleButton())
        assert section.content().isVisible()
        narrow()
        readable()


def test_the_status_line_is_shown_whole(shown, qtbot):
    _, panel = shown.window.add_plugin_dock_widget("napari-gpu-denoise", "NL-means")
    panel.say(LONG, "Not done.")
    panel.setParent(None)
    panel.resize(320, 200)  # less than it needs
    panel.show()
    label = panel.status
    qtbot.waitUntil(lambda: label.height() >= label.heightForWidth(label.width()) > 60)
    panel.say("")
    assert label.minimumHeight() == 0
    panel.close()


def test_panels_opened_by_menus_do_not_share_the_height(shown, qtbot):
    docks = []
    for title in ("NL-means", "Estimated noise", "BM3D"):
        dock, _ = shown.window.add_plugin_dock_widget("napari-gpu-denoise", title)
        qtbot.wait(100)
        docks.append(dock_of(dock))
    window = docks[0].parent()
    assert isinstance(window, QMainWindow)
    assert set(window.tabifiedDockWidgets(docks[0])) == set(docks[1:])

    def only_the_last_is_seen():
        seen = [dock for dock in docks if not dock.visibleRegion().isEmpty()]
        return seen == docks[2:] and docks[2].height() > 350

    qtbot.waitUntil(only_the_last_is_seen)
