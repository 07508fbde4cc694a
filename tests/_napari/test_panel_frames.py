"""Time in the panel: VBM3D, one frame alone, stacks that are not in memory."""

import gc
import re
import sys
import weakref

import dask.array as da
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from qtpy.QtWidgets import QApplication

from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise.filters import VBM3D
from napari_gpu_denoise.run import denoise as runs

LABELS = ("t", "y", "x")


def test_only_the_frame_shown(viewer, open_panel, run, click, movie, copied, pasted):
    place = {"scale": (2, 0.5, 0.5), "translate": (7, 1, 2)}
    data = da.from_array(movie, chunks=(2, 40, 48))
    looks = {"contrast_limits": (300, 700), "axis_labels": LABELS}
    source = viewer.add_image(data, name="movie", **place, **looks)
    viewer.dims.set_current_step(0, 3)
    panel = open_panel("VBM3D")
    box = panel.places.boxes["T"]
    assert box.text() == "Only the frame shown: 3" and panel.run_button.text() == "Denoise"
    box.click()
    assert panel.run_button.text() == "Denoise frame 3"
    viewer.dims.set_current_step(0, 4)
    assert panel.run_button.text() == "Denoise frame 4"
    assert run(panel).startswith("Done in ")
    result = viewer.layers[-1]
    assert result.name == "movie VBM3D"
    expected = runs.denoise(movie, VBM3D(), axes="TYX")
    assert_array_equal(result.data, expected.image[4:5])
    record = result.metadata[METADATA_KEY]
    assert (record["filter"], record["frame"]) == ("vbm3d", 4)
    assert record["sigma"] == list(expected.record.sigma)
    assert_allclose(result.translate, (7 + 2 * 4, 1, 2))
    assert_allclose(result.scale, source.scale)
    assert viewer.dims.nsteps[0] == 6  # it makes the slider no longer
    scope = pasted(panel)
    assert "frames=4" in QApplication.clipboard().text()
    assert_array_equal(scope["denoised"], result.data)
    assert_allclose(scope["added"].translate, result.translate)
    assert copied(panel.command_action).startswith("gpu-denoise vbm3d ")
    assert "It filters all frames." in panel.status.text()
    click(panel.reset_button)
    assert panel.request().frame is None and panel.run_button.text() == "Denoise"


def test_large_stacks_in_files_and_a_result_that_lives_as_long_as_its_layer(
    viewer, open_panel, run, movie, small_memory, tmp_path, qtbot, watched
):
    np.save(tmp_path / "a.npy", movie)
    data = np.load(tmp_path / "a.npy", mmap_mode="r")
    viewer.add_image(data, contrast_limits=(300, 700), axis_labels=LABELS, name="a")
    panel = open_panel("VBM3D")
    said = watched(panel)
    status = run(panel)
    # A quick run skips some, and a slow one says how long it will take, too.
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
