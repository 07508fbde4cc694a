"""Noise models: numbers, stabilisation, measurement, and one that is added."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import BSpline
from scipy.ndimage import gaussian_filter, uniform_filter
from scipy.optimize import least_squares
from scipy.stats import gamma, norm, poisson, rice

import napari_gpu_denoise as gd
from napari_gpu_denoise import (
    Gaussian,
    NoiseModel,
    PoissonGaussian,
    Rician,
    SignalDependent,
    Speckle,
    bm3d,
    nl_means,
)
from napari_gpu_denoise.cli.arguments import build_parser
from napari_gpu_denoise.errors import ImageError, SettingsError
from napari_gpu_denoise.noise import models
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import (
    Correlated,
    CorrelatedPhotons,
    poisson_gaussian,
    rician,
)
from scenes import scene

SIGMAS = SignalDependent((20.0, 60.0, 100.0, 150.0, 190.0), (2.2, 3.0, 9.0, 6.0, 7.4))
WHITE = np.pad([[1.0]], ((0, 4), (0, 4)))
TABLE = np.exp(-np.add.outer(np.arange(5) ** 2, 3 * np.arange(5) ** 2) / 5)
ALL = [Gaussian(3.0), PoissonGaussian(0.28, 3.1, 14.7), Rician(6.5), Speckle(4.0), SIGMAS]
each_model = pytest.mark.parametrize("model", ALL, ids=lambda model: model.name)

MEANS = [0, 0.01, 0.1, 0.3, 0.5, 1, 2, 3, 5, 7, 10, 20, 50, 100, 200, 300, 500, 1000]
SIGNALS = [0, 0.05, 0.2, 0.5, 0.8, 1, 1.5, 2, 3, 4, 5.5, 6, 7, 10, 20, 39.9, 40.1, 50]

# Noise as values and their probabilities: what the models are checked against knows none of their
# tables, and sums the probabilities of SciPy instead of integrating.


def photons(model, mean):
    """Return grey levels and their probabilities; `mean` is counted from the offset."""
    expected = mean / model.gain
    spread = 9 * np.sqrt(expected)
    counts = np.arange(max(0, int(expected - spread) - 10), int(expected + spread) + 30)
    chances = poisson.pmf(counts, expected)
    if model.read_noise == 0:
        return model.offset + model.gain * counts, chances
    normal = np.linspace(-8, 8, 801)
    weights = norm.pdf(normal) / norm.pdf(normal).sum()
    levels = model.offset + model.gain * counts[:, None] + model.read_noise * normal
    return levels, chances[:, None] * weights


def magnitudes(model, signal):
    """Return grey levels and their probabilities; `signal` is in units of sigma."""
    edges = np.linspace(max(0, signal - 8.5), signal + 8.5, 8001)
    # Differences of the distribution function are exact however narrow it is.
    chances = np.diff(rice.cdf(edges, signal))
    return model.sigma * (edges[1:] + edges[:-1]) / 2, chances / chances.sum()


def moments(values, chances):
    mean = (chances * values).sum()
    return mean, np.sqrt((chances * (values - mean) ** 2).sum())


def stabilised(model, noise):
    levels, chances = noise
    return moments(model.stabilise(levels).astype(float), chances)


@pytest.mark.parametrize("read", [0, 0.1, 0.5, 1, 3, 10, 50])
@pytest.mark.parametrize("gain", [0.05, 0.28, 1, 3.5, 20])
def test_photons_come_back_unbiased(gain, read):
    model = PoissonGaussian(gain, read, 14.7)
    for mean in MEANS:
        expected, _ = stabilised(model, photons(model, mean))
        error = model.inverse(expected) - 14.7 - mean
        assert abs(error) <= 5e-4 * np.sqrt(gain * mean + read**2) + 2e-6, mean


def test_the_algebraic_inverse_is_biased():
    """The test above means something: the inverse one would write down at first fails it."""
    model = PoissonGaussian(1, 0)
    expected, deviation = stabilised(model, photons(model, 5))
    assert 5 - (expected**2 / 4 - 0.375) > 0.1 * np.sqrt(5)
    assert deviation == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("gain", "read"), [(0.28, 0), (2, 1), (1, 20)])
def test_drawn_photons_come_back_unbiased(gain, read):
    rng = np.random.default_rng(7)
    model = PoissonGaussian(gain, read, 100)
    for mean in (0.5, 4, 60, 900):
        image = 100 + gain * rng.poisson(mean / gain, 400_000) + read * rng.normal(size=400_000)
        found = model.inverse(model.stabilise(image).mean(dtype=float))
        assert abs(found - 100 - mean) < 0.01 * np.sqrt(gain * mean + read**2), mean


@pytest.mark.parametrize("read", [0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 8, 40])
def test_deviation_of_stabilised_photons(read):
    model = PoissonGaussian(2, 2 * read)
    for electrons in (0, 0.5, 1, 2, 4, 6, 10, 30, 100):
        _, deviation = stabilised(model, photons(model, 2 * electrons))
        assert deviation < 1.1
        if electrons >= 6 or read >= 4:
            assert deviation == pytest.approx(1, abs=0.0205), electrons
        elif electrons >= 2:
            assert deviation == pytest.approx(1, abs=0.06), electrons


@pytest.mark.parametrize("read", [0, 0.3, 1, 30])
def test_no_light_gives_no_negative_counts(read):
    model = PoissonGaussian(1.5, read, 10)
    image = 10 + read * np.random.default_rng(0).normal(size=(200, 200))
    image[:9] = -1e6
    back = model.inverse(model.stabilise(image))
    assert np.isfinite(back).all()
    assert back.min() == 10
    assert (model.inverse(np.float32([-50, -1, 0])) == 10).all()
    assert model.stabilise(np.float32([-1e6])) == 0
    nothing = model.inverse(model.stabilise(np.full(5, 10, np.uint8)))
    if read == 0:
        assert nothing == pytest.approx(10, abs=1e-6)


@pytest.mark.parametrize("read", [0, 0.3, 0.5, 1, 3, 7, 19.9, 20.1, 1e3, 1e4, 1e5])
def test_the_way_back_is_smooth(read):
    """Where the table ends and the expansion takes over there is no step, and it always grows."""
    least = poisson_gaussian.expected_anscombe(np.zeros(1), read)[0]
    given = np.linspace(least, least + 100, 200_001)
    electrons = poisson_gaussian.unbiased_electrons(given, read)
    slope = np.diff(electrons) / np.diff(given)
    assert (slope > 0).all()
    # The slope is half the stabilised value, or near the start a little more.
    assert (np.abs(slope - given[1:] / 2) < 0.4 + 0.01 * given[1:]).all()
    assert 0 <= electrons[0] < 1e-5 * max(read, 1)
    # What the table adds has died out where it ends: the expansion is right on its own.
    assert abs(poisson_gaussian.correction(read).value[-1]) < 1e-5 * max(read, 1)


def test_parameters_only_scale():
    """Grey levels of another unit and origin give the same stabilised image."""
    one, other = PoissonGaussian(1, 2), PoissonGaussian(0.25, 0.5, 1000)
    image = np.random.default_rng(0).poisson(9.0, (50, 50)).astype(float)
    first, second = one.stabilise(image), other.stabilise(1000 + image / 4)
    assert first == pytest.approx(second, abs=1e-6)
    assert one.inverse(first) == pytest.approx(4 * (other.inverse(first) - 1000), abs=1e-3)
    wide = 30 * np.random.default_rng(0).random((50, 50))
    assert Rician(3.0).stabilise(3 * wide) == pytest.approx(Rician(1.0).stabilise(wide), rel=1e-6)


def test_read_noise_alone_is_gaussian():
    """With hardly any gain the stabilised image is the image over the read noise, up to a shift."""
    model = PoissonGaussian(1e-3, 5)
    image = np.linspace(0, 40, 50)
    assert np.diff(model.stabilise(image)) == pytest.approx(np.diff(image) / 5, rel=5e-3)


@pytest.mark.parametrize("sigma", [0.02, 6.65])
def test_signals_come_back_unbiased(sigma):
    model = Rician(sigma)
    for signal in SIGNALS:
        expected, deviation = stabilised(model, magnitudes(model, signal))
        assert abs(model.inverse(expected) / sigma - signal) < 2e-3 * deviation, signal


def test_deviation_of_stabilised_magnitudes():
    model = Rician(4.0)
    for signal in SIGNALS:
        _, deviation = stabilised(model, magnitudes(model, signal))
        if signal >= 1.25:
            assert deviation == pytest.approx(1, abs=0.02), signal
        else:
            assert 0.87 < deviation < 1, signal
    for signal, wanted in ((0, 0.874), (0.5, 0.903), (1, 0.959)):
        assert stabilised(model, magnitudes(model, signal))[1] == pytest.approx(wanted, abs=0.002)


def test_faint_magnitudes_are_symmetric():
    """Filters are drawn to where values are densest: the Rayleigh law has a skewness of 0.63."""
    model = Rician(1.0)
    for signal, most in ((0, 0.02), (0.5, 0.03), (1, 0.03), (1.5, 0.1), (2, 0.15)):
        levels, chances = magnitudes(model, signal)
        values = model.stabilise(levels).astype(float)
        mean, deviation = moments(values, chances)
        assert abs((chances * (values - mean) ** 3).sum()) / deviation**3 < most, signal


def test_faint_magnitudes_keep_what_tells_them_from_noise():
    """The mean grows by at most half a deviation for a squared signal of 1: that of m² does."""
    model = Rician(1.0)
    none, deviation = stabilised(model, magnitudes(model, 0))
    faint, _ = stabilised(model, magnitudes(model, 0.2))
    assert (faint - none) / (deviation * 0.2**2 / 2) == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("denoised", [bm3d, nl_means], ids=["bm3d", "nl_means"])
def test_filtered_background_is_unbiased(denoised):
    """Noise alone, evenly drawn from its law, so that its own mean is exact."""
    count = 512 * 512
    share = np.random.default_rng(0).permutation((np.arange(count) + 0.5) / count)
    model = Rician(5.0)
    given = model.stabilise(5 * np.sqrt(-2 * np.log(share)).reshape(512, 512))
    filtered = denoised(given, sigma=1.0)
    assert filtered.std() < 0.1
    assert abs(filtered.mean(dtype=float) - given.mean(dtype=float)) < 0.003
    assert abs(model.inverse(filtered).mean(dtype=float)) / 5 < 0.02


def test_the_curve_of_magnitudes_grows_smoothly():
    at = np.linspace(0, 12, 40_001)
    slope = np.diff(rician.stabilised_magnitude(at)) / np.diff(at)
    assert slope.min() > 0.93
    assert slope.max() < 3.2
    assert np.abs(np.diff(slope)).max() < 0.03, "no step where the asymptote takes over"
    below, zero = rician.stabilised_magnitude(np.array([-3.0, 0.0]))
    assert below == zero


def test_the_curve_of_magnitudes_is_the_one_fitted():
    signal = np.arange(0, 8, 0.05)
    magnitude, chances = rician.rice(signal)
    end, free = rician.SPLINE_END, len(rician.SPLINE)
    knots = np.concatenate([[0.0] * 3, np.linspace(0, end, free + 1), [end] * 3])
    splines = BSpline(knots, np.eye(free + 3)[:, :free], 3, extrapolate=False)(magnitude)
    splines = np.nan_to_num(splines)
    start = rician.smooth_root(magnitude)
    weight, faint = np.where(signal >= 1, 1, 0.1), signal < 2

    def residuals(coefficients):
        values = start + splines @ coefficients
        offset = values - (chances * values).sum(axis=1)[:, None]
        variance = (chances * offset**2).sum(axis=1)
        skewness = (chances * offset**3).sum(axis=1) / variance**1.5
        return np.concatenate(
            [
                weight * (np.sqrt(variance) - 1),
                0.2 * skewness[faint],
                0.02 * np.diff(coefficients, 2),
            ]
        )

    found = least_squares(residuals, np.zeros(free)).x
    assert found == pytest.approx(rician.SPLINE, abs=1e-3)


def test_background_of_magnitudes():
    """A linear filter leaves errors of both signs; only with their signs do they cancel."""
    rng = np.random.default_rng(0)
    model = Rician(5.0)
    image = 5 * np.hypot(*rng.normal(size=(2, 1000, 1000)))
    filtered = uniform_filter(model.stabilise(image), 15)
    plain, signed = model.inverse(filtered, signed=False), model.inverse(filtered)
    assert plain.min() == 0
    assert plain.mean() / 5 > 0.1
    assert abs(signed.mean()) / 5 < 0.02
    assert (plain == np.maximum(signed, 0)).all()
    assert uniform_filter(image, 15).mean() / 5 == pytest.approx(1.253, abs=0.005)


@pytest.mark.parametrize("looks", [0.5, 1, 2.7, 4, 50])
def test_speckle_comes_back_unbiased(looks):
    model = Speckle(looks)
    edges = np.linspace(0, 1, 200_001)
    factors = gamma.ppf((edges[1:] + edges[:-1]) / 2, looks, scale=1 / looks)
    for mean in (1e-3, 1, 1000):
        expected, deviation = moments(model.stabilise(mean * factors).astype(float), 1 / 200_000)
        assert model.inverse(expected) == pytest.approx(mean, rel=1e-3 / np.sqrt(looks))
        assert deviation == pytest.approx(model.sigma_after, rel=2e-3)
    assert np.exp(expected) != pytest.approx(mean, rel=0.009)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
def test_zeros_of_speckle(dtype):
    image = np.full((20, 20), 100, dtype)
    image[:5] = 0
    if np.dtype(dtype).kind != "u":
        image[0] = -7
    image[9] = 2
    log = Speckle(4.0).stabilise(image)
    assert np.isfinite(log).all()
    assert log[9, 0] == pytest.approx(np.log(2))
    assert log.min() == log[0, 0] == log[4, 0] <= log[9, 0]
    back = Speckle(4.0).inverse(log)
    assert back.min() > 0
    if np.dtype(dtype).kind in "iu":
        assert np.rint(back[0, 0]) == 0
    empty = Speckle(1.0).inverse(Speckle(1.0).stabilise(np.zeros((3, 3), dtype)))
    assert (np.abs(empty) < 0.5).all()


@pytest.mark.parametrize(
    "model", [Gaussian(3), Correlated(3.0, TABLE)], ids=["white", "correlated"]
)
def test_there_is_nothing_to_stabilise(model):
    image = np.random.default_rng(0).normal(50, 3, (20, 20)).astype(np.float32)
    assert model.sigma_after == model.sigma == 3
    assert (model.stabilise(image) == image).all()
    assert (model.inverse(image) == image).all()
    assert not np.shares_memory(model.stabilise(image), image)
    assert model.inverse(np.arange(12, dtype=np.uint8)).dtype == np.float32
    np.testing.assert_array_equal(model.variance([1.0, 200.0]), [9.0, 9.0])
    assert Gaussian(0).sigma_after == 0


def test_variances():
    means = np.array([0.0, 14.7, 114.7])
    assert Gaussian(3).variance(means) == pytest.approx([9, 9, 9])
    assert ALL[1].variance(means) == pytest.approx([9.61, 9.61, 37.61])
    assert Speckle(4).variance(means) == pytest.approx(means**2 / 4)
    for signal in (0, 0.7, 3, 12, 60):
        mean, deviation = moments(*magnitudes(Rician(2.0), signal))
        assert Rician(2.0).variance(mean) == pytest.approx(deviation**2, rel=1e-3)
    assert Rician(2.0).variance(0) == pytest.approx(4 * (2 - np.pi / 2), rel=1e-5)
    for model in ALL:
        assert model.variance(means).dtype == np.float64
        assert np.shape(model.variance(20.0)) == ()
        assert model.variance(np.full((2, 3), 20)).shape == (2, 3)


def test_pixels_tell_their_variance_without_bias():
    counts = np.arange(200)
    for mean in (0.5, 3, 40):
        # Read noise changes nothing in the mean of what is linear.
        found = PoissonGaussian(2.0, 3.0, 100).variance_told_by(100 + 2 * counts)
        assert found @ poisson(mean).pmf(counts) == pytest.approx(4 * mean + 9, rel=1e-6)
        values = gamma(4, scale=mean / 4).ppf((np.arange(20000) + 0.5) / 20000)
        assert Speckle(4).variance_told_by(values).mean() == pytest.approx(mean**2 / 4, rel=2e-3)
    for each in (0, 0.3, 1, 2, 4, 20):
        values, shares = magnitudes(Rician(3.0), each)
        found = Rician(3.0).variance_told_by(values) @ shares
        assert found == pytest.approx(9 * rice(each).var(), abs=9 * 0.003)
    assert (Gaussian(2.0).variance_told_by(values) == 4).all()


@each_model
@pytest.mark.parametrize("dtype", ["u1", ">u2", "i4", "u8", "f2", ">f4", "f8"])
def test_arrays_of_any_kind(model, dtype):
    whole = np.random.default_rng(0).integers(1, 255, (3, 40, 50))
    image = whole.astype(dtype)[:, ::2, ::-1]
    image.flags.writeable = False
    before = image.tobytes()
    shown = model.stabilise(image)
    assert (shown == model.stabilise(whole.astype(float))[:, ::2, ::-1]).all()
    kept = shown.copy()
    for result in (shown, model.inverse(shown)):
        assert result.dtype == np.float32
        assert result.dtype.isnative
        assert result.shape == image.shape
    assert (shown == kept).all()
    assert image.tobytes() == before


@each_model
def test_large_images_are_cut_without_a_trace(model):
    image = np.random.default_rng(0).uniform(1, 300, (700, 1100))
    large = model.stabilise(image)
    assert (large[331] == model.stabilise(image[331])).all()
    assert (model.inverse(large)[331] == model.inverse(large[331])).all()


@each_model
def test_nonfinite_pixels_stay_where_they_are(model):
    image = np.full((6, 7), 30.0)
    image[2, 3] = np.nan
    image[4, 4] = np.inf
    back = model.inverse(model.stabilise(image))
    assert np.isnan(back[2, 3])
    assert back[4, 4] == np.inf
    assert np.isfinite(back).sum() == 40


@each_model
@pytest.mark.parametrize("image", [np.zeros((0, 3)), np.zeros((2, 2), bool), np.zeros(2, complex)])
def test_arrays_that_are_no_images(model, image):
    with pytest.raises(ImageError):
        model.stabilise(image)
    with pytest.raises(ImageError):
        model.inverse(image)


@pytest.mark.parametrize(
    "model",
    [
        *ALL,
        Speckle(4.0, least=0.3),
        Correlated(np.float32(4.5), TABLE),
        CorrelatedPhotons(2.0, 3.0, 1.0, autocorrelation=TABLE, shared=0.5),
    ],
    ids=repr,
)
def test_models_as_dictionaries(model):
    values = json.loads(json.dumps(model.as_dict(), allow_nan=False))
    assert values["model"] == model.name
    assert NoiseModel.from_dict(values) == type(model).from_dict(values) == model
    assert hash(NoiseModel.from_dict(values)) == hash(model)
    assert "\n" not in model.summary()
    for value in list(values.values())[1:]:
        assert isinstance(value, list) or value == 0 or f"{value:g}" in model.summary()
    if "autocorrelation" in values:
        assert model.autocorrelation == tuple(map(tuple, TABLE.tolist()))
        assert "0.55 along x" in model.summary()


def test_dictionaries_that_fit_no_model():
    with pytest.raises(SettingsError, match="gaussian or correlated or poisson-gaussian or corr"):
        NoiseModel.from_dict({"model": "salt", "sigma": 3})
    with pytest.raises(SettingsError, match="give rician"):
        Rician.from_dict({"model": "gaussian", "sigma": 3})
    with pytest.raises(SettingsError, match="give gain, read_noise, offset"):
        NoiseModel.from_dict({"model": "poisson-gaussian", "sigma": 3})
    with pytest.raises(SettingsError, match="was given no parameters: give sigma"):
        NoiseModel.from_dict({"model": "rician"})


@pytest.mark.parametrize(
    ("model", "values", "said"),
    [
        (Gaussian, (-1,), "sigma=-1"),
        (Gaussian, (np.inf,), "sigma=inf"),
        (PoissonGaussian, (0, 1), "gain=0"),
        (PoissonGaussian, (1, -1), "read_noise=-1"),
        (PoissonGaussian, (1, 1, np.nan), "offset=nan"),
        (PoissonGaussian, (1e-9, 1), r"Gaussian\(sigma=1\)"),
        (Rician, (0,), "above 0"),
        (Speckle, (1e-3,), "at least 0.1"),
        (Speckle, ("many",), "looks='many'"),
        (Speckle, (None,), "looks=None"),
        (Correlated, (-1.0, TABLE), "give "),
        (Correlated, (np.nan, TABLE), "give "),
        (Correlated, (2.0, TABLE, 1.5), "give a number from -1 to 1"),
        (partial(CorrelatedPhotons, autocorrelation=[[1.0]]), (2, 3), "not valid: give 5 x 5"),
        *(
            (Correlated, (1.0, table), "give ")
            for table in (
                *(TABLE[:4, :4], 0.5 * TABLE, WHITE + np.eye(5)[::-1] * 1.5, TABLE * np.nan),
                *([[1.0, 0.5], [0.5]], "white", 1.0),
            )
        ),
    ],
)
def test_parameters_out_of_bounds(model, values, said):
    with pytest.raises(SettingsError, match=said):
        model(*values)


def test_parameters_are_plain_numbers():
    model = PoissonGaussian(np.float32(0.5), np.int64(3))
    assert type(model.gain) is type(model.read_noise) is float
    assert model == PoissonGaussian(0.5, 3.0)
    with pytest.raises(AttributeError):
        model.gain = 3


def test_white_is_where_neighbours_tell_nothing():
    assert Correlated(3.0, WHITE).white
    for place in ((0, 1), (3, 0), (2, 4)):
        table = WHITE.copy()
        table[place] = 0.1
        assert not Correlated(3.0, table).white


def test_a_picture_tells_the_model():
    clean = scene(384, 384)
    noise = gaussian_filter(np.random.default_rng(0).normal(size=clean.shape), (0.7, 1.2))
    noise *= 12 / noise.std()
    model = Correlated.of_spectrum(noise_spectrum(clean + noise))
    assert model.sigma == pytest.approx(12, rel=0.1)
    lag = np.arange(5)
    expected = np.exp(-np.add.outer(lag**2 / 0.7**2, lag**2 / 1.2**2) / 4)
    np.testing.assert_allclose(model.autocorrelation, expected, atol=0.1)


def test_slopes_raise_its_sigma_less_than_that_of_the_spectrum():
    y, x = np.mgrid[:256, :256]
    noise = gaussian_filter(np.random.default_rng(1).normal(size=x.shape), 1.0)
    spectrum = noise_spectrum(5 * noise / noise.std() + 120 * np.sin(x / 20) * np.cos(y / 30))
    assert spectrum.sigma > 1.3 * Correlated.of_spectrum(spectrum).sigma
    assert Correlated.of_spectrum(spectrum).sigma == pytest.approx(5, rel=0.25)


def test_a_constant_picture_has_none():
    model = Correlated.of_spectrum(noise_spectrum(np.full((64, 64), 7.0)))
    assert model.sigma == 0
    assert model.white


def blurred(shape: tuple[int, int], width: float, seed: int = 0) -> np.ndarray:
    noise = gaussian_filter(np.random.default_rng(seed).normal(size=shape), width, mode="wrap")
    return noise / noise.std()


def smooth(side: int = 384) -> np.ndarray:
    y, x = np.mgrid[:side, :side] / side
    return 30 + 220 * x * (0.6 + 0.4 * np.cos(2 * y))


def test_correlated_photons_are_correlated_when_stabilised():
    model = CorrelatedPhotons(2.0, 3.0, 1.0, autocorrelation=TABLE, shared=0.5)
    assert model.spectral == Correlated(1.0, TABLE, 0.5)
    np.testing.assert_array_equal(model.variance([1.0, 101.0]), [9.0, 209.0])


@pytest.mark.parametrize(("gain", "read"), [(2.0, 3.0), (0.5, 10.0)])
def test_gain_and_correlation_are_found(gain, read):
    clean = smooth()
    noise = np.sqrt(gain * clean + read**2) * blurred(clean.shape, 0.9)
    found = gd.estimate_noise((clean + noise).astype(np.float32), model="correlated-photons")
    model = found.models[0]
    means = np.array([60.0, 120.0, 200.0])
    np.testing.assert_allclose(
        np.sqrt(model.variance(means)), np.sqrt(gain * means + read**2), rtol=0.1
    )
    assert found.sigma[0] == pytest.approx(noise.std(), rel=0.1)
    expected = np.exp(-(np.arange(3) ** 2) / (4 * 0.9**2))
    np.testing.assert_allclose(model.autocorrelation[0][:3], expected, atol=0.08)


def test_it_is_recognised():
    clean = smooth()
    noise = np.sqrt(3 * clean) * blurred(clean.shape, 0.8)
    found = gd.estimate_noise((clean + noise).astype(np.float32))
    assert found.name == "correlated-photons"
    assert "correlated" in found.reason
    assert "noise is correlated" in found.verdict()


def test_frames_show_how_it_changes():
    clean = smooth(192)
    stack = np.array([clean + k * blurred(clean.shape, 0.9, k) for k in (8, 8, 8, 16, 16, 16)])
    found = gd.estimate_noise(stack.astype(np.float32), "TYX", "correlated")
    first, last = np.reshape(found.frames.sigma, (2, 3)).mean(axis=1)
    assert last / first == pytest.approx(2, rel=0.1)


def test_correlated_noise_may_be_asked_for():
    image = (smooth() + 9 * blurred((384, 384), 0.9)).astype(np.float32)
    found = gd.estimate_noise(image, model="correlated")
    assert found.name == "correlated"
    assert found.sigma[0] == pytest.approx(9, rel=0.1)
    white = smooth() + np.random.default_rng(0).normal(size=(384, 384)) * 9
    found = gd.estimate_noise(white.astype(np.float32), model="correlated").models[0]
    assert found.sigma == pytest.approx(9, rel=0.1)
    assert abs(found.autocorrelation[0][1]) < 0.1


def test_a_few_places_without_noise_do_not_speak_for_the_image():
    """As the shadows of a JPEG file, where compression removes the noise."""
    clean = smooth()
    noise = 6 * blurred(clean.shape, 1.0)
    noise[:, :14] *= 0.1
    found = noise_spectrum(clean + noise)
    assert not found.white
    assert Correlated.of_spectrum(found).sigma == pytest.approx(6, rel=0.15)
    assert found.autocorrelation[0][1] == pytest.approx(np.exp(-1 / 4), abs=0.08)


def test_colours_that_share_noise():
    clean = np.stack([smooth(), 0.8 * smooth(), 0.6 * smooth()], axis=-1)
    own = np.stack([blurred((384, 384), 0.8, k) for k in range(3)], axis=-1)
    for share in (0.0, 0.6):
        common = blurred((384, 384), 0.8, 9)[..., None]
        noise = 8 * (np.sqrt(share) * common + np.sqrt(1 - share) * own)
        found = gd.estimate_noise((clean + noise).astype(np.float32), "YXS")
        assert [model.shared for model in found.models] == pytest.approx([share] * 3, abs=0.06)


@pytest.mark.parametrize("gain", [0.0, 0.5])
def test_colours_that_share_white_noise(gain):
    """Nothing is said of noise that may be independent; few photons are stabilised first."""
    clean = np.stack([smooth(), 0.8 * smooth(), 0.6 * smooth()], axis=-1)
    random = np.random.default_rng(3)
    own, common = (random.normal(size=(384, 384, count)) for count in (3, 1))
    for mixed, wanted in (
        (own, (0, 0, 0)),
        (np.sqrt(0.6) * common + np.sqrt(0.4) * own, (0.6, 0.6, 0.6)),
        # The second is half of the noise of the others, with another sign.
        (own - 0.5 * own.sum(axis=-1, keepdims=True) * [0, 1, 0], None),
    ):
        unit = mixed / mixed.std(axis=(0, 1))
        noisy = clean + np.sqrt(gain * clean + 64) * unit
        found = gd.estimate_noise(noisy.astype(np.float32), "YXS")
        assert found.name == ("poisson-gaussian" if gain else "gaussian")
        shared = [model.shared for model in found.models]
        if wanted is None:
            wanted = (np.corrcoef(unit.reshape(-1, 3).T).sum(axis=1) - 1) / 2
        assert shared == pytest.approx(list(wanted), abs=0.03 if any(wanted) else 0)
        assert gd.NoiseEstimate.from_dict(found.as_dict()) == found
        assert ("shared between colours" in found.summary()) == any(shared)


PAGE = Path(__file__).parents[2] / "docs" / "develop" / "add_a_noise_model.md"
WIDTH = 0.3


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """Return the class that the page describes."""
    text = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    path = tmp_path_factory.mktemp("added") / "multiplicative.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("multiplicative", path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "multiplicative", module)
        spec.loader.exec_module(module)
        patch.setattr(models, "MODELS", (*models.MODELS, module.Multiplicative))
        yield module.Multiplicative


@pytest.fixture(scope="module")
def image():
    y, x = np.mgrid[:128, :128]
    clean = 40 + 60 * ((x // 24 + y // 32) % 2) + 0.6 * x
    return clean * np.random.default_rng(0).uniform(1 - WIDTH, 1 + WIDTH, clean.shape)


@pytest.mark.parametrize("name", ["auto", "multiplicative"])
def test_it_is_found_and_measured(added, image, name):
    found = gd.estimate_noise(image, model=name)
    (model,) = found.models
    assert type(model) is added
    assert model.width == pytest.approx(WIDTH, rel=0.1)
    assert found.sigma[0] == pytest.approx(np.sqrt(np.mean(image**2) * WIDTH**2 / 3), rel=0.15)
    assert found.verdict().startswith(f"Multiplicative, width {model.width:.3g}")
    assert "Multiplicative, width" in found.summary()
    again = gd.NoiseEstimate.from_dict(json.loads(json.dumps(found.as_dict())))
    assert again.models == found.models


def test_other_noise_is_not_taken_for_it(added):
    image = 100 + np.arange(128) + np.random.default_rng(0).normal(0, 10, (128, 128))
    assert gd.estimate_noise(image).name == "gaussian"


def test_the_host_stabilises_it(added):
    model = added(WIDTH)
    clean = np.repeat([20.0, 500.0], 200_000).reshape(2, -1)
    seen = model.stabilise(
        clean * np.random.default_rng(1).uniform(1 - WIDTH, 1 + WIDTH, clean.shape)
    )
    assert seen.std(axis=1, dtype=float) == pytest.approx([model.sigma_after] * 2, rel=0.01)
    back = model.inverse(seen.mean(axis=1, dtype=float))
    assert back == pytest.approx(clean[:, 0], rel=2e-3)


def test_the_command_line_offers_it(added):
    parser = build_parser(["estimate"])
    args = parser.parse_args(["estimate", "image.tif", "--model", "multiplicative"])
    assert args.model == "multiplicative"


def test_a_wrong_parameter_is_refused(added):
    with pytest.raises(gd.errors.SettingsError, match="does not fit multiplicative noise"):
        added(-1)
