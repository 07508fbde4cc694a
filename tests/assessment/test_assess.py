"""`assess`: every kind of image and noise, its errors, and what it says."""

import json
from dataclasses import replace
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.assessment.formulas import Detail, Statistics, decibels
from napari_gpu_denoise.assessment.record import ChannelQuality
from napari_gpu_denoise.assessment.trial import CropNoise

SIGMA = 12.0
FAST = gd.NLMeans(step=4, window=11)


def clean_of(shape=(128, 120), seed=0):
    rng = np.random.default_rng(seed)
    planes = [gaussian_filter(rng.normal(0, 1, shape), width) for width in (12, 4)]
    mixed = sum(plane / plane.std() for plane in planes)
    return (120 + 30 * mixed + 40 * (planes[0] > 0)).astype(np.float32)


def with_noise(clean, seed=1, sigma=SIGMA):
    return (clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def scene():
    clean = clean_of()
    return clean, with_noise(clean)


@pytest.fixture(scope="module")
def found(scene):
    return gd.assess(scene[1], FAST, SIGMA, spacing=0.1, unit="µm", peak=255)


def true_error(found, noisy, clean, filter=FAST, **told):
    result = gd.denoise(noisy, filter, dtype="float32", **told).image
    inner = tuple(slice(*each) for each in found.region)
    return float(np.mean((result[inner] - clean[inner]) ** 2))


def test_the_error_is_predicted(scene, found):
    clean, noisy = scene
    truth = true_error(found, noisy, clean, sigma=SIGMA)
    assert abs(found.mse - truth) < 4 * found.channels[0].mse_error + 0.05 * truth
    assert found.psnr == pytest.approx(10 * np.log10(255**2 / found.mse))
    assert found.error_map.shape == noisy.shape
    assert found.error_map.dtype == np.float32
    assert np.sqrt(np.mean(found.error_map**2)) == pytest.approx(found.error, rel=0.15)


def test_it_is_the_same_each_time(scene, found):
    again = gd.assess(scene[1], FAST, SIGMA, spacing=0.1, unit="µm", peak=255)
    assert again == found
    np.testing.assert_array_equal(again.error_map, found.error_map)
    other = gd.assess(scene[1], FAST, SIGMA, spacing=0.1, unit="µm", peak=255, seed=1)
    assert other.mse != found.mse


def test_another_unit_of_grey_levels_changes_nothing_else(scene, found):
    scaled = gd.assess(scene[1] / 256, FAST, SIGMA / 256, spacing=0.1, unit="µm", peak=255 / 256)
    assert 256**2 * scaled.mse == pytest.approx(found.mse, rel=1e-3)
    assert scaled.psnr == pytest.approx(found.psnr, abs=0.01)
    np.testing.assert_allclose(256 * scaled.error_map, found.error_map, rtol=0.02, atol=0.02)


def test_noise_drawn_with_the_same_seed_does_no_harm(scene):
    clean, _ = scene
    fresh = np.random.default_rng(0).standard_normal(clean.shape, np.float32)
    noisy = clean + np.float32(SIGMA) * fresh
    found = gd.assess(noisy, FAST, SIGMA)
    truth = true_error(found, noisy, clean, sigma=SIGMA)
    assert abs(found.mse - truth) < 4 * found.channels[0].mse_error + 0.05 * truth


def test_it_fits_on_half_a_page_and_in_json(found):
    text = found.summary()
    assert len(text.splitlines()) < 30
    assert "µm" in text
    assert "Detail kept" in text
    values = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert values["psnr"] == pytest.approx(found.psnr)
    assert values["region"] == [[0, 128], [0, 120]]
    assert "error_map" not in values


def test_a_record_holds_it(scene, found):
    record = gd.denoise(scene[1], FAST, SIGMA).record
    assert "assessment" not in record.as_dict()
    held = found.noted(record).as_dict()
    assert held["assessment"]["mse"] == pytest.approx(found.mse)
    json.dumps(held, allow_nan=False)


def test_a_wrong_sigma_is_noticed(scene):
    noisy = scene[1]
    low = gd.assess(noisy, FAST, 0.6 * SIGMA)
    assert low.check is not None
    assert not low.check.fits
    assert low.check.best > 1.25
    assert any("sigma may be low" in each for each in low.warnings)
    assert "times this sigma" in low.check_words()


def test_a_strength_does_not_change_the_noise(scene):
    clean, noisy = scene
    found = gd.assess(noisy, FAST, SIGMA, sigma_factor=1.5)
    truth = true_error(found, noisy, clean, sigma=SIGMA, sigma_factor=1.5)
    assert abs(found.mse - truth) < 4 * found.channels[0].mse_error + 0.05 * truth
    assert found.channels[0].noise == pytest.approx(SIGMA)
    assert found.check.fits, "it is sigma that is checked, not the strength"


def test_the_right_sigma_raises_no_warning(found):
    assert found.warnings == ()
    assert found.check.fits


@pytest.mark.parametrize(
    "spoil, word",
    [
        (lambda y: gaussian_filter(y, 0.7), "is correlated"),
        (lambda y: np.clip(y, 90, 180), "clipped"),
        (lambda y: y + 9 * np.random.default_rng(4).normal(0, 1, (len(y), 1)), "rows"),
    ],
    ids=["shared", "clipped", "rows"],
)
def test_what_is_not_as_assumed_is_said(scene, spoil, word):
    found = gd.assess(spoil(scene[1]).astype(np.float32), FAST, SIGMA)
    assert any(word in each for each in found.warnings)
    # It explains what the filter removed, so that sigma is not suspected.
    assert not any("the filter removed" in each for each in found.warnings)


def quality(error, mse_error, noise=8.0):
    """Return a channel of which only these are known."""
    gain, psnr = (decibels(error**2, peak) if error else np.inf for peak in (noise, 255))
    some = Statistics(1.0, 0.0, 0.0)
    return ChannelQuality(noise, error, mse_error, psnr, gain, Detail((), (), (), ()), some, some)


@pytest.mark.parametrize(
    "channel, words",
    [
        (
            quality(2, 0.1),
            "2.000 ± 0.042 grey levels (90 %), of 8 before (12.0 dB less); PSNR 42.1",
        ),
        (quality(2, 2.2), "2.0 ± 1.4 grey levels (90 %), of 8 before (12.0 dB less); PSNR 42.1"),
        (
            quality(0, 3.8),
            "at most 2.5 grey levels, of 8 before (at least 10.1 dB less); PSNR at least",
        ),
        (quality(7.8, 5), "7.80 ± 0.55 grey levels (90 %), of 8 before; PSNR 30.3"),
        (quality(26, 10), "26.00 ± 0.32 grey levels (90 %), more than the 8 before; PSNR 19.8"),
        (quality(3, 900), "at most 39 grey levels, of 8 before; PSNR at least 16.4"),
    ],
    ids=["sure", "unsure", "too small", "no better", "worse", "unknown"],
)
def test_an_error_is_worded_by_what_is_known(channel, words):
    found = channel.words(255)
    assert found.startswith(words), found
    assert "-" not in found


def test_the_answer_is_a_sentence(scene, found):
    before, after = found.channels[0].noise, found.channels[0].error
    text = f"The error falls from {before:.3g} to {after:.2g} grey levels; detail kept: "
    assert found.sentence() == f"{text}{found.detail_words()}."
    (only,) = found.channels
    worse = replace(found, channels=(replace(only, noise=0.5 * after),))
    assert worse.sentence() == (
        f"The error rises, from {0.5 * after:.3g} to {after:.2g} grey levels."
    )
    small = replace(only, error=0.0, mse_error=1.0)
    assert "to at most 1.3 grey levels" in replace(found, channels=(small,)).sentence()
    blind = replace(only, detail=replace(only.detail, judged=(False,) * len(only.detail.judged)))
    assert replace(found, channels=(blind,)).sentence().endswith("; the noise hides all detail.")


def test_a_result_worse_than_the_image_is_a_warning(scene):
    clean, _ = scene
    found = gd.assess(with_noise(clean, sigma=2), FAST, 2, sigma_factor=12)
    assert found.channels[0].gain < 0
    assert "expected to be worse than the image" in found.warnings[0]
    assert "dB less" not in found.summary()


def test_the_interval_holds_the_truth_in_nine_of_ten_images():
    held = []
    for seed in range(30):
        clean = clean_of((64, 64), seed)
        noisy = with_noise(clean, seed + 100)
        found = gd.assess(noisy, FAST, SIGMA)
        low, high = found.channels[0].bounds
        held.append(low <= true_error(found, noisy, clean, sigma=SIGMA) ** 0.5 <= high)
    assert 24 <= sum(held) < 30


def test_a_measured_sigma_is_less_sure(scene):
    noise = gd.estimate_noise(scene[1])
    told, measured = (
        gd.assess(scene[1], FAST, noise=each).channels[0] for each in (noise.models[0], noise)
    )
    by_sigma = 2 * noise.standard_error[0] * noise.sigma[0]
    assert measured.error == told.error
    assert measured.mse_error > np.hypot(told.mse_error, 0.5 * by_sigma)


@pytest.mark.parametrize("seed", range(3))
def test_skewed_noise_leaves_no_bias(seed):
    rng = np.random.default_rng(seed)
    shape = 200, 200
    light, signal = clean_of(shape, seed) / 40, np.maximum(clean_of(shape, seed) - 110, 0)
    light = np.maximum(light, 0.2)
    counts = (rng.poisson(light) + rng.normal(0, 0.5, shape)).astype(np.float32)
    magnitude = np.hypot(signal + rng.normal(0, SIGMA, shape), rng.normal(0, SIGMA, shape))
    photons, rician = gd.PoissonGaussian(1.0, 0.5), gd.Rician(SIGMA)
    cases = (counts, light, photons), (magnitude.astype(np.float32), signal, rician)
    for noisy, clean, model in cases:
        found = gd.assess(noisy, gd.BM3D.of(profile="fast"), noise=model)
        result = gd.denoise(noisy, gd.BM3D.of(profile="fast"), noise=model, dtype="float32").image
        if model is rician:
            result, clean = model.expected(result), model.expected(clean)
        truth = float(np.mean((result - clean) ** 2))
        assert abs(found.mse - truth) < 2 * found.channels[0].mse_error


def test_photons():
    clean = np.maximum(clean_of() / 8, 0.5)
    model = gd.PoissonGaussian(1.0, 0.5)
    rng = np.random.default_rng(2)
    noisy = (rng.poisson(clean) + rng.normal(0, 0.5, clean.shape)).astype(np.float32)
    found = gd.assess(noisy, FAST, noise=model)
    truth = true_error(found, noisy, clean, noise=model)
    assert abs(found.mse - truth) < 4 * found.channels[0].mse_error + 0.1 * truth
    assert found.warnings == ()


def test_photons_are_split_into_independent_images():
    model, rng, alpha = gd.PoissonGaussian(2.0, 3.0, 100.0), np.random.default_rng(3), 0.1
    values = 100 + 2 * rng.poisson(40, (300, 300)) + rng.normal(0, 3, (300, 300))
    noise = CropNoise(SimpleNamespace(models=(model,)), "YX", values.shape, "told")
    both = noise.split(values.astype(np.float32), alpha, rng)
    for image, factor in zip(both, (1 + alpha, 1 + 1 / alpha), strict=True):
        assert image.mean() == pytest.approx(180, rel=2e-3)
        assert image.var() == pytest.approx(factor * model.variance(180), rel=0.03)
    assert abs(np.corrcoef(*map(np.ravel, both))[0, 1]) < 0.01


def test_fresh_noise_is_shared_by_channels_as_the_noise_is():
    shared = (-0.1, 0.2, 0.3)
    for kind in (gd.Gaussian, lambda *told: gd.PoissonGaussian(1.0, told[0], shared=told[1])):
        models = tuple(kind(sigma, each) for sigma, each in zip((9, 5, 7), shared, strict=True))
        noise = CropNoise(SimpleNamespace(models=models), "YXS", (90, 80, 3), "told")
        made = noise.unit(np.random.default_rng(0)).reshape(-1, 3)
        assert made.dtype == np.float32
        wanted = [[1, -0.2, 0], [-0.2, 1, 0.6], [0, 0.6, 1]]
        np.testing.assert_allclose(np.cov(made.T), wanted, atol=0.04)
        # Pixels of other channels tell of the noise.
        assert not noise.photons
        assert not noise.checkable


def test_where_there_is_no_light_there_may_be_no_noise():
    light = np.maximum(clean_of() - 90, 0)
    noisy = (2 * np.random.default_rng(2).poisson(light / 2)).astype(np.float32)
    found = gd.assess(noisy, FAST, noise=gd.PoissonGaussian(2.0, 0.0, 0.0))
    assert np.isfinite(found.residual).all()
    assert np.isfinite(found.check.losses).all()
    assert not any("sigma" in each for each in found.warnings)


def test_magnitudes_are_judged_as_they_are_measured():
    clean, rng = np.maximum(clean_of() - 80, 0), np.random.default_rng(3)
    real, other = (rng.normal(0, SIGMA, clean.shape) for _ in range(2))
    noisy = np.hypot(clean + real, other).astype(np.float32)
    model = gd.Rician(SIGMA)
    found = gd.assess(noisy, FAST, noise=model)
    result = gd.denoise(noisy, FAST, noise=model).image
    truth = float(np.mean((model.expected(result) - model.expected(clean)) ** 2))
    assert abs(found.mse - truth) < 4 * found.channels[0].mse_error + 0.1 * truth
    assert found.check is None


def test_correlated_noise_given_as_a_model(scene):
    clean, _ = scene
    noise = gaussian_filter(np.random.default_rng(5).normal(0, 1, clean.shape), 0.6, mode="wrap")
    noise *= SIGMA / noise.std()
    shifted = [[np.roll(noise, (j, i), (0, 1)) for i in range(5)] for j in range(5)]
    table = [[float(np.mean(noise * one)) / SIGMA**2 for one in row] for row in shifted]
    table[0][0] = 1.0
    noisy, model = (clean + noise).astype(np.float32), gd.Correlated(SIGMA, table)
    found = gd.assess(noisy, FAST, noise=model)
    truth = true_error(found, noisy, clean, noise=model)
    assert abs(found.mse - truth) < 4 * found.channels[0].mse_error + 0.1 * truth
    assert not any("is correlated" in each for each in found.warnings)


def test_channels_are_judged_one_by_one(scene):
    clean, _ = scene
    both = np.stack([clean, clean[::-1]])
    noisy = np.stack([with_noise(clean, 1, 6), with_noise(clean[::-1], 2, 18)])
    found = gd.assess(noisy, FAST, (6, 18), axes="CYX")
    assert [round(each.noise) for each in found.channels] == [6, 18]
    inner = gd.denoise(noisy, FAST, (6, 18), axes="CYX", dtype="float32").image
    for k, each in enumerate(found.channels):
        truth = np.mean((inner[k] - both[k]) ** 2)
        assert abs(each.error**2 - truth) < 4 * each.mse_error + 0.05 * truth
    assert "channel 1" in found.summary()
    last = gd.assess(np.moveaxis(noisy, 0, -1), FAST, (6, 18), axes="YXC")
    assert last.error_map.shape == (*clean.shape, 2)
    assert last.channels[1].error == pytest.approx(found.channels[1].error, rel=0.1)


def test_a_second_image_is_used_for_the_detail(scene, found):
    clean, noisy = scene
    two = gd.assess(noisy, FAST, SIGMA, second=with_noise(clean, 9))
    one, other = found.channels[0].detail, two.channels[0].detail
    judged = np.array(one.judged) & np.array(other.judged)
    assert judged.sum() >= 2
    np.testing.assert_allclose(np.array(one.kept)[judged], np.array(other.kept)[judged], atol=0.15)


def test_a_filter_over_time_gets_its_frames():
    clean = clean_of((64, 72))
    noisy = np.stack([with_noise(clean, k) for k in range(7)])
    filter = gd.NLMeans(step=4, window=11, frames_before=1, frames_after=1)
    found = gd.assess(noisy, filter, SIGMA, axes="TYX", region=(3, slice(0, 64), slice(0, 72)))
    assert found.region == ((3, 4), (0, 64), (0, 72))
    truth = true_error(found, noisy, np.stack([clean] * 7), filter, axes="TYX", sigma=SIGMA)
    assert abs(found.mse - truth) < 4 * found.channels[0].mse_error + 0.05 * truth


def test_a_volume_is_judged_by_some_slices():
    rng = np.random.default_rng(6)
    clean = 100 + 400 * gaussian_filter(rng.normal(0, 1, (14, 40, 44)), 3)
    noisy = (clean + rng.normal(0, SIGMA, clean.shape)).astype(np.float32)
    filter = gd.BM4D.of(profile="fast", cube="4x4x4")
    found = gd.assess(noisy, filter, SIGMA, axes="ZYX")
    assert found.region == ((3, 11), (0, 40), (0, 44))
    assert found.residual.shape == (8, 40, 44)
    truth = true_error(found, noisy, clean, filter, axes="ZYX", sigma=SIGMA)
    assert abs(found.mse - truth) < 5 * found.channels[0].mse_error + 0.05 * truth


def test_pixels_that_are_no_image_do_not_count(scene):
    holed = scene[1].copy()
    holed[:40, :40] = np.nan
    found = gd.assess(holed, FAST, SIGMA, nonfinite="keep")
    assert np.isfinite(found.mse)
    assert np.all(found.error_map[:40, :40] == 0)
    assert found.warnings == ()


def test_a_filter_without_sigma_is_judged_by_the_noise():
    clean = clean_of((320, 300))
    gamma = np.random.default_rng(8).gamma(9, 1 / 9, clean.shape)
    noisy = (np.maximum(clean, 20) * gamma).astype(np.float32)
    filter = gd.Isoline(criterion="multiplicative", looks=9)
    found = gd.assess(noisy, filter, noise=gd.Speckle(9))
    assert found.check is None
    truth = true_error(found, noisy, np.maximum(clean, 20), filter)
    assert found.mse == pytest.approx(truth, rel=0.35)


def test_noise_is_measured_where_it_is_not_given(scene):
    found = gd.assess(scene[1], FAST)
    assert found.noise_source.startswith("estimated")
    assert found.channels[0].noise == pytest.approx(SIGMA, rel=0.1)


def test_large_levels_keep_their_digits(scene):
    found = gd.assess(scene[1].astype(np.float64) + 1e8, FAST, SIGMA)
    plain = gd.assess(scene[1].astype(np.float64), FAST, SIGMA)
    assert found.error == pytest.approx(plain.error, rel=0.02)


@pytest.mark.parametrize(
    "change, error, word",
    [
        ({"filter": "bm3d"}, errors.SettingsError, "not a filter"),
        ({"sigma": 0}, errors.SettingsError, "Sigma is 0"),
        ({"region": (slice(0, 8), slice(0, 8))}, errors.ImageError, "at least 32"),
        ({"region": "middle"}, errors.SettingsError, "region"),
        ({"region": (500, slice(0, 64))}, errors.SettingsError, "region"),
        ({"spacing": -1}, errors.SettingsError, "spacing"),
        ({"second": np.zeros((4, 4))}, errors.ImageError, "second"),
        ({"filter": gd.Isoline(show="classes")}, errors.SettingsError, "map"),
    ],
    ids=["filter", "sigma", "small", "word", "beyond", "spacing", "second", "map"],
)
def test_errors_say_what_to_do(scene, change, error, word):
    given = {"filter": FAST, "sigma": SIGMA} | change
    with pytest.raises(error, match=word):
        gd.assess(scene[1], **given)


def test_it_can_be_cancelled(scene):
    cancel, seen = Event(), []

    def progress(done, total):
        seen.append((done, total))
        cancel.set()

    with pytest.raises(errors.Cancelled, match="no assessment"):
        gd.assess(scene[1], FAST, SIGMA, progress=progress, cancel=cancel)
    assert seen[0] == (0, 9)
