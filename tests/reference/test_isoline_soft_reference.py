"""The slow weighted isoline filter against cases small enough to be worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from napari_gpu_denoise.filters.isoline.filter import Isoline
from reference import isoline_soft as reference
from reference.isoline_patterns import segment_patterns
from scenes import noisy, scene

SETTINGS = Isoline()
PLAIN = Isoline(thickness=1)


def rough(*shape, seed=3) -> np.ndarray:
    return np.random.default_rng(seed).normal(100, 20, shape)


def interior(image: np.ndarray, by: int = 30) -> np.ndarray:
    return image[..., by:-by, by:-by]


# Means along lines


def test_weights_of_a_line_by_hand():
    """Length 2: shares 1 2 3 2 1 of 9; direction 2 rises by 0, 1 rounded from 0.41, 0.83."""
    weights = reference.line_weights(2, 2)
    expected = np.zeros((7, 7))
    expected[3, 3] = 3 / 9
    expected[3, 4] = expected[3, 2] = 2 / 9
    expected[2, 5] = expected[4, 1] = 1 / 9
    np.testing.assert_allclose(weights, expected)


@pytest.mark.parametrize("thickness", [1, 2, 3])
@pytest.mark.parametrize("length", [2, 5, 10])
def test_weights_of_lines_sum_to_one(length, thickness):
    for axis in range(16):
        weights = reference.line_weights(axis, length, thickness)
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(weights, weights[::-1, ::-1])
        # The lines beside do not come back to the pixel in the middle.
        share = (thickness - 1) / 8
        assert weights[length + 1, length + 1] == pytest.approx((1 - 2 * share) / (length + 1))


def test_three_lines_are_binomial_across():
    for axis, across in ((0, 1), (8, 0)):
        weights = reference.line_weights(axis, 4, 3)
        np.testing.assert_allclose(weights.sum(axis=across)[4:7], [0.25, 0.5, 0.25])
        np.testing.assert_allclose(
            weights.sum(axis=1 - across)[1:-1], [*range(1, 6), 4, 3, 2, 1] / np.array(25)
        )


def test_lines_rise_with_their_direction():
    """Direction 4 goes up to the right: y points down."""
    weights = reference.line_weights(4, 3)
    assert weights[3, 5] > 0
    assert weights[5, 5] == 0
    assert reference.line_weights(12, 3)[5, 5] > 0


def test_a_pixel_is_not_told_from_itself():
    image = rough(30, 30)
    other = image.copy()
    other[15, 15] += 50
    for weights in reference.candidate_weights(Isoline(thickness=3)):
        alone = reference.without_middle(weights)
        assert alone.sum() == pytest.approx(1)
        before, after = (reference.weighted_mean(a, alone)[15, 15] for a in (image, other))
        assert before == after


# Residuals


def test_residuals_by_hand():
    """One bright pixel of 12 in 0, line of 2 along x: it is missed by 12, neighbours by 2/9 of it.

    Without the pixel itself the shares are 1 2 2 1 of 6, so neighbours one pixel away are missed by
    4, those two away by 2. In units of sigma 2 and over four pixels: (12² + 4²) / 4 / 4.
    """
    image = np.zeros((20, 20))
    image[10, 10] = 12
    settings = Isoline(segment_length=2, max_length=2, thickness=1)
    found = reference.block_residuals(image, np.full(image.shape, 2.0), settings)
    assert found.shape == (17, 10, 10)
    assert found[0, 5, 5] == pytest.approx((144 + 16) / 16)
    assert found[0, 5, 4] == pytest.approx((16 + 4) / 16)
    assert found[0, 5, 6] == pytest.approx(4 / 16)
    assert found[8, 5, 5] == pytest.approx((144 + 16) / 16)
    assert found[8, 4, 5] == pytest.approx((16 + 4) / 16)
    # The window: 36 of 256 in the middle, 24 beside it, 16 across.
    expected = [144, (12 * 24 / 220) ** 2, (12 * 24 / 220) ** 2, (12 * 16 / 220) ** 2]
    assert found[16, 5, 5] == pytest.approx(sum(expected) / 16)


def test_residuals_of_noise_are_one_and_what_the_others_add():
    image = np.random.default_rng(0).normal(0, 7.0, (400, 400))
    found = reference.block_residuals(image, np.full(image.shape, 7.0), SETTINGS)
    for one, weights in zip(found, reference.candidate_weights(SETTINGS), strict=True):
        expected = 1 + np.sum(reference.without_middle(weights) ** 2)
        assert one.mean() == pytest.approx(expected, rel=0.03)


def test_speckle_has_the_noise_of_a_logarithm():
    """Of 4 looks trigamma(4) = 0.2838, which the floor takes little of; its mean is digamma(4)."""
    image = np.random.default_rng(0).gamma(4, 1 / 4, (300, 300))
    found = reference.logarithm(image)
    assert np.var(found) == pytest.approx(0.2838, rel=0.06)
    assert found.mean() == pytest.approx(1.2561 - math.log(4), abs=0.02)
    np.testing.assert_allclose(reference.logarithm(-8 * image), found + math.log(8))


def test_no_pixel_is_darker_than_a_quarter_of_what_lies_around():
    """220 of 256 parts of the mean around a 0 in 16 are 13.75."""
    image = np.full((11, 11), 16.0)
    image[5, 5] = 0
    expected = np.full(image.shape, math.log(16))
    expected[5, 5] = math.log(13.75 / 4)
    np.testing.assert_allclose(reference.logarithm(image), expected)
    assert np.all(np.isfinite(reference.logarithm(0 * image)))


def test_smoothing_by_hand():
    blocks = np.zeros((1, 11, 11))
    blocks[0, 5, 5] = 81
    row = np.array([0, 1, 2, 3, 2, 1, 0])
    np.testing.assert_allclose(reference.smoothed(blocks)[0, 2:9, 2:9], np.outer(row, row))


# Directions, classes, pilot


def test_classes_and_directions_by_hand():
    residuals = np.full((17, 1, 4), 3.0)
    residuals[7, 0, :] = 1.0
    residuals[3, 0, 1] = 1.0  # of equal ones the first
    residuals[16, 0, :] = [1.24, 1.26, 2.0, 2.1]
    directions, classes = reference.best_lines(residuals, SETTINGS)
    assert directions[0].tolist() == [7, 7, 3, 3, 7, 7, 7, 7]
    assert classes[0, ::2].tolist() == [0, 2, 2, 1]
    assert directions.shape == classes.shape == (2, 8)
    directions, classes = reference.best_lines(residuals[:16], Isoline(method="pi-pd"))
    assert (classes == 2).all()


def test_candidates_share_by_how_well_they_fit():
    """Two that fit, one of them by as much worse as the softness is: shares 1 and 1 / e."""
    image = rough(20, 20)
    residuals = np.full((17, 10, 10), 50.0)
    residuals[0], residuals[5] = 1.0, 1.3
    settings = replace(PLAIN, softness=0.3)
    lines = [reference.weighted_mean(image, reference.line_weights(d, 5)) for d in (0, 5)]
    expected = (lines[0] + lines[1] / math.e) / (1 + 1 / math.e)
    np.testing.assert_allclose(reference.mixed(image, residuals, settings), expected)


def test_what_no_mean_explains_is_given_back():
    """A residual of 5 is 3 more than fits: three quarters of the noisy pixel stay."""
    image = rough(20, 20)
    residuals = np.full((17, 10, 10), 90.0)
    residuals[16] = 5.0
    window = reference.weighted_mean(image, reference.window_weights())
    expected = 0.25 * window + 0.75 * image
    np.testing.assert_allclose(reference.mixed(image, residuals, SETTINGS), expected)


# Planes


def test_weights_fall_as_a_gaussian_does():
    """Within 0.05 of it, 0 from four standard deviations on."""
    x = np.linspace(0, 12, 200)
    weights = reference.falling(x, 2.0)
    assert np.abs(weights - np.exp(-((x / 2) ** 2) / 2)).max() < 0.05
    assert (weights[x >= 8] == 0).all()
    assert reference.falling(np.array([2.0]), 2.0)[0] == pytest.approx((1 - 1 / 16) ** 8)


def test_planes_one_by_one():
    """Least squares with a row for each pixel, and one for each slope that costs."""
    image, pilot = rough(30, 30), rough(30, 30, seed=4)
    noise = np.full(image.shape, 25.0)
    result = reference.regress(image, pilot, noise, 7)
    for y, x in [(10, 12), (15, 15), (20, 9)]:
        rows, levels = [], []
        for dy in range(-3, 4):
            for dx in range(-3, 4):
                t = 2 * ((pilot[y + dy, x + dx] - pilot[y, x]) / 25.0) ** 2
                share = max(1 - t / 8, 0) ** 8 * math.exp(-(dy * dy + dx * dx) / 32)
                rows.append(np.multiply([1, dy, dx], math.sqrt(share)))
                levels.append(image[y + dy, x + dx] * math.sqrt(share))
        rows += [[0, math.sqrt(10), 0], [0, 0, math.sqrt(10)]]
        fitted = np.linalg.lstsq(np.array(rows), np.array([*levels, 0, 0]), rcond=None)[0]
        assert result[y, x] == pytest.approx(fitted[0])


def test_speckled_planes_look_at_the_mean_of_both():
    """From 100 to 120 as from 120 to 100: 20 / 110, in units of 1 / 3, of which half is one."""
    image = np.where(np.indices((9, 9))[1] < 4, 100.0, 120.0)
    result = reference.regress(image, image, np.ones(image.shape), 3, looks=9.0)
    t = (20 / 110 * 3 / 0.5) ** 2 / 2
    share = (1 - t / 8) ** 8
    for x, own, other in ((3, 100, 120), (4, 120, 100)):
        side = 1 if other > own else -1
        rows = []
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                weight = math.exp(-(dy * dy + dx * dx) / 32) * (share if dx == side else 1)
                rows.append((weight, dy, dx, other if dx == side else own))
        weight, dy, dx, level = np.array(rows).T
        terms = np.stack([np.ones(9), dy, dx])
        left = (weight * terms) @ terms.T + np.diag([0, 10, 10])
        expected = np.linalg.solve(left, (weight * terms) @ level)[0]
        assert result[4, x] == pytest.approx(expected)


def test_a_slope_stays_a_slope():
    y, x = np.mgrid[:40, :40]
    image = 2.0 * y - x
    result = reference.regress(image, image, np.full(image.shape, 50.0), 9)
    np.testing.assert_allclose(interior(result, 5), interior(image, 5), atol=1e-10)


# Isolines


def followed(levels, directions, y, x, noise, length, steps) -> float:
    """Walk one isoline both ways, step by step."""
    ends = segment_patterns(length)[:, -1]
    values, shares = [levels[y, x]], [1.0]
    for side in (0, 16):
        at, heading, share = np.array([y, x]), directions[y, x] + side, 1.0
        for step in range(steps):
            if step > 0:
                line = directions[tuple(at)]
                angle = (line - heading) * math.pi / 16
                heading = line + 16 if math.cos(angle) < -1e-9 else line
            at = at + ends[heading]
            t = ((levels[tuple(at)] - levels[y, x]) / (0.24 * noise)) ** 2 / 2
            share *= max(1 - t / 8, 0) ** 8
            values.append(levels[tuple(at)])
            shares.append(share)
    return float(np.average(values, weights=shares))


@pytest.mark.parametrize(("length", "steps"), [(5, 2), (3, 4), (4, 1)])
def test_isolines_one_by_one(length, steps):
    rng = np.random.default_rng(1)
    levels = rng.normal(100, 3.0, (60, 60))
    directions = rng.integers(0, 16, levels.shape)
    result = reference.extend(levels, directions, np.full(levels.shape, 20.0), length, steps)
    for y, x in rng.integers(20, 40, (30, 2)):
        expected = followed(levels, directions, y, x, 20.0, length, steps)
        assert result[y, x] == pytest.approx(expected)


def test_an_end_is_not_reached_past_one_that_differs():
    levels = np.full((9, 41), 10.0)
    levels[:, 25] = 90.0
    directions = np.zeros(levels.shape, dtype=int)
    result = reference.extend(levels, directions, np.full(levels.shape, 1.0), 5, 2)
    assert (result[4, 15:36] == levels[4, 15:36]).all()
    other = levels.copy()
    other[:, 30] = 10.5
    result = reference.extend(other, directions, np.full(levels.shape, 1.0), 5, 2)
    assert result[4, 20] == 10.0, "25 lies between"


# All together


def test_a_constant_image_is_unchanged():
    for level in (0.0, 37.3, -1e5):
        image = np.full((9, 13), level)
        for settings in (SETTINGS, Isoline(criterion="multiplicative")):
            result = reference.isoline_soft(image, 3.0, settings)
            np.testing.assert_allclose(result, image, rtol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"staircase": 0}, {"thickness": 3}, {"method": "pi-pd"}])
def test_mirrored_images_have_mirrored_results(changes):
    """Without extension: an isoline that meets a line across has no best sense to go on in."""
    image, settings = noisy(26, 32), Isoline(max_length=5, **changes)
    result = reference.isoline_soft(image, 20.0, settings)
    for mirror in (np.fliplr, np.flipud):
        turned = reference.isoline_soft(mirror(image), 20.0, settings)
        np.testing.assert_allclose(turned, mirror(result), rtol=1e-10)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turned_images_have_turned_results(turns):
    image, settings = noisy(26, 32), replace(PLAIN, max_length=5)
    result = reference.isoline_soft(image, 20.0, settings)
    turned = reference.isoline_soft(np.rot90(image, turns), 20.0, settings)
    np.testing.assert_allclose(turned, np.rot90(result, turns), rtol=1e-10)


def test_what_lies_around_is_the_mirror_image():
    image = noisy(9, 12)
    wide = np.pad(image, 60, mode="reflect")
    result = reference.isoline_soft(wide, 20.0, SETTINGS)
    expected = reference.isoline_soft(image, 20.0, SETTINGS)
    np.testing.assert_allclose(interior(result, 60), expected, rtol=1e-10)


def test_levels_shift_and_scale_with_sigma():
    image = noisy(20, 22)
    result = reference.isoline_soft(4 * image - 64, 80.0, SETTINGS)
    expected = 4 * reference.isoline_soft(image, 20.0, SETTINGS) - 64
    np.testing.assert_allclose(result, expected, rtol=1e-9)


def test_speckle_scales_and_needs_no_sigma():
    image = scene(20, 22) * np.random.default_rng(0).gamma(4, 1 / 4, (20, 22))
    settings = Isoline(criterion="multiplicative")
    result = reference.isoline_soft(image, 1.0, settings)
    for sigma, factor in ((7.0, 3.0), (0.0, 1e6)):
        scaled = reference.isoline_soft(factor * image, sigma, settings)
        np.testing.assert_allclose(scaled, factor * result, rtol=1e-9)


def test_a_constant_map_is_as_its_number():
    image = noisy(20, 22)
    result = reference.isoline_soft(image, np.full(image.shape, 17.0), SETTINGS)
    np.testing.assert_array_equal(result, reference.isoline_soft(image, 17.0, SETTINGS))


def test_channels_that_are_alike_are_as_one():
    """The luminance of two that are equal is one of them, with less noise than it has."""
    image = noisy(20, 22)
    both = reference.isoline_soft(np.stack([image, image]), 20.0, Isoline(guide=1))
    one = reference.isoline_soft(image, 20.0, SETTINGS)
    np.testing.assert_allclose(both, [one, one], rtol=1e-12)
    luminance = reference.isoline_soft(np.stack([image, image]), 20.0, SETTINGS)
    less = reference.isoline_soft(image, 20.0 / math.sqrt(2), replace(SETTINGS, max_length=5))
    short = reference.isoline_soft(np.stack([image, image]), 20.0, replace(SETTINGS, max_length=5))
    np.testing.assert_allclose(short, [less, less], rtol=1e-10)
    assert not np.allclose(luminance, short)


def test_channels_without_noise_are_left_out_of_the_luminance():
    image = np.stack([noisy(20, 22, seed=k) for k in range(3)])
    result = reference.isoline_soft(image, (0.0, 20.0, 10.0), SETTINGS)
    other = reference.isoline_soft(image[1:], (20.0, 10.0), SETTINGS)
    np.testing.assert_allclose(result[1:], other, rtol=1e-9)
