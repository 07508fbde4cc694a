"""The region of a layer that the camera shows; no window needed."""

import numpy as np
import pytest
from napari.components import Dims
from napari.layers import Image

from napari_gpu_denoise._napari.layers.regions import region_shown
from napari_gpu_denoise.errors import LayerError

pytestmark = pytest.mark.gui


def dims_at(*point, ndisplay=2, order=None):
    dims = Dims(ndim=len(point), ndisplay=ndisplay)
    dims.range = tuple((0, 1000, 0.25) for _ in point)
    dims.point = point
    if order is not None:
        dims.order = order
    return dims


def looked_at(layer, low, high):
    """Make a layer believe that the camera shows what lies between two pixels."""
    layer.corner_pixels = np.array([low, high])
    return layer


def test_what_is_seen_at_the_sliders():
    layer = looked_at(Image(np.zeros((5, 6, 20, 30))), (0, 0, 3, -4), (0, 0, 11, 50))
    region = region_shown(layer, dims_at(3, 2, 0, 0))
    assert region.spans == ((3, 4), (2, 3), (3, 12), (0, 30))
    assert (region.plane, region.cut, region.words()) == ((2, 3), False, "9 by 30 pixels")


def test_a_large_view_is_cut_around_its_centre():
    layer = looked_at(Image(np.zeros((200, 300))), (0, 0), (199, 299))
    region = region_shown(layer, dims_at(0, 0), most=100 * 100)
    assert region.spans == ((50, 150), (100, 200))
    assert region.words() == "the middle 100 by 100 pixels of the view"
    narrow = looked_at(Image(np.zeros((20, 3000))), (0, 0), (19, 2999))
    assert region_shown(narrow, dims_at(0, 0), most=20 * 100).shape == (20, 100)


def test_the_finest_level_counts():
    levels = [np.zeros((3, 64, 64)), np.zeros((3, 16, 16))]
    layer = Image(levels, multiscale=True)
    layer._data_level = 1
    looked_at(layer, (0, 2, 3), (0, 7, 9))
    assert region_shown(layer, dims_at(1, 0, 0)).spans == ((1, 2), (8, 32), (12, 40))


def test_scaled_and_moved_layers_in_a_viewer_of_more_axes():
    layer = Image(np.zeros((5, 20, 30)), scale=(2, 0.5, 0.5), translate=(10, 0, 0))
    looked_at(layer, (0, 0, 0), (0, 19, 29))
    assert region_shown(layer, dims_at(0, 14, 0, 0)).starts == {0: 2, 1: 0, 2: 0}


def test_any_two_axes_may_be_shown():
    layer = looked_at(Image(np.zeros((5, 20, 30))), (0, 0, 4), (4, 0, 9))
    region = region_shown(layer, dims_at(0, 7, 0, order=(1, 0, 2)))
    assert region.spans == ((0, 5), (7, 8), (4, 10))
    assert region.plane == (0, 2)


def test_colours_are_no_axis():
    layer = looked_at(Image(np.zeros((20, 30, 3), np.uint8), rgb=True), (0, 0), (19, 29))
    assert region_shown(layer, dims_at(0, 0)).spans == ((0, 20), (0, 30))


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (dims_at(0, 0, 0, ndisplay=3), "switch the viewer to 2D"),
        (dims_at(9, 0, 0), "has no data at the current slider"),
    ],
)
def test_there_is_no_plane(dims, message):
    layer = looked_at(Image(np.zeros((5, 20, 30))), (0, 0, 0), (0, 19, 29))
    with pytest.raises(LayerError, match=message):
        region_shown(layer, dims)


def test_a_layer_out_of_view():
    layer = looked_at(Image(np.zeros((20, 30))), (0, 40), (19, 60))
    with pytest.raises(LayerError, match="No part of"):
        region_shown(layer, dims_at(0, 0))
