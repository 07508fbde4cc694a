"""The slow VBM3D against cases small enough to be worked out by hand, and against BM3D."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import scenes
from reference import bm3d
from reference import vbm3d as reference
from reference.vbm3d import Pass
from reference.video_matching import FURTHEST, Link, find_matches, furthest


@dataclass(frozen=True)
class Settings:
    """The attributes of the filter's settings, small enough for quick tests."""

    frames_before: int = 4
    frames_after: int = 4
    window: int = 7
    window_next: int = 5
    motion: bool = True
    window_nearest: int = 15
    per_frame: int = 2
    per_frame_own: int = 3
    neighbours_basic: int = 8
    neighbours_final: int = 8
    step_basic: int = 6
    step_final: int = 4
    transform_basic: str = "bior1.5"
    transform_final: str = "dct"
    stack_basic: str = "haar"
    stack_final: str = "haar"
    similar_basic: float = 25.0
    similar_final: float = 16.0
    still_basic: float = 0.2
    still_final: float = 0.1
    threshold: float = 2.7
    wiener: float = 1.0
    kaiser: float = 2.0
    shared_noise: bool = True
    stages: str = "both"


QUICK = Settings()
ALL = Pass(neighbours=64, similar=1e9, motion=False)  # everything that the search keeps
MOTION = replace(ALL, motion=True)


def keep(patches: int) -> dict:
    """Return the settings that keep so many patches of every frame, the reference's own too."""
    return {"per_frame": patches, "per_frame_own": patches}


def random(*shape, sigma=10.0, seed=0):
    return 100 + np.random.default_rng(seed).normal(0, sigma, shape)


def moving(nt: int, dy: int, dx: int, *, ny: int = 40, nx: int = 40) -> np.ndarray:
    """Return a video of a random pattern that moves by (dy, dx) pixels a frame."""
    pattern = random(80, 80)
    return np.array([pattern[20 - t * dy :, 20 - t * dx :][:ny, :nx] for t in range(nt)])


def stripes(*frames) -> np.ndarray:
    """Return frames 8 pixels high; a patch differs from others by its columns."""
    return np.repeat(np.array(frames, dtype=float)[:, None], 8, axis=1)


def places(matches):
    return [match[:3] for match in matches]


# Search


def test_static_video_matches_itself():
    video = np.repeat(random(1, 24, 24), 5, axis=0)
    matches = find_matches(video, 2, 8, 9, replace(ALL, neighbours=5), np.ones(5))
    assert matches == [(t, 8, 9, 0.0) for t in (2, 1, 3, 0, 4)], "the order 0, -1, 1, -2, 2"


def test_distances_and_order_by_hand():
    """Columns of 4 and 8 in patches of 8 columns: mean squares 16 / 8 = 2 and 64 / 8 = 8."""
    video = stripes(
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4],
        [8, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    )
    settings = replace(ALL, **keep(4))
    matches = find_matches(video, 1, 0, 1, settings, np.ones(3))
    assert matches == [
        *[(1, 0, 1, 0.0), (1, 0, 0, 0.0), (1, 0, 2, 0.0)],
        *[(0, 0, 1, 0.0), (0, 0, 0, 0.0), (2, 0, 2, 0.0), (2, 0, 3, 0.0)],
        *[(1, 0, 3, 2.0), (2, 0, 1, 2.0), (0, 0, 2, 8.0), (0, 0, 3, 8.0), (2, 0, 0, 10.0)],
    ]
    assert find_matches(video, 1, 0, 1, replace(settings, neighbours=8), np.ones(3)) == matches[:8]
    for similar, number in [(8.0, 11), (7.99, 9), (2.0, 9), (1.99, 7), (-1.0, 1)]:
        found = find_matches(video, 1, 0, 1, replace(settings, similar=similar), np.ones(3))
        assert found == matches[:number]
    # The limit is in units of the noise, 2.
    found = find_matches(video, 1, 0, 1, replace(settings, similar=0.5), [2.0, 2.0, 2.0])
    assert found == matches[:9]


def test_equal_patches_are_taken_by_displacement():
    video = np.zeros((3, 9, 9))
    matches = find_matches(video, 1, 1, 1, replace(ALL, **keep(4)), np.ones(3))
    corners = [(1, 1), (1, 0), (0, 1), (0, 0)]
    assert places(matches) == [(t, y, x) for t in (1, 0, 2) for y, x in corners]
    matches = find_matches(np.zeros((1, 20, 20)), 0, 6, 6, replace(ALL, **keep(9)), [1.0])
    offsets = [(y - 6, x - 6) for _, y, x, _ in matches]
    assert offsets == [(0, v) for v in (0, -1, 1, -2, 2, -3, 3)] + [(-1, 0), (-1, -1)]


@pytest.mark.parametrize(("dy", "dx"), [(0, 2), (-2, 1), (2, -2)])
def test_movement_is_followed_out_of_the_window(dy, dx):
    video = moving(9, dy, dx)
    matches = find_matches(video, 4, 16, 16, ALL, np.ones(9))
    exact = {match[:3] for match in matches if match[3] == 0}
    assert exact == {(t, 16 + (t - 4) * dy, 16 + (t - 4) * dx) for t in range(9)}


def test_movement_that_is_too_fast_is_lost():
    matches = find_matches(moving(3, 0, 3), 1, 16, 16, ALL, np.ones(3))
    assert [match[:3] for match in matches if match[3] == 0] == [(1, 16, 16)]
    wider = replace(ALL, window_next=7)
    matches = find_matches(moving(3, 0, 3), 1, 16, 16, wider, np.ones(3))
    assert len([match for match in matches if match[3] == 0]) == 3


