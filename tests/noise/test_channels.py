"""Covariance of the noise of channels."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError
from napari_gpu_denoise.noise.correlation import channel_covariance

MIX = np.array([[2, 0, 0], [1, 2, 0], [0, -1, 3.0]])


def noise(shape=(256, 256), seed=0):
    white = np.random.default_rng(seed).normal(0, 1, (3, *shape))
    return np.einsum("ij,jyx->iyx", MIX, white)


def scene(ny=256, nx=256):
    """Structure that the channels share, fine texture in the lower half of it."""
    y, x = np.mgrid[:ny, :nx]
    picture = 90 + 40 * np.sin(x / 40) + 30 * np.cos(y / 25)
    picture = picture + np.where(y > ny // 2, 25 * np.sin(2.1 * x) * np.sin(1.7 * y), 0)
    return np.array([1, 0.5, 2])[:, None, None] * picture


@pytest.mark.parametrize("clean", [0, scene()])
def test_known_covariance(clean):
    found = channel_covariance(clean + noise())
    error = np.array(found.error)
    wanted = MIX @ MIX.T
    assert np.all(np.abs(np.array(found.covariance) - wanted) < 4 * error + 0.05 * wanted.max())
    assert error.max() < 1
    correlation = np.array(found.correlation)
    assert correlation[0, 1] == pytest.approx(2 / 20**0.5, abs=0.1)
    assert np.array_equal(correlation, correlation.T)


def test_standard_error_predicts_the_spread():
    found = [channel_covariance(noise((96, 96), seed)) for seed in range(30)]
    spread = np.std([each.covariance for each in found], axis=0, ddof=1)
    predicted = np.sqrt(np.mean(np.square([each.error for each in found]), axis=0))
    assert 0.5 < np.median(predicted / spread) < 2


def test_channels_of_very_different_noise():
    white = np.random.default_rng(0).normal(0, 1, (2, 200, 200))
    found = channel_covariance(np.array([0.01, 100.0])[:, None, None] * white)
    assert found.covariance[0][0] == pytest.approx(1e-4, rel=0.1)
    assert found.covariance[1][1] == pytest.approx(1e4, rel=0.1)
    assert abs(found.correlation[0][1]) < 0.1


def test_texture_of_a_quiet_channel_counts():
    """Beside the noise of the other channel it is hardly seen."""
    y, x = np.mgrid[:200, :200]
    texture = np.where(y > 60, 2 * np.sin(0.9 * x) * np.sin(2.5 * y), 0)
    white = np.random.default_rng(0).normal(0, 1, (2, 200, 200))
    found = channel_covariance(np.stack([texture + 0.1 * white[0], 50 * white[1]]))
    assert found.covariance[0][0] == pytest.approx(0.01, rel=0.3)
    assert found.covariance[1][1] == pytest.approx(2500, rel=0.15)


def test_constant_channels():
    found = channel_covariance(np.full((2, 40, 40), 7.0))
    assert found.covariance == ((0, 0), (0, 0))
    assert found.correlation == ((1, 0), (0, 1))
    image = np.stack([np.full((100, 100), 7.0), noise((100, 100))[0]])
    found = channel_covariance(image)
    assert found.covariance[0] == (0, 0)
    assert found.covariance[1][1] == pytest.approx(4, rel=0.1)


def test_nonfinite_and_clipped_pixels_are_left_out():
    image = 100 + noise()
    image[0, ::30, ::30] = np.nan
    image[1, :, :60] = 130
    found = channel_covariance(image)
    assert found.covariance[0][1] == pytest.approx(2, abs=0.4)
    with pytest.raises(NonFiniteError):
        channel_covariance(np.full((2, 20, 20), np.nan))


def test_record_and_refusals():
    found = channel_covariance(noise((64, 64)))
    again = json.loads(json.dumps(asdict(found)))
    assert again["covariance"] == [list(row) for row in found.covariance]
    with pytest.raises(AxesError, match="channels"):
        channel_covariance(np.zeros((20, 20)))
    with pytest.raises(ImageError):
        channel_covariance(np.zeros((2, 0, 20)))


def test_levels_at_the_end_of_float64():
    """Some energies overflowed, and the error of the others was 0, by which it divided."""
    image = np.random.default_rng(0).normal(100, 20, (3, 12, 14))
    image[:, 3, 4] = -np.finfo(np.float64).max
    with np.errstate(all="ignore"):
        found = channel_covariance(image)
    assert np.shape(found.covariance) == (3, 3)
