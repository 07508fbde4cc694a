"""A rectangle, or the view, alone: its pixels and its place."""

import numpy as np
from napari.components import ViewerModel
from numpy.testing import assert_allclose, assert_array_equal

from _napari.inputs import choose, click, copied, rectangle
from napari_gpu_denoise._napari.compare.pair import Pair, partners
from napari_gpu_denoise._napari.docks import camera_of
from napari_gpu_denoise._napari.inputs import REGIONS, RegionInput
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.model import RECTANGLE, VIEW, RegionChoice
from napari_gpu_denoise.filters import VBM3D
from napari_gpu_denoise.run import denoise as runs
from scenes import noisy, small


def draw(viewer, layer, *corners):
    """Draw an upright rectangle in the pixels of a layer, on its first plane."""
    world = [layer.data_to_world(each) for each in rectangle(*corners, 0)]
    return viewer.add_shapes([np.array(world)], shape_type="rectangle", name="cell")


def test_a_drawn_rectangle(viewer, open_panel, run, pasted, qtbot):
    image = noisy(5, 44, 60, dtype="uint16")
    image[..., 50:] = 2 * image[..., 50:]  # its noise is outside, and counts
    place = {"scale": (0.5, 0.25, 0.2), "translate": (3, 3, 3), "units": ("um",) * 3}
    source = viewer.add_image(image, name="cells", axis_labels="tyx", **place)
    panel = open_panel("VBM3D")
    panel.form.show_settings(small(VBM3D))
    choose(panel.region.box, RECTANGLE)
    assert "There is no rectangle yet: click Draw" in run(panel)
    draw(viewer, source, 10, 12, 30, 47)
    assert run(panel).startswith("Done in ")
    result = viewer.layers.selection.active
    whole = runs.denoise(image, panel.form.settings(), axes="TYX")
    assert_array_equal(result.data, whole.image[:, 10:31, 12:48])
    record = result.metadata[METADATA_KEY]
    assert (record["rows"], record["columns"]) == ([10, 31], [12, 48])
    assert record["sigma"] == list(whole.record.sigma)
    assert_allclose(result.data_to_world((0, 0, 0)), source.data_to_world((0, 10, 12)))
    there = pasted(panel)
    assert_array_equal(there["denoised"], result.data)
    assert_allclose(there["added"].translate, result.translate)
    assert there["added"].name == "cells VBM3D [1]"
    copied(panel.command_action)
    assert "It filters all rows and columns." in panel.status.text()
    # Of one frame it is as many pixels, which lie there.
    panel.places.boxes["T"].setChecked(True)
    viewer.dims.set_point(0, 3 + 2 * 0.5)
    qtbot.waitUntil(lambda: panel.places.boxes["T"].text() == "Only the frame shown: 2")
    assert panel.run_button.text() == "Denoise frame 2, rectangle"
    run(panel)
    one = viewer.layers.selection.active
    assert_array_equal(one.data, result.data[2:3])
    assert_array_equal(pasted(panel)["denoised"], one.data)
    assert viewer.dims.nsteps[0] == 5  # it makes the slider no longer
    assert partners(one, viewer.layers)[0] == source
    before, after = Pair(source, one).read(np.s_[0, 3:9, 2:7])
    assert_array_equal(before, image[2, 13:19, 14:19])
    assert_array_equal(after, one.data[0, 3:9, 2:7])
    viewer.layers.remove(one)
    panel.places.boxes["T"].setChecked(False)
    # The same rectangle again takes its place; another one does not.
    run(panel)
    assert len(viewer.layers) == 3
    panel.region.shapes.choose(draw(viewer, source, 2, 3, 20, 40))
    assert run(panel).startswith("Done in ")
    assert len(viewer.layers) == 5
    click(panel.reset_button)
    assert panel.request().cut == {} and panel.run_button.text() == "Denoise"


def test_a_region_moves_with_the_view_or_the_layer_that_it_is_drawn_in(qtbot):
    viewer, told = ViewerModel(), []
    viewer.add_image(np.zeros((5, 20, 30)))
    drawn = viewer.add_shapes([rectangle(2, 3, 8, 9), rectangle(4, 3, 8, 9)])
    region = RegionInput(viewer, REGIONS, "")
    qtbot.addWidget(region)
    region.changed.connect(lambda: told.append(region.region()))
    camera, dims = camera_of(viewer), viewer.dims
    moves = {
        VIEW: (lambda n: setattr(camera, "zoom", n), lambda n: dims.set_point(0, n)),
        RECTANGLE: (
            lambda n: setattr(drawn, "scale", (n, n)),
            lambda n: setattr(drawn, "selected_data", {n % 2}),
        ),
    }
    for n, kind in ((3, VIEW), (4, RECTANGLE)):
        choose(region.box, kind)
        assert told[-1] == RegionChoice(kind, drawn)
        assert region.shapes.isVisibleTo(region) == (kind == RECTANGLE)
        followed = region.events()
        for event, act in followed:
            event.connect(act)
        for each, act in ((each, act) for each, acts in moves.items() for act in acts):
            told.clear()
            act(n)
            assert bool(told) == (each == kind)
        for event, act in followed:
            event.disconnect(act)