def test_both_directions_start_at_the_reference():
    """Two frames on, the pattern is where both directions together would look, not one alone."""
    video = random(3, 40, 60)
    video[0, 16:24, 26:34] = video[1, 16:24, 24:32]
    video[2, 16:24, 22:30] = video[1, 16:24, 24:32]
    matches = find_matches(video, 1, 16, 24, replace(ALL, **keep(1)), np.ones(3))
    assert places(matches) == [(1, 16, 24), (0, 16, 26), (2, 16, 22)]
    video[0] = random(40, 60, seed=1)
    video[0, 16:24, 20:28] = video[1, 16:24, 24:32]
    matches = find_matches(video, 1, 16, 24, replace(ALL, **keep(1)), np.ones(3))
    assert (0, 16, 20) not in places(matches)


def test_frames_that_are_searched():
    video = random(9, 24, 24)
    settings = replace(ALL, frames_before=1, frames_after=3)
    for t, frames in (4, {3, 4, 5, 6, 7}), (0, {0, 1, 2, 3}), (8, {7, 8}):
        matches = find_matches(video, t, 8, 8, settings, np.ones(9))
        assert {match[0] for match in matches} == frames


@pytest.mark.parametrize("per_frame", [1, 2, 3, 5])
def test_patches_per_frame_each_once(per_frame):
    """The centres are neighbours here: their windows overlap."""
    y, x = np.mgrid[:24, :24]
    video = np.array([y**2 + x + 0.1 * t for t in range(5)])
    settings = replace(ALL, **keep(per_frame))
    matches = find_matches(video, 2, 8, 8, settings, np.ones(5))
    assert len(set(places(matches))) == len(matches)
    assert [match[0] for match in sorted(matches)] == np.repeat(range(5), per_frame).tolist()


def test_search_of_whole_frames():
    """Windows that hold the whole frame: each frame gives its best, wherever the centres are."""
    video = random(4, 14, 13)
    settings = replace(ALL, window=39, window_next=39, **keep(3), neighbours=8, similar=2.0)
    found = find_matches(video, 2, 3, 1, settings, np.full(4, 10.0))
    best = []
    for t in range(4):
        frame = []
        for y, x in np.ndindex(7, 6):
            difference = video[t, y : y + 8, x : x + 8] - video[2, 3:11, 1:9]
            frame.append((float(np.mean(difference**2)), t, y, x))
        best += sorted(frame)[:3]
    best = [(t, y, x, d2) for d2, t, y, x in sorted(best) if d2 <= 200][:8]
    assert 1 < len(best) <= 8
    assert places(found) == places(best)
    np.testing.assert_allclose([match[3] for match in found], [match[3] for match in best])


def test_widths_of_the_windows():
    """Equal patches everywhere: what is found shows where was looked."""
    video = np.zeros((2, 60, 60))
    settings = replace(ALL, **keep(49), neighbours=1000)
    matches = find_matches(video, 0, 20, 20, settings, np.ones(2))
    assert places(matches[:49]) == [
        (0, 20 + dy, 20 + dx) for dy in (0, -1, 1, -2, 2, -3, 3) for dx in (0, -1, 1, -2, 2, -3, 3)
    ]
    settings = replace(ALL, **keep(1000), neighbours=1000, window=3)
    found = np.array(places(find_matches(video, 0, 20, 20, settings, np.ones(2))))
    following = found[found[:, 0] == 1]
    assert len(following) == 7 * 7, "around a centre of 3 x 3, two pixels further"
    assert (following.min(), following[:, 1:].min(), following.max()) == (1, 17, 23)


def test_patches_at_the_same_place_are_favoured():
    video = random(5, 24, 24)
    settings = replace(ALL, window=7, **keep(2))
    sigmas = np.full(5, 10.0)
    plain = find_matches(video, 2, 8, 8, replace(settings, still=0.0), sigmas)
    # Without the bias another place is nearer in some frame; the distance is about 2 sigma^2.
    assert not {(t, 8, 8) for t in range(5)} <= set(places(plain))
    d2 = {t: np.mean((video[t, 8:16, 8:16] - video[2, 8:16, 8:16]) ** 2) for t in range(5)}
    matches = find_matches(video, 2, 8, 8, replace(settings, still=1.0), sigmas)
    same = {match[0]: match[3] for match in matches if match[1:3] == (8, 8)}
    assert same == pytest.approx({t: d2[t] - 100 * (t != 2) for t in range(5)})
    matches = find_matches(video, 2, 8, 8, replace(settings, still=9.0), sigmas)
    assert matches[:5] == [(t, 8, 8, 0.0) for t in (2, 1, 3, 0, 4)], "never below 0"
    other = [match for match in matches if match[1:3] != (8, 8)]
    assert all(match[3] > 100 for match in other), "no bias at other places, and in the frame"


def test_bias_moves_a_patch_below_the_limit():
    video = stripes([0] * 8, [4] + [0] * 7)
    settings = replace(ALL, similar=0.5)
    assert len(find_matches(video, 0, 0, 0, settings, [2.0, 2.0])) == 2
    assert len(find_matches(video, 0, 0, 0, settings, [1.9, 1.9])) == 1
    assert len(find_matches(video, 0, 0, 0, replace(settings, still=0.1), [1.9, 1.9])) == 2


# Patches of the reference's own frame


