"""The panel "Compare": temporary layers, their line, and how everything is left as it was."""

from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from napari.components import ViewerModel
from numpy.testing import assert_allclose, assert_array_equal

from _napari.inputs import choose, click
from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.compare.overlay import CURTAIN, NOTHING, RESIDUAL, shown_axes
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY, is_temporary


@pytest.fixture
def pair(viewer):
    """Layers of an image and of its result."""
    stack = np.random.default_rng(0).normal(100, 10, (3, 40, 60)).astype(np.float32)
    looks = {"scale": (1, 0.5, 0.5), "blending": "additive", "contrast_limits": (50, 150)}
    before = viewer.add_image(stack, name="a", **looks)
    return before, add_result(viewer, before, "X", colormap="green", **looks)


def add_result(viewer, source, name, about=(), **looks):
    record = {"filter": name, "source": source.name, "source_id": str(source.unique_id)}
    looks |= {"name": f"{source.name} ({name})", "metadata": {**dict(about), METADATA_KEY: record}}
    return viewer.add_image((source.data * 0.5).astype(source.data.dtype), **looks)


@pytest.fixture
def switch(qtbot):
    """Choose what a panel shows, and wait for it."""

    def choose_it(panel, mode):
        choose(panel.mode, mode)
        qtbot.waitUntil(lambda: panel.overlay.mode == mode)

    return choose_it


@pytest.fixture
def open_compare(viewer, switch):
    def open_it():
        panel = docks.open_panel(viewer, "Compare")
        switch(panel, CURTAIN)
        return panel

    return open_it


def temporary(viewer):
    """Temporary layers that are seen."""
    return [layer for layer in viewer.layers if is_temporary(layer) and layer.visible]


def visible(layers):
    return [layer.visible for layer in layers]


def test_the_selected_result_is_compared_and_left_as_it_was(viewer, pair, open_compare):
    before, after = pair
    before.visible = False
    panel = open_compare()
    assert (panel.before.layer(), panel.layer.layer()) == pair
    (curtain,) = temporary(viewer)
    assert visible(pair) == [False, False]
    assert viewer.layers.index(curtain) == 2
    assert curtain.blending == "additive" and curtain.colormap.name == "green"
    viewer.dims.set_current_step(0, 0)
    shown = curtain.data[0]
    assert_array_equal(shown[:, :30], before.data[0, :, :30])
    assert_array_equal(shown[:, 31:], after.data[0, :, 31:])
    assert np.all(shown[:, 30] == np.float32(curtain.contrast_limits[1]))  # the line
    # Controls of the result work on what is seen instead.
    assert viewer.layers.selection.active is after
    after.contrast_limits, after.gamma = (60, 70), 0.5
    assert curtain.contrast_limits == [60, 70] and curtain.gamma == 0.5

    viewer.window.remove_dock_widget(panel)
    assert list(viewer.layers) == list(pair) and visible(pair) == [False, True]


def test_the_line_is_dragged(viewer, pair, open_compare, switch, qtbot):
    panel = open_compare()
    curtain = temporary(viewer)[0]
    docks.camera_of(viewer).zoom = 4  # 2 pixels of the screen for one of the layer

    def drag(start, *places):
        event = SimpleNamespace(type="mouse_press", position=(0, 5, start * 0.5), button=1)
        moving = viewer.mouse_drag_callbacks[-1](viewer, event)
        list(zip([None], moving, strict=False))
        event.type = "mouse_move"
        for x in places:
            event.position = (0, 5, x * 0.5)
            next(moving, None)
        event.type = "mouse_release"
        list(moving)

    drag(31, 20, 12)
    assert panel.overlay.at == panel.slider.value() == 12
    drawn = lambda: int(np.argmax(curtain.data[0, 0]))  # noqa: E731
    qtbot.waitUntil(lambda: drawn() == 12)
    # Away from the line the picture is moved, and beyond the picture the line stays at its edge.
    drag(40, 50)
    assert panel.overlay.at == 12
    drag(12, 500)
    assert panel.overlay.at == 60
    panel.slider.setValue(7)
    qtbot.waitUntil(lambda: drawn() == 7)
    for mode in (RESIDUAL, CURTAIN):
        switch(panel, mode)
    assert panel.overlay.at == panel.slider.value() == 7


