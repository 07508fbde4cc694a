"""Where results lie, how they look, what a rerun does to them, and what they are called."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image

from _napari.inputs import layer_names
from napari_gpu_denoise._napari.denoise.results import ResultOptions, add_layers, differences
from napari_gpu_denoise._napari.denoise.run import Denoised, Request
from napari_gpu_denoise._napari.layers.provenance import (
    METADATA_KEY,
    first_origin,
    origin_of,
    record_of,
)
from napari_gpu_denoise._napari.layers.results import NewLayer, shines_through
from napari_gpu_denoise._napari.layers.source import capture
from napari_gpu_denoise._napari.tasks import Outcome
from napari_gpu_denoise.filters import BM3D, NLMeans
from napari_gpu_denoise.run.record import Record, Result
from napari_gpu_denoise.run.request import Run

pytestmark = pytest.mark.gui


def outcome(layer, value=1, *, settings=None, maps=(), **run):
    """The end of a run on a layer, all of whose pixels are one value."""
    places = {name: run.pop(name) for name in ("frame", "slice") if name in run}
    run = {"axes": "YX", **run}
    wanted = Run(filter=settings or NLMeans(), **run)
    source = capture(layer)
    image = np.full(source.data.shape, value, source.data.dtype)
    about = (wanted.filter.name, wanted.filter.as_dict(), (1.0,), "given", "YX")
    record = Record("0", *about, *[str(image.dtype)] * 2, "none", 0, 0, (), "now")
    request = Request(source, wanted, **places)
    return Outcome(request, Denoised(Result(image, record), maps=list(maps)))


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
        add_layers(channels, outcome(channels.layers[name]), "X")
    assert layer_names(channels) == ["red", "red (X)", "green", "green (X)", "above"]
    result = channels.layers["green (X)"]
    assert (result.blending, result.colormap.name, result.visible) == ("additive", "green", True)
    # A second one covers the first, and so do maps.
    looks = {"rgb": False, "visible": False}
    more = outcome(channels.layers["red"], maps=[NewLayer("m", "image", np.ones((8, 9)), looks)])
    add_layers(channels, more, "Y")
    assert layer_names(channels)[:4] == ["red", "red (X)", "red (Y)", "red (Y m)"]
    assert not channels.layers["red (Y m)"].visible
    # So does the result of a result.
    add_layers(channels, outcome(channels.layers["red (X)"]), "Z")
    assert layer_names(channels)[:5] == ["red", "red (X)", "red (X) (Z)", "red (Y)", "red (Y m)"]


def test_a_result_is_hidden_as_its_source_is_unless_that_hides_behind_one(channels):
    red, green = channels.layers["red"], channels.layers["green"]
    red.visible = green.visible = False
    add_layers(channels, outcome(red), "X")
    assert not channels.layers["red (X)"].visible
    green.visible = True
    add_layers(channels, outcome(green), "X")
    green.visible = False
    add_layers(channels, outcome(green), "Y")
    assert channels.layers["green (Y)"].visible
    # One whose source is gone lies on top.
    made = outcome(red)
    channels.layers.remove(red)
    add_layers(channels, made, "Z")
    assert layer_names(channels)[-2:] == ["above", "red (Z)"]


def test_a_rerun_replaces_pixels_and_record_but_not_the_looks(channels):
    red = channels.layers["red"]
    assert add_layers(channels, outcome(red), "NL-means", keep=False) == []
    result = channels.layers["red (NL-means)"]
    result.contrast_limits, result.gamma, result.visible = (3, 7), 0.5, False
    red.scale = (2, 2)
    again = outcome(red, 2, settings=NLMeans(step=2))
    (replaced,) = add_layers(channels, again, "NL-means", keep=False)
    assert layer_names(channels) == ["red", "red (NL-means, step 2)", "green", "above"]
    assert channels.layers[1] is result and channels.layers.selection.active is result
    assert (result.contrast_limits, result.gamma, result.visible) == ([3, 7], 0.5, True)
    assert result.data[0, 0] == 2 and tuple(result.scale) == (2, 2)
    assert result.metadata[METADATA_KEY]["settings"]["step"] == 2

    replaced.swap()
    assert result.data[0, 0] == 1 and result.name == "red (NL-means)"
    assert result.metadata[METADATA_KEY]["settings"]["step"] == NLMeans().step
    assert tuple(result.scale) == (1, 1) and result.gamma == 0.5
    replaced.swap()
    assert result.data[0, 0] == 2 and result.name == "red (NL-means, step 2)"


def test_only_the_same_run_of_the_same_layer_is_replaced(channels):
    red, green = channels.layers["red"], channels.layers["green"]
    for made, title in (
        (outcome(red), "A"),
        (outcome(green), "A"),
        (outcome(red, settings=BM3D()), "B"),
    ):
        assert add_layers(channels, made, title, keep=False) == []
    # Others were made of this one, which must stay what it was.
    add_layers(channels, outcome(channels.layers["red (A)"]), "C")
    assert add_layers(channels, outcome(red, 5), "A", keep=False) == []
    assert "red (A) [1]" in layer_names(channels)
    # It is the newest that is replaced, and one that the user has renamed keeps its name.
    channels.layers["red (A) [1]"].name = "mine"
    (replaced,) = add_layers(channels, outcome(red, 6), "A", keep=False)
    assert replaced.layer() is channels.layers["mine"] and replaced.name == "mine"


def test_a_frame_is_no_rerun_of_the_stack():
    viewer = ViewerModel()
    stack = viewer.add_image(np.zeros((4, 8, 9)), name="s")
    add_layers(viewer, outcome(stack, axes="TYX"), "A", keep=False)
    one = outcome(stack, axes="TYX", frame=2)
    one.value.result.image.resize((1, 8, 9), refcheck=False)
    assert add_layers(viewer, one, "A", keep=False) == []
    assert layer_names(viewer) == ["s", "s (A)", "s (A, frame 2)"]
    assert viewer.layers[-1].translate[0] == 2
    assert len(add_layers(viewer, one, "A", keep=False)) == 1


def test_what_is_replaced_is_freed(channels, small_memory):
    red = channels.layers["red"]
    add_layers(channels, outcome(red), "A", keep=False)
    first = weakref.ref(channels.layers["red (A)"].data)
    (replaced,) = add_layers(channels, outcome(red), "A", keep=False)
    assert first() is not None
    del replaced
    gc.collect()
    assert first() is None
    # What takes much is not kept for an undo.
    large = channels.add_image(np.zeros((12, 12)), name="large")
    for _ in range(2):
        assert add_layers(channels, outcome(large), "A", keep=False) == []
    assert layer_names(channels).count("large (A)") == 1


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({}, []),
        ({"sigma": 20.0}, ["sigma 20"]),
        ({"sigma": (1.0, 2.5), "sigma_factor": 0.8}, ["sigma 1 / 2.5", "strength 0.8"]),
        ({"noise": "gaussian", "correct": "stripes"}, ["one sigma", "stripes removed"]),
        ({"filter": BM3D.of(profile="high"), "dtype": "float32"}, ["profile high", "float32"]),
        (
            {"filter": NLMeans(step=2, frames_before=1, frames_after=0)},
            ["step 2", "frames before 1"],
        ),
    ],
    ids=str,
)
def test_names_tell_what_is_off_default_and_stay_short(run, words):
    assert differences(Run(**{"filter": NLMeans(), **run})) == words
    many = NLMeans(patch=5, step=2, window=9, frames_before=1, frames_after=1)
    assert differences(Run(filter=many, sigma=3.0))[3:] == ["…"]


@pytest.mark.parametrize(
    ("looks", "seen"), [({}, False), ({"blending": "minimum"}, True), ({"opacity": 0.5}, True)]
)
def test_what_is_seen_through_a_result(looks, seen):
    assert shines_through(Image(np.zeros((4, 4)), **looks)) == seen


def test_origins_are_found_by_identity_and_in_a_later_session_by_name(channels):
    red = channels.layers["red"]
    add_layers(channels, outcome(red), "A")
    middle = channels.layers["red (A)"]
    add_layers(channels, outcome(middle), "B")
    last = channels.layers["red (A) (B)"]
    red.name, middle.name = "one", "two"
    layers = channels.layers
    assert origin_of(middle, layers) is red and origin_of(last, layers) is middle
    assert first_origin(last, layers) is red and first_origin(red, layers) is red
    layers.remove(middle)
    assert origin_of(last, layers) is None and first_origin(last, layers) is red
    layers.remove(red)
    assert first_origin(last, layers) is last
    later = Image(np.zeros((8, 9)), name="red (A)")
    assert origin_of(last, [later]) is later
    assert record_of(later) == {}


def test_boxes_and_buttons(qtbot, channels, monkeypatch):
    after = ResultOptions(channels)
    qtbot.addWidget(after)
    red, above = channels.layers["red"], channels.layers["above"]
    after.take(above)
    assert not after.hide_source.isChecked()
    after.take(red)
    assert after.hide_source.isChecked()
    red.blending = "opaque"
    after.suggest()
    assert not after.hide_source.isChecked()
    after.hide_source.click()
    after.suggest()
    assert after.hide_source.isChecked(), "what was clicked stays"
    assert after.compare_button.isHidden() and after.undo_button.isHidden()

    after.add(outcome(red), "A")
    assert not red.visible and channels.layers["red (A)"].visible
    assert not after.compare_button.isHidden() and after.undo_button.isHidden()
    chosen = []
    panel = SimpleNamespace(choose=chosen.append)
    monkeypatch.setattr("napari_gpu_denoise._napari.docks.open_panel", lambda *_: panel)
    after.compare_button.click()
    assert chosen == [channels.layers["red (A)"]]

    after.add(outcome(red, 2), "A")
    assert len(channels.layers) == 4 and not after.undo_button.isHidden()
    after.undo_button.click()
    assert after.undo_button.text() == "Redo"
    assert channels.layers["red (A)"].data[0, 0] == 1
    after.undo_button.click()
    assert channels.layers["red (A)"].data[0, 0] == 2

    after.keep_both.click()
    after.begin()
    after.add(outcome(red, 3), "A")
    assert len(channels.layers) == 5 and after.undo_button.isHidden()
    channels.layers.clear()
    after.refresh()
    assert after.compare_button.isHidden()
    after.reset()
    assert not after.keep_both.isChecked()


def test_layers_denoised_together_are_undone_together(qtbot, channels):
    after = ResultOptions(channels)
    qtbot.addWidget(after)
    pair = [channels.layers[name] for name in ("red", "green")]
    for value in (1, 2):
        after.begin()
        for each in pair:
            after.add(outcome(each, value), "A")
    after.undo_button.click()
    results = [channels.layers[name] for name in ("red (A)", "green (A)")]
    assert [each.data[0, 0] for each in results] == [1, 1]
    after.begin()
    after.add(outcome(pair[0], 3), "A")
    after.undo_button.click()
    assert [each.data[0, 0] for each in results] == [1, 1]