def test_patches_kept_of_the_own_frame():
    settings = replace(ALL, per_frame=1, per_frame_own=5, frames_after=2)
    for chosen in settings, replace(settings, motion=True):
        matches = find_matches(np.zeros((4, 30, 30)), 1, 11, 11, chosen, np.ones(4))
        offsets = [(t - 1, y - 11, x - 11) for t, y, x, _ in matches]
        own = [(0, 0, dx) for dx in (0, -1, 1, -2, 2)]
        assert offsets == [*own, (-1, 0, 0), (1, 0, 0), (2, 0, 0)]
        fewer = find_matches(
            np.zeros((4, 30, 30)), 1, 11, 11, replace(chosen, neighbours=6), [1] * 4
        )
        assert fewer == matches[:6], "all of them compete"


def test_tracks_start_from_fewer_patches():
    """The pattern of the next frame is in reach of the second best patch only."""
    video = random(2, 30, 40)
    pattern = random(8, 8, seed=1)
    video[0, 11:19, 11:19] = pattern
    settings = replace(ALL, per_frame_own=2, window=31)
    video[0, 11:19, 23:31] = pattern + 1
    video[1, 11:19, 25:33] = pattern
    for per_frame, found in (1, False), (2, True):
        chosen = replace(settings, per_frame=per_frame)
        matches = find_matches(video, 0, 11, 11, chosen, np.ones(2))
        assert {(0, 11, 11), (0, 11, 23)} < set(places(matches))
        assert ((1, 11, 25, 0.0) in matches) == found
        assert len(matches) == 2 + per_frame


# Motion


def shifted(*shifts, holes=()) -> np.ndarray:
    """Return a video of a random pattern, in each frame (dy, dx) away from where it was."""
    pattern = random(100, 100)
    video = np.array([np.roll(pattern, shift, axis=(0, 1)) for shift in shifts])
    video[list(holes)] = 77
    return video


def found_exactly(shifts, t=0, *, holes=(), **changes) -> list[int]:
    """Return the frames in which the pattern is found where it is."""
    settings = replace(MOTION, frames_before=8, frames_after=8, **changes)
    video = shifted(*shifts, holes=holes)
    y, x = 46 + shifts[t][0], 46 + shifts[t][1]
    matches = find_matches(video, t, y, x, settings, np.ones(len(video)), holes=holes)
    exact = sorted(match[:3] for match in matches if match[3] == 0)
    assert exact == [(k, 46 + shifts[k][0], 46 + shifts[k][1]) for k, *_ in exact]
    return [k for k, *_ in exact]


def along_x(*shifts):
    return [(0, dx) for dx in shifts]


@pytest.mark.parametrize(("dy", "dx"), [(0, 7), (-6, 5), (7, -7), (6, 0)])
def test_fast_movement_is_followed(dy, dx):
    """As far as 28 pixels away, though the windows reach 2 pixels."""
    shifts = [(t * dy, t * dx) for t in range(-4, 5)]
    assert found_exactly(shifts, 4) == list(range(9))
    assert found_exactly(shifts, 4, motion=False) == [4]


def test_how_fast():
    """The first window reaches 7 pixels."""
    assert found_exactly(along_x(0, 7)) == [0, 1]
    assert found_exactly(along_x(0, 8)) == [0]
    assert found_exactly(along_x(0, 8), window_nearest=17) == [0, 1]
    assert found_exactly([(0, 0), (7, -7)]) == [0, 1]
    assert found_exactly([(0, 0), (-8, 0)]) == [0]


def test_acceleration_is_followed():
    """As much as the windows reach: 2 pixels a frame more, or less."""
    assert found_exactly(along_x(0, 6, 14, 24)) == [0, 1, 2, 3]
    assert found_exactly(along_x(0, 6, 15)) == [0, 1]
    assert found_exactly(along_x(0, 6, 10, 12, 12, 10, 6, 0)) == list(range(8))
    assert found_exactly(along_x(0, 6, 9)) == [0, 1]
    assert found_exactly(along_x(0, 6, 9), window_next=7) == [0, 1, 2]
    assert found_exactly([(0, 0), (-5, 3), (-8, 8), (-9, 15), (-8, 24)]) == list(range(5))


def test_each_direction_has_its_own_velocity():
    shifts = along_x(12, 6, 0, 7, 14)  # it turned round in frame 2
    assert found_exactly(shifts, 2) == list(range(5))
    assert found_exactly(shifts[::-1], 2) == list(range(5))
    assert found_exactly(along_x(0, 0, 0, 7, 14), 2, window_next=1) == list(range(5))


def test_a_skipped_frame_is_moved_over():
    shifts = along_x(0, 6, 12, 18, 24)
    assert found_exactly(shifts, holes=[2]) == [0, 1, 3, 4]
    assert found_exactly(shifts, holes=[2, 3]) == [0, 1, 4]
    assert found_exactly(shifts[::-1], 4, holes=[2]) == [0, 1, 3, 4]
    assert found_exactly(shifts, holes=[2], window_next=1) == [0, 1, 3, 4]
    # In frame 3 it was expected at 18, and a frame earlier at 12: it has 7 pixels a frame now.
    assert found_exactly(along_x(0, 6, 0, 19, 27), holes=[2], window_next=3) == [0, 1, 3, 4]
    assert found_exactly(along_x(0, 6, 0, 19, 28), holes=[2], window_next=3) == [0, 1, 3]


