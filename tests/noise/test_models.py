"""Noise models: numbers, stabilisation, records, and one that is added."""

from __future__ import annotations

import json
import math
import re
from functools import cache

import numpy as np
import pytest
from scipy.ndimage import uniform_filter
from scipy.stats import gamma, norm, poisson, rice

import napari_gpu_denoise as gd
from napari_gpu_denoise import Gaussian, PoissonGaussian, Rician, SignalDependent, Speckle
from napari_gpu_denoise.cli.arguments import build_parser
from napari_gpu_denoise.errors import ImageError, SettingsError
from napari_gpu_denoise.noise import models
from napari_gpu_denoise.noise.models import Correlated, poisson_gaussian, rician
from scenes import NOISE_MODELS

TABLE = np.exp(-np.add.outer(np.arange(5) ** 2, 3 * np.arange(5) ** 2) / 5)
SIGMAS = next(each for each in NOISE_MODELS if each.name == "signal-dependent")
SMOOTH = SignalDependent((50.0, 200.0), (2.0, 8.0))
each_model = pytest.mark.parametrize("model", NOISE_MODELS, ids=lambda model: model.name)

MEANS = [0, 0.01, 0.1, 0.3, 0.5, 1, 2, 3, 5, 7, 10, 20, 50, 100, 200, 300, 500, 1000]
SIGNALS = [0, 0.05, 0.2, 0.5, 0.8, 1, 1.5, 2, 3, 4, 5.5, 6, 7, 10, 20, 39.9, 40.1, 50]

# Noise as values and their probabilities: what the models are checked against knows none of their
# tables, and sums the probabilities of SciPy instead of integrating.


def photons(model, mean):
    expected = (mean - model.offset) / model.gain
    spread = 9 * np.sqrt(expected)
    counts = np.arange(max(0, int(expected - spread) - 10), int(expected + spread) + 30)
    chances = poisson.pmf(counts, expected)
    normal = np.linspace(-8, 8, 801) if model.read_noise else np.zeros(1)
    weights = norm.pdf(normal) / norm.pdf(normal).sum()
    levels = model.offset + model.gain * counts[:, None] + model.read_noise * normal
    return levels, chances[:, None] * weights


@cache
def unit_magnitudes(signal):
    edges = np.linspace(max(0, signal - 8.5), signal + 8.5, 8001)
    # Differences of the distribution function are exact however narrow it is.
    chances = np.diff(rice.cdf(edges, signal))
    return (edges[1:] + edges[:-1]) / 2, chances / chances.sum()


def magnitudes(model, mean):
    levels, chances = unit_magnitudes(round(mean / model.sigma, 9))
    return model.sigma * levels, chances


@cache
def speckle_factors(looks):
    edges = np.linspace(0, 1, 40_001)
    return gamma.ppf((edges[1:] + edges[:-1]) / 2, looks, scale=1 / looks)


def speckles(model, mean):
    factors = speckle_factors(model.looks)
    return mean * factors, np.full(len(factors), 1 / len(factors))


def normals(model, mean):
    at = np.linspace(-8, 8, 4001)
    return mean + np.sqrt(model.variance(mean)) * at, norm.pdf(at) / norm.pdf(at).sum()


def moments(values, chances):
    mean = (chances * values).sum()
    return mean, np.sqrt((chances * (values - mean) ** 2).sum())


def stabilised(model, noise, mean):
    levels, chances = noise(model, mean)
    return moments(model.stabilise(levels).astype(float), chances)


