"""The model of correlated noise, and how it is read from a picture."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import Correlated, NoiseModel
from scenes import scene

WHITE = np.pad([[1.0]], ((0, 4), (0, 4)))
TABLE = np.exp(-np.add.outer(np.arange(5) ** 2, 3 * np.arange(5) ** 2) / 5)


def test_a_model_is_plain_numbers_and_comes_back():
    model = Correlated(np.float32(4.5), TABLE)
    assert model.sigma_after == model.sigma == 4.5
    assert model.autocorrelation == tuple(map(tuple, TABLE.tolist()))
    assert hash(model) == hash(Correlated(4.5, TABLE.tolist()))
    told = json.loads(json.dumps(model.as_dict(), allow_nan=False))
    assert told["model"] == "correlated"
    assert NoiseModel.from_dict(told) == model
    assert "sigma 4.5" in model.summary()
    assert "0.55 along x" in model.summary()


def test_there_is_nothing_to_stabilise():
    model, image = Correlated(3.0, TABLE), np.arange(12, dtype=np.uint8).reshape(3, 4)
    for made in (model.stabilise(image), model.inverse(image)):
        assert made.dtype == np.float32
        np.testing.assert_array_equal(made, image)
    np.testing.assert_array_equal(model.variance([1.0, 200.0]), [9.0, 9.0])


def test_white_is_where_neighbours_tell_nothing():
    assert Correlated(3.0, WHITE).white
    for place in ((0, 1), (3, 0), (2, 4)):
        table = WHITE.copy()
        table[place] = 0.1
        assert not Correlated(3.0, table).white


@pytest.mark.parametrize(
    ("sigma", "table"),
    [
        (-1.0, TABLE),
        (np.nan, TABLE),
        (1.0, TABLE[:4, :4]),
        (1.0, 0.5 * TABLE),
        (1.0, WHITE + np.eye(5)[::-1] * 1.5),
        (1.0, TABLE * np.nan),
        (1.0, [[1.0, 0.5], [0.5]]),
        (1.0, "white"),
        (1.0, 1.0),
    ],
)
def test_what_is_no_noise_is_refused(sigma, table):
    with pytest.raises(SettingsError, match=r"give "):
        Correlated(sigma, table)


def test_a_picture_tells_the_model():
    clean = scene(384, 384)
    noise = gaussian_filter(np.random.default_rng(0).normal(size=clean.shape), (0.7, 1.2))
    noise *= 12 / noise.std()
    model = Correlated.of_spectrum(noise_spectrum(clean + noise))
    assert model.sigma == pytest.approx(12, rel=0.1)
    lag = np.arange(5)
    expected = np.exp(-np.add.outer(lag**2 / 0.7**2, lag**2 / 1.2**2) / 4)
    np.testing.assert_allclose(model.autocorrelation, expected, atol=0.1)


def test_slopes_raise_its_sigma_less_than_that_of_the_spectrum():
    y, x = np.mgrid[:256, :256]
    noise = gaussian_filter(np.random.default_rng(1).normal(size=x.shape), 1.0)
    spectrum = noise_spectrum(5 * noise / noise.std() + 120 * np.sin(x / 20) * np.cos(y / 30))
    assert spectrum.sigma > 1.3 * Correlated.of_spectrum(spectrum).sigma
    assert Correlated.of_spectrum(spectrum).sigma == pytest.approx(5, rel=0.25)


def test_a_constant_picture_has_none():
    model = Correlated.of_spectrum(noise_spectrum(np.full((64, 64), 7.0)))
    assert model.sigma == 0
    assert model.white
