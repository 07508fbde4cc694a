"""What `noise=` may be, what wins, and what the record says."""

from __future__ import annotations

import json

import dask.array as da
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise import cli
from napari_gpu_denoise.errors import NonFiniteError, SettingsError, SigmaError
from napari_gpu_denoise.noise.models import choices
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.run.noise import resolve_noise
from scenes import noisy, scene, small

MODEL = gd.PoissonGaussian(2.0, 4.0, 10.0)
ONE_NOISE = gd.Isoline(criterion="multiplicative")


def photons(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    clean = scene(*shape)
    return (10 + 2 * rng.poisson(clean / 2) + rng.normal(0, 4, shape)).astype(np.float32)


IMAGE = photons(64, 72)


def resolved(noise, image, axes, filter=gd.BM3D()):  # noqa: B008, settings are frozen
    return resolve_noise(None, noise, image, filter, Context(axes, image.shape))


def run(noise, sigma=None, image=IMAGE, **options):
    return gd.denoise(image, small(gd.BM3D), sigma, noise=noise, **options)


@pytest.mark.parametrize("noise", [20, 20.0, np.float32(20), gd.Gaussian(20.0), (gd.Gaussian(20),)])
def test_a_number_is_sigma(noise):
    expected = run(None, 20.0)
    result = run(noise)
    np.testing.assert_array_equal(result.image, expected.image)
    assert result.record.sigma == (20.0,)
    models = () if np.isscalar(noise) else ({"model": "gaussian", "sigma": 20.0, "shared": 0.0},)
    assert result.record.noise == models


def test_gaussian_noise_of_several_channels():
    image = noisy(3, 40, 48)
    models = [gd.Gaussian(sigma) for sigma in (10, 20, 30)]
    result = run(models, image=image, axes="CYX")
    np.testing.assert_array_equal(result.image, run(None, (10, 20, 30), image, axes="CYX").image)
    assert result.record.sigma == (10, 20, 30)
    assert len(result.record.noise) == 3


def test_sigma_wins_and_the_noise_is_told_beside():
    result = run(MODEL, 20.0)
    np.testing.assert_array_equal(result.image, run(None, 20.0).image)
    assert result.record.sigma == (20.0,)
    assert result.record.sigma_source == "given"
    assert result.record.noise == ()
    (note,) = result.record.notes
    assert "given is not used" in note
    assert MODEL.summary() in note
    measured = run("gaussian", 20.0)
    assert "estimated is not used: Gaussian noise, sigma" in measured.record.notes[-1]


@pytest.mark.parametrize("name", [name for name in choices() if name != "gaussian"])
def test_measured_here_is_measured_before(name):
    image = np.maximum(photons(256, 256), 0.0)
    estimate = gd.estimate_noise(image, model=name)
    result = run(name, image=image)
    given = run(estimate, image=image)
    np.testing.assert_array_equal(result.image, given.image)
    (found,) = map(gd.NoiseModel.from_dict, result.record.noise)
    if found.name == "speckle":
        assert found.least == image[image > 0].min()
        found = gd.Speckle(found.looks)
    assert (found,) == estimate.models
    assert result.record.sigma_source == f"estimated: {estimate.reason}"
    if name != "auto":
        assert estimate.name == name
    if name == "poisson-gaussian":
        np.testing.assert_array_equal(run(estimate.models, image=image).image, result.image)


def test_gaussian_is_one_sigma_whatever_the_noise_is():
    drawn = np.random.default_rng(4).normal(0, 30, (129, 144))
    image = (100 + (drawn[1:] + drawn[:-1]) / 2).astype(np.float32)
    assert not gd.estimate_noise(image).white
    result = run("gaussian", image=image)
    assert (
        result.record.noise == ()
        and result.record.sigma == gd.estimate_noise(image, model="gaussian").sigma
    )
    assert result.record.sigma_source.startswith("estimated: ")
    np.testing.assert_array_equal(result.image, run(None, result.record.sigma[0], image).image)


def test_auto_serves_better_than_one_sigma():
    clean = np.kron(np.array([[20.0, 900.0], [200.0, 2000.0]]), np.ones((96, 96)))
    rng = np.random.default_rng(3)
    image = (100 + 4 * rng.poisson(clean / 4) + rng.normal(0, 3, clean.shape)).astype(np.float32)

    def off(result):
        return float(np.mean(np.abs(result.image - 100 - clean)))

    result = run("auto", image=image)
    assert result.record.noise[0]["model"] == "poisson-gaussian"
    assert off(result) < 0.9 * off(run("gaussian", image=image))
    unsaid = run(None, image=image)
    np.testing.assert_array_equal(unsaid.image, result.image)
    assert unsaid.record.noise == result.record.noise


@pytest.mark.parametrize("factor", [1e-50, 1e-30, 1e30, 1e50])
def test_white_noise_may_be_of_any_size(factor):
    image = noisy(64, 72).astype(np.float64)
    found = run(None, image=image).record.sigma[0]
    result = run(None, image=image * factor)
    assert result.record.sigma[0] == pytest.approx(found * factor, rel=1e-3, abs=0)
    assert np.ptp(result.image) == pytest.approx(
        np.ptp(run(found, image=image).image) * factor, rel=0.01
    )


@pytest.mark.parametrize("said", [None, "gaussian"])
def test_a_filter_that_knows_its_noise_measures_it_itself(said):
    rng = np.random.default_rng(1)
    magnitudes = np.hypot(*rng.normal(0, 10, (2, 64, 72)))  # nothing but noise
    plain = gd.denoise(magnitudes, gd.NLMeans(), noise="gaussian").record
    told = gd.denoise(magnitudes, gd.NLMeans(rician=True), noise=said).record
    # The magnitude of two parts varies by 0.655 of sigma.
    assert plain.sigma[0] == pytest.approx(6.55, rel=0.05)
    assert told.sigma[0] == pytest.approx(10, rel=0.05)
    assert told.noise == () and "Rician" in told.sigma_source


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (
            "salt",
            "'salt' is not a noise model: choose from auto, gaussian, correlated, poisson-gaussian",
        ),
        ((MODEL, 3), "is not a noise model: give one such as"),
        ((MODEL, MODEL), "2 noise models were given for 1 channels"),
        (gd.PoissonGaussian(1e-20, 0), "gain=1e-20 is out of the range of single precision"),
        (gd.Rician(1e20), "sigma=1e[+]20 is out of the range"),
    ],
)
def test_what_is_no_noise_is_refused(noise, said):
    with pytest.raises(SettingsError, match=said):
        run(noise)


