"""NL-means of magnitudes, whose noise is Rician."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.nl_means import NLMeans
from scenes import altered, scene

TYPES = ["uint8", "int16", "uint64", "float64"]


def magnitudes(*shape: int, seed: int = 0) -> np.ndarray:
    """Return the scene, dark on its left, with Rician noise rounded to whole numbers.

    Their distances are exact, so that every search finds the same patches.
    """
    clean = scene(*shape) * np.minimum(np.arange(shape[-1]) / (0.4 * shape[-1]), 1) ** 3
    real, imaginary = np.random.default_rng(seed).normal(0, 20.0, (2, *shape))
    return np.rint(np.hypot(clean + real, imaginary)).astype(np.float32)


def background(*shape: int, sigma: float, signal: float = 0.0, seed: int = 1) -> np.ndarray:
    """Return magnitudes of one signal."""
    real, imaginary = np.random.default_rng(seed).normal(0, sigma, (2, *shape))
    return np.hypot(signal + real, imaginary).astype(np.float32)


def small(**changes) -> NLMeans:
    return NLMeans(rician=True, **{"patch": 4, "step": 2, "window": 7, **changes})


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_is_seen_from_0(device, dtype):
    """A common level is no offset here: without it squares tell nothing of the signal."""
    settings = small()
    image = np.minimum(magnitudes(25, 28) + 30, 255)
    expected = gd.denoise(image, settings, 20.0, device=device).image
    given = image.astype(dtype)
    out = gd.denoise(given, settings, 20.0, device=device, dtype="float32").image
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-4)
    whole = gd.denoise(given, settings, 20.0, device=device).image
    np.testing.assert_array_equal(whole, out if whole.dtype.kind == "f" else np.rint(out))


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_levels_of_any_size(device, scale):
    settings, image = small(), magnitudes(25, 28).astype(np.float64)
    expected = gd.denoise(image, settings, 20.0, device=device).image
    out = gd.denoise(image * scale, settings, 20.0 * scale, device=device).image
    np.testing.assert_allclose(out / scale, expected, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("axes", ["YX", "YXS", "TXY"])
def test_sigma_is_that_of_both_parts(device, axes):
    sigmas, planes = np.multiply((0.5, 1.5) if "S" in axes else (1,), 20.0), []
    for sigma in sigmas:
        # Many pixels show background, where magnitudes vary by 0.66 sigma.
        signal = np.zeros((128, 128))
        signal[40:80, 50:90] = 300
        planes.append(background(128, 128, sigma=sigma, signal=signal, seed=3))
    image = np.stack(planes) if len(axes) > 2 else planes[0]
    image = np.transpose(image, {"YXS": (1, 2, 0), "TXY": (0, 2, 1), "YX": (0, 1)}[axes])
    before, settings = image.copy(), NLMeans(rician=True)
    found = settings.estimate_sigma(image, axes)
    np.testing.assert_allclose(found.sigma, sigmas, rtol=0.05)
    np.testing.assert_array_equal(image, before)
    result = gd.denoise(image, settings, axes=axes, device=device)
    assert result.record.sigma == found.sigma
    assert "Rician" in result.record.sigma_source
    assert NLMeans().estimate_sigma(image, axes) is None
    assert all(0 < error < 2 for error in found.standard_error)


@pytest.mark.parametrize("rician", [False, True])
def test_brightness_of_magnitudes_is_not_followed(device, rician):
    """Shifted magnitudes would have other squares."""
    fading = np.array([1.0, 0.9, 0.8, 0.7], "f4")[:, None, None]
    followed = NLMeans(frames_before=2, rician=rician)
    found, other = (
        gd.denoise(magnitudes(4, 70, 70) * fading, one, 5, axes="TYX", device=device).image
        for one in (followed, altered(followed, compares_brightness=False))
    )
    assert np.array_equal(found, other) == rician


@pytest.mark.parametrize(("level", "left"), [(100.0, (1e4 - 800) ** 0.5), (20.0, 0.0)])
def test_a_constant_image_loses_the_bias_of_its_square(device, level, left):
    image = np.full((30, 34), level, np.float32)
    out = gd.nl_means(image, 20.0, rician=True, device=device)
    np.testing.assert_allclose(out, left, rtol=1e-6)


@pytest.mark.parametrize("ratio", [0.0, 1.5, 4.0])
def test_signals_are_found_where_magnitudes_are_biased(device, ratio):
    """Means of magnitudes are too high by 12 % of sigma even at a signal of 4 sigma."""
    image = background(96, 96, sigma=20.0, signal=20 * ratio)

    def error(**changes) -> float:
        return abs(gd.nl_means(image, 20.0, device=device, **changes).mean() / 20 - ratio)

    # Patches chosen for being alike are on the side of the many: darker than the mean.
    assert error(rician=True) < (0.1 if ratio else 0.05)
    if ratio:
        # Means over all of a large patch: nothing is chosen.
        alone = {"patch": 32, "step": 32, "window": 1, "neighbours": 1, "flat": 1.3}
        assert error(**alone) > 0.1
        assert error(**alone, rician=True) < 0.02
    else:
        assert error() > 1


# Models of noise


def test_models_of_noise_that_a_law_fits():
    on, off = NLMeans(rician=True), NLMeans()
    assert on.takes((gd.Rician(3.0),)) and on.takes((gd.Gaussian(3.0),))
    for models in ((gd.Rician(3.0), gd.Rician(4.0)), (gd.Gaussian(3.0),), (gd.Speckle(4.0),)):
        assert not off.takes(models)
    with pytest.raises(SettingsError, match="rician=True does not fit speckle noise"):
        on.takes((gd.Speckle(4.0),))


def test_a_model_is_sigma_where_it_is_on_and_else_stabilised(device):
    image, model = magnitudes(25, 28), gd.Rician(20.0)
    expected = gd.nl_means(image, 20.0, rician=True, device=device)
    told = gd.nl_means(image, noise=model, rician=True, device=device)
    np.testing.assert_array_equal(told, expected)
    by_hand = gd.nl_means(model.stabilise(image), model.sigma_after, device=device)
    result = gd.nl_means(image, noise=model, device=device)
    np.testing.assert_allclose(result, model.inverse(by_hand), atol=0.2)
