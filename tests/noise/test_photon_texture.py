"""Texture taken away from the noise of levels of brightness."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise.noise import photon as photon_readings
from napari_gpu_denoise.noise import photon as photon_texture
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, frequency_sets
from napari_gpu_denoise.noise.patches.variance import grouped
from napari_gpu_denoise.noise.patches.white import PATCH, frequencies, frequency_order
from napari_gpu_denoise.noise.photon import (
    COEFFICIENTS,
    Readings,
    level_variances,
    read_levels,
    single_image_noise,
    texture_spectrum,
)
from reference.data import REASON, data_folder, pictures


def photons(picture, gain, read, seed=0):
    rng = np.random.default_rng(seed)
    return gain * rng.poisson(picture / gain) + rng.normal(0, read, picture.shape)


def grown_over(seed=0, shape=(256, 320)):
    """Texture everywhere, weaker in some places, falling with frequency as in photographs."""
    rng = np.random.default_rng(seed)
    leaves = gaussian_filter(rng.standard_normal(shape), 0.8)
    patchy = gaussian_filter(rng.standard_normal(shape), 12)
    shade = gaussian_filter(rng.standard_normal(shape), 25)
    strength = 4 + 12 * (patchy - patchy.min()) / np.ptp(patchy)
    picture = 30 + 160 * (shade - shade.min()) / np.ptp(shade) + strength * leaves / leaves.std()
    return np.maximum(picture, 1)


def bands():
    _, read, _, first = photon_readings.frequency_bands()
    return first, np.diff(np.append(first, len(read)))


def test_coefficients_are_told_apart():
    """A wave of one frequency is found where its frequency says."""
    low, high, _ = frequencies((PATCH, PATCH))
    matrix = np.concatenate([low, high])
    order = np.concatenate(frequency_order((PATCH, PATCH)))
    assert sorted(order) == list(range(1, PATCH**2))
    k = np.arange(PATCH) + 0.5
    for j, m in ((0, 3), (5, 2), (7, 7)):
        wave = np.outer(np.cos(np.pi * j * k / PATCH), np.cos(np.pi * m * k / PATCH))
        assert order[np.argmax(np.abs(matrix @ wave.ravel()))] == j * PATCH + m


def test_ranking_and_reading_share_nothing():
    ranks, read, sums, _ = photon_readings.frequency_bands()
    assert set(ranks) | set(read) == set(range(COEFFICIENTS))
    assert not set(ranks) & set(read)
    assert len(set(read)) == len(read)
    j, k = np.divmod(np.concatenate(frequency_order((PATCH, PATCH)))[read], PATCH)
    assert list(sums) == list(j + k) == sorted(sums)
    assert bands()[1].sum() == len(read)
    assert bands()[1].min() >= 2


def test_sets_are_nested_from_smooth_to_textured():
    rng = np.random.default_rng(0)
    coefficients = rng.standard_normal((4000, COEFFICIENTS))
    textured = rng.random(4000) < 0.5
    coefficients[textured] *= 3
    energy = np.square(coefficients)
    mean = rng.uniform(0, 100, 4000)
    levels = grouped((mean >= 50).astype(np.uint8), 2)
    lows = len(frequency_order((PATCH, PATCH))[0])
    energies = (energy @ frequency_sets(lows, COEFFICIENTS).T).T
    place, upper = np.zeros((2, 4000)), np.ones(COEFFICIENTS - lows, bool)
    spectra = PatchSpectra(
        mean, coefficients, energies, mean, lows, upper, np.zeros(4000), 1.0, place
    )
    found = read_levels(spectra, np.ones(4000), levels)
    for level, part in enumerate(levels.each()):
        inside = found.level == level
        count, power = found.count[inside], found.power[inside].mean(axis=1)
        assert count[-1] == len(part) == found.added[inside].sum()
        assert np.all(np.diff(count) >= photon_readings.LEAST)
        assert power[:-2] == pytest.approx(1, abs=0.1)
        assert power[-1] == pytest.approx(energy[part].mean(), rel=0.05)
        assert found.own[inside][-1].mean() > 8


def spectrum(fall):
    sums = np.minimum(photon_readings.frequency_bands()[2], photon_readings.TOP)
    power = np.exp(-fall * sums / PATCH)
    first, sizes = bands()
    shape = np.add.reduceat(power, first) / sizes
    return power / shape[: photon_texture.STRONG].mean()


@pytest.mark.parametrize("fall", [2.0, 4.0])
def test_the_spectrum_of_texture_is_learned(fall):
    first, sizes = bands()
    shape = np.add.reduceat(spectrum(fall), first) / sizes
    strength = np.array([0.2, 1, 2, 4])
    # A line that is wrong does not matter: the sets of a level share their noise.
    power = 1.3 + strength[:, None] * shape
    found = texture_spectrum(power, np.full(4, 100_000), np.zeros(4, int), 1.0)
    expected = shape**photon_texture.SMOOTH_FALL
    assert found == pytest.approx(expected / expected[: photon_texture.STRONG].mean(), abs=0.06)


def readings(strengths, fall=3.0, count=10_000):
    """Sets of one level of brightness each, of variance 2, without chance."""
    number = len(strengths)
    power = 2 + 2 * np.outer(strengths, spectrum(fall))
    return sets_of(power, count, np.arange(number) + 100.0)


def sets_of(power, count, mean):
    """Readings of sets of `count` patches, each a level of its own."""
    number = len(power)
    counts = np.full(number, count)
    seen = np.broadcast_to(np.asarray(mean, float)[:, None], power.shape)
    levels = np.arange(number)
    return Readings(levels, counts, mean, power, counts, power, seen, seen, np.ones(number))


def test_texture_is_taken_away():
    strengths = [0.0, 0.1, 0.3, 1.0]
    found = level_variances(readings(strengths), 0.0, 2.0, 1.0)
    assert found.variance == pytest.approx(2, rel=0.1)
    # The test means something: the mean over all bands is far off.
    assert readings(strengths).power[-1].mean() > 2 * 1.4
    # What much texture leaves of it is known less well.
    assert np.all(np.diff(found.error) > 0)
    assert found.error[-1] > 5 * found.error[0]


def test_the_error_without_texture_is_that_of_chance():
    rng = np.random.default_rng(0)
    number, count = 200, 400
    power = rng.chisquare(count, (number, len(photon_readings.frequency_bands()[1]))) / count
    sets = sets_of(power, count, np.full(number, 9.0))
    found = level_variances(sets, 0.0, 1.0, 1.0)
    assert found.variance.mean() == pytest.approx(1, abs=0.01)
    assert 0.7 < np.median(found.error) / found.variance.std() < 2


def test_stripes_do_not_count():
    """One frequency of a band stands out: the others tell the noise."""
    sets = readings([0.0] * 4)
    striped = sets.power.copy()
    striped[:, -3] *= 20
    found = level_variances(sets._replace(power=striped, own=striped), 0.0, 2.0, 1.0)
    assert found.variance == pytest.approx(2, rel=0.1)
    assert striped.mean() > 2 * 1.4


def test_texture_everywhere():
    """The gain of pictures without a smooth place, and an error that says how well it is known."""
    found = [single_image_noise(photons(grown_over(seed), 2, 5, seed)) for seed in range(5)]
    gains = np.array([each.gain for each in found])
    errors = np.array([each.gain_error for each in found])
    assert gains.mean() == pytest.approx(2, rel=0.12)
    assert np.sqrt(np.mean(np.square((gains - 2) / errors))) < 2
    smooth = [gaussian_filter(grown_over(seed), 6) for seed in range(3)]
    better = [single_image_noise(photons(each, 2, 5)).gain_error for each in smooth]
    assert np.median(errors) > 1.1 * np.median(better)


def test_flat_pictures_say_that_they_hold_no_gain():
    found = single_image_noise(photons(np.full((256, 256), 120.0), 2, 5))
    assert found.gain_error > 1
    assert found.gain * 120 + found.intercept == pytest.approx(265, rel=0.05)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_stated_errors_of_photographs():
    clean = list(pictures("bsd68").values())[::5]
    found = [
        single_image_noise(photons(each.astype(float), 1, 5, seed))
        for seed, each in enumerate(clean)
    ]
    error = np.array([each.gain - 1 for each in found])
    stated = np.array([each.gain_error for each in found])
    assert 0.5 < np.sqrt(np.mean(np.square(error / stated))) < 1.5
    assert np.mean(np.abs(error) > 3 * stated) <= 0.05
    assert np.median(np.abs(error)) <= 0.08
