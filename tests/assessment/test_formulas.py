"""The formulas of an assessment, beside plain ones, and for filters whose answer is known."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, uniform_filter

from napari_gpu_denoise.assessment import formulas
from napari_gpu_denoise.assessment.formulas import PAIRS, Detail, Rings, SigmaCheck, Statistics
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
    found = formulas.squared_errors(noisy, SIGMA * unit, SIGMA**2, plus, minus)
    expected = predicted_error(noisy, SIGMA, unit, plus, minus, formulas.EPSILON)
    assert found.mean(dtype=np.float64) == pytest.approx(expected, rel=1e-4)


def predicted_and_stated(seed, draws=200):
    """Return by how much predictions of an error are off, and their stated standard errors."""
    rng, size = np.random.default_rng(seed), (40, 40)
    clean = 8 * gaussian_filter(rng.normal(0, 30, size), 2, mode="wrap").astype(np.float32)
    spread = np.full(size, SIGMA)
    differences, told = [], []
    for _ in range(draws):
        noisy = clean + rng.normal(0, SIGMA, size)
        squared, varied, followed = np.zeros((3, *size))
        for _ in range(PAIRS):
            unit, plus, minus = perturbed(noisy, rng)
            one = formulas.squared_errors(noisy, SIGMA * unit, spread**2, plus, minus)
            half = (plus - minus) / (2 * formulas.EPSILON)
            squared += one / PAIRS
            varied += half**2 / PAIRS
            followed += 2 * SIGMA * unit * half / PAIRS
        differences.append(squared.mean() - np.mean((box(noisy) - clean) ** 2))
        parts = noisy - box(noisy), varied, followed
        told.append(formulas.standard_error(spread, *parts))
        more = formulas.standard_error(spread, *parts, unsure=0.05)
        # Sigma squared is 10 % off, and so is what follows from it.
        assert more == pytest.approx(np.hypot(told[-1], 0.1 * abs(followed.mean() - SIGMA**2)))
    return np.array(differences), np.array(told)


def test_the_predicted_error_of_a_mean_of_nine_varies_as_its_standard_error_says():
    found = [predicted_and_stated(seed) for seed in range(3, 9)]
    ratios = [told.mean() / differences.std() for differences, told in found]
    assert np.mean(ratios) == pytest.approx(1, abs=0.1)
    differences, told = (np.concatenate(each) for each in zip(*found, strict=True))
    assert abs(np.mean(differences)) < 4 * np.mean(told) / len(told) ** 0.5


def test_detail_is_that_of_full_spectra_and_of_the_transfer_function(scene):
    _, noisy = scene
    rings, filtered, others = Rings(*noisy.shape), [], []
    for seed in range(3):
        unit, plus, minus = perturbed(noisy, seed)
        filtered += [plus, minus]
        others += [noisy - s * SIGMA * unit / formulas.EPSILON for s in (1, -1)]
    noise = rings.noise(np.full(noisy.shape, SIGMA), 1.0)
    found = formulas.detail(rings, noisy, noise, np.stack(filtered), np.stack(others))
    frequency, kept = detail_kept(noisy, filtered, others, SIGMA, rings.step)
    np.testing.assert_allclose(found.frequency, frequency)
    judged = np.array(found.judged)
    assert judged.sum() >= 3 and not judged.all(), "the noise hides the finest"
    np.testing.assert_allclose(np.array(found.kept)[judged], kept[judged], atol=2e-3)
    # Along a diagonal the frequency is shared by both axes: near the same for small ones.
    known = np.flatnonzero(judged[:4])
    transfer = (1 + 2 * np.cos(2 * np.pi * frequency[known])) / 3
    np.testing.assert_allclose(np.array(found.kept)[known], transfer, atol=0.08)


@pytest.mark.parametrize(
    ("kept", "judged", "half", "limit"),
    [
        ((1.0, 0.8, 0.3, 0.2), (1, 1, 1, 0), 0.15 + 0.1 * 0.3 / 0.5, 0.25),
        ((1.0, 0.4, 0.8, 0.2), (1, 1, 1, 1), 0.25 + 0.1 * 0.3 / 0.6, 0.35),
        ((0.4, 0.3, 0.8, 0.9), (1, 1, 1, 1), 0.05, 0.35),
        ((1.0, 0.9, 0.8, 0.1), (1, 1, 0, 1), None, 0.15),
        ((1.0, 0.9, 0.8, 0.7), (0, 1, 1, 1), None, None),
    ],
    ids=["falls", "dips once", "at once", "hidden", "all hidden"],
)
def test_half_is_where_the_contrast_falls_below_it(kept, judged, half, limit):
    found = Detail((0.05, 0.15, 0.25, 0.35), kept, tuple(map(bool, judged)))
    assert (found.half, found.limit) == (half and pytest.approx(half), limit)


def test_the_loss_of_unseen_pixels_is_that_of_the_slow_one(scene):
    _, noisy = scene
    mask = formulas.hidden_grid(noisy.shape, (0, 1))
    hidden = formulas.without_hidden(noisy, mask, (0, 1))
    found = formulas.hidden_loss(noisy, np.full_like(noisy, SIGMA), box(hidden), mask)
    expected = unseen_loss(noisy, box, SIGMA, 1, formulas.GRID)
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_best_strength_is_the_minimum_of_the_losses():
    for best in (1.1, 1.4):
        found = SigmaCheck.of([1 + 0.3 * np.log(f / best) ** 2 for f in formulas.FACTORS])
        assert found.best == pytest.approx(best, rel=0.01)
        assert found.fits == (best == 1.1)
    flat = SigmaCheck.of([1 + 0.001 * np.log(f / 1.4) ** 2 for f in formulas.FACTORS])
    assert flat.fits, "what hardly matters is no reason for another sigma"


def test_the_residual_of_white_noise_is_white():
    noise = np.random.default_rng(1).standard_normal((2, 128, 128))
    found = Statistics.of(noise, np.ones(noise.shape, bool))
    assert found.variance == pytest.approx(1, abs=0.04)
    assert abs(found.along_x) < 0.03
    shared = uniform_filter(noise, (0, 0, 2))
    for seen in (np.ones(noise.shape, bool), np.random.default_rng(2).random(noise.shape) > 0.3):
        assert Statistics.of(shared, seen).along_x == pytest.approx(0.5, abs=0.05)
