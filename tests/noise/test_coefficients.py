"""Coefficients of patches, their sums, and lists of patches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import (
    ROWS,
    Squares,
    matmul_in_blocks,
    nested,
    range_moments,
    range_sums,
    ranked,
    smallest,
    transformed,
)
from napari_gpu_denoise.noise.patches.spectra import read_alike, read_spectra
from napari_gpu_denoise.noise.patches.variance import brightness_levels, grouped, pooled_variance
from napari_gpu_denoise.noise.patches.white import frequencies
from napari_gpu_denoise.noise.robust import medians

LOW, HIGH, _ = frequencies((8, 8))
MATRIX = np.concatenate([LOW, HIGH])
LOWS = np.arange(63) < len(LOW)
SETS = np.array([LOWS, ~LOWS])


@pytest.mark.parametrize("dtype", ["uint8", "int16", ">u2", "uint32", "float32", "float64"])
@pytest.mark.parametrize("number", [0, 1, 700])
def test_coefficients_and_energies(dtype, number):
    rng = np.random.default_rng(1)
    patches = rng.uniform(0, 200, (number, 64)).astype(dtype)
    sight = rng.standard_normal(63)
    found = transformed(patches, MATRIX, SETS, sight)
    exact = patches.astype(np.float64)
    expected = (exact - exact[:, :1]) @ MATRIX.T
    assert found.coefficients.dtype == np.float32
    np.testing.assert_allclose(found.coefficients, expected, rtol=0, atol=1e-3)
    np.testing.assert_allclose(found.energy, SETS @ np.square(expected).T, rtol=1e-5)
    np.testing.assert_allclose(found.seen, found.mean + expected @ sight, rtol=1e-4, atol=1e-2)
    if np.dtype(dtype).kind in "iu":
        np.testing.assert_array_equal(found.mean, exact.mean(axis=1))
    else:
        np.testing.assert_allclose(found.mean, exact.mean(axis=1), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e-18, 1e18, 1e100])
def test_extreme_grey_levels_are_handled_in_double_precision(scale):
    patches = scale * np.random.default_rng(2).standard_normal((600, 64))
    found = transformed(patches, MATRIX, SETS)
    expected = (patches - patches[:, :1]) @ MATRIX.T
    assert found.coefficients.dtype == np.float64
    np.testing.assert_allclose(found.coefficients / scale, expected / scale, rtol=0, atol=1e-12)


def test_levels_far_from_zero_keep_their_digits():
    noise = np.random.default_rng(3).standard_normal((600, 64))
    found = transformed(1e9 + noise, MATRIX, SETS)
    np.testing.assert_allclose(found.coefficients, noise @ MATRIX.T, rtol=0, atol=1e-5)


def test_a_picture_without_noise_has_none():
    """Rounding to single precision would pass for noise."""
    y, x = np.mgrid[:8, :8]
    ramps = np.linspace(1, 50, 600)[:, None] * (0.5 * y + 0.1 * x).ravel()
    diagonal = (LOW.shape[0] + HIGH.shape[0]) - 1  # frequencies 7 along y and along x
    assert np.abs(transformed(ramps, MATRIX, SETS).coefficients[:, diagonal]).max() < 1e-10


def test_weak_noise_of_any_scale_is_measured():
    image = 1e-30 * np.random.default_rng(6).standard_normal((64, 64))
    assert estimate_noise(image).sigma[0] == pytest.approx(1e-30, rel=0.1)
    assert estimate_noise(image.astype(np.float32)).sigma[0] == pytest.approx(1e-30, rel=0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [1, 16, 36])
def test_values_rise_in_each_group(dtype, groups):
    rng = np.random.default_rng(4)
    values = rng.chisquare(35, 30_000).astype(dtype)
    values[::50], values[1::50], values[7] = -0.0, 1e-3, np.finfo(np.float32).max
    group = np.sort(rng.integers(0, groups, len(values))).astype(np.uint8)
    order = ranked(values, group, groups)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(values)))
    np.testing.assert_array_equal(group[order], group)
    found = values[order].astype(float)
    highest = np.concatenate([np.maximum.accumulate(found[group == k]) for k in range(groups)])
    assert (found >= {1: 0.999, 16: 0.98, 36: 0.93}[groups] * highest).all()
    assert len(ranked(values[:0])) == 0


def test_equal_values_stay_in_order():
    values = np.random.default_rng(4).integers(0, 40, 3000).astype(np.float32) / 7
    np.testing.assert_array_equal(ranked(values), np.argsort(values, kind="stable"))


def test_sums_of_sets_in_sets():
    sums = np.arange(12.0).reshape(6, 2)
    np.testing.assert_array_equal(nested(sums, np.array([2, 1, 3]))[:, 0], [0, 2, 4, 6, 14, 24])


def test_sums_over_ranges():
    rng = np.random.default_rng(5)
    coefficients = rng.standard_normal((3000, 9)).astype(np.float32)
    order, limits = rng.permutation(3000), [0, 1, 40, 40, 1700, 2900]
    weight = rng.random(3000)
    exact = coefficients.astype(np.float64)
    parts = [order[a:b] for a, b in pairwise(limits)]
    plain = [np.square(exact[part]).sum(axis=0) for part in parts]
    weighted = [weight[part] @ np.square(exact[part]) for part in parts]
    squares = Squares(coefficients)
    for energy in (squares, np.square(exact)):
        np.testing.assert_allclose(range_sums(energy, order, limits), plain, rtol=1e-5)
        found = range_sums(energy, order, limits, weight)
        np.testing.assert_allclose(found, weighted, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(squares), np.square(exact))
    sums, second = range_moments(coefficients, order, limits)
    expected = [exact[part].sum(axis=0) for part in parts]
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(second, plain, rtol=1e-5)
    np.testing.assert_array_equal(coefficients, exact.astype(np.float32))  # as it was


@pytest.mark.parametrize("count", [0, 1, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS, 3 * ROWS + 5])
@pytest.mark.parametrize("columns", [0, 1, 31])
def test_every_row_is_multiplied(count, columns):
    rng = np.random.default_rng(0)
    rows, matrix = rng.normal(size=(count, 16)), rng.normal(size=(columns, 16)).T
    expected = (rows[:, :, None] * matrix).sum(axis=1)
    np.testing.assert_allclose(matmul_in_blocks(rows, matrix), expected, rtol=0, atol=1e-12)


def test_parts_list_their_members_in_order():
    rng = np.random.default_rng(0)
    part, rank = rng.choice([0, 1, 3], 500).astype(np.uint8), rng.permutation(500)
    order = np.argsort(rank)
    parts = grouped(part, 4, order)  # there is no part 2
    for number, members in zip((0, 1, 3), parts.each(), strict=True):
        np.testing.assert_array_equal(members, order[part[order] == number])
    np.testing.assert_array_equal(parts.sums(rank), np.bincount(part, rank)[[0, 1, 3]])
    kept = parts.kept(np.array([True, False, True]))
    np.testing.assert_array_equal(kept.members, np.concatenate(parts.each()[::2]))
    again = grouped(part, 4).by_rank(rank.astype(np.float32))
    assert np.all(np.diff(rank[again.each()[1]]) > -5)  # keys of 14 bits


def test_levels_rise_and_hold_every_patch():
    mean = np.random.default_rng(1).gamma(2, 30, 5000)
    levels = brightness_levels(mean)
    assert sorted(levels.members) == list(range(5000))
    ends = [(mean[each].min(), mean[each].max()) for each in levels.each()]
    assert all(last <= first for (_, last), (first, _) in pairwise(ends))


@pytest.mark.parametrize("number", [1, 400, 1999, 2000])
def test_the_smallest_of_many(number):
    values = np.random.default_rng(2).gamma(2, 30, 2000).astype(np.float32)
    for each in (values, np.zeros_like(values), np.sort(values)[::-1]):
        np.testing.assert_allclose(
            each[smallest(each, number)], each[ranked(each)[:number]], rtol=2e-3
        )


@pytest.mark.parametrize("count", [1, 2, 7, 28])
def test_medians(count):
    values = np.random.default_rng(3).random((5, count))
    np.testing.assert_allclose(medians(values), np.median(values, axis=1), 1e-12)


def test_all_patches_are_read_beside_their_levels():
    image = np.random.default_rng(4).normal(np.linspace(50, 150, 200), 9, (180, 200))
    spectra = read_spectra([image.astype(np.float32)], 3000)
    patches = spectra.statistics
    alone = pooled_variance(patches.order, patches.energy, patches.overlap)
    assert spectra.every == pytest.approx(alone[:2])
    assert len(spectra.level_noise.mean) == len(spectra.levels.count)


def test_no_constant_square_is_missed():
    rng = np.random.default_rng(5)
    for _ in range(400):
        shape = rng.integers(8, 40, 2)
        plane = np.rint(rng.normal(0, rng.choice([0.4, 30]), shape)).astype(np.int16)
        height, width = rng.integers(3, 13, 2)
        y, x = rng.integers(-4, shape)
        plane[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)] = 3
        if selection.constant_squares(plane, selection.WIDTHS[0]) is not None:
            assert selection._may_hold_square(plane)


def test_patches_of_frames_are_those_finite_in_all():
    frames = np.random.default_rng(3).normal(100, 5, (3, 40, 48)).astype(np.float32)
    for k in range(2):  # as many are left of both
        frames[k, 20, 5 + 30 * k] = np.nan
    found = read_alike([[frame] for frame in frames], 500, [None])
    for each in found:
        np.testing.assert_array_equal(each.place, found[0].place)
    assert 0 < len(found[0].mean) < len(read_spectra([frames[0]], 500).mean)
