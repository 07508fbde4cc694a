"""White noise of images that were compressed as JPEG afterwards."""

from __future__ import annotations

import io

import imageio.v3 as imageio
import numpy as np
import pytest

import napari_gpu_denoise as gd


def compressed(image, quality):
    stored = io.BytesIO()
    values = np.rint(image).clip(0, 255).astype(np.uint8)
    imageio.imwrite(stored, values, extension=".jpg", quality=quality)
    stored.seek(0)
    return imageio.imread(stored, extension=".jpg")


def scene(shape=(200, 240)):
    y, x = np.indices(shape)
    return 60.0 + 80 * ((x // 37 + y // 41) % 2) + 0.1 * x


def noisy(sigma, seed=0):
    clean = scene()
    return clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)


@pytest.mark.parametrize(
    "sigma,quality",
    [(10, 95), (10, 80), (20, 80), (20, 60)],
    ids=["10-95", "10-80", "20-80", "20-60"],
)
@pytest.mark.parametrize("begin", [(0, 0), (3, 6)], ids=["whole", "cropped"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_sigma_is_that_before_compression(sigma, quality, begin, dtype):
    image = compressed(noisy(sigma), quality)[begin[0] :, begin[1] :].astype(dtype)
    estimate = gd.estimate_noise(image, "YX")
    assert estimate.name == "gaussian"
    assert estimate.sigma[0] == pytest.approx(sigma, rel=0.06)
    assert any("JPEG" in note for note in estimate.notes)


@pytest.mark.parametrize("sigma", [0, 1, 20])
def test_other_images_were_not_compressed(sigma):
    image = np.rint(noisy(sigma)).clip(0, 255).astype(np.uint8)
    assert not any("JPEG" in note for note in gd.estimate_noise(image, "YX").notes)


def test_clean_pictures_have_no_noise_before_compression():
    image = compressed(scene(), 80)
    estimate = gd.estimate_noise(image, "YX")
    assert not any("JPEG" in note for note in estimate.notes)


def test_frames_have_sigma_before_compression():
    frames = np.stack([compressed(noisy(20, seed), 60) for seed in range(3)])
    estimate = gd.estimate_noise(frames, "TYX")
    assert np.mean(estimate.frames.sigma[0]) == pytest.approx(20, rel=0.08)