# Model, its distribution, means, bias of the inverse in deviations, and what the deviation of
# stabilised values may differ from that of the model, by mean.
LAWS = [
    *((PoissonGaussian(gain, gain * read, 14.7), photons, 14.7 + gain * np.array(MEANS), 5e-4,
       lambda mean, g=gain, r=read: 0.0205 if r >= 4 or mean - 14.7 >= 6 * g
       else 0.06 if mean - 14.7 >= 2 * g else 1)
      for gain in (0.05, 1, 20) for read in (0, 0.25, 1, 1.8, 4, 40)),
    *((Rician(sigma), magnitudes, sigma * np.array(SIGNALS), 2e-3,
       lambda mean, s=sigma: 0.02 if mean >= 1.25 * s else 0.13) for sigma in (0.02, 6.65)),
    *((Speckle(k), speckles, [1e-3, 1, 1000], 2e-3, lambda _: 3e-3) for k in (0.5, 1, 2.7, 50)),
    (SMOOTH, normals, [20, 60, 100, 150, 190, 260], 2e-3, lambda _: 0.02),
    (SIGMAS, normals, [0, 300], 2e-3, lambda _: 0.02),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "noise", "means", "bias", "off"), LAWS, ids=[str(law[0]) for law in LAWS]
)
def test_noise_is_stabilised_and_comes_back_unbiased(model, noise, means, bias, off):
    for mean in means:
        expected, deviation = stabilised(model, noise, mean)
        assert deviation == pytest.approx(model.sigma_after, rel=off(mean)), mean
        assert deviation < 1.1 * model.sigma_after
        levels, chances = noise(model, mean)
        middle, spread = moments(levels, chances)
        assert abs(model.inverse(expected) - mean) <= bias * spread + 2e-6 + 1e-7 * mean, mean
        assert model.variance(middle) == pytest.approx(spread**2, rel=1e-3, abs=1e-9)
        # Pixels tell their variance without bias.
        told = (chances * model.variance_told_by(levels)).sum()
        assert told == pytest.approx(spread**2, rel=1.2e-2) or noise is normals


@pytest.mark.parametrize("read", [0, 0.3, 1, 7, 19.9, 20.1, 1e3, 1e5])
def test_counts_grow_smoothly_from_nothing_on(read):
    """Where the table ends and the expansion takes over there is no step, and it always grows."""
    model = PoissonGaussian(1.5, 1.5 * read, 10)
    assert (model.inverse(np.float32([-50, -1, 0])) == 10).all()
    assert model.stabilise(np.float32([-1e30])) == 0
    least = poisson_gaussian.expected_anscombe(np.zeros(1), read)[0]
    given = np.linspace(least, least + 100, 20_001)
    electrons = poisson_gaussian.unbiased_electrons(given, read)
    slope = np.diff(electrons) / np.diff(given)
    assert (slope > 0).all()
    # The slope is half the stabilised value, or near the start a little more.
    assert (np.abs(slope - given[1:] / 2) < 0.4 + 0.01 * given[1:]).all()
    assert 0 <= electrons[0] < 1e-5 * max(read, 1)
    # What the table adds has died out where it ends: the expansion is right on its own.
    assert abs(poisson_gaussian.correction(read).values[-1]) < 1e-5 * max(read, 1)


def test_the_curve_of_magnitudes_has_no_step_where_the_asymptote_takes_over():
    at = np.linspace(0, 12, 40_001)
    slope = np.diff(rician.stabilised_magnitude(at)) / np.diff(at)
    assert slope.min() > 0.93 and slope.max() < 3.2
    assert np.abs(np.diff(slope)).max() < 0.03


def test_faint_magnitudes_are_symmetric_and_differ_from_noise():
    """Filters are drawn to where values are densest: the Rayleigh law has a skewness of 0.63."""
    model = Rician(1.0)
    for signal, most in ((0.0, 0.02), (0.5, 0.03), (1.0, 0.03), (1.5, 0.1), (2.0, 0.15)):
        levels, chances = magnitudes(model, signal)
        values = model.stabilise(levels).astype(float)
        mean, deviation = moments(values, chances)
        assert abs((chances * (values - mean) ** 3).sum()) / deviation**3 < most, signal
        known = {0: 0.874, 0.5: 0.903, 1: 0.959}.get(signal, deviation)
        assert deviation == pytest.approx(known, abs=0.002)
        assert model.expected(signal) == pytest.approx(rice.mean(signal), rel=1e-6)
    # The mean grows by at most half a deviation for a squared signal of 1: that of m² does.
    none, deviation = stabilised(model, magnitudes, 0)
    faint, _ = stabilised(model, magnitudes, 0.2)
    assert (faint - none) / (deviation * 0.2**2 / 2) == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("denoised", [gd.bm3d, gd.nl_means], ids=["bm3d", "nl_means"])
