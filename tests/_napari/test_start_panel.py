"""The panel "Denoise": advice on the layers selected, and one button that follows it."""

import re

import numpy as np
import pytest
import tifffile
from napari.layers._source import layer_source
from numpy.testing import assert_allclose
from qtpy.QtWidgets import QShortcut

from _napari.conftest import PLUGIN
from _napari.inputs import choose, layer_names
from napari_gpu_denoise._napari.layers.provenance import origin_of
from napari_gpu_denoise._napari.wording import REMEDIES
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.filters import VBM3D

pytestmark = pytest.mark.gui
TIME = {"axis_labels": ("t", "y", "x")}


@pytest.fixture
def start(viewer, qtbot):
    """Open the panel as the menu does, and wait until it has looked at the layers."""

    def open_it():
        _, panel = viewer.window.add_plugin_dock_widget(PLUGIN, "Denoise")
        failed = panel.failed
        qtbot.waitUntil(lambda: bool(panel.advised()) or failed in panel.status.text())
        return panel

    return open_it


def test_both_channels_of_a_file_with_one_click(viewer, start, done, tmp_path):
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:48, :56]
    clean = 400 + 150 * np.sin(y / 7) * np.cos(x / 8)
    stack = np.stack([clean, 700 - clean])[:, None] + rng.normal(0, 12, (2, 4, 48, 56))
    stack, path = stack.astype(np.uint16), tmp_path / "a.tif"  # whose name says nothing
    tifffile.imwrite(path, stack, photometric="minisblack")
    place = {"scale": (1, 0.5, 0.5), "blending": "additive", **TIME}
    with layer_source(path=str(path)):  # as a reader does: each knows the file it is from
        pair = tuple(viewer.add_image(channel, name="a", **place) for channel in stack)
    panel = start()
    assert panel.layer.currentText() == "Both layers of a.tif"
    assert "VBM3D" in panel.advice.text() and "4 frames" in panel.advice.text()
    assert panel.run_button.text() == "Denoise 2 layers"
    said = done(panel)
    assert said.startswith("Done in ") and said.endswith(": a VBM3D, a [1] VBM3D.")
    assert len(viewer.layers) == 4
    for source in pair:
        (made,) = [layer for layer in viewer.layers if origin_of(layer, pair) is source]
        assert_allclose(made.scale, source.scale)
        assert made.blending == "additive" and made.data.std() < source.data.std()
        assert made.metadata[PLUGIN]["axes"] == "TYX"
    # The choice stays although napari has selected a result.
    assert panel.layer.layers() == pair


def test_it_follows_the_selection(viewer, start, qtbot, movie, noisy):
    one, other = viewer.add_image(noisy, name="one"), viewer.add_image(noisy[::-1], name="other")
    panel = start()
    assert panel.layer.layers() == (other,) and "BM3D" in panel.advice.text()
    viewer.layers.selection = {one, other}
    assert panel.layer.layers() == (one, other)
    for single in (one, other, one):
        viewer.layers.selection = {single}
        assert panel.layer.layers() == (single,)
    one.data = movie
    qtbot.waitUntil(lambda: "planes" in panel.advice.text())
    panel.axes.edit.setText("TYX")
    qtbot.waitUntil(lambda: "Time-lapse" in panel.advice.text())


def test_more_settings(viewer, start, done, click, qtbot, movie):
    layers = [viewer.add_image(movie, name=name, **TIME) for name in "ab"]
    viewer.layers.selection = set(layers)
    panel = start()
    choose(panel.effort, "fast")
    click(panel.more_button)
    more = viewer.window.dock_widgets["Filter (GPU Denoise)"]
    assert more.layer.layers() == tuple(layers) and more.axes.letters() == "TYX"
    assert more.form.settings() == VBM3D.of(profile="fast")
    qtbot.waitUntil(lambda: more.options.device.caption.text() != "")
    assert done(more).endswith(": a VBM3D, b VBM3D.")
    assert {f"{name} VBM3D" for name in "ab"} < set(layer_names(viewer))


