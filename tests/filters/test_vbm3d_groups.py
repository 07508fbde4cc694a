"""One pass of VBM3D on a device, its sums and its estimate, and the whole filter, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.one_pass import Plain
from filters.one_video_pass import (
    PATCHES,
    Run,
    Videos,
    compare,
    group_settings,
    lanes,
    search_settings,
    shared,
)
from napari_gpu_denoise.filters.bm3d.groups import STACK_TRANSFORMS, TRANSFORMS
from napari_gpu_denoise.filters.search.frame_links import FrameLinks
from napari_gpu_denoise.filters.search.video_search import VideoSearch
from napari_gpu_denoise.filters.vbm3d import VBM3D, choose_video_group_variant
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.run.flow.frame_flow import note_frame
from reference import vbm3d as reference
from reference.video_links import Link
from scenes import noisy, scene

VARIANTS = pytest.mark.parametrize("kernel", ["lanes", "shared"])
HARD_OR_WIENER = pytest.mark.parametrize("wiener", [False, True], ids=["hard", "Wiener"])


@pytest.fixture(scope="module")
def plain(device):
    return Plain.of(device)


def searching(neighbours=8, **changes):
    """Return a search whose groups are of all sizes, of near and of far frames."""
    given = {"window": 7, "window_next": 3, "frames": (2, 1), "similar": 3.0}
    given["per_frame"] = max(2, neighbours // 3)
    return search_settings(neighbours=neighbours, **{**given, **changes})


def sigma_map(ny: int, nx: int) -> np.ndarray:
    """Return sigma relative to the largest: slopes, a jump, and a place without noise."""
    y, x = np.indices((ny, nx))
    values = 0.8 - 0.2 * x / nx + 0.2 * (y > 12)
    values[:13, 8:26] = 0
    return values.astype(np.float32)


def filtered(session, given, variant, videos=None, **options) -> Run:
    search_variant = PATCHES if session.device.float_lanes >= 4 else None
    videos = videos or Videos.of(linked=True)
    return Run(session, given, variant, videos, search_variant=search_variant, **options)


# Patches of a group, those that an item holds, groups that a work-group serves, and at once.
SHARED = [(1, 1, 2, 1, 2), (2, 2, 1, 1, 1), (4, 2, 3, 1, 1), (8, 8, 3, 2, 2), (8, 4, 2, 2, 4)]
SHARED += [(8, 2, 1, 1, 1), (16, 4, 2, 1, 1), (16, 16, 1, 3, 3)]


@pytest.mark.parametrize(("neighbours", "depth", "x", "y", "teams"), SHARED)
def test_teams_take_away_what_the_reference_does(plain, neighbours, depth, x, y, teams):
    which = SHARED.index((neighbours, depth, x, y, teams))
    how = TRANSFORMS[which % 3], STACK_TRANSFORMS[which // 3 % 2], which % 2 == 1
    given = group_settings(searching(neighbours), *how)
    # BM3D runs teams that are not wide.
    wide = depth in (2, 4) and neighbours >= 8
    assert compare(filtered(plain, given, shared(depth, x, y, teams, wide))) >= {1, neighbours}


@pytest.mark.parametrize(
    ("neighbours", "wiener"), [(1, True), (2, False), (4, True), (8, False), (16, True)]
)
def test_vectors_take_away_what_the_reference_does(plain, neighbours, wiener):
    which = neighbours.bit_length()
    search = searching(neighbours)
    given = group_settings(search, TRANSFORMS[which % 3], STACK_TRANSFORMS[which // 2 % 2], wiener)
    assert compare(filtered(plain, given, lanes(search))) >= {1, neighbours}


@VARIANTS
@pytest.mark.parametrize("mapped", [False, True], ids=["even", "map"])
def test_references_follow_from_patch_to_patch(plain, kernel, mapped):
    search = searching(4, frames=(3, 0))
    given = group_settings(search, "dct", "haar", True, kalman=True)
    variant = lanes(search) if kernel == "lanes" else shared(2, 3, 2, 2)
    run = filtered(plain, given, variant, variation=sigma_map(26, 38) if mapped else None)
    compare(run)
    assert np.abs(run.out - run.videos.noisy[:1]).max() > 20


@pytest.mark.parametrize("local_memory", [8192, 32768, 49152])
@pytest.mark.parametrize("neighbours", [1, 2, 4, 8, 16, 32])
def test_wide_teams_fit_the_device_and_the_kernel(device, neighbours, local_memory):
    gpu = replace(device, float_lanes=1, local_memory=local_memory)
    search = search_settings(neighbours=neighbours)
    for wiener in (False, True):
        given = group_settings(search, "dct", "haar", wiener)
        constants = choose_video_group_variant(given, gpu).constants
        if constants["WIDE"]:
            assert constants["DEPTH"] in (2, 4)
            assert neighbours % 4 == 0
            assert neighbours > constants["DEPTH"]
            assert constants["TEAMS"] * 64 * (neighbours + 4) * 4 <= local_memory
        elif neighbours == 8 and not wiener:
            assert constants["DEPTH"] == 8  # there is nothing to exchange
        else:
            assert neighbours not in (8, 16) or local_memory < 32768


def variant_of(kernel: str, search):
    return lanes(search) if kernel == "lanes" else shared(4, 3, 2, 2)


@HARD_OR_WIENER
@VARIANTS
@pytest.mark.parametrize("shared_noise", [False, True], ids=["white", "shared noise"])
def test_maps_and_noise_that_patches_share(plain, kernel, shared_noise, wiener):
    mapped = wiener != (kernel == "lanes")
    search = searching(8, similar=9.0)
    given = group_settings(search, "bior1.5", "haar", wiener, shared_noise=shared_noise)
    variation = sigma_map(26, 38) if mapped else None
    run = filtered(plain, given, variant_of(kernel, search), variation=variation)
    assert 8 in compare(run)


@pytest.mark.parametrize(
    ("kernel", "frames"),
    [
        ("lanes", (0, 0)),
        ("shared", (3, 0)),
        ("lanes", (0, 3)),
        ("shared", (1, 3)),
        ("lanes", (3, 0)),
    ],
)
def test_frames_that_groups_add_to(plain, kernel, frames):
    search = searching(8, frames=frames, similar=9.0)
    given = group_settings(search, "dct", "hadamard")
    run = filtered(plain, given, variant_of(kernel, search))
    compare(run)
    late = {
        t - match[0]
        for _, group in run.groups
        for match in group.matches
        for t in [group.position[0]]
    }
    assert max(late) == frames[0], "there is something to be left out"


@pytest.mark.parametrize(("kernel", "wiener"), [("lanes", True), ("shared", False)])
def test_channels_share_matches_that_follow_motion(plain, kernel, wiener):
    """Two channels, each with its own noise and levels, and a frame that nothing can be told of."""
    search = searching(8, window_nearest=9, frames=(1, 2))
    videos = Videos.of(5, linked=True)

    def without(linked):
        return replace(linked, sigmas=(*linked.sigmas[:2], 0.0, *linked.sigmas[3:]))

    videos = replace(videos, linked=tuple(map(without, videos.linked)))
    videos = replace(videos, searched_linked=without(videos.searched_linked))
    given = group_settings(search, "dct", "haar", wiener)
    variant = shared(4, 1, 1, 1) if kernel == "shared" else lanes(search)
    run = filtered(plain, given, variant, videos, channels=2)
    compare(run)
    np.testing.assert_array_equal(run.out[:, 2], run.videos.noisy[:, 2])
    assert not run.weights[:, 2].any()
    assert (run.out[1, 3] != run.videos.noisy[1, 3]).all()


@pytest.mark.parametrize("region", [(3, 5, 20, 33), (25, 0, 1, 9)], ids=str)
def test_sums_become_an_estimate(plain, region):
    search = searching(8)
    given = group_settings(search, "dct", "haar", kaiser=3.0)
    videos = Videos.of(linked=True)
    run = filtered(plain, given, lanes(search), videos, channels=2, region=region)
    top, left, ny, nx = region
    inside = np.s_[:, :, top : top + ny, left : left + nx]
    kaiser = np.kaiser(8, 3.0)
    weights = np.zeros(run.weights.shape)
    for y, x in np.ndindex(8, 8):
        part = run.weights[:, :, : 26 - y, : 38 - x] * kaiser[y] * kaiser[x]
        weights[:, :, y:, x:] += part
    sigmas = np.array([one.sigmas for one in videos.linked])[:, :, None, None]
    taken = sigmas * run.numerators / run.scale / (weights / run.units)
    expected = (videos.noisy - taken)[inside]
    np.testing.assert_allclose(run.out, expected, atol=1e-3)


# The whole filter


@cache
def video(nt=6, ny=33, nx=37, sigma=20.0) -> np.ndarray:
    return noisy(nt, ny, nx, sigma=sigma)


def linked_by_the_filter(frames: np.ndarray, sigmas, settings):
    """Return the links that the filter makes of the brightness of the frames."""
    held = FrameLinks((settings.frames_before, settings.frames_after), np.eye(1), np.ones(1))
    levels = Levels.of(frames)
    for t, frame in enumerate(frames):
        sigma = np.array([float(sigmas[t])])
        note = note_frame([frame[None]], sigma, levels, VBM3D())
        held.add(t, note)
    table, _ = held.links(0, len(frames))

    def links(r: int, t: int) -> Link:
        if not 0 <= settings.frames_before + t - r < table.shape[2]:
            return Link()
        return Link(*table[0, r, settings.frames_before + t - r, :2].astype(float))

    return links


def errors(device, frames, sigma, settings) -> np.ndarray:
    """Return how much the filter's result differs from the reference's, in grey levels."""
    result = gd.denoise(frames, settings, sigma, axes="TYX", device=device).image
    sigmas = np.broadcast_to(np.ravel(sigma), len(frames))
    assert np.abs(result - frames).max() > 1 or not sigmas.any()
    expected = slow(frames.tobytes(), frames.shape, tuple(sigmas), settings)
    return np.abs(result - expected)


@cache
def slow(frames: bytes, shape: tuple, sigmas: tuple, settings) -> np.ndarray:
    """Return what the reference makes of frames."""
    video = np.frombuffer(frames, np.float32).reshape(shape)
    links = linked_by_the_filter(video, sigmas, settings)
    return reference.vbm3d(video, sigmas, settings, links=links)


@pytest.fixture
def finely(monkeypatch):
    """Sums of whole numbers as fine as a small video allows.

    Those of the filter are safe from overflow whatever a video shows. Near the corners, and where a
    coefficient is as good as equal to the threshold, what they round off is seen.
    """
    monkeypatch.setattr(VideoSearch, "covering", lambda self, width: 64)


WHOLE = {
    "default": {},
    "causal": {"frames_after": 0, "frames_before": 3, "step_basic": 5, "step_final": 5},
    "uneven": {"frames_before": 1, "frames_after": 3, "window_nearest": 7},
}


@pytest.mark.parametrize("which", WHOLE)
def test_the_filter_is_that_of_the_reference(optimised, device, finely, which):
    settings = VBM3D(**WHOLE[which])
    assert errors(device, video(), 20.0, settings).max() < 3e-3


def test_sums_of_the_filter_are_fine_enough(device):
    """Measured: 0.03 grey levels at most, 3e-4 in the middle."""
    error = errors(device, video(), 20.0, VBM3D())
    assert np.median(error) < 1e-3
    assert error.max() < 0.1


def flickering() -> np.ndarray:
    """Return a video whose brightness changes from frame to frame."""
    gain = np.array([1, 1.3, 0.8, 1, 1.1, 0.9, 0.7, 1.2])[:, None, None]
    offset = np.array([0, 5, 0, -10, 0, 0, 20, 0])[:, None, None]
    noise = np.random.default_rng(1).normal(0, 20, (8, 40, 40))
    return (scene(8, 40, 40) * gain + offset + noise).astype(np.float32)


def test_flicker_and_a_frame_that_was_dropped(device, finely):
    frames, settings = flickering(), VBM3D(step_final=6)
    frames[3] = 77
    links = linked_by_the_filter(frames, np.full(8, 20.0), settings)
    assert links(2, 1).scale != 1
    assert links(2, 4).scale != 1
    assert errors(device, frames, 20.0, settings).max() < 3e-3


def test_every_frame_has_its_own_noise(device, finely):
    frames = flickering()
    sigma = np.array([20.0, 20, 0, 20, 45, 22, 18, 20])[:, None, None]
    settings = VBM3D(step_final=6)
    error = errors(device, frames, sigma, settings)
    assert error.max() < 3e-3
    assert not error[2].any()


@pytest.mark.parametrize("shape", [(1, 20, 9), (2, 5, 20)], ids=str)
def test_small_videos(device, finely, shape):
    error = errors(device, video(*shape), 20.0, VBM3D())
    assert error.max() < 3e-3
