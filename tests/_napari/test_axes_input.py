"""Axes in words, the names offered for axes without labels, and the size of voxels."""

import numpy as np
import pytest
from napari.layers import Image

from _napari.inputs import copied
from napari_gpu_denoise._napari.inputs import AxesInput
from napari_gpu_denoise._napari.layers.source import voxel_of
from napari_gpu_denoise._napari.resolve import advice_on_axes, likely_axes
from napari_gpu_denoise.filters import BM3D, BM4D, VBM3D, NLMeans

SCALE = (2.0, 0.5, 0.5)


@pytest.mark.parametrize(
    ("kind", "axes", "shape", "offered", "said"),
    [
        (VBM3D, ".YX", (9, 50, 60), ["TYX"], "<b>VBM3D works along time: name the time axis T, as"),
        (BM3D, ".YX", (9, 50, 60), ["TYX"], "For a time-lapse type TYX."),
        (NLMeans, ".YX", (9, 50, 60), ["TYX", "ZYX"], "slices of a volume type ZYX."),
        (VBM3D, ".YXS", (9, 50, 60, 3), ["TYXS"], "<b>"),
        (VBM3D, "..YX", (9, 5, 50, 60), ["TZYX", "TCYX"], "as in TZYX or TCYX"),
        (NLMeans, "C.YX", (2, 9, 50, 60), ["CTYX", "CZYX"], ""),
        (VBM3D, "Z.YX", (4, 1, 50, 60), ["T.YX"], ""),
        (BM4D, ".YX", (9, 50, 60), ["ZYX"], "<b>BM4D works on volumes: name the slices Z, as in"),
        (BM4D, "..YX", (9, 5, 50, 60), ["TZYX", "CZYX"], ""),
        (BM4D, "...YX", (2, 3, 4, 50, 60), [], "use BM3D for images"),
        (BM4D, "TYX", (9, 50, 60), [], "use VBM3D for time-lapses"),
        (VBM3D, "ZYX", (9, 50, 60), ["TYX"], ""),  # files often call frames slices
        (NLMeans, "ZYX", (9, 50, 60), [], ""),
        (BM3D, "ZYX", (9, 50, 60), [], "BM4D filters all slices"),
        (BM4D, "ZYX", (9, 50, 60), [], ""),
        (VBM3D, "YX", (50, 60), [], "each image is filtered alone"),  # no mistake
        (VBM3D, ".YX", (1, 50, 60), [], "each image is filtered alone"),
    ],
)
def test_what_is_offered_and_advised(kind, axes, shape, offered, said):
    found = likely_axes(axes, shape, kind)
    assert list(found) == offered
    advice = advice_on_axes(axes, shape, kind, found)
    assert said in advice and ("<b>" in advice) == (kind in (VBM3D, BM4D) and bool(offered))


def test_axes_in_words(qtbot):
    made = AxesInput()
    made.set_kind(VBM3D)
    qtbot.addWidget(made)
    made.offer(".YX", (9, 50, 60))
    with qtbot.waitSignal(made.changed):
        made.buttons[0].click()
    assert made.axes() == "TYX"
    assert made.caption.text() == "Time-lapse of 9 frames, 50 by 60 pixels"
    made.offer("<b>", (9, 50, 60))
    assert "&lt;" in made.caption.text() and not any(each.text() for each in made.buttons)


def test_axes_typed_and_labels_are_followed(viewer, open_panel):
    noise = np.random.default_rng(3).normal(100, 5, (5, 30, 40))
    first, second = (viewer.add_image(noise, name=name) for name in "ab")
    panel = open_panel()

    def letters_of(layer):
        panel.layer.choose(layer)
        return panel.axes.letters()

    panel.axes.edit.setText("ZYX")
    assert letters_of(first) == ".YX"
    # Labels of the viewer count unless axes were typed, those of the layer if they are newer.
    viewer.dims.axis_labels = ("t", "y", "x")
    assert panel.axes.letters() == "TYX"
    panel.axes.edit.setText("cyx")
    viewer.dims.axis_labels = ("z", "y", "x")
    assert (letters_of(second), letters_of(first)) == ("ZYX", "CYX")
    first.axis_labels = ("time", "y", "x")
    second.axis_labels = ("z", "y", "x")  # of a layer that is not chosen
    assert panel.axes.letters() == "TYX"
    panel.axes.edit.setText("CYX")
    panel.reset()
    assert panel.axes.letters() == "TYX"


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


def test_the_voxel_size_is_that_of_the_layer_until_one_is_typed(viewer, open_panel):
    noise = np.random.default_rng(3).normal(300, 10, (9, 20, 24)).astype(np.uint16)
    layer = viewer.add_image(noise, name="head", scale=SCALE)
    panel = open_panel("BM4D")
    control = panel.form.controls["voxel"]
    assert control.native.placeholderText() == ""
    panel.axes.edit.setText("ZYX")
    assert control.native.placeholderText() == "2, 0.5, 0.5 (of the layer)"
    assert control.value == "" and panel.request().run.filter == BM4D(voxel="2, 0.5, 0.5")
    layer.scale = (3, 0.5, 0.5)
    assert control.native.placeholderText() == "3, 0.5, 0.5 (of the layer)"
    assert "voxel='3, 0.5, 0.5'" in copied(panel.python_action)
    control.value = "4 1 1"
    assert panel.request().run.filter.voxel == "4, 1, 1"
    panel.form.profile.setCurrentText("fast")  # it keeps what was typed
    typed = BM4D.of(profile="fast", voxel="4, 1, 1")
    assert panel.form.settings() == typed and panel.form.profile.currentText() == "fast"
