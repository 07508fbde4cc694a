"""Noise that differs between frames, slices or images: found, and used by every way in."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy.ndimage import shift

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise import sampling
from napari_gpu_denoise.noise.series import first_positions, plane_axis, plane_factors
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


def test_planes_of_one_noise_share_it():
    image = noisy(6, 96, 110)
    for axes in ("TYX", "ZYX", ".YX"):
        assert plane_factors(gd.estimate_noise(image, axes), image.shape) is None


def test_channels_differ_by_themselves():
    _, image, sigma = ramp(6)
    both = np.stack([image, noisy(6, 96, 110)])
    for axes, place in (("CTYX", 0), ("TCYX", 1)):
        given = np.moveaxis(both, 0, place)
        estimate = gd.estimate_noise(given, axes)
        factors = np.moveaxis(plane_factors(estimate, given.shape), place, 0)[..., 0, 0]
        np.testing.assert_allclose(factors[0] * estimate.sigma[0], sigma, rtol=0.1)
        np.testing.assert_allclose(factors[1], 1, rtol=0.1)


def test_two_axes_multiply():
    factors = np.multiply.outer(np.linspace(1, 3, 5), np.linspace(1, 2, 4))
    noise = np.random.default_rng(1).standard_normal((5, 4, 96, 110)) * factors[..., None, None]
    image = (scene(4) + 5 * noise).astype(np.float32)
    estimate = gd.estimate_noise(image, "TZYX")
    found = plane_factors(estimate, image.shape)[..., 0, 0] * estimate.sigma[0]
    np.testing.assert_allclose(found, 5 * factors, rtol=0.15)


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
    series = gd.estimate_noise(image, "TYX").frames
    assert len(series.index) == (count if strong else len(first))
    assert list(series.index) == (list(range(count)) if strong else first)
    factors = plane_factors(gd.estimate_noise(image, "TYX"), image.shape)
    assert (factors is None) == (strong < 10)
    if strong == 16:
        ratio = factors[first[: 2 * strong : 2]].mean() / factors[first[1::2]].mean()
        assert ratio == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("axes", ["TYX", "ZYX", "TCYX"])
def test_threads_find_what_one_finds(axes, monkeypatch):
    image = ramp(12)[1].reshape((6, 2, 96, 110) if "C" in axes else (12, 96, 110))
    monkeypatch.setattr(sampling, "LARGE", 1)
    monkeypatch.setattr(sampling.os, "cpu_count", lambda: 1)
    one = gd.estimate_noise(image, axes)
    assert sampling.PlaneReader(image, axes).threads == 1
    monkeypatch.setattr(sampling.os, "cpu_count", lambda: 4)
    assert sampling.PlaneReader(image, axes).threads == 4
    assert gd.estimate_noise(image, axes) == one
    # Not where planes are read from elsewhere.
    assert sampling.PlaneReader(da.from_array(image), axes).threads == 1


def test_few_patches_of_large_planes_show_that_they_agree(monkeypatch):
    """Where they do not, everything is as if all planes had been read at once."""
    image, alike = ramp(12)[1], noisy(12, 96, 110)
    told, same = gd.estimate_noise(image, "TYX"), gd.estimate_noise(alike, "TYX").frames
    monkeypatch.setattr(sampling, "LARGE", 1)
    assert gd.estimate_noise(image, "TYX") == told
    few = gd.estimate_noise(alike, "TYX").frames
    assert few != same and few.index == same.index
    # A frame with padding that no sampled plane shows.
    padded = noisy(40, 96, 110)
    hidden = (set(first_positions(list(range(40)))) - set(range(2, 40, 5))).pop()
    padded[hidden, :30] = 0
    assert len(gd.estimate_noise(padded, "TYX").frames.index) == 40
    np.testing.assert_allclose(few.sigma, same.sigma, rtol=0.1)


def test_longest_axis_of_planes():
    assert plane_axis("TCYX", (9, 3, 30, 30)) is None
    assert plane_axis(".QYX", (3, 5, 30, 30)) == 1
    assert plane_axis(".YX", (1, 30, 30)) is None


@pytest.mark.parametrize("filter", [SETTINGS, gd.VBM3D.of(profile="fast")])
def test_filters_use_it(device, filter):
    clean, image, sigma = ramp(6)
    result = gd.denoise(image, filter, axes="TYX", device=device)
    told = gd.denoise(image, filter, sigma, axes="TYX", device=device).image
    one = gd.denoise(image, filter, float(np.median(sigma)), axes="TYX", device=device).image

    def error(found):
        return float(np.sqrt(np.mean((found - clean) ** 2)))

    assert error(result.image) < 1.03 * error(told)
    assert error(result.image) < 0.97 * error(one)
    (note,) = (note for note in result.record.notes if "differs between planes" in note)
    assert "by a factor of" in note


class Stored:
    """An array that is not in memory."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, index):
        return self.array[index]

    def __setitem__(self, index, values):
        self.array[index] = values


@pytest.mark.parametrize("noise", ["auto", "poisson-gaussian"])
@pytest.mark.parametrize("filter", [SETTINGS, gd.VBM3D.of(profile="fast")])
def test_every_way_in_gives_the_same(device, filter, noise):
    _, image, _ = ramp(6)
    image = np.rint(image).clip(0, 255).astype(np.uint8)
    options = {"noise": noise, "axes": "TYX", "device": device}
    whole = gd.denoise(image, filter, **options)
    assert any("differs between planes" in note for note in whole.record.notes)
    out = Stored(np.zeros(image.shape, whole.image.dtype))
    gd.denoise(Stored(image), filter, out=out, **options)
    np.testing.assert_array_equal(out.array, whole.image)
    lazy = gd.denoise_lazy(da.from_array(image, chunks=(3, 96, 110)), filter, **options)
    np.testing.assert_array_equal(lazy.compute(), whole.image)


def test_estimates_of_other_images_are_not_taken_for_their_planes(device):
    _, image, _ = ramp(6)
    estimate = gd.estimate_noise(image, "TYX")
    for given, expected in ((image, True), (image[:5], False)):
        record = gd.denoise(given, SETTINGS, noise=estimate, axes="TYX", device=device).record
        assert any("differs between planes" in note for note in record.notes) is expected


def test_frames_shifted_by_parts_of_a_pixel_keep_their_low_frequencies():
    rng, sigma = np.random.default_rng(0), []
    frames = []
    for k, clean in enumerate(scene(6, 160, 170)):
        noise = rng.normal(0, 20, clean.shape)
        if k % 3:
            part = (0.5, 0.25)[k % 3 - 1]
            noise = shift(noise, (part, part), order=1, mode="mirror")
        sigma.append(noise.std())
        frames.append(clean + noise)
    image = np.array(frames, np.float32)
    estimate = gd.estimate_noise(image, "TYX")
    np.testing.assert_allclose(estimate.frames.sigma[0], sigma, rtol=0.2)