def test_filtered_background_is_unbiased(denoised):
    """Noise alone, evenly drawn from its law, so that its own mean is exact."""
    count = 256 * 256
    share = np.random.default_rng(0).permutation((np.arange(count) + 0.5) / count)
    model = Rician(5.0)
    given = model.stabilise(5 * np.sqrt(-2 * np.log(share)).reshape(256, 256))
    filtered = denoised(given, sigma=1.0)
    assert filtered.std() < 0.1
    assert abs(filtered.mean(dtype=float) - given.mean(dtype=float)) < 0.003
    # Errors of both signs only cancel with their signs.
    back = model.inverse(filtered if denoised is gd.bm3d else uniform_filter(given, 15))
    assert abs(back.mean(dtype=float)) / 5 < 0.02
    assert np.maximum(back, 0).mean() / 5 > 0.02


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
def test_zeros_of_speckle(dtype):
    image = np.array([100, 100, 2, 0, 0 if np.dtype(dtype).kind == "u" else -7], dtype)
    log = Speckle(4.0).stabilise(image)
    assert log[2] == pytest.approx(np.log(2))
    assert log.min() == log[3] == log[4] <= log[2]
    back = Speckle(4.0).inverse(log)
    assert back.min() > 0
    assert np.rint(back[3]) == 0 or np.dtype(dtype).kind == "f"
    empty = Speckle(1.0).inverse(Speckle(1.0).stabilise(np.zeros((3, 3), dtype)))
    assert (np.abs(empty) < 0.5).all()


# What all models do


def test_each_model_is_among_those_of_the_tests():
    assert [*map(type, NOISE_MODELS)] == [*models.MODELS]


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
        assert (result.dtype, result.shape) == (np.float32, image.shape)
        assert result.dtype.isnative and not np.shares_memory(result, image)
    assert (shown == kept).all()
    assert image.tobytes() == before
    assert not model.additive or ((shown == image).all() and model.sigma_after == model.sigma)
    for means in (20.0, np.full((2, 3), 20)):
        assert model.variance(means).dtype == np.float64
        assert model.variance(means).shape == np.shape(means)


@each_model
def test_large_images_and_nonfinite_pixels(model):
    image = np.random.default_rng(0).uniform(1, 300, (700, 1100))
    image[2, 3], image[4, 4] = np.nan, np.inf
    large = model.stabilise(image)
    assert (large[331] == model.stabilise(image[331])).all()
    back = model.inverse(large)
    assert (back[331] == model.inverse(large[331])).all()
    assert np.isnan(back[2, 3]) and back[4, 4] == np.inf
    assert np.isfinite(back).sum() == back.size - 2


@each_model
@pytest.mark.parametrize("image", [np.zeros((0, 3)), np.zeros((2, 2), bool), np.zeros(2, complex)])
def test_arrays_that_are_no_images(model, image):
    for transform in (model.stabilise, model.inverse):
        with pytest.raises(ImageError):
            transform(image)


@pytest.mark.parametrize(
    "model",
    [*NOISE_MODELS, Speckle(4.0), Correlated(np.float32(4.5), TABLE)],
    ids=repr,
)
def test_models_as_dictionaries(model):
    values = json.loads(json.dumps(model.as_dict(), allow_nan=False))
    assert values["model"] == model.name
    assert gd.NoiseModel.from_dict(values) == type(model).from_dict(values) == model
    assert hash(gd.NoiseModel.from_dict(values)) == hash(model)
    assert "\n" not in model.summary()
    with pytest.raises(AttributeError):
        model.sigma = 3
    for value in list(values.values())[1:]:
        assert isinstance(value, list) or value == 0 or f"{value:g}" in model.summary()
    if "autocorrelation" in values:
        assert model.autocorrelation == tuple(map(tuple, TABLE.tolist()))
        assert "0.55 along x" in model.summary()
        white = Correlated(3.0, np.pad([[1.0]], ((0, 4), (0, 4))))
        assert white.white and not model.spectral.white
        # Along one axis alone is enough.
        for row, column in ((0, 1), (1, 0)):
            table = white.autocorrelation + 0.5 * np.eye(5)[[row]].T * np.eye(5)[column]
            assert not Correlated(3.0, table).white
    if model.name == "correlated-photons":
        assert model.spectral == Correlated(1.0, TABLE, 0.5)


