"""Parts of a layer: the view, a drawn rectangle, the region of a preview."""

import numpy as np
import pytest
from napari.components import Dims
from napari.layers import Image, Shapes
from numpy.testing import assert_array_equal

from _napari.inputs import Sliced, rectangle
from napari_gpu_denoise._napari.layers.arrays import LazyArray
from napari_gpu_denoise._napari.layers.regions import (
    in_rectangle,
    in_view,
    part_of,
    region_shown,
)
from napari_gpu_denoise.errors import LayerError

ARRAY = np.arange(5 * 6 * 20 * 30).reshape(5, 6, 20, 30)


def dims_at(*point, ndisplay=2, order=None):
    dims = Dims(ndim=len(point), ndisplay=ndisplay)
    dims.range = tuple((0, 1000, 0.25) for _ in point)
    dims.point = point
    if order is not None:
        dims.order = order
    return dims


ORIGIN = dims_at(0, 0, 0, 0)


def drawn_in(layer, axes, shapes, dims=ORIGIN, **given):
    return in_rectangle(layer, axes, dims, shapes, **given)


# --- parts ----------------------------------------------------------------------------------------


def test_a_part_in_words_and_code():
    part = part_of("TCYX", Image(ARRAY))
    assert (part.axes, part.place, part.code) == ("TCYX", "", "")
    assert_array_equal(LazyArray(ARRAY, part=part.index)[...], ARRAY)
    part = part_of("TCYX", Image(ARRAY), {1: 2, 0: 3, 2: (4, 10), 3: (0, 30)})
    assert part.axes == "YX"
    assert part.place == "time point 3, channel 2, rows 4 to 9, columns 0 to 29"
    assert part.code == "[3, 2, 4:10]"
    assert_array_equal(ARRAY[3, 2, 4:10], LazyArray(ARRAY, part=part.index)[:])
    # Alpha is left out.
    part = part_of("YXS", Image(np.zeros((8, 9, 4), np.uint8), rgb=True))
    assert part.code == "[:, :, 0:3]"
    assert LazyArray(np.zeros((8, 9, 4)), part=part.index).shape == (8, 9, 3)


@pytest.mark.parametrize(
    "index", [np.s_[...], 2, np.s_[1:4:2], np.s_[:, 3], np.s_[-1, ..., 5], np.s_[::-1, 2:4, 1]]
)
def test_a_cut_is_indexed_as_the_part_is(index):
    places = (slice(1, 5), 4, slice(2, 18), slice(3, 9))
    data = Sliced(ARRAY)
    cut, part = LazyArray(data, part=places), ARRAY[places]
    assert not data.read
    for name in ("shape", "ndim", "size", "dtype"):
        assert getattr(cut, name) == getattr(part, name)
    assert_array_equal(cut[index], part[index])
    assert_array_equal(np.asarray(cut), part)
    assert_array_equal(LazyArray(ARRAY)[::-1, 2], ARRAY[::-1, 2])  # a whole axis reversed


# --- rectangles and views -------------------------------------------------------------------------


def test_a_rectangle_in_world_coordinates_knows_the_plane_it_was_drawn_on():
    layer = Image(ARRAY, scale=(2, 1, 0.5, 0.25), translate=(0, 0, 100, 200))
    # Drawn in a layer with another scale, over rows 4 to 9 and columns 8 to 19.
    shapes = Shapes(
        [rectangle((100 + 4 * 0.5) / 5, 20.2, (100 + 9 * 0.5) / 5, (200 + 19 * 0.25) / 10)],
        scale=(5, 10),
    )
    here = dims_at(4, 1, 0, 0)
    part = drawn_in(layer, "TCYX", shapes, here)
    assert (part.axes, part.code) == ("TCYX", "[:, :, 4:10, 8:20]")
    plane = drawn_in(layer, "TCYX", shapes, here, one_plane=True)
    assert plane.code == "[2, :, 4:10, 8:20]"
    shapes = Shapes([rectangle(2, 3, 8, 9, 1, 0), rectangle(4, 3, 8, 9, 3, 0)], ndim=4)
    assert drawn_in(Image(ARRAY), "T.YX", shapes, one_plane=True).code == "[3, 0, 4:9, 3:10]"
    shapes.selected_data = {0}
    # In all channels, as they are no planes of their own.
    assert drawn_in(Image(ARRAY), "TCYX", shapes, one_plane=True).code == "[1, :, 2:9, 3:10]"


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        (Shapes([rectangle(2, 3, 8, 9)]), "rows 2 to 8, columns 3 to 9"),
        *(
            (Shapes([np.array(corners)], shape_type=kind), at)
            for kind, corners, at in (
                ("rectangle", [[5, 2], [9, 6], [5, 10], [1, 6]], "rows 1 to 9, columns 2 to 10"),
                ("polygon", [[1, 2], [9, 2], [5, 10]], "rows 1 to 9, columns 2 to 10"),
            )
        ),
        (None, "click Draw"),
        (Shapes(ndim=2), "click Draw"),
        (Shapes([rectangle(25, 3, 40, 9)]), "contains no pixels of 'cells' along Y"),
        (Shapes([np.array([[0, 1, 5, 3], [0, 1, 5, 9], [0, 4, 5, 9], [0, 4, 5, 3]])]), "along Y"),
    ],
)
def test_what_was_drawn_is_told(drawn, said):
    layer = Image(ARRAY, name="cells")
    if "columns" in said:
        assert drawn_in(layer, "TCYX", drawn).place == said
    else:
        with pytest.raises(LayerError, match=said):
            drawn_in(layer, "TCYX", drawn)


