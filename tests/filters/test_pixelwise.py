"""Pixelwise NL-means against NumPy, on a CPU and with the kernels of a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.one_pass import posing
from flows import filtered
from napari_gpu_denoise.filters.pixelwise import (
    measured_mixing,
    mixing_of,
)
from napari_gpu_denoise.opencl.program import session
from reference.pixelwise import pixelwise, whitened
from scenes import noisy, prepared, psnr, scene


@pytest.fixture
def plain(device, quickly_built):
    """Return the session of each device."""
    return session(device)


@pytest.fixture
def gpu(device, quickly_built):
    """Return a session that takes the kernels of a GPU, which a CPU compiles slowly."""
    return posing(device, local_memory=49152, max_group=64, which="as a GPU")


def ways(plain, gpu, both: bool):
    """Return the sessions to try."""
    return (plain, gpu) if both else (plain,)


def expected(image, sigma, settings, compared=None):
    """Return what the reference makes of an image (c, t, z, y, x)."""
    names = ("patch", "window", "strength", "weights", "own_weight", "deviation")
    names += ("slices", "patch_slices", "frames_before", "frames_after")
    told = {name: getattr(settings, name) for name in names}
    told |= {"shape": settings.patch_shape, "pixels": settings.show == "pixels"}
    return pixelwise(image, sigma, compared=compared, **told)


# Settings, and whether the kernels of a GPU are tried as well: the simulator runs all of them.
IMAGES = {
    "default": ({}, True),
    "conventional": (
        {"patch": 7, "window": 9, "weights": "plain", "patch_shape": "gaussian"},
        False,
    ),
    "bisquare": ({"weights": "bisquare", "strength": 2.0, "own_weight": "max"}, False),
    "wide patches": ({"patch": 11, "window": 5}, False),
    "single pixels": ({"patch": 1, "window": 5}, False),
    "counts": ({"show": "pixels", "patch": 3, "window": 9}, True),
    "hardly": ({"strength": 0.1, "patch": 3, "window": 7, "own_weight": "max"}, False),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_as_the_reference(plain, gpu, name):
    changes, both = IMAGES[name]
    image, settings = noisy(37, 141), gd.NLMeansPixelwise(**changes)
    found = expected(image[None, None, None], 20.0, settings)[0, 0, 0]
    for flowing in ways(plain, gpu, both):
        out = filtered(image, settings, flowing)
        np.testing.assert_allclose(out, found, rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize("shape", [(1, 9), (40, 3)])
def test_small_images_are_as_the_reference(plain, shape):
    image, settings = noisy(*shape), gd.NLMeansPixelwise(window=7)
    out = filtered(image, settings, plain)
    found = expected(image[None, None, None], 20.0, settings)[0, 0, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


VOLUMES = {
    "slices": ({"slices": 1}, False),
    "cubes": ({"slices": 2, "patch_slices": 1}, True),
    "Gaussian cubes": (
        {"patch_slices": 2, "patch_shape": "gaussian", "deviation": 0.8},
        False,
    ),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes_are_as_the_reference(plain, gpu, name):
    changes, both = VOLUMES[name]
    image, settings = noisy(4, 11, 21), gd.NLMeansPixelwise(patch=3, window=5, **changes)
    found = expected(image[None, None], 20.0, settings)[0, 0]
    for flowing in ways(plain, gpu, both):
        out = filtered(image, settings, flowing, axes="ZYX")
        np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


@pytest.mark.parametrize("frames", [(0, 2), (2, 1)])
def test_frames_are_as_the_reference(plain, frames):
    image = noisy(5, 19, 23)
    settings = gd.NLMeansPixelwise(
        patch=3, window=5, frames_before=frames[0], frames_after=frames[1], flicker=False
    )
    out = filtered(image, settings, plain, axes="TYX")
    found = expected(image[None, :, None], 20.0, settings)[0, :, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_joint_channels_over_time_are_as_the_reference(plain):
    image = noisy(3, 4, 15, 18)
    settings = gd.NLMeansPixelwise(
        patch=3, window=5, frames_before=1, channels="joint", flicker=False
    )
    out = filtered(image, settings, plain, axes="CTYX")
    found = expected(image[:, :, None], 20.0, settings)[:, :, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_flicker_of_joint_channels_is_corrected(device):
    clean = np.broadcast_to(scene(64, 72), (2, 5, 64, 72))
    gains = np.array([[1, 0.7, 1.2, 0.9, 1], [1, 1, 1, 1, 1.3]])[..., None, None]
    image = (clean + np.random.default_rng(0).normal(0, 8, clean.shape)) * gains
    scores = []
    for flicker in (True, False):
        settings = gd.NLMeansPixelwise(
            frames_before=2, frames_after=2, channels="joint", flicker=flicker
        )
        out = gd.denoise(image, settings, 8, axes="CTYX", device=device).image
        scores.append(psnr(out / gains, clean))
    assert scores[0] > scores[1] + 0.5


@pytest.mark.parametrize("guide", [-1, 1])
@pytest.mark.parametrize(
    "sigma", [20.0, (10.0, 20.0, 40.0), (0.0, 20.0, 10.0)], ids=["one", "three", "none"]
)
def test_joint_channels_are_as_the_reference(plain, gpu, sigma, guide):
    image = noisy(3, 19, 23)
    settings = gd.NLMeansPixelwise(patch=3, window=5, channels="joint", guide=guide)
    given = np.broadcast_to(np.reshape(sigma, (-1, 1, 1)), (3, 1, 1))
    planes = image[:, None, None]
    of = slice(None) if guide < 0 else slice(guide, guide + 1)
    found = expected(planes, given[of, None, None], settings, planes[of])[:, 0, 0]
    for flowing in ways(plain, gpu, both=guide < 0 and given[0, 0, 0] == 10):
        out = filtered(image, settings, flowing, sigma=given, axes="CYX")
        np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_a_map_of_sigma_is_as_in_the_reference(plain):
    image, settings = noisy(21, 33), gd.NLMeansPixelwise(patch=3, window=7)
    sigma = np.broadcast_to(np.linspace(5, 40, 33), image.shape)
    out = filtered(image, settings, plain, sigma=sigma)
    found = expected(image[None, None, None], sigma, settings)[0, 0, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def correlated(clean, sigma):
    """Return an image (c, y, x) with noise shared between channels, and its covariance."""
    shares = np.array([[1, 0.9, 0.8], [0.9, 1, 0.9], [0.8, 0.9, 1]])
    noise = np.random.default_rng(0).normal(0, sigma, clean.shape)
    return clean + np.tensordot(np.linalg.cholesky(shares), noise, axes=1), shares * sigma**2


def test_whitened_channels_are_as_the_reference(plain):
    image, covariance = correlated(scene(3, 21, 30), 20)
    image = image.astype(np.float32)
    settings = gd.NLMeansPixelwise(patch=3, window=5, channels="joint", whiten=True)
    mixing = tuple(map(tuple, mixing_of(covariance)))
    told = replace(settings, mixing=mixing)
    planes = image[:, None, None]
    found = expected(planes, 1.0, settings, whitened(planes, covariance))[:, 0, 0]
    out = filtered(image, told, plain, sigma=20.0, axes="CYX")
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_whitening_measures_what_channels_share(device):
    clean = np.stack([scene(160, 160), 255 - scene(160, 160).T, scene(160, 160)[::-1]])
    image, covariance = correlated(clean, 20)
    mixing = np.array(measured_mixing(image, "CYX")[0])
    made = mixing @ covariance @ mixing.T
    np.testing.assert_allclose(made / 400, np.eye(3), atol=0.25)
    result = gd.denoise(
        image, gd.NLMeansPixelwise(channels="joint", whiten=True), 20, axes="CYX", device=device
    )
    assert any("after whitening" in note for note in result.record.notes)


def test_whitening_is_left_out_where_there_is_nothing_to_whiten(device):
    settings = gd.NLMeansPixelwise(whiten=True, channels="joint")
    for image, axes in ((noisy(20, 30), "YX"), (np.zeros((3, 20, 30)), "CYX")):
        assert gd.denoise(image, settings, 20, axes=axes, device=device).record.filter
    assert measured_mixing(np.zeros((3, 20, 30)), "CYX") is None


def test_pixels_averaged_are_those_of_the_weights(device):
    image = noisy(40, 50)
    count = gd.pixels_averaged(image, 20, patch=3, window=7, device=device)
    settings = gd.NLMeansPixelwise(patch=3, window=7, show="pixels")
    found = expected(image[None, None, None], 20.0, settings)[0, 0, 0]
    np.testing.assert_allclose(count, found, rtol=1e-4)
    assert count.dtype == np.float32
    assert 1 <= count.min() <= count.max() <= 49
    # Everywhere alike: every pixel of the window counts, and there is none outside.
    flat = gd.pixels_averaged(np.eye(40) * 1e-3, 20, patch=3, window=7, device=device)
    assert flat[20, 20] == pytest.approx(49)
    assert flat[0, 0] == pytest.approx(16)


def test_pixels_averaged_of_joint_channels_is_one_map(device):
    image = noisy(3, 30, 34)
    count = gd.pixels_averaged(image, 20, axes="CYX", channels="joint", device=device)
    assert count.shape == (30, 34)
    apart = gd.pixels_averaged(image, (20, 0, 20), axes="CYX", device=device)
    assert apart.shape == image.shape
    assert not apart[1].any() and apart[0].min() >= 1


def test_fewer_slices_where_they_are_far_apart():
    volume = gd.NLMeansPixelwise.of(profile="volume", voxel=(3, 1, 1))
    flat = noisy(6, 40, 40) - scene(6, 40, 40)  # noise, which does not tell
    fitting = prepared(volume, "ZYX", flat.shape, image=flat)
    (why,) = fitting.notes
    assert (fitting.slices, fitting.patch_slices, fitting.patch) == (1, 0, 5)
    assert why.startswith("according to the voxel size, slices are 3 pixels apart")
    assert prepared(fitting, "ZYX", flat.shape, image=flat) == fitting
    # The image comes first: these slices are the same.
    alike = np.repeat(scene(1, 40, 40), 6, axis=0)
    for unchanged in (volume.spaced(alike, "ZYX"), volume.spaced(flat[:1], "ZYX")):
        assert unchanged == volume and not unchanged.notes
    off = replace(volume, spacing="off")
    assert off.spaced(flat, "ZYX") == off
    near = gd.NLMeansPixelwise.of(profile="volume", voxel="1, 1, 1")
    assert near.spaced(flat, "ZYX") == near


def test_the_result_says_how_many_slices_were_taken(device):
    image = noisy(6, 20, 20) - scene(6, 20, 20) + 100
    options = {"axes": "ZYX", "device": device}
    far = gd.NLMeansPixelwise.of(profile="volume", voxel=(30, 1, 1))
    record = gd.denoise(image, far, 20.0, **options).record
    assert any("slices=1" in note for note in record.notes)
    assert record.settings["slices"] == 3
