"""Some slices of a volume alone: the pixels are those of a run of everything."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.filters import FILTERS
from scenes import joining, noisy

KINDS = [kind for kind in FILTERS if "T" not in kind().joint]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sigma", [None, 12.0])
def test_slices_are_those_of_the_whole(kind, sigma, device):
    image, settings = noisy(11, 24, 30).astype(np.float32), joining(kind, "Z")
    options = {"axes": "ZYX", "device": device}
    whole = gd.denoise(image, settings, sigma, **options)
    one = gd.denoise(image, settings, sigma, slices=5, **options)
    np.testing.assert_array_equal(one.image, whole.image[5:6])
    assert one.record.sigma == whole.record.sigma
    if sigma:
        few = gd.denoise(image, settings, sigma, slices=slice(8, None), **options)
        np.testing.assert_array_equal(few.image, whole.image[8:])


def test_one_slice_of_one_frame_reads_only_its_margins(device):
    image = noisy(2, 40, 12, 14).astype(np.uint8)
    settings = gd.DCT3D(cube="2x4x8")
    read = []

    def seen(block, block_info=None):
        read.append(block_info[0]["chunk-location"])
        return block

    lazy = da.from_array(image, chunks=(1, 1, 12, 14)).map_blocks(seen, dtype=image.dtype)
    options = {"axes": "TZYX", "sigma": 9.0, "device": device}
    whole = gd.denoise(image, settings, **options).image
    read.clear()
    one = gd.denoise(lazy, settings, frames=1, slices=20, **options).image
    np.testing.assert_array_equal(one, whole[1:2, 20:21])
    assert {t for t, *_ in read} == {1}
    assert 20 in {z for _, z, *_ in read} and len({z for _, z, *_ in read}) <= 4


def test_slices_that_are_not_there():
    with pytest.raises(AxesError, match="slices=9 selects none of the 5 slices along Z"):
        gd.denoise(noisy(5, 8, 9), gd.NLMeans(), 5, axes="ZYX", slices=9)
    with pytest.raises(AxesError, match="slices=1 needs an axis Z"):
        gd.denoise(noisy(5, 8, 9), gd.NLMeans(), 5, slices=1)
