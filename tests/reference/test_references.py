"""The slow filters that the kernels are compared with: what they give, and why to believe them.

Each has golden numbers, so that no change of a reference goes unseen, and a property that does not
come from its own code: a case worked out by hand, another library, or another reference.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import napari_gpu_denoise as gd
from reference import bm3d, isoline, isoline_soft, nl_means, swnlm, vbm3d, video_matching
from reference.block_matching import find_matches
from reference.block_motion import block_motion, block_motions
from reference.bm3d_channels import bm3d_channels
from reference.isoline_patterns import DIRECTIONS, segment_patterns
from reference.transforms import stack_matrix, transform_matrix
from reference.video_links import Link
from scenes import noisy, small

TRANSFORMS = ("dct", "haar", "bior1.5", "dft")
STACKS = ("haar", "hadamard")
QUICK = small(gd.BM3D, prefiltered=True, window_basic=15, neighbours_basic=16)
VIDEO = small(gd.VBM3D, frames_before=2, frames_after=1)
BY_BLOCKS = vbm3d.Pass(frames_before=1, frames_after=1, shared_noise=True)
LINES = gd.Isoline(segment_length=3, max_length=9, staircase=5)


def image(*shape) -> np.ndarray:
    return noisy(*shape).astype(np.float64)


def fingerprint(values) -> list[float]:
    """Return the mean of an array, and one weighted so that every place counts differently."""
    values = np.asarray(values, np.float64)
    weights = np.cos(np.arange(values.size)).reshape(values.shape)
    return [values.mean(), (weights * values).mean()]


def linked(r: int, t: int) -> Link:
    return Link(1.1 ** (r - t), 3.0 * (t - r))


def searched_video() -> np.ndarray:
    settings = vbm3d.Pass.of(VIDEO, "basic")
    video, sigmas = image(4, 24, 28), [20.0] * 4
    motions = block_motions(video, 15, sigmas)
    given = settings, sigmas, None, (), motions
    found = [video_matching.find_matches(video, t, 8, 9, *given) for t in range(4)]
    return np.concatenate(found)


# A mean and a weighted mean of what each makes of noisy scenes.
GOLDEN = {
    "transforms": lambda: [transform_matrix(name) for name in TRANSFORMS],
    "stacks": lambda: [stack_matrix(name, 8) for name in STACKS],
    "block_matching": lambda: find_matches(image(24, 28), 7, 9, 15, 32, 9999.0, exact=False),
    "bm3d": lambda: bm3d.bm3d(image(24, 28), 20.0, QUICK),
    "bm3d with a map": lambda: bm3d.bm3d(image(16, 20), np.linspace(9, 30, 20), QUICK),
    "bm3d_channels, opponent": lambda: bm3d_channels(image(3, 16, 20), (20, 9, 20), QUICK),
    "bm3d_channels, joint": lambda: bm3d_channels(image(2, 16, 20), (20, 9), QUICK, "joint"),
    "video_matching": searched_video,
    "block_motion": lambda: block_motion(image(40, 44), image(2, 40, 44)[1], 15, 0.1),
    "vbm3d": lambda: vbm3d.vbm3d(image(4, 17, 20), 20.0, VIDEO),
    "vbm3d by blocks": lambda: vbm3d.one_pass(image(3, 17, 20), [20.0] * 3, BY_BLOCKS),
    "vbm3d with links and a hole": lambda: vbm3d.vbm3d(
        *(image(4, 17, 20), (20.0, 0.0, 25.0, 20.0), VIDEO), links=linked
    ),
    "vbm3d, causal": lambda: vbm3d.vbm3d(image(4, 17, 20), 20.0, replace(VIDEO, frames_after=0)),
    "nl_means": lambda: nl_means.nl_means(image(20, 23), 20.0, window=9),
    "nl_means in frames": lambda: nl_means.nl_means(
        *(image(2, 2, 12, 13), 20.0), window=5, frames_before=1, slices=1
    ),
    "nl_means, rician": lambda: nl_means.nl_means(image(16, 17), 20.0, window=7, rician=True),
    "isoline_patterns": lambda: segment_patterns(9),
    "pi_pd": lambda: isoline.pi_pd(image(15, 17), thickness=3),
    "pi_pd of speckle": lambda: isoline.pi_pd(image(15, 17), looks=4.0),
    "pi_pd_hybrid": lambda: isoline.pi_pd_hybrid(image(15, 17)),
    "pi_ld": lambda: isoline.pi_ld(image(15, 17), 3, 12),
    "isoline_soft": lambda: isoline_soft.isoline_soft(image(16, 17), 20.0, LINES),
    "isoline_soft of speckle": lambda: isoline_soft.isoline_soft(
        *(image(16, 17), 20.0), replace(LINES, criterion="multiplicative")
    ),
    "isoline_soft of channels": lambda: isoline_soft.isoline_soft(
        *(image(2, 16, 17), (20, 9)), replace(LINES, channels="joint")
    ),
    "isoline_soft of colours": lambda: isoline_soft.isoline_soft(
        *(image(3, 16, 17), 20.0), replace(LINES, channels="opponent")
    ),
    "swnlm": lambda: swnlm.swnlm(image(16, 17), 20.0, window=7).image,
}
EXPECTED = {
    "transforms": (0.04419417382, -0.002993676126),
    "stacks": (0.04419417382, -0.02908847478),
    "block_matching": (309.9885805, 5.55433756),
    "bm3d": (139.0911389, -0.09484203671),
    "bm3d with a map": (127.357001, 0.4027127555),
    "bm3d_channels, opponent": (130.46581, 0.8147306006),
    "bm3d_channels, joint": (129.2636662, 0.3370142647),
    "video_matching": (155.3131249, -0.6111886504),
    "block_motion": (-0.3833333333, 0.05647785345),
    "vbm3d": (132.9294682, 0.05974919293),
    "vbm3d by blocks": (130.8298005, 0.323372541),
    "vbm3d with links and a hole": (133.1687759, 0.02344916522),
    "vbm3d, causal": (132.7143695, 0.1928390202),
    "nl_means": (134.9592045, 0.4358597972),
    "nl_means in frames": (120.3799961, 0.8875193561),
    "nl_means, rician": (121.0350722, 1.310085052),
    "isoline_patterns": (0, -0.03656240815),
    "pi_pd": (120.6940407, -0.2098214501),
    "pi_pd of speckle": (124.3098869, -0.3704369094),
    "pi_pd_hybrid": (122.7422987, -0.121992561),
    "pi_ld": (121.9237298, 0.007231663422),
    "isoline_soft": (125.0632344, 1.657455449),
    "isoline_soft of speckle": (124.6949284, 0.71952329),
    "isoline_soft of channels": (125.4038251, 0.4995745879),
    "isoline_soft of colours": (125.7106332, -0.07605071355),
    "swnlm": (125.3422789, 1.76981155),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_numbers(name):
    np.testing.assert_allclose(fingerprint(GOLDEN[name]()), EXPECTED[name], rtol=1e-7, atol=1e-9)


# Transforms and groups


@pytest.mark.filterwarnings("ignore:Level value of 3 is too high")
@pytest.mark.parametrize("name", ["haar", "bior1.5"])
def test_wavelets_are_those_of_pywavelets(name):
    pywt = pytest.importorskip("pywt", reason="PyWavelets is not installed")
    columns = [
        np.concatenate(pywt.wavedec(unit, name, mode="periodization", level=3))
        for unit in np.eye(8)
    ]
    expected = np.transpose(columns)
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(transform_matrix(name), expected, atol=1e-13)


def test_transforms_keep_the_noise_and_begin_with_the_mean():
    matrices = [transform_matrix(name) for name in TRANSFORMS]
    matrices += [stack_matrix(name, m) for name in STACKS for m in (1, 2, 4, 8, 16, 32)]
    for matrix in matrices:
        product = matrix @ matrix.T
        np.testing.assert_allclose(np.diag(product), 1, atol=1e-14)
        np.testing.assert_allclose(matrix[0], len(matrix) ** -0.5)
        if matrix is not transform_matrix("bior1.5"):
            np.testing.assert_allclose(product, np.eye(len(matrix)), atol=1e-14)


def test_equal_distances_nearest_first():
    found = find_matches(np.full((10, 10), 7.0), 1, 1, 3, 16, 0.0)
    nearest_first = [(1, 1), (0, 1), (1, 0), (1, 2), (2, 1), (0, 0), (0, 2), (2, 0), (2, 2)]
    assert found == [(*place, 0.0) for place in nearest_first]


def test_a_pass_over_two_patches_by_hand():
    """Nine columns 0 ... 0 4, sigma 2: the patches at 0 and 1 differ in one column.

    Haar of that column, in sigma: 2 (1, -1, -sqrt 2, -2) at rows mean, coarse, middle, fine; half
    of each square in the sum and half in the difference of the patches. Above 2.7 is only the fine
    one, 2.83, twice; the mean of the sum stays. So the patches lose -1/8 everywhere, and
    -1/8 (six times), 7/8, 7/8; both groups are the same.
    """
    columns = np.tile([0.0] * 8 + [4.0], (8, 1))
    settings = bm3d.Pass(step=1, window=3, neighbours=2, transform="haar", similar=0.5, kaiser=0.0)
    for group in bm3d.filter_groups(columns, columns, 2.0, settings):
        assert group.weight == pytest.approx(1 / 3)
    lost = np.array([-1, -1, -1, -1, -1, -1, -1, 3, 7]) / 8
    result = bm3d.one_pass(columns, 2.0, settings)
    np.testing.assert_allclose(result, columns - 2 * lost, atol=1e-12)


def test_a_wiener_filter_by_hand():
    spectrum, guide = np.ones((1, 8, 8)), np.zeros((1, 8, 8))
    guide[0, 0, 1], guide[0, 3, 0] = 1, -3
    removed, weight = bm3d.shrink_wiener(spectrum, guide)
    assert removed[0, 0, 0] == 0, "the mean stays"
    assert (removed[0, 0, 1], removed[0, 3, 0]) == (1 / 2, pytest.approx(1 / 10))
    assert weight == pytest.approx(1 / (1 + 1 / 4 + 81 / 100))


@pytest.mark.parametrize("transform", ["bior1.5", "dct"])
def test_noise_that_overlapping_patches_share(transform):
    """Every coefficient is a sum of pixels: its variance is that of their squared weights."""
    places = [(3, 4), (3, 5), (5, 4), (11, 11)]
    squares = 0.0
    for y, x in np.ndindex(20, 20):
        pixel = np.zeros((20, 20))
        pixel[y, x] = 1
        squares += bm3d.group_spectrum(pixel, places, 0.0, 1.0, transform, "haar") ** 2
    expected = np.maximum(squares, bm3d.LEAST_VARIANCE)
    np.testing.assert_allclose(bm3d.noise_variances(places, transform, "haar"), expected)


def test_luminance_is_filtered_as_an_image_of_its_own():
    planes = image(3, 24, 24)
    result = bm3d_channels(planes, [25.0] * 3, QUICK, "opponent")
    alone = bm3d.bm3d(planes.sum(axis=0) / 3**0.5, 25.0, QUICK)
    np.testing.assert_allclose(result.sum(axis=0) / 3**0.5, alone, atol=1e-8)


# Videos


@pytest.mark.parametrize(("dy", "dx"), [(3, -7), (-7, 7)])
def test_a_frame_that_moves_as_a_whole(dy, dx):
    """At borders, blocks of which no neighbour stays in the frame tell nothing of the truth."""
    wide = np.random.default_rng(0).integers(0, 256, (80, 90)).astype(float)
    frame, other = wide[16:64, 16:72], wide[16 - dy : 64 - dy, 16 - dx : 72 - dx]
    found = block_motion(frame, other, 15, 0.01)
    assert (found[1:-1, 1:-1] == (dy, dx)).all()


def test_movement_is_followed():
    """By 6 pixels more in each frame, though windows reach 2: where that is expected."""
    pattern = np.random.default_rng(0).normal(100, 10, (90, 90))
    video = np.array([np.roll(pattern, (-4 * t, 6 * t), axis=(0, 1)) for t in range(4)])
    settings = vbm3d.Pass(neighbours=64, similar=1e9)
    motions = block_motions(video, 15, np.ones(4))
    given = settings, np.ones(4), None, (), motions
    matches = video_matching.find_matches(video, 0, 46, 40, *given)
    exact = sorted(match[:3] for match in matches if match[3] == 0)
    assert exact == [(t, 46 - 4 * t, 40 + 6 * t) for t in range(4)]


def test_one_frame_is_bm3d():
    """All patches of a group from one frame: another search finds what BM3D's finds."""
    frame, same = image(24, 28), {"step": 4, "window": 15, "neighbours": 8, "similar": 25.0}
    result = vbm3d.one_pass(frame[None], [20.0], vbm3d.Pass(per_frame=8, **same))
    expected = bm3d.one_pass(frame, 20.0, bm3d.Pass(**same))
    np.testing.assert_allclose(result[0], expected, atol=1e-9)