def test_skipped_frames_before_the_velocity_is_known():
    """The wide window stays around the reference, and counts for as many frames as it took."""
    assert found_exactly(along_x(0, 3, 6, 9, 12), holes=[1], window_next=1) == [0, 2, 3, 4]
    assert found_exactly(along_x(0, 0, 0, 6, 8, 10), holes=[1, 2], window_next=1) == [0, 3, 4, 5]
    assert found_exactly(along_x(0, 0, 8), holes=[1]) == [0]
    # 7 pixels in 2 frames are 3 a frame, on either side, and later ones count each for itself.
    for side in 1, -1:
        shifts = along_x(0, 0, side * 7, side * 10, side * 13)
        assert found_exactly(shifts, holes=[1], window_next=1) == [0, 2, 3, 4]
    shifts = along_x(0, 0, 6, 10, 14)
    assert found_exactly(shifts, holes=[1], window_next=3) == [0, 2, 3, 4]
    assert found_exactly([(0, 0), (0, 0), (-7, -5), (-10, -7)], holes=[1], window_next=1) == [
        0,
        2,
        3,
    ]
    sigmas = [1.0, 9.0, 1.0, 1.0]
    video = shifted(*along_x(0, 0, 6, 9))
    matches = find_matches(video, 0, 46, 46, MOTION, sigmas)
    assert [match[:3] for match in matches if match[3] == 0] == [
        (0, 46, 46),
        (2, 46, 52),
        (3, 46, 55),
    ]


def test_velocity_is_that_of_the_best_match():
    """Found in frame 2 around the second best, it came from the best one, 8 pixels a frame."""
    video, pattern = random(4, 40, 60), random(8, 8, seed=1)
    for t, dx, added in (0, 0, 0), (1, -7, 0), (1, 7, 1), (2, 1, 0), (3, 10, 0):
        video[t, 16:24, 26 + dx : 34 + dx] = pattern + added
    settings = replace(MOTION, window_next=3)
    matches = find_matches(video, 0, 16, 26, settings, np.ones(4))
    assert {(1, 16, 19, 0.0), (1, 16, 33, 1.0), (2, 16, 27, 0.0), (3, 16, 36, 0.0)} < set(matches)
    # Alone, the best one leads on to where nothing is.
    matches = find_matches(video, 0, 16, 26, replace(settings, **keep(1)), np.ones(4))
    assert [match[:3] for match in matches if match[3] == 0] == [(0, 16, 26), (1, 16, 19)]


