"""Photon and read noise of single images: the line, texture, and whole scenes."""

from __future__ import annotations

import json
from dataclasses import asdict

import imageio.v3 as imageio
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.errors import AxesError, NonFiniteError
from napari_gpu_denoise.noise import photon as photon_readings
from napari_gpu_denoise.noise import photon as photon_texture
from napari_gpu_denoise.noise.patches.frequencies import (
    PATCH,
    frequencies,
    frequency_order,
    frequency_sets,
)
from napari_gpu_denoise.noise.patches.selection import clipping_levels, photon_step
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra
from napari_gpu_denoise.noise.patches.variance import grouped
from napari_gpu_denoise.noise.photon import (
    COEFFICIENTS,
    Readings,
    level_variances,
    read_levels,
    robust_line,
    single_image_noise,
    surroundings,
    texture_spectrum,
    weighted_line,
)
from napari_gpu_denoise.noise.photon_pairs import still_noise
from napari_gpu_denoise.noise.sampling import PlaneStack
from reference.data import REASON, data_folder, pictures


def photons(picture, gain, read, seed=0):
    rng = np.random.default_rng(seed)
    return gain * rng.poisson(picture / gain) + rng.normal(0, read, picture.shape)


def shading(ny=256, nx=256):
    """Smooth shading, sharp edges, and fine texture in the lower half."""
    y, x = np.mgrid[:ny, :nx]
    picture = 60 + 0.6 * x + 20 * np.cos(y / 25)
    picture[(y - 70) ** 2 + (x - 80) ** 2 < 2500] += 50
    return picture + np.where(y > ny // 2, 15 * np.sin(2.1 * x) * np.sin(1.7 * y), 0)


@pytest.mark.parametrize(("gain", "read"), [(0.5, 2), (2, 5), (5, 2), (5, 10)])
def test_known_gain_and_read_noise(gain, read):
    found = [single_image_noise(photons(shading(), gain, read, seed)) for seed in range(8)]
    gains = np.array([each.gain for each in found])
    assert gains.mean() == pytest.approx(gain, rel=0.05)
    intercepts = np.array([each.intercept for each in found])
    assert abs(intercepts.mean() - read**2) < 0.13 * (100 * gain + read**2)
    predicted = np.sqrt(np.mean([each.gain_error**2 for each in found]))
    assert 0.4 < predicted / gains.std(ddof=1) < 4  # fine texture in half of it: it might be worse


def test_an_offset_is_seen_as_a_negative_intercept():
    found = single_image_noise(1000 + photons(shading(), 2, 0))
    assert found.gain == pytest.approx(2, rel=0.12)
    assert found.intercept < 0
    assert found.offset == pytest.approx(1000, rel=0.03)
    assert found.read_noise == 0
    assert np.isfinite(found.read_noise_error)


def test_noise_that_does_not_grow():
    found = single_image_noise(shading() + np.random.default_rng(0).normal(0, 8, (256, 256)))
    assert abs(found.gain) < 4 * found.gain_error
    # The line through the middle of the picture is what one sigma would be.
    assert found.gain * 140 + found.intercept == pytest.approx(64, rel=0.15)


def test_clipped_levels_are_left_out():
    """The bright third is cut off: its variance falls to nothing."""
    _, x = np.mgrid[:256, :256]
    image = np.rint(photons(20 + 1.0 * x, 2, 3).clip(0, 200)).astype(np.uint16)
    found = single_image_noise(image)
    assert found.gain == pytest.approx(2, rel=0.1)
    curve = found.curve
    assert not curve.used[-1]
    assert all(mean < 185 for mean, used in zip(curve.mean, curve.used, strict=True) if used)


def test_the_curve_lies_on_the_line():
    found = single_image_noise(photons(shading(), 2, 5))
    curve = found.curve
    assert list(curve.mean) == sorted(curve.mean)
    used = np.array(curve.used)
    mean, variance = np.array(curve.mean)[used], np.array(curve.variance)[used]
    many = np.array(curve.count)[used] >= 100
    assert variance[many] == pytest.approx(2 * mean[many] + 25, rel=0.2)
    assert json.loads(json.dumps(asdict(found)))["curve"]["count"] == list(curve.count)


def test_what_rounding_leaves_is_no_read_noise():
    y, x = np.mgrid[:128, :128]
    light = 12 + 10 * np.sin(x / 15) * np.sin(y / 12)
    image = (np.random.default_rng(4).poisson(light) * 2.5).astype(np.uint16)
    found = estimate_noise(image, model="poisson-gaussian").models[0]
    assert found.read_noise == 0 or found.read_noise > 1e-5 * found.gain


def test_several_exposures_make_one_curve():
    levels = np.array([50.0, 400, 1500, 3000])[:, None, None]
    found = single_image_noise(photons(levels * np.ones((4, 128, 128)), 0.3, 3))
    assert found.gain == pytest.approx(0.3, rel=0.05)
    assert found.read_noise == pytest.approx(3, rel=0.3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nonfinite_pixels_are_left_out(bad):
    image = photons(shading(), 2, 5)
    image[::20, ::20] = bad
    assert single_image_noise(image).gain == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("shape", [(9, 9), (8, 100), (64, 64)])
@pytest.mark.parametrize("value", [0, 7.3])
def test_constant_image_has_no_noise(shape, value):
    found = single_image_noise(np.full(shape, value))
    numbers = (found.gain, found.gain_error, found.intercept, found.read_noise, found.offset)
    assert numbers == (0, 0, 0, 0, 0)


def test_input_is_not_modified():
    image = photons(shading(), 2, 5)
    image.flags.writeable = False
    before = image.tobytes()
    single_image_noise(image)
    assert image.tobytes() == before


def test_refusals():
    with pytest.raises(AxesError, match="at least two axes"):
        single_image_noise(np.zeros(5))
    with pytest.raises(NonFiniteError):
        single_image_noise(np.full((20, 20), np.nan))


def test_lines():
    x = np.arange(1.0, 9)
    gain, intercept, covariance = weighted_line(x, 3 * x + 2, np.ones(8))
    assert (gain, intercept) == pytest.approx((3, 2))
    assert covariance[0, 0] == pytest.approx(1 / np.square(x - x.mean()).sum())
    y = 3 * x + 2
    y[5] *= 4
    gain, intercept, _, used = robust_line(x, y, np.full(8, 0.02), 1.0)
    assert (gain, intercept) == pytest.approx((3, 2), rel=0.1)
    assert not used[5]
    assert weighted_line(np.ones(4), y[:4], np.ones(4))[0] == 0


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_single_flat_fields_of_a_sensor():
    folder = data_folder() / "sensor/emva_ccd12"
    frames = [imageio.imread(folder / f"b_{k:03}_snap_001.png") for k in (0, 6, 12, 24, 36)]
    assert single_image_noise(np.stack(frames)).gain == pytest.approx(0.28, rel=0.15)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize(("gain", "read"), [(0.5, 2), (2, 5), (5, 10)])
def test_photographs(gain, read):
    clean = list(pictures("bsd68").values())[::4]
    found = [
        single_image_noise(photons(each.astype(float), gain, read, i))
        for i, each in enumerate(clean)
    ]
    error = np.array([each.gain / gain - 1 for each in found])
    assert abs(error.mean()) <= 0.05
    assert np.median(np.abs(error)) <= 0.05
    reads = np.array([each.read_noise for each in found])
    errors = np.array([each.read_noise_error for each in found])
    assert np.all(errors > 0)
    assert np.median(np.abs(reads - read) / errors) < 3


def textured_photons(picture, gain, read, seed=0):
    rng = np.random.default_rng(seed)
    return gain * rng.poisson(picture / gain) + rng.normal(0, read, picture.shape)


def grown_over(seed=0, shape=(256, 320)):
    """Texture everywhere, weaker in some places, falling with frequency as in photographs."""
    rng = np.random.default_rng(seed)
    leaves = gaussian_filter(rng.standard_normal(shape), 0.8)
    patchy = gaussian_filter(rng.standard_normal(shape), 12)
    shade = gaussian_filter(rng.standard_normal(shape), 25)
    strength = 4 + 12 * (patchy - patchy.min()) / np.ptp(patchy)
    picture = 30 + 160 * (shade - shade.min()) / np.ptp(shade) + strength * leaves / leaves.std()
    return np.maximum(picture, 1)


def bands():
    _, read, _, first = photon_readings.frequency_bands()
    return first, np.diff(np.append(first, len(read)))


def test_coefficients_are_told_apart():
    """A wave of one frequency is found where its frequency says."""
    low, high, _ = frequencies((PATCH, PATCH))
    matrix = np.concatenate([low, high])
    order = np.concatenate(frequency_order((PATCH, PATCH)))
    assert sorted(order) == list(range(1, PATCH**2))
    k = np.arange(PATCH) + 0.5
    for j, m in ((0, 3), (5, 2), (7, 7)):
        wave = np.outer(np.cos(np.pi * j * k / PATCH), np.cos(np.pi * m * k / PATCH))
        assert order[np.argmax(np.abs(matrix @ wave.ravel()))] == j * PATCH + m


def test_ranking_and_reading_share_nothing():
    ranks, read, sums, _ = photon_readings.frequency_bands()
    assert set(ranks) | set(read) == set(range(COEFFICIENTS))
    assert not set(ranks) & set(read)
    assert len(set(read)) == len(read)
    j, k = np.divmod(np.concatenate(frequency_order((PATCH, PATCH)))[read], PATCH)
    assert list(sums) == list(j + k) == sorted(sums)
    assert bands()[1].sum() == len(read)
    assert bands()[1].min() >= 2


def test_sets_are_nested_from_smooth_to_textured():
    rng = np.random.default_rng(0)
    coefficients = rng.standard_normal((4000, COEFFICIENTS))
    textured = rng.random(4000) < 0.5
    coefficients[textured] *= 3
    energy = np.square(coefficients)
    mean = rng.uniform(0, 100, 4000)
    levels = grouped((mean >= 50).astype(np.uint8), 2)
    lows = len(frequency_order((PATCH, PATCH))[0])
    energies = (energy @ frequency_sets(lows, COEFFICIENTS).T).T
    place, upper = np.zeros((2, 4000)), np.ones(COEFFICIENTS - lows, bool)
    spectra = PatchSpectra(
        *(mean, coefficients, energies, mean, np.zeros(4000), 1.0, place, (4000,), lows, upper)
    )
    found = read_levels(spectra, np.ones(4000), levels)
    for level, part in enumerate(levels.each()):
        inside = found.level == level
        count, power = found.count[inside], found.power[inside].mean(axis=1)
        assert count[-1] == len(part) == found.added[inside].sum()
        assert np.all(np.diff(count) >= photon_readings.LEAST)
        assert power[:-2] == pytest.approx(1, abs=0.1)
        assert power[-1] == pytest.approx(energy[part].mean(), rel=0.05)
        assert found.own[inside][-1].mean() > 8


def spectrum(fall):
    sums = np.minimum(photon_readings.frequency_bands()[2], photon_readings.TOP)
    power = np.exp(-fall * sums / PATCH)
    first, sizes = bands()
    shape = np.add.reduceat(power, first) / sizes
    return power / shape[: photon_texture.STRONG].mean()


@pytest.mark.parametrize("fall", [2.0, 4.0])
def test_the_spectrum_of_texture_is_learned(fall):
    first, sizes = bands()
    shape = np.add.reduceat(spectrum(fall), first) / sizes
    strength = np.array([0.2, 1, 2, 4])
    # A line that is wrong does not matter: the sets of a level share their noise.
    power = 1.3 + strength[:, None] * shape
    found = texture_spectrum(power, np.full(4, 100_000), np.zeros(4, int), 1.0)
    expected = shape**photon_texture.SMOOTH_FALL
    assert found == pytest.approx(expected / expected[: photon_texture.STRONG].mean(), abs=0.06)


def readings(strengths, fall=3.0, count=10_000):
    """Sets of one level of brightness each, of variance 2, without chance."""
    number = len(strengths)
    power = 2 + 2 * np.outer(strengths, spectrum(fall))
    return sets_of(power, count, np.arange(number) + 100.0)


def sets_of(power, count, mean):
    """Readings of sets of `count` patches, each a level of its own."""
    number = len(power)
    counts = np.full(number, count)
    seen = np.broadcast_to(np.asarray(mean, float)[:, None], power.shape)
    levels = np.arange(number)
    return Readings(levels, counts, mean, power, counts, power, seen, seen, np.ones(number))


def test_texture_is_taken_away():
    strengths = [0.0, 0.1, 0.3, 1.0]
    found = level_variances(readings(strengths), 0.0, 2.0, 1.0)
    assert found.variance == pytest.approx(2, rel=0.1)
    # The test means something: the mean over all bands is far off.
    assert readings(strengths).power[-1].mean() > 2 * 1.4
    # What much texture leaves of it is known less well.
    assert np.all(np.diff(found.error) > 0)
    assert found.error[-1] > 5 * found.error[0]


def test_the_error_without_texture_is_that_of_chance():
    rng = np.random.default_rng(0)
    number, count = 200, 400
    power = rng.chisquare(count, (number, len(photon_readings.frequency_bands()[1]))) / count
    sets = sets_of(power, count, np.full(number, 9.0))
    found = level_variances(sets, 0.0, 1.0, 1.0)
    assert found.variance.mean() == pytest.approx(1, abs=0.01)
    assert 0.7 < np.median(found.error) / found.variance.std() < 2


def test_stripes_do_not_count():
    """One frequency of a band stands out: the others tell the noise."""
    sets = readings([0.0] * 4)
    striped = sets.power.copy()
    striped[:, -3] *= 20
    found = level_variances(sets._replace(power=striped, own=striped), 0.0, 2.0, 1.0)
    assert found.variance == pytest.approx(2, rel=0.1)
    assert striped.mean() > 2 * 1.4


def test_texture_everywhere():
    """The gain of pictures without a smooth place, and an error that says how well it is known."""
    found = [
        single_image_noise(textured_photons(grown_over(seed), 2, 5, seed)) for seed in range(5)
    ]
    gains = np.array([each.gain for each in found])
    errors = np.array([each.gain_error for each in found])
    assert gains.mean() == pytest.approx(2, rel=0.12)
    assert np.sqrt(np.mean(np.square((gains - 2) / errors))) < 2
    smooth = [gaussian_filter(grown_over(seed), 6) for seed in range(3)]
    better = [single_image_noise(textured_photons(each, 2, 5)).gain_error for each in smooth]
    assert np.median(errors) > 1.1 * np.median(better)


def test_flat_pictures_say_that_they_hold_no_gain():
    found = single_image_noise(textured_photons(np.full((256, 256), 120.0), 2, 5))
    assert found.gain_error > 1
    assert found.gain * 120 + found.intercept == pytest.approx(265, rel=0.05)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_stated_errors_of_photographs():
    clean = list(pictures("bsd68").values())[::5]
    found = [
        single_image_noise(textured_photons(each.astype(float), 1, 5, seed))
        for seed, each in enumerate(clean)
    ]
    error = np.array([each.gain - 1 for each in found])
    stated = np.array([each.gain_error for each in found])
    assert 0.5 < np.sqrt(np.mean(np.square(error / stated))) < 1.5
    assert np.mean(np.abs(error) > 3 * stated) <= 0.05
    assert np.median(np.abs(error)) <= 0.08


def lines(seed=0, shape=(256, 256), number=12):
    """Thin bright lines on a dark ground; the brightest pixel is 1."""
    rng = np.random.default_rng(seed)
    field = np.zeros(shape)
    y, x = np.mgrid[: shape[0], : shape[1]]
    for _ in range(number):
        angle, distance = rng.uniform(0, np.pi), rng.uniform(30, 200)
        field[np.abs(x * np.cos(angle) + y * np.sin(angle) - distance) < 0.7] = 1
    found = gaussian_filter(field, 1.3)
    return found / found.max()


@pytest.mark.parametrize("offset", [0, 100])
def test_sparse_scenes(offset):
    """High frequencies see little of what is in the corner of a patch: gains were half of this."""
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        image = offset + 3 * rng.poisson(1 + 50 * lines(seed)) + rng.normal(0, 1, (256, 256))
        found.append(single_image_noise(image.astype(np.float32)))
    gains, errors = np.array([(each.gain, each.gain_error) for each in found]).T
    assert gains == pytest.approx(3, rel=0.15)
    assert gains.mean() == pytest.approx(3, rel=0.08)
    assert np.all(np.abs(gains - 3) < 2.5 * errors)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("mean", [0.1, 1.0])
def test_counts_with_a_mean_below_one(dtype, mean):
    picture = 0.1 + gaussian_filter(lines(), 4)
    image = np.random.default_rng(0).poisson(picture * mean / picture.mean()).astype(dtype)
    found = estimate_noise(image)
    assert found.name == "poisson-gaussian"
    assert found.models[0].gain == pytest.approx(1, abs=0.1)
    assert found.clipped[0][0] == 0


@pytest.mark.parametrize("step", [1, 3])
def test_counts_of_photons_are_not_clipped(step):
    counts = 10 + step * np.random.default_rng(0).poisson(0.4, (128, 128)).astype(np.uint16)
    assert photon_step(counts, 10) == step
    assert not clipping_levels(counts)


def test_read_noise_cut_off_at_0_is_clipped():
    noise = np.random.default_rng(0).normal(0, 5, (128, 128))
    cut = np.clip(np.rint(noise), 0, 255).astype(np.uint8)
    assert photon_step(cut, 0) is None
    assert clipping_levels(cut) == [0]


def test_nothing_but_clipped_places_tells_no_gain():
    noise = np.random.default_rng(0).normal(0, 5, (256, 256)) + 3 * lines()
    cut = np.clip(np.rint(noise), 0, 255).astype(np.uint8)
    assert single_image_noise(cut).gain_error == np.inf


def test_one_level_of_brightness_does_not_flatten_the_line():
    """Patches of one light, sorted by their noise, showed a line without a slope."""
    rng = np.random.default_rng(0)
    image = 100 + rng.poisson(0.6 + 2 * lines()) + rng.normal(0, 2, (256, 256))
    found = single_image_noise(image)
    assert abs(found.gain - 1) < 2.5 * found.gain_error


def test_surroundings_are_without_the_patch_itself():
    rng = np.random.default_rng(0)
    plane = rng.normal(50, 5, (60, 60))
    plane[0, :3] = np.nan
    found = surroundings([plane], 60**2, [None])
    y, x = np.indices((53, 53)).reshape(2, -1)
    clear = ~((y == 0) & (x < 3))
    assert len(found) == clear.sum()
    for k in (0, 300, 1414, len(found) - 1):
        top, left = y[clear][k], x[clear][k]
        around = plane[max(top - 4, 0) : top + 12, max(left - 4, 0) : left + 12].copy()
        around[top - max(top - 4, 0) :, left - max(left - 4, 0) :][:8, :8] = np.nan
        assert found[k] == pytest.approx(np.nanmean(around))


def test_an_image_that_cannot_tell_says_so():
    image = np.random.default_rng(0).normal(100, 5, (256, 256)).astype(np.float32)
    found = estimate_noise(image)
    assert found.name == "gaussian"
    assert "does not show" in found.reason


def test_objects_that_move_on_a_ground_that_stands_still():
    """Differences of frames were taken for noise: the gain was far too large."""
    rng = np.random.default_rng(0)
    scene = 1 + 40 * lines()
    frames = [rng.poisson(np.roll(scene, (5 * t, 3 * t), (0, 1))) for t in range(3)]
    stack = np.array(frames).astype(np.float32)
    assert still_noise(PlaneStack.held(list(stack))) is None
    still = np.array([rng.poisson(scene) for _ in range(3)]).astype(np.float32)
    found = still_noise(PlaneStack.held(list(still)))
    assert found.gain == pytest.approx(1, rel=0.05)


def test_channels_that_are_unlike():
    """The channel of 5 photons has zeros; the bright one lost its model to that."""
    y, x = np.mgrid[:256, :256]
    picture = 1.1 + np.sin(x / 40) * np.cos(y / 25)
    rng = np.random.default_rng(0)
    image = np.stack([rng.poisson(5 * picture), rng.poisson(2000 * picture)]).astype(np.uint16)
    found = estimate_noise(image, "CYX")
    assert found.name == "poisson-gaussian"
    assert [each.gain for each in found.models] == pytest.approx([1, 1], rel=0.1)


def test_a_channel_with_additive_noise_beside_one_of_photons():
    y, x = np.mgrid[:256, :256]
    picture = 1.1 + np.sin(x / 40) * np.cos(y / 25)
    rng = np.random.default_rng(0)
    even = 100 * picture + rng.normal(0, 7, picture.shape)
    found = estimate_noise(np.stack([even, rng.poisson(200 * picture)]), "CYX")
    assert found.name == "poisson-gaussian"
    assert found.models[1].gain == pytest.approx(1, rel=0.1)
    assert found.models[0].read_noise == pytest.approx(7, rel=0.1)
    assert found.models[0].gain < 0.01
    assert np.isnan(found.errors[0]["gain"])
