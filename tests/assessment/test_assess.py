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
from napari_gpu_denoise.assessment.formulas import FACTORS, Detail, Statistics
from napari_gpu_denoise.assessment.record import ChannelQuality
from napari_gpu_denoise.assessment.trial import CropNoise

SIGMA = 12.0
FAST, BM3D = gd.NLMeans(step=4, window=11), gd.BM3D.of(profile="fast")


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
    return gd.assess(scene[1], FAST, SIGMA, spacing=0.1, unit="µm")


def true_error(found, noisy, clean, filter=FAST, **told):
    result, model = gd.denoise(noisy, filter, dtype="float32", **told).image, told.get("noise")
    if isinstance(model, gd.Rician):  # as it is measured
        result, clean = model.expected(result), model.expected(clean)
    inner = tuple(slice(*each) for each in found.region)
    return float(np.mean((result[inner] - clean[inner]) ** 2))


def photons(seed):
    rng, light, model = np.random.default_rng(seed), clean_of((200, 200), seed) / 40, (1.0, 0.5)
    light = np.maximum(light, 0.2)
    noisy = (rng.poisson(light) + rng.normal(0, 0.5, light.shape)).astype(np.float32)
    return light, noisy, BM3D, {"noise": gd.PoissonGaussian(*model)}


def magnitudes(seed):
    clean, rng = np.maximum(clean_of((200, 200), seed) - 110, 0), np.random.default_rng(seed)
    parts = clean + rng.normal(0, SIGMA, clean.shape), rng.normal(0, SIGMA, clean.shape)
    return clean, np.hypot(*parts).astype(np.float32), BM3D, {"noise": gd.Rician(SIGMA)}


def correlated(seed):
    clean, rng = clean_of(), np.random.default_rng(seed)
    noise = gaussian_filter(rng.normal(0, 1, clean.shape), 0.6, mode="wrap")
    noise *= SIGMA / noise.std()
    shifted = [[np.roll(noise, (j, i), (0, 1)) for i in range(5)] for j in range(5)]
    table = [[float(np.mean(noise * one)) / SIGMA**2 for one in row] for row in shifted]
    table[0][0] = 1.0
    noisy = (clean + noise).astype(np.float32)
    return clean, noisy, FAST, {"noise": gd.Correlated(SIGMA, table)}


def frames(seed):
    clean = np.stack([clean_of((64, 72))] * 7)
    filter = gd.NLMeans(step=4, window=11, frames_before=1, frames_after=1)
    return clean, with_noise(clean, seed), filter, {"sigma": SIGMA, "axes": "TYX"}


def slices(seed):
    clean = 100 + 400 * gaussian_filter(np.random.default_rng(6).normal(0, 1, (14, 40, 44)), 3)
    told = {"sigma": SIGMA, "axes": "ZYX"}
    return clean, with_noise(clean, seed), gd.BM4D.of(profile="fast", cube="4x4x4"), told


CASES = {
    "white": lambda: (clean_of(), with_noise(clean_of()), FAST, {"sigma": SIGMA}),
    "white, measured": lambda: (clean_of(), with_noise(clean_of()), FAST, {}),
    "stronger": lambda: (
        *(clean_of(), with_noise(clean_of()), FAST),
        {"sigma": SIGMA, "sigma_factor": 1.5},
    ),
    "photons": lambda: photons(1),
    "magnitudes": lambda: magnitudes(1),
    "correlated": lambda: correlated(5),
    "frames": lambda: frames(1),
    "slices": lambda: slices(6),
}