@pytest.mark.parametrize("window", [1, 9])
def test_widths_of_the_windows_with_motion(window):
    """Equal patches everywhere, and all of them kept."""
    settings = replace(MOTION, **keep(10000), neighbours=10000, window=window, window_nearest=5)
    settings = replace(settings, frames_before=0, frames_after=3, window_next=3)
    matches = find_matches(np.zeros((4, 60, 60)), 0, 20, 20, settings, np.ones(4))
    found = np.array(places(matches)) - (0, 20, 20)
    for t, far in (0, window // 2), (1, 2), (2, 3), (3, 4):
        there = found[found[:, 0] == t, 1:]
        assert len(there) == (2 * far + 1) ** 2
        assert abs(there).max() == far
    # A skipped frame: the first window is the second frame's.
    matches = find_matches(np.zeros((4, 60, 60)), 0, 20, 20, settings, np.ones(4), holes=[1])
    found = np.array(places(matches)) - (0, 20, 20)
    assert [np.sum(found[:, 0] == t) for t in (1, 2, 3)] == [0, 25, 49]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backwards", [False, True])
def test_centres_stay_in_the_image(axis, backwards):
    """The last place is 32. In flat frames the best match is the one nearest to the reference."""
    video = random(5, 40, 40)
    video[1, 16:24, 27:35] = video[0, 16:24, 20:28]
    video[2:] = 50
    video[4, 16:24, 29:37] = video[0, 16:24, 20:28]
    y, x = 16, 20
    if backwards:
        video, y, x = video[:, ::-1, ::-1], 40 - 8 - y, 40 - 8 - x
    if axis == 0:
        video, y, x = video.transpose(0, 2, 1), x, y
    settings = replace(MOTION, **keep(1))
    matches = find_matches(video, 0, y, x, settings, np.ones(5))
    sign = -1 if backwards else 1
    moved = {match[0]: sign * (match[1:3][axis] - (y, x)[axis]) for match in matches}
    # 27 + 7 is moved back to 32, whose window begins at 30; then 30 + 3; then 30 + 0.
    assert moved == {0: 0, 1: 7, 2: 10, 3: 10, 4: 9}
    across = {match[1:3][1 - axis] - (y, x)[1 - axis] for match in matches}
    assert across == {0}


def test_centres_stay_in_the_image_over_skipped_frames():
    """Frame 2 is skipped at 32, not 34: back at 31 in frame 3, it has moved by -1."""
    video, pattern = random(5, 40, 40), random(8, 8, seed=1)
    for t, x in (0, 20), (1, 27), (3, 31), (4, 29):
        video[t, 16:24, x : x + 8] = pattern
    settings = replace(MOTION, window_next=3)
    matches = find_matches(video, 0, 16, 20, settings, np.ones(5), holes=[2])
    exact = [match[:3] for match in matches if match[3] == 0]
    assert exact == [(0, 16, 20), (1, 16, 27), (3, 16, 31), (4, 16, 29)]


def test_no_match_is_further_than_the_furthest():
    """Windows end there: centres stop 2 pixels before 32."""
    assert found_exactly(along_x(0, 7, 16, 27, 32)) == [0, 1, 2, 3, 4]
    assert found_exactly(along_x(0, 7, 16, 27, 33)) == [0, 1, 2, 3]
    assert found_exactly([(-s, 0) for s in (0, 7, 16, 27, 32, 32)]) == list(range(6))
    assert found_exactly([(-s, s) for s in (0, 7, 16, 27, 28)]) == [0, 1, 2, 3, 4]
    assert found_exactly([(-s, s) for s in (0, 7, 16, 27, 27)]) == [0, 1, 2, 3]
    # So do those of skipped frames: frame 4 at 30, so that 32 in frame 5 is 2 pixels a frame.
    assert found_exactly(along_x(0, 7, 16, 27, 0, 32, 31), holes=[4]) == [0, 1, 2, 3, 5, 6]
    assert found_exactly(along_x(0, 7, 16, 27, 0, 32, 27), holes=[4]) == [0, 1, 2, 3, 5]


def test_no_match_is_further_than_any_movement_from_the_first_window():
    """3 pixels a frame, 24 in 8 frames. Here the velocity is 5, for frame 1 is skipped.

    In frame 2 the pattern is on both sides, 6 pixels apart: the best one has moved by -3, or -1 a
    frame. Then the other one, moved by -1, turns out to be the best, 5 pixels from the first.
    """
    video = random(9, 40, 80)
    pattern = np.tile(random(8, 6, seed=1), 3)
    for t, dx, width in (0, 0, 8), (2, -3, 14), *((t, 5 * t - 13, 8) for t in range(3, 8)):
        video[t, 16:24, 30 + dx : 30 + dx + width] = pattern[:, :width]
    video[8, 16:24, 54:62] = pattern[:, :8]  # not at 57
    settings = replace(MOTION, frames_before=0, frames_after=8, window_nearest=7, window_next=1)
    matches = find_matches(video, 0, 16, 30, settings, np.ones(9), holes=[1])
    exact = [(t, x - 30) for t, _, x, d2 in matches if d2 == 0]
    assert exact == [(0, 0), (2, -3), (2, 3), (3, 2), (4, 7), (5, 12), (6, 17), (7, 22), (8, 24)]


@pytest.mark.parametrize("next_to", [3, 15])
def test_random_tracks_stay_near(next_to):
    """Noise moves as it likes, in one frame and over skipped ones: never further than is known."""
    settings = replace(MOTION, window=3, window_nearest=15, window_next=next_to, **keep(3))
    settings = replace(settings, frames_before=3, frames_after=3)
    video = random(7, 90, 92)
    reached = 0
    for seed in range(30):
        y, x = np.random.default_rng(seed).integers(0, (83, 85)).tolist()
        holes = [2] * (seed % 2)
        matches = find_matches(video, 3, y, x, settings, np.ones(7), holes=holes)
        found = np.array(places(matches))
        assert (found[:, 1:] >= 0).all()
        assert (found[:, 1:] <= (82, 84)).all()
        reached = max(reached, abs(found[:, 1:] - (y, x)).max())
    assert 12 < reached <= furthest(settings) == {3: 24, 15: FURTHEST}[next_to]


def test_furthest_by_hand():
    """7 pixels, then 7 + 2 more, then 7 + 2 + 2 more, as far as 32."""
    for frames, far in enumerate((3, 7, 16, 27, 32, 32)):
        assert furthest(replace(MOTION, frames_before=frames, frames_after=0)) == far
        assert furthest(replace(MOTION, frames_before=frames // 2, frames_after=frames)) == far
    assert furthest(replace(MOTION, window=39)) == 32
    assert furthest(replace(MOTION, window_nearest=79)) == 39
    settings = replace(MOTION, window=39, window_nearest=9, window_next=7, frames_before=2)
    assert furthest(replace(settings, frames_after=1)) == 19
    assert furthest(replace(settings, frames_after=0, window=1)) == 4 + 4 + 3
    assert furthest(replace(settings, frames_after=3, window=1)) == 4 + 7 + 10


def test_motion_changes_nothing_where_nothing_moves():
    video = np.repeat(random(1, 24, 24), 5, axis=0)
    settings = replace(MOTION, neighbours=5)
    matches = find_matches(video, 2, 8, 9, settings, np.ones(5))
    assert matches == [(t, 8, 9, 0.0) for t in (2, 1, 3, 0, 4)]


# Frames that are not usable


@pytest.mark.parametrize(
    ("noise", "scale", "usable"),
    [
        *[(5.0, 1, True), (4.99, 1, False), (20.0, 1, True), (20.01, 1, False), (0.0, 1, False)],
        *[(4.0, 2, True), (30.0, 0.5, True), (6.0, 4, False), (12.0, 0.4, False)],
    ],
)
def test_frames_of_other_noise_are_not_used(noise, scale, usable):
    video = random(3, 16, 16)

    def links(r, t):
        return Link(scale) if (r, t) == (1, 2) else Link()

    matches = find_matches(video, 1, 4, 4, ALL, [10.0, 10.0, noise], links)
    assert {match[0] for match in matches} == ({0, 1, 2} if usable else {0, 1})


def test_centres_stay_over_a_hole():
    """Frame 2 tells nothing, and in frame 3 the pattern has moved on by 4 pixels."""
    video = moving(5, 0, 2)
    video[2] = 77
    for window_next, followed in (5, [1]), (9, [1, 3, 4]):
        settings = replace(ALL, window_next=window_next)
        matches = find_matches(video, 0, 16, 16, settings, np.ones(5), holes=[2])
        assert {match[0] for match in matches} == {0, 1, 3, 4}
        assert [match[0] for match in matches if match[3] == 0] == [0, *followed]
    sigmas = [1.0, 1.0, 9.0, 1.0, 1.0]
    assert find_matches(video, 0, 16, 16, settings, sigmas) == matches, "of other noise: the same"


def test_holes_are_unchanged_and_not_used():
    video = scenes.noisy(5, 20, 20).astype(float)
    video[1] = video[0, 0, 0]
    result = reference.vbm3d(video, 20.0, QUICK)
    np.testing.assert_array_equal(result[1], video[1])
    other = video.copy()
    other[1] = -1000
    again = reference.vbm3d(other, 20.0, QUICK)
    np.testing.assert_array_equal(again[[0, 2, 3, 4]], result[[0, 2, 3, 4]])
    np.testing.assert_array_equal(again[1], other[1])
    # A frame without noise is a hole, too, whatever it shows.
    other[1] = random(20, 20)
    again = reference.vbm3d(other, [20.0, 0.0, 20.0, 20.0, 20.0], QUICK)
    np.testing.assert_array_equal(again[[0, 2, 3, 4]], result[[0, 2, 3, 4]])
    np.testing.assert_array_equal(again[1], other[1])
    assert abs(result - video)[[0, 2, 3, 4]].mean() > 5


# Groups


def test_groups_are_powers_of_two():
    video = scenes.noisy(4, 24, 32).astype(float)
    sigmas = np.full(4, 20.0)
    settings = Pass(similar=2.0, neighbours=8)
    groups = list(reference.filter_groups(video, video, sigmas, settings))
    positions = [(t, y, x) for t in range(4) for y in (0, 6, 12, 16) for x in (0, 6, 12, 18, 24)]
    assert [group.position for group in groups] == positions
    assert {len(group.matches) for group in groups} == {1, 2, 4, 8}
    for group in groups:
        found = find_matches(video, *group.position, settings, sigmas)
        assert group.matches == found[: len(group.matches)]
        assert len(found) < 2 * len(group.matches)
        assert group.level == video[group.position]
        assert group.spectrum.shape == (len(group.matches), 8, 8)


def test_some_groups_only():
    video = random(3, 16, 16)
    sigmas = np.full(3, 10.0)
    groups = list(reference.filter_groups(video, video, sigmas, Pass(), frames=[2, 0], holes=[0]))
    assert [group.position[0] for group in groups] == [2] * 9
    chosen = [(1, 3, 5), (0, 0, 0)]
    groups = list(reference.filter_groups(video, video, sigmas, Pass(), positions=chosen))
    assert [group.position for group in groups] == chosen
    result = reference.one_pass(video, sigmas, replace(Pass(), frames_after=0), frames=[1])
    assert (result[1] != video[1]).all()
    np.testing.assert_array_equal(result[2], video[2])


def test_spectrum_and_sigma_of_linked_frames_by_hand():
    """Value 13 in frame 1 is 13 * 2 - 4 = 22 in frame 0, its noise 1.5 is 3."""
    video = np.array([np.full((8, 8), 10.0), np.full((8, 8), 13.0)])

    def links(r, t):
        return Link(2.0, -4.0) if (r, t) == (0, 1) else Link()

    settings = replace(ALL, transform="haar", similar=9.0)
    sigmas = [4.0, 1.5]
    (group,) = reference.filter_groups(
        video, video, sigmas, settings, links=links, positions=[(0, 0, 0)]
    )
    assert group.matches == [(0, 0, 0, 0.0), (1, 0, 0, 144.0)]
    assert group.sigma == pytest.approx(12.5**0.5)
    np.testing.assert_array_equal(group.scales, [1, 2])
    second = 8 * 12 / 12.5**0.5
    assert group.spectrum[:, 0, 0] == pytest.approx([second / 2**0.5, -second / 2**0.5])
    # Their only difference removed, both become the mean, 16 in frame 0 and 10 in frame 1.
    known = {"links": links, "frames": [0]}
    settings = replace(settings, threshold=30.0, frames_before=1)
    result = reference.one_pass(video, sigmas, settings, **known)
    np.testing.assert_allclose(result[:, 0, 0], [16, 10])


def test_guide_is_taken_from_the_basic_estimate():
    noisy, basic = random(2, 8, 8), random(2, 8, 8, seed=1)

    def links(r, t):
        return Link(1.5, 3.0) if r != t else Link()

    settings = replace(ALL, wiener=0.8, transform="dct")
    options = {"links": links, "positions": [(1, 0, 0)]}
    (group,) = reference.filter_groups(noisy, basic, [10.0, 10.0], settings, basic, **options)
    assert places(group.matches) == [(1, 0, 0), (0, 0, 0)]
    difference = basic[1] - (1.5 * basic[0] + 3)
    assert group.matches[1][3] == pytest.approx(np.mean(difference**2)), "not of the noisy video"
    assert group.level == noisy[1, 0, 0]
    for video, spectrum in (noisy, group.spectrum), (basic, group.guide):
        flat = np.hstack([video[1], 1.5 * video[0] + 3])
        how = group.level, group.sigma, "dct", "haar"
        expected = bm3d.group_spectrum(flat, [(0, 0), (0, 8)], *how)
        np.testing.assert_allclose(spectrum, expected, atol=1e-10)
    removed, weight = bm3d.shrink_wiener(group.spectrum, group.guide, 0.64)
    np.testing.assert_allclose(group.removed, removed, atol=1e-12)
    assert group.weight == pytest.approx(weight)


@pytest.mark.parametrize("transform", ["bior1.5", "dct"])
def test_noise_is_shared_within_a_frame_only(transform):
    """Every coefficient is a sum of pixels: its variance is that of their squared weights."""
    found = [(1, 4, 4), (0, 4, 4), (1, 4, 5), (2, 4, 5), (2, 6, 2), (2, 4, 4), (0, 0, 0), (3, 0, 0)]
    matches = [(*place, 0.0) for place in found]
    settings = Pass(transform=transform, shared_noise=True)
    groups, squares = [], 0.0
    for place in np.ndindex(4, 14, 13):
        pixel = np.zeros((4, 14, 13))
        pixel[place] = 1
        groups.append(reference.filter_group(pixel, matches, np.ones(4), settings))
        levels = np.zeros((8, 8, 8))
        levels[0, 0, 0] = 8 * 8**0.5 * groups[-1].level
        squares = squares + (groups[-1].spectrum + levels) ** 2
    expected = np.maximum(squares, bm3d.LEAST_VARIANCE)
    variance = groups[0].variance
    np.testing.assert_allclose(variance, expected, rtol=1e-10)
    assert variance[0, 0, 0] > 1.3
    assert variance.min() < 0.8
    apart = [(t, 4, 4, 0.0) for t in range(4)]
    group = reference.filter_group(random(4, 14, 13), apart, np.ones(4), settings)
    np.testing.assert_allclose(group.variance, 1)
    removed, weight = bm3d.shrink_hard(groups[99].spectrum, settings.threshold, variance)
    np.testing.assert_array_equal(groups[99].removed, removed)
    assert groups[99].weight == weight
    assert reference.filter_group(pixel, matches, np.ones(4), Pass()).variance == 1.0


# Aggregation


def test_aggregate_by_hand():
    """Both tell of frame 1, whose grey levels are half those of frame 2.

    With the first row of Haar's matrix alone, both patches of a group lose half a sigma; with both
    rows the first one loses a sigma, and the second nothing.
    """
    settings = Pass(transform="dct", frames_before=2, frames_after=1, kaiser=2.0)
    mean, both = np.zeros((2, 2, 8, 8))
    mean[0, 0, 0] = both[:, 0, 0] = 8 / 2**0.5
    video = random(3, 8, 9)

    def lost(removed):
        first = [(0, 0, 0, 0.0), (1, 0, 1, 0.0)]
        second = [(2, 0, 1, 0.0), (1, 0, 0, 0.0)]
        groups = [
            reference.Group((0, 0, 0), first, np.ones(2), 0, 2.0, mean, None, removed, 1.0),
            reference.Group((2, 0, 1), second, np.array([1, 2]), 0, 5.0, mean, None, removed, 3.0),
        ]
        return video - reference.aggregate(video, groups, settings)

    left, right = np.append(np.kaiser(8, 2.0), 0), np.append(0, np.kaiser(8, 2.0))
    middle = (1.0 * right + 1.25 * 3 * left) / (right + 3 * left)
    for removed, *columns in (
        (mean, [1] * 8 + [0], middle, [0] + [2.5] * 8),
        (both, [2] * 8 + [0], [0] * 9, [0] + [5] * 8),
    ):
        expected = np.array(columns)[:, None].repeat(8, axis=1)
        np.testing.assert_allclose(lost(removed), expected, atol=1e-12)


@pytest.mark.parametrize(("before", "after", "reach"), [(2, 2, 2), (3, 1, 1), (1, 3, 1), (4, 0, 0)])
def test_estimates_of_earlier_frames(before, after, reach):
    """A reference in frame 4 tells of frames 4 - reach ... 4 + after."""
    video = np.repeat(random(1, 16, 16), 9, axis=0)
    video += random(9, 16, 16, sigma=0.1, seed=1)
    settings = replace(ALL, frames_before=before, frames_after=after, neighbours=16)
    result = reference.one_pass(video, np.full(9, 10.0), settings, frames=[4])
    changed = [t for t in range(9) if (result[t] != video[t]).any()]
    assert changed == list(range(4 - reach, 4 + after + 1))


def test_no_frame_waits_for_later_ones():
    video = scenes.noisy(6, 20, 20).astype(float)
    settings = replace(QUICK, frames_after=0)
    result = reference.vbm3d(video, 20.0, settings)
    other = video.copy()
    other[3:] = random(3, 20, 20)
    again = reference.vbm3d(other, 20.0, settings)
    np.testing.assert_array_equal(again[:3], result[:3])
    np.testing.assert_array_equal(reference.vbm3d(video[:3], 20.0, settings), result[:3])
    alone = reference.vbm3d(video, 20.0, replace(settings, frames_before=0))
    assert (alone[2] != result[2]).any(), "but it looks at earlier ones"


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 2)])
def test_delay(before, after):
    """Groups tell of frames up to min(before, after) earlier, and look `after` further."""
    video = scenes.noisy(8, 16, 16).astype(float)
    chosen = {"frames_before": before, "frames_after": after, "stages": "basic"}
    settings = replace(QUICK, **chosen, **keep(1), neighbours_basic=8)
    delay = after + min(before, after)
    result = reference.vbm3d(video, 20.0, settings)
    for later, same in (delay + 1, True), (delay, False):
        other = video.copy()
        other[later] = video[0, ::-1]
        again = reference.vbm3d(other, 20.0, settings)
        assert (again[0] == result[0]).all() == same


