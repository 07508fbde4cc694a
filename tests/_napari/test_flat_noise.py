"""A flat region: its plain statistics."""

import math

import numpy as np
import pytest

from napari_gpu_denoise._napari.noise.measuring import flat_noise
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.noise.models import Correlated, Gaussian, Rician, Speckle

RNG = np.random.default_rng(5)
WHITE = RNG.normal(500, 12, (40, 50))
MAGNITUDES = np.hypot(*RNG.normal(0, 12, (2, 60, 60)))


def test_sigma_is_the_standard_deviation():
    found = flat_noise(WHITE, "YX")
    assert found.models == (Gaussian(float(WHITE.std(ddof=1))),)
    assert found.sigma == (float(WHITE.std(ddof=1)),)
    assert found.standard_error[0] == pytest.approx(12 / math.sqrt(2 * WHITE.size), rel=0.1)
    assert found.curves[0].mean == (float(WHITE.mean()),)
    assert found.white and "Gaussian" in found.verdict()


def test_errors_are_right():
    draws = [flat_noise(RNG.normal(0, 5, (16, 16)), "YX", "gaussian") for _ in range(200)]
    spread = np.std([each.sigma[0] for each in draws])
    stated = np.mean([each.standard_error[0] for each in draws])
    assert stated == pytest.approx(spread, rel=0.2)
    magnitudes = [np.hypot(*RNG.normal(0, 5, (2, 16, 16))) for _ in range(200)]
    draws = [flat_noise(each, "YX", "rician") for each in magnitudes]
    assert np.mean([each.sigma[0] for each in draws]) == pytest.approx(5, rel=0.01)
    spread = np.std([each.sigma[0] for each in draws])
    assert np.mean([each.errors[0]["sigma"] for each in draws]) == pytest.approx(spread, rel=0.2)
    draws = [flat_noise(RNG.gamma(4, 25, (32, 32)), "YX", "speckle") for _ in range(200)]
    looks = [each.models[0].looks for each in draws]
    assert np.mean(looks) == pytest.approx(4, rel=0.02)
    stated = np.mean([each.errors[0]["looks"] for each in draws])
    assert np.std(looks) <= stated <= 1.6 * np.std(looks)


def test_background_of_magnitudes_is_seen():
    found = flat_noise(MAGNITUDES, "YX")
    assert isinstance(found.models[0], Rician)
    assert found.sigma[0] == pytest.approx(12, rel=0.03)
    assert "magnitudes" in found.reason
    # With a signal it is no background, nor is noise that happens to have its mean.
    assert flat_noise(np.hypot(MAGNITUDES, 60), "YX").name == "gaussian"
    assert flat_noise(RNG.normal(1.913 * 12, 12, (60, 60)).clip(0), "YX").name == "gaussian"


def test_neighbours_that_share_noise():
    wide = RNG.normal(0, 30, (65, 65))
    smooth = (wide[1:, 1:] + wide[:-1, 1:] + wide[1:, :-1] + wide[:-1, :-1]) / 4 + 100
    found = flat_noise(smooth, "YX")
    (model,) = found.models
    assert isinstance(model, Correlated) and not found.white
    assert model.sigma == pytest.approx(15, rel=0.06)
    assert model.autocorrelation[0][1] == pytest.approx(0.5, abs=0.12)


def test_channels_have_noise_of_their_own():
    image = np.stack([WHITE, 3 * WHITE], axis=-1)
    found = flat_noise(image, "YXC", "gaussian")
    assert found.planes == 2
    assert found.sigma[1] == pytest.approx(3 * found.sigma[0])
    assert isinstance(flat_noise(np.abs(image), "YXC", "speckle").models[1], Speckle)


def test_shares_of_clipped_pixels():
    image = np.full((10, 10), 40, np.uint8)
    image[0], image[1:3] = 0, 255
    assert flat_noise(image, "YX", "gaussian").clipped == ((0.1, 0.2),)


@pytest.mark.parametrize(
    ("region", "model", "said"),
    [
        (WHITE, "poisson-gaussian", "one brightness"),
        (WHITE[:7, :7], "auto", "49 pixels"),
        (np.full((20, 20), np.nan), "auto", "0 pixels"),
        (np.zeros((20, 20)), "rician", "constant or dark"),
        (np.full((20, 20), 5.0), "speckle", "constant or dark"),
    ],
)
def test_what_a_region_cannot_tell(region, model, said):
    region = np.asarray(region)
    with pytest.raises(LayerError, match=said):
        flat_noise(region, "YX", model)


def test_a_constant_region_has_no_noise():
    assert flat_noise(np.full((20, 20), 7), "YX").sigma == (0.0,)