@pytest.mark.parametrize("case", CASES)
def test_the_error_is_predicted_and_nothing_is_warned_of(case):
    clean, noisy, filter, told = CASES[case]()
    found = gd.assess(noisy, filter, **told)
    truth = true_error(found, noisy, clean, filter, **told)
    (channel,) = found.channels
    exact = 0.05 * truth if case not in ("photons", "magnitudes") else 0.0
    assert abs(found.mse - truth) < (4 if exact else 2) * channel.mse_error + exact
    assert not any("worse" in each or "far too low" in each for each in found.warnings)
    assert case not in ("magnitudes", "correlated") or found.check is None
    if case in ("white", "stronger"):
        assert found.check.fits and not found.warnings, "sigma is checked, not the strength"
        assert channel.noise == pytest.approx(SIGMA)
    region = {"frames": ((3, 4), (0, 64), (0, 72)), "slices": ((3, 11), (0, 40), (0, 44))}
    assert found.region == region.get(case, tuple((0, n) for n in noisy.shape))
    assert found.noise_source.startswith("estimated") == (case == "white, measured")


def test_it_is_the_same_each_time_and_fits_in_json(scene, found):
    again = gd.assess(scene[1], FAST, SIGMA, spacing=0.1, unit="µm")
    assert again == found
    np.testing.assert_array_equal(again.residual, found.residual)
    text = found.summary()
    assert len(text.splitlines()) < 30
    assert "µm" in text and "Detail kept" in text
    values = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert values["mse"] == pytest.approx(found.mse)
    assert values["region"] == [[0, 128], [0, 120]]
    assert "residual" not in values


def test_fresh_noise_is_not_that_of_an_image_drawn_with_a_small_seed(scene):
    fresh = np.random.default_rng(0).standard_normal(scene[0].shape, np.float32)
    noisy = scene[0] + np.float32(SIGMA) * fresh
    same = gd.assess(noisy, FAST, SIGMA)
    truth = true_error(same, noisy, scene[0], sigma=SIGMA)
    assert abs(same.mse - truth) < 4 * same.channels[0].mse_error + 0.05 * truth


@pytest.mark.parametrize(("scale", "offset", "near"), [(1 / 256, 0.0, 1e-3), (1.0, 1e8, 0.02)])
def test_other_grey_levels_change_nothing_else(scene, found, scale, offset, near):
    image = scene[1].astype(np.float64) * scale + offset
    other = gd.assess(image, FAST, SIGMA * scale)
    assert other.error / scale == pytest.approx(found.error, rel=near)


def test_a_wrong_sigma_is_noticed(scene):
    low = gd.assess(scene[1], FAST, 0.6 * SIGMA)
    assert not low.check.fits and low.check.best > 1.25
    assert low.check.best > max(FACTORS), "unseen pixels of the twin are predicted best below 1"
    assert any("too high or too low" in each for each in low.warnings)
    assert any("sigma may be low" in each for each in low.warnings)
    high = gd.assess(scene[1], FAST, 1.33 * SIGMA)
    assert not high.check.fits and high.check.best < 0.85
    assert any("sigma may be high" in each for each in high.warnings)
    assert "times this sigma" in high.check_words()


@pytest.mark.parametrize("sigma", [6, 25])
def test_the_true_sigma_is_not_doubted_beside_structure(scene, sigma):
    found = gd.assess(with_noise(scene[0], 5, sigma), BM3D, sigma)
    assert found.warnings == () and (found.check is None or found.check.fits)


@pytest.mark.parametrize(
    "spoil, word",
    [
        (lambda y: gaussian_filter(y, 0.7), "is correlated"),
        (lambda y: y + 9 * np.random.default_rng(4).normal(0, 1, (len(y), 1)), "rows"),
        (lambda y: np.clip(y, 90, 180), "or pixels are clipped"),
    ],
    ids=["correlated", "rows", "clipped"],
)
def test_what_is_not_as_assumed_is_said(scene, spoil, word):
    found = gd.assess(spoil(scene[1]).astype(np.float32), FAST, SIGMA)
    assert word in found.warnings[0] and word in found.summary()


@pytest.mark.parametrize(
    "error, mse_error, words",
    [
        (2, 0.1, "2.000 ± 0.042 grey levels (90 %), of 8 before (12.0 dB less)"),
        (0, 3.8, "at most 2.5 grey levels, of 8 before (at least 10.1 dB less)"),
        (26, 10, "26.00 ± 0.32 grey levels (90 %), more than the 8 before"),
        (0, 0, "too little to be measured, of 8 before"),
    ],
    ids=["sure", "too small", "worse", "none"],
)
def test_an_error_is_worded_by_what_is_known(error, mse_error, words):
    some = Statistics(1.0, 0.0, 0.0)
    found = ChannelQuality(8.0, error, mse_error, Detail((), (), ()), some, some)
    assert found.words() == words


