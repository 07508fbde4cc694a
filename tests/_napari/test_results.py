"""Where results lie, how they look, what a rerun does to them, and what they are called."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image

from _napari.inputs import layer_names
from napari_gpu_denoise._napari.denoise.results import ResultOptions, add_result
from napari_gpu_denoise._napari.layers.provenance import (
    METADATA_KEY,
    first_origin,
    is_result,
    origin_of,
    record_of,
)
from napari_gpu_denoise._napari.layers.results import shines_through
from napari_gpu_denoise._napari.layers.source import capture
from napari_gpu_denoise._napari.run import Denoised, Request
from napari_gpu_denoise._napari.tasks import Outcome
from napari_gpu_denoise.filters import BM3D, Isoline, NLMeans
from napari_gpu_denoise.run.record import Record, Result
from napari_gpu_denoise.run.request import Run


def outcome(layer, value=1, *, settings=None, **run):
    """The end of a run on a layer, all of whose pixels are one value."""
    places = {name: run.pop(name) for name in ("frames",) if name in run}
    run = {"axes": "YX", **run}
    wanted = Run(filter=settings or NLMeans(), **run)
    source = capture(layer)
    image = np.full(source.data.shape, value, source.data.dtype)
    about = (wanted.filter.name, wanted.filter.as_dict(), (1.0,), "given", "YX")
    record = Record("0", *about, *[str(image.dtype)] * 2, "none", 0, 0, (), "now")
    request = Request(source, wanted, places)
    return Outcome(request, Denoised(Result(image, record)))


@pytest.fixture
def channels():
    """Two channels that are added up, and what lies on them."""
    viewer = ViewerModel()
    for name, colour in (("red", "red"), ("green", "green")):
        viewer.add_image(np.zeros((8, 9)), name=name, colormap=colour, blending="additive")
    viewer.add_image(np.zeros((8, 9)), name="above", visible=False)
    return viewer


def test_results_lie_on_their_source(channels):
    for name in ("red", "green"):
        add_result(channels, outcome(channels.layers[name]))
    assert layer_names(channels) == ["red", "red NL-means", "green", "green NL-means", "above"]
    result = channels.layers["green NL-means"]
    assert (result.blending, result.colormap.name, result.visible) == ("additive", "green", True)
    # A second one covers the first.
    add_result(channels, outcome(channels.layers["red"], settings=BM3D()))
    assert layer_names(channels)[:3] == ["red", "red NL-means", "red BM3D"]
    # So does the result of a result, which knows how that was made.
    for last in ("red NL-means", "red NL-means BM3D"):
        add_result(channels, outcome(channels.layers[last], settings=BM3D()))
    first, second, third = (record_of(each) for each in channels.layers[1:4])
    assert layer_names(channels)[1:3] == ["red NL-means", "red NL-means BM3D"]
    assert "history" not in first and second["history"] == [first]
    assert third["history"] == [first, {k: v for k, v in second.items() if k != "history"}]


def test_a_result_is_hidden_as_its_source_is_unless_that_hides_behind_one(channels):
    red, green = channels.layers["red"], channels.layers["green"]
    red.visible = green.visible = False
    add_result(channels, outcome(red))
    assert not channels.layers["red NL-means"].visible
    green.visible = True
    add_result(channels, outcome(green))
    green.visible = False
    add_result(channels, outcome(green, settings=BM3D()))
    assert channels.layers["green BM3D"].visible
    # One whose source is gone lies on top.
    made = outcome(red, settings=BM3D())
    channels.layers.remove(red)
    add_result(channels, made)
    assert layer_names(channels)[-2:] == ["above", "red BM3D"]


def test_a_rerun_replaces_pixels_and_record_but_not_the_looks(channels):
    red = channels.layers["red"]
    add_result(channels, outcome(red), keep=False)
    result = channels.layers["red NL-means"]
    result.contrast_limits, result.gamma, result.visible = (3, 7), 0.5, False
    red.scale = (2, 2)
    again = outcome(red, 2, settings=NLMeans(step=2))
    add_result(channels, again, keep=False)
    assert layer_names(channels) == ["red", "red NL-means", "green", "above"]
    assert channels.layers[1] is result
    assert (result.contrast_limits, result.gamma, result.visible) == ([3, 7], 0.5, True)
    assert result.data[0, 0] == 2 and tuple(result.scale) == (2, 2)
    assert result.metadata[METADATA_KEY]["settings"]["step"] == 2


def test_only_the_same_run_of_the_same_layer_is_replaced(channels):
    red, green = channels.layers["red"], channels.layers["green"]
    for made in (outcome(red), outcome(green), outcome(red, settings=BM3D())):
        add_result(channels, made, keep=False)
    assert len(channels.layers) == 6
    # Others were made of this one, which must stay what it was.
    add_result(channels, outcome(channels.layers["red NL-means"], settings=BM3D()))
    add_result(channels, outcome(red, 5), keep=False)
    # It is the newest that is replaced, but never one that the user has renamed.
    second = channels.layers["red NL-means [1]"]
    add_result(channels, outcome(red, 6), keep=False)
    assert second.data[0, 0] == 6
    second.name = "mine"
    add_result(channels, outcome(red, 7), keep=False)
    assert second.data[0, 0] == 6 and "red NL-means [1]" in layer_names(channels)

    # Nor is a frame a rerun of the stack.
    stack = channels.add_image(np.zeros((4, 8, 9)), name="s")
    add_result(channels, outcome(stack, axes="TYX"), keep=False)
    one = outcome(stack, axes="TYX", frames=2)
    one.value.result.image.resize((1, 8, 9), refcheck=False)
    add_result(channels, one, keep=False)
    assert layer_names(channels)[-3:] == ["s", "s NL-means", "s NL-means [1]"]
    assert channels.layers[-1].translate[0] == 2
    count = len(channels.layers)
    add_result(channels, one, keep=False)
    assert len(channels.layers) == count


def test_a_map_of_colours_has_no_colours(channels):
    colours = channels.add_image(np.zeros((8, 9, 3), np.uint8), rgb=True, name="photo")
    made = add_result(channels, outcome(colours, 5, settings=Isoline(show="directions")))
    assert (made.name, made.rgb, made.data.shape) == ("photo Isoline directions", False, (8, 9))
    assert made.data[0, 0] == 5 and not is_result(made)


def test_what_is_replaced_is_freed(channels):
    red = channels.layers["red"]
    add_result(channels, outcome(red), keep=False)
    first = weakref.ref(channels.layers["red NL-means"].data)
    add_result(channels, outcome(red), keep=False)
    gc.collect()
    assert first() is None


def test_what_is_seen_through_a_result():
    seen = {"blending": "minimum"}, {"opacity": 0.5}
    found = [shines_through(Image(np.zeros((4, 4)), **looks)) for looks in ({}, *seen)]
    assert found == [False, True, True]


def test_origins_are_found_by_identity_and_in_a_later_session_by_name(channels):
    red = channels.layers["red"]
    add_result(channels, outcome(red))
    middle = channels.layers["red NL-means"]
    add_result(channels, outcome(middle, settings=BM3D()))
    last = channels.layers["red NL-means BM3D"]
    red.name, middle.name = "one", "two"
    layers = channels.layers
    assert origin_of(middle, layers) is red and origin_of(last, layers) is middle
    assert first_origin(last, layers) is red and first_origin(red, layers) is red
    layers.remove(middle)
    assert origin_of(last, layers) is None and first_origin(last, layers) is red
    layers.remove(red)
    assert first_origin(last, layers) is last
    later = Image(np.zeros((8, 9)), name="red NL-means")
    assert origin_of(last, [later]) is later
    assert record_of(later) == {}


def test_the_box_and_the_button(qtbot, channels, monkeypatch):
    after = ResultOptions(channels, *[None] * 3)
    qtbot.addWidget(after)
    red, above = channels.layers["red"], channels.layers["above"]
    above.visible = True
    after.add(outcome(above))
    assert above.visible, "its result covers it"
    channels.layers.remove("above NL-means")
    after.refresh()
    assert after.compare_button.isHidden()

    after.add(outcome(red))
    assert not red.visible and channels.layers["red NL-means"].visible
    assert not after.compare_button.isHidden()
    chosen = []
    panel = SimpleNamespace(take=chosen.append)
    monkeypatch.setattr("napari_gpu_denoise._napari.docks.open_panel", lambda *_: panel)
    after.compare_button.click()
    assert chosen == [channels.layers["red NL-means"]]

    after.add(outcome(red, 2))
    assert len(channels.layers) == 4 and channels.layers["red NL-means"].data[0, 0] == 2
    after.keep_both.click()
    after.add(outcome(red, 3))
    assert len(channels.layers) == 5
    channels.layers.clear()
    after.refresh()
    assert after.compare_button.isHidden()
