"""BM3D on a device, as a whole, against the slow one in NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.one_pass import Plain
from filters.test_channels import colours as noisy_colours
from flows import run_work, work_of
from napari_gpu_denoise.filters.bm3d.filter import BM3D
from napari_gpu_denoise.opencl.memory import Arena
from reference.bm3d import bm3d as slow
from reference.bm3d_channels import bm3d_channels
from scenes import noisy

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


@pytest.mark.parametrize(
    ("profile", "stages"),
    [("normal", "both"), ("fast", "basic"), ("fast", "both"), ("high", "both")],
)
def test_profiles_are_those_of_the_reference(optimised, device, profile, stages):
    image = grey(40, 45) if profile != "high" else grey(24, 29)  # a patch at every pixel
    out = gd.bm3d(image, SIGMA, profile=profile, stages=stages, device=device)
    agree(out, slow(image, SIGMA, BM3D.of(profile=profile, stages=stages), exact=False))


@pytest.mark.parametrize(
    "changes",
    [
        {"prefilter": "on", "prefilter_threshold": 1.5, "step_basic": 4},
        {"transform_basic": "dct", "stack_basic": "dct", "neighbours_basic": 32},
        {"transform_final": "dft", "stack_final": "hadamard", "neighbours_final": 8},
        {"transform_basic": "haar", "stack_basic": "hadamard", "window_basic": 9},
        {"transform_final": "bior1.5", "stack_final": "dct", "window_final": 9},
        {"threshold": 4.0, "similar_basic": 2.0, "similar_final": 0.2},
        {"step_basic": 1, "window_basic": 5, "step_final": 7, "window_final": 3},
        {"neighbours_basic": 1, "neighbours_final": 1, "step_basic": 8, "step_final": 8},
        {"window_basic": 1, "window_final": 1, "kaiser": 0.0},
        {"shared_noise": False},
        {"wiener_sigma": 0.5, "kaiser": 3.0},
    ],
    ids=str,
)
def test_every_setting_does_what_it_does_in_the_reference(device, changes):
    image, settings = grey(40, 45), BM3D(**changes)
    out = gd.denoise(image, settings, SIGMA, device=device).image
    agree(out, slow(image, SIGMA, settings, exact=False))


@pytest.mark.parametrize(("stages", "prefilter"), [("basic", "on"), ("both", "off")])
def test_a_map_of_sigma_is_that_of_the_reference(device, stages, prefilter):
    image, settings = grey(40, 45), BM3D(stages=stages, prefilter=prefilter)
    y, x = np.indices(image.shape)
    # No round numbers: spectra of whole numbers would meet the threshold.
    sigma = 12.3717 + 0.2113 * x + 9.1339 * (y > 22)
    sigma[5:17, 20:40] = 0
    out = gd.denoise(image, settings, sigma, device=device).image
    seen = sigma > 0
    agree(out[seen], slow(image, sigma, settings, exact=False)[seen], sigma[seen])
    np.testing.assert_array_equal(out[~seen], image[~seen])


# Channels

SIGMAS = (12.4, 20.37, 31.1)
KINDS = [
    {"channels": "opponent"},
    {"channels": "joint"},
    {"channels": "joint", "guide": 2, "stages": "basic"},
    {"channels": "joint", "guide": 0, "prefilter": "on"},
    {"channels": "opponent", "prefilter": "on"},
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


def test_channels_without_noise_guide_the_others(device):
    image, settings = colours(), BM3D(window_basic=9, window_final=9, channels="joint", guide=0)
    sigmas = (0.0, 20.37, 31.1)
    out = gd.denoise(image, settings, sigmas, axes="CYX", device=device).image
    expected = bm3d_channels(image, sigmas, settings, exact=False)
    np.testing.assert_array_equal(out[0], image[0])
    for one, told, sigma in zip(out[1:], expected[1:], sigmas[1:], strict=True):
        agree(one, told, sigma)


# The kernels that a GPU gets, also where there is none


def as_a_gpu(device, image, settings, sigma, axes="YX", pixels=10**6):
    """Filter in tiles of some pixels with the kernels that a GPU would be given."""
    gpu = dataclasses.replace(device, float_lanes=1, local_memory=1 << 15, max_group=256)
    session = Plain.of(gpu)
    settings, out = settings.for_array(axes, image.shape), np.empty_like(image)
    work = work_of(image, out, settings, session, sigma, axes)
    _, total = run_work(work, pixels, arena=Arena(session))
    used = {key[0] for key in session.programs}
    assert "bm3d/shrink_shared" in used
    assert not {"bm3d/shrink_lanes", "search/search_vectors"} & used
    return out, total


@pytest.mark.parametrize(
    "changes", [{}, {"reproducible": False}, {"prefilter": "on", "stages": "basic"}], ids=str
)
def test_kernels_of_a_gpu(device, changes):
    image, settings = grey(40, 45), BM3D(**changes)
    out, _ = as_a_gpu(device, image, settings, SIGMA)
    agree(out, slow(image, SIGMA, settings, exact=False))


@pytest.mark.parametrize("channels", ["opponent", "joint"])
def test_channels_with_kernels_of_a_gpu(device, channels):
    image, settings = colours(), BM3D.of(profile="fast", window_final=9, channels=channels)
    out, _ = as_a_gpu(device, image, settings, np.reshape(SIGMAS, (3, 1, 1)), "CYX")
    for one, told in zip(out, bm3d_channels(image, SIGMAS, settings, exact=False), strict=True):
        agree(one, told)


def test_tiles_with_kernels_of_a_gpu(device):
    image, changes = grey(2, 97, 33), {"neighbours_basic": 8, "neighbours_final": 4}
    settings = BM3D(window_basic=7, window_final=5, step_final=4, channels="joint", **changes)
    whole, one = as_a_gpu(device, image, settings, SIGMA, "CYX")
    tiled, several = as_a_gpu(device, image, settings, SIGMA, "CYX", pixels=2 * 80 * 33)
    assert (one, several) == (1, 4)
    np.testing.assert_array_equal(tiled, whole)
