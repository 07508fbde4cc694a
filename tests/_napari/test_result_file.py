"""Large results of layers that are not in memory are written to a file that the user names."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from napari.layers import Image
from numpy.testing import assert_allclose, assert_array_equal
from qtpy.QtWidgets import QFileDialog

import napari_gpu_denoise as gd
from _napari.conftest import PLUGIN
from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.layers.source import capture
from napari_gpu_denoise._napari.run import Request, size_of_file, suggested
from napari_gpu_denoise.run.request import Run
from zarr_stores import write_store

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
pytestmark = pytest.mark.gui

PLACE = {"scale": (2.0, 0.5, 0.25), "units": ("s", "um", "um"), "axis_labels": ("t", "y", "x")}


@pytest.fixture
def asked(monkeypatch):
    """Ask for a file for every result; the list has the names to answer, then what was asked."""
    names, seen = [], []

    def answer(parent, title, name, kinds):
        seen.append((title, name))
        return names.pop(0) if names else "", kinds

    known = preferences.Preferences(largest_result=0)
    monkeypatch.setattr(preferences, "read", lambda: known)
    monkeypatch.setattr(QFileDialog, "getSaveFileName", answer)
    return names, seen


def test_the_result_of_a_dask_layer_is_one_of_its_file(
    viewer, open_panel, run, asked, movie, tmp_path
):
    names, seen = asked
    names.append(str(tmp_path / "mine"))
    looks = {"colormap": "magenta", "contrast_limits": (400, 700), "blending": "additive"}
    layer = viewer.add_image(da.from_array(movie, (1, 20, 24)), name="cells", **PLACE, **looks)
    panel = open_panel()
    assert "The result is in" in run(panel)
    assert seen == [("File for the result of cells (23 kB)", "cells_nl_means.ome.zarr")]
    result = viewer.layers[-1]
    assert isinstance(result.data, da.Array) and not result.multiscale
    expected = gd.nl_means(movie, axes="TYX")
    assert_array_equal(np.asarray(result.data), expected)
    assert_allclose(result.scale, layer.scale)
    assert (result.units, result.axis_labels) == (layer.units, layer.axis_labels)
    assert result.colormap.name == "magenta" and result.blending == "additive"
    found = gd.read(tmp_path / "mine.ome.zarr")
    assert_array_equal(found.data, expected)
    assert found.axes == "TYX" and found.history[-1]["filter"] == "nl_means"
    assert found.pixel_metadata.steps["X"] == (0.25, "micrometer")
    (channel,) = found.pixel_metadata.channels
    assert (channel.name, channel.colour) == ("cells", "#ff00ff")
    # Another run has a file of its own; the first result stays.
    names.append(str(tmp_path / "two.ome.zarr"))
    run(panel)
    assert len(viewer.layers) == 3
    names.append(str(tmp_path / "two.ome.zarr"))
    assert "exists: choose another name" in run(panel)
    status = run(panel)
    assert status.startswith("Nothing was run, as no file was named") and "Error" not in status
    assert len(viewer.layers) == 3


def test_metadata_of_the_file_of_a_layer_are_kept(
    viewer, open_panel, run, asked, nothing_loaded, tmp_path
):
    image = np.random.default_rng(0).normal(500, 20, (4, 600, 40)).astype(np.uint16)
    path = write_store(tmp_path / "in.ome.zarr", image, "ZYX", chunks=(2, 64, 20))
    viewer.open(str(path), plugin=PLUGIN)
    names, seen = asked
    names.append(str(tmp_path / "out.ome.zarr"))
    assert "The result is in" in run(open_panel())
    assert seen[0][1] == str(tmp_path / "in_nl_means.ome.zarr")
    made = zarr.open_group(str(tmp_path / "out.ome.zarr"), mode="r")
    assert made.attrs["lab"] == "ours" and made["0"].chunks == (2, 64, 20)
    result = viewer.layers[-1]
    assert result.multiscale and len(result.data) == 2
    assert_array_equal(np.asarray(result.data[0]), gd.nl_means(image, axes="ZYX"))
    assert_allclose(result.scale, viewer.layers[0].scale)


def test_a_run_that_is_stopped_leaves_no_file(
    viewer, open_panel, click, held, asked, movie, tmp_path, qtbot
):
    names, _ = asked
    names.append(str(tmp_path / "out.ome.zarr"))
    viewer.add_image(da.from_array(movie, (1, 20, 24)), **PLACE)
    panel = open_panel()
    click(panel.run_button)
    qtbot.waitUntil(lambda: any(tmp_path.iterdir()))
    click(panel.cancel_button)
    held.set()
    qtbot.waitUntil(lambda: not any(tmp_path.iterdir()))


def request(layer, axes="TYX", frame=None, **source):
    return Request(replace(capture(layer), **source), Run(gd.NLMeans(), axes=axes), frame)


def test_results_that_need_no_file(movie):
    lazy = da.from_array(movie, (1, 20, 24))
    layer = Image(lazy, name="my/cells", contrast_limits=(0, 900))
    colours = Image(da.stack([lazy] * 3, -1), rgb=True)
    assert size_of_file(request(layer), 0) == movie.nbytes
    assert size_of_file(request(layer), movie.nbytes) == 0
    others = request(Image(movie)), request(colours, "TYXS"), request(layer, frame=1)
    assert [size_of_file(each, 0) for each in others] == [0, 0, 0]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/lab/a.ome.tif", "/lab/a_nl_means.ome.zarr"),
        ("/lab/a.nii.gz", "/lab/a_nl_means.ome.zarr"),
        ("s3://lab/a.zarr", "my_cells_nl_means.ome.zarr"),
    ],
)
def test_names(movie, path, name):
    layer = Image(movie, name="my/cells")
    assert suggested(request(layer, path=path)) == name
    if path.startswith("/"):
        beside = suggested(request(layer, path=path, split=1))
        assert beside == "/lab/my_cells_nl_means.ome.zarr"
