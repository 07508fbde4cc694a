"""The predictive search of VBM3D on a device, match by match, against the slow one in NumPy.

Pixels are small whole numbers, and links powers of two: distances have no rounding, and are equal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from filters.one_pass import Plain
from filters.one_video_pass import (
    PATCHES,
    Linked,
    found_by,
    matches_of,
    positions,
    search_settings,
    slow,
    tracks,
)
from napari_gpu_denoise.filters.search.patch_search import Variant
from napari_gpu_denoise.filters.search.video_search import choose_video_variant
from reference.block_motion import block_motions
from reference.video_matching import find_matches
from scenes import scene

SIGMA = 16.0
SHAPE = (5, 26, 35)


@pytest.fixture(scope="module")
def plain(device):
    return Plain.of(device)


@cache
def moving(nt: int, ny: int, nx: int) -> np.ndarray:
    """Return a noisy video, 0 to 255, that moves by a fraction of its texture a frame."""
    clean = np.array([scene(1, ny + 40, nx + 40)[0, t * 2 :, t * 3 :][:ny, :nx] for t in range(nt)])
    noise = np.random.default_rng(0).normal(0, SIGMA, clean.shape)
    return np.clip(np.rint(clean + noise), 0, 255)


@cache
def slow_matches(shape, linked, search) -> dict[tuple, list]:
    return matches_in(frames_of(shape, linked), linked, search)


def matches_in(video: np.ndarray, linked: Linked, search) -> dict[tuple, list]:
    """Return the matches of every reference (t, y, x), as the reference finds them."""
    shape, found = video.shape, {}
    motions = block_motions(video, search.nearest, linked.sigmas, linked, linked.holes)
    for t in range(shape[0]):
        for _, _, y, x in positions(shape[1:], search.step):
            if t not in linked.holes:
                given = (slow(search), linked.sigmas, linked, linked.holes, motions)
                found[t, y, x] = find_matches(video, t, y, x, *given)
    return found


@cache
def frames_of(shape, linked: Linked) -> np.ndarray:
    video = moving(*shape)
    if linked.gains:
        # Fewer levels, so that sums of squares of all frames fit the digits of a float.
        gain, offset = (np.array(v)[:, None, None] for v in (linked.gains, linked.offsets))
        video = np.rint(video / 4) * gain + offset
    return video


def check(session, search, variant, linked=None, shape=SHAPE) -> None:
    """Check all matches of all references."""
    linked = linked or Linked((SIGMA,) * shape[0])
    video, expected = frames_of(shape, linked), slow_matches(shape, linked, search)
    compare(session, search, variant, linked, video, expected)


def compare(session, search, variant, linked, video, expected) -> None:
    """Check that a kernel finds the expected matches."""
    shape = video.shape
    # The kernels for GPUs go together.
    vector = None if variant.kernel == "search_patches" else False
    keys, places = found_by(session, search, variant, video, linked, vector=vector)
    for t in range(shape[0]):
        for row, column, y, x in positions(shape[1:], search.step):
            if t in linked.holes:
                assert not keys[t].any(), "written, though there is nothing to search for"
                continue
            found = matches_of(keys[t, row, :, column], places[t, row, :, column], t, y, x)
            assert found == expected[t, y, x], (t, y, x)


def name(variant: Variant) -> str:
    return f"{variant.kernel}-{'-'.join(map(str, variant.constants.values()))}"


# What is searched, by the names of the filter's settings; `window_next` has to be odd.
FOLLOWED = {
    "default": {},
    "narrow": {"window_next": 3, "per_frame": 3, "neighbours": 16},
    "one place": {"window_next": 1, "window": 1, "neighbours": 8, "still": 0.5},
    "own frame alone": {"frames": (0, 0), "window": 7, "neighbours": 8, "similar": 3.0},
    "earlier alone": {"frames": (2, 0), "window_nearest": 7, "neighbours": 2},
    "later alone": {"frames": (0, 2), "window": 1, "per_frame": 1, "similar": 2.5},
    "four and one": {"frames": (4, 1), "window": 7, "step": 5, "similar": 1.75},
    "the reference alone": {"neighbours": 1, "frames": (1, 1), "step": 8, "window_nearest": 3},
    "as the filter": {"window_next": 3, "window": 3, "frames": (3, 3)},
    "wide": {"window_nearest": 21, "frames": (1, 2), "still": 2.0, "step": 7},
}


LINKED = {
    "other levels": Linked((16.0, 32.0, 8.0, 16.0, 64.0), (1, 2, 0.5, 1, 4), (0, -8, 4, 64, 0)),
    "unlike frames": Linked((16.0, 33.0, 16.0, 64.0, 20.0)),
    "holes": Linked((16.0, 16.0, 0.0, 16.0, 16.0)),
    "levels and holes": Linked((0.0, 32.0, 0.0, 8.0, 4.0), (1, 2, 1, 0.5, 1), (0, 3, 0, 2, -4)),
}


FOLLOWING = pytest.mark.parametrize("variant", [tracks(3, 2), PATCHES], ids=name)


@FOLLOWING
@pytest.mark.parametrize("which", FOLLOWED)
def test_tracks_are_those_of_the_reference(plain, variant, which):
    search = search_settings(**FOLLOWED[which])
    if variant.kernel == "search_tracks" and which != "later alone":
        variant = tracks(3, 2, 1 + all(search.frames))
    check(plain, search, variant)


@FOLLOWING
@pytest.mark.parametrize("which", LINKED)
def test_links_scale_and_shift_and_leave_frames_out(plain, variant, which):
    search = search_settings(window_next=3, frames=(4, 3), similar=4.0, step=7)
    check(plain, search, variant, LINKED[which])


FAR = search_settings(frames=(4, 4), step=8, similar=1000.0, window_nearest=23)


@cache
def faster(axis: int, turn: int) -> tuple[np.ndarray, Linked, dict[tuple, list]]:
    """Return a pattern that goes on faster and faster, and its matches."""
    pattern = np.random.default_rng(0).integers(0, 256, (90, 90)).astype(float)
    video = np.array([np.roll(pattern, shift, axis=axis) for shift in (0, 7, 16, 26, 32)])
    part = np.s_[::turn, :, :12] if axis == 0 else np.s_[::turn, :12]
    linked = Linked((SIGMA,) * 5)
    return video[part].copy(), linked, matches_in(video[part], linked, FAR)


@FOLLOWING
@pytest.mark.parametrize("axis", [0, 1])
def test_tracks_end_as_far_away_as_a_match_may_lie(plain, variant, axis):
    """There are 32 pixels to go, both ways."""
    for turn in (1, -1):
        video, linked, found = faster(axis, turn)
        compare(plain, FAR, variant, linked, video, found)
        far = max(abs(m[1 + axis] - at[1 + axis]) for at, most in found.items() for m in most)
        assert far == 32


@FOLLOWING
@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 8, 19), (3, 9, 11), (2, 10, 9)], ids=str)
def test_small_frames(plain, variant, shape):
    check(plain, search_settings(frames=(1, 2)), variant, shape=shape)


def test_the_kernel_of_the_device_as_the_compiler_optimises_it(optimised, device):
    search = search_settings()
    check(optimised, search, choose_video_variant(search, device))