def test_holding_shows_the_source(viewer, pair, open_compare):
    panel = open_compare()
    data, whole = temporary(viewer)[0].data, pair[0].data
    viewer.dims.set_current_step(0, 0)
    both = data[0].copy()
    panel.hold_button.pressed.emit()
    assert_array_equal(data[0], whole[0])
    assert panel.caption.text() == "Before: a"
    panel.hold_button.released.emit()
    assert_array_equal(data[0], both)
    assert panel.caption.text() == ""
    choose(panel.mode, NOTHING)
    assert temporary(viewer) == [] and all(visible(pair))


def test_the_residual_is_symmetric(viewer, pair, open_compare, switch, qtbot):
    before, after = pair
    panel = open_compare()
    switch(panel, RESIDUAL)
    (shown,) = temporary(viewer)
    low, high = shown.contrast_limits
    assert low == -high and high > 0
    viewer.dims.set_current_step(0, 1)
    assert_array_equal(shown.data[1], before.data[1] - after.data[1])
    assert_allclose(shown.scale, before.scale)
    assert f"to {high:.3g} in grey levels" in panel.caption.text()
    # The layer follows a rerun.
    after.data = before.data - 1
    qtbot.waitUntil(lambda: np.allclose(shown.data[1], 1, atol=1e-4))
    # The layer is the same when it is shown again: napari takes long to remove one.
    switch(panel, CURTAIN)
    assert shown not in temporary(viewer)
    switch(panel, RESIDUAL)
    assert temporary(viewer) == [shown] and shown.contrast_limits[1] < high


def test_removed_layers_end_the_comparison(viewer, pair, open_compare, switch, qtbot):
    before, after = pair
    panel = open_compare()
    viewer.layers.remove(temporary(viewer)[0])
    assert panel.mode.currentData() == NOTHING
    assert list(viewer.layers) == list(pair) and all(visible(pair))
    switch(panel, CURTAIN)
    viewer.layers.remove(after)
    assert list(viewer.layers) == [before] and before.visible
    assert panel.layer.layer() is None and "Denoise a layer first" in panel.status.text()
    # The next result is taken when it comes.
    newer = add_result(viewer, before, "Y")
    qtbot.waitUntil(lambda: panel.overlay.mode == CURTAIN)
    assert panel.layer.layer() is newer
    viewer.layers.clear()
    assert len(viewer.layers) == 0 and panel.overlay.mode == NOTHING


def test_results_are_compared_as_they_are_selected(viewer, pair, open_compare, qtbot):
    before, after = pair
    other = add_result(viewer, before, "Y")
    panel = open_compare()
    assert panel.layer.layer() is other
    viewer.layers.selection.active = after
    qtbot.waitUntil(lambda: panel.overlay.layer is not None)
    assert (panel.layer.layer(), panel.before.layer()) == (after, before)
    assert other.visible and not after.visible
    # The layer follows a rerun.
    viewer.dims.set_current_step(0, 0)
    after.data = before.data - 1
    curtain = temporary(viewer)[0]
    qtbot.waitUntil(lambda: np.array_equal(curtain.data[0, :, 31:], after.data[0, :, 31:]))
    # Two results beside each other.
    panel.before.setCurrentIndex(1)
    qtbot.waitUntil(lambda: panel.overlay.layer is not None)
    assert panel.before.layer() is other and before.visible and not other.visible
    viewer.window.remove_dock_widget(panel)
    # Two that are selected are compared with each other, also by the button of a panel.
    viewer.layers.selection = {after, other}
    panel = open_compare()
    assert (panel.layer.layer(), panel.before.layer()) == (other, after)
    viewer.layers.selection = {before}
    panel.take(after)
    assert panel.layer.layer() is other


