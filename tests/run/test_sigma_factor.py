"""Strength: what a filter is told of the noise, multiplied."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.models import Correlated
from scenes import joining, noisy, small, with_slices

KINDS = [pytest.param(kind, id=kind.name) for kind in FILTERS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sigma_is_multiplied(kind, device):
    image, axes, _, _ = with_slices(kind, noisy(24, 30, dtype="uint8"), "YX")
    options = {"axes": axes, "device": device, "dtype": "same"}
    told = gd.denoise(image, small(kind), 15, **options)
    made = gd.denoise(image, small(kind), 10, sigma_factor=1.5, **options)
    np.testing.assert_array_equal(made.image, told.image)
    assert (made.record.sigma, made.record.sigma_factor) == ((10.0,), 1.5)
    assert told.record.sigma_factor == 1


def test_frames_from_anywhere_are_filtered_alike(device):
    image, settings = noisy(5, 20, 24, dtype="uint16"), joining(gd.VBM3D, "T")
    shared, series = {"sigma_factor": 0.75, "device": device, "dtype": "same"}, da.from_array(image)
    whole = gd.denoise(image, settings, 15, axes="TYX", device=device, dtype="same").image
    np.testing.assert_array_equal(list(gd.stream(settings, image, 20, **shared)), whole)
    each = gd.stream(settings, image, lambda t: 20, **shared)
    np.testing.assert_array_equal(list(each), whole)
    shared["axes"] = "TYX"
    np.testing.assert_array_equal(gd.denoise(image, settings, 20, **shared).image, whole)
    lazy = gd.denoise_lazy(series, settings, 20, **shared)
    np.testing.assert_array_equal(lazy.compute(), whole)
    for noise in ({"sigma": 20}, {"noise": gd.Gaussian(20)}):
        made = gd.denoise(series, settings, out=np.empty_like(image), **noise, **shared)
        np.testing.assert_array_equal(made.image, whole)
        assert made.record.sigma_factor == 0.75


def test_correlated_noise_keeps_its_spectrum(device):
    image, kind = noisy(40, 44), small(gd.BM3D)
    lags = [0.5**k for k in range(5)]
    table = tuple(tuple(a * b for b in lags) for a in lags)
    weak, strong = (Correlated(sigma, table) for sigma in (10, 20))
    told = gd.denoise(image, kind, noise=strong, device=device).image
    made = gd.denoise(image, kind, noise=weak, sigma_factor=2, device=device).image
    np.testing.assert_array_equal(made, told)


def test_what_stands_for_sigma_follows(device):
    image = np.random.default_rng(5).gamma(4, 25, (40, 40)).astype(np.float32)
    speckle = gd.Isoline(criterion="multiplicative", looks=4)
    made = gd.denoise(image, speckle, sigma_factor=2, device=device).image
    told = gd.denoise(image, gd.Isoline(criterion="multiplicative", looks=1), device=device).image
    np.testing.assert_array_equal(made, told)
    # The bias of Rician noise is that of the noise there is.
    rician = small(gd.NLMeans, rician=True)
    made = gd.denoise(image, rician, 20, sigma_factor=2, device=device).image
    strong = small(gd.NLMeans, rician=True, strength=2.0, flat=4.2)
    np.testing.assert_array_equal(made, gd.denoise(image, strong, 20, device=device).image)
