"""Whether noise is correlated, between pixels and between channels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import convolve1d, gaussian_filter

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.noise.correlation import (
    autocovariance,
    fit_correlation,
    noise_share,
    noise_spectrum,
    power_of_lags,
)
from napari_gpu_denoise.noise.covariance import ChannelPatches
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.noise.patches.spectra import spectra_of
from reference.data import REASON, data_folder, pictures

with_data = pytest.mark.skipif(data_folder() is None, reason=REASON)


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


def covariance(image, correlated=False):
    return ChannelPatches.of(image).covariance(correlated)


def scene(ny=200, nx=200):
    y, x = np.mgrid[:ny, :nx]
    picture = 90 + 40 * np.sin(x / 40) + 30 * np.cos(y / 25)
    return picture + np.where(y > ny // 2, 25 * np.sin(2.1 * x) * np.sin(1.7 * y), 0)


@pytest.mark.parametrize("shape", [(40, 40), (300, 200), (8, 400), (3, 100, 100), None])
def test_white_noise_is_white(shape):
    """None: that of a picture."""
    clean = 100 if shape else scene()
    found = [noise_spectrum(clean + noise(shape or (200, 200), seed=seed)) for seed in range(6)]
    assert sum(each.white for each in found) >= 5


def test_the_power_of_white_noise_is_flat():
    """Choosing smooth patches must not lower the frequencies that they are chosen by."""
    power = np.mean([noise_spectrum(noise(seed=seed)).power for seed in range(10)], axis=0)
    power[0, 0] = 100
    assert power == pytest.approx(np.full((8, 8), 100), rel=0.25)
    assert power.mean() == pytest.approx(100, rel=0.03)
    # Where some patches are rougher, as texture is, hardly anything is shown to be noise.
    for rough, low, high in ((1, 0.9, 1), (np.linspace(0.1, 1, 200), 0, 0.1)):
        assert low <= noise_share(spectra_of(rough * noise())) <= high


@pytest.mark.parametrize("correlation", [0.2, 0.35, -0.35])
@pytest.mark.parametrize("axes", [(0, 1), (0,)])
def test_weakly_shared_noise_is_correlated(correlation, axes):
    y, x = np.mgrid[:200, :200]
    for picture in (0, 90 + 40 * np.sin(x / 40) + 30 * np.cos(y / 25)):
        found = noise_spectrum(picture + shared(correlation, axes=axes))
        assert not found.white and not found.doubtful
        assert found.autocorrelation[1][0] == pytest.approx(correlation, abs=0.1)
        across = correlation if 1 in axes else 0
        assert found.autocorrelation[0][1] == pytest.approx(across, abs=0.1)
        assert Correlated.of_spectrum(found).sigma == pytest.approx(10, rel=0.12)


@pytest.mark.parametrize(
    "values",
    [
        scene() + blurred(1.5),
        scene() + 0.75 * noise() + 0.25 * np.roll(noise(), 1, axis=1),
        gaussian_filter(noise((300, 300)), (0, 1)),
        noise((300, 1), 5) + noise((300, 300), 5, 1),
        noise() - gaussian_filter(noise(), 1),
    ],
    ids=["long", "moved by a quarter of a pixel", "one axis", "lines", "no low frequencies"],
)
def test_noise_of_other_shapes_is_correlated(values):
    assert not noise_spectrum(values).white


@pytest.mark.parametrize("value", [0, 117, 0.1])
def test_constant_image_is_white(value):
    found = noise_spectrum(np.full((40, 50), value))
    assert found.white and found.sigma == 0
    assert np.isfinite(found.autocorrelation).all()


def test_refusals():
    with pytest.raises(ImageError, match="small"):
        noise_spectrum(np.zeros((7, 20)))
    image = noise((40, 40))
    image[::5, ::5] = np.nan
    for values in (image, np.full((20, 20), np.nan)):
        with pytest.raises(NonFiniteError):
            noise_spectrum(values)


# Texture.


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_photon_noise_on_slopes_is_white(scale):
    """Rougher patches are brighter here, so that what they have more of is noise as well."""
    y, x = np.mgrid[:96, :120]
    mean = scale * (200 + 120 * np.sin(y / 9) * np.cos(x / 13))
    for seed in range(5):
        drawn = np.random.default_rng(seed).poisson(np.stack([mean] * 6))
        assert noise_spectrum(drawn).white
        assert noise_spectrum(drawn[0]).white


@with_data
def test_noise_of_photographs():
    """White, also of few patches many of which hold texture, and weakly correlated."""
    clean = list(pictures("bsd68").values())[::4]
    rng = np.random.default_rng(0)
    white = [noise_spectrum(each + rng.normal(0, 15, each.shape)).white for each in clean]
    assert sum(white) >= len(clean) - 1
    small = [each[60:100, 100:140] for each in clean]
    white = [noise_spectrum(each + noise(each.shape, 10)).white for each in small]
    assert sum(white) >= 0.75 * len(clean)
    found = [noise_spectrum(each + shared(0.2, each.shape, 15)) for each in clean]
    # The others have fine texture everywhere.
    assert sum(not each.white for each in found) >= 0.6 * len(clean)
    error = [Correlated.of_spectrum(each).sigma / 15 - 1 for each in found]
    assert abs(np.median(error)) < 0.06
    lag = [each.autocorrelation[0][1] for each in found]
    assert np.median(lag) == pytest.approx(0.2, abs=0.06)


# The fit of noise and texture.

FREQUENCY = np.hypot(*np.indices((8, 8)))
TEXTURE = np.where(FREQUENCY > 0, 30 * np.exp(-FREQUENCY), 0)
INDEPENDENT = 16.0


def power(y=0.0, x=0.0, sigma=1.0):
    """Return the power of noise whose neighbours correlate by y and x."""
    return sigma**2 * (power_of_lags(2, 2) @ [1, x, y, x * y]).reshape(8, 8)


def fit(smoothest, texture=TEXTURE, independent=INDEPENDENT):
    return fit_correlation(smoothest, smoothest + 3 * texture, independent)


@pytest.mark.parametrize(("y", "x"), [(0.0, 0.0), (0.3, 0.1), (-0.2, 0.0)])
def test_autocovariance_of_a_known_power(y, x):
    expected = np.zeros((5, 5))
    expected[:2, :2] = 4 * np.outer([1, y], [1, x])
    np.testing.assert_allclose(autocovariance(power(y, x, 2)), expected, atol=1e-8)
    assert not autocovariance(np.zeros((8, 8))).any()


@pytest.mark.parametrize(("y", "x"), [(0.0, 0.0), (0.25, 0.25), (0.0, 0.2), (-0.2, -0.2)])
@pytest.mark.parametrize("strength", [0.0, 2.0])
def test_noise_and_texture_come_apart(y, x, strength):
    for scale in (1e-9, 1, 1e12):
        read = scale * (power(y, x, 3) + strength * TEXTURE)
        found = fit(read, scale * TEXTURE, 100.0)
        assert (found.along_y, found.along_x) == pytest.approx((y, x), abs=1e-3)
        assert found.is_correlated == (max(abs(y), abs(x)) > 0.1)
        wanted = scale * power(y, x, 3).ravel()[1:]
        np.testing.assert_allclose(found.power.ravel()[1:], wanted, rtol=0.02)


# Channels.

MIX = np.array([[2, 0, 0], [1, 2, 0], [0, -1, 3.0]])


def channel_noise(shape=(256, 256), seed=0):
    white = np.random.default_rng(seed).normal(0, 1, (3, *shape))
    return np.einsum("ij,jyx->iyx", MIX, white)


@pytest.mark.parametrize("clean", [0, np.array([1, 0.5, 2])[:, None, None] * scene(256, 256)])
def test_known_covariance(clean):
    """Also beside structure that the channels share."""
    found = covariance(clean + channel_noise())
    error = np.array(found.error)
    wanted = MIX @ MIX.T
    assert np.all(np.abs(np.array(found.covariance) - wanted) < 4 * error + 0.05 * wanted.max())
    assert error.max() < 1
    correlation = np.array(found.correlation)
    assert correlation[0, 1] == pytest.approx(2 / 20**0.5, abs=0.1)
    assert np.array_equal(correlation, correlation.T)


def test_texture_is_no_noise_that_channels_share():
    """It falls with frequency, and noise does not."""
    texture = blurred(0.7, (128, 128), 6, 5)
    random = np.random.default_rng(0)
    own, common = (random.normal(0, 5, (count, 128, 128)) for count in (3, 1))
    textured = covariance(texture + own)
    assert textured.correlation[0][1] > 0.1 and not textured.is_clear
    assert not covariance(own).is_clear
    assert covariance(0.5 * common + own).is_clear
    assert covariance(0.5 * common * [[[1]], [[-1]], [[0]]] + own).is_clear


def test_channels_that_share_high_frequencies_only():
    """As a JPEG with colours of half the resolution."""
    apart = np.stack([blurred(2, seed=seed) for seed in range(3)])
    image = 100 + apart + noise((200, 200), 2, 9)
    true = np.corrcoef(image.reshape(3, -1))[np.tril_indices(3, -1)].mean()
    for correlated, wanted in ((False, 1), (True, true)):
        found = covariance(image, correlated).correlation
        assert np.array(found)[np.tril_indices(3, -1)].mean() == pytest.approx(wanted, abs=0.12)


def test_constant_nonfinite_and_clipped_channels():
    found = covariance(np.full((2, 40, 40), 7.0))
    assert found.covariance == ((0, 0), (0, 0))
    assert found.correlation == ((1, 0), (0, 1))
    image = np.stack([np.full((100, 100), 7.0), channel_noise((100, 100))[0]])
    found = covariance(image)
    assert found.covariance[0] == (0, 0)
    assert found.covariance[1][1] == pytest.approx(4, rel=0.1)
    image = 100 + channel_noise()
    image[0, ::30, ::30] = np.nan
    image[1, :, :60] = 130
    assert covariance(image).covariance[0][1] == pytest.approx(2, abs=0.4)