def test_all_channels_of_a_file_are_compared_at_once(viewer, open_compare, switch, qtbot, tmp_path):
    planes = np.random.default_rng(0).integers(0, 200, (2, 40, 60), dtype=np.uint16)
    named = {"axes": "CYX", "Channel": {"Name": ["GFP", "RFP"]}}
    tifffile.imwrite(tmp_path / "cells.ome.tif", planes, ome=True, metadata=named)
    first, second = viewer.open(tmp_path / "cells.ome.tif", plugin="napari-gpu-denoise")
    looks = {"blending": "additive", "contrast_limits": (0, 200)}
    results = [
        add_result(viewer, each, "bm3d", about=each.metadata, **looks) for each in (first, second)
    ]
    panel = open_compare()
    assert panel.layer.currentText() == "Both channels of cells.ome.tif, BM3D"
    assert [panel.before.itemText(k) for k in range(panel.before.count())] == ["Their sources"]
    curtains = [each for each in temporary(viewer) if each.name.startswith("curtain")]
    for curtain, before, after in zip(curtains, (first, second), results, strict=True):
        expected = np.where(np.arange(60) < 30, before.data, after.data)
        expected[:, 30] = 200  # the line
        assert_array_equal(curtain.data[...], expected)
    assert visible([first, second, *results]) == [False] * 4
    # One residual, that of the selected channel.
    switch(panel, RESIDUAL)
    (shown,) = temporary(viewer)
    assert_array_equal(shown.data[...], second.data * 1.0 - results[1].data)
    assert "of cells RFP (bm3d)" in panel.caption.text()
    viewer.layers.selection.active = results[0]
    qtbot.waitUntil(lambda: "of cells GFP (bm3d)" in panel.caption.text())
    (shown,) = temporary(viewer)
    assert_array_equal(shown.data[...], first.data * 1.0 - results[0].data)
    panel.stop()
    assert list(viewer.layers) == [first, second, *results]
    assert all(visible(viewer.layers))


def test_there_is_no_curtain_in_3d_and_in_a_grid(viewer, pair, open_compare, qtbot):
    panel = open_compare()
    viewer.dims.ndisplay = 3
    qtbot.waitUntil(lambda: "2D" in panel.status.text())
    assert temporary(viewer) == [] and all(visible(pair))
    viewer.dims.ndisplay = 2
    qtbot.waitUntil(lambda: len(temporary(viewer)) == 1)
    viewer.dims.order = (1, 0, 2)
    viewer.dims.set_current_step(1, 5)
    qtbot.waitUntil(lambda: panel.overlay.mode == CURTAIN)
    rows = panel.overlay.layer.data[:, 5]
    assert_array_equal(rows[:, :30], pair[0].data[:, 5, :30])
    assert_array_equal(rows[:, 31:], pair[1].data[:, 5, 31:])
    model = ViewerModel()  # a window would keep what napari adds for a grid
    layer = model.add_image(np.zeros((4, 5)))
    assert shown_axes(model, layer) == (0, 1)
    docks.grid_of(model).enabled = True
    assert shown_axes(model, layer) is None


def test_curves_along_a_drawn_line(viewer, pair, open_compare, qtbot):
    before, _ = pair
    panel = open_compare()
    viewer.dims.set_current_step(0, 0)
    click(panel.draw_button)
    line = temporary(viewer)[-1]
    assert line.mode == "add_line" and viewer.layers.selection.active is line
    line.add_lines(np.array([[0.0, 10, 5], [0, 10, 25]]))
    qtbot.waitUntil(lambda: panel._plot.series != [])
    first = panel._plot.series[0]
    assert_allclose(first.y[::2], before.data[0, 10, 5:26], rtol=1e-6)
    assert first.x[-1] == pytest.approx(10)
    viewer.dims.set_current_step(0, 2)
    expected = before.data[2, 10, 5:26]
    qtbot.waitUntil(lambda: np.allclose(panel._plot.series[0].y[::2], expected))
    viewer.layers.remove(line)
    assert panel._plot.isHidden()
    click(panel.draw_button)
    viewer.window.remove_dock_widget(panel)
    assert list(viewer.layers) == list(pair)


def test_the_line_of_colours_is_white(viewer, open_compare, qtbot):
    before = viewer.add_image(np.full((40, 60, 3), 90, np.uint8), name="a", rgb=True)
    add_result(viewer, before, "X", rgb=True)
    panel = open_compare()
    (curtain,) = temporary(viewer)
    assert np.all(curtain.data[:, 30] == 255)
    click(panel.draw_button)
    viewer.layers[-1].add_lines(np.array([[10.0, 5], [10, 25]]))
    qtbot.waitUntil(lambda: panel._plot.series != [])
    assert panel._plot.y_label == "Luminance"
