"""Several layers that are chosen together."""

import numpy as np

from _napari.inputs import layer_names

NOISE = np.random.default_rng(0).normal(100, 5, (24, 30)).astype(np.float32)


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
