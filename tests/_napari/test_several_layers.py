"""Several layers that are chosen together."""

import numpy as np
from napari.components import ViewerModel

from _napari.inputs import layer_names
from napari_gpu_denoise._napari.inputs import LayerInput
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY, SOURCE_ID, identity

NOISE = np.random.default_rng(0).normal(100, 5, (24, 30)).astype(np.float32)


def test_a_list_offers_groups_and_follows_the_selection(qtbot):
    viewer = ViewerModel()
    one, two, three = (viewer.add_image(NOISE, name=name) for name in ("one", "two", "three"))
    listed = LayerInput(viewer, "")
    qtbot.addWidget(listed)

    def texts(*selected):
        viewer.layers.selection = set(selected)
        listed.refresh()
        return [listed.itemText(row) for row in range(listed.count())]

    assert texts(three) == ["three", "two", "one"] and listed.layer() == three
    # The choice stays until another is made.
    assert texts(one, two) == ["2 selected layers", "three", "two", "one"]
    assert listed.layers() == (three,)
    listed.setCurrentIndex(0)
    assert texts(three) == ["2 layers", "three", "two", "one"] and listed.layers() == (one, two)
    # A result of what is chosen changes nothing, what is selected itself does.
    record = {"filter": "bm3d", SOURCE_ID: identity(one)}
    made = viewer.add_image(NOISE, metadata={METADATA_KEY: record}, name="made")
    assert texts(made) == ["2 layers", "made", "three", "two", "one"]
    for selected, wanted in (({made}, (one, two)), ({one}, (one,)), ({two}, (two,))):
        viewer.layers.selection = selected
        listed.follow_selection()
        assert listed.layers() == wanted
    viewer.layers.selection = {made}
    listed.follow_selection()
    assert listed.layers() == (one,)
    viewer.layers.remove(one)
    viewer.layers.remove(made)
    assert texts(three) == ["three", "two"] and listed.layers() == (three,)
    # What is not there, or no image, is not chosen.
    for other in (one, viewer.add_labels(np.zeros((24, 30), int))):
        listed.choose(other)
        assert listed.layers() == (three,)


def test_a_layer_that_fails_does_not_end_the_others(viewer, open_panel, run, told):
    broken = NOISE.copy()
    broken[3, 3] = np.nan
    one, two = viewer.add_image(broken, name="one"), viewer.add_image(NOISE, name="two")
    viewer.layers.selection = {one, two}
    panel = open_panel()
    said = run(panel)
    assert "1 of 2 layers done, 1 failed" in said and said.endswith(": two NL-means.")
    assert any("NaN" in text for text in told())
    assert layer_names(viewer)[2:] == ["two NL-means"]