# The whole filter


def test_passes_of_settings():
    common = {
        **{
            "frames_before": 1,
            "frames_after": 2,
            "window": 9,
            "window_next": 3,
            "per_frame": 5,
            "per_frame_own": 6,
        },
        **{"threshold": 2.5, "wiener": 0.75, "kaiser": 1.5, "motion": False, "window_nearest": 13},
    }
    own = [
        *[("neighbours", 4, 16), ("step", 3, 2), ("transform", "haar", "dft")],
        *[("stack", "dct", "haar"), ("similar", 9.0, 4.0), ("still", 0.5, 0.25)],
    ]
    chosen = {f"{name}_basic": value for name, value, _ in own}
    chosen |= {f"{name}_final": value for name, _, value in own}
    settings = Settings(**common, **chosen)
    basic, final = ({name: pair[k] for name, *pair in own} for k in range(2))
    assert Pass.of(settings, "basic") == Pass(**common, **basic, shared_noise=False)
    assert Pass.of(settings, "final") == Pass(**common, **final, shared_noise=True)
    assert not Pass.of(replace(settings, shared_noise=False), "final").shared_noise
    assert {field.name for field in fields(Pass)} == {*common, *basic, "shared_noise"}


@pytest.mark.parametrize("stages", ["basic", "both"])
def test_one_frame_is_bm3d(stages):
    """All patches of a group from one frame: another search finds what BM3D's finds."""
    image = scenes.noisy(32, 32).astype(float)
    settings = replace(QUICK, stages=stages, window=15, per_frame_own=16)
    settings = replace(settings, neighbours_basic=16, neighbours_final=16)

    class Still:  # the same settings for BM3D
        prefilter = "off"
        window_basic = window_final = 15

        def __getattr__(self, name):
            return getattr(settings, name)

    result = reference.vbm3d(image[None], 20.0, settings)
    np.testing.assert_allclose(result[0], bm3d.bm3d(image, 20.0, Still()), atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 20), (3, 8, 8), (2, 9, 7)])
