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
from napari_gpu_denoise._napari.tasks import TimeLeft
from napari_gpu_denoise.run.progress import MEASURING, Step

pytestmark = pytest.mark.gui
NOISE = np.random.default_rng(0).normal(100, 5, (24, 30)).astype(np.float32)


def from_file(path="/data/a.tif", shape=(4, 5), **attributes):
    with layer_source(path=path):
        return Image(np.zeros(shape), **attributes)


def test_layers_of_one_file_and_layers_that_are_selected():
    first, second = from_file(), from_file()
    result = from_file(metadata={METADATA_KEY: {SOURCE_ID: identity(first)}})
    other = Image(np.zeros((4, 5)))
    others = [from_file("/data/b.tif"), from_file(shape=(6, 5)), other]
    labels = Labels(np.zeros((4, 5), int))
    layers = [first, *others, result, second, labels]
    found = groups.of_file(layers, second)
    assert found.text == "All 2 layers of a.tif" and found.layers == (first, second)
    assert [groups.of_file(layers, layer) for layer in (*others, result, labels, None)] == (
        [None] * 6
    )
    assert groups.selected(layers, {other, labels, first}).layers == (first, other)
    assert groups.selected(layers, {other, labels}) is None
    known = dict(path="/data/a.tif", axes="CYX", shape=(2, 4, 5), name="", colour="", stamp=())
    channels = [
        from_file(metadata={FILE_KEY: Origin(**known, place=n, scale=(), units=()).as_dict()})
        for n in range(2)
    ]
    assert groups.of_file(channels, channels[0]).text == "All 2 channels of a.tif"


def test_the_list_of_a_panel_offers_groups(viewer, open_panel):
    one, two, three = (viewer.add_image(NOISE, name=name) for name in ("one", "two", "three"))
    panel = open_panel()

    def texts():
        return [panel.layer.itemText(row) for row in range(panel.layer.count())]

    assert texts() == ["three", "two", "one"] and panel.layer.layer() == three
    viewer.layers.selection = {one, two}
    # The choice stays until another is made; another panel opens with all that are selected.
    assert texts() == ["2 selected layers", "three", "two", "one"]
    assert panel.layer.layers() == (three,)
    assert open_panel("BM3D").layer.layers() == (one, two)
    panel.layer.setCurrentIndex(0)
    assert panel.layer.layers() == (one, two) and panel.run_button.text() == "Denoise 2 layers"
    viewer.layers.selection = {three}
    assert texts() == ["2 layers", "three", "two", "one"]
    assert panel.layer.layers() == (one, two)
    viewer.layers.remove(one)
    assert texts() == ["three", "two"] and panel.layer.layers() == (three,)


def test_a_layer_that_fails_does_not_end_the_others(viewer, open_panel, run, told):
    broken = NOISE.copy()
    broken[3, 3] = np.nan
    one, two = viewer.add_image(broken, name="one"), viewer.add_image(NOISE, name="two")
    viewer.layers.selection = {one, two}
    panel = open_panel()
    assert run(panel) == "1 of 2 layers done, 1 failed."
    assert any("NaN" in text for text in told())
    assert [layer.name for layer in viewer.layers][2:] == ["two (NL-means)"]
    one.data = np.stack([NOISE] * 3)
    viewer.layers.selection = {one, two}
    again = open_panel("BM3D")
    again.axes.edit.setText("TYX")
    assert [again.request(layer).run.axes for layer in again.layer.layers()] == ["TYX", "YX"]


def test_the_time_left():
    now = [0.0]
    left = TimeLeft(lambda: now[0])

    def words(time, done):
        now[0] = time
        return left.words(Step(done, 10, "Denoising: tile"))

    assert words(0.0, 0) == "Denoising: tile 0 of 10"
    assert words(2.0, 1) == "Denoising: tile 1 of 10"
    assert words(10.0, 5) == "Denoising: tile 5 of 10, about 10 seconds left"
    assert words(10.0, 10) == "Denoising: tile 10 of 10"
    assert left.words(Step(0, 0, MEASURING)) == "Measuring noise …"
    # Another layer begins anew, and stands still.
    for time in (20.0, 40.0):
        assert words(time, 1) == "Denoising: tile 1 of 10"