@pytest.mark.parametrize(
    ("settings", "noise", "said"),
    [
        (gd.BM3D(), (gd.Rician(3), gd.Gaussian(3)), r"several kinds .*Rician.*; .*Gaussian"),
        (gd.BM3D(), (MODEL,) * 3, "3 noise models were given for 2 channels"),
        (ONE_NOISE, "auto", "noise='auto' was given to a filter that does not use it"),
        (ONE_NOISE, MODEL, "noise=PoissonGaussian was given"),
    ],
)
def test_noise_that_does_not_suit_the_filter_or_the_channels(settings, noise, said):
    with pytest.raises(SettingsError, match=said):
        gd.denoise(noisy(2, 40, 48), settings, noise=noise, axes="CYX")


def test_sigma_below_0_is_refused_whatever_the_noise():
    with pytest.raises(SigmaError):
        run(MODEL, -1)
    with pytest.raises(SigmaError):
        run(-1)
    nothing = np.full((40, 48), np.nan, np.float32)
    with pytest.raises(NonFiniteError):
        run("auto", image=nothing)
    assert np.isnan(run("auto", image=nothing, nonfinite="keep").image).all()


def test_isoline_knows_speckle_itself():
    rng = np.random.default_rng(0)
    image = (scene(3, 40, 48) * rng.gamma(3, 1 / 3, (3, 40, 48))).astype(np.float64)
    expected = gd.isoline(image, criterion="multiplicative", looks=3, axes="CYX")
    out = gd.isoline(image, noise=gd.Speckle(3), axes="CYX")
    np.testing.assert_array_equal(out, expected)
    rgb = np.moveaxis(image, 0, -1)
    expected = gd.isoline(rgb, criterion="multiplicative", looks=3, axes="YXS")
    np.testing.assert_array_equal(gd.isoline(rgb, noise=gd.Speckle(3), axes="YXS"), expected)
    # Numbers of looks that differ are beyond it, and those out of its bounds.
    for models in ((gd.Speckle(3), gd.Speckle(3), gd.Speckle(4)), (gd.Speckle(2e4),)):
        assert resolved(models, image, "CYX", gd.Isoline()).stabilised


