"""Entries of the plugin in napari's menus, and the panels they open."""

import numpy as np
import pytest

from napari_gpu_denoise.files import samples
from napari_gpu_denoise.filters import FILTERS

pytestmark = pytest.mark.gui


def find(menu, path):
    """Follow titles down napari's menus."""
    for title in path:
        menu.aboutToShow.emit()
        (action,) = [a for a in menu.actions() if a.text().replace("&", "") == title]
        menu = action.menu()
    return action


def test_filter_menu_opens_the_panel(viewer, qtbot):
    viewer.add_image(np.zeros((20, 20)))
    for kind in FILTERS:
        name = f"{kind.title} (GPU Denoise)"
        find(viewer.window.layers_menu, ["Filter", "Denoise (GPU)", name]).trigger()
        qtbot.waitUntil(lambda name=name: name in viewer.window.dock_widgets)
        panel = viewer.window.dock_widgets[name]
        qtbot.waitUntil(lambda panel=panel: panel.options.device.caption.text() != "")
        assert panel.filter is kind
        assert panel.layer.layer().name == viewer.layers[0].name
        assert panel.request().run.filter == kind()


def test_plugins_menu_has_the_panel(viewer):
    # napari gives a plugin with several panels a menu of its own.
    menu = ["GPU Denoise"] if len(FILTERS) > 1 else []
    for kind in FILTERS:
        name = f"{kind.title} (GPU Denoise)"
        assert name not in viewer.window.dock_widgets
        find(viewer.window.plugins_menu, [*menu, name]).trigger()
        assert viewer.window.dock_widgets[name].filter is kind


def test_an_open_panel_that_is_chosen_again_comes_to_the_front(viewer, qtbot):
    viewer.window._qt_window.show()
    docks = []
    for title in ("BM3D", "Estimated noise"):
        name = f"{title} (GPU Denoise)"
        find(viewer.window.plugins_menu, ["GPU Denoise", name]).trigger()
        docks.append(viewer.window._wrapped_dock_widgets[name])
    first, second = docks
    behind = viewer.window._qt_window.tabifiedDockWidgets
    qtbot.waitUntil(lambda: second in behind(first))
    for front, back in ((first, second), (second, first), (second, first)):
        find(viewer.window.plugins_menu, ["GPU Denoise", front.name]).trigger()
        qtbot.waitUntil(lambda front=front: front.visibleRegion().isEmpty() is False)
        assert not front.isHidden() and back.visibleRegion().isEmpty()


@pytest.mark.parametrize("menu", ["layers_menu", "plugins_menu"])
def test_menus_have_the_noise_panel(viewer, menu, qtbot):
    path = ["Measure"] if menu == "layers_menu" else ["GPU Denoise"]
    title = "Estimated noise (GPU Denoise)"
    find(getattr(viewer.window, menu), [*path, title]).trigger()
    qtbot.waitUntil(lambda: title in viewer.window.dock_widgets)
    panel = viewer.window.dock_widgets[title]
    assert "no image layer" in panel.status.text()


@pytest.mark.parametrize("name", samples.names())
def test_sample_opens_with_its_axes(viewer, name):
    find(viewer.window.file_menu, ["Open Sample", "GPU Denoise", samples.title(name)]).trigger()
    (layer,) = viewer.layers
    known = samples.info(name)
    assert layer.data.ndim == len(known.axes)
    np.testing.assert_allclose(layer.scale, known.scale)
    assert "".join(layer.axis_labels).upper() == known.axes
    assert tuple(map(str, layer.units)) == known.units
    assert layer.metadata["licence"] == known.licence


def test_panel_reads_a_samples_axes(viewer, open_panel):
    viewer.open_sample("napari-gpu-denoise", "fluorescence")
    panel = open_panel()
    assert panel.axes.axes() == "TYX"
    assert panel.axes.caption.text() == "16 time points, 192 by 208 pixels"
    assert panel.form.controls["frames_before"].native.isEnabled()
    assert not panel.form.controls["slices"].native.isEnabled()