def seen(layer, low, high):
    """Make a layer believe that the camera shows what lies between two pixels."""
    layer.corner_pixels = np.array([low, high])
    return layer


PYRAMID = [np.zeros((3, 64, 64)), np.zeros((3, 16, 16))]


def test_the_view_is_of_the_slice_at_the_sliders():
    layer = seen(Image(ARRAY, scale=(2, 1, 1, 1)), (0, 0, 3, 4), (0, 0, 12, 99))
    part = in_view(layer, "TCYX", dims_at(6, 2, 0, 0))
    assert (part.axes, part.code) == ("CYX", "[3, :, 3:13, 4:30]")
    assert in_view(layer, "T.YX", dims_at(6, 2, 0, 0)).code == "[3, 2, 3:13, 4:30]"


@pytest.mark.parametrize(
    ("at", "left", "dims", "said"),
    [
        (0, 0, {"ndisplay": 3}, "switch the viewer to 2D"),
        (0, 0, {"order": (1, 0, 2)}, "not show a YX plane"),
        (8, 0, {}, "no data at the current slider"),
        (0, 40, {}, "No part of"),
    ],
)
def test_a_view_that_is_no_plane(at, left, dims, said):
    layer = seen(Image(np.zeros((5, 20, 30))), (0, 0, left), (4, 19, 29 + 2 * left))
    with pytest.raises(LayerError, match=said):
        in_view(layer, "TYX", dims_at(at, 0, 0, **dims))


# --- the region of a preview ----------------------------------------------------------------------


def test_what_is_seen_at_the_sliders():
    layer = seen(Image(ARRAY), (0, 0, 3, -4), (0, 0, 11, 50))
    region = region_shown(layer, dims_at(3, 2, 0, 0))
    assert region.spans == ((3, 4), (2, 3), (3, 12), (0, 30))
    assert (region.plane, region.cut, region.words()) == ((2, 3), False, "9 by 30 pixels")
    # Scaled and moved, in a viewer of more axes.
    layer = Image(np.zeros((5, 20, 30)), scale=(2, 0.5, 0.5), translate=(10, 0, 0))
    region = region_shown(seen(layer, (0, 0, 0), (0, 19, 29)), dims_at(0, 14, 0, 0))
    assert region.starts == {0: 2, 1: 0, 2: 0}
    # Any two axes may be shown; colours are no axis.
    layer = seen(Image(np.zeros((5, 20, 30))), (0, 0, 4), (4, 0, 9))
    region = region_shown(layer, dims_at(0, 7, 0, order=(1, 0, 2)))
    assert (region.spans, region.plane) == (((0, 5), (7, 8), (4, 10)), (0, 2))
    layer = seen(Image(np.zeros((20, 30, 3), np.uint8), rgb=True), (0, 0), (19, 29))
    assert region_shown(layer, dims_at(0, 0)).spans == ((0, 20), (0, 30))
    # The finest level counts.
    layer = seen(Image(PYRAMID, multiscale=True), (0, 2, 3), (0, 7, 9))
    layer._data_level = 1
    assert region_shown(layer, dims_at(1, 0, 0)).spans == ((1, 2), (8, 32), (12, 40))


def test_a_large_view_is_cut_around_its_centre():
    layer = seen(Image(np.zeros((200, 300))), (0, 0), (199, 299))
    region = region_shown(layer, dims_at(0, 0), most=100 * 100)
    assert region.spans == ((50, 150), (100, 200))
    assert region.words() == "the middle 100 by 100 pixels of the view"
    narrow = seen(Image(np.zeros((20, 3000))), (0, 0), (19, 2999))
    assert region_shown(narrow, dims_at(0, 0), most=20 * 100).shape == (20, 100)
