"""Pixelwise NL-means against NumPy, on a CPU and with the kernels of a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import filtered
from napari_gpu_denoise.opencl.program import Session, session
from reference.pixelwise import pixelwise
from scenes import noisy


@pytest.fixture(scope="module", params=["as it is", "as a GPU", "small groups"])
def flowing(request, device):
    """Return the session of each device, and some that take other kernels."""
    made = session(device)
    if request.param == "as it is":
        return made
    groups = 64 if request.param == "as a GPU" else 8
    limits = {"local_memory": min(device.local_memory, 49152), "max_group": groups}
    return Session(replace(device, float_lanes=1, **limits), made.context)


def expected(image, sigma, settings, compared=None):
    """Return what the reference makes of an image (c, t, z, y, x)."""
    names = ("patch", "window", "strength", "weights", "own_weight", "deviation")
    names += ("slices", "patch_slices", "frames_before", "frames_after")
    told = {name: getattr(settings, name) for name in names}
    told |= {"shape": settings.patch_shape, "pixels": settings.show == "pixels"}
    return pixelwise(image, sigma, compared=compared, **told)


IMAGES = {
    "default": {},
    "conventional": {"patch": 7, "window": 9, "weights": "plain", "patch_shape": "gaussian"},
    "bisquare": {"weights": "bisquare", "strength": 2.0, "own_weight": "max"},
    "wide patches": {"patch": 11, "window": 7},
    "single pixels": {"patch": 1, "window": 5},
    "counts": {"show": "pixels", "patch": 3, "window": 7},
    "hardly": {"strength": 0.1, "patch": 3, "window": 7, "own_weight": "max"},
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_as_the_reference(flowing, name):
    image, settings = noisy(37, 141), gd.NLMeansPixelwise(**IMAGES[name])
    out = filtered(image, settings, flowing)
    found = expected(image[None, None, None], 20.0, settings)[0, 0, 0]
    np.testing.assert_allclose(out, found, rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (2, 3), (40, 3)])
def test_small_images_are_as_the_reference(flowing, shape):
    image, settings = noisy(*shape), gd.NLMeansPixelwise(window=7)
    out = filtered(image, settings, flowing)
    found = expected(image[None, None, None], 20.0, settings)[0, 0, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


VOLUMES = {
    "slices": {"slices": 1},
    "cubes": {"slices": 2, "patch_slices": 1},
    "Gaussian cubes": {"patch_slices": 2, "patch_shape": "gaussian", "deviation": 0.8},
}


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes_are_as_the_reference(flowing, name):
    image = noisy(4, 11, 21)
    settings = gd.NLMeansPixelwise(patch=3, window=5, **VOLUMES[name])
    out = filtered(image, settings, flowing, axes="ZYX")
    found = expected(image[None, None], 20.0, settings)[0, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


@pytest.mark.parametrize("frames", [(0, 2), (1, 1)])
def test_frames_are_as_the_reference(flowing, frames):
    image = noisy(5, 19, 23)
    settings = gd.NLMeansPixelwise(
        patch=3, window=5, frames_before=frames[0], frames_after=frames[1], flicker=False
    )
    out = filtered(image, settings, flowing, axes="TYX")
    found = expected(image[None, :, None], 20.0, settings)[0, :, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


@pytest.mark.parametrize("guide", [-1, 1])
@pytest.mark.parametrize("sigma", [20.0, (10.0, 20.0, 40.0), (0.0, 20.0, 10.0)])
def test_joint_channels_are_as_the_reference(flowing, sigma, guide):
    image = noisy(3, 19, 23)
    settings = gd.NLMeansPixelwise(patch=3, window=5, channels="joint", guide=guide)
    given = np.broadcast_to(np.reshape(sigma, (-1, 1, 1)), (3, 1, 1))
    out = filtered(image, settings, flowing, sigma=given, axes="CYX")
    planes = image[:, None, None]
    of = slice(None) if guide < 0 else slice(guide, guide + 1)
    found = expected(planes, given[of, None, None], settings, planes[of])[:, 0, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


def test_a_map_of_sigma_is_as_in_the_reference(flowing):
    image, settings = noisy(21, 33), gd.NLMeansPixelwise(patch=3, window=7)
    sigma = np.broadcast_to(np.linspace(5, 40, 33), image.shape)
    out = filtered(image, settings, flowing, sigma=sigma)
    found = expected(image[None, None, None], sigma, settings)[0, 0, 0]
    np.testing.assert_allclose(out, found, rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    "changes", [{}, {"patch_shape": "gaussian"}, {"patch": 9}], ids=["box", "gaussian", "wide"]
)
def test_tiles_change_nothing(flowing, changes):
    image, settings = noisy(61, 147), gd.NLMeansPixelwise(window=5, **changes)
    whole = filtered(image, settings, flowing)
    for pixels in (900, 2500):
        np.testing.assert_array_equal(filtered(image, settings, flowing, pixels=pixels), whole)
