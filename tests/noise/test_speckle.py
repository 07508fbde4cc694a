"""Number of looks of speckled images."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import AxesError, NonFiniteError
from napari_gpu_denoise.noise.magnitude import speckle_noise
from reference.data import REASON, data_folder, pictures


def speckled(picture, looks, seed=0):
    return picture * np.random.default_rng(seed).gamma(looks, 1 / looks, np.shape(picture))


def fields(ny=256, nx=256):
    """Fields of several levels and slopes, texture in a third of the picture."""
    y, x = np.mgrid[:ny, :nx]
    picture = 50 + 40 * (x // 64) + 0.2 * y
    return np.where(y > 2 * ny // 3, picture * (1 + 0.7 * np.sin(1.9 * x) * np.sin(y)), picture)


@pytest.mark.parametrize("looks", [1, 4, 16, 100])
def test_known_looks(looks):
    flat = speckle_noise(speckled(np.full((256, 256), 80.0), looks))
    assert flat.looks == pytest.approx(looks, rel=0.05)
    assert flat.contrast == pytest.approx(flat.looks**-0.5)
    image = speckled(fields(), looks)
    assert speckle_noise(image).looks == pytest.approx(looks, rel=0.15)


def test_texture_would_tell_otherwise():
    """The mean over all windows is what the mode is there to avoid."""
    image = speckled(fields(), 16)
    windows = image.reshape(32, 8, 32, 8)
    ratio = windows.var(axis=(1, 3)) / np.square(windows.mean(axis=(1, 3)))
    assert 1 / ratio.mean() < 0.75 * 16


@pytest.mark.parametrize("looks", [1, 16])
def test_standard_error_predicts_the_spread(looks):
    found = [speckle_noise(speckled(fields(), looks, seed)) for seed in range(25)]
    spread = np.std([each.looks for each in found], ddof=1)
    predicted = np.sqrt(np.mean([each.error**2 for each in found]))
    assert 0.4 < predicted / spread < 2.5


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (2, 2), (40, 40)])
@pytest.mark.parametrize("value", [0, 7.3, -2])
def test_constant_image_has_no_noise(shape, value):
    found = speckle_noise(np.full(shape, value))
    assert (found.looks, found.error, found.contrast) == (math.inf, 0, 0)


@pytest.mark.parametrize("shape", [(1, 9), (3, 3), (9, 9), (2, 100)])
def test_small_images_give_a_number(shape):
    found = speckle_noise(speckled(np.full(shape, 50.0), 4))
    assert found.looks > 0
    assert math.isfinite(found.error)


def test_clipped_and_nonfinite_pixels_are_left_out():
    image = speckled(fields(), 4)
    image[:, :90] = image[:, :90].clip(None, 60)
    image[::40, ::40] = np.nan
    assert speckle_noise(image).looks == pytest.approx(4, rel=0.2)
    with pytest.raises(NonFiniteError):
        speckle_noise(np.full((20, 20), np.nan))


def test_the_level_does_not_matter():
    image = speckled(fields(), 4)
    assert speckle_noise(1000 * image).looks == pytest.approx(speckle_noise(image).looks, rel=1e-6)


def test_record_and_refusal():
    found = speckle_noise(speckled(fields(), 4))
    assert json.loads(json.dumps(asdict(found)))["looks"] == found.looks
    with pytest.raises(AxesError):
        speckle_noise(np.zeros(5))


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize("looks", [1, 4, 16])
def test_photographs(looks):
    error = [
        speckle_noise(speckled(picture.astype(float), looks, i)).looks / looks - 1
        for i, picture in enumerate(pictures("denoiselab13").values())
    ]
    assert np.abs(error).mean() <= 0.15
    assert np.median(np.abs(error)) <= 0.10


def test_the_curve_has_the_variance_of_whole_pixels():
    """High frequencies hold little of the noise of speckle with a grain of several pixels."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:200, :220]
    clean = 20 + 200 * np.sin(x / 40) ** 2 * np.cos(y / 60) ** 2
    parts = [gaussian_filter(rng.standard_normal(clean.shape), 1, mode="wrap") for _ in range(2)]
    speckle = sum(np.square(part / part.std()) for part in parts) / 2
    estimate = gd.estimate_noise(clean * speckle, model="speckle")
    (curve,), (model,) = estimate.curves, estimate.models
    used = np.array(curve.used)
    ratio = np.array(curve.variance)[used] / model.variance(np.array(curve.mean)[used])
    assert 0.3 < np.median(ratio) < 1.5
