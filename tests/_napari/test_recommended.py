"""The choice "Recommended" of the panel Filter: advice on layers, and runs that follow it."""

import re

import numpy as np
import pytest
import tifffile
from napari.layers._source import layer_source
from numpy.testing import assert_allclose, assert_array_equal
from qtpy.QtWidgets import QShortcut

import napari_gpu_denoise as gd
from _napari.conftest import PLUGIN
from _napari.inputs import click, copied, find_entry, layer_names
from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.layers.provenance import origin_of
from napari_gpu_denoise._napari.wording import REMEDIES
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.files.recommended import Recommended
from napari_gpu_denoise.filters import BM3D, VBM3D
from napari_gpu_denoise.measurements.subspace import Subspace

TIME = {"axis_labels": ("t", "y", "x")}


@pytest.fixture
def start(open_panel, qtbot):
    """Open the panel, and wait until it has looked at the layers."""

    def open_it():
        panel = open_panel("Recommended")
        if panel.model.layers:
            qtbot.waitUntil(lambda: bool(panel.advised()))
        return panel

    return open_it


def test_both_channels_of_a_file_with_one_click(viewer, start, run, movie, tmp_path):
    stack, path = np.stack([movie, movie[:, ::-1]]), tmp_path / "a.tif"  # whose name says nothing
    tifffile.imwrite(path, stack, photometric="minisblack")
    place = {"scale": (1, 0.5, 0.5), "blending": "additive", **TIME}
    with layer_source(path=str(path)):  # as a reader does: each knows the file it is from
        pair = tuple(viewer.add_image(channel, name="a", **place) for channel in stack)
    panel = start()
    assert panel.layer.currentText() == "Both layers of a.tif"
    assert "VBM3D" in panel.summary.text() and "6 frames" in panel.summary.text()
    assert panel.run_button.text() == "Denoise 2 layers"
    said = run(panel)
    assert said.startswith("Done in ") and said.endswith(": a VBM3D, a [1] VBM3D.")
    assert len(viewer.layers) == 4
    for source in pair:
        (made,) = [layer for layer in viewer.layers if origin_of(layer, pair) is source]
        assert_allclose(made.scale, source.scale)
        assert made.blending == "additive" and made.data.std() < source.data.std()
        assert made.metadata[PLUGIN]["axes"] == "TYX"
    # The choice stays although napari has selected a result.
    assert panel.layer.layers() == pair


def test_it_is_as_if_the_user_had_chosen_that(viewer, start, run, qtbot, movie, noisy):
    viewer.add_image(movie, name="movie", **TIME)
    panel = start()
    assert panel.form.kind is VBM3D and panel.request().run.filter == VBM3D()
    assert panel.status.text().startswith("Takes ")
    assert "gd.vbm3d(" in copied(panel.python_action)
    panel.preview.box.setChecked(True)
    qtbot.waitUntil(lambda: panel.live.settled and panel.live.layer is not None)
    panel.preview.box.setChecked(False)
    assert run(panel).startswith("Done in ")
    assert_array_equal(viewer.layers["movie VBM3D"].data, gd.vbm3d(movie, axes="TYX"))
    # Who changes a setting has chosen the filter.
    panel.form.profile.setCurrentText("fast")
    assert panel.filter.kind is VBM3D and panel.model.settings == VBM3D.of(profile="fast")
    panel.filter.choose("auto")
    assert panel.form.settings() == panel.request().run.filter == VBM3D()
    panel.model.layers[0].data = noisy
    qtbot.waitUntil(lambda: "BM3D" in panel.summary.text() and panel.form.kind is BM3D)


@pytest.mark.usefixtures("window")
def test_the_menu_entry_takes_what_is_selected(viewer, start, qtbot, movie, noisy):
    one, other = viewer.add_image(noisy, name="one"), viewer.add_image(movie, name="other")
    panel = start()
    assert panel.layer.layers() == (other,)
    panel.filter.choose("isoline")
    viewer.layers.selection = {one, other}
    path = "Filter", "Denoise (GPU)", "Denoise (GPU Denoise)"
    find_entry(viewer.window.layers_menu, *path).trigger()
    qtbot.waitUntil(lambda: panel.filter.kind is Recommended)
    assert panel.layer.layers() == (one, other)
    panel.axes.edit.setText("YX")
    qtbot.waitUntil(lambda: len(panel.advised()) == 2)
    assert "planes" in panel.summary.text()


def test_remedies_name_controls_that_the_panel_has(viewer, open_panel, noisy):
    viewer.add_image(noisy, name="cells")
    panel = open_panel("BM3D")
    choices = [panel.options.noise.mode.itemText(k) for k in range(3)]
    for code in REMEDIES:
        given = dict(factor=2, axis="T", least=9, channels="", title="Correlated")
        said = panel.worded(Note("it is so", "x", code=code, **given))
        for word in re.findall(r"choose (\w+) at Noise", said):
            assert word in choices, said


