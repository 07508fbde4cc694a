"""BM3D: extremes, how good it is, and its settings; test_gpu_kernels compares it with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d.filter import BM3D
from reference.bm3d import bm3d as slow
from scenes import first_pass, noisy, psnr, scene

SIGMA = 20.37


def grey(*shape, seed=0) -> np.ndarray:
    """Return a noisy image of whole numbers: the distances of its patches are exact."""
    return np.rint(noisy(*shape, sigma=SIGMA, seed=seed)).astype(np.float32)


# Extremes


class Careless(BM3D):
    """Of one pass, for which no patch is too unlike, nor counts for less as others overlap it."""

    stages, similar_basic, shared_noise = ("basic",), 1000.0, False


@pytest.mark.parametrize("threshold", [2.7, 10.0])
def test_sums_do_not_wrap_around(device, threshold):
    """As much as can be is removed from one pixel, by as many patches as there can be."""
    image = np.full((34, 36), 100.0, np.float32)  # all that the patches at the pixel look at
    image[17, 19] += 7.9 * threshold * SIGMA
    changes = {"neighbours_basic": 32, "step_basic": 1, "window_basic": 9}
    settings = Careless(threshold=threshold, **changes)
    out = gd.denoise(image, settings, SIGMA, device=device).image
    expected = slow(image, SIGMA, settings)
    assert image[17, 19] - expected[17, 19] > 2 * threshold * SIGMA
    np.testing.assert_allclose(out, expected, rtol=0, atol=0.02 * SIGMA)


@pytest.mark.parametrize("sigma", [1e-3, 300.0])
def test_far_too_little_and_far_too_much_noise(device, sigma):
    image = grey(33, 36)
    out = gd.bm3d(image, sigma, device=device)
    if sigma < 1:
        np.testing.assert_allclose(out, image, rtol=0, atol=10 * sigma + 1e-5)
    else:
        # Nothing but means of patches: what remains of 34 grey levels are slow waves.
        assert out.std() < 25 < image.std()


def test_any_more_noise_makes_no_difference(device):
    image, sigma = grey(33, 36), 1e30
    out = gd.bm3d(image, sigma, device=device)
    np.testing.assert_array_equal(out, gd.bm3d(image, 32 * np.ptp(image), device=device))
    expected = slow(image, sigma, BM3D())
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
    once = gd.denoise(image, first_pass(BM3D()), 20, device=device).image
    assert normal > psnr(once, clean) + 0.2
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
        ({"stack_basic": "dft"}, "stack_basic='dft' is unknown: choose from haar, hadamard"),
        ({"profile": "finest"}, "BM3D has no profile 'finest': it has normal, fast, high"),
        ({"kaiser": 3.0}, "BM3D has no setting 'kaiser'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, sentence):
    with pytest.raises(SettingsError, match=sentence):
        BM3D.of(**changes)
