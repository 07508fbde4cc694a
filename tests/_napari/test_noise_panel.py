"""The panel "Estimated noise": what it shows, of which pixels, and what becomes of it."""

import numpy as np
import pytest
from qtpy.QtWidgets import QApplication

import napari_gpu_denoise as gd
from _napari.noise_records import along, estimate
from napari_gpu_denoise._napari.noise import measuring, rows
from napari_gpu_denoise._napari.noise.panel import FLAT, RECTANGLE, VIEW

pytestmark = pytest.mark.gui


def choose(box, value):
    box.setCurrentIndex(box.findData(value))


def test_a_sample_shows_what_the_api_says(viewer, open_noise, measured, pasted):
    (layer,) = viewer.open_sample("napari-gpu-denoise", "fluorescence")
    panel = open_noise()
    assert measured(panel) == ""
    expected = gd.estimate_noise(layer.data, "TYX")
    assert panel.estimate() == expected
    verdict = expected.verdict()
    assert panel.result.verdict.text() == f"<b>{verdict[:1].upper()}{verdict[1:]}.</b>"
    shown = panel.result.rows.text()
    model, errors = expected.models[0], expected.errors[0]
    for name in ("gain", "read_noise"):
        assert rows.measured(getattr(model, name), errors[name]) in shown
    assert rows.measured(expected.sigma[0], expected.standard_error[0]) in shown
    assert f"{expected.planes} of 16 planes" in shown
    curve = expected.curves[0]
    used, line = panel.result.curve.series[0], panel.result.curve.series[-1]
    assert used.x == [m for m, u in zip(curve.mean, curve.used, strict=True) if u]
    assert line.y[0] == pytest.approx(float(model.variance(line.x[0])))
    assert panel.result.frames.series[0].y == expected.frames.sigma[0]
    assert panel.result.slices.isHidden()
    assert panel.result.correlation.series[0].y == expected.spectra[0].autocorrelation[0]
    scope = pasted(panel, until="denoised")
    assert scope["noise"] == expected


def test_model_and_channel(viewer, open_noise, measured, quick, copied):
    image = np.random.default_rng(0).normal(0, [[[1]], [[2]], [[4]]], (3, 40, 50))
    viewer.add_image(image, name="a", axis_labels=("c", "y", "x"))
    panel = open_noise()
    measured(panel)
    assert quick[-1][1:] == ("CYX", "auto")
    assert panel.channel.count() == 4
    choose(panel.channel, 2)
    choose(panel.model, "rician")
    assert panel.estimate() is None and not panel.use_button.isEnabled()
    assert panel.status.text() == "Measuring …"
    measured(panel)
    pixels, *how = quick[-1]
    np.testing.assert_array_equal(pixels, image[2])
    assert how == ["YX", "rician"]
    assert len(quick) == 2  # both changes at once
    assert "channel 2" in panel.result.rows.text()
    assert "gd.estimate_noise(image[2], model='rician')" in copied(panel.python_button)
    panel.axes.edit.setText("ZYX")
    assert panel.channel.isHidden() and panel.channel.currentData() is None
    measured(panel)
    assert quick[-1][1] == "ZYX" and quick[-1][0].shape == (3, 40, 50)


def test_it_follows_the_selected_layer(viewer, open_noise, measured, quick, noisy):
    first = viewer.add_image(noisy, name="first")
    viewer.add_image(noisy[:30], name="second")
    panel = open_noise()
    assert panel.layer.currentText() == "second"
    measured(panel)
    viewer.layers.selection.active = first
    assert panel.layer.currentText() == "first" and panel.result.verdict.text() == ""
    measured(panel)
    assert quick[-1][0].shape == noisy.shape
    count = len(quick)
    viewer.add_labels(np.zeros((9, 9), int))  # cannot be measured: the choice stays
    assert panel.layer.currentText() == "first"
    first.data = noisy[:20]
    measured(panel)
    assert quick[-1][0].shape == (20, 80) and len(quick) == count + 1
    viewer.layers.clear()
    assert "There is no image layer" in panel.status.text()
    assert panel.estimate() is None and panel.result.verdict.text() == ""


