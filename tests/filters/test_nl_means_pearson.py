"""NL-means with the Pearson distance, for noise whose variance grows with brightness."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from filters.slow_nl_means import cut_off, each_path, each_window, fast, slow
from filters.test_nl_means import Stages, variants
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.nl_means import NLMeans
from reference import nl_means as reference
from scenes import psnr, scene

SIGMA = 2.0


def speckled(*shape: int, sigma: float = SIGMA, seed: int = 0) -> np.ndarray:
    """Return the scene, dark on its left, with noise of variance sigma^2 times the grey level."""
    clean = scene(*shape) * np.minimum(0.1 + np.arange(shape[-1]) / shape[-1], 1)
    noise = np.random.default_rng(seed).normal(0, sigma, shape)
    return (clean + np.sqrt(clean) * noise).astype(np.float32)


def squares(*shape: int, seed: int = 0) -> np.ndarray:
    """Return the same of square numbers: the distances of their roots are exact, in any order."""
    return np.rint(np.sqrt(np.maximum(speckled(*shape, seed=seed), 0))) ** 2


def bound(settings: NLMeans, sigma: float = SIGMA, top: float = 300.0) -> float:
    """Return how far a pixel may be from the reference: see `cut_off`; noise is sigma sqrt(top)."""
    return 4 * sigma * top**0.5 * cut_off(settings) + 1e-6 * top


@each_path
def test_the_whole_filter_is_that_of_the_reference(device, profile, changes):
    settings = NLMeans(**{"window": 9, "distance": "pearson", **changes})
    image = squares(31, 38)
    out = fast(image, settings, SIGMA, profile, device)
    np.testing.assert_allclose(out, slow(image, settings, SIGMA), rtol=0, atol=bound(settings))


@each_window
def test_windows_over_frames_and_slices(device, profile, axes, changes):
    settings = NLMeans(patch=4, step=2, window=5, distance="pearson", **changes)
    shape = {"TYX": (4, 1, 15, 21), "ZYX": (1, 4, 15, 21), "TZYX": (3, 2, 15, 13)}[axes]
    image = squares(*shape)
    out = fast(image, settings, SIGMA, profile, device, "TZYX")
    np.testing.assert_allclose(out, slow(image, settings, SIGMA), rtol=0, atol=bound(settings))


def test_every_search_finds_the_matches_of_the_reference(device):
    settings = NLMeans(patch=4, step=2, window=7, distance="pearson")
    image = squares(27, 31)
    tried = variants(settings, device)[2:]  # widest lanes, and what shares distances
    assert len({variant.kernel for variant in tried}) >= 2
    first = Stages(image, settings, device, tried[0])
    roots = 2 * np.sqrt(first.volume.astype(np.float64))
    for number in range(0, len(first.positions), 5):
        expected = reference.search(
            roots, first.positions[number], first.offsets, settings.patch, settings.neighbours
        )
        np.testing.assert_array_equal(first.matches(number), expected)
    for variant in tried[1:]:
        keys = Stages(image, settings, device, variant).keys
        np.testing.assert_array_equal(keys, first.keys, err_msg=str(variant))


@pytest.mark.parametrize("profile", ["lanes", "shared"])
def test_a_map_of_sigma(device, profile):
    settings = NLMeans(patch=5, step=2, window=7, distance="pearson")
    image = squares(30, 33)
    y, x = np.indices(image.shape)
    sigma = 2.0 ** ((y // 9 + x // 11) % 3)
    out = fast(image, settings, sigma, profile, device)
    np.testing.assert_allclose(out, slow(image, settings, sigma), rtol=0, atol=bound(settings, 4))


def test_images_that_are_no_square_numbers(device):
    settings = NLMeans(window=9, distance="pearson")
    image = speckled(36, 40)
    error = np.abs(
        gd.denoise(image, settings, SIGMA, device=device).image - slow(image, settings, SIGMA)
    )
    # Rounding may turn which of two all but equal patches comes in last.
    assert np.mean(error > bound(settings)) < 0.02
    assert error.max() < SIGMA * 15 / 4


def test_levels_of_0_and_below(device):
    """Roots of what is not positive are 0; means are those of the pixels as they are."""
    settings = NLMeans(patch=4, step=2, window=7, distance="pearson")
    image = squares(27, 31)
    image[:9] = 0
    image[12:16, 5:20] = -49
    image[20:24, ::3] = -100
    out = gd.denoise(image, settings, SIGMA, device=device).image
    np.testing.assert_allclose(out, slow(image, settings, SIGMA), rtol=0, atol=bound(settings))
    np.testing.assert_array_equal(out[:4], 0)


@pytest.mark.parametrize("value", [0.0, -3.0, 0.37, 171.3])
def test_a_constant_image_is_unchanged_to_the_last_bit(device, value):
    image = np.full((2, 30, 34), value, np.float32)
    out = gd.nl_means(image, SIGMA, distance="pearson", device=device)
    np.testing.assert_array_equal(out, image)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "uint64", "float64"])
def test_every_type_is_compared_from_0(device, dtype):
    settings = NLMeans(patch=4, step=2, window=7, distance="pearson")
    image = np.minimum(squares(25, 28) + 16, 255)
    expected = gd.denoise(image, settings, SIGMA, device=device).image
    out = gd.denoise(image.astype(dtype), settings, SIGMA, device=device, dtype="float32").image
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**-12, 2.0**40])
def test_sigma_has_the_unit_of_a_root(device, scale):
    settings = NLMeans(patch=4, step=2, window=7, distance="pearson")
    image = squares(25, 28).astype(np.float64)
    # The largest value becomes a quarter to a half: with this one by a power of four.
    image[0, 0] = 17**2
    assert image.max() == 17**2
    expected = gd.denoise(image, settings, SIGMA, device=device).image
    out = gd.denoise(image * scale, settings, SIGMA * scale**0.5, device=device).image
    np.testing.assert_allclose(out / scale, expected, rtol=1e-5)


def test_noise_is_no_change_of_brightness(device):
    """Told as an additive one, sigma would be 14 times too small here, and noise a flicker."""
    common = {"axes": "TYX", "frames_before": 2, "device": device, "distance": "pearson"}
    steady = speckled(5, 70, 70, sigma=4.0) + 100
    fading = steady * np.array([1, 0.9, 0.8, 0.7, 0.6], "f4")[:, None, None]
    for image, equal in ((steady, True), (fading, False)):
        out = [gd.nl_means(image, 4.0, flicker=f, **common) for f in (True, False)]
        assert np.array_equal(*out) is equal


def test_it_keeps_the_mean_and_gains_where_the_law_holds(device):
    rng = np.random.default_rng(5)
    clean = scene(128, 128) * np.linspace(0.05, 1, 128)
    image = (clean + np.sqrt(clean) * rng.normal(0, 3, clean.shape)).astype(np.float32)
    out = gd.nl_means(image, distance="pearson", device=device)
    assert abs(np.mean(out - clean)) < 0.01 * clean.mean()
    usual = max(psnr(gd.nl_means(image, s, device=device), clean) for s in (15, 20, 25, 30))
    assert psnr(out, clean) > usual + 0.3


# Sigma


@pytest.mark.parametrize("axes", ["YX", "CYX", "YXS", "TXY"])
def test_sigma_is_estimated_in_the_unit_of_a_root(device, axes):
    sigmas = (1.0, 3.0) if set(axes) & set("CS") else (SIGMA,)
    planes = [speckled(140, 150, sigma=s, seed=7) for s in sigmas]
    image = np.stack(planes) if len(axes) > 2 else planes[0]
    names = {"YXS": (1, 2, 0), "TXY": (0, 2, 1)}.get(axes)
    image = image if names is None else np.transpose(image, names)
    before = image.copy()
    found = NLMeans(distance="pearson").estimate_sigma(image, axes)
    np.testing.assert_allclose(found.sigma, sigmas, rtol=0.06)
    np.testing.assert_array_equal(image, before)
    result = gd.denoise(image, NLMeans(distance="pearson"), axes=axes, device=device)
    assert result.record.sigma == found.sigma
    assert "variance over mean" in result.record.sigma_source


def test_noise_that_neighbours_share_counts_in_full():
    rng = np.random.default_rng(8)
    noise = gaussian_filter(rng.normal(size=(200, 210)), 1.0)
    clean = np.linspace(40, 200, 210)
    image = clean + np.sqrt(clean) * SIGMA * noise / noise.std()
    found = NLMeans(distance="pearson").estimate_sigma(image, "YX")
    assert found.sigma[0] == pytest.approx(SIGMA, rel=0.15)
    assert "correlated" in found.method


def test_without_noise_sigma_is_0(device):
    image = np.full((40, 40), 50, np.uint8)
    assert NLMeans(distance="pearson").estimate_sigma(image, "YX").sigma == (0.0,)
    np.testing.assert_array_equal(gd.nl_means(image, distance="pearson", device=device), image)


def test_models_of_noise_are_refused():
    settings = NLMeans(distance="pearson")
    for model in (gd.Gaussian(3.0), gd.Rician(3.0), gd.Speckle(4.0)):
        with pytest.raises(SettingsError, match=r"noise level from sigma.*" + model.name):
            settings.for_noise((model,))