# NL-means


def test_nl_means_by_hand():
    """Pixels 0 1 10, patches of one pixel, three neighbours, sigma 1, h 1: no smoothing across."""
    row = np.array([[0.0, 1, 10]])
    result = nl_means.nl_means(row, 1, patch=1, step=1, window=5, neighbours=3)
    far, near = np.exp(-(100 - 2.0)), np.exp(-(81 - 2.0))
    expected = [
        (1 + 10 * far) / (2 + far),
        (1 + 10 * near) / (2 + near),
        (0 * far + 1 * near + 10) / (far + near + 1),
    ]
    np.testing.assert_allclose(result, [expected])


@pytest.mark.parametrize("n", [9, 25, 49])
def test_the_statistic_of_swnlm_is_that_of_scipy(n):
    rng = np.random.default_rng(n)
    draws = np.concatenate([rng.normal(5, 3, (n, 50)), rng.exponential(2, (n, 50))], axis=1)
    found = [stats.shapiro(one) for one in draws.T]
    np.testing.assert_allclose(swnlm.shapiro_wilk(draws), [w for w, _ in found], atol=1e-9)
    for alpha in (0.01, 0.05, 0.3):
        least = swnlm.critical_w(n, alpha)
        assert all((w < least) == (p < alpha) for w, p in found)


