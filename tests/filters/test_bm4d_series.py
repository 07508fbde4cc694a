"""BM4D over time: against NumPy, on a CPU and with the kernels of a GPU, and what it gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import filtered, finish, work_of
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow.frame_flow import ArrayFrameFlow
from reference import bm4d_series as reference
from reference.bm4d_series import follow
from scenes import psnr, scene

SIGMA = 20.37
SMALL = {
    **{"window_basic": 5, "window_final": 5, "window_next": 3, "cube": "4x4x4"},
    **{"neighbours_basic": 4, "neighbours_final": 8, "frames_before": 1, "frames_after": 1},
}


def series(*shape: int, sigma: float = SIGMA, seed: int = 0, moves: int = 1) -> np.ndarray:
    """Return volumes of whole numbers, alike but for their noise; the scene moves along x."""
    nt, nz, ny, nx = shape
    wide = scene(nz, ny, nx + moves * nt)
    clean = np.stack([wide[..., moves * t : moves * t + nx] for t in range(nt)])
    noise = np.random.default_rng(seed).normal(0, sigma, shape)
    return np.rint(clean + noise).astype(np.float32)


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": "basic"},
        {"stages": "basic", "cube": "1x8x8", "frames_before": 2, "frames_after": 0},
        {"stages": "basic", "neighbours_basic": 16, "shared_noise": False, "stack_basic": "dct"},
        {},
    ],
    ids=["basic", "causal", "many", "both"],
)
def test_it_is_the_reference(flowing, changes):
    image = series(3, 5, 12, 13)
    settings = gd.BM4D(**{**SMALL, **changes})
    out = filtered(image, settings, flowing, SIGMA, "TZYX")
    error = np.abs(out - reference.bm4d(image, SIGMA, settings, exact=False))
    if settings.stages == "basic":  # a coefficient near the threshold goes otherwise in float32
        assert np.mean(error > 0.002 * SIGMA) < 0.02
        assert error.max() < 2
    else:  # what the second pass matches on was rounded: here and there it takes another cube
        assert np.median(error) < 0.01
        assert error.max() < 4


def test_the_filter_is_that_of_the_reference(optimised, device):
    image, settings = series(3, 5, 12, 13), gd.BM4D(**SMALL)
    out = gd.denoise(image, settings, SIGMA, axes="TZYX", device=device).image
    error = np.abs(out - reference.bm4d(image, SIGMA, settings, exact=False))
    assert np.median(error) < 0.01
    assert error.max() < 4


@pytest.mark.parametrize("given", ["times", "slices", "map"])
def test_it_follows_sigma(flowing, given):
    image = series(2, 5, 12, 13)
    sigma = {
        "times": np.reshape([12.3, 21.4], (2, 1, 1, 1)),
        "slices": np.linspace(9.1, 30.3, 10).reshape(2, 5, 1, 1),
        "map": (8 + 1.5 * np.arange(13))[None, None, None],
    }[given]
    settings = gd.BM4D(**SMALL, stages="basic")
    out = filtered(image, settings, flowing, sigma, "TZYX")
    error = np.abs(out - reference.bm4d(image, sigma, settings, exact=False))
    assert np.mean(error > 0.05) < 0.02
    assert error.max() < 3


def test_volumes_without_others_are_filtered_alone(flowing):
    """One volume in time; and one between others that are dropped, or far noisier."""
    image = series(3, 5, 12, 13)
    settings = gd.BM4D(**SMALL)
    alone = replace(settings, frames_before=0, frames_after=0)
    expected = filtered(image[1:2], alone, flowing, SIGMA, "TZYX")
    sigma = np.reshape([SIGMA, SIGMA, SIGMA], (3, 1, 1, 1))
    dropped = image.copy()
    dropped[[0, 2]] = 17.0
    for found in (
        filtered(image[1:2], settings, flowing, SIGMA, "TZYX"),
        filtered(dropped, settings, flowing, SIGMA, "TZYX")[1:2],
        filtered(image, settings, flowing, sigma * np.reshape([3, 1, 3], sigma.shape), "TZYX")[1:2],
    ):
        np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("cube", ["4x4x4", "2x4x8"])
def test_parts_change_nothing(flowing, cube):
    """Volumes cut in three axes, with a map of sigma: as many as the margins allow."""
    image = series(3, 6, 40, 44)
    changes = {"window_basic": 3, "window_final": 3, "stages": "basic"}
    settings = gd.BM4D(**{**SMALL, "cube": cube, **changes})
    sigma = (10 + 0.3 * np.arange(44))[None, None, None]
    whole = filtered(image, settings, flowing, sigma, "TZYX")
    out = np.empty_like(image)
    flow = ArrayFrameFlow(work_of(image, out, settings, flowing, sigma, "TZYX"), Arena(flowing))
    reach = settings.reach
    spans = [
        [Span.whole(n).part(a, b, around) for a, b in ((0, n // 3), (n // 3, n))]
        for n, around in zip(image.shape[1:], (reach.z, reach.y, reach.x), strict=True)
    ]
    flow.tiles = [
        Tile(0, Span.whole(1), z, y, x) for z in spans[0] for y in spans[1] for x in spans[2]
    ]
    flow.batch = 1
    finish(flow.run())
    np.testing.assert_array_equal(out, whole)


def test_other_volumes_help(device):
    """Where nothing moves, where all moves by three voxels, and not where another scene follows."""
    rng = np.random.default_rng(0)
    wide = scene(8, 48, 60) + 25 * rng.normal(size=(8, 12, 15)).repeat(4, 1).repeat(4, 2)
    still, other = wide[..., :48], 255 - wide[:, ::-1, 8:56]
    moving = np.stack([wide[..., 3 * t : 3 * t + 48] for t in range(3)])
    small = {"window_basic": 7, "window_final": 7, "neighbours_basic": 16, "neighbours_final": 16}
    options = {"sigma": 20, "axes": "TZYX", "cube": "4x4x4", "device": device, **small}
    gains = []
    for clean in (np.stack([still] * 3), moving, np.stack([other, still, other])):
        image = clean + rng.normal(0, 20, clean.shape)
        joined = gd.bm4d(image, frames_before=1, frames_after=1, **options)
        alone = gd.bm4d(image, **options)
        gains.append(psnr(joined[1], clean[1]) - psnr(alone[1], clean[1]))
    assert gains[0] > 1.5
    assert gains[1] > 1.2
    assert gains[2] > -0.1


def test_brightness_is_followed_and_kept(device):
    """With `flicker` other volumes help although their brightness differs, which is kept."""
    rng = np.random.default_rng(0)
    still = scene(6, 64, 64)
    gain = np.reshape([1.25, 1.0, 0.8], (3, 1, 1, 1))
    clean = gain * still
    image = clean + rng.normal(0, 10, clean.shape)
    found = {
        flicker: gd.bm4d(
            image,
            10,
            axes="TZYX",
            device=device,
            **{**SMALL, "flicker": flicker, "window_next": 1},
        )
        for flicker in (True, False)
    }
    assert psnr(found[True], clean) > psnr(found[False], clean) + 0.5
    np.testing.assert_allclose(
        found[True].mean(axis=(1, 2, 3)), image.mean(axis=(1, 2, 3)), rtol=0.003
    )


def test_motion_is_that_of_the_volumes():
    """The reference itself: blocks are followed over several volumes."""
    wide = np.random.default_rng(0).normal(size=(8, 24, 40))
    volumes = np.stack([wide[..., 2 * t : 2 * t + 24] for t in range(3)])
    settings = gd.BM4D(**{**SMALL, "window_next": 5, "frames_before": 0, "frames_after": 2})
    motion = follow(volumes, 0 * volumes + 0.01, 0, settings.passes["basic"])
    for time, (ways, alike) in motion.items():
        np.testing.assert_array_equal(ways[0, 1, 1], (0, 0, -2 * time))
        assert alike[0, 1, 1]