def test_the_current_view(make_napari_viewer, plugin, measured, quick, qtbot, movie):
    from napari_gpu_denoise._napari.docks import open_panel

    viewer = make_napari_viewer(show=True)
    layer = viewer.add_image(movie, axis_labels=("t", "y", "x"), scale=(1, 0.5, 0.5))
    panel = open_panel(viewer, "Estimated noise")
    measured(panel)
    choose(panel.region, VIEW)
    measured(panel)
    viewer.dims.set_current_step(0, 4)
    camera = viewer.scene.camera if hasattr(viewer, "scene") else viewer.camera
    camera.center = (0, 10, 12)
    camera.zoom *= 3
    qtbot.waitUntil(lambda: panel.estimate() is None)
    measured(panel)
    pixels, axes, _ = quick[-1]
    (_, top, left), (_, bottom, right) = layer.corner_pixels
    assert 0 < top < bottom < 39 and (axes, pixels.ndim) == ("YX", 2)
    np.testing.assert_array_equal(pixels, movie[4, top : bottom + 1, left : right + 1])
    assert f"time point 4, rows {top} to {bottom}" in panel.result.rows.text()
    viewer.dims.ndisplay = 3
    assert "not show a YX plane" in measured(panel)


def test_a_rectangle_of_a_shapes_layer(viewer, open_noise, measured, quick, movie, click, copied):
    viewer.add_image(movie, name="cells", axis_labels=("t", "y", "x"), scale=(1, 2, 2))
    panel = open_noise()
    measured(panel)
    choose(panel.region, RECTANGLE)
    assert "click Draw" in measured(panel)
    click(panel.draw_button)
    shapes = viewer.layers[-1]
    assert shapes.mode == "add_rectangle" and viewer.layers.selection.active is shapes
    assert panel.layer.currentText() == "cells"
    shapes.add_rectangles([[3, 5, 7], [3, 5, 20], [3, 15, 20], [3, 15, 7]])
    assert measured(panel) == ""
    np.testing.assert_array_equal(quick[-1][0], movie[:, 5:16, 7:21])
    assert quick[-1][1] == "TYX"
    assert "rows 5 to 15, columns 7 to 20" in panel.result.rows.text()
    assert "gd.estimate_noise(image[:, 5:16, 7:21], axes='TYX')" in copied(panel.python_button)
    # Draw goes on with it; what is drawn later counts, and the image may move away under it.
    click(panel.draw_button)
    assert len(viewer.layers) == 2
    shapes.add_rectangles([[0, 1, 1], [0, 1, 9], [0, 9, 9], [0, 9, 1]])
    shapes.selected_data = {1}
    measured(panel)
    np.testing.assert_array_equal(quick[-1][0], movie[:, 1:10, 1:10])
    viewer.layers["cells"].translate = (0, -4, 0)
    measured(panel)
    np.testing.assert_array_equal(quick[-1][0], movie[:, 3:12, 1:10])
    viewer.layers.remove(shapes)
    assert "click Draw" in measured(panel)


def test_a_flat_region(viewer, open_noise, measured, movie, click, noisy, pasted):
    viewer.add_image(movie, axis_labels=("t", "y", "x"), name="cells")
    panel = open_noise()
    choose(panel.region, FLAT)
    click(panel.draw_button)
    viewer.layers[-1].add_rectangles([[2, 4, 4], [2, 4, 30], [2, 20, 30], [2, 20, 4]])
    measured(panel)
    region = movie[2, 4:21, 4:31]
    assert panel.estimate().sigma == (pytest.approx(region.std(ddof=1)),)
    assert "1 of 1 plane; time point 2, rows 4 to 20" in panel.result.rows.text()
    choose(panel.model, "gaussian")
    measured(panel)
    scope = pasted(panel, until="denoised")
    assert scope["noise"] == panel.estimate().models[0]
    choose(panel.model, "poisson-gaussian")
    assert "one brightness" in measured(panel)
    click(panel.python_button)
    assert "not measured yet" in panel.status.text()


@pytest.mark.parametrize("kind", ["rgb", "rgba", "multiscale", "plane"])
def test_kinds_of_layers(viewer, open_noise, measured, click, kind, pasted):
    rng = np.random.default_rng(3)
    if kind == "multiscale":
        image = rng.normal(100, 5, (64, 64)).astype(np.float32)
        viewer.add_image([image, image[::2, ::2]], multiscale=True, name="a")
        count = 1
    elif kind == "plane":
        image = rng.normal(100, 5, (1, 64, 64)).astype(np.float32)
        viewer.add_image(image, name="a")
        count = 1
    else:
        image = rng.normal(100, 5, (64, 64, len(kind))).clip(0, 255).astype(np.uint8)
        if kind == "rgba":
            image[..., 3] = 255
        viewer.add_image(image, rgb=True, name="a")
        image, count = image[..., :3], 3
    panel = open_noise()
    assert measured(panel) == ""
    estimate = panel.estimate()
    assert estimate.sigma == pytest.approx((5,) * count, rel=0.1)
    assert estimate.planes == count and f"{count} of {count} plane" in panel.result.rows.text()
    assert panel.channel.count() == (4 if count == 3 else 1)
    scope = pasted(panel, until="denoised")
    assert scope["noise"] == estimate
    source = viewer.layers["a"]
    choose(panel.region, FLAT)
    click(panel.draw_button)
    shapes = viewer.layers[-1]
    assert shapes.ndim == source.ndim and shapes.mode == "add_rectangle"
    corners = np.array([[4, 4], [4, 30], [30, 30], [30, 4]])
    shapes.add_rectangles(np.hstack([np.zeros((4, source.ndim - 2)), corners]))
    assert measured(panel) == ""
    assert panel.estimate().sigma == pytest.approx((5,) * count, rel=0.15)


