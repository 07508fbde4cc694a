"""Noise of magnitude images: Rayleigh in the background, Rician in the object."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import digamma
from scipy.stats import gamma

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.magnitude import _gain, rayleigh_background
from napari_gpu_denoise.noise.patches.selection import Plane
from reference.data import REASON, data_folder, pictures


def magnitude(picture, sigma=10.0, seed=0):
    real, imaginary = np.random.default_rng(seed).normal(0, sigma, (2, *np.shape(picture)))
    return np.hypot(picture + real, imaginary)


def head(size=192, radius=0.3):
    """An object of several levels on an empty ground."""
    y, x = np.mgrid[:size, :size]
    away = np.hypot(y - size / 2, x - size / 2)
    return np.where(away < radius * size, 100 + 60 * np.cos(away * 27 / size) + 0.2 * x, 0)


def background(*planes):
    return rayleigh_background(list(map(Plane, planes)))


def slopes(low):
    y, x = np.mgrid[:192, :192]
    return low + 0.5 * x + 20 * np.cos(y / 15)


AS_TYPES = {
    "float32": np.float32,
    "rounded": lambda image: np.rint(image).astype(np.uint8),
    "cut off": lambda image: image.astype(np.uint8),
}


@pytest.mark.parametrize("dtype", AS_TYPES)
@pytest.mark.parametrize("sigma", [1.6, 3, 7.6, 25])
def test_background(sigma, dtype):
    """Quantiles of integers are integers: sigma of 3 would come out as 2.8."""
    found = background(AS_TYPES[dtype](magnitude(head(), sigma).clip(0, 255)))
    assert found.sigma == pytest.approx(sigma, rel=0.015)
    assert abs(found.sigma - sigma) < 3 * found.error
    assert found.share == pytest.approx(1 - math.pi * 0.09, abs=0.06)


@pytest.mark.parametrize("signal", [12, 30, 300])
def test_a_flat_object_is_no_background(signal):
    """Its sums of squares are as regular as those of pure noise of another sigma."""
    image = magnitude(np.full((192, 192), float(signal)))
    assert background(image) is None or signal < 15
    assert gd.estimate_noise(image, model="rician").sigma[0] == pytest.approx(10, rel=0.05)


def test_a_background_beside_an_object_of_little_signal():
    """Many parts of the object pass for background, which makes that look too strong."""
    found = [
        gd.estimate_noise(magnitude(np.where(head(256, 0.5) > 0, 20.0, 0), seed=seed)).sigma[0]
        for seed in range(4)
    ]
    assert found == pytest.approx([10] * 4, rel=0.02)


def others():
    """Yield images that are like magnitudes with a background but for one thing."""
    rng, dim = np.random.default_rng(0), head() / 12
    yield "counts", rng.poisson(2 + dim)
    yield "counts in steps", 5.0 * rng.poisson(2 + dim)
    yield "few photons", (2.2 * rng.poisson(1 + dim / 2)).astype(np.float32)
    yield "fluorescence", 2 * rng.poisson(dim / 2) + np.abs(rng.normal(0, 1, dim.shape))
    yield "averaged counts", rng.poisson(np.stack([2 + dim] * 4)).mean(axis=0)
    yield "dark photograph", np.maximum(dim + 10 + rng.normal(0, 3, dim.shape), 0)
    yield "clipped blacks", np.rint(dim + rng.normal(0, 3, dim.shape)).clip(0, 255).astype("u1")
    yield "black level", np.maximum(dim - 2 + rng.normal(0, 2, dim.shape), 0)
    yield "negative values", magnitude(head()) - 1
    yield "intensities", (1 + dim) * rng.gamma(4, 0.25, dim.shape)
    yield "amplitudes of speckle", (5 + dim) * rng.rayleigh(1, dim.shape)
    yield "counts of one level", rng.poisson(8.0, dim.shape)
    yield "counts of nearly one level, in steps", 2.5 * rng.poisson(slopes(100) / 12)


@pytest.mark.parametrize(("what", "image"), [pytest.param(*each, id=each[0]) for each in others()])
def test_other_noise_is_not_rician(what, image):
    assert gd.estimate_noise(image).name != "rician"


@pytest.mark.parametrize("k", [1, 4, 20])
def test_a_gamma_law_is_as_likely_as_its_entropy_says(k):
    logarithm, energy = digamma(k) - math.log(k), (1 + 1 / k) / 2  # of a mean of 1
    likely = logarithm - math.log(energy) - 1 + gamma(k, scale=1 / k).entropy()
    assert _gain(energy, 1 / k, logarithm, 0.0) == pytest.approx(likely, abs=1e-3)


@pytest.mark.parametrize("fill", [0, -5])
def test_filled_background_is_left_out(fill):
    picture = head()
    image = np.where(picture > 0, magnitude(picture), fill)
    assert gd.estimate_noise(image, model="rician").sigma[0] == pytest.approx(10, rel=0.1)
    image = magnitude(picture)
    image[:, :96] = fill
    found = gd.estimate_noise(image)
    assert found.name == "rician" and "background" in found.method
    assert found.sigma[0] == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("picture", [head(96), slopes(60)], ids=["background", "object"])
def test_standard_errors_hold(picture):
    found = [gd.estimate_noise(magnitude(picture, 10, k), model="rician") for k in range(24)]
    distance = np.abs([(each.sigma[0] - 10) / each.standard_error[0] for each in found])
    assert 0.55 < (distance < 1).mean() < 0.9
    assert (distance < 2).mean() > 0.9


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize(("percent", "dtype"), zip((3, 5, 9), AS_TYPES, strict=True))
def test_heads(percent, dtype):
    sigma = 255 * percent / 100
    for i, picture in enumerate([*pictures("colin27").values()][::2]):
        found = gd.estimate_noise(AS_TYPES[dtype](magnitude(picture, sigma, i).clip(0, 255)))
        assert found.name == "rician"
        assert found.sigma[0] == pytest.approx(sigma, rel=0.02)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize(("name", "percent"), [("FLAIR", 5), ("CT_AVM", 5), ("chris_t1", 10)])
def test_volumes(name, percent):
    clean = next(iter(np.load(data_folder() / f"trust/{name}.npz").values()))
    sigma = 2.55 * percent
    noisy = magnitude(255.0 * clean / clean.max(), sigma)
    for image in (noisy.astype(np.float32), np.rint(noisy).clip(0, 255).astype(np.uint8)):
        found = gd.estimate_noise(image, "ZYX")
        assert found.name == "rician"
        assert found.sigma[0] == pytest.approx(sigma, rel=0.07)
