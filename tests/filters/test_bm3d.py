"""BM3D on a device, as a whole, against the slow one in NumPy, and how good it is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.one_pass import Plain
from filters.test_channels import colours as noisy_colours
from flows import run_work, work_of
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d.filter import BM3D
from napari_gpu_denoise.opencl.memory import Arena
from reference.bm3d import bm3d as slow
from reference.bm3d_channels import bm3d_channels
from scenes import first_pass, noisy, prepared, psnr, scene

SIGMA = 20.37


def grey(*shape, seed=0) -> np.ndarray:
    """Return a noisy image of whole numbers: the distances of its patches are exact."""
    return np.rint(noisy(*shape, sigma=SIGMA, seed=seed)).astype(np.float32)


def agree(out, expected, sigma=SIGMA) -> None:
    """Check an image of the device against that of the reference.

    Groups add up in whole numbers of 2^-14 sigma or finer (32 references with 32 patches each), and
    are divided by a weight that is 1 / 500 or so where there is texture: some 1e-3 sigma, which the
    second pass is told by. Now and then the last bit of a float decides what is kept, or which of
    two patches is the last of a group: that is worth up to sigma / 10 in a few pixels.
    """
    error = np.abs(out - expected) / sigma
    assert error.mean() < 2e-3
    assert np.mean(error > 1e-2) < 0.04
    assert error.max() < 0.25


@pytest.mark.parametrize("profile", ["normal", "fast"])
def test_profiles_are_those_of_the_reference(optimised, device, profile):
    image = grey(33, 36)
    out = gd.bm3d(image, SIGMA, profile=profile, device=device)
    agree(out, slow(image, SIGMA, BM3D.of(profile=profile), exact=False))


def test_a_patch_at_every_pixel_is_as_in_the_reference(device):
    image = grey(24, 29)
    out = gd.bm3d(image, SIGMA, profile="high", device=device)
    agree(out, slow(image, SIGMA, BM3D.of(profile="high"), exact=False))


@pytest.mark.parametrize(
    "changes",
    [
        {"prefiltered": True, "step_basic": 4},
        {"transform_basic": "dct", "neighbours_basic": 32},
        {"transform_final": "dft", "stack_final": "hadamard", "neighbours_final": 8},
        {"transform_basic": "dft", "stack_basic": "hadamard", "window_basic": 9},
        {"transform_final": "bior1.5", "window_final": 9, "threshold": 4.0},
        {"step_basic": 1, "window_basic": 5, "step_final": 7, "window_final": 3},
        {"neighbours_basic": 1, "neighbours_final": 1, "step_basic": 8, "step_final": 8},
        {"window_basic": 1, "window_final": 1},
        {"wiener_sigma": 0.5},
    ],
    ids=str,
)
def test_every_setting_does_what_it_does_in_the_reference(device, changes):
    image, settings = grey(33, 36), BM3D(**changes)
    out = gd.denoise(image, settings, SIGMA, device=device).image
    agree(out, slow(image, SIGMA, settings, exact=False))


@pytest.mark.parametrize("prefiltered", [True, False])
def test_a_map_of_sigma_is_that_of_the_reference(device, prefiltered):
    image, settings = grey(33, 36), BM3D(prefiltered=prefiltered)
    y, x = np.indices(image.shape)
    # No round numbers: spectra of whole numbers would meet the threshold.
    sigma = 12.3717 + 0.2113 * x + 9.1339 * (y > 22)
    sigma[5:17, 16:33] = 0
    out = gd.denoise(image, settings, sigma, device=device).image
    seen = sigma > 0
    agree(out[seen], slow(image, sigma, settings, exact=False)[seen], sigma[seen])
    np.testing.assert_array_equal(out[~seen], image[~seen])


# Channels

SIGMAS = (12.4, 20.37, 31.1)
KINDS = [
    {"channels": "opponent"},
    {"channels": "joint"},
    {"channels": "joint", "prefiltered": True},
    {"channels": "opponent", "prefiltered": True},
]


def colours(seed: int = 0) -> np.ndarray:
    """Return whole numbers, three channels first."""
    return np.rint(noisy_colours(seed=seed, contrast=20))


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_channels_are_those_of_the_reference(device, changes):
    image, settings = colours(), BM3D(window_basic=15, window_final=15, **changes)
    out = gd.denoise(image, settings, SIGMAS, axes="CYX", device=device).image
    expected = bm3d_channels(image, SIGMAS, settings, exact=False)
    for one, told, sigma in zip(out, expected, SIGMAS, strict=True):
        agree(one, told, sigma)


@pytest.mark.parametrize("channels", ["joint", "opponent"])
def test_channels_under_one_map(device, channels):
    image, settings = colours(), BM3D(window_basic=9, window_final=9, channels=channels)
    sigma = 10 + 20 * np.random.default_rng(0).random(image.shape[1:])
    out = gd.denoise(image, settings, sigma, axes="CYX", device=device).image
    agree(out, bm3d_channels(image, [sigma] * 3, settings, exact=False), sigma)


def test_channels_without_noise_stay(device):
    image, settings = colours(), BM3D(window_basic=9, window_final=9, channels="joint")
    sigmas = (0.0, 20.37, 31.1)
    out = gd.denoise(image, settings, sigmas, axes="CYX", device=device).image
    expected = bm3d_channels(image, sigmas, settings, exact=False)
    np.testing.assert_array_equal(out[0], image[0])
    for one, told, sigma in zip(out[1:], expected[1:], sigmas[1:], strict=True):
        agree(one, told, sigma)


# Images that are hard


@pytest.mark.parametrize("shape", [(1, 30), (8, 8), (9, 70), (70, 9)])
def test_images_as_small_as_a_patch(device, shape):
    image = grey(*shape)
    out = gd.bm3d(image, SIGMA, device=device)
    assert out.shape == shape
    agree(out, slow(image, SIGMA, BM3D(), exact=False))


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


class Careless(BM3D):
    """Of one pass, for which no patch is too unlike, nor counts for less as others overlap it."""

    stages, similar_basic, shared_noise = ("basic",), 1000.0, False


@pytest.mark.parametrize("threshold", [2.7, 10.0])
def test_sums_do_not_wrap_around(device, threshold):
    """As much as can be is removed from one pixel, by as many patches as there can be."""
    image = np.full((40, 40), 100.0, np.float32)
    image[17, 19] += 7.9 * threshold * SIGMA
    changes = {"neighbours_basic": 32, "step_basic": 1, "window_basic": 9}
    settings = Careless(threshold=threshold, **changes)
    out = gd.denoise(image, settings, SIGMA, device=device).image
    expected = slow(image, SIGMA, settings, exact=False)
    assert image[17, 19] - expected[17, 19] > 2 * threshold * SIGMA
    np.testing.assert_allclose(out, expected, rtol=0, atol=0.02 * SIGMA)


@pytest.mark.parametrize("sigma", [1e-3, 300.0])
def test_far_too_little_and_far_too_much_noise(device, sigma):
    image = grey(33, 36)
    out = gd.bm3d(image, sigma, device=device)
    expected = slow(image, sigma, BM3D(), exact=False)
    agree(out, expected, max(sigma, SIGMA))
    if sigma < 1:
        np.testing.assert_allclose(out, image, rtol=0, atol=10 * sigma + 1e-5)
    else:
        # Nothing but means of patches: what remains of 34 grey levels are slow waves.
        assert out.std() < 25 < image.std()


def test_any_more_noise_makes_no_difference(device):
    image, sigma = grey(33, 36), 1e30
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
        ({"patch": 8}, "BM3D has no setting 'patch'"),
        ({"kaiser": 3.0}, "The setting kaiser of BM3D was removed: it is always 2.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, sentence):
    with pytest.raises(SettingsError, match=sentence):
        BM3D.of(**changes)


# The kernels that a GPU gets, also where there is none


def as_a_gpu(device, image, settings, sigma, axes="YX", pixels=10**6):
    """Filter in tiles of some pixels with the kernels that a GPU would be given."""
    gpu = dataclasses.replace(device, float_lanes=1, local_memory=1 << 15, max_group=256)
    session = Plain.of(gpu)
    settings, out = prepared(settings, axes, image.shape), np.empty_like(image)
    work = work_of(image, out, settings, session, sigma, axes)
    _, total = run_work(work, pixels, arena=Arena(session))
    used = {key[0] for key in session.programs}
    assert "bm3d/shrink_shared" in used
    assert not {"bm3d/shrink_lanes", "search/search_vectors"} & used
    return out, total


def test_tiles_with_kernels_of_a_gpu(device):
    image, changes = grey(2, 97, 33), {"neighbours_basic": 8, "neighbours_final": 4}
    settings = BM3D(window_basic=7, window_final=5, step_final=4, channels="joint", **changes)
    whole, one = as_a_gpu(device, image, settings, SIGMA, "CYX")
    tiled, several = as_a_gpu(device, image, settings, SIGMA, "CYX", pixels=2 * 70 * 33)
    assert (one, several) == (1, 5)
    np.testing.assert_array_equal(tiled, whole)
