"""Channels: which are filtered together, what is refused, and what they gain."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from scenes import psnr, scene

SMALL = {
    gd.BM3D: {"window_basic": 7, "window_final": 7},
    gd.Isoline: {"max_length": 5, "staircase": 5},
}
KINDS = pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.name)


def clean_colours(ny: int, nx: int, contrast: float = 40.0) -> np.ndarray:
    """Return three channels: shades of one scene, and hues."""
    y, x = np.indices((ny, nx))
    hues = np.multiply.outer((contrast, 0, -contrast), (x // 13 + y // 11) % 2)
    return np.multiply.outer((1.0, 0.8, 0.6), scene(ny, nx)) + hues


def colours(ny: int = 34, nx: int = 39, sigmas=(12.4, 20.37, 31.1), seed=0, contrast=40.0):
    """Return the same with noise, a sigma for each channel."""
    clean = clean_colours(ny, nx, contrast)
    noise = np.random.default_rng(seed).normal(0, 1, clean.shape)
    return (clean + np.reshape(sigmas, (3, 1, 1)) * noise).astype(np.float32)


@KINDS
def test_what_channels_are_by_themselves(device, kind):
    """Colour is what the axis says, not what has three planes."""
    image = colours()

    def run(channels, axes, planes=image, **changes):
        settings = kind(channels=channels, **SMALL[kind], **changes)
        return gd.denoise(planes, settings, 20.0, axes=axes, device=device).image

    np.testing.assert_array_equal(run("auto", "SYX"), run("opponent", "CYX"))
    np.testing.assert_array_equal(run("auto", "CYX"), run("separate", "SYX"))
    np.testing.assert_array_equal(run("auto", "SYX", image[:2]), run("separate", "SYX", image[:2]))
    np.testing.assert_array_equal(run("joint", "CYX", image[:1]), run("separate", "CYX", image[:1]))
    kinds = [run(channels, "CYX") for channels in ("separate", "joint", "opponent")]
    assert len({made.tobytes() for made in kinds}) == 3
    for one, plane in zip(kinds[0], image, strict=True):
        np.testing.assert_array_equal(one, run("auto", "YX", plane))
    refused = [
        ("opponent", "CYX", image[:2], {}, "needs three channels.* there are 2: use"),
        ("opponent", "TYX", image, {}, "needs three channels.* there are 1: use"),
        ("joint", "CYX", image, {"guide": 3}, "guide=3 is not one of the 3"),
    ]
    if kind is gd.Isoline:
        # Differences of channels are no grey levels that speckle multiplies.
        speckle = {"criterion": "multiplicative"}
        found = run("auto", "SYX", **speckle), run("separate", "CYX", **speckle)
        np.testing.assert_array_equal(*found)
        refused.append(("opponent", "SYX", image, speckle, "opponent.*does not work with mult"))
    for channels, axes, planes, changes, sentence in refused:
        with pytest.raises(SettingsError, match=sentence) as caught:
            run(channels, axes, planes, **changes)
        assert str(caught.value).endswith(".")


@KINDS
def test_channels_are_better_together(device, kind):
    """Edges of hue the luminance does not see, where noise differs matches are shared best."""

    def gains(clean, sigmas, *ways):
        noise = np.random.default_rng(1).normal(0, 1, clean.shape)
        image = clean + np.reshape(sigmas, (-1, 1, 1)) * noise
        options = {"axes": "CYX", "device": device}
        return [
            psnr(gd.denoise(image, kind(channels=way), sigmas, **options).image, clean)
            for way in ways
        ]

    separate, joint, opponent = gains(
        clean_colours(80, 96), 3 * (25,), "separate", "joint", "opponent"
    )
    assert opponent > separate + (1 if kind is gd.BM3D else 0.2)
    assert opponent > joint + 0.5 or kind is gd.BM3D
    shades = np.multiply.outer((1.0, 0.8, 0.6), scene(80, 96))
    sigmas = (10, 20, 40) if kind is gd.BM3D else 3 * (25,)
    separate, joint = gains(shades, sigmas, "separate", "joint")
    assert joint > separate + 0.5
