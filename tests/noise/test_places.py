"""Noise that differs between places of a plane."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise.places import SigmaSurface
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.request import Run

SHAPE = (160, 200)


def scene(shape=SHAPE, seed=0):
    """Return smooth parts, edges and some texture."""
    y, x = np.indices(shape)
    flat = 60.0 + 80 * ((x // 37 + y // 41) % 2) + 0.1 * x
    texture = np.random.default_rng(seed).normal(0, 12, shape) * (x > 0.7 * shape[1])
    smooth = (texture + np.roll(texture, 1, 0) + np.roll(texture, 1, 1)) / 3
    return flat + (smooth + np.roll(smooth, (1, 1), (0, 1))) / 2


def corners(shape=SHAPE, most=2.5):
    """Return 1 in the middle and `most` in the corners, as 1 over the light of a lamp."""
    y, x = (np.linspace(-1, 1, n) for n in shape)
    return 1 + (most - 1) * (y[:, None] ** 2 + x**2) / 2


def noise(seed=1, shape=SHAPE):
    return np.random.default_rng(seed).standard_normal(shape)


def deviation(found, truth):
    """Return the root mean square of the logarithm of the ratio."""
    return float(np.sqrt(np.mean(np.square(np.log(found / truth)))))


@pytest.mark.parametrize("factor", [1.0, 1e-3, 1e4])
def test_noise_that_grows_towards_the_corners_has_a_map(factor):
    truth = 10 * corners()
    estimate = gd.estimate_noise((factor * (scene() + truth * noise())).astype(np.float32), "YX")
    assert estimate.name == "gaussian"
    assert "weakest at the middle" in estimate.summary()
    found = estimate.sigma[0] * estimate.places.factors(*SHAPE)
    assert deviation(found, factor * truth) < 0.12
    assert estimate.sigma[0] == pytest.approx(factor * np.sqrt(np.mean(truth**2)), rel=0.1)
    assert np.mean(estimate.places.factors(*SHAPE) ** 2) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_texture_at_one_side_is_no_map(seed):
    image = scene(seed=seed) + 12 * noise(seed)
    assert gd.estimate_noise(image.astype(np.float32), "YX").places is None


def test_photons_under_uneven_light_are_no_map():
    light = scene() / corners()
    image = 3.0 * np.random.default_rng(0).poisson(light / 3.0)
    estimate = gd.estimate_noise(image.astype(np.float32), "YX")
    assert estimate.name == "poisson-gaussian"
    assert estimate.places is None


def test_photons_after_correction_of_the_light_have_a_gain_that_differs():
    gain, clean = 2 * corners(), scene()
    image = gain * np.random.default_rng(0).poisson(clean / gain)
    estimate = gd.estimate_noise(image.astype(np.float32), "YX")
    factors = estimate.places.factors(*SHAPE)
    found = factors * np.sqrt(estimate.models[0].variance(clean))
    assert deviation(found, np.sqrt(gain * clean)) < 0.15


def test_channels_share_the_map_and_keep_their_sigma():
    truth = np.stack([8 * corners(), 16 * corners()])
    image = scene() + truth * noise(shape=truth.shape)
    estimate = gd.estimate_noise(image.astype(np.float32), "CYX")
    assert estimate.sigma[1] / estimate.sigma[0] == pytest.approx(2, rel=0.1)
    job = start(Run(gd.BM3D()), image.astype(np.float32))
    assert not job.names.startswith("C")
    job = start(Run(gd.BM3D(), axes="CYX"), image.astype(np.float32))
    assert deviation(job.sigma.array, truth) < 0.15
    assert any("each pixel has its own" in note for note in job.sigma.notes)


def test_a_result_with_a_map_does_not_depend_on_channels_beside_it(device):
    truth = np.stack([8 * corners(), 16 * corners()])
    image = (scene() + truth * noise(shape=truth.shape)).astype(np.float32)
    estimate = gd.estimate_noise(image, "CYX")
    settings = gd.NLMeans(patch=3, window=5, step=2)
    both = gd.denoise(image, settings, noise=estimate, axes="CYX", device=device).image
    for channel, sigma in enumerate(estimate.sigma):
        one = sigma * estimate.places.factors(*SHAPE)
        alone = gd.denoise(image[channel], settings, one, device=device).image
        np.testing.assert_allclose(both[channel], alone, atol=2e-3)


def test_an_estimate_with_a_map_survives_json_and_is_for_one_shape():
    image = (scene() + 10 * corners() * noise()).astype(np.float32)
    estimate = gd.estimate_noise(image, "YX")
    again = gd.NoiseEstimate.from_dict(json.loads(json.dumps(estimate.as_dict())))
    assert again.places == estimate.places
    whole = start(Run(gd.NLMeans(), noise=again, axes="YX"), image)
    assert whole.sigma.array.shape == SHAPE
    part = start(Run(gd.NLMeans(), noise=again, axes="YX"), image[:-1])
    assert part.sigma.array.size == 1


@pytest.mark.parametrize(
    "changes",
    [{"coefficients": (0.0,) * 5}, {"coefficients": (np.inf,) * 6}, {"high": 1e9}, {"low": 0.0}],
    ids=["too few", "infinite", "huge", "zero"],
)
def test_a_map_that_is_none_is_refused(changes):
    image = (scene() + 10 * noise()).astype(np.float32)
    places = replace(SigmaSurface((0.0,) * 6, 1.0, 1.0), **changes)
    told = replace(gd.estimate_noise(image, "YX"), places=places)
    with pytest.raises(SettingsError, match="places does not fit"):
        gd.NoiseEstimate.from_dict(told.as_dict())
