"""Frames of a video: which are filtered together, and how their grey levels correspond."""

from __future__ import annotations

import math

import numpy as np
import pytest

from napari_gpu_denoise.filters.channels import OPPONENT
from napari_gpu_denoise.filters.search.frame_links import FrameLinks
from napari_gpu_denoise.image.flicker import (
    block_means,
    block_pixels,
    brightness_changes,
)
from napari_gpu_denoise.protocol.plan import FrameNote
from scenes import scene

SHAPE = (96, 128)
SIGMA = 4.0


def note(planes, sigma=SIGMA) -> FrameNote:
    """What is known of a frame, (ny, nx) or (channels, ny, nx)."""
    planes = np.reshape(planes, (-1, *SHAPE))
    means = np.array([block_means(plane) for plane in planes])
    level = np.broadcast_to(np.asarray(sigma, np.float64), len(planes)).copy()
    return FrameNote(level, means, block_pixels(SHAPE))


def empty(channels: int = 1) -> FrameNote:
    return FrameNote(np.zeros(channels))


def inverse(change):
    return 1 / change[0], -change[1] / change[0]


def flickering(count: int, sigma: float = SIGMA, seed: int = 0):
    """Return frames of a still scene whose brightness changes, and the changes from the first."""
    rng = np.random.default_rng(seed)
    still = scene(*SHAPE)
    changes = list(zip(rng.uniform(0.7, 1.4, count), rng.uniform(-20, 20, count), strict=True))
    frames = [gain * still + offset + rng.normal(0, sigma, SHAPE) for gain, offset in changes]
    return frames, changes


def made(notes, frames=(2, 2), matrix=((1.0,),), guide=(1.0,), weighted=False) -> FrameLinks:
    links = FrameLinks(frames, matrix, guide, weighted)
    for t, one in enumerate(notes):
        if one is not None:
            links.add(t, one)
    return links


def changes_of(notes, noise=SIGMA) -> list[tuple[float, float]]:
    """Return what is measured from each frame that is there to the next one."""
    there = [n for n in notes if not n.empty]
    means = np.array([one.means[0] for one in there])
    noises = np.full(len(there) - 1, noise * math.sqrt(2 / block_pixels(SHAPE)))
    return [tuple(pair) for pair in brightness_changes(means[:-1], means[1:], noises).tolist()]


def test_levels_and_links_of_frames_that_stay_as_they_are():
    links = made([FrameNote(np.array([SIGMA]))] * 5)
    np.testing.assert_array_equal(links.levels(1, 3), np.full((1, 3), SIGMA, np.float32))
    filtered, guide = links.links(0, 5)
    assert filtered.shape == (1, 5, 5, 3) and guide.shape == (5, 5, 3)
    assert filtered.dtype == guide.dtype == np.float32
    assert filtered.flags.c_contiguous and guide.flags.c_contiguous
    np.testing.assert_array_equal(filtered[0], guide)
    for t in range(5):
        for k, other in enumerate(range(t - 2, t + 3)):
            expected = (1, 0, SIGMA) if 0 <= other < 5 else (0, 0, 0)
            np.testing.assert_array_equal(guide[t, k], expected)


@pytest.mark.parametrize("frames", [(2, 2), (4, 0), (0, 3), (1, 2), (0, 0)])
def test_links_are_the_changes_between_two_frames_one_after_the_other(frames):
    pictures, known = flickering(8)
    notes = [note(one) for one in pictures]
    steps = changes_of(notes)
    assert (1, 0) not in steps
    filtered, _ = made(notes, frames).links(0, 8)
    for t in range(8):
        for k, other in enumerate(range(t - frames[0], t + frames[1] + 1)):
            if not 0 <= other < 8:
                np.testing.assert_array_equal(filtered[0, t, k], 0)
                continue
            gain, offset = 1.0, 0.0
            for one in steps[min(t, other) : max(t, other)]:
                gain, offset = one[0] * gain, one[0] * offset + one[1]
            # From the other frame to this one.
            gain, offset = (gain, offset) if other < t else inverse((gain, offset))
            scale, shift, noise = filtered[0, t, k]
            assert scale == pytest.approx(gain, rel=1e-5)
            assert shift == pytest.approx(offset, rel=1e-4, abs=1e-3)
            assert noise == pytest.approx(gain * SIGMA, rel=1e-5)
            # And that is how the scene changed.
            for level in (50, 200):
                here, there = (gain * level + offset for gain, offset in (known[t], known[other]))
                assert abs(scale * there + shift - here) < 2
        np.testing.assert_array_equal(filtered[0, t, frames[0]], (1, 0, np.float32(SIGMA)))


