"""Noise of magnitude images, and speckle."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import nibabel
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError
from napari_gpu_denoise.noise.magnitude import (
    _Quantiles,
    koay_factor,
    piesno,
    rician_noise,
    speckle_noise,
)
from napari_gpu_denoise.noise.patches.variance import LevelNoise
from reference.data import REASON, data_folder, pictures


def magnitude(picture, sigma=10.0, seed=0, coils=1):
    parts = np.random.default_rng(seed).normal(0, sigma, (2 * coils, *np.shape(picture)))
    parts[0] += picture
    return np.sqrt(np.square(parts).sum(axis=0))


def head(ny=192, nx=192):
    """An object of several levels on an empty ground."""
    y, x = np.mgrid[:ny, :nx]
    radius = np.hypot(y - ny / 2, x - nx / 2)
    return np.where(radius < 0.3 * nx, 100 + 60 * np.cos(radius / 7) + 0.2 * x, 0)


@pytest.mark.parametrize("ratio", [0, 0.5, 1, 3, 10])
def test_koay_factor(ratio):
    simulated = magnitude(np.full(400_000, float(ratio)), 1.0).var()
    assert float(koay_factor(ratio)) == pytest.approx(simulated, rel=0.01)


def test_koay_factor_far_up():
    assert float(koay_factor(0)) == pytest.approx(2 - math.pi / 2)
    values = koay_factor(np.array([29.9, 30.1, 1e3, 1e8]))
    assert np.all(np.diff(values) >= 0)
    assert values[-1] == pytest.approx(1)


@pytest.mark.parametrize("sigma", [3, 10, 25])
def test_background(sigma):
    found = rician_noise(magnitude(head(), sigma))
    assert found.sigma == found.background == pytest.approx(sigma, rel=0.02)
    assert found.background_share == pytest.approx(1 - math.pi * 0.09, abs=0.06)


@pytest.mark.parametrize("integers", [np.rint, np.floor])
@pytest.mark.parametrize("sigma", [1.6, 3, 7.6])
def test_background_in_whole_steps(sigma, integers):
    """Quantiles of integers are integers: sigma of 3 would come out as 2.8."""
    found = rician_noise(integers(magnitude(head(), sigma)).astype(np.uint8))
    assert found.background == pytest.approx(sigma, rel=0.02)


def test_a_background_beside_an_object_of_little_signal():
    """Many parts of the object pass for background, which makes that look too strong."""
    y, x = np.mgrid[:256, :256]
    picture = np.where(np.hypot(y - 128, x - 128) < 128, 20.0, 0.0)
    found = [rician_noise(magnitude(picture, seed=seed)).sigma for seed in range(6)]
    assert found == pytest.approx([10] * 6, rel=0.02)


def test_object_without_background():
    y, x = np.mgrid[:192, :192]
    picture = 60 + 0.5 * x + 20 * np.cos(y / 15)
    found = rician_noise(magnitude(picture))
    assert found.background is None
    assert found.sigma == found.object == pytest.approx(10, rel=0.04)


def test_the_levels_known_best_count_most(monkeypatch):
    every = np.full(3, True)
    variance, error = np.array([100.0, 400.0, 400.0]), np.array([0.02, 0.5, 0.5])
    told = LevelNoise(np.full(3, 500.0), variance, error, np.full(3, 1000), every, every)
    monkeypatch.setattr("napari_gpu_denoise.noise.magnitude.level_noise", lambda *_: told)
    y, x = np.indices((96, 96))
    assert rician_noise(magnitude(80.0 + x + y)).object == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize("signal", [12, 30, 300])
def test_a_flat_object_is_no_background(signal):
    """Its sums of squares are as regular as those of pure noise of another sigma."""
    found = rician_noise(magnitude(np.full((192, 192), float(signal))))
    assert found.background is None
    assert found.sigma == pytest.approx(10, rel=0.05)


def test_low_signal_is_corrected():
    """Twice sigma: the deviation of the magnitude is well below sigma."""
    image = magnitude(np.full((192, 192), 20.0))
    assert image.std() < 9.3
    assert rician_noise(image).object == pytest.approx(10, rel=0.04)


@pytest.mark.parametrize("fill", [0, -5])
def test_filled_background_is_left_out(fill):
    picture = head()
    image = np.where(picture > 0, magnitude(picture), fill)
    found = rician_noise(image)
    assert found.background is None
    assert found.sigma == pytest.approx(10, rel=0.1)


def test_the_share_is_of_what_is_not_filled():
    image = magnitude(head())
    whole = rician_noise(image)
    image[:, :96] = 0
    found = rician_noise(image)
    assert found.background == pytest.approx(10, rel=0.02)
    assert found.background_share == pytest.approx(whole.background_share, abs=0.05)


@pytest.mark.parametrize("background", [True, False])
def test_standard_error_predicts_the_spread(background):
    y, x = np.indices((96, 96))
    picture = head(96, 96) if background else 80 + 0.5 * x + 40 * np.cos(y / 20)
    found = [rician_noise(magnitude(picture, seed=seed)) for seed in range(30)]
    assert all((each.background is None) != background for each in found)
    spread = np.std([each.sigma for each in found], ddof=1)
    predicted = np.sqrt(np.mean([each.error**2 for each in found]))
    assert 0.5 < predicted / spread < 2


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (40, 40), (3, 40, 40)])
def test_constant_image_has_no_noise(shape):
    found = rician_noise(np.full(shape, 7.0))
    assert (found.sigma, found.error) == (0, 0)
    assert rician_noise(np.zeros(shape)).sigma == 0


def test_nonfinite_pixels_are_left_out():
    image = magnitude(head())
    image[::15, ::15] = np.nan
    assert rician_noise(image).sigma == pytest.approx(10, rel=0.03)
    with pytest.raises(NonFiniteError):
        rician_noise(np.full((20, 20), np.nan))


@pytest.mark.parametrize("coils", [1, 4, 8, 32])
def test_piesno(coils):
    picture = np.zeros((96, 96))
    picture[30:60, 20:70] = 200
    stack = np.stack([magnitude(picture, 10, seed, coils) for seed in range(12)])
    found, number = piesno(stack)
    assert number == coils and piesno(stack, [coils])[0] == found
    assert found.sigma == pytest.approx(10, rel=0.01)
    assert abs(found.sigma - 10) < 5 * found.error
    assert found.share == pytest.approx(1 - 1500 / 96**2, abs=0.03)
    # The number of coils matters.
    assert piesno(stack, [coils + coils])[0].sigma != pytest.approx(10, rel=0.1)


def test_piesno_without_background():
    stack = np.stack([magnitude(np.full((96, 96), 300.0), seed=seed) for seed in range(12)])
    assert piesno(stack)[0].sigma == 0
    assert piesno(np.full((5, 20, 20), 3.0))[0].sigma == 0
    assert piesno(np.zeros((5, 20, 20), np.uint8))[0].sigma == 0
    assert piesno(np.full((5, 20, 20), np.nan))[0].sigma == 0


def test_refusals():
    with pytest.raises(ImageError, match="repeat"):
        piesno(np.ones((20, 20)))
    with pytest.raises(ImageError, match="repeat"):
        piesno(np.ones((1, 20, 20)))


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_piesno_of_measured_data():
    data = np.asarray(nibabel.load(data_folder() / "mri/test_piesno.nii.gz").dataobj)
    found, coils = piesno(np.moveaxis(data, -1, 0))
    assert coils == 8
    assert found.sigma == pytest.approx(0.010749458, rel=0.01)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize("percent", [3, 5, 9])
def test_heads(percent):
    sigma = 255 * percent / 100
    for i, picture in enumerate(pictures("colin27").values()):
        assert rician_noise(magnitude(picture, sigma, i)).sigma == pytest.approx(sigma, rel=0.05)


@pytest.mark.parametrize("groups", [1, 30, 3000, 40_000])
def test_quantiles_of_groups_in_a_row(groups):
    rng = np.random.default_rng(groups)
    values = np.rint(rng.gamma(2, 20, (groups, 5)))  # many are equal
    quantiles = _Quantiles(values)
    spans = [(0, groups), (0, 1), (groups - 1, groups), (groups // 3, max(groups - 1, 1))]
    for share in (0.0, 0.31, 0.797, 1.0):
        expected = [np.quantile(values[first:last], share) for first, last in spans]
        np.testing.assert_allclose(quantiles.of(*np.array(spans).T, share), expected, 1e-12)


def speckled(picture, looks, seed=0):
    return picture * np.random.default_rng(seed).gamma(looks, 1 / looks, np.shape(picture))


def fields(ny=256, nx=256):
    """Fields of several levels and slopes, texture in a third of the picture."""
    y, x = np.mgrid[:ny, :nx]
    picture = 50 + 40 * (x // 64) + 0.2 * y
    return np.where(y > 2 * ny // 3, picture * (1 + 0.7 * np.sin(1.9 * x) * np.sin(y)), picture)


@pytest.mark.parametrize("looks", [1, 4, 16, 100])
def test_known_looks(looks):
    flat = speckle_noise(speckled(np.full((256, 256), 80.0), looks))
    assert flat.looks == pytest.approx(looks, rel=0.05)
    assert flat.contrast == pytest.approx(flat.looks**-0.5)
    image = speckled(fields(), looks)
    assert speckle_noise(image).looks == pytest.approx(looks, rel=0.15)


def test_texture_would_tell_otherwise():
    """The mean over all windows is what the mode is there to avoid."""
    image = speckled(fields(), 16)
    windows = image.reshape(32, 8, 32, 8)
    ratio = windows.var(axis=(1, 3)) / np.square(windows.mean(axis=(1, 3)))
    assert 1 / ratio.mean() < 0.75 * 16


@pytest.mark.parametrize("looks", [1, 16])
def test_standard_error_predicts_the_spread_of_looks(looks):
    found = [speckle_noise(speckled(fields(), looks, seed)) for seed in range(25)]
    spread = np.std([each.looks for each in found], ddof=1)
    predicted = np.sqrt(np.mean([each.error**2 for each in found]))
    assert 0.4 < predicted / spread < 2.5


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (2, 2), (40, 40)])
@pytest.mark.parametrize("value", [0, 7.3, -2])
def test_constant_image_has_no_speckle(shape, value):
    found = speckle_noise(np.full(shape, value))
    assert (found.looks, found.error, found.contrast) == (math.inf, 0, 0)


@pytest.mark.parametrize("shape", [(1, 9), (3, 3), (9, 9), (2, 100)])
def test_small_images_give_a_number(shape):
    found = speckle_noise(speckled(np.full(shape, 50.0), 4))
    assert found.looks > 0
    assert math.isfinite(found.error)


def test_clipped_and_nonfinite_pixels_are_left_out():
    image = speckled(fields(), 4)
    image[:, :90] = image[:, :90].clip(None, 60)
    image[::40, ::40] = np.nan
    assert speckle_noise(image).looks == pytest.approx(4, rel=0.2)
    with pytest.raises(NonFiniteError):
        speckle_noise(np.full((20, 20), np.nan))


def test_the_level_does_not_matter():
    image = speckled(fields(), 4)
    assert speckle_noise(1000 * image).looks == pytest.approx(speckle_noise(image).looks, rel=1e-6)


def test_record_and_refusal():
    found = speckle_noise(speckled(fields(), 4))
    assert json.loads(json.dumps(asdict(found)))["looks"] == found.looks
    with pytest.raises(AxesError):
        speckle_noise(np.zeros(5))


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize("looks", [1, 4, 16])
def test_photographs(looks):
    error = [
        speckle_noise(speckled(picture.astype(float), looks, i)).looks / looks - 1
        for i, picture in enumerate(pictures("denoiselab13").values())
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
