"""Readable panels: in narrow docks, in low ones, beside other panels."""

import pytest
from qtpy.QtCore import QPoint, QRect, Qt
from qtpy.QtWidgets import QAbstractSpinBox, QComboBox, QLabel, QScrollArea

from _napari.conftest import PLUGIN
from _napari.inputs import find_entry
from napari_gpu_denoise._napari.docks import _dock_of
from napari_gpu_denoise._napari.parts import Section
from napari_gpu_denoise.filters import FILTERS

pytestmark = pytest.mark.usefixtures("window")

NARROW = 300  # pixels
LONG = "A sentence that needs more than a line where the panel is narrow. " * 5


def shown_in(area, kind):
    """Where the parts of a kind are in what a panel scrolls."""
    inside = area.widget()
    for part in inside.findChildren(kind):
        if part.isVisible() and not isinstance(part.parent(), QComboBox):
            yield QRect(part.mapTo(inside, QPoint(0, 0)), part.size())


@pytest.fixture
def shown(viewer, qtbot):
    """The window on the screen."""
    main = viewer.window._qt_window
    main.resize(1100, 800)
    main.show()
    qtbot.waitExposed(main)
    yield viewer
    main.hide()


@pytest.fixture
def opened(shown, qtbot):
    """Open a panel as the menu Plugins does."""

    def open_it(title):
        is_filter = title in ["Recommended", *(kind.title for kind in FILTERS)]
        _, panel = shown.window.add_plugin_dock_widget(PLUGIN, "Filter" if is_filter else title)
        if is_filter:
            panel.filter.box.setCurrentText(title)
        qtbot.wait(100)
        return panel

    return open_it


def assert_readable(panel):
    """Nothing is cut off at the side, squeezed or covered."""
    area = panel.findChildren(QScrollArea)[0]
    assert area.widget().width() <= area.viewport().width()
    boxes = [box for kind in (QLabel, QComboBox, QAbstractSpinBox) for box in shown_in(area, kind)]
    assert len(boxes) > 4
    for k, box in enumerate(boxes):
        assert box.height() >= 10
        assert not any(box.intersects(other) for other in boxes[:k])


# One panel with fields in several sections, and one whose words are long.
TITLES = ["BM3D", "Isoline", "Estimated noise", "Compare", "Recommended"]
REST = {kind.title for kind in FILTERS}.difference(TITLES)


@pytest.mark.parametrize(
    "title", [*TITLES, *(pytest.param(each, marks=pytest.mark.thorough) for each in sorted(REST))]
)
def test_a_panel_fits_a_narrow_dock(opened, qtbot, click, title):
    panel = opened(title)
    dock = _dock_of(panel)

    def narrow():
        dock.parent().resizeDocks([dock], [NARROW], Qt.Orientation.Horizontal)
        qtbot.wait(100)

    narrow()
    qtbot.waitUntil(lambda: panel.width() <= NARROW)
    if hasattr(panel, "options"):
        panel.options.noise.caption.setText(LONG)
        panel.options.noise.caption.show()
        qtbot.wait(100)
    qtbot.waitUntil(lambda: assert_readable(panel))
    for section in panel.findChildren(Section):
        click(section.title_button)
        narrow()
        qtbot.waitUntil(lambda: assert_readable(panel))


def test_the_status_line_is_shown_whole_and_run_stays_where_it_is(shown, opened, qtbot):
    panel = opened("NL-means")
    qtbot.waitUntil(lambda: panel.options.device.caption.text() != "")
    panel.say("")
    qtbot.wait(100)
    place = panel.run_button.geometry()
    panel.say(LONG, "Not done.")
    qtbot.waitUntil(lambda: panel.status.height() > 2 * panel.run_button.height())
    qtbot.wait(100)
    assert panel.run_button.geometry() == place
    shown.window.remove_dock_widget(panel)
    panel.resize(320, 200)  # less than it needs
    panel.show()
    label = panel.status
    qtbot.waitUntil(lambda: label.height() >= label.heightForWidth(label.width()) > 60)
    panel.say("")
    assert label.minimumHeight() == 0


def test_panels_do_not_share_the_height_and_menus_bring_them_to_the_front(shown, qtbot):
    plugins, layers = shown.window.plugins_menu, shown.window.layers_menu
    for title in ("Filter", "Estimated noise", "Compare"):
        find_entry(plugins, "GPU Denoise", f"{title} (GPU Denoise)").trigger()
    docks = [_dock_of(panel) for panel in shown.window.dock_widgets.values()]
    window = docks[0].parent()
    qtbot.waitUntil(lambda: set(window.tabifiedDockWidgets(docks[0])) == set(docks[1:]))

    def in_front():
        return [dock for dock in docks if not dock.visibleRegion().isEmpty()]

    qtbot.waitUntil(lambda: in_front() == docks[2:] and docks[2].height() > 350)
    # Chosen again, an entry would hide its panel if nothing brought it forward.
    for dock in (docks[0], docks[1], docks[1]):
        find_entry(plugins, "GPU Denoise", dock.name).trigger()
        qtbot.waitUntil(lambda dock=dock: in_front() == [dock])
    for _ in range(2):
        find_entry(layers, "Measure", docks[1].name).trigger()
        qtbot.waitUntil(lambda: in_front() == [docks[1]])
        assert not docks[1].isHidden()
    assert len(shown.window.dock_widgets) == 3