# Isolines


def test_segments_keep_to_their_angle():
    """No pixel lies further than half a pixel, along an axis, from the true line; and each touches
    the one before."""
    length = 17
    patterns = segment_patterns(length)
    for direction, pattern in enumerate(patterns):
        angle = direction * 2 * np.pi / DIRECTIONS
        along = np.array([-np.sin(angle), np.cos(angle)])
        true = np.arange(1, length + 1)[:, None] * along / abs(along).max()
        assert abs(pattern - true).max() <= 0.5
    assert (abs(np.diff(patterns, axis=1, prepend=0)).max(axis=-1) == 1).all()


def test_a_walk_by_hand():
    """10 12, then a turn by 45 degrees and 14 16: the log-ratio is 4 log 5 = 6.44.

    The first pixel, 38, is in the mean alone: (38 + 22) / 3 and (38 + 52) / 5. In the test it would
    hide the step, so that the isoline went on at 6.4.
    """
    rough = np.random.default_rng(3).permutation(31 * 31).reshape(31, 31) * 10.0 + 1000
    rough[15, 10:13], rough[14, 13], rough[13, 14] = (38, 10, 12), 14, 16
    for t_max, mean, pixels in ((6.4, 20, 2), (6.5, 18, 4)):
        found = isoline.precomputed_isolines(rough, 2, 4, t_max)
        assert (found.mean[15, 10], found.pixels[15, 10]) == (mean, pixels)