def test_return_runs_also_before_it_has_looked(viewer, qtbot, noisy):
    viewer.add_image(noisy, name="a")
    panel = docks.open_panel(viewer, "Filter")
    # Sent by hand: without a window manager no window has the focus that keys go to.
    keys = {shortcut.key().toString(): shortcut for shortcut in panel.findChildren(QShortcut)}
    assert "Enter" in keys and not panel.advised()
    keys["Return"].activated.emit()
    assert not panel.run_button.isEnabled()
    qtbot.waitUntil(lambda: panel.run_button.isEnabled())
    assert "a BM3D" in layer_names(viewer)


def test_cancel_ends_all(viewer, qtbot, held, noisy):
    layers = [viewer.add_image(noisy, name=name) for name in "ab"]
    viewer.layers.selection = set(layers)
    panel = docks.open_panel(viewer, "Filter")
    click(panel.run_button)  # it waits for the advice
    click(panel.cancel_button)
    assert panel.status.text() == "Cancelled: no layer was added."
    qtbot.waitUntil(lambda: len(panel.advised()) == 2)
    assert panel.run_button.isEnabled() and not panel.runs.running
    click(panel.run_button)
    qtbot.waitUntil(lambda: "1 of 2: " in panel.status.text())
    click(panel.cancel_button)
    assert panel.status.text() == "Cancelled: no layer was added."
    held.set()
    assert len(viewer.layers) == 2 and not panel.runs.running


def test_layers_of_unlike_kinds_without_noise_and_none(viewer, start, qtbot, movie, noisy):
    panel = start()
    assert "no image layer" in panel.status.text() and not panel.advised()
    drawing = viewer.add_image(np.zeros((64, 64)), name="drawing")
    qtbot.waitUntil(lambda: bool(panel.advised()))
    assert "no noise was found, so the image would be returned unchanged" in panel.summary.text()
    viewer.layers.remove(drawing)
    layers = {viewer.add_image(movie, name="movie", **TIME), viewer.add_image(noisy, name="<i>")}
    viewer.layers.selection = layers
    panel.layer.follow_selection()
    qtbot.waitUntil(lambda: len(panel.advised()) == 2)
    text = panel.summary.text()
    assert ">movie: Time-lapse of 6 frames" in text and ">&lt;i&gt;: Image, 64 by 80" in text
    assert [each.run.filter.name for each in panel.ready().requests] == ["vbm3d", "bm3d"]


def test_what_cannot_be_measured_is_told_once(viewer, qtbot, told, monkeypatch, noisy):
    viewer.add_image(noisy, name="a")
    asked = []

    def fail(*given, **known):
        asked.append(given)
        raise RuntimeError("no idea")

    monkeypatch.setattr("napari_gpu_denoise._napari.resolve.recommend", fail)
    panel = docks.open_panel(viewer, "Filter")
    qtbot.waitUntil(lambda: panel.status.text().startswith("<b>Not ready.</b> a could not be"))
    panel.draw()
    qtbot.wait(100)
    assert len(asked) == len(told()) == 1


def test_a_series_of_measurements(viewer, start, run, qtbot):
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:40, :48]
    maps = np.stack([np.sin(y / 7), np.cos(x / 9), np.ones(y.shape)])
    series = np.tensordot(rng.uniform(50, 150, (12, 3)), maps, 1) + 300
    series = (series + rng.normal(0, 15, series.shape)).astype(np.float32)
    viewer.add_image(series, name="dwi", axis_labels=("d", "y", "x"))
    panel = start()
    assert panel.axes.letters() == "DYX" and "12 measurements" in panel.axes.caption.text()
    assert panel.form.kind is Subspace and panel.filter.kind is Recommended
    assert run(panel).startswith("Done in ")
    made = viewer.layers["dwi Subspace"]
    assert_array_equal(made.data, gd.subspace(series, axes="DYX"))
    assert made.metadata[PLUGIN]["filter"] == "subspace"
    assert "gd.subspace(image, axes='DYX')" in copied(panel.python_action)
    assert copied(panel.command_action).startswith("gpu-denoise subspace ")
    panel.region.box.setCurrentIndex(1)
    qtbot.waitUntil(lambda: "filter the whole layer, without a preview" in panel.status.text())
    panel.region.box.setCurrentIndex(0)
    panel.preview.box.setChecked(True)
    qtbot.waitUntil(lambda: "without a preview" in panel.preview.caption.text())
    panel.preview.box.setChecked(False)
    # Without the axis it is said what is missing, and offered.
    panel.axes.edit.setText("TYX")
    panel.filter.choose("subspace")
    qtbot.waitUntil(lambda: "name it D at Axes" in panel.status.text())
    assert panel.axes.buttons[0].text() == "DYX"
