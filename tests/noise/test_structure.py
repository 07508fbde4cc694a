"""Structured noise: what is found, what is not taken for it, and what is left once removed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import dask.array as da
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.noise import sampling
from napari_gpu_denoise.noise.structure import hum, outliers, rows
from napari_gpu_denoise.noise.structure.find import finite_plane
from napari_gpu_denoise.noise.structure.record import parse_correction
from napari_gpu_denoise.noise.structure.remove import CorrectedArray, prepare_correction
from scenes import Stored, small

SHAPE = 192, 224
SIGMA = 10.0
Y, X = np.mgrid[: SHAPE[0], : SHAPE[1]]
QUICK = small(gd.NLMeans)


def noise(seed=1, sigma=SIGMA, shape=SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sigma, shape)


def offsets(strength=SIGMA, count=SHAPE[0], seed=2) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, strength, (count, 1))


def cells(seed=0) -> np.ndarray:
    """Return discs with soft edges on a sloping background, levels 20 to 200."""
    rng = np.random.default_rng(seed)
    image = 20 + 30 * Y / SHAPE[0]
    for _ in range(12):
        cy, cx, radius = rng.uniform(0, SHAPE[0]), rng.uniform(0, SHAPE[1]), rng.uniform(8, 30)
        image = image + 60 / (1 + np.exp((np.hypot(Y - cy, X - cx) - radius) / 2))
    return image


def membranes(seed: int, size=256) -> np.ndarray:
    """Return dark lines and grain, as in an electron micrograph, with noise."""
    rng = np.random.default_rng(seed)
    phase = 60 * gaussian_filter(rng.normal(size=(size, size)), 9)
    grain = 20 * gaussian_filter(rng.normal(size=(size, size)), 1.2)
    lines = 50 * np.exp(-((np.sin(phase) / 0.25) ** 2))
    return 150 - lines + grain + rng.normal(0, SIGMA, (size, size))


def noisy() -> np.ndarray:
    return cells() + noise()


def photons(mean: float) -> np.ndarray:
    return np.random.default_rng(3).poisson(cells() / cells().mean() * mean).astype(np.uint8)


def with_pixels(image: np.ndarray, share: float, excess: float, seed=4) -> np.ndarray:
    chance = np.random.default_rng(seed).random(image.shape)
    return image + np.where(chance < share, excess, 0.0)


def with_line(image: np.ndarray, level: float, axis=0) -> np.ndarray:
    given = image.copy()
    np.moveaxis(given, axis, 0)[77] = level
    return given


def padded(image: np.ndarray) -> np.ndarray:
    return np.pad(image, ((30, 38), (40, 36)))


def with_hole(image: np.ndarray) -> np.ndarray:
    image = image.copy()
    image[20:60, 30:90] = np.nan
    return image


def wave(fy: float, fx: float, strength=9.0) -> np.ndarray:
    return strength * np.cos(2 * math.pi * (fy * Y + fx * X) + 0.7)


# Structure across the whole width, which must not be taken for offsets.
SCENES = {
    "horizon": np.where(Y > 80, 150.0, 30.0) + np.where(Y > 120, 40.0, 0.0),
    "tilted horizon": np.where(Y > 80 + X // 50, 150.0, 30.0),
    "soft horizon": 30 + 100 / (1 + np.exp(-(Y - 90) / 3.0)),
    "waves": 60 + 30 * np.sin(Y / 15.0),
    "slope": 100.0 + 0.3 * Y,
}

# An image, and the kinds of structured noise that are found in it.
RECIPES: dict[str, tuple[Callable[[], np.ndarray], list[str]]] = {
    "clean": (cells, []),
    "noise": (noisy, []),
    "few photons": (lambda: photons(0.05), []),
    "photons": (lambda: photons(0.3), []),
    "many photons": (lambda: photons(5.0), []),
    "rounded noise": (lambda: np.rint(10 + noise(4, 0.16)), []),
    "horizon": (lambda: SCENES["horizon"] + noise(), []),
    "texture in a half": (lambda: noisy() + 60 * np.sin(Y / 9.0) * (X > 120), []),
    "membranes": (lambda: membranes(0), []),
    "empty": (lambda: np.full((64, 64), np.nan), []),
    "zero": (lambda: np.zeros((64, 64)), []),
    "extreme constant": (lambda: np.full((64, 64), 1e300), []),
    "extreme": (lambda: noisy() * 1e30, []),
    **{f"small {n}": (lambda n=n: noise(0, 1, n), []) for n in ((1, 1), (3, 200), (200, 3))},
    **{f"small {n}": (lambda n=n: noise(0, 1, n), []) for n in ((15, 48), (16, 48), (17, 65))},
    "rows": (lambda: noisy() + offsets(5), ["rows"]),
    "weak scale": (lambda: 1e-4 * (noisy() + offsets()) + 2, ["rows"]),
    "columns": (lambda: noisy() + offsets(20, SHAPE[1]).T, ["columns"]),
    "rows of padding": (lambda: padded(noisy() + offsets()), ["rows"]),
    "rows with a hole": (lambda: with_hole(noisy() + offsets()), ["rows"]),
    "hum": (lambda: noisy() + wave(0.11, 0.07), ["hum"]),
    "hot": (lambda: with_pixels(noisy(), 0.001, 200), ["hot"]),
    "dead": (lambda: with_pixels(noisy(), 0.001, -200), ["dead"]),
    "hot row": (lambda: with_line(noisy(), 5000), ["hot"]),
    "hot column": (lambda: with_line(noisy(), 5000, 1), ["hot"]),
    "dead row": (lambda: with_line(noisy(), -500), ["dead"]),
    "faint in texture": (lambda: with_pixels(membranes(2), 0.001, -7.5 * SIGMA, 102), ["dead"]),
}


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_found(name):
    make, kinds = RECIPES[name]
    found = gd.find_structure(make())
    assert [each.kind for each in found.findings] == kinds
    assert bool(found) == bool(kinds)
    assert (found.summary() == "no structured noise was found") == (not kinds)
    lines = int(name in ("hot row", "hot column", "dead row"))
    assert [each.lines for each in found.findings] == [lines] * len(kinds)
    json.dumps(found.as_dict())


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_strength_of_offsets(scale):
    given = offsets(20)
    (found,) = gd.find_structure(scale * (noisy() + given)).findings
    assert found.strength == pytest.approx(scale * given.std(), rel=0.25)
    assert found.fixed is None


def test_offsets_over_time_are_fixed_or_change_and_channels_have_their_own():
    stack = cells() + noise(shape=(4, *SHAPE))
    for given, fixed in ((offsets(8), True), (offsets(8, 4 * 192).reshape(4, 192, 1), False)):
        (found,) = gd.find_structure(stack + given, "TYX").findings
        assert (found.kind, found.fixed) == ("rows", fixed)
    (found,) = gd.find_structure(np.stack([noisy(), noisy() + offsets()]), "CYX").findings
    assert (found.kind, found.channel) == ("rows", 1) and "in channel 1" in found.words()


@pytest.mark.parametrize("fy, fx", [(0.08, 0.0), (0.0, 0.21), (0.11, 0.07), (-0.3, 0.2)])
def test_hum_is_found_with_frequency_amplitude_and_phase(fy, fx):
    (found,) = hum.find_waves((noisy() + wave(fy, fx)).astype(np.float32))
    sign = 1 if found.fy * fy + found.fx * fx > 0 else -1  # both are the same wave
    assert abs(sign * found.fy - fy) < 3e-4 and abs(sign * found.fx - fx) < 3e-4
    assert abs(found.amplitude) == pytest.approx(9, rel=0.1)
    rest = hum.without(wave(fy, fx).astype(np.float32), [found])
    assert np.std(rest) < 0.15 * np.std(wave(fy, fx))


def test_waves_are_found_beside_each_other_and_near_the_axes():
    given = [(0.2, 0.0), (-0.11, 0.31), (0.25, 0.02), (0.4, 0.13)]
    waves = sum(wave(*each, 8.0) for each in given)
    found = hum.find_waves((waves + noise(10)).astype(np.float32))
    assert len(found) == len(given)
    for fy, fx in given:
        assert min(abs(s * w.fy - fy) + abs(s * w.fx - fx) for w in found for s in (1, -1)) < 1e-3
    assert hum.without(waves.astype(np.float32), found).std() < 0.1 * waves.std()


def test_neighbours_are_sorted():
    values = np.random.default_rng(7).integers(0, 9, (12, 11)).astype(np.float32)
    found = outliers.compare_neighbours(outliers.around(np.pad(values, 1, mode="reflect")))
    for y, x in ((1, 1), (5, 6), (10, 9)):
        ranked = np.sort(np.delete(values[y - 1 : y + 2, x - 1 : x + 2].ravel(), 4))
        wanted = [(ranked[3] + ranked[4]) / 2, ranked[5] - ranked[2], ranked[1], ranked[6]]
        assert [each[y, x] for each in found] == wanted


def test_outliers_are_found_where_they_are():
    places = np.random.default_rng(4).random(SHAPE)
    masks = places < 0.001, places > 0.999
    tails = np.random.default_rng(3).laplace(0, 5, SHAPE)  # of noise, which are no outliers
    image = cells() + tails + 200.0 * masks[0] - 200.0 * masks[1]
    found = gd.find_structure(np.stack([image] * 2), "TYX").findings
    assert [each.kind for each in found] == ["hot", "dead"]
    assert found[0].share == pytest.approx(100 * masks[0].mean(), rel=0.15)
    for each, mask in zip(outliers.find_outliers(finite_plane(image)), masks, strict=True):
        assert (each.mask & ~mask).sum() <= 1
        assert (each.mask & mask).sum() >= 0.85 * mask.sum()


@pytest.mark.parametrize("excess", [0, 80, 250])
def test_outliers_that_are_found_are_seen_at_a_glance(excess):
    for seed, image in enumerate((cells(), membranes(1), 300 * cells() / cells().max())):
        rng = np.random.default_rng(seed)
        plane = rng.normal(image, 3) if seed < 2 else rng.poisson(image)
        plane = finite_plane(with_pixels(plane, 5e-4, excess))
        found = any(each.found for each in outliers.find_outliers(plane))
        assert outliers.seem_to_be(plane) >= found
        assert excess == 80 or found == outliers.seem_to_be(plane) == (excess == 250)


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("sigma", [0.0, SIGMA])
def test_salt_and_pepper_is_found_and_removed(share, sigma):
    clean = 40 + cells() * 0.6
    chance = np.random.default_rng(3).random(SHAPE)
    wrong = (chance < share / 2) | (chance > 1 - share / 2)
    image = np.where(wrong, 255 * (chance > 0.5), clean + noise(3, sigma))
    image = np.rint(image).clip(0, 255).astype(np.uint8)
    found = {each.kind: each.share for each in gd.find_structure(image).findings}
    assert found.keys() == {"hot", "dead"}
    assert sum(found.values()) == pytest.approx(100 * wrong.mean(), rel=0.25)
    removed = gd.remove_outliers(image).astype(float)
    assert np.mean(np.abs(removed - clean)[wrong] > 40) < 0.15
    assert np.mean((removed != image)[~wrong]) < 0.01


def test_estimates_name_what_was_found():
    estimate = gd.estimate_noise(noisy() + offsets())
    (note,) = [each for each in estimate.notes if "individual offsets" in each]
    assert note.code == "structured" and "correct='found'" in note
    json.dumps(estimate.as_dict())
    (note,) = [each for each in gd.estimate_noise(with_line(noisy(), 5000)).notes if "hot" in each]
    assert "among them 1 whole row or column" in note
    assert not any(each.code == "structured" for each in gd.estimate_noise(noisy()).notes)


# Offsets of rows: what is image and stays.
def measured(image: np.ndarray) -> np.ndarray:
    return rows.plane_offsets([image.astype(np.float32)])


def error(image: np.ndarray, given: np.ndarray) -> float:
    """Return the root mean square error of offsets, whose mean nothing tells."""
    return float(np.std(measured(image + given) - given[:, 0]))


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("sigma", [0.0, SIGMA])
def test_what_crosses_the_whole_image_stays(scene, sigma):
    image = SCENES[scene] + noise(sigma=sigma)
    assert error(image, offsets()) < 0.5 * SIGMA
    # Weak offsets do not take strong edges with them.
    assert error(image, offsets(2.0)) < 1.5


def test_known_offsets():
    given = offsets(3.0, 64)
    found = measured(np.repeat(given, 96, axis=1))
    np.testing.assert_allclose(found, given[:, 0] - given.mean(), atol=0.3)
    assert not measured(np.full((64, 96), 7.0)).any()
    # The mean of a row has a noise of 10 / sqrt(224).
    assert error(noise(), offsets()) < 0.85
    # Few that are far stronger than most.
    rng = np.random.default_rng(5)
    few = np.where(rng.random((SHAPE[0], 1)) < 0.2, offsets(60, seed=6), offsets(3))
    assert error(noise(), few) < 0.1 * few.std()


def test_frequencies_without_offsets_are_kept():
    # As strong as it is, a slow wave that all columns share is no set of independent offsets.
    given, slow = offsets(), 25 * np.cos(np.pi * 3 * (np.arange(SHAPE[0]) + 0.5) / SHAPE[0])
    found = measured(noise() + given + slow[:, None])
    assert abs((found - given[:, 0]) @ slow / (slow @ slow)) < 0.2


# Removal: what is left, what stays, and the option of every run.
def picture(*more: int) -> np.ndarray:
    """Return discs, (96, 128), with noise of sigma 8."""
    y, x = np.mgrid[:96, :128]
    discs = (np.hypot(y - 40, x - 50) < 25) * 60 + (np.hypot(y - 70, x - 100) < 15) * 90
    return 100.0 + discs + noise(0, 8, (*more, 96, 128))


STRIPES = offsets(8, 96, 1)


def left(result: np.ndarray, without: np.ndarray, axis: int) -> float:
    """Return the standard deviation of the offsets that are left, of 8."""
    return float((result - without).mean(axis=axis).std())


def test_rows_and_columns_are_removed_if_asked_for():
    image, columns = picture(), offsets(8, 128, 1).T
    assert left(gd.remove_stripes(image + columns), image, 0) < 3
    both = gd.remove_stripes(image + STRIPES + columns)
    assert left(both, image, 1) < 3 and left(both, image, 0) < 3
    assert left(gd.remove_stripes(image + STRIPES, kind="rows"), image, 1) < 3
    for given, kind in ((image + STRIPES, "hum"), (image, "found")):
        np.testing.assert_array_equal(gd.remove_stripes(given, kind=kind), given)


def test_planes_of_which_estimates_read_windows_are_corrected_whole(monkeypatch):
    monkeypatch.setattr(sampling, "LARGEST_PLANE", 1 << 12)
    image = picture(3)
    image[:, 5, 9] = 900
    assert left(gd.remove_stripes(image + STRIPES, "TYX"), image, 2) < 3
    assert (gd.remove_outliers(image, "TYX")[:, 5, 9] < 200).all()


def test_axes_may_be_in_any_order():
    given = picture(3) + STRIPES
    wanted = gd.remove_stripes(given, "TYX")
    for axes, order in (("YXT", (1, 2, 0)), ("XTY", (2, 0, 1))):
        moved = gd.remove_stripes(np.transpose(given, order), axes)
        np.testing.assert_allclose(moved, np.transpose(wanted, order), atol=1e-3)


def test_fixed_offsets_are_measured_together_and_others_and_hum_in_each_frame():
    image = picture(6)
    together = gd.remove_stripes(image + STRIPES, "TYX") - image - STRIPES
    assert np.ptp(together[:, :, 5], axis=0).max() < 1e-3  # the same is removed from all
    alone = gd.remove_stripes(image + STRIPES, "TYX", fixed=False) - image - STRIPES
    assert np.ptp(alone[:, :, 5], axis=0).max() > 0.1
    changing = image + offsets(8, 6 * 96, 1).reshape(6, 96, 1)
    assert left(gd.remove_stripes(changing, "TYX"), image, 2) < 3
    phases = np.arange(6)[:, None, None]
    waves = 6 * np.cos(0.9 * np.arange(96)[:, None] + phases) * np.ones(128)
    assert np.std(gd.remove_stripes(image + waves, "TYX", kind="hum") - image) < 1


def test_outliers_are_replaced_and_nothing_else():
    image = picture().astype(np.float32)
    given = image.copy()
    places = [(0, 0), (10, 20), (10, 21), (50, 127), (70, 64), (30, 50)]
    for number, place in enumerate(places):
        given[place] += 150 * (-1) ** number
    result = gd.remove_outliers(given)
    changed = set(map(tuple, np.argwhere(result != given)))
    assert changed <= set(places) and len(changed) >= 5
    assert all(abs(result[place] - image[place]) < 45 for place in changed)
    assert abs(gd.remove_outliers(with_line(noisy(), 5000)) - noisy()).max() < 120


@pytest.mark.parametrize(("count", "replaced"), [(5, True), (3, True), (2, False)])
def test_pixels_hot_in_half_of_the_planes_are_replaced_in_all(count, replaced):
    image = picture(6)
    image[:count, 40, 60] += 150
    result = gd.remove_outliers(image, "TYX")
    assert (result[5, 40, 60] != image[5, 40, 60]) == replaced


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64"])
def test_types_are_kept_and_the_input_not_changed(dtype):
    given = (picture() + STRIPES).astype(dtype)
    before = given.copy()
    for result in (gd.remove_stripes(given), gd.remove_outliers(given)):
        assert result.dtype == given.dtype and result.shape == given.shape
    assert gd.remove_stripes(given, dtype="float32").dtype == np.float32
    np.testing.assert_array_equal(given, before)


def test_nan_is_refused_or_kept():
    given = picture() + STRIPES
    given[5:9, 7] = np.nan
    for call in (gd.remove_stripes, gd.remove_outliers):
        with pytest.raises(errors.NonFiniteError, match=f"^4 of {given.size} pixels"):
            call(given)
        np.testing.assert_array_equal(np.isnan(call(given, nonfinite="keep")), np.isnan(given))


def test_padding_stays_to_the_bit():
    result = gd.remove_stripes(np.pad(picture() + STRIPES, ((30, 34), (40, 32))))
    assert not result[:28].any() and not result[:, :38].any()
    assert left(result[30:126, 40:168], picture(), 1) < 3


def test_wrong_arguments_are_named():
    for call, said in (
        (lambda: gd.remove_stripes(picture(), kind="all"), "kind='all'"),
        (lambda: gd.remove_outliers(picture(), threshold=-1), "threshold=-1"),
        *((lambda w=w: gd.Run(QUICK, correct=w), "correct=") for w in ("all", ("rows", "x"), 3)),
    ):
        with pytest.raises(errors.SettingsError, match=said):
            call()
    for call in (gd.remove_stripes, gd.find_structure):
        with pytest.raises(errors.AxesError):
            call(picture(), "TYX")


# The option of a run
def test_a_run_corrects_first_and_says_so():
    given = (picture() + STRIPES).astype(np.float32)
    result = gd.denoise(given, QUICK, 8, correct="stripes")
    plain = gd.denoise(gd.remove_stripes(given), QUICK, 8)
    np.testing.assert_array_equal(result.image, plain.image)
    (words,) = result.record.corrected
    assert words.startswith("rows have individual offsets, ")
    assert result.record.as_dict()["corrected"] == [words]
    assert plain.record.corrected == ()
    found = gd.nl_means(given, 8, settings=QUICK, correct="found")
    np.testing.assert_array_equal(found, plain.image)


def test_without_findings_a_run_is_as_without_the_option():
    given = picture().astype(np.uint16)
    result = gd.denoise(given, QUICK, 8, correct=("stripes", "outliers"))
    np.testing.assert_array_equal(result.image, gd.denoise(given, QUICK, 8).image)
    assert result.record.corrected == ("nothing was found",)


def test_arrays_that_are_not_in_memory():
    given = (picture(5) + STRIPES).astype(np.float32)
    wanted = gd.denoise(given, QUICK, 8, axes="TYX", correct="stripes")
    out = np.empty_like(given)
    result = gd.denoise(Stored(given), QUICK, 8, axes="TYX", correct="stripes", out=out)
    np.testing.assert_allclose(out, wanted.image, atol=1e-3)
    assert result.record.corrected == wanted.record.corrected
    chunked = da.from_array(given, chunks=(2, 48, 64))
    lazy = gd.denoise_lazy(chunked, QUICK, 8, axes="TYX", correct="stripes").compute()
    np.testing.assert_allclose(lazy, wanted.image, atol=1e-2)


def test_parts_of_a_corrected_array_are_those_of_the_whole():
    given = (picture(2, 3) + STRIPES).astype(np.uint16)
    correction = prepare_correction(given, "TCYX", parse_correction("stripes"))
    whole, lazy = correction.applied(given), CorrectedArray(Stored(given), correction)
    for index in (1, (1, 2), (0, 1, slice(5, 9)), (slice(1, 2), ..., 3), (..., slice(2, 90))):
        np.testing.assert_array_equal(lazy[index], whole[index])


def test_frames_of_a_stream():
    given = (picture(3) + offsets(8, 3 * 96, 1).reshape(3, 96, 1)).astype(np.float32)
    found = list(gd.stream(QUICK, given, 8, correct="stripes"))
    for frame, result in zip(given, found, strict=True):
        plain = gd.denoise(gd.remove_stripes(frame), QUICK, 8).image
        np.testing.assert_allclose(result, plain, atol=1e-3)
    assert not list(gd.stream(QUICK, [], 8, correct="stripes"))
