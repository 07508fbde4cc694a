"""Noise along the planes of a stack: its strength, and its spectrum."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, shift

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise.series import first_positions, plane_factors
from reference.data import REASON, data_folder, pictures
from scenes import noisy

SETTINGS = gd.NLMeans(window=7, neighbours=4)


def scene(count: int, ny: int = 96, nx: int = 110) -> np.ndarray:
    """Return smooth planes that move."""
    y, x = np.mgrid[:ny, :nx]
    return np.stack([120 + 50 * np.sin((x + 2 * k) / 17) * np.cos(y / 23) for k in range(count)])


def ramp(count: int, low=4.0, high=30.0, seed=0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return clean planes, noisy ones, and the sigma of each."""
    sigma = np.linspace(low, high, count)
    clean = scene(count)
    noise = np.random.default_rng(seed).standard_normal(clean.shape)
    return clean, (clean + noise * sigma[:, None, None]).astype(np.float32), sigma


@pytest.mark.parametrize("axes", ["TYX", "ZYX", ".YX", "QYX"])
def test_sigma_of_each_plane_is_found(axes):
    _, image, sigma = ramp(7)
    estimate = gd.estimate_noise(image, axes)
    assert estimate.name == "gaussian" and estimate.white
    factors = plane_factors(estimate, image.shape)
    assert factors.shape == (7, 1, 1)
    np.testing.assert_allclose(factors.ravel() * estimate.sigma[0], sigma, rtol=0.1)
    assert gd.NoiseEstimate.from_dict(estimate.as_dict()) == estimate


def test_channels_differ_by_themselves():
    _, image, sigma = ramp(6)
    both = np.stack([image, noisy(6, 96, 110)])
    for axes, place in (("CTYX", 0), ("TCYX", 1)):
        given = np.moveaxis(both, 0, place)
        estimate = gd.estimate_noise(given, axes)
        factors = np.moveaxis(plane_factors(estimate, given.shape), place, 0)[..., 0, 0]
        np.testing.assert_allclose(factors[0] * estimate.sigma[0], sigma, rtol=0.1)
        np.testing.assert_allclose(factors[1], 1, rtol=0.1)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_photographs_of_unlike_brightness_have_a_sigma_each():
    """Together they pass for noise that depends on brightness, which is not proven."""
    clean = np.stack([each[:256, :256] for each in list(pictures("bsd68").values())[:50:7]])
    sigma, drawn = np.arange(3.0, 25, 3), np.random.default_rng(1).standard_normal(clean.shape)
    estimate = gd.estimate_noise((clean + sigma[:, None, None] * drawn).astype(np.float32), ".YX")
    assert estimate.name == "gaussian"
    found = plane_factors(estimate, clean.shape).ravel() * estimate.sigma[0]
    np.testing.assert_allclose(found, sigma, rtol=0.35)


def test_two_axes_multiply():
    factors = np.multiply.outer(np.linspace(1, 3, 5), np.linspace(1, 2, 4))
    noise = np.random.default_rng(1).standard_normal((5, 4, 96, 110)) * factors[..., None, None]
    image = (scene(4) + 5 * noise).astype(np.float32)
    estimate = gd.estimate_noise(image, "TZYX")
    found = plane_factors(estimate, image.shape)[..., 0, 0] * estimate.sigma[0]
    np.testing.assert_allclose(found, 5 * factors, rtol=0.15)


