"""Gain of scenes of few photons, counts without light, and channels that are unlike."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.noise.patches.selection import clipping_levels, photon_step
from napari_gpu_denoise.noise.photon import single_image_noise
from napari_gpu_denoise.noise.photon_pairs import still_noise
from napari_gpu_denoise.noise.sampling import PlaneStack


def lines(seed=0, shape=(256, 256), number=12):
    """Thin bright lines on a dark ground; the brightest pixel is 1."""
    rng = np.random.default_rng(seed)
    field = np.zeros(shape)
    y, x = np.mgrid[: shape[0], : shape[1]]
    for _ in range(number):
        angle, distance = rng.uniform(0, np.pi), rng.uniform(30, 200)
        field[np.abs(x * np.cos(angle) + y * np.sin(angle) - distance) < 0.7] = 1
    found = gaussian_filter(field, 1.3)
    return found / found.max()


@pytest.mark.parametrize("offset", [0, 100])
def test_sparse_scenes(offset):
    """High frequencies see little of what is in the corner of a patch: gains were half of this."""
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        image = offset + 3 * rng.poisson(1 + 50 * lines(seed)) + rng.normal(0, 1, (256, 256))
        found.append(single_image_noise(image.astype(np.float32)))
    gains, errors = np.array([(each.gain, each.gain_error) for each in found]).T
    assert gains == pytest.approx(3, rel=0.15)
    assert gains.mean() == pytest.approx(3, rel=0.08)
    assert np.all(np.abs(gains - 3) < 2.5 * errors)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("mean", [0.1, 1.0])
def test_counts_with_a_mean_below_one(dtype, mean):
    picture = 0.1 + gaussian_filter(lines(), 4)
    image = np.random.default_rng(0).poisson(picture * mean / picture.mean()).astype(dtype)
    found = estimate_noise(image)
    assert found.name == "poisson-gaussian"
    assert found.models[0].gain == pytest.approx(1, abs=0.1)
    assert found.clipped[0][0] == 0


@pytest.mark.parametrize("step", [1, 3])
def test_counts_of_photons_are_not_clipped(step):
    counts = 10 + step * np.random.default_rng(0).poisson(0.4, (128, 128)).astype(np.uint16)
    assert photon_step(counts, 10) == step
    assert not clipping_levels(counts)


def test_read_noise_cut_off_at_0_is_clipped():
    noise = np.random.default_rng(0).normal(0, 5, (128, 128))
    cut = np.clip(np.rint(noise), 0, 255).astype(np.uint8)
    assert photon_step(cut, 0) is None
    assert clipping_levels(cut) == [0]


def test_nothing_but_clipped_places_tells_no_gain():
    noise = np.random.default_rng(0).normal(0, 5, (256, 256)) + 3 * lines()
    cut = np.clip(np.rint(noise), 0, 255).astype(np.uint8)
    assert single_image_noise(cut).gain_error == np.inf


def test_one_level_of_brightness_does_not_flatten_the_line():
    """Patches of one light, sorted by their noise, showed a line without a slope."""
    rng = np.random.default_rng(0)
    image = 100 + rng.poisson(0.6 + 2 * lines()) + rng.normal(0, 2, (256, 256))
    found = single_image_noise(image)
    assert abs(found.gain - 1) < 2.5 * found.gain_error


def test_an_image_that_cannot_tell_says_so():
    image = np.random.default_rng(0).normal(100, 5, (256, 256)).astype(np.float32)
    found = estimate_noise(image)
    assert found.name == "gaussian"
    assert "does not show" in found.reason


def test_objects_that_move_on_a_ground_that_stands_still():
    """Differences of frames were taken for noise: the gain was far too large."""
    rng = np.random.default_rng(0)
    scene = 1 + 40 * lines()
    frames = [rng.poisson(np.roll(scene, (5 * t, 3 * t), (0, 1))) for t in range(3)]
    stack = np.array(frames).astype(np.float32)
    assert still_noise(PlaneStack.held(list(stack))) is None
    still = np.array([rng.poisson(scene) for _ in range(3)]).astype(np.float32)
    found = still_noise(PlaneStack.held(list(still)))
    assert found.gain == pytest.approx(1, rel=0.05)


def test_channels_that_are_unlike():
    """The channel of 5 photons has zeros; the bright one lost its model to that."""
    y, x = np.mgrid[:256, :256]
    picture = 1.1 + np.sin(x / 40) * np.cos(y / 25)
    rng = np.random.default_rng(0)
    image = np.stack([rng.poisson(5 * picture), rng.poisson(2000 * picture)]).astype(np.uint16)
    found = estimate_noise(image, "CYX")
    assert found.name == "poisson-gaussian"
    assert [each.gain for each in found.models] == pytest.approx([1, 1], rel=0.1)


def test_a_channel_with_additive_noise_beside_one_of_photons():
    y, x = np.mgrid[:256, :256]
    picture = 1.1 + np.sin(x / 40) * np.cos(y / 25)
    rng = np.random.default_rng(0)
    even = 100 * picture + rng.normal(0, 7, picture.shape)
    found = estimate_noise(np.stack([even, rng.poisson(200 * picture)]), "CYX")
    assert found.name == "poisson-gaussian"
    assert found.models[1].gain == pytest.approx(1, rel=0.1)
    assert found.models[0].read_noise == pytest.approx(7, rel=0.1)
    assert found.models[0].gain < 0.01
    assert np.isnan(found.errors[0]["gain"])
