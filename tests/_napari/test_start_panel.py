"""The panel "Denoise": advice on the layers selected, and one button that follows it."""

import numpy as np
import pytest
import tifffile

from napari_gpu_denoise._napari.start import info_of
from napari_gpu_denoise.filters import VBM3D

pytestmark = pytest.mark.gui


@pytest.fixture
def start(viewer, qtbot):
    """Open the panel as the menu does, and wait until it has looked at the layers."""
    from napari_gpu_denoise._napari.docks import open_panel

    def open_it():
        panel = open_panel(viewer, "Denoise")
        qtbot.waitUntil(lambda: ended(panel))
        return panel

    return open_it


def ended(panel):
    return bool(panel.advised()) or panel.status.text().startswith("<b>Not")


@pytest.fixture
def two_channels(tmp_path):
    """A file whose name says nothing, and its two channels, (t, y, x), with noise."""
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:48, :56]
    clean = 400 + 150 * np.sin(y / 7) * np.cos(x / 8)
    stack = np.stack([clean, 700 - clean])[:, None] + rng.normal(0, 12, (2, 4, 48, 56))
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, stack.astype(np.uint16), photometric="minisblack")
    return path, stack.astype(np.uint16)


def opened(viewer, path, channels, **attributes):
    """Add channels as a reader does: each knows the file it is from."""
    from napari.layers._source import layer_source

    with layer_source(path=str(path)):
        return [
            viewer.add_image(each, name=f"{path.stem} {number}", **attributes)
            for number, each in enumerate(channels)
        ]


def test_both_channels_of_a_file_with_one_click(viewer, start, click, qtbot, two_channels):
    path, channels = two_channels
    first, second = opened(
        viewer,
        path,
        channels,
        axis_labels=("t", "y", "x"),
        scale=(1, 0.5, 0.5),
        blending="additive",
    )
    panel = start()
    assert panel.layer.currentText() == "All 2 layers of a.tif"
    assert "VBM3D" in panel.advice.text() and "4 frames" in panel.advice.text()
    assert panel.run_button.text() == "Denoise 2 layers"
    click(panel.run_button)
    qtbot.waitUntil(lambda: len(viewer.layers) == 4 and not panel.runs.running)
    assert panel.status.text() == "2 layers done."
    for source in (first, second):
        (made,) = [each for each in viewer.layers if each.name == f"{source.name} (VBM3D)"]
        np.testing.assert_allclose(made.scale, source.scale)
        assert made.blending == "additive"
        assert made.data.std() < source.data.std()
        assert made.metadata["napari-gpu-denoise"]["axes"] == "TYX"
    # The choice stays although napari has selected a result.
    assert panel.layer.layers() == (first, second)


def test_the_noise_is_measured_once(viewer, start, click, qtbot, movie, monkeypatch):
    from napari_gpu_denoise.noise import estimate as estimates

    real, asked = estimates.measure_noise, []

    def measure(*args, **kwargs):
        asked.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(estimates, "measure_noise", measure)
    layer = viewer.add_image(movie, axis_labels=("t", "y", "x"))
    panel = start()
    click(panel.run_button)
    qtbot.waitUntil(lambda: not panel.runs.running)
    panel.effort.setCurrentIndex(1)
    assert [each.profile for each in panel.advised()] == ["fast"]
    click(panel.run_button)
    qtbot.waitUntil(lambda: not panel.runs.running)
    assert len(asked) == 1 and info_of(layer, "TYX").memory.estimate is not None


def test_it_follows_the_selection(viewer, start, qtbot, movie, noisy):
    one, other = viewer.add_image(noisy, name="one"), viewer.add_image(noisy[::-1], name="other")
    panel = start()
    assert panel.layer.layers() == (other,) and "BM3D" in panel.advice.text()
    viewer.layers.selection = {one, other}
    assert panel.layer.layers() == (one, other)
    viewer.layers.selection = {one}
    assert panel.layer.layers() == (one,)
    one.data = movie
    qtbot.waitUntil(lambda: "planes" in panel.advice.text())
    panel.axes.edit.setText("TYX")
    qtbot.waitUntil(lambda: "Time-lapse" in panel.advice.text())


def test_more_settings(viewer, start, click, qtbot, movie):
    layers = [viewer.add_image(movie, name=name, axis_labels=("t", "y", "x")) for name in "ab"]
    viewer.layers.selection = set(layers)
    panel = start()
    panel.effort.setCurrentIndex(panel.effort.findData("fast"))
    click(panel.more_button)
    more = viewer.window.dock_widgets["VBM3D (GPU Denoise)"]
    assert more.layer.layers() == tuple(layers) and more.axes.letters() == "TYX"
    assert more.form.settings() == VBM3D.of(profile="fast")
    qtbot.waitUntil(lambda: more.options.device.caption.text() != "")
    click(more.run_button)
    qtbot.waitUntil(lambda: not more.runs.running)
    assert more.status.text() == "2 layers done."
    assert {f"{name} (VBM3D, profile fast)" for name in "ab"} < {
        each.name for each in viewer.layers
    }


def test_clicked_before_it_has_looked(viewer, start, click, qtbot, noisy):
    viewer.add_image(noisy, name="a")
    panel = start()
    panel.look()
    click(panel.run_button)
    assert not panel.run_button.isEnabled()
    qtbot.waitUntil(lambda: panel.run_button.isEnabled())
    assert "a (BM3D)" in [each.name for each in viewer.layers]


def test_cancel_ends_all(viewer, start, click, qtbot, held, noisy):
    layers = [viewer.add_image(noisy, name=name) for name in "ab"]
    viewer.layers.selection = set(layers)
    panel = start()
    click(panel.run_button)
    qtbot.waitUntil(lambda: "1 of 2: " in panel.status.text())
    click(panel.cancel_button)
    assert panel.status.text() == "Cancelled: no layer was added."
    held.set()
    assert len(viewer.layers) == 2 and not panel.runs.running


def test_without_a_layer(viewer, start, click):
    panel = start()
    assert "no image layer" in panel.status.text() and not panel.more_button.isEnabled()
    click(panel.more_button)
    assert panel.advice.text() == ""


def test_layers_of_unlike_kinds(viewer, start, movie, noisy):
    layers = [
        viewer.add_image(movie, name="movie", axis_labels=("t", "y", "x")),
        viewer.add_image(noisy, name="<image>"),
    ]
    viewer.layers.selection = set(layers)
    panel = start()
    text = panel.advice.text()
    assert "<b>movie</b>" in text and "<b>&lt;image&gt;</b>" in text
    assert [each.filter.name for each in panel.advised()] == ["vbm3d", "bm3d"]


def test_return_runs(viewer, start, qtbot, noisy):
    from qtpy.QtWidgets import QShortcut

    viewer.add_image(noisy, name="a")
    panel = start()
    # Sent by hand: without a window manager no window has the focus that keys go to.
    keys = {each.key().toString(): each for each in panel.findChildren(QShortcut)}
    assert set(keys) == {"Return", "Enter"}
    keys["Return"].activated.emit()
    qtbot.waitUntil(lambda: not panel.runs.running)
    assert "a (BM3D)" in [each.name for each in viewer.layers]


def test_nothing_is_recommended_without_noise(viewer, start, qtbot):
    viewer.add_image(np.zeros((64, 64)), name="drawing")
    panel = start()
    qtbot.waitUntil(lambda: panel.advice.text() != "")
    assert "No noise was found, so the image would be returned unchanged." in panel.advice.text()
    assert "because" not in panel.advice.text()
