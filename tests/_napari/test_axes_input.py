"""Axes in words, and the names offered for axes without labels."""

import numpy as np
import pytest

from napari_gpu_denoise._napari.inputs import AxesInput
from napari_gpu_denoise._napari.resolve import likely_axes
from napari_gpu_denoise.filters import BM3D, BM4D, VBM3D, NLMeans

pytestmark = pytest.mark.gui


@pytest.mark.parametrize(
    ("kind", "axes", "shape", "offered"),
    [
        (VBM3D, ".YX", (9, 50, 60), ["TYX"]),
        (BM3D, ".YX", (9, 50, 60), ["TYX"]),
        (NLMeans, ".YX", (9, 50, 60), ["TYX", "ZYX"]),
        (VBM3D, ".YXS", (9, 50, 60, 3), ["TYXS"]),
        (VBM3D, "..YX", (9, 5, 50, 60), ["TZYX", "TCYX"]),
        (NLMeans, "C.YX", (2, 9, 50, 60), ["CTYX", "CZYX"]),
        (VBM3D, "Z.YX", (4, 1, 50, 60), ["T.YX"]),
        (BM4D, ".YX", (9, 50, 60), ["ZYX"]),
        (BM4D, "..YX", (9, 5, 50, 60), ["TZYX", "CZYX"]),
        (BM4D, "...YX", (2, 3, 4, 50, 60), []),
        (VBM3D, "ZYX", (9, 50, 60), ["TYX"]),  # files often call frames slices
        (NLMeans, "ZYX", (9, 50, 60), []),
        (VBM3D, "YX", (50, 60), []),
        (VBM3D, ".YX", (1, 50, 60), []),
    ],
)
def test_what_is_offered(kind, axes, shape, offered):
    assert list(likely_axes(axes, shape, kind)) == offered


@pytest.fixture
def shown(qtbot):
    def make(kind, axes, shape):
        made = AxesInput(kind)
        qtbot.addWidget(made)
        made.show()
        made.offer(axes, shape)
        return made

    return make


def visible(axes_input):
    return [button.text() for button in axes_input.buttons if button.isVisible()]


def test_a_filter_over_time_asks_for_it_before_the_run(shown, qtbot):
    made = shown(VBM3D, ".YX", (9, 50, 60))
    text = made.caption.text()
    assert text.startswith("9 independent planes, 50 by 60 pixels. <b>")
    assert "VBM3D works along time: name the time axis T, as in TYX." in text
    assert visible(made) == ["TYX"]
    with qtbot.waitSignal(made.changed):
        made.buttons[0].click()
    assert made.axes() == "TYX"
    assert made.caption.text() == "9 time points, 50 by 60 pixels"
    assert visible(made) == []
    made.edit.setText(".yx")
    assert visible(made) == ["TYX"]
    # A single image is no mistake.
    text = shown(VBM3D, "YX", (50, 60)).caption.text()
    assert "each image is filtered alone" in text and "<b>" not in text


def test_wrong_letters_are_shown_as_they_are(shown):
    made = shown(VBM3D, "<b>", (9, 50, 60))
    assert "&lt;" in made.caption.text() and visible(made) == []


@pytest.fixture
def two(viewer):
    """Two layers without names of axes."""
    rng = np.random.default_rng(3)
    return [viewer.add_image(rng.normal(100, 5, (5, 30, 40)), name=name) for name in "ab"]


def test_axes_typed_are_kept_when_layers_are_switched(two, open_panel):
    panel, (first, second) = open_panel(), two

    def letters_of(layer):
        panel.layer.choose(layer)
        return panel.axes.letters()

    assert letters_of(first) == ".YX"
    panel.axes.edit.setText("tyx")
    assert letters_of(second) == ".YX"
    panel.axes.edit.setText("ZYX")
    assert (letters_of(first), letters_of(second)) == ("TYX", "ZYX")
    panel.reset()
    assert panel.axes.letters() == ".YX"
    # Those typed for another shape are not offered.
    first.data = first.data[0]
    assert letters_of(first) == "YX"


def test_labels_are_followed_while_the_panel_is_open(two, viewer, open_panel):
    panel, (first, second) = open_panel(), two
    panel.layer.choose(first)
    # Those of the viewer unless axes were typed.
    viewer.dims.axis_labels = ("t", "y", "x")
    assert panel.axes.letters() == "TYX"
    panel.axes.edit.setText("CYX")
    viewer.dims.axis_labels = ("z", "y", "x")
    assert panel.axes.letters() == "CYX"
    first.axis_labels = ("time", "y", "x")  # newer than what was typed
    assert panel.axes.letters() == "TYX"
    second.axis_labels = ("z", "y", "x")  # of a layer that is not chosen
    assert panel.axes.letters() == "TYX"
    panel.axes.edit.setText("CYX")
    first.axis_labels = ("z", "y", "x")
    assert panel.axes.letters() == "ZYX"
