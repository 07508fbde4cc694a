"""Offsets of rows: against a slow reference, and what is image and stays."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.noise.structure import offsets, rows
from reference import row_offsets as reference

SHAPE = 192, 224
STRENGTH = 10.0
Y, X = np.mgrid[: SHAPE[0], : SHAPE[1]]

# Structure across the whole width, which must not be taken for offsets.
SCENES = {
    "horizon": np.where(Y > 80, 150.0, 30.0) + np.where(Y > 120, 40.0, 0.0),
    "tilted horizon": np.where(Y > 80 + X // 50, 150.0, 30.0),
    "soft horizon": 30 + 100 / (1 + np.exp(-(Y - 90) / 3.0)),
    "waves": 60 + 30 * np.sin(Y / 15.0),
    "slope": 100.0 + 0.3 * Y,
}


def measured(image: np.ndarray) -> np.ndarray:
    return offsets.plane_offsets([image.astype(np.float32)])


def error(image: np.ndarray, given: np.ndarray) -> float:
    """Return the root mean square error of offsets, whose mean nothing tells."""
    return float(np.std(measured(image + given[:, None]) - given))


def drawn(strength: float = STRENGTH, seed: int = 2, count: int = SHAPE[0]) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, strength, count)


def noise(sigma: float = 10.0, shape: tuple = SHAPE) -> np.ndarray:
    return np.random.default_rng(1).normal(0, sigma, shape)


@pytest.fixture
def exact(monkeypatch):
    """Conjugate gradients that go on to the end."""
    monkeypatch.setattr(offsets, "_ENOUGH", 1e-9)


def test_the_reference_agrees(exact):
    rng = np.random.default_rng(6)
    image = np.where(np.hypot(Y - 20, X - 40) < 12, 80.0, 30.0)[:48, :96] + 0.2 * Y[:48, :96]
    image = image + noise(5.0, image.shape) + rng.normal(0, 8, (48, 1))
    parts = rows.segments(image, 2)
    np.testing.assert_allclose(parts.means, reference.piece_means(image, 12), atol=1e-9)
    found = offsets.row_offsets([parts])
    np.testing.assert_allclose(found, reference.row_offsets(parts.means), atol=1e-3)


def test_banded_solves_agree_with_dense_ones(exact):
    rng = np.random.default_rng(6)
    means, links = rng.normal(0, 3, (20, 6)), rng.uniform(0.1, 3, (19, 6))
    weights = np.full(means.shape, 1 / 1.5)
    found, image = offsets.most_probable(means, weights, links, 4.0, np.zeros(20))
    wanted, below = reference.least_squares(means, 1.5, links, 4.0)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(image, below, atol=1e-6)


def test_powers_do_not_rise():
    values = np.random.default_rng(3).uniform(1, 2, 12)
    counts = np.arange(1.0, 13.0)
    found = offsets._falling(values, counts)
    np.testing.assert_allclose(found, reference.falling(values, counts))
    assert (np.diff(found) <= 0).all()


def test_the_known_answer_without_noise_or_image():
    given = drawn(3.0, count=64)
    found = measured(np.repeat(given[:, None], 96, axis=1))
    np.testing.assert_allclose(found, given - given.mean(), atol=0.3)
    assert not measured(np.full((64, 96), 7.0)).any()


def test_offsets_on_a_flat_image_are_known_up_to_the_noise():
    # The mean of a row has a noise of 10 / sqrt(224).
    assert error(noise(), drawn()) < 0.85


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_what_crosses_the_whole_image_stays(scene, sigma):
    assert error(SCENES[scene] + noise(sigma), drawn()) < 0.5 * STRENGTH
    # Weak offsets do not take strong edges with them.
    assert error(SCENES[scene] + noise(sigma), drawn(2.0)) < 1.5


def test_frequencies_without_offsets_are_kept():
    # As strong as it is, a slow wave that all columns share is no set of independent offsets.
    given, wave = drawn(), 25 * np.cos(np.pi * 3 * (np.arange(SHAPE[0]) + 0.5) / SHAPE[0])
    found = measured(noise() + given[:, None] + wave[:, None])
    taken = (found - given) @ wave / (wave @ wave)
    assert abs(taken) < 0.2


def test_few_strong_offsets_are_measured_too():
    rng = np.random.default_rng(5)
    given = np.where(rng.random(SHAPE[0]) < 0.2, rng.normal(0, 60, SHAPE[0]), drawn(3.0))
    assert error(noise(), given) < 0.1 * given.std()


def test_planes_are_measured_together():
    given = drawn()
    planes = [np.random.default_rng(k).normal(0, 10, SHAPE) + given[:, None] for k in range(4)]
    together = offsets.plane_offsets(planes)
    assert np.std(together - given) < 0.7 * np.std(offsets.plane_offsets(planes[:1]) - given)


@pytest.mark.parametrize("shape", [(16, 48), (17, 49), (33, 1000), (500, 48)])
def test_any_shape(shape):
    found = measured(noise(1.0, shape) + drawn(5.0, count=shape[0])[:, None])
    assert found.shape == shape[:1] and np.isfinite(found).all() and abs(found.mean()) < 1e-3
