"""Ridge combinations after BM3D, BM4D and VBM3D: what they gain, and what they must keep.

test_gpu_kernels compares them with NumPy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import model
from flows import filtered, part_steps
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.request import Run
from scenes import noisy, scene

SIGMA = 20.0


def unrefined(settings):
    return replace(settings, refine="off")


@pytest.mark.parametrize(
    ("changes", "channels", "most"),
    [
        ({"refine": "once", "channels": "joint"}, 2, 0.95),
        ({"refine": "chain"}, 1, 0.9),
    ],
)
def test_a_time_lapse_gains(device, changes, channels, most):
    clean = np.stack([scene(5, 48, 57)] * channels)
    image = (clean + np.random.default_rng(0).normal(0, SIGMA, clean.shape)).astype(np.float32)
    settings = gd.VBM3D(**{"frames_before": 2, "frames_after": 2, **changes})
    errors = [
        np.mean((gd.vbm3d(image, SIGMA, axes="CTYX", settings=one, device=device) - clean) ** 2)
        for one in (unrefined(settings), settings)
    ]
    assert errors[1] < most * errors[0]


def test_frames_without_noise_stay(flowing):
    image = np.rint(noisy(5, 21, 26))
    image[2] = 17.0
    settings = gd.VBM3D(refine="once", frames_before=2, frames_after=2)
    out = filtered(image, settings, flowing, SIGMA, "TYX")
    np.testing.assert_array_equal(out[2], image[2])
    part = slice(0, 5), slice(3, 21), slice(4, 20)
    made = np.empty_like(out[part])
    part_steps(image, settings, flowing.device, made, SIGMA, "TYX", part)
    np.testing.assert_array_equal(made, out[part])
    assert np.all(np.std(out[[0, 1, 3, 4]] - image[[0, 1, 3, 4]], axis=(1, 2)) > 0.5 * SIGMA)


def test_colours_share_the_matches_of_luminance(device):
    grey = scene(30, 41)
    clean = np.stack([grey, 0.8 * grey + 20, 200 - 0.5 * grey], -1)
    image = (clean + np.random.default_rng(0).normal(0, SIGMA, clean.shape)).astype(np.float32)
    given = {"axes": "YXS", "profile": "fast", "device": device}

    def error(channels: str, refine: str) -> float:
        return np.mean(
            (gd.bm3d(image, SIGMA, channels=channels, refine=refine, **given) - clean) ** 2
        )

    for channels in ("opponent", "joint"):
        assert error(channels, "once") < error(channels, "off")
    assert error("opponent", "once") < error("separate", "once")


@pytest.mark.parametrize("sigma", [0.1, 3.0, 200.0])
def test_any_strength_of_noise_is_safe(device, sigma):
    clean = scene(48, 52)
    clean[:20, :30] = 40.0  # constant
    image = (clean + np.random.default_rng(0).normal(0, sigma, clean.shape)).astype(np.float32)
    errors = [
        np.sqrt(np.mean((gd.bm3d(image, sigma, refine=refine, device=device) - clean) ** 2))
        for refine in ("off", "chain")
    ]
    assert errors[1] < 1.03 * errors[0]


def test_equal_patches_and_saturated_images_stay(device):
    tiles = np.tile(np.random.default_rng(0).integers(0, 255, (3, 3)), (14, 15)).astype(np.float32)
    for image in (tiles, np.full((40, 40), 255.0, np.float32)):
        out = gd.bm3d(image, 5.0, refine="chain", device=device)
        np.testing.assert_allclose(out, image, atol=0.05)


NOISE = {"sigma": SIGMA}
UNREFINED = {
    "neighbouring pixels share noise": (gd.BM3D(), (40, 44), {"noise": model(0.5, 0.5)}),
    "single images whose noise depends on brightness": (
        *(gd.BM3D(), (40, 44)),
        {"noise": gd.PoissonGaussian(1.0, 0.0)},
    ),
    "other volumes are searched": (gd.BM4D(frames_before=1, cube="4x4x4"), (3, 5, 20, 21), NOISE),
    "earlier and later frames": (gd.VBM3D(frames_after=0), (3, 30, 31), NOISE),
}


@pytest.mark.parametrize("why", UNREFINED)
def test_it_is_said_where_nothing_is_refined(device, why):
    settings, shape, noise = UNREFINED[why]
    axes = "TYX" if isinstance(settings, gd.VBM3D) else "TZYX"[-len(shape) :]
    plain, refined = (
        start(Run(one, axes=axes, device=device, **noise), noisy(*shape)).filter
        for one in (settings, replace(settings, refine="chain"))
    )
    assert refined == plain
    assert any(f"not refined: {why}" in note for note in refined.notes)