def texture(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return a texture that looks like correlated noise of sigma 30 on planes (y, x)."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    blurred = gaussian_filter(noise, (0,) * (len(shape) - 2) + (0.7, 0.7))
    return 200 + 30 * blurred / blurred.std()


@pytest.mark.parametrize(
    ("axes", "length"), [("TYX", 8), ("TYX", 2), ("QYX", 3), ("TZYX", 5), ("QCYX", 4), ("YXT", 6)]
)
def test_repeats_of_a_scene_bound_sigma(axes, length):
    """What repeats share is not noise, whatever one of them suggests."""
    lengths = {"T": length, "Q": length, "C": 2, "Z": 4, "Y": 96, "X": 110}
    once = texture(tuple(1 if a in "TQ" else lengths[a] for a in axes.replace("YXT", "TYX")))
    if axes == "YXT":
        once = np.moveaxis(once, 0, -1)
    weak = 3 * np.random.default_rng(1).standard_normal([lengths[a] for a in axes])
    image = (once + weak).astype(np.float32)
    for padding, models in (
        (0, ("auto", "correlated", "gaussian", "poisson-gaussian")),
        (20, ("auto",)),
    ):
        image[..., :padding] = 0 if axes != "YXT" else image[..., :padding]
        for model in models:
            estimate = gd.estimate_noise(image, axes, model)
            factors = plane_factors(estimate, image.shape)
            largest = max(estimate.sigma) * (1 if factors is None else factors.max())
            assert largest <= 1.1 * 3.1, model
            assert any("repeats" in note for note in estimate.notes)
    assert np.std(gd.bm3d(image, axes=axes, profile="fast") - image) < 3.2


def test_repeats_that_hold_the_same_noise_tell_nothing():
    image = noisy(1, 96, 110)
    for axes in ("TYX", "QYX"):
        estimate = gd.estimate_noise(np.repeat(image, 5, axis=0), axes)
        assert estimate.sigma[0] == pytest.approx(gd.estimate_noise(image[0]).sigma[0], rel=0.05)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_a_perfusion_series_keeps_its_anatomy():
    image = np.load(data_folder() / "trust/repeat_pcasl.npz")["a"]
    others = np.array([(image[k % 2 :: 2].sum(0) - image[k]) / 4 for k in range(len(image))])
    result = gd.bm3d(image, axes="TZYX", profile="fast", dtype="float32")
    before, after = (np.sqrt(np.mean((x - others) ** 2)) for x in (image, result))
    assert 20 * np.log10(after / before) < 0.3


@pytest.mark.parametrize("count", [5, 32, 33, 200, 256])
def test_the_first_planes_are_spread_and_follow_no_rhythm(count):
    index = list(range(10, 10 + 3 * count, 3))
    first = first_positions(index)
    assert len(first) == min(count, 32) and sorted(set(first)) == first
    assert set(first) <= set(index)
    assert np.diff(first).max() <= 3 * 2 * -(-count // 32)
    if count == 256:
        for rhythm in range(2, 17):
            assert len({(k - 10) // 3 % rhythm for k in first}) == rhythm


@pytest.mark.parametrize("strong", [0, 1, 16])
def test_all_planes_are_read_where_the_first_do_not_agree(strong):
    """One of many that is in no row with the others, and some that make a difference."""
    count = 100
    noise = np.random.default_rng(2).normal(0, 3, (count, 40, 40))
    first = first_positions(list(range(count)))
    noise[first[: 2 * strong : 2]] *= 2
    image = (50 + noise).astype(np.float32)
    calm = 50 + np.random.default_rng(3).normal(0, 3, image.shape)
    series = gd.estimate_noise(np.stack([image, calm], axis=1), "TCYX").frames
    assert len(series.index) == (count if strong else len(first))
    assert list(series.index) == (list(range(count)) if strong else first)
    factors = plane_factors(gd.estimate_noise(image, "TYX"), image.shape)
    assert (factors is None) == (strong < 10)
    if strong == 16:
        ratio = factors[first[: 2 * strong : 2]].mean() / factors[first[1::2]].mean()
        assert ratio == pytest.approx(2, rel=0.1)


def test_padding_that_no_sampled_plane_shows_is_found():
    padded = noisy(40, 96, 110)
    hidden = (set(first_positions(list(range(40)))) - set(range(2, 40, 5))).pop()
    padded[hidden, :30] = 0
    assert len(gd.estimate_noise(padded, "TYX").frames.index) == 40


def test_filters_use_it(device):
    clean, image, sigma = ramp(6)
    result = gd.denoise(image, SETTINGS, axes="TYX", device=device)
    told = gd.denoise(image, SETTINGS, sigma, axes="TYX", device=device).image
    one = gd.denoise(image, SETTINGS, float(np.median(sigma)), axes="TYX", device=device).image

    def error(found):
        return float(np.sqrt(np.mean((found - clean) ** 2)))

    assert error(result.image) < 1.03 * error(told)
    assert error(result.image) < 0.97 * error(one)
    (note,) = (note for note in result.record.notes if "differs between planes" in note)
    assert "by a factor of" in note


PARTS = (0.0, 0.5, 0.25, 0.5, 0.4, 0.5)  # of a pixel, along both axes


def registered(seed: int = 0, ny: int = 128, nx: int = 136) -> tuple[np.ndarray, np.ndarray]:
    """Return planes that were moved by parts of a pixel, linearly, and their noise alone."""
    y, x = np.mgrid[:ny, :nx]
    clean = 120 + 50 * np.sin(x / 17) * np.cos(y / 23)
    drawn = np.random.default_rng(seed).normal(0, 20, (len(PARTS), ny, nx))
    noise = np.array(
        [shift(n, p, order=1, mode="mirror") for n, p in zip(drawn, PARTS, strict=True)]
    )
    return (clean + noise).astype(np.float32), noise


@pytest.mark.parametrize("axes", ["TYX", "ZYX", ".YX"])
def test_sigma_of_planes_that_differ_in_their_spectrum(axes):
    image, noise = registered()
    # Nothing proves correlated noise in planes that share no scene.
    estimate = gd.estimate_noise(image, axes, "correlated" if axes == "ZYX" else "auto")
    assert estimate.name == "correlated" and not estimate.white
    assert estimate.sigma[0] == pytest.approx(noise.std(), rel=0.1)
    (series,) = estimate.series
    np.testing.assert_allclose(series.sigma[0], noise.std(axis=(1, 2)), rtol=0.12)
    told = json.loads(json.dumps(estimate.as_dict(), allow_nan=False))
    assert gd.NoiseEstimate.from_dict(told) == estimate
    name = {"T": "frames", "Z": "slices"}.get(axes[0], "others")
    told[name]["autocorrelation"] = []  # of an earlier version
    assert gd.NoiseEstimate.from_dict(told) == estimate
    told[name]["factor"][0].pop()
    with pytest.raises(SettingsError, match="not a noise estimate"):
        gd.NoiseEstimate.from_dict(told)
    # One without pixels has none.
    image[3] = np.nan
    (series,) = gd.estimate_noise(image, axes, "correlated").series
    assert np.flatnonzero(np.isnan(series.sigma[0])).tolist() == [3]