@pytest.mark.parametrize(("make", "values", "said"), [
    (gd.NoiseModel, {"model": "salt", "sigma": 3}, "give gaussian or .* or rician or"),
    (Rician, {"model": "gaussian", "sigma": 3}, "give rician"),
    (gd.NoiseModel, {"model": "poisson-gaussian", "sigma": 3}, "give gain, read_noise, offset"),
    (gd.NoiseModel, {"model": "rician"}, "was given no parameters: give sigma"),
    *((gd.NoiseModel, values, "is not a noise model") for values in (None, 5, [5], "salt")),
    (Gaussian, (-1,), "sigma=-1"), (Gaussian, (np.inf,), "sigma=inf"),
    (PoissonGaussian, (0, 1), "gain=0"), (PoissonGaussian, (1, -1), "read_noise=-1"),
    (PoissonGaussian, (1, 1, np.nan), "offset=nan"),
    (PoissonGaussian, (1e-9, 1), r"Gaussian\(sigma=1\)"),
    (Rician, (0,), "above 0"), (Speckle, (1e-3,), "at least 0.1"),
    (Speckle, ("many",), "looks='many'"), (Speckle, (None,), "looks=None"),
    (SignalDependent, ((1, 2), (3,)), "not a table"),
    (SignalDependent, ((2, 1), (3, 3)), "not a table"),
    (Correlated, (-1.0, TABLE), "give "), (Correlated, (np.nan, TABLE), "give "),
    (Correlated, (2.0, TABLE, 1.5), "from -1 to 1"),
    (Correlated, (2.0, [[1.0]]), "give 5 x 5"), (Correlated, (2.0, TABLE, 0, (0.5,)), "along_z"),
    *((Correlated, (1.0, table), "give ") for table in (TABLE[:4, :4], 0.5 * TABLE,
      TABLE + np.eye(5)[::-1], TABLE * np.nan, [[1.0, 0.5], [0.5]], "white", 1.0)),
])  # fmt: skip
def test_what_fits_no_model(make, values, said):
    with pytest.raises(SettingsError, match=said):
        make(*values) if isinstance(values, tuple) else make.from_dict(values)


# A model that is added


WIDTH = 0.3


@pytest.fixture
def added(added_models):
    """Return the one that needs kernels."""
    return added_models.Multiplicative


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


def test_it_is_a_model_as_any_other(added, added_models):
    model = added(WIDTH)
    clean = np.repeat([20.0, 500.0], 200_000).reshape(2, -1)
    factors = np.random.default_rng(1).uniform(1 - WIDTH, 1 + WIDTH, clean.shape)
    seen = model.stabilise(clean * factors)
    assert seen.std(axis=1, dtype=float) == pytest.approx([model.sigma_after] * 2, rel=0.01)
    back = model.inverse(seen.mean(axis=1, dtype=float))
    assert back == pytest.approx(clean[:, 0], rel=2e-3)
    # Its kernels take what `transform` gives them by name.
    kernels = model.transform(True)
    for way, given in (("stabilise", kernels.forward), ("inverse", kernels.inverse)):
        (head,) = re.findall(rf"{way}_{kernels.law}\([^,)]*, ([^)]*)\)", added_models.page)
        assert head.split(", ") == [f"float {name}" for name in given]
    parser = build_parser(["estimate"])
    args = parser.parse_args(["estimate", "image.tif", "--model", "multiplicative"])
    assert args.model == "multiplicative"
    with pytest.raises(SettingsError, match="does not fit multiplicative noise"):
        added(-1)


# An additive one, which is asked what it is, never for its name


def rounded(ny=160, nx=200):
    """Return an image with uniform noise that is stronger towards the corners."""
    y, x = np.indices((ny, nx))
    away = (2 * y / ny - 1) ** 2 + (2 * x / nx - 1) ** 2
    noise = np.random.default_rng(1).uniform(-17, 17, (ny, nx)) * (1 + 0.75 * away)
    return (60 + 80 * ((x // 37 + y // 41) % 2) + noise).astype(np.float32)


def test_additive_noise_that_was_named_is_one_sigma_everywhere(added_models):
    found = gd.estimate_noise(rounded())
    assert found.places is not None
    one, named = (gd.estimate_noise(rounded(), model=name) for name in ("gaussian", "uniform"))
    assert named.places is None is one.places
    assert named.models == (added_models.Uniform.of_sigma(one.sigma[0]),)
    assert named.sigma == pytest.approx(one.sigma) and named.reason == one.reason
    assert named.errors[0]["width"] == pytest.approx(math.sqrt(12) * one.standard_error[0])


def test_filters_take_additive_noise_as_one_sigma(added_models):
    image, model = rounded(64, 64), added_models.Uniform(40.0)
    for settings in (gd.NLMeans(), gd.NLMeans(rician=True), gd.BM3D()):
        found = gd.denoise(image, settings, noise=model)
        same = gd.denoise(image, settings, model.sigma)
        np.testing.assert_array_equal(found.image, same.image)
