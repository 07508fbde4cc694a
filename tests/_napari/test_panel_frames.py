"""Stacks that are not in memory, and results too large for it, in the panel."""

import gc
import re
import sys
import weakref

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from napari_gpu_denoise.filters import VBM3D
from napari_gpu_denoise.run import denoise as runs

LABELS = ("t", "y", "x")


@pytest.mark.usefixtures("window")
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
