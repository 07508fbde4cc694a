"""Speckle on a logarithmic scale, as ultrasound and OCT images are displayed."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd

FINE, COARSE = (0.8, 1.5), (2.0, 4.0)  # width of a grain along y and x, pixels
LEVEL = 4.64  # grey levels for a decibel: 255 for 55


def steps(size: int) -> np.ndarray:
    """Return a scene of squares of four levels, in decibels."""
    squares = np.add.outer(*np.indices((8, 8))[:, :, 0]) * 5 % 4
    return np.kron(squares * 8.0 - 32, np.ones((size // 8, size // 8)))


def speckled(grain: tuple[float, float], size: int = 240, seed: int = 0):
    """Return an image as it is displayed, uint8, and the one without speckle."""
    rng, scene = np.random.default_rng(seed), steps(size)
    parts = [gaussian_filter(rng.standard_normal(scene.shape), grain, mode="wrap") for _ in "ri"]
    intensity = np.square(parts).sum(axis=0)
    clean = 255 + LEVEL * scene
    shown = clean + LEVEL * 10 * np.log10(intensity / intensity.mean())
    return np.clip(np.rint(shown), 0, 255).astype(np.uint8), clean


@pytest.mark.parametrize("grain", [FINE, COARSE], ids=["fine", "coarse"])
def test_speckle_is_measured_at_all_frequencies(grain):
    image, clean = speckled(grain)
    noise = image - clean
    found = gd.estimate_noise(image)
    assert found.name == "correlated"
    assert "speckle on a logarithmic scale" in found.reason
    assert found.verdict().startswith("Speckle on a logarithmic scale, sigma ")
    assert found.sigma[0] == pytest.approx(noise.std(), rel=0.1)
    noise -= noise.mean()
    for k, (dy, dx) in enumerate([(1, 0), (0, 1), (0, 3)]):
        true = (noise[dy:, dx:] * noise[: 240 - dy, : 240 - dx]).mean() / noise.var()
        assert found.models[0].autocorrelation[dy][dx] == pytest.approx(true, abs=0.08), k


@pytest.mark.parametrize("grain", [FINE, COARSE], ids=["fine", "coarse"])
def test_speckle_is_removed(grain):
    image, clean = speckled(grain)
    before, after = (np.std(each - clean) for each in (image, gd.bm3d(image, profile="fast")))
    assert after < 0.55 * before


def test_display_furniture_is_left_out():
    image, _ = speckled(FINE)
    page = np.pad(image, ((60, 40), (90, 70)))
    page[10, 10:300] = page[20:27, 10:200:7] = page[100:104, 20:60] = 230
    page[80:280, -30:-20] = np.linspace(255, 0, 200, dtype=np.uint8)[:, None]
    alone, found = gd.estimate_noise(image), gd.estimate_noise(page)
    assert found.spectra[0].log_speckle
    assert found.sigma[0] == pytest.approx(alone.sigma[0], rel=0.05)
    colours = gd.estimate_noise(np.stack([page] * 3, axis=-1), "YXS")
    assert all(each.log_speckle for each in colours.spectra)
    assert colours.sigma == pytest.approx(found.sigma * 3)


def test_a_cine_is_one_of_speckle():
    cine = np.stack([speckled(FINE, seed=seed)[0] for seed in range(3)])
    found = gd.estimate_noise(cine, "TYX")
    assert found.spectra[0].log_speckle and found.frames is None
    assert "speckle on a logarithmic scale" in gd.recommend(cine, "TYX", noise=found).sentence()


def others():
    """Yield images that are like speckle but for one thing."""
    image, clean = speckled(FINE)
    rng = np.random.default_rng(1)
    noise = gaussian_filter(rng.standard_normal(clean.shape), FINE)
    yield "not skewed", clean / 2 + 25 * noise / noise.std()
    yield "skewed to the bright", 255 - image
    yield "of one level of brightness", 140 + 0.5 * (image - clean)
    yield "stronger where bright", image * np.exp(clean / 120)
    grains = np.log(rng.exponential(size=clean.shape))
    yield "without grain", clean / 2 + 20 * grains
    yield "in a part", np.where(np.arange(240) < 140, image, clean + rng.normal(0, 5, clean.shape))


@pytest.mark.parametrize(("what", "image"), [pytest.param(*each, id=each[0]) for each in others()])
def test_other_noise_is_no_speckle(what, image):
    assert not gd.estimate_noise(image.astype(np.float32)).spectra[0].log_speckle, what
