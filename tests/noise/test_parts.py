"""Parts of the patches, the smallest of many values, and other short ways to the same numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.ndimage import uniform_filter

from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import ranked, smallest
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.patches.variance import brightness_levels, grouped, pooled_variance
from napari_gpu_denoise.noise.robust import medians
from napari_gpu_denoise.noise.structure import outliers


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
            assert selection._has_runs(plane)


@pytest.mark.parametrize("shape", [(16, 33), (64, 40)])
def test_sums_over_the_window_of_each_pixel(shape):
    values = np.random.default_rng(6).random(shape, np.float32)
    window = outliers._WINDOW
    expected = uniform_filter(values.astype(np.float64), window, mode="reflect") * window**2
    np.testing.assert_allclose(
        outliers._window_sums(np.pad(values, window // 2, mode="symmetric")), expected, 1e-5
    )