def test_after_a_run_it_is_asked_how_good_the_result_is(viewer, start, done, click, qtbot, noisy):
    viewer.add_image(noisy, name="cells")
    panel = start()
    assert panel.assess.isHidden()
    done(panel)
    assert not panel.assess.isHidden()
    panel.assess.show_content(True)
    click(panel.assess.start_button)
    qtbot.waitUntil(lambda: not panel.assess.running)
    found = panel.assess.assessment
    assert found.filter == "bm3d"
    assert viewer.layers[-1].metadata[PLUGIN]["assessment"]["mse"] == pytest.approx(found.mse)
    panel.look()
    assert panel.assess.isHidden(), "of another layer nothing is known yet"


def test_remedies_name_controls_that_a_panel_has(viewer, start, open_panel, noisy):
    viewer.add_image(noisy, name="cells")
    panels = start(), open_panel("BM3D")
    choices = [panels[1].options.noise.mode.itemText(k) for k in range(3)]
    for code in REMEDIES:
        note = Note(
            "it is so", "x", code=code, factor=2, axis="T", least=9, channels="", title="Correlated"
        )
        of_denoise, of_filter = (each.worded(note) for each in panels)
        own = ("at Noise", "at Correct first", "Result and device", "Set Channels", "Measure")
        if any(name in of_denoise for name in own):
            assert "click More settings …, then" in of_denoise, of_denoise
        for word in re.findall(r"choose (\w+) at Noise", of_filter):
            assert word in choices, of_filter


def test_return_runs_also_before_it_has_looked(viewer, start, qtbot, noisy):
    viewer.add_image(noisy, name="a")
    panel = start()
    panel.look()
    # Sent by hand: without a window manager no window has the focus that keys go to.
    keys = {shortcut.key().toString(): shortcut for shortcut in panel.findChildren(QShortcut)}
    assert "Enter" in keys
    keys["Return"].activated.emit()
    assert not panel.run_button.isEnabled()
    qtbot.waitUntil(lambda: panel.run_button.isEnabled())
    assert "a BM3D" in layer_names(viewer)


def test_cancel_ends_all(viewer, start, click, qtbot, held, noisy):
    layers = [viewer.add_image(noisy, name=name) for name in "ab"]
    viewer.layers.selection = set(layers)
    panel = start()
    panel.look()
    click(panel.run_button)  # it waits for the advice
    click(panel.cancel_button)
    assert panel.status.text() == "Cancelled: no layer was added."
    qtbot.waitUntil(lambda: bool(panel.advised()))
    assert panel.run_button.isEnabled() and not panel.runs.running
    click(panel.run_button)
    qtbot.waitUntil(lambda: "1 of 2: " in panel.status.text())
    click(panel.cancel_button)
    assert panel.status.text() == "Cancelled: no layer was added."
    held.set()
    assert len(viewer.layers) == 2 and not panel.runs.running


def test_layers_of_unlike_kinds_without_noise_and_none(viewer, start, click, qtbot, movie, noisy):
    panel = start()
    assert "no image layer" in panel.status.text() and not panel.more_button.isEnabled()
    click(panel.more_button)
    assert panel.advice.text() == ""
    drawing = viewer.add_image(np.zeros((64, 64)), name="drawing")
    qtbot.waitUntil(lambda: panel.advice.text() != "")
    assert "No noise was found, so the image would be returned unchanged." in panel.advice.text()
    assert "because" not in panel.advice.text()
    viewer.layers.remove(drawing)
    layers = {viewer.add_image(movie, name="movie", **TIME), viewer.add_image(noisy, name="<i>")}
    viewer.layers.selection = layers
    qtbot.waitUntil(lambda: len(panel.advised()) == 2)
    text = panel.advice.text()
    assert "<b>movie</b>" in text and "<b>&lt;i&gt;</b>" in text
    assert [advice.filter.name for advice in panel.advised()] == ["vbm3d", "bm3d"]