def test_the_answer_is_a_sentence(scene, found):
    (only,) = found.channels
    before, after = only.noise, only.error
    text = f"The error falls from {before:.3g} to {after:.2g} grey levels; detail kept: "
    assert found.sentence() == f"{text}{found.detail_words()}."
    worse = replace(found, channels=(replace(only, noise=0.5 * after),))
    assert worse.sentence() == (
        f"The error rises, from {0.5 * after:.3g} to {after:.2g} grey levels."
    )
    small = replace(only, error=0.0, mse_error=1.0)
    assert "to at most 1.3 grey levels" in replace(found, channels=(small,)).sentence()
    blind = replace(only, detail=replace(only.detail, judged=(False,) * len(only.detail.judged)))
    assert replace(found, channels=(blind,)).sentence().endswith("; the noise hides all detail.")


def test_a_result_worse_than_the_image_is_a_warning(scene):
    found = gd.assess(with_noise(scene[0], sigma=2), FAST, 2, sigma_factor=12)
    assert "expected to be worse than the image" in found.warnings[0]


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
    # What the filter keeps of the noise is less sure by as much less.
    assert 0.5 < (measured.mse_error**2 - told.mse_error**2) ** 0.5 / by_sigma < 1


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
        assert not noise.checkable


def test_where_there_is_no_light_there_may_be_no_noise():
    light = np.maximum(clean_of() - 90, 0)
    noisy = (2 * np.random.default_rng(2).poisson(light / 2)).astype(np.float32)
    found = gd.assess(noisy, FAST, noise=gd.PoissonGaussian(2.0, 0.0, 0.0))
    assert np.isfinite(found.residual).all()
    assert np.isfinite(found.check.losses).all()
    assert not any("sigma" in each for each in found.warnings)


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
    last = gd.assess(np.moveaxis(noisy, 0, -1), FAST, (6, 18), axes="YXC")
    assert last.residual.shape == (*clean.shape, 2)
    assert last.channels[1].error == pytest.approx(found.channels[1].error, rel=0.1)


def test_pixels_that_are_no_image_do_not_count(scene):
    holed = scene[1].copy()
    holed[:40, :40] = np.nan
    found = gd.assess(holed, FAST, SIGMA, nonfinite="keep")
    assert np.isfinite(found.mse)
    assert np.all(found.residual[:40, :40] == 0)
    assert found.warnings == ()


def test_a_filter_without_sigma_is_judged_by_the_noise():
    clean = np.maximum(clean_of((320, 300)), 20)
    noisy = (clean * np.random.default_rng(8).gamma(9, 1 / 9, clean.shape)).astype(np.float32)
    filter = gd.Isoline(criterion="multiplicative", looks=9)
    found = gd.assess(noisy, filter, noise=gd.Speckle(9))
    assert found.check is None
    assert found.mse == pytest.approx(true_error(found, noisy, clean, filter), rel=0.35)


@pytest.mark.parametrize(
    "change, error, word",
    [
        ({"filter": "bm3d"}, errors.SettingsError, "not a filter"),
        ({"sigma": 0}, errors.SettingsError, "Sigma is 0"),
        ({"region": (slice(0, 8), slice(0, 8))}, errors.ImageError, "at least 32"),
        ({"region": "middle"}, errors.SettingsError, "region"),
        ({"region": (500, slice(0, 64))}, errors.SettingsError, "region"),
        ({"region": (slice(0, 64, 2), slice(0, 64))}, errors.SettingsError, "region"),
        ({"spacing": -1}, errors.SettingsError, "spacing"),
        ({"filter": gd.Isoline(show="classes")}, errors.SettingsError, "map"),
    ],
    ids=["filter", "sigma", "small", "word", "beyond", "gaps", "spacing", "map"],
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
