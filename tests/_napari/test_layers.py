"""Data, axes and attributes read from a layer; no window needed."""

from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image
from napari.layers._source import layer_source
from numpy.testing import assert_allclose, assert_array_equal

import napari_gpu_denoise as gd
from napari_gpu_denoise._napari.layers import source as layers
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.layers.results import at_places
from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.files import samples
from napari_gpu_denoise.files.image_file import ImageFile


@pytest.mark.parametrize(
    ("labels", "axes"),
    [
        (None, "..YX"),
        (("t", "z", "y", "x"), "TZYX"),
        (("Time", "Channel", "Y", "X"), "TCYX"),
        (("z", "position", "y", "x"), "Z.YX"),
        (("t", "t", "y", "x"), "..YX"),
        (("t", "z", "a", "b"), "..YX"),
    ],
)
def test_axes_from_labels(labels, axes):
    assert layers.suggest_axes(Image(np.zeros((2, 3, 4, 5)), axis_labels=labels)) == axes


@pytest.mark.parametrize("samples", [3, 4])
def test_rgb_has_its_colours_last(samples):
    data = np.zeros((7, 4, 5, samples), np.uint8)
    assert layers.suggest_axes(Image(data, rgb=True)) == ".YXS"
    # Labels of the viewer count where the layer says nothing.
    assert layers.suggest_axes(Image(np.zeros((2, 4, 5))), ("t", "y", "x")) == "TYX"
    labelled = Image(data, rgb=True, axis_labels=("t", "y", "x"))
    assert layers.suggest_axes(labelled) == "TYXS"
    assert layers.capture(labelled).alpha == (samples == 4)
    assert not layers.capture(Image(data, rgb=False)).alpha


def test_capture_is_not_changed_by_what_happens_to_the_layer_and_computes_nothing():
    def read(block):
        raise AssertionError("computed")

    layer = Image(np.zeros((4, 5)), scale=(2, 3), metadata={"a": 1})
    source = layers.capture(layer)
    layer.scale = (7, 7)
    layer.metadata["b"] = 2
    layer.data = np.ones((3, 3))
    assert_array_equal(source.attributes["scale"], (2, 3))
    assert source.attributes["metadata"] == {"a": 1}
    assert source.data.shape == (4, 5)
    lazy = da.zeros((3, 4, 5), chunks=1).map_blocks(read, dtype=float, meta=np.empty((0, 0, 0)))
    layer = Image(np.zeros((3, 4, 5)), contrast_limits=(0, 1))
    layer._data = lazy  # setting it properly reads the plane shown
    assert layers.capture(layer).data is lazy
    mask = np.zeros((4, 5), bool)
    taken = layers.capture(Image(mask)).data
    assert taken.dtype == np.uint8 and np.shares_memory(taken, mask)


def test_a_layer_or_a_file_in_place_of_pixels():
    read = ImageFile(np.zeros((4, 5)), "YX", "plain", {}, Path("a.tif"))
    for call in (gd.nl_means, gd.estimate_noise, gd.recommend):
        with pytest.raises(ImageError, match=r"^cells is a layer of napari: .* layer\.data\.$"):
            call(Image(np.zeros((4, 5)), name="cells"))
        with pytest.raises(ImageError, match=r"'a\.tif' is .*: read it, as gd\.read\('a\.tif'\)"):
            call("a.tif")
        with pytest.raises(ImageError, match=r"give its pixels, \.data\.$"):
            call(read)


def stack(*shape, **attributes):
    return Image(np.zeros(shape or (6, 8, 9)), **attributes)


@pytest.mark.parametrize(
    ("layer", "axes", "point", "frame", "viewed"),
    [
        (stack(), "TYX", (3,), 3, {}),
        (stack(scale=(2, 1, 1)), "TYX", (6.9,), 3, {}),
        (stack(scale=(0.5, 1, 1), translate=(-1, 0, 0)), "TYX", (0.5,), 3, {}),
        (stack(affine=np.diag([4.0, 1, 1, 1])), "TYX", (12,), 3, {}),
        # in a viewer with more axes
        (stack(), "TYX", (0, 4), 4, {"others": [stack(3, 6, 8, 9)]}),
        (stack(2, 6, 8, 9), "CTYX", (0, 5), 5, {}),
        (stack(6, 8, 9, 3, rgb=True), "TYXS", (2,), 2, {}),
        # where there is none
        (stack(), "ZYX", (3,), None, {}),
        (stack(translate=(20, 0, 0)), "TYX", (3,), None, {"others": [stack()]}),
        (stack(), "TYX", (6,), None, {"others": [stack(7, 8, 9)]}),
        (stack(), "TYX", (0,), None, {"ndisplay": 3}),
        (stack(), "TYX", (0,), None, {"order": (1, 0, 2)}),
    ],
)
def test_the_frame_shown(layer, axes, point, frame, viewed):
    viewer, viewed = ViewerModel(), dict(viewed)
    for each in (layer, *viewed.pop("others", ())):
        viewer.add_layer(each)
    for name, value in viewed.items():
        setattr(viewer.dims, name, value)
    for axis, place in enumerate(point):
        viewer.dims.set_point(axis, place)
    assert layers.place_shown(layer, axes, viewer.dims, "T") == frame


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": (2, 3, 4), "translate": (5, 6, 7)},
        {"rotate": [[1, 0, 0], [0, 0.6, -0.8], [0, 0.8, 0.6]], "shear": (0.1, 0.0, 0.2)},
        {"scale": (2, 3, 4), "affine": np.eye(4)[[1, 0, 2, 3]] + np.diag([0.0, 0.5, 0.5, 0])},
    ],
)
def test_a_frame_lies_where_it_lies_in_the_stack(changes):
    whole = stack(**changes)
    moved = at_places(layers.capture(whole), {0: 4})
    frame = stack(1, 8, 9, **moved.attributes)
    for place in [(0, 0, 0), (0, 3, 5), (0.5, 7, 8)]:
        there = (place[0] + 4, *place[1:])
        assert_allclose(frame.data_to_world(place), whole.data_to_world(there))
    assert_allclose(whole.translate, changes.get("translate", (0, 0, 0)))


@pytest.mark.parametrize(("plugin", "file"), [(METADATA_KEY, "mri.ome.tif"), ("other", None)])
def test_the_file_of_a_sample_is_ours(plugin, file):
    with layer_source(sample=(plugin, "mri")):
        layer = Image(np.zeros((4, 4)))
    assert layers.file_of(layer) == (file and str(samples.path("mri")))
