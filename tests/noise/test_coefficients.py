"""Coefficients of patches, their sums, and lists of patches."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.noise.patches.coefficients import ranked
from napari_gpu_denoise.noise.patches.selection import Plane
from napari_gpu_denoise.noise.patches.spectra import read_alike, read_spectra
from napari_gpu_denoise.noise.patches.variance import pooled_variance


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


def test_planes_are_read_beside_the_levels_of_all():
    levels = np.linspace(50, 150, 200)
    stack = [np.random.default_rng(k).normal(levels, s, (90, 200)) for k, s in enumerate((4, 9))]
    spectra = read_spectra(Plane.of_image(stack), 3000)
    assert spectra.plane_noise.variance == pytest.approx([16, 81], rel=0.1)
    for alone, variance in zip(spectra.alone(), spectra.plane_noise.variance, strict=True):
        own = pooled_variance(alone.order, alone.squares, alone.overlap)
        assert own[0] == pytest.approx(variance, rel=1e-3)
    assert len(spectra.level_noise.mean) == len(spectra.levels.count)


def test_patches_of_frames_are_those_finite_in_all():
    frames = np.random.default_rng(3).normal(100, 5, (3, 40, 48)).astype(np.float32)
    for k in range(2):  # as many are left of both
        frames[k, 20, 5 + 30 * k] = np.nan
    found = read_alike([[frame] for frame in frames], 500, [None])
    for each in found:
        np.testing.assert_array_equal(each.place, found[0].place)
    assert 0 < len(found[0].mean) < len(read_spectra([Plane(frames[0])], 500).mean)
