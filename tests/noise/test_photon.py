"""Laws of the noise variance over brightness: photons, tables, and texture that is none."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.noise import photon
from napari_gpu_denoise.noise.frames import FramesInARow
from napari_gpu_denoise.noise.patches.selection import clipping_levels, photon_step
from napari_gpu_denoise.noise.patches.spectra import spectra_of
from reference.data import REASON, data_folder, pictures

DATA = pytest.mark.skipif(data_folder() is None, reason=REASON)


def single_image_noise(image):
    return photon.single_image_noise(spectra_of(image))


def photons(picture, gain, read, seed=0):
    rng = np.random.default_rng(seed)
    return gain * rng.poisson(picture / gain) + rng.normal(0, read, np.shape(picture))


def shading(ny=256, nx=256):
    """Smooth shading, sharp edges, and fine texture in the lower half."""
    y, x = np.mgrid[:ny, :nx]
    picture = 60 + 0.6 * x + 20 * np.cos(y / 25)
    picture[(y - 70) ** 2 + (x - 80) ** 2 < 2500] += 50
    return picture + np.where(y > ny // 2, 15 * np.sin(2.1 * x) * np.sin(1.7 * y), 0)


def overgrown(seed=0, shape=(256, 320)):
    """Texture everywhere, weaker in some places, falling with frequency as in photographs."""
    rng = np.random.default_rng(seed)
    leaves, patchy, shade = (
        gaussian_filter(rng.standard_normal(shape), width) for width in (0.8, 12, 25)
    )
    strength = 4 + 12 * (patchy - patchy.min()) / np.ptp(patchy)
    picture = 30 + 160 * (shade - shade.min()) / np.ptp(shade) + strength * leaves / leaves.std()
    return np.maximum(picture, 1)


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


def ramp(seed=0):
    """Objects of all levels of brightness, smooth inside."""
    y, x = np.mgrid[:192, :192]
    return 20 + 0.9 * x + 30 * ((x // 24 + y // 32) % 2) * (x > 60)


def gains_of(images):
    found = [single_image_noise(image) for image in images]
    return np.array([(each.gain, each.gain_error, each.intercept) for each in found]).T


# Laws

LAWS = {
    "falling": lambda m: 12 - 9 * m / 255,
    "hump": lambda m: 3 + 9 * np.exp(-(((m - 120) / 50) ** 2)),
    "trough": lambda m: 12 - 9 * np.exp(-(((m - 120) / 50) ** 2)),
}


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("law", LAWS)
def test_any_function_of_brightness_is_found(law, dtype):
    clean, sigma = ramp(), LAWS[law]
    image = clean + sigma(clean) * np.random.default_rng(0).standard_normal(clean.shape)
    image = np.clip(np.rint(image), 0, 255).astype(dtype) if dtype == "uint8" else image
    found = estimate_noise(image)
    assert found.name == "signal-dependent"
    means = np.array([40.0, 80, 120, 160, 200])
    assert np.sqrt(found.models[0].variance(means)) == pytest.approx(sigma(means), rel=0.15)
    assert found.sigma[0] == pytest.approx(np.sqrt(np.mean(sigma(clean) ** 2)), rel=0.08)
    assert "at grey level" in found.verdict()
    assert found.verdict().endswith("noise is white")
    assert gd.NoiseEstimate.from_dict(json.loads(json.dumps(found.as_dict()))) == found


def texture_by_level(seed):
    """White noise, and texture that differs between levels of brightness."""
    clean, rng = ramp(), np.random.default_rng(seed)
    rough = gaussian_filter(rng.standard_normal(clean.shape), 0.8)
    strength = (0, 8, 2, 10, 4)[seed % 5] * np.clip((clean - 60) / 60, 0, 1)
    return clean + strength * rough / rough.std() + rng.normal(0, 5, clean.shape)


@pytest.mark.parametrize("seed", range(5))
def test_texture_is_no_law(seed):
    assert estimate_noise(texture_by_level(seed)).name == "gaussian"


# Gain and read noise


@pytest.mark.parametrize(("gain", "read"), [(0.5, 2), (5, 2), (5, 10)])
@pytest.mark.parametrize("scene", [shading, overgrown], ids=["shading", "overgrown"])
def test_known_gain_and_read_noise(scene, gain, read):
    picture = scene()
    gains, errors, intercepts = gains_of(photons(picture, gain, read, seed) for seed in range(3))
    assert gains.mean() == pytest.approx(gain, rel=0.12 if scene is overgrown else 0.06)
    assert np.sqrt(np.mean(np.square((gains - gain) / errors))) < 2
    level = picture.mean()
    variance = gains.mean() * level + intercepts.mean()
    assert variance == pytest.approx(gain * level + read**2, rel=0.13)


@pytest.mark.parametrize("offset", [0, 100])
def test_sparse_scenes(offset):
    """High frequencies see little of what is in the corner of a patch: gains were half of this."""
    images = [
        (offset + photons(3 * (1 + 50 * lines(seed)), 3, 1, seed)).astype(np.float32)
        for seed in range(4)
    ]
    gains, errors, _ = gains_of(images)
    assert gains.mean() == pytest.approx(3, rel=0.08)
    assert np.all(np.abs(gains - 3) < 2.5 * errors)


def test_an_offset_is_known_with_its_range_only():
    light = np.linspace(20, 900, 96)[:, None] * np.ones((96, 128))
    found = estimate_noise(100 + photons(light, 2, 5, 5), model="poisson-gaussian")
    model, errors = found.models[0], found.errors[0]
    assert model.read_noise == 0
    assert 2 * errors["read_noise"] >= 5
    assert model.offset < 100 < model.offset + 2 * errors["offset"] < 180
    (note,) = [note for note in found.notes if "dark frames would tell" in note]
    assert f"the read noise accordingly 0 to {2 * errors['read_noise']:.3g}" in note
    assert "read noise" not in found.verdict()
    assert f"gain {model.gain:.3g}" in found.verdict()


def test_levels_that_are_clipped_and_noise_that_does_not_grow():
    """The bright third is cut off: its variance falls to nothing."""
    _, x = np.mgrid[:256, :256]
    cut = single_image_noise(np.rint(photons(20 + 1.0 * x, 2, 3).clip(0, 200)).astype(np.uint16))
    assert cut.gain == pytest.approx(2, rel=0.1)
    assert not cut.curve.used[-1]
    noise = np.random.default_rng(0).normal(0, 8, (256, 256))
    (model,) = gd.estimate_noise(50 + x / 2 + noise, model="signal-dependent").models
    assert model.sigmas == pytest.approx([8] * len(model.sigmas), rel=0.1)
    white = single_image_noise(shading() + noise)
    assert abs(white.gain) < 4 * white.gain_error
    # The line through the middle of the picture is what one sigma would be.
    assert white.gain * 140 + white.intercept == pytest.approx(64, rel=0.15)


def test_what_tells_no_gain():
    found = single_image_noise(np.full((64, 64), 7.3))
    numbers = (found.gain, found.gain_error, found.intercept, found.read_noise, found.offset)
    assert numbers == (0, 0, 0, 0, 0)
    assert gd.estimate_noise(np.full((64, 64), 7.3), model="poisson-gaussian").sigma[0] < 1e-4
    flat = single_image_noise(photons(np.full((256, 256), 120.0), 2, 5))
    assert flat.gain_error > 1
    assert flat.gain * 120 + flat.intercept == pytest.approx(265, rel=0.05)
    noise = np.random.default_rng(0).normal(0, 5, (256, 256)) + 3 * lines()
    cut = np.clip(np.rint(noise), 0, 255).astype(np.uint8)
    assert single_image_noise(cut).gain_error == np.inf


@DATA
@pytest.mark.parametrize(("gain", "read"), [(0.5, 2), (5, 10)])
def test_photographs(gain, read):
    """Of the gain, and of sigma over the grey levels of a picture, which filters use."""
    clean = [each * 1.0 for each in list(pictures("bsd68").values())[::8]]
    found = [single_image_noise(photons(each, gain, read, k)) for k, each in enumerate(clean)]
    gains, errors = np.array([(each.gain, each.gain_error) for each in found]).T
    known, off = errors < 0.5 * gain, []
    assert known.sum() >= 7
    assert abs(gains[known].mean() / gain - 1) <= 0.07
    assert np.median(np.abs(gains / gain - 1)) <= 0.06
    assert 0.4 < np.sqrt(np.mean(np.square((gains - gain) / errors))) < 1.5
    for each, one in zip(clean, found, strict=True):
        ratio = (one.gain * each + one.intercept) / (gain * each + read**2)
        off.append(np.abs(np.log(np.maximum(ratio, 0.02))).mean() / 2)
    assert np.mean(off) < 0.025


# Counts of photons, frames and channels


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
    cut = np.clip(np.rint(np.random.default_rng(0).normal(0, 5, (128, 128))), 0, 255)
    assert photon_step(cut.astype(np.uint8), 0) is None
    assert clipping_levels(cut.astype(np.uint8)) == [0]


def test_objects_that_move_on_a_ground_that_stands_still():
    """Differences of frames were taken for noise: the gain was far too large."""
    rng = np.random.default_rng(0)
    scene = 1 + 40 * lines()
    moved = [rng.poisson(np.roll(scene, (5 * t, 3 * t), (0, 1))) * 1.0 for t in range(3)]
    assert FramesInARow((tuple(moved),)).still_noise() is None
    still = tuple(rng.poisson(scene) * 1.0 for _ in range(3))
    assert FramesInARow((still,)).still_noise().gain == pytest.approx(1, rel=0.05)
