"""Volumes in the panel: voxel size, and that BM4D is for them."""

import numpy as np
import pytest
from napari.layers import Image

from _napari.inputs import type_sigma
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.layers.source import voxel_of
from napari_gpu_denoise.filters import BM4D

pytestmark = pytest.mark.gui

SCALE = (2.0, 0.5, 0.5)


@pytest.fixture
def volume():
    """Blobs in noise of standard deviation 10, uint16, (9, 20, 24)."""
    z, y, x = np.mgrid[:9, :20, :24]
    clean = 300 + 90 * np.sin(z / 3) * np.sin(y / 5) * np.cos(x / 6)
    return np.rint(clean + np.random.default_rng(3).normal(0, 10, clean.shape)).astype(np.uint16)


@pytest.mark.parametrize(
    ("axes", "given", "voxel"),
    [
        ("ZYX", {"scale": SCALE}, "2, 0.5, 0.5"),
        ("YXZ", {"scale": (0.5, 0.25, -2)}, "2, 0.5, 0.25"),
        ("ZYX", {"scale": (400, 0.2, 0.2), "units": ("nm", "um", "um")}, "400, 200, 200"),
        ("ZYX", {}, ""),  # nobody has said anything
        ("ZYX", {"scale": SCALE, "units": ("um", "pixel", "pixel")}, ""),
        ("TYX", {"scale": SCALE}, ""),
    ],
)
def test_voxel_size_of_a_layer(axes, given, voxel):
    assert voxel_of(Image(np.zeros((4, 5, 6)), **given), axes) == voxel


def test_the_voxel_size_is_that_of_the_layer(viewer, open_panel, run, click, copied, volume):
    layer = viewer.add_image(volume, name="head", scale=SCALE)
    other = open_panel("BM3D")
    advice = "BM4D filters all slices"
    assert advice not in other.axes.caption.text()
    other.axes.edit.setText("ZYX")
    assert advice in other.axes.caption.text()
    panel = open_panel("BM4D")
    assert panel.layer.layer() is layer and panel.axes.letters() == "ZYX"
    assert advice not in panel.axes.caption.text()
    # What the run would refuse is told before it.
    panel.axes.edit.setText("TYX")
    assert "use VBM3D for time-lapses" in panel.axes.caption.text()
    assert panel.status.text().startswith("<b>Not ready.</b> BM4D filters volumes")
    control = panel.form.controls["voxel"]
    panel.axes.edit.setText(".YX")
    assert control.native.placeholderText() == ""
    panel.axes.edit.setText("ZYX")
    assert control.native.placeholderText() == "2, 0.5, 0.5 (of the layer)"
    assert control.value == "" and panel.form.profile.currentText() == "normal"
    assert panel.request().run.filter == BM4D(voxel="2, 0.5, 0.5")
    layer.scale = (3, 0.5, 0.5)
    assert control.native.placeholderText() == "3, 0.5, 0.5 (of the layer)"
    assert "voxel='3, 0.5, 0.5'" in copied(panel.python_action)
    control.value = "4 1 1"
    assert panel.request().run.filter.voxel == "4, 1, 1"
    click(panel.reset_button)
    panel.axes.edit.setText("ZYX")
    type_sigma(panel)
    run(panel)
    record = viewer.layers[-1].metadata[METADATA_KEY]
    assert record["settings"]["voxel"] == "3, 0.5, 0.5"
