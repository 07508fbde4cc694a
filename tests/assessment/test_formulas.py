"""The formulas of an assessment, beside slow ones, and for filters whose answer is known."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, uniform_filter

from napari_gpu_denoise.assessment import formulas
from napari_gpu_denoise.assessment.formulas import Detail, Rings, Statistics, detail
from reference.assessment import detail_kept, predicted_error, unseen_loss

SIGMA = 5.0


def box(image: np.ndarray) -> np.ndarray:
    return uniform_filter(image, 3, mode="wrap")


@pytest.fixture(scope="module")
def scene():
    rng = np.random.default_rng(3)
    clean = gaussian_filter(rng.normal(0, 120, (96, 88)), 2, mode="wrap").astype(np.float32)
    return clean, (clean + rng.normal(0, SIGMA, clean.shape)).astype(np.float32)


def perturbed(noisy, seed):
    unit = np.random.default_rng(seed).standard_normal(noisy.shape, np.float32)
    return unit, *(box(noisy + s * formulas.EPSILON * SIGMA * unit) for s in (1, -1))


def test_squared_errors_are_those_of_the_formula(scene):
    _, noisy = scene
    unit, plus, minus = perturbed(noisy, 5)
    spread = np.full_like(noisy, SIGMA)
    found = formulas.squared_errors(noisy, SIGMA * unit, spread**2, plus, minus).mean(
        dtype=np.float64
    )
    assert found == pytest.approx(
        predicted_error(noisy, spread, unit, plus, minus, formulas.EPSILON), rel=1e-4
    )


def test_the_predicted_error_of_a_mean_of_nine_is_its_error(scene):
    clean, noisy = scene
    unit, plus, minus = perturbed(noisy, 6)
    found = formulas.squared_errors(noisy, SIGMA * unit, SIGMA**2, plus, minus).mean()
    truth = np.mean((box(noisy) - clean) ** 2)
    half = (plus - minus) / (2 * formulas.EPSILON)
    parts = noisy - box(noisy), half**2, 2 * SIGMA * unit * half
    assert abs(found - truth) < 4 * formulas.standard_error(np.full(noisy.shape, SIGMA), *parts, 1)


def test_the_standard_error_is_that_of_many_draws():
    rng, size, pairs = np.random.default_rng(4), (40, 40), 2
    clean = 8 * gaussian_filter(rng.normal(0, 30, size), 2, mode="wrap").astype(np.float32)
    spread = np.full(size, SIGMA)
    differences, told = [], []
    for _ in range(300):
        noisy = clean + rng.normal(0, SIGMA, size)
        squared, varied, followed = np.zeros((3, *size))
        for _ in range(pairs):
            unit, plus, minus = perturbed(noisy, rng)
            one = formulas.squared_errors(noisy, SIGMA * unit, spread**2, plus, minus)
            half = (plus - minus) / (2 * formulas.EPSILON)
            squared += one / pairs
            varied += half**2 / pairs
            followed += 2 * SIGMA * unit * half / pairs
        differences.append(squared.mean() - np.mean((box(noisy) - clean) ** 2))
        parts = noisy - box(noisy), varied, followed
        told.append(formulas.standard_error(spread, *parts, pairs))
        more = formulas.standard_error(spread, *parts, pairs, unsure=0.05)
        # Sigma squared is 10 % off, and so is what follows from it.
        wanted = np.hypot(told[-1], 0.1 * abs(followed.mean() - SIGMA**2))
        assert more == pytest.approx(wanted)
    assert np.mean(told) == pytest.approx(np.std(differences), rel=0.12)
    assert abs(np.mean(differences)) < 4 * np.mean(told) / len(told) ** 0.5


def test_detail_is_that_of_full_spectra(scene):
    _, noisy = scene
    rings = Rings(*noisy.shape)
    unit, plus, minus = perturbed(noisy, 7)
    others = [noisy - SIGMA * unit / formulas.EPSILON, noisy + SIGMA * unit / formulas.EPSILON]
    noise = rings.noise(np.full(noisy.shape, SIGMA), 1.0)
    found = detail(rings, noisy, noise, [plus, minus], others)
    frequency, kept, ratio = detail_kept(noisy, [plus, minus], others, SIGMA, rings.step)
    np.testing.assert_allclose(found.frequency, frequency)
    np.testing.assert_allclose(found.signal_to_noise, ratio, rtol=2e-3, atol=2e-3)
    judged = np.array(found.judged)
    assert judged.sum() >= 3
    np.testing.assert_allclose(np.array(found.kept)[judged], kept[judged], atol=2e-3)


def test_detail_kept_by_a_mean_of_nine_is_its_transfer_function(scene):
    _, noisy = scene
    rings = Rings(*noisy.shape)
    filtered, others = [], []
    for seed in range(3):
        unit, plus, minus = perturbed(noisy, seed)
        filtered += [plus, minus]
        others += [noisy - s * SIGMA * unit / formulas.EPSILON for s in (1, -1)]
    found = detail(rings, noisy, rings.noise(np.full(noisy.shape, SIGMA), 1.0), filtered, others)
    for k, known in enumerate(found.judged[:4]):
        f = found.frequency[k]
        expected = ((1 + 2 * np.cos(2 * np.pi * f)) / 3) ** 1.0
        if known:
            # Along a diagonal the frequency is shared by both axes: near the same for small ones.
            assert found.kept[k] == pytest.approx(expected, abs=0.08)


def test_half_is_where_the_contrast_falls_below_it():
    frequency = (0.05, 0.15, 0.25, 0.35)
    one = Detail(frequency, (1.0, 0.8, 0.3, 0.2), (9.0,) * 4, (True, True, True, False))
    assert one.half == pytest.approx(0.15 + 0.1 * 0.3 / 0.5)
    assert one.limit == 0.25
    all_kept = Detail(frequency, (1.0, 0.9, 0.8, 0.7), (9.0,) * 4, (True, True, False, True))
    assert all_kept.half is None
    assert all_kept.limit == 0.15


def test_the_loss_of_unseen_pixels_is_that_of_the_slow_one(scene):
    _, noisy = scene
    mask = formulas.hidden_grid(noisy.shape, (0, 1))
    hidden = formulas.without_hidden(noisy, mask, (0, 1))
    found = formulas.hidden_loss(noisy, np.full_like(noisy, SIGMA), box(hidden), mask)
    expected = unseen_loss(noisy, box, SIGMA, 1, formulas.GRID)
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_best_strength_is_the_minimum_of_the_losses():
    factors = formulas.FACTORS
    losses = [1 + 0.3 * np.log(f / 1.4) ** 2 for f in factors]
    found = formulas.best_factor(factors, losses)
    assert found.best == pytest.approx(1.4, rel=0.01)
    assert not found.fits
    flat = formulas.best_factor(factors, [1 + 0.001 * np.log(f / 1.4) ** 2 for f in factors])
    assert flat.fits, "what hardly matters is no reason for another sigma"


def test_the_map_follows_the_error_where_it_is_larger():
    rng = np.random.default_rng(0)
    truth = np.where(np.arange(160)[:, None] < 80, 4.0, 36.0) * np.ones((160, 150))
    squared = (truth + rng.normal(0, 60, truth.shape)).astype(np.float32)
    spread = np.full(truth.shape, 7.0, np.float32)
    varied = (truth / 2 * rng.chisquare(1, truth.shape)).astype(np.float32)
    mean = np.zeros(truth.shape, np.float32)
    known = np.ones(truth.shape, bool)
    found = formulas.error_map(squared, varied, mean, spread, known)
    assert found.shape == truth.shape
    assert found[:40].mean() == pytest.approx(4, abs=2)
    assert found[-40:].mean() == pytest.approx(36, abs=5)


def test_the_residual_of_white_noise_is_white():
    noise = np.random.default_rng(1).standard_normal((2, 128, 128))
    found = Statistics.of(noise, np.ones(noise.shape, bool))
    assert found.variance == pytest.approx(1, abs=0.04)
    assert abs(found.along_x) < 0.03
    shared = uniform_filter(noise, (0, 0, 2))
    assert Statistics.of(shared, np.ones(noise.shape, bool)).along_x == pytest.approx(0.5, abs=0.05)
    seen = np.random.default_rng(2).random(noise.shape) > 0.3
    assert Statistics.of(shared, seen).along_x == pytest.approx(0.5, abs=0.05)
