"""Correlated noise separated from texture, in powers that are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import convolve1d

from napari_gpu_denoise.noise.correlation import (
    PatchPower,
    autocovariance,
    fit_correlation,
    power_of_lags,
    without_steep_texture,
)
from napari_gpu_denoise.noise.patches.white import cosine_transform

FREQUENCY = np.hypot(*np.indices((8, 8)))
TEXTURE = np.where(FREQUENCY > 0, 30 * np.exp(-FREQUENCY), 0)
INDEPENDENT = 16.0


def power(y=0.0, x=0.0, sigma=1.0):
    """Return the power of noise whose neighbours correlate by y and x."""
    return sigma**2 * (power_of_lags(2, 2) @ [1, x, y, x * y]).reshape(8, 8)


def fit(smoothest, growth=0.0, texture=TEXTURE, independent=INDEPENDENT):
    return fit_correlation(PatchPower(smoothest, smoothest + 3 * texture, growth, independent))


def test_the_power_of_lags_is_that_of_noise():
    drawn = np.random.default_rng(0).normal(size=(512, 512))
    drawn = convolve1d(drawn, [0.5, 1, 0.5], axis=0, mode="wrap")
    transform = cosine_transform(8)
    blocks = drawn.reshape(64, 8, 64, 8).swapaxes(1, 2)
    found = np.square(transform @ blocks @ transform.T).mean(axis=(0, 1))
    lags = np.zeros((3, 2))
    lags[:, 0] = 1.5, 1.0, 0.25
    np.testing.assert_allclose((power_of_lags(3, 2) @ lags.ravel()).reshape(8, 8), found, rtol=0.12)


@pytest.mark.parametrize(("y", "x"), [(0.0, 0.0), (0.3, 0.1), (-0.2, 0.0)])
def test_autocovariance_of_a_known_power(y, x):
    found = autocovariance(power(y, x, 2))
    expected = np.zeros((5, 5))
    expected[:2, :2] = 4 * np.outer([1, y], [1, x])
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_no_power_has_no_autocovariance():
    assert not autocovariance(np.zeros((8, 8))).any()


@pytest.mark.parametrize(("y", "x"), [(0.0, 0.0), (0.25, 0.25), (0.0, 0.2), (-0.2, -0.2)])
@pytest.mark.parametrize("strength", [0.0, 0.5, 2.0])
def test_noise_and_texture_come_apart(y, x, strength):
    found = fit(power(y, x, 3) + strength * TEXTURE)
    assert (found.along_y, found.along_x) == pytest.approx((y, x), abs=1e-3)
    assert found.misfit < 1e-3
    assert found.is_correlated == (max(abs(y), abs(x)) > 0.1)
    np.testing.assert_allclose(found.power.ravel()[1:], power(y, x, 3).ravel()[1:], rtol=0.02)


def test_noise_of_longer_reach():
    """Lags that four cannot hold are read too, beside texture."""
    row = [1, 0.5, 0.12]
    wanted = (power_of_lags(3, 3) @ np.outer(row, row).ravel()).reshape(8, 8)
    found = fit(wanted + 0.5 * TEXTURE)
    assert found.is_correlated
    np.testing.assert_allclose(found.power.ravel()[1:], wanted.ravel()[1:], rtol=0.05)


@pytest.mark.parametrize("scale", [1e-9, 1e12])
def test_grey_levels_have_no_unit(scale):
    one, other = fit(power(0.2) + TEXTURE), fit(scale * (power(0.2) + TEXTURE), 0, scale * TEXTURE)
    assert other[:4] == pytest.approx(one[:4])
    np.testing.assert_allclose(other.power, scale * one.power)


@pytest.mark.parametrize("exponent", [0.8, 1.1])
def test_texture_of_another_shape_is_no_shared_noise(exponent):
    found = fit(power() + TEXTURE**exponent)
    assert abs(found.along_y) < 0.1
    assert not found.is_correlated


def test_the_error_falls_with_patches_and_grows_with_texture_at_high_frequencies():
    errors = [fit(power(0.3), independent=number).error for number in (4, 16, 64)]
    assert errors[0] > 1.5 * errors[1] > 2 * errors[2]
    assert fit(power(0.3)).is_correlated
    assert not fit(power(0.3), growth=0.3).is_correlated
    assert fit(power(0.3), growth=-0.3).error == fit(power(0.3)).error


def test_what_neighbours_do_not_explain_is_not_trusted():
    wrong = power() * np.where(np.indices((8, 8)).sum(axis=0) % 2, 9, 1)
    assert not fit(wrong).trusted
    assert not fit(wrong).is_correlated


def test_no_noise():
    assert fit(np.zeros((8, 8))) is None


def test_chance_alone_is_white():
    rng = np.random.default_rng(0)
    drawn = rng.chisquare(INDEPENDENT, (100, 2, 8, 8)) / INDEPENDENT
    found = [fit_correlation(PatchPower(a, b, 0.0, INDEPENDENT)) for a, b in drawn]
    assert sum(each.is_correlated for each in found) <= 5


def test_steep_texture_is_taken_away():
    powers = PatchPower(power() + TEXTURE, power() + 4 * TEXTURE, 0.0, INDEPENDENT)
    found = without_steep_texture(powers)
    frequency = np.maximum(*np.indices((8, 8)))
    lowest, middle = found[frequency == 1].mean(), found[np.isin(frequency, (2, 3))].mean()
    assert lowest == pytest.approx(3 * middle)
    assert (found <= powers.smoothest).all()
    far = power(0.45, 0.45)
    kept = without_steep_texture(PatchPower(far, far + TEXTURE, 0.0, INDEPENDENT))
    np.testing.assert_array_equal(kept, far)