def test_small_videos(shape):
    video = random(*shape)
    before = video.copy()
    result = reference.vbm3d(video, 10.0, QUICK)
    assert result.shape == shape
    assert result.dtype == np.float64
    assert np.isfinite(result).all()
    np.testing.assert_array_equal(video, before)
    np.testing.assert_array_equal(reference.vbm3d(video, 0.0, QUICK), video)


def test_grey_levels_are_relative():
    video = scenes.noisy(3, 20, 20).astype(float)
    result = reference.vbm3d(video, 20.0, QUICK)
    np.testing.assert_allclose(reference.vbm3d(video - 900, 20, QUICK) + 900, result, atol=1e-9)
    np.testing.assert_allclose(reference.vbm3d(3 * video, 60.0, QUICK) / 3, result, atol=1e-9)


def test_time_may_run_backwards():
    """Without the bias no distances are equal, and the same groups come in the same order."""
    video = scenes.noisy(5, 20, 20).astype(float)
    settings = replace(QUICK, still_basic=0.0, still_final=0.0)
    result = reference.vbm3d(video, 20.0, settings)
    backwards = reference.vbm3d(video[::-1], 20.0, settings)[::-1]
    np.testing.assert_allclose(backwards, result, atol=1e-9)


def test_linked_brightness():
    """Each frame in grey levels of its own: the result of the same video, in those levels."""
    video = scenes.noisy(5, 20, 20).astype(float)
    gain = np.array([1.0, 2.5, 0.3, 1.0, 1.7])
    offset = np.array([0.0, -50.0, 0.0, 80.0, 7.0])

    def links(r, t):
        scale = gain[r] / gain[t]
        return Link(scale, offset[r] - offset[t] * scale)

    def changed(frames):
        return frames * gain[:, None, None] + offset[:, None, None]

    expected = changed(reference.vbm3d(video, 20.0, QUICK))
    result = reference.vbm3d(changed(video), 20.0 * gain, QUICK, links=links)
    np.testing.assert_allclose(result, expected, atol=1e-8)
    unlinked = reference.vbm3d(changed(video), 20.0 * gain, QUICK)
    assert abs(unlinked - expected).mean() > 1