@pytest.mark.parametrize("frames", [(2, 2), (3, 0), (0, 3), (1, 3)])
def test_what_comes_long_before_or_after_changes_no_bit(frames):
    pictures, _ = flickering(20)
    notes = [note(one) for one in pictures]
    notes[9] = empty()
    whole, whole_guide = made(notes, frames).links(8, 3)
    near = range(8 - frames[0], 11 + frames[1])
    others = [note(one) for one in flickering(20, seed=5)[0]]
    mixed = [notes[t] if t in near else others[t] for t in range(20)]
    alone = [notes[t] if t in near else None for t in range(20)]
    for given in (mixed, alone, notes[: near.stop]):
        filtered, guide = made(given, frames).links(8, 3)
        np.testing.assert_array_equal(filtered, whole)
        np.testing.assert_array_equal(guide, whole_guide)
    # One within reach does.
    notes[near[0]] = others[near[0]]
    notes[near[-1]] = others[near[-1]]
    assert not np.array_equal(made(notes, frames).links(8, 3)[0], whole)


def test_frames_may_be_asked_for_in_any_portions_and_forgotten():
    notes = [note(one) for one in flickering(12)[0]]
    whole, whole_guide = made(notes).links(2, 8)
    links, found, guides = made(notes[:2]), [], []
    for t, one in enumerate(notes[2:], 2):
        links.add(t, one)
        if t >= 4 and t - 2 < 10:
            filtered, guide = links.links(t - 2, 1)
            found.append(filtered)
            guides.append(guide)
            links.forget(t - 2 - 2)
    np.testing.assert_array_equal(np.concatenate(found, 1), whole)
    np.testing.assert_array_equal(np.concatenate(guides), whole_guide)


@pytest.mark.parametrize("hole", [(3,), (3, 4), (0,), (3, 5), (7,)])
def test_holes_are_not_used_and_change_nothing_between_the_others(hole):
    pictures, known = flickering(8)
    notes = [empty() if t in hole else note(one) for t, one in enumerate(pictures)]
    filtered, guide = made(notes, (3, 3)).links(0, 8)
    levels = made(notes, (3, 3)).levels(0, 8)[0]
    for t in range(8):
        assert (levels[t] == 0) == (t in hole)
        for k, other in enumerate(range(t - 3, t + 4)):
            scale, shift, noise = filtered[0, t, k]
            if t in hole or other in hole or not 0 <= other < 8:
                assert noise == guide[t, k, 2] == 0
                continue
            assert noise > 0
            for level in (50, 200):
                here, there = (gain * level + offset for gain, offset in (known[t], known[other]))
                assert abs(scale * there + shift - here) < 2


def test_a_hole_too_long_to_see_across_breaks_the_chain():
    pictures, _ = flickering(8)
    notes = [empty() if t in (3, 4) else note(one) for t, one in enumerate(pictures)]
    filtered, _ = made(notes, (2, 2)).links(0, 8)
    # Links to frames that are not used are not looked at.
    used = filtered * (filtered[..., 2:] > 0)
    before, _ = made(notes[:3], (2, 2)).links(0, 3)
    np.testing.assert_array_equal(used[:, :3], before)
    after, _ = made([None] * 5 + notes[5:], (2, 2)).links(5, 3)
    np.testing.assert_array_equal(used[:, 5:], after)
    assert used[0, 2, 3:].max() == 0 < used[0, 2, :3, 0].min()


@pytest.mark.parametrize(
    ("other", "usable"), [(7.9, True), (8.1, False), (2.1, True), (1.9, False)]
)
def test_frames_of_very_unlike_noise_are_not_filtered_together(other, usable):
    links = made([FrameNote(np.array([s])) for s in (4.0, other, 4.0)], (1, 1))
    filtered, guide = links.links(0, 3)
    np.testing.assert_array_equal(filtered[0], guide)
    assert (guide[0, 2, 2] > 0) == (guide[1, 0, 2] > 0) == (guide[1, 2, 2] > 0) == usable
    np.testing.assert_array_equal(guide[:, 1, 2], np.float32([4, other, 4]))
    if usable:
        assert guide[0, 2, 2] == np.float32(other)


def test_noise_counts_as_it_is_after_the_change():
    # A frame of 2.5 times the gain and the noise is as good as any other; with the noise alone it
    # is not used.
    rng, still = np.random.default_rng(0), scene(*SHAPE)
    frames = [still + rng.normal(0, 4, SHAPE), 2.5 * still + rng.normal(0, 10, SHAPE)]
    _, guide = made([note(frames[0], 4.0), note(frames[1], 10.0)], (1, 1)).links(0, 2)
    assert guide[0, 2, 0] == pytest.approx(0.4, rel=0.02)
    assert guide[0, 2, 2] == pytest.approx(4, rel=0.02)
    assert guide[1, 0, 2] == pytest.approx(10, rel=0.02)
    assert (
        made([FrameNote(np.array([s])) for s in (4.0, 10.0)], (1, 1)).links(0, 1)[1][0, 2, 2] == 0
    )


