"""Multiplicative noise: the isoline filter takes it from the image itself, whatever its scale."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.slow_isoline import slow
from napari_gpu_denoise.errors import SigmaError
from napari_gpu_denoise.filters.isoline import Isoline
from scenes import psnr, scene

LOOKS = 4.0
SPECKLE = {"criterion": "multiplicative", "looks": LOOKS}
TOLD = "not used: multiplicative noise of 4 looks"


def speckled(*shape: int, looks: float = LOOKS, seed: int = 0) -> np.ndarray:
    """Return the scene times gamma noise of mean 1."""
    noise = np.random.default_rng(seed).gamma(looks, 1 / looks, shape)
    return (scene(*shape) * noise).astype(np.float32)


def denoised(image, given=None, **options) -> np.ndarray:
    places = ("axes", "device", "dtype", "memory_limit")
    named = {k: options.pop(k) for k in places if k in options}
    return gd.denoise(image, Isoline(**SPECKLE, **options), given, **named).image


CHANGES = [
    {},
    {"channels": "joint", "staircase": 0},
    {"choice": "hard", "channels": "joint"},
    {"method": "pi-ld", "max_length": 10},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_constant_factor_multiplies_the_result(device, changes):
    image = speckled(3, 34, 39).astype("float64")
    options = {"axes": "CYX", "device": device, **changes}
    expected = denoised(image, **options)
    for power in (-600, 40, 664):
        out = denoised(image * 2.0**power, **options)
        np.testing.assert_allclose(out / 2.0**power, expected, rtol=0, atol=2e-3)


def test_a_level_of_its_own_is_no_offset(device):
    """Ratios tell something here: an image of large levels has much noise, and keeps its zero."""
    image = speckled(40, 45).astype(np.float64)
    expected = denoised(image, device=device)
    raised = denoised(image + 1e6, device=device) - 1e6
    assert np.mean(np.abs(raised - expected)) > 5
    settings = Isoline(**SPECKLE)
    np.testing.assert_allclose(raised, slow(image + 1e6, settings) - 1e6, atol=1.0)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("looks", [0.1, 10000.0])
def test_zeros_and_negative_values_give_finite_results(device, changes, looks):
    image = speckled(3, 34, 39)
    image[:, :, 10:20] = 0
    image[:, 20:, 25:30] *= -1
    image[1] = 0
    settings = Isoline(**{**SPECKLE, "looks": looks, **changes})
    out = gd.denoise(image, settings, axes="CYX", device=device).image
    assert np.all(np.isfinite(out))
    assert np.all(np.abs(out) <= 1.5 * np.abs(image).max())
    nothing = gd.denoise(np.zeros_like(image), settings, axes="CYX", device=device).image
    assert not nothing.any()


# Sigma


def test_sigma_is_not_used_but_where_it_is_zero(device):
    image = speckled(3, 34, 39)
    for changes in ({}, {"channels": "joint"}):
        options = {"axes": "CYX", "device": device, **changes}
        expected = denoised(image, **options)
        for given in (7.0, 1e-3, (1.0, 10.0, 100.0)):
            np.testing.assert_array_equal(denoised(image, given, **options), expected)
        partly = denoised(image, (1.0, 0.0, 1.0), **options)
        np.testing.assert_array_equal(partly[1], image[1])
        np.testing.assert_array_equal(partly[::2], expected[::2])
        area = np.indices(image.shape[1:])[1] / 38.0
        area[:, 20:25] = 0
        mapped = denoised(image, area, **options)
        np.testing.assert_array_equal(mapped[:, area == 0], image[:, area == 0])
        np.testing.assert_array_equal(mapped[:, area > 0], expected[:, area > 0])
    none = gd.denoise(image[0], Isoline(**SPECKLE), 0, device=device)
    np.testing.assert_array_equal(none.image, image[0])
    assert any("sigma is 0" in note for note in none.record.notes)
    with pytest.raises(SigmaError, match="-1"):
        denoised(image[0], -1, device=device)


def test_the_record_says_what_the_noise_was(device):
    image = speckled(2, 34, 39)
    for given in (None, 12.0):
        record = gd.denoise(image, Isoline(**SPECKLE), given, device=device).record
        assert record.sigma_source == TOLD
        assert record.sigma == ()
        assert record.settings["criterion"] == "multiplicative"
        assert record.settings["looks"] == LOOKS
        assert record.as_dict()["sigma"] == []
    assert Isoline(criterion="multiplicative", looks=2.5).sigma_unused.endswith("2.5 looks")
    assert Isoline(looks=2.5).sigma_unused == ""


# What it gives


def test_it_beats_noise_of_one_sigma_all_over(device):
    clean = scene(128, 160) * np.linspace(0.1, 1, 160)
    image = clean * np.random.default_rng(1).gamma(LOOKS, 1 / LOOKS, clean.shape)
    aware = denoised(image, device=device)
    additive = gd.isoline(image, float(np.std(image - clean)), device=device)
    assert psnr(aware, clean) > psnr(image, clean) + 6
    assert psnr(aware, clean) > psnr(additive, clean) + 0.5
    # Gamma noise is skewed: what is bright by chance counts a little less.
    assert aware.mean() == pytest.approx(image.mean(), rel=0.02)


def test_looks_tell_how_much_is_taken_away(device):
    image = speckled(60, 64)
    left = []
    for looks in (10000.0, 100.0, LOOKS):
        out = gd.isoline(image, criterion="multiplicative", looks=looks, device=device)
        left.append(np.std(out - image))
    assert left[0] < 0.1 * left[2]
    assert left[0] < left[1] < left[2]
