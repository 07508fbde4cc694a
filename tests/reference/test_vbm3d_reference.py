"""The slow VBM3D against cases small enough to be worked out by hand, and against BM3D."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import scenes
from reference import bm3d
from reference import vbm3d as reference
from reference.vbm3d import Pass
from reference.video_links import Link
from reference.video_matching import find_matches


@dataclass(frozen=True)
class Settings:
    """The attributes of the filter's settings, small enough for quick tests."""

    frames_before: int = 4
    frames_after: int = 4
    window: int = 5
    window_next: int = 5
    motion: bool = True
    blocks: bool = False
    window_nearest: int = 15
    coarse: int = 2
    per_frame: int = 2
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
    threshold_common: float | None = None
    wiener_sigma: float = 1.0
    wiener_common: float | None = None
    kaiser: float = 2.0
    shared_noise: bool = True
    stages: str = "both"
    kalman: bool = False

    @property
    def steps(self):
        return {"basic": self.step_basic, "final": self.step_final}


QUICK = Settings()
ALL = Pass(neighbours=64, similar=1e9, motion=False)  # all that the search keeps


def random(*shape, sigma=10.0, seed=0):
    return 100 + np.random.default_rng(seed).normal(0, sigma, shape)


def places(matches):
    return [match[:3] for match in matches]


# Holes


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

    settings = replace(ALL, wiener_sigma=0.8, transform="dct")
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
    settings = replace(QUICK, **chosen, per_frame=1, neighbours_basic=8)
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
        },
        **{
            "threshold": 2.5,
            "wiener_sigma": 0.75,
            "kaiser": 1.5,
            "motion": False,
            "blocks": True,
            "window_nearest": 13,
            "coarse": 3,
        },
    }
    own = [
        *[("neighbours", 4, 16), ("step", 3, 2), ("transform", "haar", "dft")],
        *[("stack", "dct", "haar"), ("similar", 9.0, 4.0), ("still", 0.5, 0.25)],
    ]
    chosen = {f"{name}_basic": value for name, value, _ in own}
    chosen |= {f"{name}_final": value for name, _, value in own}
    chosen |= {"threshold_common": 2.0, "wiener_common": 0.5}
    settings = Settings(**common, **chosen)
    basic, final = ({name: pair[k] for name, *pair in own} for k in range(2))
    basic["common"], final["common"] = 2.0, 0.5
    assert Pass.of(settings, "basic") == Pass(**common, **basic, shared_noise=False)
    assert Pass.of(settings, "final") == Pass(**common, **final, shared_noise=True)
    assert not Pass.of(replace(settings, shared_noise=False), "final").shared_noise
    assert {field.name for field in fields(Pass)} == {*common, *basic, "shared_noise", "kalman"}


@pytest.mark.parametrize("stages", ["basic", "both"])
def test_one_frame_is_bm3d(stages):
    """All patches of a group from one frame: another search finds what BM3D's finds."""
    image = scenes.noisy(32, 32).astype(float)
    settings = replace(QUICK, stages=stages, window=15, per_frame=16)
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
    """22.1 dB before; measured 34.5 dB, 32.3 dB after the first pass, 31.6 dB frame by frame."""
    clean, noisy = scenes.scene(8, 40, 40), scenes.noisy(8, 40, 40)
    result = reference.vbm3d(noisy, 20.0, QUICK)
    basic = reference.vbm3d(noisy, 20.0, replace(QUICK, stages="basic"))
    alone = replace(QUICK, frames_before=0, frames_after=0, window=15, per_frame=8)
    frames = reference.vbm3d(noisy, 20.0, alone)
    assert scenes.psnr(basic, clean) > scenes.psnr(noisy, clean) + 10
    assert scenes.psnr(result, clean) > scenes.psnr(basic, clean) + 1.5
    assert scenes.psnr(result, clean) > scenes.psnr(frames, clean) + 2.5


def test_flat_noise_is_lost():
    result = reference.vbm3d(random(6, 32, 32), 10.0, QUICK)
    assert (result - 100).std() < 0.1 * 10
