"""What the plugin adds to napari's menus, and that it opens from there."""

import numpy as np
import pytest

from napari_gpu_denoise import samples

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
    entry = find(viewer.window.layers_menu, ["Filter", "Denoise (GPU)", "NL-means (GPU Denoise)"])
    entry.trigger()
    panel = viewer.window.dock_widgets["NL-means (GPU Denoise)"]
    qtbot.waitUntil(lambda: panel.device.caption.text() != "", timeout=30_000)
    assert panel.layer.layer().name == viewer.layers[0].name


def test_plugins_menu_has_the_panel(viewer):
    assert find(viewer.window.plugins_menu, ["NL-means (GPU Denoise)"]) is not None


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
