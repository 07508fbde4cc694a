"""Series of measurements: components, noise, what is lost, and input that cannot be filtered."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.measurements.subspace import _fitted
from napari_gpu_denoise.run.denoise import denoise_image
from reference import subspace as reference
from scenes import SMALL_PARTS, Stored

SIGMA = 20.0
FAST = gd.Subspace(filter_profile="fast")


def scene(count: int = 12, shape: tuple[int, ...] = (40, 44), seed: int = 0) -> np.ndarray:
    """Return a clean series (count, *shape) of rank 3: areas and slopes, in other shares each."""
    rng = np.random.default_rng(seed)
    grid = np.indices(shape)
    y, x = grid[-2] / shape[-2], grid[-1] / shape[-1]
    maps = [120 + 40 * (y + x > 1), 60 * np.sin(5 * x) * y, 50.0 * ((y - 0.5) ** 2 + x**2 < 0.2)]
    shares = rng.uniform(0.2, 1, (count, 3))
    return np.tensordot(shares, np.stack(maps), 1).astype(np.float32)


def noisy(clean: np.ndarray, sigma: float = SIGMA, seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(clean.shape)
    return (clean + sigma * noise).astype(np.float32)


def error_of(result: np.ndarray, clean: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(result.astype(np.float64) - clean))))


def code_of(result: gd.Result, code: str) -> list:
    return [note for note in result.record.notes if getattr(note, "code", "") == code]


@pytest.mark.parametrize("sigma", [SIGMA, 2.0], ids=["", "all exceed the noise"])
def test_result_is_that_of_the_reference(sigma):
    series = noisy(scene())
    made = gd.denoise(series, gd.Subspace(filter="bm3d"), sigma, axes="DYX")

    def filtered(component):
        return sigma * gd.bm3d((component / sigma).astype(np.float32), 1.0)

    np.testing.assert_allclose(made.image, reference.subspace(series, sigma, filtered), atol=0.05)
    above, kept = reference.number_of_components(series, sigma)
    assert f"{kept} components of 12 were filtered; {above} exceed the noise" in made.record.notes
    told = [note for note in made.record.notes if note.startswith("all components exceed")]
    assert len(told) == (above == 12) == (sigma == 2.0)
    assert (made.record.filter, made.record.sigma, made.record.axes) == (
        "subspace",
        (sigma,),
        "DYX",
    )


@pytest.mark.parametrize("shape", [(13, 14), (5, 8, 9), (1, 6)])
def test_what_components_share_is_that_of_the_reference(shape):
    rng = np.random.default_rng(0)
    noisy, filtered = (rng.standard_normal((3, *shape)).astype(np.float32) for _ in range(2))
    made = np.concatenate([values for _, values in _fitted(noisy, filtered, 5)], axis=1)
    np.testing.assert_allclose(made, reference.explained(noisy, filtered, 5), atol=1e-5)


def test_borders_of_one_component_sharpen_those_of_the_others():
    y, x = np.indices((64, 64))
    area = np.hypot(y - 30, x - 34) < 20
    clean = np.stack([40.0 * area, (5 + 0.2 * x) * area])
    filtered = np.stack([clean[0], gaussian_filter(clean[1], 1.0)])
    made = np.concatenate([part for _, part in _fitted(noisy(clean, 1.0), filtered, 2)], axis=1)
    assert error_of(made[1], clean[1]) < 0.5 * error_of(filtered[1], clean[1])


def test_filters_better_than_each_measurement_alone():
    clean = scene(24)
    series = noisy(clean)
    alone = error_of(gd.bm3d(series, SIGMA), clean)
    assert error_of(gd.subspace(series, SIGMA, axes="DYX"), clean) < 0.6 * alone


@pytest.mark.parametrize("axes", ["YDX", "YXD"])
def test_measurements_may_lie_along_any_axis(axes):
    series = noisy(scene())
    wanted = gd.subspace(series, SIGMA, axes="DYX", profile="fast")
    moved = np.moveaxis(series, 0, axes.index("D"))
    made = gd.subspace(moved, SIGMA, axes=axes, profile="fast")
    np.testing.assert_allclose(np.moveaxis(made, axes.index("D"), 0), wanted, atol=0.02)


def test_volumes_are_filtered_by_bm4d_and_other_axes_apart():
    clean = np.stack([scene(8, (6, 24, 24), seed) for seed in range(2)])
    made = gd.denoise(noisy(clean), FAST, SIGMA, axes="TDZYX")
    assert any("cubes" in note for note in made.record.notes)
    assert error_of(made.image, clean) < 0.4 * SIGMA


def test_parts_of_an_array_that_is_not_in_memory():
    series = noisy(scene(8, (12, 20, 20)))
    run = gd.Run(FAST, SIGMA, axes="DZYX", limits=SMALL_PARTS)
    whole = denoise_image(series, run).image
    made = denoise_image(Stored(series), run, np.empty).image
    np.testing.assert_array_equal(made, whole)
    np.testing.assert_allclose(whole, gd.denoise(series, FAST, SIGMA, axes="DZYX").image, atol=0.02)


def test_result_goes_where_it_is_wanted():
    series = noisy(scene()).astype(np.int16)
    wanted = gd.subspace(series, SIGMA, axes="DYX", profile="fast", dtype="same")
    assert wanted.dtype == np.int16
    out = series.copy()
    assert gd.denoise(out, FAST, SIGMA, axes="DYX", out=out).image is out
    np.testing.assert_array_equal(out, wanted)
    weak = gd.subspace(noisy(scene(), 3.0).astype(np.int16), 3.0, axes="DYX", profile="fast")
    assert weak.dtype == np.float32


# --- noise ----------------------------------------------------------------------------------------


def test_noise_is_measured_on_repeats():
    clean = scene(10, (64, 64))
    clean += np.random.default_rng(3).uniform(0, 200, (64, 64)).astype(np.float32)  # texture
    clean[1] = clean[0]
    made = gd.denoise(noisy(clean, 8.0), FAST, axes="DYX")
    assert made.record.sigma == (pytest.approx(8.0, rel=0.05),)
    assert "most alike" in made.record.sigma_source


def test_one_sigma_for_each_measurement_and_a_map():
    clean = scene(24, (40, 40))
    factors = np.linspace(0.5, 3, 24)[:, None, None]
    series = clean + factors * (noisy(clean) - clean)
    told = gd.subspace(series, SIGMA * factors.ravel(), axes="DYX", profile="fast")
    same = gd.subspace(series, SIGMA * 2, axes="DYX", profile="fast")
    assert error_of(told[:4], clean[:4]) < 0.8 * error_of(same[:4], clean[:4])
    spread = np.where(np.arange(40) < 20, 0.5, 2.0)[None].repeat(40, axis=0)
    series = clean + spread * (noisy(clean) - clean)
    told = gd.subspace(series, SIGMA * spread, axes="DYX", profile="fast")
    assert error_of(told, clean) < 0.9 * error_of(
        gd.subspace(series, SIGMA * 1.5, axes="DYX", profile="fast"), clean
    )


def test_bright_measurements_do_not_harm_the_others():
    clean = scene(24)
    clean[0] *= 10
    made = gd.subspace(noisy(clean), SIGMA, axes="DYX", profile="fast")
    assert error_of(made[1:], clean[1:]) < 0.3 * SIGMA


def test_the_floor_of_magnitudes_is_removed():
    rng = np.random.default_rng(0)
    clean = 0.35 * scene(16, (48, 48))
    series = np.hypot(noisy(clean), SIGMA * rng.standard_normal(clean.shape)).astype(np.float32)
    made = gd.subspace(series, noise=gd.Rician(SIGMA), axes="DYX", profile="fast")
    assert abs(float((made - clean).mean())) < 0.1 * abs(float((series - clean).mean()))


def magnitudes(clean: np.ndarray) -> np.ndarray:
    imaginary = SIGMA * np.random.default_rng(5).standard_normal(clean.shape)
    return np.hypot(noisy(clean), imaginary).astype(np.float32)


def test_magnitudes_that_are_bright_are_recognised():
    """A single one shows no law of magnitudes, but all together lack values below 0."""
    clean = 0.3 * scene(64, (64, 64)) + 55
    made = gd.denoise(magnitudes(clean), FAST, axes="DYX")
    assert "values below 0 are missing" in made.record.sigma_source
    assert made.record.noise[0] == {"model": "rician", "sigma": pytest.approx(SIGMA, rel=0.05)}
    assert abs(float((made.image - clean).mean())) < 0.1 * float((magnitudes(clean) - clean).mean())
    assert gd.denoise(noisy(clean), FAST, axes="DYX").record.noise[0]["model"] == "gaussian"


def test_a_background_does_not_weaken_the_noise_of_magnitudes():
    clean = scene(16, (96, 96)) + 200
    clean[:, :, :40] = 0
    made = gd.denoise(magnitudes(clean), FAST, axes="DYX")
    assert made.record.noise[0] == {"model": "rician", "sigma": pytest.approx(SIGMA, rel=0.05)}


def test_slices_of_photons_have_their_own_noise():
    bright = np.abs(scene(16, (48, 48))) / 20
    clean = np.stack([bright * fall for fall in (1, 0.5, 0.2, 0.05)], axis=1)
    series = np.random.default_rng(2).poisson(clean).astype(np.uint16)
    options = {"noise": gd.PoissonGaussian(1.0, 0.0), "filter": "bm3d", "dtype": np.float32}
    made = gd.subspace(series, axes="DZYX", **options)
    apart = [gd.subspace(series[:, k], axes="DYX", **options) for k in range(4)]
    assert error_of(made, clean) < 1.1 * error_of(np.stack(apart, axis=1), clean)


@pytest.mark.parametrize("noise", [gd.PoissonGaussian(1.0, 0.0), None], ids=["told", "measured"])
def test_photons_keep_their_lifetimes(noise):
    time = np.arange(32)
    decay = [np.exp(-time / tau) / tau for tau in (4, 12)]
    share = np.clip(scene(1, (64, 64))[0] / 200, 0, 1)
    clean = 40 * (decay[0][:, None, None] * share + decay[1][:, None, None] * (1 - share))
    series = np.random.default_rng(2).poisson(clean).astype(np.uint16)
    made = gd.denoise(series, FAST, axes="DYX", noise=noise, dtype=np.float32)
    assert error_of(made.image, clean) < 0.25 * error_of(series, clean)
    mean = [(time[:, None, None] * one).sum(0) / one.sum(0) for one in (made.image, clean)]
    assert abs(float((mean[0] - mean[1]).mean())) < 0.05
    assert not code_of(made, "events")


# --- the guard ------------------------------------------------------------------------------------


def with_event(series: np.ndarray) -> np.ndarray:
    changed = series.copy()
    changed[[3, 7], 20:25, 20:24] += 3 * SIGMA
    return changed


def test_events_are_found_and_kept_on_request():
    clean = scene(20, (100, 100))
    quiet, event = noisy(clean), with_event(noisy(clean))
    assert not code_of(gd.denoise(quiet, FAST, SIGMA, axes="DYX"), "events")
    few = gd.Subspace(filter_profile="fast", components=3)
    both = few, replace(few, keep_events=True)
    lost, kept = (gd.denoise(event, one, SIGMA, axes="DYX") for one in both)
    assert code_of(lost, "events")
    place = np.s_[3, 21:24, 21:23]
    shown = [(one.image - clean)[place].mean() / (3 * SIGMA) for one in (lost, kept)]
    assert shown[0] < 0.4 < 0.6 < shown[1]
    away = np.s_[:, :10]
    np.testing.assert_array_equal(lost.image[away], kept.image[away])


def test_events_are_those_of_the_reference():
    from scipy.special import ndtri

    clean = scene(20, (100, 100))
    event = with_event(noisy(clean))
    made = gd.denoise(event, FAST, SIGMA, axes="DYX")
    limit = -ndtri(0.01 / 2 / event.size)
    found = reference.events(event, made.image, SIGMA, (5, 5), limit).any(axis=0)
    assert code_of(made, "events")[0].values["share"] == pytest.approx(found.mean(), abs=2e-4)


def test_a_damaged_measurement_is_named():
    clean = scene(16)
    series = noisy(clean)
    assert not code_of(gd.denoise(series, FAST, SIGMA, axes="DYX"), "odd-measurement")
    series[5] = np.roll(series[5], 13, axis=1) * (np.arange(40) % 9 > 2)[:, None]
    (note,) = code_of(gd.denoise(series, FAST, SIGMA, axes="DYX"), "odd-measurement")
    assert "measurement 5 differs" in note


# --- what cannot be filtered, and what stays as it is ---------------------------------------------


def test_pixels_outside_a_mask_stay_as_they_are():
    clean = scene(10)
    series = noisy(clean)
    series[:, :, :15] = 0
    made = gd.subspace(series, SIGMA, axes="DYX", profile="fast")
    assert not made[:, :, :15].any()
    assert error_of(made[:, :, 15:], clean[:, :, 15:]) < 0.4 * SIGMA


def test_nan_is_refused_or_kept():
    clean = scene(10)
    series = noisy(clean)
    series[2, 5, 5] = np.nan
    series[:, 30:, 30:] = np.inf
    with pytest.raises(errors.NonFiniteError):
        gd.subspace(series, SIGMA, axes="DYX")
    made = gd.denoise(series, FAST, SIGMA, axes="DYX", nonfinite="keep")
    np.testing.assert_array_equal(np.isfinite(made.image), np.isfinite(series))
    assert made.record.nonfinite == 1 + 10 * 10 * 14
    known = np.isfinite(series)
    assert error_of(made.image[known], clean[known]) < 0.4 * SIGMA


@pytest.mark.parametrize(
    ("shape", "axes", "changes", "error", "words"),
    [
        ((8, 20, 20), "TYX", {}, errors.AxesError, "T, time"),
        ((8, 20, 20), "DYX", {"along": "T"}, errors.AxesError, "T, time"),
        ((8, 20, 20), "ZYX", {}, errors.AxesError, "None of the axes"),
        ((8, 9, 20, 20), "CDYX", {}, errors.AxesError, "None of the axes"),
        ((8, 20, 20), "DYX", {"along": "Q"}, errors.AxesError, "Q of the axes"),
        ((5, 20, 20), "DYX", {}, errors.ImageError, "at least 6"),
        ((50, 6, 6), "DYX", {}, errors.ImageError, "no more than pixels"),
    ],
)
def test_what_is_no_series_of_measurements_is_refused(shape, axes, changes, error, words):
    image = noisy(np.zeros(shape, np.float32))
    with pytest.raises(error, match=words):
        gd.subspace(image, SIGMA, axes=axes, **changes)


def test_constant_series_and_sigma_0_are_refused():
    with pytest.raises(errors.ImageError, match="Only 0 pixels are finite and differ"):
        gd.subspace(np.ones((8, 20, 20), np.float32), SIGMA, axes="DYX")
    with pytest.raises(errors.SigmaError, match="sigma of some measurements is 0"):
        gd.subspace(noisy(scene(8)), 0.0, axes="DYX")


def test_parts_are_refused():
    series = noisy(scene(8))
    with pytest.raises(errors.SettingsError, match="whole series"):
        gd.denoise(series, FAST, SIGMA, axes="DYX", rows=slice(0, 8))
    da = pytest.importorskip("dask.array")
    with pytest.raises(errors.SettingsError, match="whole series"):
        gd.subspace(da.from_array(series), SIGMA, axes="DYX")


def test_progress_and_cancel():
    series, steps, stop = noisy(scene(8)), [], threading.Event()
    gd.subspace(series, SIGMA, axes="DYX", progress=lambda *step: steps.append(step))
    assert steps[-1][0] == steps[-1][1] > 0
    stop.set()
    given = series.copy()
    with pytest.raises(errors.Cancelled):
        gd.subspace(series, SIGMA, axes="DYX", cancel=stop)
    np.testing.assert_array_equal(series, given)


def test_noise_that_a_series_does_not_have_is_told():
    series = noisy(scene()) - 150
    with pytest.warns(UserWarning, match="grey levels on average"):
        gd.subspace(series, noise=gd.Rician(10), axes="DYX", profile="fast")
    assert not code_of(gd.denoise(series, FAST, axes="DYX"), "biased")


def test_copies_are_named():
    series = noisy(scene())
    with pytest.raises(errors.ImageError, match="remove copies"):
        gd.subspace(np.repeat(series[:1], 8, axis=0), axes="DYX")
    twice = gd.denoise(np.repeat(series[:2], 4, axis=0), FAST, 3.0, axes="DYX")
    assert not code_of(twice, "biased")


def test_noise_of_measurements_that_is_measured_again_is_told():
    counts = np.random.default_rng(0).poisson(np.maximum(scene() / 20, 0))
    record = gd.denoise(counts.astype(np.uint16), FAST, axes="DYX").record
    assert record.noise[0]["model"] == "poisson-gaussian"
    assert "measure again" in record.sigma_source