def test_zeros_of_speckle_are_those_of_the_whole_image():
    image = np.full((2, 40, 48), 50.0, np.float32)
    image[0, :5], image[1, 3, 3] = 0, 1e-3
    found = resolved(gd.Speckle(4), image, ".YX")
    assert found.models == (gd.Speckle(4, least=float(np.float32(1e-3))),)
    found = resolved(gd.Speckle(4, least=0.5), image, ".YX")
    assert found.models == (gd.Speckle(4, least=0.5),)
    # Of lazy ones whole planes are seen, wherever Y and X are.
    rgb = np.full((40, 48, 3), 50.0, np.float32)
    rgb[9, 9, 2] = 1e-3
    found = resolved(gd.Speckle(4), da.from_array(rgb), "YXS")
    assert found.models == (gd.Speckle(4, least=float(np.float32(1e-3))),)
    assert not run(gd.Speckle(4), image=np.zeros((40, 48), np.uint8)).image.any()
    # Equal models are one.
    found = resolved((MODEL, MODEL), rgb[..., :2], "YXC")
    assert (found.models, found.numbers) == ((MODEL,), None)


def test_other_filters_take_correlated_noise_as_white():
    rows = [[1.0, 0.5, 0.1, 0, 0], [0.5, 0.25, 0.05, 0, 0], [0.1, 0.05, 0.01, 0, 0], [0] * 5]
    model = gd.Correlated(20.0, (*map(tuple, rows), (0,) * 5))
    result = gd.denoise(IMAGE, small(gd.NLMeans), noise=model)
    assert 20 < model.white_sigma < 40
    expected = gd.denoise(IMAGE, small(gd.NLMeans), model.white_sigma)
    np.testing.assert_array_equal(result.image, expected.image)
    told = f"sigma is multiplied by {model.white_sigma / 20:.2g} for this filter"
    assert any(told in note and "BM4D take the correlation" in note for note in result.record.notes)
    own = gd.denoise(IMAGE, small(gd.BM3D), noise=model)
    assert np.abs(own.image - gd.denoise(IMAGE, small(gd.BM3D), 20.0).image).max() > 1
    assert not any("sigma is multiplied" in note for note in own.record.notes)


def test_correlated_photons_are_stabilised_and_filtered_by_their_spectrum():
    table = np.outer(*2 * [[1.0, 0.5, 0.1, 0, 0]])
    model = gd.CorrelatedPhotons(2.0, 5.0, 1.0, autocorrelation=table)
    result = gd.denoise(IMAGE, small(gd.BM3D), noise=model, dtype="float32")
    photons = gd.PoissonGaussian(2.0, 5.0, 1.0)
    stable = gd.denoise(photons.stabilise(IMAGE), small(gd.BM3D), noise=model.spectral)
    np.testing.assert_allclose(result.image, photons.inverse(stable.image), rtol=2e-3, atol=0.05)
    assert result.record.noise[0]["model"] == "correlated-photons"
    other = gd.denoise(IMAGE, small(gd.NLMeans), noise=model, dtype="float32")
    plain = gd.denoise(IMAGE, small(gd.NLMeans), noise=photons, dtype="float32")
    assert other.image.std() < plain.image.std()


# The command line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tifffile.imwrite("in.tif", np.rint(photons(128, 160)).astype(np.uint16))
    return tmp_path


def command(*words) -> int:
    return cli.main(list(map(str, words)))


def test_an_estimate_of_a_file_serves_others(folder, capsys):
    assert command("estimate", "in.tif", "--model", "poisson-gaussian", "--json") == 0
    (folder / "noise.json").write_text(capsys.readouterr().out)
    assert command("nl-means", "in.tif", "-o", "o.tif", "--noise", "noise.json") == 0
    told = capsys.readouterr().out
    assert "\n  noise       Poisson-Gaussian noise, gain " in told and "  sigma  " not in told
    again = ("--noise", "noise.json", "--overwrite", "--json")
    assert command("nl-means", "in.tif", "-o", "o.tif", *again) == 0
    report = json.loads(capsys.readouterr().out)
    found = report["files"][0]["record"]["noise"]
    estimate = gd.estimate_noise(tifffile.imread("in.tif"), model="poisson-gaussian")
    assert found[0]["gain"] == pytest.approx(estimate.models[0].gain)
    np.testing.assert_array_equal(
        tifffile.imread("o.tif"), gd.nl_means(tifffile.imread("in.tif"), noise=estimate)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "speckle nor a file"), ("{", "is not JSON"), ("3", "contains no estimate")],
)
def test_a_file_that_is_no_estimate(folder, capsys, text, said):
    if text is not None:
        (folder / "noise.json").write_text(text)
    assert command("bm3d", "in.tif", "-o", "out.tif", "--noise", "noise.json") > 0
    assert said in capsys.readouterr().err
    assert not (folder / "out.tif").exists()
