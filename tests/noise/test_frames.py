"""The spectrum of noise from differences of frames, and when these do not tell it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, shift

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.frames import FramesInARow
from napari_gpu_denoise.noise.sampling import PlaneReader

SIGMA = 10.0


def textured(ny: int = 120, nx: int = 130) -> np.ndarray:
    """Return a scene with fine texture everywhere."""
    drawn = np.random.default_rng(1).normal(size=(ny, nx))
    texture = gaussian_filter(drawn, 1.5) / gaussian_filter(drawn, 1.5).std()
    y, x = np.mgrid[:ny, :nx]
    return 120 + 30 * np.sin(x / 17) * np.cos(y / 23) + 12 * texture


def frames(width: float, moved: float = 0.0, count: int = 5) -> np.ndarray:
    scene = np.stack([shift(textured(), moved * k, mode="mirror") for k in range(count)])
    noise = np.random.default_rng(2).normal(size=scene.shape)
    noise = gaussian_filter(noise, width, axes=(1, 2), mode="wrap")
    return (scene + SIGMA * noise / noise.std()).astype(np.float32)


@pytest.mark.parametrize(("width", "neighbours"), [(0.1, 0.0), (0.8, 0.68), (1.2, 0.84)])
def test_a_still_scene_leaves_no_texture(width, neighbours):
    found = gd.estimate_noise(frames(width), "TYX")
    spectrum = found.spectra[0]
    assert spectrum.white == (width == 0.1)
    assert spectrum.sigma == pytest.approx(SIGMA, rel=0.08)
    assert spectrum.autocorrelation[0][1] == pytest.approx(neighbours, abs=0.04)
    assert gd.estimate_noise(frames(width), ".YX").spectra[0].sigma > 1.1 * SIGMA
    if not spectrum.white:
        assert found.method == "spectrum of the smoothest patches of differences"


@pytest.mark.parametrize("width", [1.6, 2.4])
def test_noise_that_reaches_far_is_seen_in_full(width):
    spectrum = gd.estimate_noise(frames(width), "TYX").spectra[0]
    assert spectrum.any_range
    assert spectrum.sigma == pytest.approx(SIGMA, rel=0.15)
    expected = np.exp(-(np.arange(5) ** 2) / (4 * width**2))
    np.testing.assert_allclose(spectrum.autocorrelation[0], expected, atol=0.2)
    assert gd.Correlated.of_spectrum(spectrum).sigma == spectrum.sigma


def test_a_moving_scene_is_read_no_worse():
    image = frames(0.8, moved=3.7)
    alone, over_time = (gd.estimate_noise(image, axes).sigma[0] for axes in (".YX", "TYX"))
    assert abs(over_time - SIGMA) <= abs(alone - SIGMA)


def test_light_that_fades_leaves_no_texture():
    image = frames(0.8) * np.linspace(1, 0.8, 5, dtype=np.float32)[:, None, None]
    found = FramesInARow(((image[0], image[1], image[2]),)).spectrum(noise_spectrum(image[:3]))
    assert found.sigma == pytest.approx(0.97 * SIGMA, rel=0.1)


def averaged(image: np.ndarray) -> np.ndarray:
    """Return frames that are averaged with those before them, as recursive filters do."""
    made = [image[0]]
    for frame in image[1:]:
        made.append((frame + made[-1]) / 2)
    return np.array(made)


def compressed(image: np.ndarray) -> np.ndarray:
    """Return frames some places of which are not stored again."""
    image = image.copy()
    image[:, 10:60, 10:60] = image[0, 10:60, 10:60]
    return image


@pytest.mark.parametrize(
    "image",
    [
        compressed(frames(0.8)),
        averaged(frames(0.8, count=8)),
        np.repeat(frames(0.8, count=3), 2, axis=0),
    ],
    ids=["compressed", "averaged", "stored twice"],
)
def test_frames_that_share_noise_are_read_one_by_one(image):
    alone, over_time = (gd.estimate_noise(image, axes).spectra[0] for axes in (".YX", "TYX"))
    assert over_time == alone


def test_places_without_signal_are_left_out():
    image = frames(0.8)
    image[:, 20:60, 20:60] = 0
    image[2, 90:100, 5:9] = np.nan
    found = FramesInARow.of(PlaneReader(image, "TYX").along(0, None, range(5)))
    assert found.spectrum(noise_spectrum(image)).sigma == pytest.approx(SIGMA, rel=0.1)


def test_photon_noise_is_read_from_stabilised_frames():
    clean = 2 * textured(200, 210) * np.linspace(0.2, 1, 210)
    drawn = np.random.default_rng(3).normal(size=(5, *clean.shape))
    noise = gaussian_filter(drawn, 0.9, axes=(1, 2), mode="wrap")
    image = clean + np.sqrt(2.0 * clean + 9.0) * noise / noise.std()
    found = gd.estimate_noise(image.astype(np.float32), "TYX", "correlated-photons")
    model = found.models[0]
    assert "differences" in found.method
    means = np.array([60.0, 150.0, 250.0])
    np.testing.assert_allclose(model.variance(means), 2.0 * means + 9.0, rtol=0.25)
    assert model.autocorrelation[0][1] == pytest.approx(np.exp(-1 / (4 * 0.81)), abs=0.05)
