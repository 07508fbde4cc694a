"""Whether noise is white, and its spectrum."""

from __future__ import annotations

import json
from dataclasses import asdict

import imageio.v3 as imageio
import numpy as np
import pytest
from scipy.ndimage import convolve1d, gaussian_filter

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import Correlated
from reference.data import REASON, data_folder, pictures


def noise(shape=(200, 200), sigma=10.0, seed=0):
    return np.random.default_rng(seed).normal(0, sigma, shape)


def blurred(width, shape=(200, 200), sigma=10.0, seed=0):
    found = gaussian_filter(noise(shape, 1, seed), width, mode="wrap")
    return sigma * found / found.std()


def shared(correlation, shape=(200, 200), sigma=10.0, seed=0, axes=(0, 1)):
    """Return noise whose neighbours correlate so much, and hardly any other pixels."""
    weight = (1 - (1 - 2 * correlation**2) ** 0.5) / (2 * correlation)
    found = noise(shape, 1, seed)
    for axis in axes:
        found = convolve1d(found, [weight, 1, weight], axis=axis, mode="wrap")
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


@pytest.mark.parametrize("correlation", [0.2, 0.35, -0.35])
@pytest.mark.parametrize("axes", [(0, 1), (0,)])
def test_weakly_shared_noise_is_correlated(correlation, axes):
    y, x = np.mgrid[:200, :200]
    for picture in (0, 90 + 40 * np.sin(x / 40) + 30 * np.cos(y / 25)):
        for seed in range(3):
            found = noise_spectrum(picture + shared(correlation, seed=seed, axes=axes))
            assert not found.white
            assert not found.doubtful
            assert found.autocorrelation[1][0] == pytest.approx(correlation, abs=0.1)
            across = correlation if 1 in axes else 0
            assert found.autocorrelation[0][1] == pytest.approx(across, abs=0.1)
            assert Correlated.of_spectrum(found).sigma == pytest.approx(10, rel=0.12)


def test_noise_moved_by_a_quarter_of_a_pixel_is_correlated():
    drawn = noise()
    values = 0.75 * drawn + 0.25 * np.roll(drawn, 1, axis=1)
    found = noise_spectrum(scene() + values)
    assert not found.white
    assert found.autocorrelation[0][1] == pytest.approx(0.3, abs=0.1)


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
    again = json.loads(json.dumps(asdict(found)))
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


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_photon_noise_on_slopes_is_white(scale):
    """Rougher patches are brighter here, so that what they have more of is noise as well."""
    y, x = np.mgrid[:96, :120]
    mean = scale * (200 + 120 * np.sin(y / 9) * np.cos(x / 13))
    for seed in range(5):
        drawn = np.random.default_rng(seed).poisson(np.stack([mean] * 6))
        assert noise_spectrum(drawn).white
        assert noise_spectrum(drawn[0]).white


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_weakly_shared_noise_of_photographs():
    clean = list(pictures("bsd68").values())[::6]
    found = [
        noise_spectrum(picture + shared(0.2, picture.shape, 15, seed))
        for seed, picture in enumerate(clean)
    ]
    # The others have fine texture everywhere.
    assert sum(not each.white for each in found) >= len(clean) * 2 / 3 - 1
    error = [Correlated.of_spectrum(each).sigma / 15 - 1 for each in found]
    assert abs(np.median(error)) < 0.06
    lag = [each.autocorrelation[0][1] for each in found]
    assert np.median(lag) == pytest.approx(0.2, abs=0.05)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_white_noise_of_small_pictures():
    """Few patches, of which many hold texture; all of them would pass for correlated noise."""
    clean = [picture[60:100, 100:140] for picture in pictures("bsd68").values()][::2]
    found = [
        noise_spectrum(picture + noise(picture.shape, 10, seed))
        for seed, picture in enumerate(clean)
    ]
    assert sum(not each.white for each in found) <= len(clean) / 5


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_texture_everywhere_is_no_shared_noise():
    """A fine regular pattern, and photographs without a smooth place."""
    clean = [pictures("denoiselab13")["fingerprint"]]
    clean += [pictures("bsd68")[name] for name in ("test013", "test036", "test047", "test056")]
    for picture in clean:
        for sigma in (5, 10):
            assert noise_spectrum(picture + noise(picture.shape, sigma)).white
    assert noise_spectrum(clean[2] + noise(clean[2].shape, 5)).doubtful
