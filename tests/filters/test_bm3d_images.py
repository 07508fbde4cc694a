"""BM3D of images that are hard, how good it is, and what its settings may be."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.test_bm3d import SIGMA, agree, grey
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d.filter import BM3D
from reference.bm3d import bm3d as slow
from reference.bm3d_channels import bm3d_channels
from scenes import psnr, scene


@pytest.mark.parametrize("shape", [(1, 30), (8, 8), (9, 70), (70, 9)])
def test_images_as_small_as_a_patch(device, shape):
    image = grey(*shape)
    out = gd.bm3d(image, SIGMA, device=device)
    assert out.shape == shape
    agree(out, slow(image, SIGMA, BM3D(), exact=False))


@pytest.mark.parametrize("channels", ["opponent", "joint"])
def test_colours_of_an_image_as_small_as_a_patch(device, channels):
    image = grey(3, 5, 11)
    out = gd.bm3d(image, SIGMA, axes="CYX", channels=channels, device=device)
    agree(out, bm3d_channels(image, [SIGMA] * 3, BM3D(channels=channels), exact=False))


def checkerboard() -> np.ndarray:
    return 200 * (np.indices((33, 36)).sum(axis=0) % 2)


def salt_and_pepper() -> np.ndarray:
    image, chance = grey(33, 36), np.random.default_rng(0).random((33, 36))
    return np.where(chance < 0.05, 0, np.where(chance > 0.95, 255, image))


def hot_pixels() -> np.ndarray:
    """Return an image with pixels ten thousand sigma off, alone and side by side."""
    image = grey(33, 36)
    image[12, 10] += 1e4 * SIGMA
    image[20:22, 30] = -1e4 * SIGMA, 1e4 * SIGMA
    image[0, 0] -= 1e4 * SIGMA
    return image


def hot_columns() -> np.ndarray:
    """Return an image that repeats: hot pixels lie in all patches of a group, at one place."""
    image = np.tile(grey(11, 9), (3, 4))
    image[5::11, 4::9] += 1e4 * SIGMA
    return image


@pytest.mark.parametrize(
    ("make", "profile"),
    [
        (checkerboard, "fast"),
        (salt_and_pepper, "normal"),
        (hot_pixels, "fast"),
        (hot_pixels, "normal"),
        (hot_columns, "fast"),
    ],
)
def test_what_stands_out_is_as_in_the_reference(device, make, profile):
    image = make().astype(np.float32)
    out = gd.bm3d(image, SIGMA, profile=profile, device=device)
    expected = slow(image, SIGMA, BM3D.of(profile=profile), exact=False)
    # A group that loses little has a small weight: errors of rounding are larger, relative to it.
    # And float32 knows a pixel that is ten thousand sigma off to a thousandth of sigma.
    agree(out, expected, 2 * SIGMA + 1e-3 * np.abs(image))


@pytest.mark.parametrize("threshold", [2.7, 10.0])
def test_sums_do_not_wrap_around(device, threshold):
    """As much as can be is removed from one pixel, by as many patches as there can be."""
    image = np.full((40, 40), 100.0, np.float32)
    image[17, 19] += 7.9 * threshold * SIGMA
    changes = {"neighbours_basic": 32, "step_basic": 1, "similar_basic": 1000.0, "window_basic": 9}
    settings = BM3D(stages="basic", threshold=threshold, shared_noise=False, **changes)
    out = gd.denoise(image, settings, SIGMA, device=device).image
    expected = slow(image, SIGMA, settings, exact=False)
    assert image[17, 19] - expected[17, 19] > 2 * threshold * SIGMA
    np.testing.assert_allclose(out, expected, rtol=0, atol=0.02 * SIGMA)


@pytest.mark.parametrize("sigma", [1e-3, 300.0])
def test_far_too_little_and_far_too_much_noise(device, sigma):
    image = grey(40, 45)
    out = gd.bm3d(image, sigma, device=device)
    expected = slow(image, sigma, BM3D(), exact=False)
    agree(out, expected, max(sigma, SIGMA))
    if sigma < 1:
        np.testing.assert_allclose(out, image, rtol=0, atol=10 * sigma + 1e-5)
    else:
        # Nothing but means of patches: what remains of 34 grey levels are slow waves.
        assert out.std() < 25 < image.std()


def test_any_more_noise_makes_no_difference(device):
    image, sigma = grey(40, 45), 1e30
    out = gd.bm3d(image, sigma, device=device)
    np.testing.assert_array_equal(out, gd.bm3d(image, 32 * np.ptp(image), device=device))
    expected = slow(image, sigma, BM3D(), exact=False)
    assert np.sqrt(np.mean((out - expected) ** 2)) < 0.01 * image.std()


def test_steps_and_lines_of_a_clean_image_stay(device):
    image = np.zeros((48, 64), np.float32)
    image[:, 20:] = 100
    image[24, :] += 80
    np.testing.assert_allclose(gd.bm3d(image, 2, device=device), image, atol=1)


# How good it is


def noisy_and_clean(sigma=20.0):
    clean = scene(96, 96)
    return clean + np.random.default_rng(0).normal(0, sigma, clean.shape), clean


def test_profiles_are_as_good_as_they_say(device):
    image, clean = noisy_and_clean()

    def quality(**options):
        return psnr(gd.bm3d(image, 20, device=device, **options), clean)

    normal, fast, high = (quality(profile=name) for name in ("normal", "fast", "high"))
    assert high > normal > fast + 0.3
    assert fast > quality(profile="fast", stages="basic") + 0.3
    assert normal > quality(stages="basic") + 0.2
    assert normal > psnr(gd.nl_means(image, 20, device=device), clean) + 2
    # Groups are better than patches, and small steps better than large ones.
    assert normal > quality(neighbours_basic=1, neighbours_final=1) + 1
    assert normal > quality(step_basic=8, step_final=8) + 0.3


# Settings


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"window_basic": 10}, "window_basic=10 must be odd"),
        ({"neighbours_basic": 3}, "neighbours_basic=3 is unknown: choose from 1, 2, 4, 8, 16, 32"),
        ({"transform_final": "wavelet"}, "transform_final='wavelet' is unknown: choose from bior"),
        ({"stack_basic": "dft"}, "stack_basic='dft' is unknown: choose from haar, hadamard, dct"),
        ({"profile": "best"}, "BM3D has no profile 'best': it has normal, fast, high"),
        ({"patch": 8}, "BM3D has no setting 'patch'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, sentence):
    with pytest.raises(SettingsError, match=sentence):
        BM3D.of(**changes)
