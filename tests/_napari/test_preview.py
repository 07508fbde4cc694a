"""The live preview in napari: its layer, and when it is made again."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import napari_gpu_denoise as gd
from _napari.conftest import PLUGIN
from _napari.inputs import add_sliced, layer_names, type_sigma
from napari_gpu_denoise._napari.layers.provenance import is_temporary
from napari_gpu_denoise._napari.model import memory_of
from napari_gpu_denoise._napari.preview import live as lives
from napari_gpu_denoise.errors import DeviceMemoryError


@pytest.fixture(autouse=True)
def whole_layers(monkeypatch):
    """Take the whole plane for what the camera shows: a window that is not shown has no canvas."""
    real = lives.region_shown

    def shown(layer, dims):
        last = np.array(layer.level_shapes[0]) if layer.multiscale else np.array(layer.data.shape)
        layer.corner_pixels = np.stack([np.zeros(layer.ndim), last[: layer.ndim] - 1]).astype(int)
        return real(layer, dims)

    monkeypatch.setattr(lives, "region_shown", shown)


@pytest.fixture
def settle(qtbot):
    """Wait until a preview is what it is to be."""
    return lambda panel: qtbot.waitUntil(lambda: panel.live.settled)


@pytest.fixture
def tick(settle):
    """Tick the box and wait for the preview; returns the status."""

    def tick_it(panel, sigma="10"):
        if sigma:
            type_sigma(panel, sigma)
        panel.preview.box.setChecked(True)
        settle(panel)
        return panel.preview.caption.text()

    return tick_it


def test_the_preview_is_a_run_of_the_place_shown(viewer, open_panel, movie, tick, settle):
    look = {"scale": (1, 0.5, 0.5), "rotate": (20), "axis_labels": ("t", "y", "x")}
    source = viewer.add_image(movie, name="movie", translate=(4, 3, 2), colormap="green", **look)
    viewer.add_image(movie, name="above")
    viewer.dims.set_point(0, 6)  # frame 2
    viewer.layers.selection.active = source
    panel = open_panel("BM3D")
    panel.form.profile.setCurrentText("fast")
    assert "40 by 48 pixels" in tick(panel)
    shown = panel.live.layer
    names = ["movie", "Preview of movie (BM3D)", "above"]
    assert layer_names(viewer) == names
    assert viewer.layers.selection.active is source
    whole = gd.bm3d(movie, 10, axes="TYX", profile="fast")
    assert_array_equal(shown.data, whole[2:3])
    assert_allclose(shown.data_to_world((0, 0, 0)), source.data_to_world((2, 0, 0)))
    assert shown.colormap.name == "green"
    # Everything that changes is followed, in the same layer, which hides where it is wrong.
    source.contrast_limits = (200, 700)
    assert list(shown.contrast_limits) == [200, 700]
    panel.options.strength.slider.setValue(20)
    viewer.dims.set_point(0, 8)
    assert not shown.visible
    settle(panel)
    assert panel.live.layer is shown and shown.visible
    assert_array_equal(shown.data, gd.bm3d(movie, 20, axes="TYX", profile="fast")[4:5])
    assert layer_names(viewer) == names
    shown.visible = False  # by the user, to compare
    panel.options.strength.slider.setValue(5)
    settle(panel)
    assert not shown.visible


def test_the_layer_goes_with_the_box_and_a_source_that_shines_through_is_hidden(
    viewer, open_panel, noisy, tick
):
    source = viewer.add_image(noisy, name="noisy", blending="additive")
    panel = open_panel("NL-means")
    tick(panel)
    assert is_temporary(panel.live.layer) and panel.live.layer.visible and not source.visible
    assert panel.live.layer.blending == "additive"
    panel.preview.box.setChecked(False)
    assert list(viewer.layers) == [source] and source.visible
    assert not panel.preview.caption.text()
    # Ticked again, and removed by hand: the box goes with the layer.
    tick(panel)
    viewer.layers.remove(panel.live.layer)
    assert not panel.preview.box.isChecked()
    tick(panel)
    viewer.window.remove_dock_widget(panel)
    assert list(viewer.layers) == [source]


def test_it_is_no_source_and_no_result_and_stays_above_those_of_its_source(
    viewer, open_panel, noisy, tick, run, settle
):
    layer = viewer.add_image(noisy, name="noisy")
    viewer.add_image(noisy[:, :50], name="other")
    panel = open_panel("NL-means")
    tick(panel, sigma="")
    panel.layer.choose(layer)
    settle(panel)
    shown, memory = panel.live.layer, memory_of(layer, "auto", "YX", None, "raise", None)
    viewer.layers.selection.active, found = shown, memory.estimate
    offered = panel.layer
    assert [offered.itemText(i) for i in range(offered.count())] == ["other", "noisy"]
    # The noise is measured once.
    panel.options.strength.slider.setValue(10)
    settle(panel)
    assert found is not None and memory.estimate is found
    expected = gd.nl_means(noisy, sigma_factor=panel.options.strength.value())
    assert_array_equal(panel.live.layer.data, expected)
    names = ["noisy", "noisy NL-means", "Preview of noisy (NL-means)", "other"]
    run(panel)
    settle(panel)
    assert layer_names(viewer) == names
    panel.preview.box.setChecked(False)
    tick(panel, sigma="")
    assert layer_names(viewer) == names
    # With its layer it goes.
    for name in names[:2]:
        viewer.layers.remove(name)
    settle(panel)
    assert layer_names(viewer) == ["other", "Preview of other (NL-means)"]


def test_why_there_is_no_preview(viewer, open_panel, movie, tick, settle):
    problems = []

    def read():
        if problems:
            raise problems[0]

    add_sliced(viewer, movie, read)
    panel = open_panel("NL-means")
    tick(panel)
    viewer.dims.ndisplay = 3
    settle(panel)
    assert "switch the viewer to 2D" in panel.preview.caption.text()
    assert panel.live.layer is None
    viewer.dims.ndisplay = 2
    settle(panel)
    assert panel.live.layer is not None
    problems.append(DeviceMemoryError("The device is full: wait."))
    viewer.dims.set_current_step(0, 1)
    settle(panel)
    assert panel.preview.caption.text() == "The device is full: wait."
    assert panel.live.layer is None


def test_a_quick_profile_comes_first(viewer, open_panel, noisy, tick, settle):
    viewer.add_image(noisy)
    panel = open_panel("BM3D")
    made = []
    panel.live._filtering.ended.connect(lambda outcome: made.extend(outcome.request))
    tick(panel)
    assert [request.run.filter.profile_name() for request in made] == ["fast", "normal"]
    made.clear()
    panel.live.changed()  # nothing has
    settle(panel)
    assert not made
    for value in range(1, 8):
        panel.options.strength.slider.setValue(value)
    settle(panel)
    # The last one wins.
    assert made[-1].run.sigma_factor == panel.options.strength.value()
    made.clear()
    panel.form.profile.setCurrentText("fast")
    settle(panel)
    assert [request.final for request in made] == [True]


def clicked(panel, viewer, place, moved=()):
    """Press the mouse at a place of the strip, move it, and let it go."""
    shown = panel.live.layer
    event = SimpleNamespace(button=1, type="mouse_press", position=shown.data_to_world(place))
    act = viewer.mouse_drag_callbacks[-1](viewer, event)
    next(act)
    for position in moved:
        event.type, event.position = "mouse_move", position
        next(act)
    event.type = "mouse_release"
    assert next(act, None) is None


def test_three_strengths_side_by_side(viewer, open_panel, movie, settle, run):
    look = {"scale": (1, 0.5, 0.5), "axis_labels": ("t", "y", "x"), "translate": (0, 3, 2)}
    source = viewer.add_image(movie, name="movie", blending="additive", **look)
    viewer.add_image(movie, name="above")
    viewer.dims.set_current_step(0, 2)
    viewer.layers.selection.active = source
    panel = open_panel("NL-means")
    type_sigma(panel)
    callbacks = list(viewer.mouse_drag_callbacks)
    panel.preview.strip.click()
    settle(panel)
    assert panel.preview.caption.text().startswith("Click the best of 0.71, 1.00, 1.41: 40 by")
    shown = panel.live.layer
    assert layer_names(viewer) == ["movie", "above", "Strengths of movie (NL-means)"]
    assert shown.blending == "translucent_no_depth" and source.visible
    assert viewer.layers.selection.active is source
    strengths = (0.71, 1.0, 1.41)
    wholes = [gd.nl_means(movie, 10, axes="TYX", sigma_factor=each)[2] for each in strengths]
    # Each picture is the middle of the view, and the second one is in its place.
    for number, whole in enumerate(wholes):
        picture = shown.data[0, :, 16 * number : 16 * number + 15]
        assert_array_equal(picture, whole[:, 16:31])
    assert_allclose(shown.data_to_world((0, 0, 16)), source.data_to_world((2, 0, 16)))
    # A drag moves the view; a click beside all, or between, chooses nothing; on one, that one.
    clicked(panel, viewer, (0, 20, 40), [shown.data_to_world((0, 30, 20))])
    clicked(panel, viewer, (0, 50, 40))
    assert panel.preview.strip.isChecked() and panel.options.strength.value() == 1
    clicked(panel, viewer, (0, 20, 40))
    assert panel.options.strength.value() == 1.41 and not panel.preview.strip.isChecked()
    assert layer_names(viewer) == ["movie", "above"]
    assert viewer.mouse_drag_callbacks == callbacks
    # It would hide the result of a run.
    panel.preview.strip.click()
    settle(panel)
    assert "Strength 1.41." in run(panel)
    assert not panel.preview.strip.isChecked() and "Strengths" not in str(layer_names(viewer))
    assert viewer.layers[1].metadata[PLUGIN]["sigma_factor"] == 1.41
