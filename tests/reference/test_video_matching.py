"""The slow search of VBM3D against cases small enough to be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from napari_gpu_denoise.filters.vbm3d.predictive_search import VideoSearch
from reference.vbm3d import Pass
from reference.video_links import Link
from reference.video_matching import FURTHEST, find_matches, furthest

ALL = Pass(window=7, neighbours=64, similar=1e9, motion=False)  # all that the search keeps
MOTION = replace(ALL, motion=True, coarse=1)


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
    settings = replace(ALL, per_frame=4)
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
    matches = find_matches(video, 1, 1, 1, replace(ALL, per_frame=4), np.ones(3))
    corners = [(1, 1), (1, 0), (0, 1), (0, 0)]
    assert places(matches) == [(t, y, x) for t in (1, 0, 2) for y, x in corners]
    matches = find_matches(np.zeros((1, 20, 20)), 0, 6, 6, replace(ALL, per_frame=9), [1.0])
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
    matches = find_matches(video, 1, 16, 24, replace(ALL, per_frame=1), np.ones(3))
    assert places(matches) == [(1, 16, 24), (0, 16, 26), (2, 16, 22)]
    video[0] = random(40, 60, seed=1)
    video[0, 16:24, 20:28] = video[1, 16:24, 24:32]
    matches = find_matches(video, 1, 16, 24, replace(ALL, per_frame=1), np.ones(3))
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
    settings = replace(ALL, per_frame=per_frame)
    matches = find_matches(video, 2, 8, 8, settings, np.ones(5))
    assert len(set(places(matches))) == len(matches)
    assert [match[0] for match in sorted(matches)] == np.repeat(range(5), per_frame).tolist()


def test_search_of_whole_frames():
    """Windows that hold the whole frame: each frame gives its best, wherever the centres are."""
    video = random(4, 14, 13)
    settings = replace(ALL, window=39, window_next=39, per_frame=3, neighbours=8, similar=2.0)
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
    settings = replace(ALL, per_frame=49, neighbours=1000)
    matches = find_matches(video, 0, 20, 20, settings, np.ones(2))
    assert places(matches[:49]) == [
        (0, 20 + dy, 20 + dx) for dy in (0, -1, 1, -2, 2, -3, 3) for dx in (0, -1, 1, -2, 2, -3, 3)
    ]
    settings = replace(ALL, per_frame=1000, neighbours=1000, window=3)
    found = np.array(places(find_matches(video, 0, 20, 20, settings, np.ones(2))))
    following = found[found[:, 0] == 1]
    assert len(following) == 7 * 7, "around a centre of 3 x 3, two pixels further"
    assert (following.min(), following[:, 1:].min(), following.max()) == (1, 17, 23)


def test_patches_at_the_same_place_are_favoured():
    video = random(5, 24, 24)
    settings = replace(ALL, window=7, per_frame=2)
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


def test_the_best_match_is_followed():
    """The second best one, on the other side, leads nowhere."""
    video, pattern = random(4, 40, 70), random(8, 8, seed=1)
    for t, dx, added in (0, 0, 0), (1, -7, 0), (1, 7, 1), (2, -14, 1), (2, 14, 0), (3, -21, 0):
        video[t, 16:24, 30 + dx : 38 + dx] = pattern + added
    matches = find_matches(video, 0, 16, 30, replace(MOTION, window_next=3), np.ones(4))
    assert {(1, 16, 23, 0.0), (1, 16, 37, 1.0), (2, 16, 16, 1.0), (3, 16, 9, 0.0)} < set(matches)
    assert (2, 16, 44, 0.0) not in matches


@pytest.mark.parametrize("window", [1, 9])
def test_widths_of_the_windows_with_motion(window):
    """Equal patches everywhere, and all of them kept."""
    settings = replace(MOTION, per_frame=10000, neighbours=10000, window=window, window_nearest=5)
    settings = replace(settings, frames_before=0, frames_after=3, window_next=3)
    matches = find_matches(np.zeros((4, 60, 60)), 0, 20, 20, settings, np.ones(4))
    found = np.array(places(matches)) - (0, 20, 20)
    for t, far in (0, window // 2), (1, 2), (2, 1), (3, 1):
        there = found[found[:, 0] == t, 1:]
        assert len(there) == (2 * far + 1) ** 2
        assert abs(there).max() == far
    # A skipped frame: the first window is the second frame's.
    matches = find_matches(np.zeros((4, 60, 60)), 0, 20, 20, settings, np.ones(4), holes=[1])
    found = np.array(places(matches)) - (0, 20, 20)
    assert [np.sum(found[:, 0] == t) for t in (1, 2, 3)] == [0, 25, 9]


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
    settings = replace(MOTION, per_frame=1, neighbours=5)
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


@pytest.mark.parametrize(("coarse", "next_to", "far"), [(1, 3, 24), (2, 3, 27), (2, 15, FURTHEST)])
def test_random_tracks_stay_near(coarse, next_to, far):
    """Noise moves as it likes, in one frame and over skipped ones: never further than is known."""
    settings = replace(MOTION, window=3, coarse=coarse, window_next=next_to, per_frame=3)
    settings = replace(settings, frames_before=3, frames_after=3, neighbours=21)
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
    assert 12 < reached <= furthest(settings) == far


def test_furthest_by_hand():
    """7 pixels, then 7 + 2 more, then 7 + 2 + 2 more, as far as 32."""
    for frames, far in enumerate((7, 7, 16, 27, 32, 32)):
        assert furthest(replace(MOTION, frames_before=frames, frames_after=0)) == far
        assert furthest(replace(MOTION, frames_before=frames // 2, frames_after=frames)) == far
        assert furthest(replace(ALL, frames_before=frames, frames_after=0)) == 3 + 2 * frames
    for frames, far in enumerate((7, 9, 20, 32)):  # around the coarse ones 2 more
        settings = replace(MOTION, coarse=2, frames_before=frames, frames_after=0)
        assert furthest(settings) == far
    assert furthest(replace(MOTION, window=39)) == 32
    assert furthest(replace(MOTION, window_nearest=79)) == 39
    settings = replace(MOTION, window=39, window_nearest=9, window_next=7, frames_before=2)
    assert furthest(replace(settings, frames_after=1)) == 19
    assert furthest(replace(settings, frames_after=0, window=1)) == 4 + 4 + 3
    assert furthest(replace(settings, frames_after=3, window=1)) == 4 + 7 + 10


def test_furthest_is_that_of_the_filter():
    choices = product((False, True), (0, 1, 2, 5), (1, 15, 39), (1, 2, 4), (1, 9, 39), (1, 5, 15))
    for motion, frames, window, coarse, nearest, next_to in choices:
        for before, after in ((frames, frames // 2), (0, frames)):
            one = replace(ALL, motion=motion, window=window, coarse=coarse)
            one = replace(one, frames_before=before, frames_after=after)
            one = replace(one, window_nearest=nearest, window_next=next_to)
            filters = VideoSearch(8, 6, window, next_to, 2, 8, (before, after))
            filters = replace(filters, nearest=nearest * motion, coarse=coarse)
            assert furthest(one) == filters.furthest


def test_motion_changes_nothing_where_nothing_moves():
    video = np.repeat(random(1, 24, 24), 5, axis=0)
    settings = replace(MOTION, neighbours=5)
    matches = find_matches(video, 2, 8, 9, settings, np.ones(5))
    assert matches == [(t, 8, 9, 0.0) for t in (2, 1, 3, 0, 4)]


# Every so many displacements first


def bowls(*shifts) -> np.ndarray:
    """Return a video of a bowl, in each frame (dy, dx) away from the middle of a patch at (46, 46).

    The nearer a patch to its place, the less does it differ.
    """
    y, x = np.mgrid[:100, :100] - 49.5
    return np.array([(y - dy) ** 2 + (x - dx) ** 2 for dy, dx in shifts])


@pytest.mark.parametrize(("dy", "dx"), [(0, 0), (0, 6), (-5, 4), (7, -7), (9, 0)])
@pytest.mark.parametrize(("coarse", "last"), [(1, 7), (2, 8), (3, 8), (4, 6)])
def test_coarse_search_of_smooth_patterns(coarse, last, dy, dx):
    """As far as multiples of the spacing go, and two pixels further around what was found."""
    video = bowls((-dy, -dx), (0, 0), (dy, dx))
    matches = find_matches(video, 1, 46, 46, replace(MOTION, coarse=coarse), np.ones(3))
    exact = {match[:3] for match in matches if match[3] == 0}
    moved = [(t, s * dy, s * dx) for t, s in ((0, -1), (1, 0), (2, 1))]
    there = [(t, y, x) for t, y, x in moved if max(abs(y), abs(x)) <= last]
    assert exact == {(t, 46 + y, 46 + x) for t, y, x in there}


@pytest.mark.parametrize(("coarse", "first"), [(2, 0), (3, 0), (4, 0), (7, 0), (1, None)])
def test_places_of_the_coarse_search(coarse, first):
    """Equal patches everywhere: the nearest place, which is the same one, counts."""
    settings = replace(MOTION, per_frame=10000, neighbours=10000, coarse=coarse)
    settings = replace(settings, frames_before=1, frames_after=2)
    matches = find_matches(np.zeros((4, 60, 60)), 1, 26, 26, settings, np.ones(4))
    found = np.array(places(matches)) - (1, 26, 26)
    span = range(-7, 8) if first is None else range(first - 2, first + 3)
    for t in (-1, 1):
        there = found[found[:, 0] == t, 1:].tolist()
        assert sorted(there) == [list(place) for place in product(span, span)]
    # From the reference's own place the best one has not moved.
    following = found[found[:, 0] == 2, 1:]
    assert (following.min(), following.max(), len(following)) == (-2, 2, 25)


def test_coarse_places_are_not_kept():
    video, pattern = random(2, 40, 40), random(8, 8, seed=1)
    for t, dx, added in (0, 0, 0), (1, -6, 1), (1, 4, 0):
        video[t, 16:24, 16 + dx : 24 + dx] = pattern + added
    for coarse, kept in (1, True), (2, False):
        matches = find_matches(video, 0, 16, 16, replace(MOTION, coarse=coarse), np.ones(2))
        assert (1, 16, 20, 0.0) in matches
        assert ((1, 16, 10, 1.0) in matches) == kept


@pytest.mark.parametrize("third", [9, 10, 11])
def test_velocity_is_told_by_the_window_not_by_the_coarse_place(third):
    """Seen at 4 or 6 first and found at 5: then in the window of three pixels around 10."""
    video = bowls(*along_x(0, 5, third))
    settings = replace(MOTION, coarse=2, window_next=3)
    matches = find_matches(video, 0, 46, 46, settings, np.ones(3))
    assert {(1, 46, 51, 0.0), (2, 46, 46 + third, 0.0)} < set(matches)


# More of the same frame


def offsets(matches, t, y, x):
    return [(match[0] - t, match[1] - y, match[2] - x) for match in matches]


def test_the_same_frame_fills_the_group():
    """Equal patches everywhere: two of three frames, and then what comes next in the order."""
    settings = replace(MOTION, frames_before=1, frames_after=1, neighbours=10, window_nearest=5)
    video = np.zeros((3, 30, 30))
    matches = find_matches(video, 1, 11, 11, settings, np.ones(3))
    own = [(0, 0, dx) for dx in (0, -1, 1, -2, 2)] + [(0, -1, 0)]
    others = [(t, 0, dx) for t in (-1, 1) for dx in (0, -1)]
    assert offsets(matches, 1, 11, 11) == own + others
    narrow = replace(settings, window=1, per_frame=1)
    matches = find_matches(video, 1, 11, 11, narrow, np.ones(3))
    own = [(0, dy, dx) for dy in (0, -1) for dx in (0, -1, 1, -2, 2)][:8]
    assert offsets(matches, 1, 11, 11) == [*own, (-1, 0, 0), (1, 0, 0)]
    matches = find_matches(video, 1, 11, 11, replace(narrow, neighbours=100), np.ones(3))
    assert len(matches) == 25 + 2, "the window is not wider"
    still = find_matches(video, 1, 11, 11, replace(settings, motion=False), np.ones(3))
    assert len(still) == 6, "only where motion is followed"
    few = find_matches(video, 1, 11, 11, replace(narrow, per_frame=2), np.ones(3))
    assert offsets(few, 1, 11, 11)[0] == (0, 0, 0)
    assert sum(match[0] == 1 for match in few) == 1, "fewer than per_frame: there are no more"


def test_what_fills_the_group_is_near_enough():
    video = stripes([9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9])
    video = np.concatenate([video, np.full_like(video, 7)])
    settings = replace(MOTION, window=3, per_frame=2, window_nearest=15, neighbours=4)
    sigmas = [1.0, 9.0]  # the other frame is of no use
    # At 81 / 8 for each column of 9: one at -3 and 4 to the right, none from -2 to 3.
    found = find_matches(video, 0, 0, 3, settings, sigmas)
    assert offsets(found, 0, 0, 3) == [(0, 0, dx) for dx in (0, -1, 1, -2)]
    found = find_matches(video, 0, 0, 3, replace(settings, neighbours=8), sigmas)
    assert offsets(found, 0, 0, 3) == [(0, 0, dx) for dx in (0, -1, 1, -2, 2, 3, -3, 4)]
    near = replace(settings, neighbours=8, similar=81 / 8)
    assert find_matches(video, 0, 0, 3, near, sigmas) == found
    near = replace(near, similar=10.0)
    assert find_matches(video, 0, 0, 3, near, sigmas) == found[:6]


def test_what_would_have_been_better_does_not_fill_the_group():
    """It lies out of the window; what the window holds and does not keep is only the rest."""
    video = random(1, 30, 40)
    video[0, 11:19, 24:32] = video[0, 11:19, 16:24]
    settings = replace(MOTION, window=3, window_nearest=17, neighbours=300)
    matches = find_matches(video, 0, 11, 16, settings, [1.0])
    assert len(matches) > 200
    assert (0, 11, 24) not in places(matches)
    wide = find_matches(video, 0, 11, 16, replace(settings, window=17), [1.0])
    assert wide[1] == (0, 11, 24, 0.0)
    second = [match for match in wide if max(abs(match[1] - 11), abs(match[2] - 16)) < 2][1]
    assert matches == [wide[0], *wide[wide.index(second) :]]


def test_what_is_too_different_leads_a_track_but_is_no_match():
    shifts = along_x(0, 6, 12)
    video = shifted(*shifts)
    video[1] += 5
    settings = replace(MOTION, similar=24.0)
    matches = find_matches(video, 0, 46, 46, settings, np.ones(3))
    assert (2, 46, 58, 0.0) in matches
    assert {match[0] for match in matches} == {0, 2}
    assert {
        match[0]
        for match in find_matches(video, 0, 46, 46, replace(settings, similar=25.1), [1] * 3)
    } == {0, 1, 2}


def test_what_fills_the_group_is_within_reach_of_the_filter():
    """So far do its margins go, and so far apart are what a CPU filters at once."""
    matches = find_matches(np.zeros((1, 40, 40)), 0, 16, 16, replace(MOTION, neighbours=225), [1.0])
    far = max(abs(match[1] - 16) for match in matches)
    assert far == 7
    filters = VideoSearch(8, 6, 7, 5, 2, 8, (0, 0), nearest=15)
    assert filters.furthest >= far


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
