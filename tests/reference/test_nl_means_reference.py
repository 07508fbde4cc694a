"""The slow NL-means against cases small enough to be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reference import nl_means as reference


def noisy(*shape, sigma=10.0, seed=0):
    return 100 + np.random.default_rng(seed).normal(0, sigma, shape)


def test_grid():
    assert reference.grid(20, 8, 4) == [0, 4, 8, 12]
    assert reference.grid(21, 8, 4) == [0, 4, 8, 12, 13]
    assert reference.grid(8, 8, 4) == [0]
    assert reference.grid(5, 3, 1) == [0, 1, 2]
    assert reference.grid(10, 3, 5) == [0, 5, 7]


def test_extend():
    image = np.arange(6.0).reshape(1, 1, 2, 3)
    rows = [[0, 1, 2, 2], [3, 4, 5, 5], [3, 4, 5, 5], [0, 1, 2, 2]]
    np.testing.assert_array_equal(reference.extend(image, 4)[0, 0], rows)
    np.testing.assert_array_equal(reference.extend(image, 2), image)


def test_offsets_nearest_first():
    table = reference.offset_table(3)
    expected = [(0, 0), (-1, 0), (0, -1), (0, 1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    assert [tuple(row) for row in table[:, 2:]] == expected
    assert not table[:, :2].any()
    assert reference.offset_table(1).tolist() == [[0, 0, 0, 0]]


def test_offsets_in_time_and_depth():
    table = reference.offset_table(1, frames_before=2, frames_after=1, slices=1)
    assert len(table) == 4 * 3
    assert table[:4, :2].tolist() == [[0, 0], [-1, 0], [0, -1], [0, 1]]
    assert table[:, 0].min() == -2
    assert table[:, 0].max() == 1
    assert abs(table[:, 1]).max() == 1


def test_keys_order_by_distance_then_by_place():
    distances = np.array([0, 5, 2, 5, 1e6], np.float32)
    keys = reference.match_keys(distances, np.array([0, 7, 8, 3, 1]), 441)
    assert np.argsort(keys).tolist() == [0, 2, 3, 1, 4]
    assert (keys & 511).tolist() == [0, 7, 8, 3, 1], "441 offsets need nine bits"
    assert reference.match_keys(distances[:1], np.array([0]), 1)[0] == 0


def test_keys_do_not_tell_very_close_distances_apart():
    one = np.float32(1)
    distances = np.array([one + np.spacing(one), one], np.float32)
    assert np.argsort(reference.match_keys(distances, np.array([2, 5]), 9)).tolist() == [0, 1]


def test_search_by_hand():
    """A row 5 1 6 2 5, patches of one pixel, seen from the first pixel, the middle, the last."""
    row = np.array([5.0, 1, 6, 2, 5]).reshape(1, 1, 1, 5)
    offsets = reference.offset_table(5)

    def found(x, neighbours, table=offsets):
        return reference.search(row, (0, 0, 0, x), table, 1, neighbours)[:, 3].tolist()

    assert found(0, 2) == [0, 2], "distances 0 16 1: the window ends two pixels to the right"
    assert found(2, 5) == [2, 0, 4, 3, 1], "equal distances: the smaller offset first"
    assert found(2, 2) == [2, 0]
    assert found(4, 16) == [4, 2, 3], "only what lies inside the image"
    assert found(0, 2, reference.offset_table(9)) == [0, 4]


def test_search_in_frames_and_slices():
    stack = np.full((3, 3, 2, 2), 50.0)
    stack[1, 1] = 10
    stack[0, 1] = 11
    stack[2, 1] = 10.5
    stack[1, 2] = 10.25
    found = reference.search(stack, (1, 1, 0, 0), reference.offset_table(1, 1, 1, 1), 2, 4)
    assert found[:, :2].tolist() == [[1, 1], [1, 2], [2, 1], [0, 1]]
    causal = reference.search(stack, (1, 1, 0, 0), reference.offset_table(1, 1, 0, 0), 2, 4)
    assert causal[:, :2].tolist() == [[1, 1], [0, 1]]


def test_estimate_by_hand():
    """Patches of one pixel with values 0, 3, 4 and sigma 1, h = 2."""
    row = np.array([0.0, 3, 4]).reshape(1, 1, 1, 3)
    places = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2]])
    w3, w4 = np.exp(-(9 - 2) / 4), np.exp(-(16 - 2) / 4)
    expected = (3 * w3 + 4 * w4) / (1 + w3 + w4)
    result = reference.estimate(row, places, 1, sigma=1, h=2, flat=1.05)
    assert result == pytest.approx(expected)


def test_distance_below_two_sigma_squared_costs_no_weight():
    row = np.array([0.0, 1.4, 9]).reshape(1, 1, 1, 3)
    places = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2]])
    result = reference.estimate(row, places, 1, sigma=1, h=1, flat=0)
    assert result == pytest.approx(0.7)


def test_flat_patches():
    """Values 0 and 2 have the variance 1: flat up to sigma squared = 1 / 1.05."""
    row = np.array([0.0, 0, 2, 2]).reshape(1, 1, 1, 4)
    places = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 0, 3]])
    assert reference.estimate(row, places, 1, sigma=1, h=1, flat=1.0) == 1
    kept = reference.estimate(row, places, 1, sigma=0.97, h=0.5, flat=1.05)
    weight = np.exp(-(4 - 2 * 0.97**2) / 0.25)
    assert kept == pytest.approx(4 * weight / (2 + 2 * weight))


def test_aggregate_by_hand():
    """Patches of width 3 at 0 and 1: weights 1 2 1, shifted by one pixel."""
    patches = [np.full((3, 3), 1.0), np.full((3, 3), 4.0)]
    result = reference.aggregate((1, 1, 3, 4), [(0, 0, 0, 0), (0, 0, 0, 1)], patches)
    row = [1, (2 * 1 + 1 * 4) / 3, (1 * 1 + 2 * 4) / 3, 4]
    np.testing.assert_allclose(result[0, 0], [row] * 3)


def test_tent_of_an_even_width():
    patches = [np.full((4, 4), 0.0), np.full((4, 4), 1.0)]
    result = reference.aggregate((1, 1, 4, 6), [(0, 0, 0, 0), (0, 0, 0, 2)], patches)
    np.testing.assert_allclose(result[0, 0, 0], [0, 0, 1 / 3, 2 / 3, 1, 1])


def test_whole_method_by_hand():
    """Pixels 0 1 10, patches of one pixel, three neighbours, sigma 1, h 1: no smoothing across."""
    row = np.array([[0.0, 1, 10]])
    result = reference.nl_means(row, 1, patch=1, step=1, window=5, neighbours=3)
    far, near = np.exp(-(100 - 2.0)), np.exp(-(81 - 2.0))
    expected = [
        (1 + 10 * far) / (2 + far),
        (1 + 10 * near) / (2 + near),
        (0 * far + 1 * near + 10) / (far + near + 1),
    ]
    np.testing.assert_allclose(result, [expected])


@pytest.mark.parametrize("shape", [(1, 1, 20, 23), (1, 1, 5, 30), (1, 1, 1, 1), (2, 3, 12, 9)])
def test_constant_image_is_unchanged(shape):
    image = np.full(shape, 37.0)
    np.testing.assert_array_equal(reference.nl_means(image, 5, slices=1, frames_before=1), image)


def test_pure_noise_becomes_flat():
    """The flat rule averages 16 patches of 64 pixels, and overlapping patches average again."""
    image = noisy(64, 64)
    result = reference.nl_means(image, 10)
    assert result.std() < 10 / 8
    without = reference.nl_means(image, 10, flat=0)
    assert result.std() < without.std() < 10 / 2


def test_edges_stay():
    clean = np.full((40, 40), 50.0)
    clean[:, 20:] = 150
    result = reference.nl_means(clean + noisy(40, 40) - 100, 10)
    assert np.sqrt(np.mean((result - clean) ** 2)) < 3
    assert (result[:, 20] - result[:, 19]).mean() > 90


def test_more_frames_help():
    clean = np.tile(90 + 60 * np.sin(np.arange(24) / 2), (3, 1, 24, 1))
    stack = clean + noisy(3, 1, 24, 24) - 100
    settings = dict(patch=5, step=4, window=9, neighbours=16)

    def error(**frames):
        result = reference.nl_means(stack, 10, **settings, **frames)
        return np.sqrt(np.mean((result - clean)[1] ** 2))

    assert error(frames_before=1, frames_after=1) < error(frames_before=1) < error()


def test_one_slice_equals_two_dimensions():
    image = noisy(18, 25)
    flat = reference.nl_means(image, 10, window=7)
    assert flat.shape == image.shape
    np.testing.assert_array_equal(reference.nl_means(image[None, None], 10, window=7)[0, 0], flat)
    pair = np.stack([image, image[::-1]])[:, None]
    np.testing.assert_array_equal(reference.nl_means(pair, 10, window=7)[0, 0], flat)


def test_smaller_than_a_patch():
    image = noisy(5, 30)
    result = reference.nl_means(image, 10)
    assert result.shape == image.shape
    assert result.std() < image.std() / 2


def test_without_noise_nothing_changes():
    image = noisy(20, 20)
    result = reference.nl_means(image, 0)
    np.testing.assert_array_equal(result, image)
    assert not np.shares_memory(result, image)


def test_input_is_not_modified():
    image = noisy(12, 12)
    image.flags.writeable = False
    before = image.tobytes()
    reference.nl_means(image, 10)
    assert image.tobytes() == before


@pytest.mark.parametrize("sigma", [5, 20])
def test_levels_scale_with_the_noise(sigma):
    image = noisy(24, 24, sigma=sigma)
    image[:, 12:] += 5 * sigma
    result = reference.nl_means(image, sigma, window=9)
    scaled = reference.nl_means(image * 4 + 1024, sigma * 4, window=9)
    np.testing.assert_allclose(scaled, result * 4 + 1024, rtol=1e-9)