def test_noise_of_each_frame():
    """Frames 0 and 1 see nothing of 2 and 3, which are much noisier, and the other way round."""
    video = scenes.noisy(4, 20, 20).astype(float)
    result = reference.vbm3d(video, [10.0, 15.0, 40.0, 60.0], QUICK)
    np.testing.assert_array_equal(result[:2], reference.vbm3d(video[:2], [10.0, 15.0], QUICK))
    np.testing.assert_array_equal(result[2:], reference.vbm3d(video[2:], [40.0, 60.0], QUICK))


def test_quality():
    """22.1 dB before; measured 34.9 dB, 32.7 dB after the first pass, 31.6 dB frame by frame."""
    clean, noisy = scenes.scene(8, 40, 40), scenes.noisy(8, 40, 40)
    result = reference.vbm3d(noisy, 20.0, QUICK)
    basic = reference.vbm3d(noisy, 20.0, replace(QUICK, stages="basic"))
    alone = replace(QUICK, frames_before=0, frames_after=0, per_frame_own=8, window=15)
    frames = reference.vbm3d(noisy, 20.0, alone)
    assert scenes.psnr(basic, clean) > scenes.psnr(noisy, clean) + 10
    assert scenes.psnr(result, clean) > scenes.psnr(basic, clean) + 1.5
    assert scenes.psnr(result, clean) > scenes.psnr(frames, clean) + 2.5


def test_flat_noise_is_lost():
    result = reference.vbm3d(random(6, 32, 32), 10.0, QUICK)
    assert (result - 100).std() < 0.1 * 10
