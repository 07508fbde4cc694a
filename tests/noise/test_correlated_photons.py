"""Noise that is correlated and grows with brightness, and noise that is weak where it is smooth."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons, NoiseModel

TABLE = np.exp(-np.add.outer(np.arange(5) ** 2, np.arange(5) ** 2) / 4)


def blurred(shape: tuple[int, int], width: float, seed: int = 0) -> np.ndarray:
    noise = gaussian_filter(np.random.default_rng(seed).normal(size=shape), width, mode="wrap")
    return noise / noise.std()


def smooth(side: int = 384) -> np.ndarray:
    y, x = np.mgrid[:side, :side] / side
    return 30 + 220 * x * (0.6 + 0.4 * np.cos(2 * y))


def test_a_model_is_plain_numbers_and_comes_back():
    model = CorrelatedPhotons(2.0, 3.0, 1.0, autocorrelation=TABLE, shared=0.5)
    told = json.loads(json.dumps(model.as_dict(), allow_nan=False))
    assert NoiseModel.from_dict(told) == CorrelatedPhotons.from_dict(told) == model
    assert hash(NoiseModel.from_dict(told)) == hash(model)
    assert "gain 2" in model.summary()
    assert "0.78 along x" in model.summary()
    assert model.spectral == Correlated(1.0, TABLE, 0.5)
    np.testing.assert_array_equal(model.variance([1.0, 101.0]), [9.0, 209.0])
    with pytest.raises(SettingsError, match="not valid: give 5 x 5"):
        CorrelatedPhotons(2.0, 3.0, autocorrelation=[[1.0]])
    with pytest.raises(SettingsError, match="give a number from 0 to 1"):
        Correlated(2.0, TABLE, 1.5)


@pytest.mark.parametrize(("gain", "read"), [(2.0, 3.0), (0.5, 10.0)])
def test_gain_and_correlation_are_found(gain, read):
    clean = smooth()
    noise = np.sqrt(gain * clean + read**2) * blurred(clean.shape, 0.9)
    found = gd.estimate_noise((clean + noise).astype(np.float32), model="correlated-photons")
    model = found.models[0]
    means = np.array([60.0, 120.0, 200.0])
    np.testing.assert_allclose(
        np.sqrt(model.variance(means)), np.sqrt(gain * means + read**2), rtol=0.1
    )
    assert found.sigma[0] == pytest.approx(noise.std(), rel=0.1)
    expected = np.exp(-(np.arange(3) ** 2) / (4 * 0.9**2))
    np.testing.assert_allclose(model.autocorrelation[0][:3], expected, atol=0.08)


def test_it_is_recognised():
    clean = smooth()
    noise = np.sqrt(3 * clean) * blurred(clean.shape, 0.8)
    found = gd.estimate_noise((clean + noise).astype(np.float32))
    assert found.name == "correlated-photons"
    assert "correlated" in found.reason
    assert "noise is correlated" in found.verdict()


def test_frames_show_how_it_changes():
    clean = smooth(192)
    stack = np.array([clean + k * blurred(clean.shape, 0.9, k) for k in (8, 8, 8, 16, 16, 16)])
    found = gd.estimate_noise(stack.astype(np.float32), "TYX", "correlated")
    first, last = np.reshape(found.frames.sigma, (2, 3)).mean(axis=1)
    assert last / first == pytest.approx(2, rel=0.1)


def test_correlated_noise_may_be_asked_for():
    image = (smooth() + 9 * blurred((384, 384), 0.9)).astype(np.float32)
    for name in ("correlated", "auto"):
        found = gd.estimate_noise(image, model=name)
        assert found.name == "correlated"
        assert found.sigma[0] == pytest.approx(9, rel=0.1)
    white = smooth() + np.random.default_rng(0).normal(size=(384, 384)) * 9
    found = gd.estimate_noise(white.astype(np.float32), model="correlated").models[0]
    assert found.sigma == pytest.approx(9, rel=0.1)
    assert abs(found.autocorrelation[0][1]) < 0.1


def test_a_few_places_without_noise_do_not_speak_for_the_image():
    """As the shadows of a JPEG file, where compression removes the noise."""
    clean = smooth()
    noise = 6 * blurred(clean.shape, 1.0)
    noise[:, :14] *= 0.1
    found = noise_spectrum(clean + noise)
    assert not found.white
    assert Correlated.of_spectrum(found).sigma == pytest.approx(6, rel=0.15)
    assert found.autocorrelation[0][1] == pytest.approx(np.exp(-1 / 4), abs=0.08)


def test_colours_that_share_noise():
    clean = np.stack([smooth(), 0.8 * smooth(), 0.6 * smooth()], axis=-1)
    own = np.stack([blurred((384, 384), 0.8, k) for k in range(3)], axis=-1)
    for share in (0.0, 0.6):
        common = blurred((384, 384), 0.8, 9)[..., None]
        noise = 8 * (np.sqrt(share) * common + np.sqrt(1 - share) * own)
        found = gd.estimate_noise((clean + noise).astype(np.float32), "YXS")
        assert [model.shared for model in found.models] == pytest.approx([share] * 3, abs=0.06)
