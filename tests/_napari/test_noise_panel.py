"""The panel "Estimated noise": what it shows, of which pixels, and what becomes of it."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from qtpy.QtGui import QPalette
from qtpy.QtWidgets import QApplication

import napari_gpu_denoise as gd
from _napari.conftest import PLUGIN
from _napari.inputs import add_sliced, choose, click, copied, rectangle
from napari_gpu_denoise._napari.model import FLAT, RECTANGLE
from napari_gpu_denoise._napari.noise import rows
from napari_gpu_denoise._napari.noise.plots import Series


def test_a_sample_shows_what_the_api_says(viewer, open_noise, measured, pasted, qtbot):
    (layer,) = viewer.open_sample(PLUGIN, "fluorescence")
    panel = open_noise()
    assert measured(panel) == ""
    expected = gd.estimate_noise(layer.data, "TYX")
    assert panel.estimate() == expected
    shown = panel.result
    assert shown.verdict.text() == f"<b>{expected.verdict()}.</b>"
    text = shown.rows.text()
    model, errors = expected.models[0], expected.errors[0]
    for name in ("gain", "read_noise"):
        assert rows.measured(getattr(model, name), errors[name]) in text
    assert rows.measured(expected.sigma[0], expected.standard_error[0]) in text
    assert f"{expected.planes} planes)" in text
    qtbot.waitUntil(lambda: bool(shown.correlation.series))
    assert shown.curve.series and shown.frames.series[0].y == expected.frames.sigma[0]
    assert shown.slices.isHidden()
    assert shown.correlation.series[0].y == expected.spectra[0].autocorrelation[0]
    assert pasted(panel, until="denoised")["noise"] == expected


def test_model_and_axes(viewer, open_noise, measured, quick):
    image = np.random.default_rng(0).normal(0, [[[1]], [[2]], [[4]]], (3, 40, 50))
    viewer.add_image(image, name="a", axis_labels=("c", "y", "x"))
    panel = open_noise()
    measured(panel)
    assert quick[-1][1:] == ("CYX", "auto")
    panel.axes.edit.setText(".YX")
    choose(panel.kind, "rician")
    assert panel.estimate() is None and not panel.use_button.isEnabled()
    assert panel.status.text() == "Measuring …"
    measured(panel)
    pixels, *how = quick[-1]
    assert_array_equal(pixels, image)
    assert how == [".YX", "rician"]
    assert len(quick) == 2  # both changes at once
    assert "gd.estimate_noise(image, model='rician')" in copied(panel.python_action)
    panel.axes.edit.setText("ZYX")
    measured(panel)
    assert quick[-1][1] == "ZYX" and quick[-1][0].shape == (3, 40, 50)
    panel.axes.edit.setText("TCZYX")
    assert "names 5 axes" in measured(panel) and len(quick) == 3


def test_it_follows_the_selected_layer(viewer, open_noise, measured, quick, noisy):
    first = viewer.add_image(noisy, name="first")
    viewer.add_image(noisy[:30], name="second")
    panel = open_noise()
    assert panel.layer.currentText() == "second"
    measured(panel)
    viewer.layers.selection.active = first
    assert panel.layer.currentText() == "first" and panel.result.verdict.text() == ""
    viewer.add_labels(np.zeros((9, 9), int))  # cannot be measured: the choice stays
    first.data = noisy[:20]
    measured(panel)
    assert [pixels.shape for pixels, *_ in quick] == [(30, 80), (20, 80)]
    viewer.layers.clear()
    assert "There is no image layer" in panel.status.text()
    assert panel.estimate() is None and panel.result.verdict.text() == ""


def test_a_rectangle_of_a_shapes_layer(viewer, open_noise, measured, quick, movie):
    viewer.add_image(movie, name="cells", axis_labels=("t", "y", "x"), scale=(1, 2, 2))
    panel = open_noise()
    choose(panel.region.box, RECTANGLE)
    assert "click Draw" in measured(panel)
    click(panel.region.draw_button)
    shapes = viewer.layers[-1]
    assert shapes.mode == "add_rectangle" and viewer.layers.selection.active is shapes
    assert panel.layer.currentText() == "cells"
    shapes.add_rectangles([rectangle(5, 7, 15, 20, 3)])
    assert measured(panel) == ""
    assert_array_equal(quick[-1][0], movie[:, 5:16, 7:21])
    assert "gd.estimate_noise(image[:, 5:16, 7:21], axes='TYX')" in copied(panel.python_action)
    # The image may move away under what was drawn.
    viewer.layers["cells"].translate = (0, -4, 0)
    measured(panel)
    assert_array_equal(quick[-1][0], movie[:, 7:18, 7:21])
    viewer.layers.remove(shapes)
    assert "click Draw" in measured(panel)


def test_a_flat_region(viewer, open_noise, measured, movie, pasted):
    viewer.add_image(movie, axis_labels=("t", "y", "x"), name="cells")
    panel = open_noise()
    choose(panel.region.box, FLAT)
    click(panel.region.draw_button)
    viewer.layers[-1].add_rectangles([rectangle(4, 4, 20, 30, 2)])
    measured(panel)
    region = movie[2, 4:21, 4:31]
    assert panel.estimate().sigma == (pytest.approx(region.std(ddof=1)),)
    assert panel._outcome.request.part.place.startswith("time point 2, rows 4 to 20")
    choose(panel.kind, "gaussian")
    measured(panel)
    assert pasted(panel, until="denoised")["noise"] == panel.estimate().models[0]
    # Objects in it are known by the noise of the layer.
    assert "the region is not flat: its sigma is" in panel.result.rows.text().lower()
    choose(panel.kind, "poisson-gaussian")
    assert "one brightness" in measured(panel)
    click(panel.python_action)
    assert "not measured yet" in panel.status.text()


def test_what_cannot_be_measured_is_told(viewer, open_noise, measured, movie):
    panel = open_noise()
    for shape in ((1, 1), (7, 7)):
        viewer.add_image(np.random.default_rng(0).normal(9, 1, shape))
        assert "Internal error" not in measured(panel)
    viewer.add_image(np.full((40, 40), np.nan, np.float32), contrast_limits=(0, 1))
    status = measured(panel)
    assert status.startswith("<b>Not measured.</b>") and "Too few finite pixels" in status
    assert not panel.use_button.isEnabled() and panel.result.verdict.text() == ""

    def broken():
        raise RuntimeError("gears jammed")

    add_sliced(viewer, movie, broken)
    assert "gears jammed" in measured(panel)


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_plot_can_be_read_in_both_themes(viewer, open_noise, measured, quick, noisy, theme):
    viewer.add_image(noisy)
    panel = open_noise()
    measured(panel)
    plot = panel.result.curve
    plot.show_series([Series((1, 2), (3, 4))])
    viewer.theme = theme
    QApplication.processEvents()
    text, ground = (
        plot.palette().color(role)
        for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Window)
    )
    assert abs(text.lightness() - ground.lightness()) > 120
    axis = plot.area.getAxis("left")
    assert axis.pen().color() == axis.textPen().color() == text
    assert plot.area.scene().views()[0].backgroundBrush().color() == ground
