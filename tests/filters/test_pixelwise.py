"""Pixelwise NL-means against NumPy, on a CPU and with the kernels of a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.one_pass import posing
from flows import filtered
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.opencl.program import session
from reference.pixelwise import pixelwise
from scenes import altered, noisy, prepared, psnr, scene


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


def expected(image, sigma, settings):
    """Return what the reference makes of an image (c, t, z, y, x)."""
    names = ("patch", "window", "strength", "weights")
    names += ("slices", "patch_slices", "frames_before", "frames_after")
    told = {name: getattr(settings, name) for name in names}
    told |= {"shape": settings.patch_shape, "pixels": settings.show == "pixels"}
    return pixelwise(image, sigma, **told)


# Settings, and whether the kernels of a GPU are tried as well: the simulator runs all of them.
IMAGES = {
    "default": ({}, True),
    "conventional": (
        {"patch": 7, "window": 9, "weights": "plain", "patch_shape": "gaussian"},
        False,
    ),
    "bisquare": ({"weights": "bisquare", "strength": 2.0}, False),
    "wide patches": ({"patch": 11, "window": 5}, False),
    "single pixels": ({"patch": 1, "window": 5}, False),
    "counts": ({"show": "pixels", "patch": 3, "window": 9}, True),
    "hardly": ({"strength": 0.1, "patch": 3, "window": 7}, False),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_as_the_reference(plain, gpu, name):
    changes, both = IMAGES[name]
    image, settings = noisy(21, 141), gd.NLMeansPixelwise(**changes)
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
        {"patch_slices": 2, "patch_shape": "gaussian"},
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
        patch=3, window=5, frames_before=frames[0], frames_after=frames[1]
    )
    out = filtered(image, settings, plain, axes="TYX")
    found = expected(image[None, :, None], 20.0, settings)[0, :, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_joint_channels_over_time_are_as_the_reference(plain):
    image = noisy(3, 4, 15, 18)
    settings = gd.NLMeansPixelwise(patch=3, window=5, frames_before=1, channels="joint")
    out = filtered(image, settings, plain, axes="CTYX")
    found = expected(image[:, :, None], 20.0, settings)[:, :, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_flicker_of_joint_channels_is_corrected(device):
    clean = np.broadcast_to(scene(64, 72), (2, 5, 64, 72))
    gains = np.array([[1, 0.7, 1.2, 0.9, 1], [1, 1, 1, 1, 1.3]])[..., None, None]
    image = (clean + np.random.default_rng(0).normal(0, 8, clean.shape)) * gains
    scores = []
    followed = gd.NLMeansPixelwise(frames_before=2, frames_after=2, channels="joint")
    for settings in (followed, altered(followed, compares_brightness=False)):
        out = gd.denoise(image, settings, 8, axes="CTYX", device=device).image
        scores.append(psnr(out / gains, clean))
    assert scores[0] > scores[1] + 0.5


@pytest.mark.parametrize(
    "sigma", [20.0, (10.0, 20.0, 40.0), (0.0, 20.0, 10.0)], ids=["one", "three", "none"]
)
def test_joint_channels_are_as_the_reference(plain, gpu, sigma):
    image = noisy(3, 19, 23)
    settings = gd.NLMeansPixelwise(patch=3, window=5, channels="joint")
    given = np.broadcast_to(np.reshape(sigma, (-1, 1, 1)), (3, 1, 1))
    found = expected(image[:, None, None], given[:, None, None], settings)[:, 0, 0]
    for flowing in ways(plain, gpu, both=given[0, 0, 0] == 10):
        out = filtered(image, settings, flowing, sigma=given, axes="CYX")
        np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_a_map_of_sigma_is_as_in_the_reference(plain):
    image, settings = noisy(21, 33), gd.NLMeansPixelwise(patch=3, window=7)
    sigma = np.broadcast_to(np.linspace(5, 40, 33), image.shape)
    out = filtered(image, settings, plain, sigma=sigma)
    found = expected(image[None, None, None], sigma, settings)[0, 0, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_pixels_averaged_are_those_of_the_weights(device):
    image = noisy(40, 50)
    small = {"patch": 3, "window": 7, "show": "pixels", "device": device}
    count = gd.nl_means_pixelwise(image, 20, **small)
    settings = gd.NLMeansPixelwise(patch=3, window=7, show="pixels")
    found = expected(image[None, None, None], 20.0, settings)[0, 0, 0]
    np.testing.assert_allclose(count, found, rtol=1e-4)
    assert count.dtype == np.float32
    assert 1 <= count.min() <= count.max() <= 49
    # Everywhere alike: every pixel of the window counts, and there is none outside.
    flat = gd.nl_means_pixelwise(
        np.eye(40) * 1e-3, 20, show="pixels", patch=3, window=7, device=device
    )
    assert flat[20, 20] == pytest.approx(49)
    assert flat[0, 0] == pytest.approx(16)


def test_pixels_averaged_of_joint_channels_are_one_map(device):
    options = {"axes": "CYX", "show": "pixels", "device": device}
    count = gd.nl_means_pixelwise(noisy(3, 30, 34), 20, channels="joint", **options)
    np.testing.assert_array_equal(count, count[:1].repeat(3, axis=0))
    apart = gd.nl_means_pixelwise(noisy(3, 30, 34), (20, 0, 20), **options)
    assert not apart[1].any() and apart[0].min() >= 1
    for name in ("pixels_averaged", "similar_pixels"):
        with pytest.raises(SettingsError, match=f"{name} was removed: use .*show='pixels'"):
            getattr(gd, name)


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