def test_what_cannot_be_measured_is_told(viewer, open_noise, measured):
    panel = open_noise()
    odd = {"Too few finite pixels": np.full((40, 40), np.nan, np.float32)}
    for said, image in odd.items():
        viewer.add_image(image, contrast_limits=(0, 1))
        status = measured(panel)
        assert status.startswith("<b>Not measured.</b>") and said in status
        assert not panel.use_button.isEnabled() and panel.result.verdict.text() == ""


def test_tiny_layers(viewer, open_noise, measured):
    panel = open_noise()
    for shape in ((1, 1), (3, 5), (7, 7), (8, 8)):
        viewer.add_image(np.random.default_rng(0).normal(9, 1, shape))
        status = measured(panel)
        assert panel.estimate() is not None or "Not measured" in status
        assert "Internal error" not in status


def test_axes_that_do_not_fit(viewer, open_noise, measured, quick, noisy):
    viewer.add_image(noisy)
    panel = open_noise()
    panel.axes.edit.setText("TYX")
    assert "names 3 axes" in measured(panel)
    panel.axes.edit.setText("XY")
    assert measured(panel) == "" and quick[-1][1] == "XY"
    assert len(quick) == 1


def test_a_fault_in_the_program_is_reported(viewer, open_noise, measured, monkeypatch, noisy, told):
    from napari_gpu_denoise._napari.noise import measuring

    def broken(*args, **kwargs):
        raise RuntimeError("gears jammed")

    monkeypatch.setattr(measuring, "estimate_noise", broken)
    viewer.add_image(noisy)
    assert "gears jammed" in measured(open_noise())
    assert any("gears jammed" in text for text in told())


def test_it_is_narrow_and_can_be_read(viewer, open_noise, measured, quick, noisy):
    """Text and ground of a plot differ in both themes."""
    from qtpy.QtGui import QPalette

    viewer.add_image(noisy, name="a name that is so long that it fits no panel of this width")
    panel = open_noise()
    measured(panel)
    for theme in ("dark", "light"):
        viewer.theme = theme
        QApplication.processEvents()
        palette = panel.result.curve.palette()
        ink = palette.color(QPalette.ColorRole.WindowText).lightness()
        ground = palette.color(QPalette.ColorRole.Window).lightness()
        assert abs(ink - ground) > 120, theme
        assert (ink > ground) == (theme == "dark")
        axis = panel.result.curve.area.getAxis("left")
        for pen in (axis.pen(), axis.textPen()):
            assert pen.color() == palette.color(QPalette.ColorRole.WindowText), theme
        assert axis.labelStyle["color"] == palette.color(QPalette.ColorRole.WindowText).name()
        drawn = panel.result.curve.area.scene().views()[0].backgroundBrush().color()
        assert drawn == palette.color(QPalette.ColorRole.Window), theme
    for region in (VIEW, RECTANGLE, FLAT):
        choose(panel.region, region)
        assert panel.minimumSizeHint().width() <= 360


def test_the_filter_suggested_is_that_of_the_panel_denoise(
    viewer, open_noise, measured, noisy, monkeypatch
):
    found = estimate(axes="TYX", frames=along())
    monkeypatch.setattr(measuring, "estimate_noise", lambda *_, **__: found)
    viewer.add_image(np.repeat(noisy[None], 4, axis=0), axis_labels=("t", "y", "x"))
    panel = open_noise()
    measured(panel)
    assert found.verdict().endswith("suggested: VBM3D")
    reason = "suggested: BM3D, because the noise stays the same from frame to frame"
    assert reason in panel.result.verdict.text() and panel.target.currentText() == "BM3D"