def test_one_channel_of_unlike_noise_keeps_all_apart():
    notes = [FrameNote(np.array(s, float)) for s in ((4, 4), (4, 9), (4, 4))]
    filtered, guide = made(notes, (1, 1), np.eye(2), (1.0, 0.0)).links(0, 3)
    assert not filtered[:, 0, 2, 2].any() and guide[0, 2, 2] == 0
    assert filtered[:, 0, 1, 2].all() and guide[0, 1, 2] > 0


def test_opponent_colours_have_changes_of_their_own():
    rng, still = np.random.default_rng(0), scene(3, *SHAPE)
    still[1] = 255 - still[1].T.reshape(SHAPE)
    gains = np.array([0.8, 0.8, 0.8])
    second = gains[:, None, None] * still
    sigma = np.array([3.0, 4.0, 5.0])
    frames = [one + sigma[:, None, None] * rng.normal(0, 1, one.shape) for one in (still, second)]
    links = made([note(one, sigma) for one in frames], (1, 1), OPPONENT, OPPONENT[0])
    mixed_sigma = np.sqrt(OPPONENT**2 @ sigma**2)
    np.testing.assert_allclose(links.levels(0, 2), mixed_sigma[:, None] * np.ones(2), rtol=1e-6)
    filtered, guide = links.links(0, 2)
    np.testing.assert_array_equal(filtered[0], guide)
    mixed = [np.tensordot(OPPONENT, one, 1) for one in (still, second)]
    for c in range(3):
        scale, shift, noise = filtered[c, 0, 2]
        assert noise == pytest.approx(scale * mixed_sigma[c], rel=1e-5)
        assert np.abs(scale * mixed[1][c] + shift - mixed[0][c]).mean() < 2


@pytest.mark.parametrize("weighted", [False, True])
def test_the_guide_of_channels_is_a_mixture_with_its_own_noise(weighted):
    # The second frame has half as much noise again, and the same weights.
    sigmas = np.array([[2.0, 8.0], [3.0, 12.0]])
    links = made([FrameNote(one) for one in sigmas], (1, 1), np.eye(2), (0.5, 0.5), weighted)
    filtered, guide = links.links(0, 2)
    weights = np.array([1.6, 0.4]) if weighted else np.ones(2)
    first, second = np.sqrt(np.sum((0.5 * weights * sigmas) ** 2, axis=1))
    np.testing.assert_allclose(guide[0, 1:], [(1, 0, first), (1, 0, second)], rtol=1e-6)
    np.testing.assert_allclose(guide[1, :2], [(1, 0, first), (1, 0, second)], rtol=1e-6)
    np.testing.assert_array_equal(filtered[:, 0, 1, 2], sigmas[0])
    np.testing.assert_array_equal(filtered[:, 0, 2, 2], sigmas[1])


def test_any_noise_may_be_allowed_for():
    notes = [FrameNote(np.array([s])) for s in (4.0, 400.0)] + [empty()]
    links = FrameLinks((1, 1), [[1.0]], [1.0], noise_ratio=math.inf)
    for t, one in enumerate(notes):
        links.add(t, one)
    _, guide = links.links(0, 3)
    np.testing.assert_array_equal(guide[0, 2], (1, 0, 400))
    np.testing.assert_array_equal(guide[1, 0], (1, 0, 4))
    assert guide[1, 2, 2] == 0 and not guide[2, :, 2].any()


def test_frames_that_are_stored_twice_are_used_once():
    def digests(*names):
        return [FrameNote(np.array([SIGMA]), digest=one.encode() if one else None) for one in names]

    def used(links, **options):
        return links.links(0, 5, **options)[1][:, :, 2]

    twice = made(digests("a", "a", "b", "c", "b"))
    expected = [[0, 0, 1, 0, 1], [0, 0, 1, 1, 1], [0, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0, 1, 1, 0, 0]]
    expected = SIGMA * np.array(expected)
    np.testing.assert_array_equal(used(twice), expected)
    followed = used(twice, repeated=-1.0)
    np.testing.assert_array_equal(np.maximum(followed, 0), expected)
    np.testing.assert_array_equal(np.abs(followed), used(twice, repeated=1.0))
    np.testing.assert_array_equal(used(twice, repeated=1.0), used(made(digests(*"abcde"))))
    np.testing.assert_array_equal(used(made(digests(*5 * [None]))), used(made(digests(*"abcde"))))
