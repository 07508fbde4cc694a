"""Pixels in memory: NaN and infinity filled and put back, few ones mirrored, some left alone."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.image.levels import fill_nonfinite
from napari_gpu_denoise.run.input import Block, extend, extend_sigma, keep_noiseless
from scenes import noisy


def test_a_part_of_a_block_is_the_block_of_that_part():
    image = noisy(3, 20, 24)
    image[1, 4, 5] = np.nan
    image[2, 0, 0] = np.inf
    block = Block.of(image, "TYX", "keep")
    assert block.nonfinite == 2
    one = block[slice(1, 2), slice(2, 9), slice(0, 12)]
    assert one.nonfinite == 1
    np.testing.assert_array_equal(one.given, image[1:2, 2:9, :12])
    np.testing.assert_array_equal(one.finite, block.finite[1:2, 2:9, :12])
    out = np.zeros((1, 7, 12), np.float32)
    one.restore(out)
    assert np.isnan(out[0, 2, 5])
    assert np.count_nonzero(out) == 1
    assert Block.of(image[0], "YX", "keep").nonfinite_mask is None
    assert Block.of(image, "TYX", "raise").nonfinite == 0  # not looked at


def test_nonfinite_pixels_see_the_nearest_of_their_plane():
    image = np.arange(2 * 4 * 5, dtype=float).reshape(2, 4, 5)
    image[0, :, 0] = np.nan
    image[1, 3, 4] = -np.inf
    before = image.copy()
    filled, mask = fill_nonfinite(image, "TYX", "keep")
    np.testing.assert_array_equal(image, before)
    np.testing.assert_array_equal(mask, ~np.isfinite(image))
    np.testing.assert_array_equal(filled[~mask], image[~mask])
    np.testing.assert_array_equal(filled[0, :, 0], image[0, :, 1])
    assert filled[1, 3, 4] in (image[1, 2, 4], image[1, 3, 3])
    across, _ = fill_nonfinite(np.moveaxis(image, 0, -1), "YXT", "keep")
    np.testing.assert_array_equal(np.moveaxis(across, -1, 0), filled)


@pytest.mark.parametrize("policy", ["raise", "keep"])
def test_finite_and_integer_arrays_are_not_copied(policy):
    for image in (np.ones((3, 3)), np.ones((3, 3), int)):
        filled, mask = fill_nonfinite(image, "YX", policy)
        assert filled is image
        assert mask is None


def test_unknown_policies_are_refused():
    with pytest.raises(ImageError, match="ignore"):
        fill_nonfinite(np.ones((3, 3)), "YX", "ignore")


def test_short_axes_are_extended_by_mirroring_at_their_end():
    image = np.arange(6).reshape(2, 3)
    wide = extend(image, "YX", image.shape, 4)
    np.testing.assert_array_equal(wide, [[0, 1, 2, 2], [3, 4, 5, 5], [3, 4, 5, 5], [0, 1, 2, 2]])
    assert extend(image, "YX", (2, 3), 2) is image
    assert extend(np.ones((2, 9, 9)), "TYX", (2, 9, 9), 4).shape == (2, 9, 9)


def test_planes_without_noise_are_kept():
    image, out = noisy(2, 3, 5, 6), np.zeros((2, 3, 5, 6), np.float32)
    sigma = np.array([[1, 2, 0], [0, 3, 4.0]])
    keep_noiseless(image, out, "TCYX", sigma[..., None, None])
    np.testing.assert_array_equal(out[sigma == 0], image[sigma == 0])
    np.testing.assert_array_equal(out[sigma > 0], 0)
    last = np.zeros((5, 2, 6, 3), np.float32)
    turned = np.transpose(image, (2, 0, 3, 1))
    keep_noiseless(turned, last, "YTXC", np.array([0, 1, 1.0])[None, None, None])
    np.testing.assert_array_equal(last[..., 0], turned[..., 0])
    np.testing.assert_array_equal(last[..., 1:], 0)


@pytest.mark.parametrize(
    ("axes", "order"), [("TCYX", (0, 1, 2, 3)), ("XTYC", (3, 0, 2, 1)), ("YXTC", (2, 3, 0, 1))]
)
def test_pixels_without_noise_are_kept(axes, order):
    sigma = np.ones((5, 6))
    sigma[1, 2:4] = sigma[4, 5] = 0
    image, out = noisy(2, 3, 5, 6) + 0.3, np.zeros((2, 3, 5, 6), np.uint8)
    keep_noiseless(
        np.transpose(image, order),
        np.transpose(out, order),
        axes,
        np.transpose(sigma[None, None], order),
    )
    np.testing.assert_array_equal(out[..., sigma == 0], np.rint(image[..., sigma == 0]))
    np.testing.assert_array_equal(out[..., sigma > 0], 0)


def test_a_map_is_mirrored_as_the_pixels_are():
    image = np.arange(12.0).reshape(1, 2, 6)
    wide = extend(image, "TYX", image.shape, 4)
    np.testing.assert_array_equal(extend_sigma(image, "TYX", image.shape, 4), wide)
    for sigma in (np.ones((1, 1, 1)), np.ones((3, 1, 1))):
        assert extend_sigma(sigma, "TYX", (3, 2, 6), 4) is sigma
