"""The slow filters that the kernels are compared with, and why to believe them.

Each has a property that does not come from its own code: a case worked out by hand, another
library, or another reference. The kernels, with stored results of their own, see that none changes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import napari_gpu_denoise as gd
from reference import bm3d, groups, isoline, isoline_soft, nl_means, swnlm, video_matching
from reference.block_matching import find_matches
from reference.block_motion import block_motion, block_motions
from reference.isoline_patterns import DIRECTIONS, segment_patterns
from reference.shared_noise import LEAST_VARIANCE, WHITE, variances
from reference.transforms import stack_matrix, transform_matrix
from scenes import noisy, small

TRANSFORMS = ("dct", "haar", "bior1.5", "dft")
STACKS = ("haar", "hadamard")
QUICK = small(gd.BM3D, prefiltered=True, window_basic=15, neighbours_basic=16)


def image(*shape) -> np.ndarray:
    return noisy(*shape).astype(np.float64)


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
    found = find_matches(np.full((10, 10), 7.0), (1, 1), (8, 8), (3, 3), 16, 0.0)
    nearest_first = [(1, 1), (0, 1), (1, 0), (1, 2), (2, 1), (0, 0), (0, 2), (2, 0), (2, 2)]
    assert found == [(*place, 0.0) for place in nearest_first]


def filtered(planes: np.ndarray, sigma: float, settings: groups.Pass) -> np.ndarray:
    """Return what one pass of BM3D makes of an image."""
    found = bm3d.all_matches(planes, np.full(planes.shape, sigma), settings, exact=True)
    given = planes[None, None], np.full((1, 1, *planes.shape), sigma)
    return groups.one_pass(*given, settings, found)[0, 0]


def test_a_pass_over_two_patches_by_hand():
    """Nine columns 0 ... 0 4, sigma 2: the patches at 0 and 1 differ in one column.

    Haar of that column, in sigma: 2 (1, -1, -sqrt 2, -2) at rows mean, coarse, middle, fine; half
    of each square in the sum and half in the difference of the patches. Above 2.7 is only the fine
    one, 2.83, twice; the mean of the sum stays. So the patches lose -1/8 everywhere, and
    -1/8 (six times), 7/8, 7/8; both groups are the same.
    """
    columns = np.tile([0.0] * 8 + [4.0], (8, 1))
    two = {"window": 3, "neighbours": 2, "similar": 0.5}
    settings = groups.Pass(step=1, transform="haar", kaiser=0.0, **two)
    matches = [(0, 0, 0, 0.0), (0, 0, 1, 0.0)]
    group = groups.filter_group(columns[None], matches, np.full((1, 8, 9), 2.0), settings)
    assert group.weight == pytest.approx(1 / 3)
    lost = np.array([-1, -1, -1, -1, -1, -1, -1, 3, 7]) / 8
    np.testing.assert_allclose(filtered(columns, 2.0, settings), columns - 2 * lost, atol=1e-12)


def test_a_wiener_filter_by_hand():
    spectrum, guide = np.ones((1, 8, 8)), np.zeros((1, 8, 8))
    guide[0, 0, 1], guide[0, 3, 0] = 1, -3
    removed, left = groups.shrink(spectrum, guide, 1.0)
    assert removed[0, 0, 0] == 0, "the mean stays"
    assert (removed[0, 0, 1], removed[0, 3, 0]) == (1 / 2, pytest.approx(1 / 10))
    assert left == pytest.approx(1 + 1 / 4 + 81 / 100)


@pytest.mark.parametrize("transform", ["bior1.5", "dct"])
def test_noise_that_overlapping_patches_share(transform):
    """Every coefficient is a sum of pixels: its variance is that of their squared weights."""
    places = [(0, 3, 4), (0, 3, 5), (0, 5, 4), (0, 11, 11)]
    squares, settings = 0.0, groups.Pass(transform=transform)
    for y, x in np.ndindex(20, 20):
        pixel = np.zeros((20, 20))
        pixel[y, x] = 1
        patches = np.array([pixel[y : y + 8, x : x + 8] for _, y, x in places])
        squares += groups.group_spectrum(patches, settings) ** 2
    found = variances(places, WHITE, transform, groups.ONE, "haar", True)[:, 0]
    np.testing.assert_allclose(found, np.maximum(squares, LEAST_VARIANCE), atol=1e-12)


def test_luminance_is_filtered_as_an_image_of_its_own():
    planes, settings = image(3, 24, 24), replace(QUICK, channels="opponent")
    result = bm3d.bm3d(planes, 25.0, settings, exact=True)
    alone = bm3d.bm3d(planes.sum(axis=0) / 3**0.5, 25.0, settings, exact=True)
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
    settings = groups.Pass(
        **{"frames_before": 4, "frames_after": 4, "window": 5},
        **{"neighbours": 64, "similar": 1e9},
    )
    motions = block_motions(video, 15, np.ones(4))
    given = settings, np.ones(4), None, (), motions
    matches = video_matching.find_matches(video, 0, 46, 40, *given)
    exact = sorted(match[:3] for match in matches if match[3] == 0)
    assert exact == [(t, 46 - 4 * t, 40 + 6 * t) for t in range(4)]


def test_one_frame_is_bm3d():
    """All patches of a group from one frame: another search finds what BM3D's finds."""
    frame, sigmas = image(24, 28), np.full((24, 28), 20.0)
    settings = groups.Pass(step=4, window=15, neighbours=8, similar=25.0, per_frame=8)
    for found in bm3d.all_matches(frame, sigmas, settings, exact=True):
        given = *found[0][:3], settings, [20.0], None, (), {}
        other = video_matching.find_matches(frame[None], *given)
        assert [match[:3] for match in other] == [match[:3] for match in found]


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
        found = isoline.precomputed_isolines(rough, isoline.Lines(2, 4, t_max))
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
