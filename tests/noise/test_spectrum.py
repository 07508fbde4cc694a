"""Whether noise is white, and its spectrum."""

from __future__ import annotations

import json

import imageio.v3 as imageio
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.noise.spectrum import noise_spectrum
from reference.data import REASON, data_folder, pictures


def noise(shape=(200, 200), sigma=10.0, seed=0):
    return np.random.default_rng(seed).normal(0, sigma, shape)


def blurred(width, shape=(200, 200), sigma=10.0, seed=0):
    found = gaussian_filter(noise(shape, 1, seed), width, mode="wrap")
    return sigma * found / found.std()


def scene(ny=200, nx=200):
    y, x = np.mgrid[:ny, :nx]
    picture = 90 + 40 * np.sin(x / 40) + 30 * np.cos(y / 25)
    return picture + np.where(y > ny // 2, 25 * np.sin(2.1 * x) * np.sin(1.7 * y), 0)


def correlation(values, y, x):
    ny, nx = values.shape
    return (values[y:, x:] * values[: ny - y, : nx - x]).mean() / values.var()


@pytest.mark.parametrize("shape", [(40, 40), (100, 100), (300, 200), (8, 400), (3, 100, 100)])
def test_white_noise_is_white(shape):
    found = [noise_spectrum(100 + noise(shape, seed=seed)) for seed in range(25)]
    assert sum(each.white for each in found) >= 24


def test_white_noise_of_a_picture():
    found = [noise_spectrum(scene() + noise(seed=seed)) for seed in range(20)]
    assert sum(each.white for each in found) >= 19


def test_the_power_of_white_noise_is_flat():
    """Choosing smooth patches must not lower the frequencies that they are chosen by."""
    power = np.mean([noise_spectrum(noise(seed=seed)).power for seed in range(10)], axis=0)
    power[0, 0] = 100
    assert power == pytest.approx(np.full((8, 8), 100), rel=0.25)
    assert power.mean() == pytest.approx(100, rel=0.03)


@pytest.mark.parametrize("width", [0.6, 1.0, 1.5])
def test_blurred_noise_is_correlated(width):
    for picture in (0, scene()):
        assert not noise_spectrum(picture + blurred(width)).white


@pytest.mark.parametrize("width", [0.6, 1.0])
def test_autocorrelation(width):
    values = blurred(width, (400, 400))
    found = np.array(noise_spectrum(values).autocorrelation)
    for y, x in ((0, 1), (1, 0), (1, 1), (0, 2), (2, 1)):
        assert found[y, x] == pytest.approx(correlation(values, y, x), abs=0.06)
    assert found[0, 0] == 1


def test_noise_of_one_axis():
    across = gaussian_filter(noise((300, 300)), (0, 1))
    found = noise_spectrum(across)
    assert not found.white
    assert found.autocorrelation[0][1] > 0.6
    assert abs(found.autocorrelation[1][0]) < 0.1
    lines = noise((300, 1), 5) + noise((300, 300), 5, 1)
    assert not noise_spectrum(lines).white


def test_noise_without_low_frequencies_is_not_white():
    values = noise()
    assert not noise_spectrum(values - gaussian_filter(values, 1)).white


def test_sigma_counts_all_frequencies():
    assert noise_spectrum(blurred(1.0, (400, 400))).sigma == pytest.approx(10, rel=0.1)
    assert noise_spectrum(noise()).sigma == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("value", [0, 117, 0.1])
def test_constant_image_is_white(value):
    found = noise_spectrum(np.full((40, 50), value))
    assert found.white
    assert found.sigma == 0
    assert np.isfinite(found.autocorrelation).all()
    assert "white" in found.summary()


def test_clipped_and_nonfinite_pixels_are_left_out():
    image = 100 + noise()
    image[:, :80] = 255
    image[::30, ::30] = np.nan
    found = noise_spectrum(image)
    assert found.white
    assert found.sigma == pytest.approx(10, rel=0.1)


def test_record_and_refusals():
    found = noise_spectrum(blurred(1.0))
    again = json.loads(json.dumps(found.as_dict()))
    assert again["autocorrelation"] == [list(row) for row in found.autocorrelation]
    assert "correlated" in found.summary()
    with pytest.raises(ImageError, match="small"):
        noise_spectrum(np.zeros((7, 20)))
    with pytest.raises(ImageError, match="8 x 8"):
        image = noise((40, 40))
        image[::5, ::5] = np.nan
        noise_spectrum(image)
    with pytest.raises(NonFiniteError):
        noise_spectrum(np.full((20, 20), np.nan))


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_traffic_is_correlated():
    folder = data_folder() / "video"
    for frame in (6, 8):
        noisy = imageio.imread(folder / f"traffic_correlated_noise/frame_{frame}.png")
        clean = imageio.imread(folder / f"traffic_clean/frame_{frame}.png")
        for channel in range(3):
            found = noise_spectrum(noisy[..., channel])
            truth = noisy[..., channel] - clean[..., channel].astype(float)
            truth -= truth.mean()
            assert not found.white
            wanted = correlation(truth, 0, 1)
            assert found.autocorrelation[0][1] == pytest.approx(wanted, abs=0.05)
        assert noise_spectrum(clean[..., 0] + noise(clean.shape[:2], 15)).white


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_white_noise_of_photographs():
    clean = list(pictures("bsd68").values())
    rng = np.random.default_rng(0)
    white = 0
    for draw in range(100):
        picture = clean[draw % len(clean)]
        white += noise_spectrum(picture + rng.normal(0, rng.uniform(10, 25), picture.shape)).white
    assert white >= 95
