"""Time in the panel: VBM3D, one frame alone, stacks that are not in memory."""

import gc
import re
import sys
import weakref

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from qtpy.QtWidgets import QApplication

from _napari.inputs import over_time
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise.filters import VBM3D, NLMeans
from napari_gpu_denoise.run import denoise as runs

pytestmark = pytest.mark.gui
LABELS = ("t", "y", "x")


def test_vbm3d_of_a_layer_that_says_nothing(
    viewer, open_panel, run, click, movie, copied, pasted, watched
):
    viewer.add_image(movie, name="movie")
    panel = open_panel("VBM3D")
    assert "name the time axis T, as in TYX" in panel.axes.caption.text()
    assert "no axis is named T" in run(panel)
    assert len(viewer.layers) == 1
    click(panel.axes.buttons[0])
    assert panel.form.controls["frames_before"].native.isEnabled()
    said = watched(panel)
    assert run(panel).startswith("Done in ")
    expected = runs.denoise(movie, VBM3D(), axes="TYX").image
    result = viewer.layers["movie VBM3D"]
    assert_array_equal(result.data, expected)
    assert result.metadata[METADATA_KEY]["filter"] == "vbm3d"
    # A quick run skips some, and a slow one says how long it will take, too.
    assert any(re.match(r"Denoising: frame \d of 6", text) for text in said), said
    assert_array_equal(pasted(panel)["denoised"], expected)
    assert copied(panel.command_action).startswith("gpu-denoise vbm3d ")


@over_time
def test_only_the_frame_shown(viewer, open_panel, run, click, movie, kind, copied, pasted):
    data = da.from_array(movie, chunks=(2, 40, 48)) if kind is VBM3D else movie
    place = {"scale": (2, 0.5, 0.5), "translate": (7, 1, 2), "axis_labels": LABELS}
    source = viewer.add_image(data, name="movie", **place, contrast_limits=(300, 700))
    viewer.dims.set_current_step(0, 3)
    panel = open_panel(kind.title)
    box = panel.places.boxes["T"]
    assert box.text() == "Only the frame shown: 3" and panel.run_button.text() == "Denoise"
    if kind is NLMeans:
        panel.form.controls["frames_before"].value = 1
    settings = panel.form.settings()
    box.click()
    assert panel.run_button.text() == "Denoise frame 3"
    viewer.dims.set_current_step(0, 4)
    assert panel.run_button.text() == "Denoise frame 4"
    assert run(panel).startswith("Done in ")
    result = viewer.layers[-1]
    assert result.name == f"movie {kind.title}"
    expected = runs.denoise(movie, settings, axes="TYX")
    assert_array_equal(result.data, expected.image[4:5])
    record = result.metadata[METADATA_KEY]
    assert (record["frame"], record["sigma"]) == (4, list(expected.record.sigma))
    assert_allclose(result.translate, (7 + 2 * 4, 1, 2))
    assert_allclose(result.scale, source.scale)
    assert viewer.dims.nsteps[0] == 6  # it makes the slider no longer
    scope = pasted(panel)
    assert "frames=4" in QApplication.clipboard().text()
    assert_array_equal(scope["denoised"], result.data)
    assert_allclose(scope["added"].translate, result.translate)
    assert "frame" not in copied(panel.command_action).replace("--frames-before", "")
    assert "It filters all frames." in panel.status.text()
    click(panel.reset_button)
    assert panel.request().frame is None and panel.run_button.text() == "Denoise"


@over_time
def test_a_long_stack_is_never_whole_in_memory(viewer, open_panel, run, movie, kind):
    held, most = [], []

    def read(block):
        made = block.copy()
        held.append(weakref.ref(made))
        most.append(sum(ref() is not None for ref in held))
        return made

    long = np.concatenate([movie] * 5)  # about twice what may be held
    blocks = da.from_array(long, chunks=(1, 40, 48)).map_blocks(read, dtype=long.dtype)
    viewer.add_image(blocks, name="long", contrast_limits=(300, 700), axis_labels=LABELS)
    panel = open_panel(kind.title)
    most.clear()
    assert run(panel).startswith("Done in ")
    expected = runs.denoise(long, kind(), axes="TYX").image
    assert_array_equal(viewer.layers[f"long {kind.title}"].data, expected)
    assert len(most) >= 30 and max(most) < 16


@pytest.mark.parametrize("source", ["zarr", "memmap"])
def test_large_stacks_in_files_and_a_result_that_lives_as_long_as_its_layer(
    viewer, open_panel, run, movie, small_memory, tmp_path, qtbot, source, watched
):
    if source == "zarr":
        zarr = pytest.importorskip("zarr")
        form = {"shape": movie.shape, "chunks": (4, 20, 48), "dtype": movie.dtype}
        data = zarr.create_array(str(tmp_path / "a.zarr"), **form)
        data[:] = movie
    else:
        np.save(tmp_path / "a.npy", movie)
        data = np.load(tmp_path / "a.npy", mmap_mode="r")
    viewer.add_image(data, contrast_limits=(300, 700), axis_labels=LABELS, name="a")
    panel = open_panel("VBM3D")
    said = watched(panel)
    status = run(panel)
    assert any(re.match(r"Denoising: frame \d of 6", text) for text in said), said
    assert f"The result, 23 kB, is kept in a temporary file in {small_memory}" in status
    result = viewer.layers["a VBM3D"]
    assert_array_equal(result.data, runs.denoise(movie, VBM3D(), axes="TYX").image)
    if sys.platform != "win32":
        assert not list(small_memory.iterdir())  # it has no name to be left behind
    mapping = weakref.ref(result.data.base)
    viewer.layers.remove(result)
    del result

    def gone():
        gc.collect()
        return mapping() is None

    qtbot.waitUntil(gone)
