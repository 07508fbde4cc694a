"""Planes whose noise has a spectrum each, as after registration: found, and used every way in."""

from __future__ import annotations

import json
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from scipy.ndimage import shift

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d.filter import CorrelatedBM3D
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.noise.record import SigmaSeries
from napari_gpu_denoise.noise.series import MOST_KINDS, PlaneSpectra, plane_noise_of
from scenes import small

PARTS = (0.0, 0.5, 0.25, 0.5, 0.4, 0.5)  # of a pixel, along both axes


def registered(seed: int = 0, ny: int = 128, nx: int = 136) -> tuple[np.ndarray, np.ndarray]:
    """Return planes that were moved by parts of a pixel, linearly, and their noise alone."""
    y, x = np.mgrid[:ny, :nx]
    clean = 120 + 50 * np.sin(x / 17) * np.cos(y / 23)
    drawn = np.random.default_rng(seed).normal(0, 20, (len(PARTS), ny, nx))
    noise = np.array(
        [shift(n, p, order=1, mode="mirror") for n, p in zip(drawn, PARTS, strict=True)]
    )
    return (clean + noise).astype(np.float32), noise


@pytest.fixture(scope="module")
def stack() -> np.ndarray:
    return registered()[0]


@pytest.mark.parametrize("axes", ["TYX", "ZYX", ".YX"])
def test_every_plane_has_its_spectrum(axes):
    image, noise = registered()
    estimate = gd.estimate_noise(image, axes)
    assert estimate.name == "correlated" and not estimate.white
    assert estimate.sigma[0] == pytest.approx(noise.std(), rel=0.1)
    (series,) = estimate.series
    np.testing.assert_allclose(series.sigma[0], noise.std(axis=(1, 2)), rtol=0.12)
    found = plane_noise_of(estimate, image.shape)
    assert found.kinds.shape == (6, 1, 1)
    for plane, kind in zip(noise, found.kinds.ravel(), strict=True):
        near = (plane[:, 1:] * plane[:, :-1]).mean() / plane.var()
        assert found.models[kind][0].autocorrelation[0][1] == pytest.approx(near, abs=0.12)
    assert len({*found.kinds.ravel()[[1, 3, 5]]}) == 1
    told = json.loads(json.dumps(estimate.as_dict(), allow_nan=False))
    assert gd.NoiseEstimate.from_dict(told) == estimate
    told["frames" if axes[0] == "T" else "slices" if axes[0] == "Z" else "others"][
        "autocorrelation"
    ][0].pop()
    with pytest.raises(SettingsError, match="not a noise estimate"):
        gd.NoiseEstimate.from_dict(told)


def test_many_spectra_are_of_few_kinds():
    many = np.linspace(-0.3, 0.5, 60)
    tables = tuple(tuple(map(tuple, np.outer(*2 * [[1, r, 0, 0, 0]]).tolist())) for r in many)
    sigma = tuple(np.linspace(5, 10, 60).tolist())
    places = tuple(range(0, 120, 2))
    series = SigmaSeries("T", places, (sigma,), (sigma,), (sigma,), (tables,))
    estimate = gd.estimate_noise(np.zeros((120, 9, 9), np.float32), "TYX", "correlated")
    estimate = replace(estimate, frames=series)
    found = plane_noise_of(estimate, (120, 9, 9))
    assert plane_noise_of(replace(estimate, models=(gd.Gaussian(3.0),)), (120, 9, 9)) is None
    assert 2 < len(found.models) <= MOST_KINDS
    kinds = found.kinds.ravel()
    assert len(kinds) == 120 and np.all(np.diff(kinds) >= 0)
    near = [found.models[kind][0].autocorrelation[0][1] for kind in kinds[::2]]
    np.testing.assert_allclose(near, many, atol=0.1)


def test_planes_of_one_spectrum_share_it():
    white = np.random.default_rng(0).normal(100, [[[4]], [[9]], [[16]]], (3, 96, 96))
    estimate = gd.estimate_noise(white.astype(np.float32), ".YX")
    assert estimate.name == "gaussian"
    assert plane_noise_of(estimate, white.shape) is None


SETTINGS = small(gd.BM3D, scales=1)


def test_each_plane_is_filtered_by_its_spectrum(device, stack):
    estimate = gd.estimate_noise(stack, ".YX")
    result = gd.denoise(stack, SETTINGS, noise=estimate, device=device)
    found = plane_noise_of(estimate, stack.shape)
    filter = SETTINGS.for_noise(estimate.models)
    sigma = np.array(estimate.others.factor[0]) * estimate.models[0].sigma
    for k, kind in enumerate(found.kinds.ravel()):
        own = filter.for_planes(found.models[kind])
        assert isinstance(own, CorrelatedBM3D) and own.reach == filter.reach
        alone = gd.denoise(stack[k], own, sigma[k], device=device).image
        np.testing.assert_allclose(result.image[k], alone, atol=1e-3)


class Stored:
    """An array that is not in memory."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, index):
        return self.array[index]

    def __setitem__(self, index, values):
        self.array[index] = values


@pytest.mark.parametrize("filter", [SETTINGS, small(gd.VBM3D), small(gd.NLMeans)])
def test_every_way_in_gives_the_same(device, stack, filter):
    image = np.rint(stack).clip(0, 255).astype(np.uint8)
    options = {"noise": "auto", "axes": "TYX", "device": device}
    done = []
    whole = gd.denoise(image, filter, **options, progress=lambda *given: done.append(given))
    assert done[0][0] == 0 and done[-1][0] == done[-1][1]
    assert done == sorted(done)
    image_out = Stored(np.zeros(image.shape, whole.image.dtype))
    gd.denoise(Stored(image), filter, out=image_out, **options)
    np.testing.assert_array_equal(image_out.array, whole.image)
    lazy = gd.denoise_lazy(da.from_array(image, chunks=(3, 128, 136)), filter, **options)
    np.testing.assert_array_equal(lazy.compute(), whole.image)
    some = gd.denoise(image, filter, **options, frames=slice(2, 5)).image
    np.testing.assert_array_equal(some, whole.image[2:5])


def test_videos_beside_each_other_have_their_spectra(device):
    models = tuple((Correlated(20.0, np.outer(*2 * [[1, r, 0, 0, 0]])),) for r in (0.4, 0.1))
    kinds = PlaneSpectra(np.array([0, 1, 0]).reshape(3, 1, 1, 1), models)
    assert kinds.axis == 0
    assert kinds.without(1, 5).axis == 0 and kinds.without(0, 1).axis is None
    np.testing.assert_array_equal(kinds.at((slice(1, 3), *[slice(0, 9)] * 3)), [1, 0])


def test_filters_for_white_noise_see_more_where_it_is_more_correlated(device, stack):
    estimate = gd.estimate_noise(stack, ".YX")
    found = plane_noise_of(estimate, stack.shape)
    ratio = found.white_sigma_ratio(estimate.models).ravel()
    assert ratio[1] > 1.05 > 1 > ratio[0]
    sigma = ratio * estimate.others.factor[0] * estimate.models[0].white_sigma
    told = gd.denoise(stack, small(gd.NLMeans), sigma, axes=".YX", device=device).image
    result = gd.denoise(stack, small(gd.NLMeans), noise=estimate, device=device).image
    np.testing.assert_allclose(result, told, atol=1e-3)
