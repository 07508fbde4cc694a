"""A rectangle, or the view, alone: its pixels and its place."""

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from _napari.inputs import choose, click, copied, rectangle
from napari_gpu_denoise._napari.compare.pair import Pair, partners
from napari_gpu_denoise._napari.docks import camera_of
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY, describe
from napari_gpu_denoise._napari.model import RECTANGLE, VIEW
from napari_gpu_denoise.filters import VBM3D
from napari_gpu_denoise.run import denoise as runs
from scenes import noisy, small


def draw(viewer, layer, *corners):
    """Draw an upright rectangle in the pixels of a layer, on its first plane."""
    world = [layer.data_to_world(each) for each in rectangle(*corners, 0)]
    return viewer.add_shapes([np.array(world)], shape_type="rectangle", name="cell")


def scaled(viewer, image, axes, **more):
    scale, units = (0.5, 0.25, 0.2)[-len(axes) :], ("um",) * len(axes)
    place = {"scale": scale, "translate": (3,) * len(axes), "units": units, "axis_labels": axes}
    return viewer.add_image(image, name="cells", **place, **more)


def test_a_drawn_rectangle(viewer, open_panel, run, pasted):
    image = noisy(5, 44, 60, dtype="uint16")
    image[..., 50:] = 2 * image[..., 50:]  # its noise is outside, and counts
    source = scaled(viewer, image, "tyx")
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
    # The same rectangle again takes its place; another one does not.
    run(panel)
    assert len(viewer.layers) == 3
    panel.region.shapes.choose(draw(viewer, source, 2, 3, 20, 40))
    assert run(panel).startswith("Done in ")
    assert len(viewer.layers) == 5
    panel.reset()
    assert panel.request().cut == {}


@pytest.mark.usefixtures("window")
def test_the_view_of_one_frame_of_a_file(viewer, open_panel, run, pasted, qtbot):
    main = viewer.window._qt_window
    main.show()
    qtbot.waitExposed(main)
    image = noisy(4, 64, 80, dtype="uint16")
    source = scaled(viewer, da.from_array(image, chunks=(1, 32, 40)), "tyx")
    panel = open_panel("NL-means")
    choose(panel.region.box, VIEW)
    camera_of(viewer).center = (0, 3 + 8, 3 + 8)
    camera_of(viewer).zoom *= 3
    qtbot.waitUntil(lambda: source.corner_pixels[0][1] > 0)
    assert run(panel).startswith("Done in ")
    record = (result := viewer.layers.selection.active).metadata[METADATA_KEY]
    (top, bottom), (left, right) = record["rows"], record["columns"]
    assert 0 <= top < bottom < 64 and 0 <= left < right < 80
    whole = runs.denoise(image, panel.form.settings(), axes="TYX").image
    assert_array_equal(result.data, whole[:, top:bottom, left:right])
    click(panel.places.boxes["T"])
    viewer.dims.set_point(0, 3 + 2 * 0.5)
    qtbot.waitUntil(lambda: panel.places.boxes["T"].text() == "Only the frame shown: 2")
    assert panel.run_button.text() == "Denoise frame 2, view"
    run(panel)
    result = viewer.layers.selection.active
    assert ", frame 2, rows " in describe(result)
    assert viewer.dims.nsteps[0] == 4  # it makes the slider no longer
    assert_array_equal(result.data, whole[2:3, top:bottom, left:right])
    assert_array_equal(pasted(panel)["denoised"], result.data)
    assert partners(result, viewer.layers)[0] == source
    before, after = Pair(source, result).read(np.s_[0, 3:9, 2:7])
    assert_array_equal(before, image[2, top + 3 : top + 9, left + 2 : left + 7])
    assert_array_equal(after, result.data[0, 3:9, 2:7])
    click(panel.reset_button)
    assert panel.request().cut == {} and panel.run_button.text() == "Denoise"
    main.hide()
