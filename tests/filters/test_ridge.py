"""Ridge combinations after BM3D, BM4D and VBM3D, against NumPy and in what they must keep.

On a CPU, and with the kernels of a GPU.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import model
from flows import filtered
from napari_gpu_denoise.filters.search.video_search import PredictiveSearch
from reference.ridge import ridge
from scenes import noisy, scene

SIGMA = 20.0
SLOPE = 12 + 0.4 * np.arange(33)
# Name, filter, shape, axes, sigma.
CASES = {
    "image": (gd.BM3D.of(profile="fast", refine="once"), (20, 26), SIGMA),
    "chain": (gd.BM3D.of(profile="fast", refine="chain"), (17, 21), SIGMA),
    "map": (gd.BM3D.of(profile="fast", refine="once"), (20, 33), SLOPE[None]),
    "chain with a map": (gd.BM3D.of(profile="fast", refine="chain"), (17, 33), SLOPE[None]),
    "volume": (gd.BM4D.of(profile="fast", cube="4x4x4", refine="once"), (6, 15, 17), SIGMA),
    "flat cubes": (gd.BM4D.of(profile="fast", cube="1x8x8", refine="once"), (3, 19, 21), SIGMA),
    "slices": (
        *(gd.BM4D.of(profile="fast", cube="2x4x8", refine="once"), (5, 13, 19)),
        np.linspace(14, 26, 5)[:, None, None],
    ),
}


def axes_of(shape) -> str:
    return "ZYX"[-len(shape) :]


def unrefined(settings):
    return replace(settings, refine="off")


def agree(found, expected) -> None:
    """Compare; a patch at nearly the same distance as the last of a group may replace it."""
    error = np.abs(found - expected)
    assert np.median(error) < 0.005
    assert np.mean(error > 0.1) < 0.02


@pytest.mark.parametrize("name", CASES)
def test_they_are_the_reference(flowing, name):
    settings, shape, sigma = CASES[name]
    image = np.rint(noisy(*shape))
    given = image, flowing, sigma, axes_of(shape)
    estimate = filtered(given[0], unrefined(settings), *given[1:])
    found = filtered(given[0], settings, *given[1:])
    agree(found, ridge(image, estimate, sigma, settings.ridge))


# How wide a tile is depends on the windows.
NARROW = {"window_basic": 3, "window_final": 3}


@pytest.mark.parametrize(
    ("settings", "shape", "pixels"),
    [
        (gd.BM3D.of(profile="live", refine="once", **NARROW), (16, 230), 16 * 210),
        (gd.BM4D.of(profile="fast", cube="2x4x8", refine="once", **NARROW), (4, 15, 140), 7500),
    ],
)
def test_tiles_change_nothing(flowing, settings, shape, pixels):
    image, sigma = noisy(*shape), (12 + 0.1 * np.arange(shape[-1]))[None]
    sigma = sigma.reshape((1,) * (len(shape) - 1) + (-1,))
    given = image, settings, flowing, sigma, axes_of(shape)
    np.testing.assert_array_equal(filtered(*given, pixels), filtered(*given))


def matches_of(monkeypatch) -> list[tuple]:
    """Return a list that gets the references of each search for many patches, and their places."""
    found, search = [], PredictiveSearch.enqueue

    def enqueue(self, run, images, frames, *more):
        import pyopencl as cl

        matches = search(self, run, images, frames, *more)
        if self.settings.neighbours == 64:
            rows, columns = frames.grid
            codes = np.empty((frames.count, rows.count, 64, columns.count), np.uint32)
            cl.enqueue_copy(run.queue, codes, matches.places)
            found.append((frames, codes))
        return matches

    monkeypatch.setattr(PredictiveSearch, "enqueue", enqueue)
    return found


def places(found) -> dict[tuple, list[tuple]]:
    """Return the places (t, y, x) of the patches of a group by that of its reference."""
    groups = {}
    for frames, codes in found:
        axes = [
            [min(grid.first + k * 4, grid.last) for k in range(grid.count)] for grid in frames.grid
        ]
        # See kernels/common/place_code.h.
        parts = np.stack([codes >> 24, codes >> 12 & 0xFFF, codes & 0xFFF], -1).astype(np.int64)
        moved = np.where(parts & 1, -(parts >> 1) - 1, parts >> 1)
        for t, y, x in np.ndindex(frames.count, len(axes[0]), len(axes[1])):
            place = frames.first + t, axes[0][y], axes[1][x]
            kept = moved[t, y, codes[t, y, :, x] != 0xFFFFFFFF, x]
            groups[place] = [tuple(map(int, place + one)) for one in kept]
    return groups


def test_groups_of_a_video_are_the_reference(flowing, monkeypatch):
    image = np.rint(noisy(5, 21, 26))
    settings = gd.VBM3D(refine="once", frames_before=2, frames_after=2)
    estimate = filtered(image, unrefined(settings), flowing, SIGMA, "TYX")
    found = matches_of(monkeypatch)
    out = filtered(image, settings, flowing, SIGMA, "TYX")
    groups = places(found)
    assert {place[0] for place in groups} == set(range(5))
    assert all(group[0] == place for place, group in groups.items())
    assert max(place[0] - group[k][0] for place, group in groups.items() for k in range(64)) == 2
    for (t, y, x), group in groups.items():
        # Those of its own frame are the nearest of the window, also where they fill the group.
        windows = np.lib.stride_tricks.sliding_window_view(np.asarray(estimate)[t], (8, 8))
        distance = np.square(windows - windows[y, x]).sum(axis=(2, 3))
        own = [distance[place[1:]] for place in group if place[0] == t]
        nearest = np.sort(distance[max(y - 10, 0) : y + 11, max(x - 10, 0) : x + 11], axis=None)
        np.testing.assert_allclose(np.sort(own), nearest[: len(own)], rtol=1e-3, atol=1e-2)
    expected = ridge(
        *(image, estimate, SIGMA, settings.passes["ridge 1"]),
        lambda image, place, settings: groups[place],
    )
    np.testing.assert_allclose(out, expected, atol=0.1)
    assert np.median(np.abs(out - expected)) < 0.005


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({"refine": "once"}, 0.95),
        ({"refine": "chain"}, 0.9),
    ],
)
def test_a_time_lapse_gains(device, changes, most):
    clean = scene(5, 48, 57)
    image = (clean + np.random.default_rng(0).normal(0, SIGMA, clean.shape)).astype(np.float32)
    settings = gd.VBM3D(**{"frames_before": 2, "frames_after": 2, **changes})
    errors = [
        np.mean((gd.vbm3d(image, SIGMA, axes="TYX", settings=one, device=device) - clean) ** 2)
        for one in (unrefined(settings), settings)
    ]
    assert errors[1] < most * errors[0]


def test_frames_without_noise_stay(flowing):
    image = np.rint(noisy(5, 21, 26))
    image[2] = 17.0
    settings = gd.VBM3D(refine="once", frames_before=2, frames_after=2)
    out = filtered(image, settings, flowing, SIGMA, "TYX")
    np.testing.assert_array_equal(out[2], image[2])
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
        gd.denoise(noisy(*shape), one, axes=axes, device=device, **noise)
        for one in (settings, replace(settings, refine="chain"))
    )
    np.testing.assert_array_equal(refined.image, plain.image)
    assert f"not refined: {why}" in str(refined.record)
