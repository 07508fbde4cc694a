"""Coefficients of patches, their sums, and lists of patches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.noise.patches.coefficients import (
    Squares,
    nested,
    range_moments,
    range_sums,
    ranked,
    smallest,
)
from napari_gpu_denoise.noise.patches.spectra import read_alike, read_spectra
from napari_gpu_denoise.noise.patches.variance import brightness_levels, grouped, pooled_variance
from napari_gpu_denoise.noise.robust import medians


def test_weak_noise_of_any_scale_is_measured():
    image = 1e-30 * np.random.default_rng(6).standard_normal((64, 64))
    assert estimate_noise(image).sigma[0] == pytest.approx(1e-30, rel=0.1)
    assert estimate_noise(image.astype(np.float32)).sigma[0] == pytest.approx(1e-30, rel=0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1e-60, 1, 1e60])
def test_values_rise(dtype, unit):
    values = np.random.default_rng(4).chisquare(35, 30_000)
    values[::50], values[1::50] = -0.0, 1e-3
    values = (values * (unit if dtype == np.float64 else 1)).astype(dtype)
    order = ranked(values)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(values)))
    found = values[order].astype(float)
    assert (found >= 0.996 * np.maximum.accumulate(found)).all()
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
    assert np.all(np.diff(rank[again.each()[1]]) > -5)  # keys of 16 bits


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


def test_planes_are_read_beside_the_levels_of_all():
    levels = np.linspace(50, 150, 200)
    stack = [np.random.default_rng(k).normal(levels, s, (90, 200)) for k, s in enumerate((4, 9))]
    spectra = read_spectra(stack, 3000)
    assert spectra.plane_noise.variance == pytest.approx([16, 81], rel=0.1)
    for alone, variance in zip(spectra.alone(), spectra.plane_noise.variance, strict=True):
        patches = alone.statistics
        own = pooled_variance(patches.order, patches.energy, patches.overlap)
        assert own[0] == pytest.approx(variance, rel=1e-3)
    assert len(spectra.level_noise.mean) == len(spectra.levels.count)


def test_patches_of_frames_are_those_finite_in_all():
    frames = np.random.default_rng(3).normal(100, 5, (3, 40, 48)).astype(np.float32)
    for k in range(2):  # as many are left of both
        frames[k, 20, 5 + 30 * k] = np.nan
    found = read_alike([[frame] for frame in frames], 500, [None])
    for each in found:
        np.testing.assert_array_equal(each.place, found[0].place)
    assert 0 < len(found[0].mean) < len(read_spectra([frames[0]], 500).mean)
