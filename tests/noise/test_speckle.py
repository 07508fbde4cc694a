"""Speckle of intensities, and on a logarithmic scale as ultrasound and OCT are displayed."""

import math

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.patches.selection import Plane
from napari_gpu_denoise.noise.speckle import speckle_looks
from reference.data import REASON, data_folder, pictures

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
    assert "speckle on a logarithmic scale" in gd.recommend(cine, "TYX", noise=found).noise


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


# Intensities


def multiplied(picture, looks, seed=0):
    return picture * np.random.default_rng(seed).gamma(looks, 1 / looks, np.shape(picture))


def fields():
    """Fields of several levels and slopes, texture in a third of the picture."""
    y, x = np.mgrid[:256, :256]
    picture = 50 + 40 * (x // 64) + 0.2 * y
    return np.where(y > 170, picture * (1 + 0.7 * np.sin(1.9 * x) * np.sin(y)), picture)


def looks_of(image):
    return speckle_looks(Plane.of_image([image]))[0]


@pytest.mark.parametrize("looks", [1, 4, 16, 100])
def test_known_looks(looks):
    flat = multiplied(np.full((256, 256), 80.0), looks)
    assert looks_of(flat) == pytest.approx(looks, rel=0.05)
    image = multiplied(fields(), looks)
    assert looks_of(image) == pytest.approx(looks, rel=0.15)
    assert looks_of(1000 * image) == pytest.approx(looks_of(image), rel=1e-6)
    image[:, :90] = image[:, :90].clip(None, 60)
    image[::40, ::40] = np.nan
    assert looks_of(image) == pytest.approx(looks, rel=0.2)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (3, 3), (40, 40)])
@pytest.mark.parametrize("value", [0, 7.3, -2])
def test_constant_and_small_images(shape, value):
    assert speckle_looks(Plane.of_image([np.full(shape, value)])) == (math.inf, 0)
    looks, error = speckle_looks(Plane.of_image([multiplied(np.full(shape, 50.0), 4)]))
    assert looks > 0 and math.isfinite(error)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize("looks", [1, 4, 16])
def test_photographs(looks):
    error = [
        looks_of(multiplied(picture.astype(float), looks, i)) / looks - 1
        for i, picture in enumerate([*pictures("denoiselab13").values()][::2])
    ]
    assert np.abs(error).mean() <= 0.15
    assert np.median(np.abs(error)) <= 0.10


def test_the_curve_has_the_variance_of_whole_pixels():
    """High frequencies hold little of the noise of speckle with a grain of several pixels."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:200, :220]
    clean = 20 + 200 * np.sin(x / 40) ** 2 * np.cos(y / 60) ** 2
    parts = [gaussian_filter(rng.standard_normal(clean.shape), 1, mode="wrap") for _ in range(2)]
    speckle = sum(np.square(part / part.std()) for part in parts) / 2
    estimate = gd.estimate_noise(clean * speckle, model="speckle")
    (curve,), (model,) = estimate.curves, estimate.models
    used = np.array(curve.used)
    ratio = np.array(curve.variance)[used] / model.variance(np.array(curve.mean)[used])
    assert 0.3 < np.median(ratio) < 1.5