@pytest.mark.parametrize("method", [isoline.pi_pd, isoline.pi_pd_hybrid, isoline.pi_ld])
def test_turned_images_have_turned_isolines(method):
    given = image(12, 14)
    np.testing.assert_allclose(method(np.rot90(given)), np.rot90(method(given)), rtol=1e-12)


def test_planes_are_those_of_least_squares():
    """With a row for each pixel, and one for each slope that costs."""
    rng = np.random.default_rng(3)
    levels, pilot = rng.normal(100, 20, (2, 13, 13))
    result = isoline_soft.regress(levels, pilot, np.full(levels.shape, 25.0), 7)
    rows, right = [[0, 10**0.5, 0], [0, 0, 10**0.5]], [0, 0]
    for dy, dx in np.ndindex(7, 7):
        t = 2 * ((pilot[dy + 3, dx + 3] - pilot[6, 6]) / 25.0) ** 2
        share = max(1 - t / 8, 0) ** 8 * np.exp(-((dy - 3) ** 2 + (dx - 3) ** 2) / 32)
        rows.append(share**0.5 * np.array([1, dy - 3, dx - 3]))
        right.append(share**0.5 * levels[dy + 3, dx + 3])
    fitted = np.linalg.lstsq(np.array(rows), np.array(right), rcond=None)[0]
    assert result[6, 6] == pytest.approx(fitted[0])
