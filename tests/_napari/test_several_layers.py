"""Several layers that are chosen together, and the time that is left."""

import numpy as np
import pytest
from napari.layers import Image, Labels
from napari.layers._source import layer_source

from napari_gpu_denoise._napari.layers import layer_input as groups
from napari_gpu_denoise._napari.layers.provenance import (
    FILE_KEY,
    METADATA_KEY,
    SOURCE_ID,
    Origin,
    identity,
)
from napari_gpu_denoise._napari.tasks import Stage, TimeLeft
from napari_gpu_denoise.run.record import MEASURING

pytestmark = pytest.mark.gui
NOISE = np.random.default_rng(0).normal(100, 5, (24, 30)).astype(np.float32)


def from_file(path, shape=(4, 5), **attributes):
    with layer_source(path=path):
        return Image(np.zeros(shape), **attributes)


def test_layers_of_one_file():
    first, second = from_file("/data/a.tif"), from_file("/data/a.tif")
    made = {METADATA_KEY: {SOURCE_ID: identity(first)}}
    result = from_file("/data/a.tif", metadata=made)
    others = [from_file("/data/b.tif"), from_file("/data/a.tif", (6, 5)), Image(np.zeros((4, 5)))]
    layers = [first, *others, result, second, Labels(np.zeros((4, 5), int))]
    found = groups.of_file(layers, second)
    assert found.text == "All 2 layers of a.tif" and found.layers == (first, second)
    assert [groups.of_file(layers, each) for each in (*others, result, layers[-1], None)] == [
        None
    ] * 6


def test_channels_of_one_file_are_named_so():
    known = dict(path="/data/a.tif", axes="CYX", shape=(2, 4, 5), name="", colour="", stamp=())
    layers = [
        from_file(
            "/data/a.tif",
            metadata={FILE_KEY: Origin(**known, place=n, scale=(), units=()).as_dict()},
        )
        for n in range(2)
    ]
    assert groups.of_file(layers, layers[0]).text == "All 2 channels of a.tif"


def test_layers_that_are_selected():
    first, second, third = (Image(np.zeros((4, 5))) for _ in range(3))
    labels = Labels(np.zeros((4, 5), int))
    layers = [first, second, labels, third]
    assert groups.selected(layers, {third, labels, first}).layers == (first, third)
    assert groups.selected(layers, {third, labels}) is None


def test_the_list_of_a_panel_offers_groups(viewer, open_panel):
    one, two, three = (viewer.add_image(NOISE, name=name) for name in ("one", "two", "three"))
    panel = open_panel()

    def texts():
        return [panel.layer.itemText(row) for row in range(panel.layer.count())]

    assert texts() == ["three", "two", "one"] and panel.layer.layer() == three
    viewer.layers.selection = {one, two}
    # The choice stays until another is made.
    assert texts() == ["2 selected layers", "three", "two", "one"]
    assert panel.layer.layers() == (three,)
    panel.layer.setCurrentIndex(0)
    assert panel.layer.layers() == (one, two) and panel.run_button.text() == "Denoise 2 layers"
    viewer.layers.selection = {three}
    assert texts() == ["2 layers", "three", "two", "one"]
    assert panel.layer.layers() == (one, two)
    viewer.layers.remove(one)
    assert texts() == ["three", "two"] and panel.layer.layers() == (three,)


def test_a_panel_opens_with_all_that_are_selected(viewer, open_panel):
    one, two, _ = (viewer.add_image(NOISE, name=name) for name in ("one", "two", "three"))
    viewer.layers.selection = {one, two}
    assert open_panel().layer.layers() == (one, two)


def test_a_layer_that_fails_does_not_end_the_others(viewer, open_panel, run, told):
    broken = NOISE.copy()
    broken[3, 3] = np.nan
    one, two = viewer.add_image(broken, name="one"), viewer.add_image(NOISE, name="two")
    viewer.layers.selection = {one, two}
    panel = open_panel()
    assert run(panel) == "1 of 2 layers done, 1 failed."
    assert any("NaN" in each for each in told())
    assert [each.name for each in viewer.layers][2:] == ["two (NL-means)"]


def test_axes_of_layers_of_another_kind(viewer, open_panel):
    one = viewer.add_image(np.stack([NOISE] * 3), name="one")
    two = viewer.add_image(NOISE, name="two")
    viewer.layers.selection = {one, two}
    panel = open_panel()
    panel.axes.edit.setText("TYX")
    assert [panel.request(each).run.axes for each in panel.layer.layers()] == ["TYX", "YX"]


def test_the_time_left():
    now = [0.0]
    left = TimeLeft(lambda: now[0])
    assert left.words(Stage("Denoising: tile", 0, 10)) == "Denoising: tile 0 of 10"
    now[0] = 2.0
    assert left.words(Stage("Denoising: tile", 1, 10)) == "Denoising: tile 1 of 10"
    now[0] = 10.0
    assert left.words(Stage("Denoising: tile", 5, 10)) == (
        "Denoising: tile 5 of 10, about 10 seconds left"
    )
    assert left.words(Stage("Denoising: tile", 10, 10)) == "Denoising: tile 10 of 10"
    assert left.words(Stage(MEASURING.unit.capitalize())) == "Measuring noise …"
    # Another layer begins anew.
    now[0] = 20.0
    assert left.words(Stage("Denoising: tile", 1, 10)) == "Denoising: tile 1 of 10"
