"""NL-means of magnitudes, less the bias of Rician noise, against the slow one and the truth."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.slow_nl_means import cut_off, each_path, each_window, fast, slow
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.nl_means import NLMeans
from scenes import scene

SIGMA = 20.0


def magnitudes(*shape: int, sigma: float = SIGMA, seed: int = 0) -> np.ndarray:
    """Return the scene, dark on its left, with Rician noise rounded to whole numbers.

    Their distances are exact, so that every search finds the same patches.
    """
    clean = scene(*shape) * np.minimum(np.arange(shape[-1]) / (0.4 * shape[-1]), 1) ** 3
    real, imaginary = np.random.default_rng(seed).normal(0, sigma, (2, *shape))
    return np.rint(np.hypot(clean + real, imaginary)).astype(np.float32)


def same(out, expected, settings: NLMeans, sigma: float = SIGMA, top: float = 300.0) -> None:
    """Compare squares, which are what was averaged: near 0 their roots differ by much more."""
    assert np.all(out >= 0)
    bound = 2 * top * 4 * sigma * cut_off(settings) + 1e-6 * top**2
    np.testing.assert_allclose(
        out.astype(np.float64) ** 2, np.asarray(expected) ** 2, rtol=0, atol=bound
    )


@each_path
def test_the_whole_filter_is_that_of_the_reference(device, profile, changes):
    settings = NLMeans(**{"window": 9, "rician": True, **changes})
    image = magnitudes(31, 38)
    expected = slow(image, settings, SIGMA)
    assert np.any(expected == 0)
    same(fast(image, settings, SIGMA, profile, device), expected, settings)


@each_window
def test_windows_over_frames_and_slices(device, profile, axes, changes):
    settings = NLMeans(patch=4, step=2, window=5, rician=True, **changes)
    shape = {"TYX": (4, 1, 15, 21), "ZYX": (1, 4, 15, 21), "TZYX": (3, 2, 15, 13)}[axes]
    image = magnitudes(*shape)
    out = fast(image, settings, SIGMA, profile, device, "TZYX")
    same(out, slow(image, settings, SIGMA), settings)


@pytest.mark.parametrize("profile", ["lanes", "shared"])
def test_a_map_of_sigma(device, profile):
    settings = NLMeans(patch=5, step=2, window=7, rician=True)
    image = magnitudes(30, 33)
    y, x = np.indices(image.shape)
    sigma = 2.0 ** ((y // 9 + x // 11) % 3 + 3)
    out = fast(image, settings, sigma, profile, device)
    same(out, slow(image, settings, sigma), settings, 32.0)


def test_sigma_for_each_channel_and_where_it_is_0(device):
    settings = NLMeans(patch=4, step=2, window=7, rician=True)
    image = np.stack([magnitudes(25, 28, seed=k) for k in range(3)])
    out = gd.denoise(image, settings, (10, 0, 30), axes="CYX", device=device).image
    for k, sigma in ((0, 10), (2, 30)):
        alone = gd.denoise(image[k], settings, sigma, device=device).image
        np.testing.assert_array_equal(out[k], alone)
        same(alone, slow(image[k], settings, sigma), settings, sigma)
    np.testing.assert_array_equal(out[1], image[1])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "uint64", "float64"])
def test_every_type_is_squared_from_0(device, dtype):
    """A common level is no offset here: without it squares tell nothing of the signal."""
    settings = NLMeans(patch=4, step=2, window=7, rician=True)
    image = np.minimum(magnitudes(25, 28) + 30, 255)
    expected = gd.denoise(image, settings, SIGMA, device=device).image
    given = image.astype(dtype)
    out = gd.denoise(given, settings, SIGMA, device=device, dtype="float32").image
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-4)
    whole = gd.denoise(given, settings, SIGMA, device=device).image
    assert whole.dtype == np.dtype(dtype)
    if whole.dtype.kind != "f":
        np.testing.assert_array_equal(whole, np.rint(out))


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_levels_of_any_size(device, scale):
    settings = NLMeans(patch=4, step=2, window=7, rician=True)
    image = magnitudes(25, 28).astype(np.float64)
    expected = gd.denoise(image, settings, SIGMA, device=device).image
    out = gd.denoise(image * scale, settings, SIGMA * scale, device=device).image
    np.testing.assert_allclose(out / scale, expected, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize(("level", "left"), [(100.0, (1e4 - 800) ** 0.5), (20.0, 0.0)])
def test_a_constant_image_loses_the_bias_of_its_square(device, level, left):
    image = np.full((30, 34), level, np.float32)
    out = gd.nl_means(image, SIGMA, rician=True, device=device)
    np.testing.assert_allclose(out, left, rtol=1e-6)


@pytest.mark.parametrize("ratio", [1.5, 2.0, 4.0])
def test_signals_are_found_where_magnitudes_are_biased(device, ratio):
    """Means of magnitudes are too high by 12 % of sigma even at a signal of 4 sigma."""
    real, imaginary = np.random.default_rng(1).normal(0, SIGMA, (2, 96, 96))
    image = np.hypot(ratio * SIGMA + real, imaginary).astype(np.float32)

    def error(**changes) -> float:
        return abs(gd.nl_means(image, SIGMA, device=device, **changes).mean() / SIGMA - ratio)

    # Means over all of a large patch: nothing is chosen.
    alone = {"patch": 32, "step": 32, "window": 1, "neighbours": 1, "flat": 1.3}
    assert error(**alone) > 0.1
    assert error(**alone, rician=True) < 0.02
    # Patches chosen for being alike are on the side of the many: darker than the mean.
    assert error(rician=True) < 0.1


def test_a_background_is_nearly_0(device):
    real, imaginary = np.random.default_rng(2).normal(0, SIGMA, (2, 96, 96))
    image = np.hypot(real, imaginary).astype(np.float32)
    out = gd.nl_means(image, SIGMA, rician=True, device=device)
    assert np.all(out >= 0)
    assert out.mean() < 0.05 * SIGMA
    assert gd.nl_means(image, SIGMA, device=device).mean() > SIGMA


def test_brightness_is_not_compared(device):
    """Shifted magnitudes would have other squares."""
    image = magnitudes(4, 70, 70) * np.array([1.0, 0.9, 0.8, 0.7], "f4")[:, None, None]
    with_and_without = [
        gd.nl_means(image, 5, axes="TYX", frames_before=1, flicker=f, device=device, rician=r)
        for r in (True, False)
        for f in (True, False)
    ]
    np.testing.assert_array_equal(*with_and_without[:2])
    assert not np.array_equal(*with_and_without[2:])


@pytest.mark.parametrize("axes", ["YX", "CYX", "YXS", "TXY"])
def test_sigma_is_that_of_the_two_parts(device, axes):
    # Most of it is background, where magnitudes vary by 0.66 sigma.
    sigmas = (SIGMA, 2 * SIGMA) if set(axes) & set("CS") else (SIGMA,)
    planes = []
    for sigma in sigmas:
        real, imaginary = np.random.default_rng(3).normal(0, sigma, (2, 128, 128))
        real[40:80, 50:90] += 15 * SIGMA
        planes.append(np.hypot(real, imaginary).astype(np.float32))
    image = np.stack(planes) if len(axes) > 2 else planes[0]
    names = {"YXS": (1, 2, 0), "TXY": (0, 2, 1)}.get(axes)
    image = image if names is None else np.transpose(image, names)
    before = image.copy()
    found = NLMeans(rician=True).estimate_sigma(image, axes)
    np.testing.assert_allclose(found.sigma, sigmas, rtol=0.05)
    assert all(0 < error < 0.1 * SIGMA for error in found.standard_error)
    np.testing.assert_array_equal(image, before)
    result = gd.denoise(image, NLMeans(rician=True), axes=axes, device=device)
    assert result.record.sigma == found.sigma
    assert "Rician" in result.record.sigma_source
    assert NLMeans().estimate_sigma(image, axes) is None


# Settings


def test_it_is_not_for_other_noise():
    with pytest.raises(SettingsError, match="choose one of them"):
        NLMeans(rician=True, distance="pearson")
    on, off = NLMeans(rician=True), NLMeans()
    assert off.for_noise((gd.Rician(3.0), gd.Rician(4.0))) is None
    assert on.for_noise((gd.Rician(3.0),)) == on == on.for_noise((gd.Gaussian(3.0),))
    assert off.for_noise((gd.Gaussian(3.0),)) is None
    assert off.for_noise((gd.Speckle(4.0),)) is None
    with pytest.raises(SettingsError, match="rician=True does not fit speckle noise"):
        on.for_noise((gd.Speckle(4.0),))


def test_a_model_is_sigma_where_it_is_on_and_else_stabilised(device):
    image = magnitudes(25, 28)
    model = gd.Rician(SIGMA)
    expected = gd.nl_means(image, SIGMA, rician=True, device=device)
    told = gd.nl_means(image, noise=model, rician=True, device=device)
    np.testing.assert_array_equal(told, expected)
    by_hand = gd.nl_means(model.stabilise(image), model.sigma_after, device=device)
    result = gd.nl_means(image, noise=model, device=device)
    np.testing.assert_allclose(result, model.inverse(by_hand), atol=0.01 * SIGMA)
