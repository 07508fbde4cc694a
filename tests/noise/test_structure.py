"""Structured noise: what is found in simulated images, and what is not taken for it."""

from __future__ import annotations

import json
import math

import dask.array as da
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.noise.structure import hum, outliers, rows
from napari_gpu_denoise.noise.structure.find import finite_plane
from napari_gpu_denoise.noise.structure.record import parse_correction
from napari_gpu_denoise.noise.structure.remove import CorrectedArray, prepare_correction
from scenes import small

SIGMA = 10.0


def cells(shape=(192, 224), seed=0) -> np.ndarray:
    """Return discs with soft edges on a sloping background, levels 20 to 200."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    image = 20 + 30 * y / shape[0]
    for _ in range(12):
        cy, cx, radius = rng.uniform(0, shape[0]), rng.uniform(0, shape[1]), rng.uniform(8, 30)
        image = image + 60 / (1 + np.exp((np.hypot(y - cy, x - cx) - radius) / 2))
    return image


def noisy(clean=None, seed=1) -> np.ndarray:
    clean = cells() if clean is None else clean
    return clean + np.random.default_rng(seed).normal(0, SIGMA, clean.shape)


def random_offsets(count, strength, seed=2) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, strength, count)


def kinds(image, axes=None) -> list[str]:
    return [each.kind for each in gd.find_structure(image, axes).findings]


@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_rows_and_columns_are_found_with_their_strength(strength):
    image = noisy()
    given = random_offsets(len(image), strength * SIGMA)
    (found,) = gd.find_structure(image + given[:, None]).findings
    assert found.kind == "rows" and found.fixed is None
    assert found.strength == pytest.approx(given.std(), rel=0.25)
    assert 0.5 < found.confidence <= 1
    across = random_offsets(image.shape[1], strength * SIGMA)
    assert kinds(image + across) == ["columns"]


def test_what_two_series_share_is_their_covariance():
    common, one, other = np.random.default_rng(0).normal(size=(3, 20_000))
    correlation, covariance = rows.shared_variation(2 * common + one, 2 * common + 3 * other)
    assert covariance == pytest.approx(4, rel=0.05)
    assert correlation == pytest.approx(2 * 4 / (5 + 13), rel=0.05)


def test_a_clean_image_has_none():
    assert not gd.find_structure(cells())
    assert not gd.find_structure(noisy())
    assert gd.find_structure(noisy()).summary() == "no structured noise was found"


@pytest.mark.parametrize("mean", [0.05, 0.3, 1.0, 5.0])
def test_photons_are_not_outliers(mean):
    rng = np.random.default_rng(3)
    assert kinds(rng.poisson(cells() / cells().mean() * mean).astype(np.uint8)) == []


def test_noise_that_seldom_changes_a_grey_level_makes_no_outliers():
    assert kinds(np.rint(np.random.default_rng(4).normal(10, 0.16, (192, 224)))) == []


def test_objects_across_the_whole_image_are_not_stripes():
    y, x = np.mgrid[:192, :224]
    horizon = np.where(y > 80, 150.0, 30.0) + np.where(y > 120, 40.0, 0.0)
    waves = 60 * np.sin(y / 9.0) * (x > 120)  # a texture in half of the image
    assert kinds(noisy(horizon)) == []
    assert kinds(noisy(cells() + waves)) == []


def test_offsets_over_time_are_fixed_or_change():
    stack = noisy(np.stack([cells()] * 4))
    same = gd.find_structure(stack + random_offsets(192, 8)[:, None], "TYX").findings
    assert [(each.kind, each.fixed) for each in same] == [("rows", True)]
    changing = random_offsets(4 * 192, 8).reshape(4, 192, 1)
    found = gd.find_structure(stack + changing, "TYX").findings
    assert [(each.kind, each.fixed) for each in found] == [("rows", False)]


def test_each_channel_has_its_own():
    image = np.stack([noisy(), noisy(seed=5) + random_offsets(192, 10)[:, None]])
    (found,) = gd.find_structure(image, "CYX").findings
    assert (found.kind, found.channel) == ("rows", 1)
    assert "in channel 1" in found.words()


@pytest.mark.parametrize("fy, fx", [(0.08, 0.0), (0.0, 0.21), (0.11, 0.07), (-0.3, 0.2)])
def test_hum_is_found_with_frequency_amplitude_and_phase(fy, fx):
    image = noisy()
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    wave = 9 * np.cos(2 * math.pi * (fy * y + fx * x) + 0.7)
    (found,) = hum.find_waves((image + wave).astype(np.float32))
    sign = 1 if found.fy * fy + found.fx * fx > 0 else -1  # both are the same wave
    assert abs(sign * found.fy - fy) < 3e-4 and abs(sign * found.fx - fx) < 3e-4
    assert abs(found.amplitude) == pytest.approx(9, rel=0.1)
    rest = hum.without(wave.astype(np.float32), [found])
    assert np.std(rest) < 0.15 * np.std(wave)
    assert "hum" in kinds(image + wave)


def test_hot_and_dead_pixels_are_found_where_they_are():
    image, rng = noisy(), np.random.default_rng(4)
    places = rng.random(image.shape)
    hot, dead = places < 0.001, places > 0.999
    image[hot] += 200
    image[dead] -= 200
    found = gd.find_structure(image).findings
    assert [each.kind for each in found] == ["hot", "dead"]
    assert found[0].share == pytest.approx(100 * hot.mean(), rel=0.15)
    for each, mask in zip(outliers.find_outliers(finite_plane(image)), (hot, dead), strict=True):
        assert (each.mask & ~mask).sum() <= 1
        assert (each.mask & mask).sum() >= 0.85 * mask.sum()


def membranes(seed: int, size=256) -> np.ndarray:
    """Return dark lines and grain, as in an electron micrograph, with noise."""
    rng = np.random.default_rng(seed)
    phase = 60 * gaussian_filter(rng.normal(size=(size, size)), 9)
    grain = 20 * gaussian_filter(rng.normal(size=(size, size)), 1.2)
    lines = 50 * np.exp(-((np.sin(phase) / 0.25) ** 2))
    return 150 - lines + grain + rng.normal(0, SIGMA, (size, size))


@pytest.mark.parametrize("seed", [0, 2, 5, 7])
def test_faint_dead_pixels_are_found_in_texture(seed):
    image = membranes(seed)
    assert kinds(image) == []
    image[np.random.default_rng(seed + 100).random(image.shape) < 0.001] -= 7.5 * SIGMA
    assert kinds(image) == ["dead"]


def test_neighbours_are_sorted():
    values = np.random.default_rng(7).integers(0, 9, (12, 11)).astype(np.float32)
    found = outliers.compare_neighbours(outliers.around(np.pad(values, 1, mode="reflect")))
    for y, x in ((1, 1), (5, 6), (10, 9)):
        ranked = np.sort(np.delete(values[y - 1 : y + 2, x - 1 : x + 2].ravel(), 4))
        wanted = [(ranked[3] + ranked[4]) / 2, ranked[5] - ranked[2], ranked[1], ranked[6]]
        assert [each[y, x] for each in found] == wanted


def test_nan_padding_and_extreme_values_are_left_out():
    striped = noisy() + random_offsets(192, 10)[:, None]
    padded = np.zeros((260, 300))
    padded[30:222, 40:264] = striped
    assert kinds(padded) == ["rows"]
    striped[20:60, 30:90] = np.nan
    assert kinds(striped) == ["rows"]
    assert kinds(np.full((64, 64), np.nan)) == kinds(np.zeros((64, 64))) == []
    assert kinds(np.full((64, 64), 1e300)) == kinds(noisy() * 1e30) == []
    for shape in ((1, 1), (3, 200), (200, 3), (15, 48), (16, 48), (17, 65)):
        assert kinds(np.random.default_rng(0).normal(0, 1, shape)) == []


def test_scale_and_offset_do_not_matter():
    image = noisy() + random_offsets(192, 7)[:, None]
    (first,) = gd.find_structure(image).findings
    (second,) = gd.find_structure(1e-4 * image + 2).findings
    assert second.strength == pytest.approx(1e-4 * first.strength, rel=1e-2)


def test_estimates_name_what_was_found(capsys):
    estimate = gd.estimate_noise(noisy() + random_offsets(192, 10)[:, None])
    (note,) = [each for each in estimate.notes if "individual offsets" in each]
    assert note.code == "structured" and "correct='found'" in note
    assert not any("offsets" in each for each in gd.estimate_noise(noisy()).notes)
    json.dumps(gd.find_structure(noisy()).as_dict())
    json.dumps(estimate.as_dict())


def test_wrong_axes_are_refused():
    with pytest.raises(errors.AxesError):
        gd.find_structure(noisy(), "TYX")


@pytest.mark.parametrize("shape", [(70, 101), (96, 64)])
def test_amplitudes_are_those_of_windowed_blocks(shape):
    plane = np.random.default_rng(8).normal(0, 5, shape).astype(np.float32)
    frequencies = np.random.default_rng(9).uniform(-0.5, 0.5, (19, 2))
    found = hum.block_amplitudes(plane, frequencies)
    y, x = np.indices(shape)
    cuts = [np.arange(hum.BLOCKS + 1) * n // hum.BLOCKS for n in shape]
    for (fy, fx), each in zip(frequencies, found, strict=True):
        turned = plane * np.exp(-2j * math.pi * (fy * y + fx * x))
        for j, k in np.ndindex(each.shape):
            inside = slice(*cuts[0][j : j + 2]), slice(*cuts[1][k : k + 2])
            window = np.multiply.outer(*(np.hanning(n + 2)[1:-1] for n in turned[inside].shape))
            expected = (turned[inside] * window).sum() / window.sum()
            assert abs(each[j, k] - expected) < 1e-4


def test_waves_are_found_beside_each_other_and_near_the_axes():
    y, x = np.mgrid[:160, :200]
    given = [(0.2, 0.0), (-0.11, 0.31), (0.25, 0.02), (0.4, 0.13)]
    waves = sum(8 * np.cos(2 * math.pi * (fy * y + fx * x)) for fy, fx in given)
    found = hum.find_waves(np.random.default_rng(10).normal(waves, SIGMA).astype(np.float32))
    assert len(found) == len(given)
    for fy, fx in given:
        nearest = min(abs(s * w.fy - fy) + abs(s * w.fx - fx) for w in found for s in (1, -1))
        assert nearest < 1e-3
    rest = hum.without(waves.astype(np.float32), found)
    assert rest.std() < 0.1 * waves.std()


@pytest.mark.parametrize("scale", [0, 8, 25])
def test_outliers_that_are_found_are_seen_at_a_glance(scale):
    for seed, image in enumerate((cells(), membranes(1), 300 * cells() / cells().max())):
        rng = np.random.default_rng(seed)
        plane = finite_plane(rng.normal(image, 3) if seed < 2 else rng.poisson(image))
        plane[rng.random(plane.shape) < 5e-4] += scale * SIGMA
        found = any(each.found for each in outliers.find_outliers(plane))
        assert found == outliers.seem_to_be(plane) or scale == 8
        assert found == (scale == 25) or scale == 8


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("level", "kind"), [(5000, "hot"), (-500, "dead")])
def test_a_row_that_is_hot_all_along_is_named_and_replaced(level, kind, axis):
    image = noisy()
    given = np.moveaxis(image.copy(), axis, 0)
    given[77] = level
    given = np.moveaxis(given, 0, axis)
    (found,) = gd.find_structure(given).findings
    assert (found.kind, found.lines) == (kind, 1)
    assert "among them 1 whole row" in found.words()
    assert abs(gd.remove_outliers(given) - image).max() < 120


def test_the_type_changes_nothing():
    x = np.arange(224)
    image = (noisy() + random_offsets(192, 8)[:, None] + 6 * np.cos(x / 2.1)).astype(np.float32)
    image[np.random.default_rng(11).random(image.shape) < 0.001] += 200
    first = gd.find_structure(image)
    assert {each.kind for each in first.findings} >= {"rows", "hum", "hot"}
    assert gd.find_structure(image.astype(np.float64)) == first


# Offsets of rows: against a slow reference, and what is image and stays.
SHAPE = 192, 224
STRENGTH = 10.0
Y, X = np.mgrid[: SHAPE[0], : SHAPE[1]]

# Structure across the whole width, which must not be taken for offsets.
SCENES = {
    "horizon": np.where(Y > 80, 150.0, 30.0) + np.where(Y > 120, 40.0, 0.0),
    "tilted horizon": np.where(Y > 80 + X // 50, 150.0, 30.0),
    "soft horizon": 30 + 100 / (1 + np.exp(-(Y - 90) / 3.0)),
    "waves": 60 + 30 * np.sin(Y / 15.0),
    "slope": 100.0 + 0.3 * Y,
}


def measured(image: np.ndarray) -> np.ndarray:
    return rows.plane_offsets([image.astype(np.float32)])


def error(image: np.ndarray, given: np.ndarray) -> float:
    """Return the root mean square error of offsets, whose mean nothing tells."""
    return float(np.std(measured(image + given[:, None]) - given))


def drawn(strength: float = STRENGTH, seed: int = 2, count: int = SHAPE[0]) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, strength, count)


def noise(sigma: float = 10.0, shape: tuple = SHAPE) -> np.ndarray:
    return np.random.default_rng(1).normal(0, sigma, shape)


def test_the_known_answer_without_noise_or_image():
    given = drawn(3.0, count=64)
    found = measured(np.repeat(given[:, None], 96, axis=1))
    np.testing.assert_allclose(found, given - given.mean(), atol=0.3)
    assert not measured(np.full((64, 96), 7.0)).any()


def test_offsets_on_a_flat_image_are_known_up_to_the_noise():
    # The mean of a row has a noise of 10 / sqrt(224).
    assert error(noise(), drawn()) < 0.85


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_what_crosses_the_whole_image_stays(scene, sigma):
    assert error(SCENES[scene] + noise(sigma), drawn()) < 0.5 * STRENGTH
    # Weak offsets do not take strong edges with them.
    assert error(SCENES[scene] + noise(sigma), drawn(2.0)) < 1.5


def test_frequencies_without_offsets_are_kept():
    # As strong as it is, a slow wave that all columns share is no set of independent offsets.
    given, wave = drawn(), 25 * np.cos(np.pi * 3 * (np.arange(SHAPE[0]) + 0.5) / SHAPE[0])
    found = measured(noise() + given[:, None] + wave[:, None])
    taken = (found - given) @ wave / (wave @ wave)
    assert abs(taken) < 0.2


def test_few_strong_offsets_are_measured_too():
    rng = np.random.default_rng(5)
    given = np.where(rng.random(SHAPE[0]) < 0.2, rng.normal(0, 60, SHAPE[0]), drawn(3.0))
    assert error(noise(), given) < 0.1 * given.std()


def test_planes_are_measured_together():
    given = drawn()
    planes = [np.random.default_rng(k).normal(0, 10, SHAPE) + given[:, None] for k in range(4)]
    together = rows.plane_offsets(planes)
    assert np.std(together - given) < 0.7 * np.std(rows.plane_offsets(planes[:1]) - given)


@pytest.mark.parametrize("shape", [(16, 48), (17, 49), (33, 1000), (500, 48)])
def test_any_shape(shape):
    found = measured(noise(1.0, shape) + drawn(5.0, count=shape[0])[:, None])
    assert found.shape == shape[:1] and np.isfinite(found).all() and abs(found.mean()) < 1e-3


# Removal of structured noise: what is left of it, what stays, and the option of every run.
PICTURE = 96, 128
QUICK = small(gd.NLMeans)


def clean() -> np.ndarray:
    y, x = np.mgrid[: PICTURE[0], : PICTURE[1]]
    discs = (np.hypot(y - 40, x - 50) < 25) * 60 + (np.hypot(y - 70, x - 100) < 15) * 90
    return 100.0 + discs


def noisy_picture(*more: int, seed=0) -> np.ndarray:
    return clean() + np.random.default_rng(seed).normal(0, 8, (*more, *PICTURE))


def levels(count: int, seed=1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 8, count)


def left(result: np.ndarray, without: np.ndarray, axis: int) -> float:
    """Return the standard deviation of the offsets that are left, of 8."""
    return float((result - without).mean(axis=axis).std())


def test_rows_and_columns_are_removed():
    image, rows, columns = noisy_picture(), levels(96)[:, None], levels(128)
    assert left(gd.remove_stripes(image + rows), image, 1) < 3
    assert left(gd.remove_stripes(image + columns), image, 0) < 3
    both = gd.remove_stripes(image + rows + columns)
    assert left(both, image, 1) < 3 and left(both, image, 0) < 3


def test_only_what_is_asked_for_is_removed():
    image, rows = noisy_picture(), levels(96)[:, None]
    given = image + rows
    np.testing.assert_array_equal(
        gd.remove_stripes(given, kind="columns", fixed=False).shape, PICTURE
    )
    np.testing.assert_array_equal(gd.remove_stripes(given, kind="hum"), given)
    np.testing.assert_array_equal(gd.remove_stripes(image), image)
    assert left(gd.remove_stripes(given, kind="rows"), image, 1) < 3


def test_axes_may_be_in_any_order():
    given = noisy_picture(3) + levels(96)[:, None]
    wanted = gd.remove_stripes(given, "TYX")
    for axes, order in (("YXT", (1, 2, 0)), ("XTY", (2, 0, 1))):
        moved = gd.remove_stripes(np.transpose(given, order), axes)
        np.testing.assert_allclose(moved, np.transpose(wanted, order), atol=1e-3)


def test_fixed_offsets_are_measured_together():
    image, rows = noisy_picture(6), levels(96)[:, None]
    together = gd.remove_stripes(image + rows, "TYX") - image - rows
    assert np.ptp(together[:, :, 5], axis=0).max() < 1e-3  # the same is removed from all
    alone = gd.remove_stripes(image + rows, "TYX", fixed=False) - image - rows
    assert np.ptp(alone[:, :, 5], axis=0).max() > 0.1
    changing = image + levels(6 * 96).reshape(6, 96, 1)
    assert left(gd.remove_stripes(changing, "TYX"), image, 2) < 3


def test_hum_is_removed_from_each_frame():
    y = np.arange(96)[:, None]
    hum = np.stack([6 * np.cos(0.9 * y + phase) * np.ones(128) for phase in (0, 1, 2.5)])
    image = noisy_picture(3)
    assert np.std(gd.remove_stripes(image + hum, "TYX", kind="hum") - image) < 1


def test_outliers_are_replaced_and_nothing_else():
    image = noisy_picture().astype(np.float32)
    given = image.copy()
    places = [(0, 0), (10, 20), (10, 21), (50, 127), (70, 64), (30, 50)]
    for number, place in enumerate(places):
        given[place] += 150 * (-1) ** number
    result = gd.remove_outliers(given)
    changed = set(map(tuple, np.argwhere(result != given)))
    assert changed <= set(places) and len(changed) >= 5
    for place in changed:
        assert abs(result[place] - clean()[place]) < 30


@pytest.mark.parametrize(("count", "replaced"), [(5, True), (3, True), (2, False)])
def test_pixels_hot_in_half_of_the_planes_are_replaced_in_all(count, replaced):
    image = noisy_picture(6)
    image[:count, 40, 60] += 150
    result = gd.remove_outliers(image, "TYX")
    assert (result[5, 40, 60] != image[5, 40, 60]) == replaced


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64"])
def test_types_are_kept_and_the_input_not_changed(dtype):
    given = (noisy_picture() + levels(96)[:, None]).astype(dtype)
    before = given.copy()
    for result in (gd.remove_stripes(given), gd.remove_outliers(given)):
        assert result.dtype == given.dtype and result.shape == given.shape
    assert gd.remove_stripes(given, dtype="float32").dtype == np.float32
    np.testing.assert_array_equal(given, before)


def test_nan_is_refused_or_kept():
    given = noisy_picture() + levels(96)[:, None]
    given[5:9, 7] = np.nan
    for call in (gd.remove_stripes, gd.remove_outliers):
        with pytest.raises(errors.NonFiniteError):
            call(given)
        kept = call(given, nonfinite="keep")
        np.testing.assert_array_equal(np.isnan(kept), np.isnan(given))


def test_padding_stays_to_the_bit():
    given = np.zeros((160, 200), np.float32)
    given[30:126, 40:168] = noisy_picture() + levels(96)[:, None]
    result = gd.remove_stripes(given)
    assert not result[:28].any() and not result[:, :38].any()
    assert left(result[30:126, 40:168], noisy_picture(), 1) < 3


def test_wrong_arguments_are_named():
    with pytest.raises(errors.SettingsError, match="kind='all'"):
        gd.remove_stripes(noisy_picture(), kind="all")
    with pytest.raises(errors.SettingsError, match="threshold=-1"):
        gd.remove_outliers(noisy_picture(), threshold=-1)
    for wrong in ("all", ("stripes", "x"), 3, [None]):
        with pytest.raises(errors.SettingsError, match="correct="):
            gd.Run(QUICK, correct=wrong)
    with pytest.raises(errors.AxesError):
        gd.remove_stripes(noisy_picture(), "TYX")


# The option of a run


def test_a_run_corrects_first_and_says_so():
    given = (noisy_picture() + levels(96)[:, None]).astype(np.float32)
    result = gd.denoise(given, QUICK, 8, correct="stripes")
    plain = gd.denoise(gd.remove_stripes(given), QUICK, 8)
    np.testing.assert_array_equal(result.image, plain.image)
    (words,) = result.record.corrected
    assert words.startswith("rows have individual offsets, ")
    assert result.record.as_dict()["corrected"] == [words]
    assert plain.record.corrected == ()
    np.testing.assert_array_equal(
        gd.nl_means(given, 8, settings=QUICK, correct="found"), plain.image
    )


def test_without_findings_a_run_is_as_without_the_option():
    given = noisy_picture().astype(np.uint16)
    result = gd.denoise(given, QUICK, 8, correct=("stripes", "outliers"))
    np.testing.assert_array_equal(result.image, gd.denoise(given, QUICK, 8).image)
    assert result.record.corrected == ("nothing was found",)


def test_types_of_a_run_are_those_of_the_image():
    given = (noisy_picture() + levels(96)[:, None]).astype(np.uint16)
    for dtype, made in ((None, "float32"), ("same", "uint16"), ("uint8", "uint8")):
        result = gd.denoise(given, QUICK, 8, correct="stripes", dtype=dtype)
        assert result.image.dtype == made
        assert (result.record.input_dtype, result.record.output_dtype) == ("uint16", made)


def test_noise_is_measured_after_the_correction():
    given = noisy_picture() + 3 * levels(96)[:, None]
    sigma = gd.denoise(given, QUICK, noise="gaussian", correct="stripes").record.sigma[0]
    assert sigma == pytest.approx(8, rel=0.1)


class Lazy:
    """An array that is read by NumPy indexing, and counts planes."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, index):
        return self.array[index]


def test_arrays_that_are_not_in_memory():
    given = (noisy_picture(5) + levels(96)[:, None]).astype(np.float32)
    wanted = gd.denoise(given, QUICK, 8, axes="TYX", correct="stripes")
    out = np.empty_like(given)
    result = gd.denoise(Lazy(given), QUICK, 8, axes="TYX", correct="stripes", out=out)
    np.testing.assert_allclose(out, wanted.image, atol=1e-3)
    assert result.record.corrected == wanted.record.corrected
    chunked = da.from_array(given, chunks=(2, 48, 64))
    lazy = gd.denoise_lazy(chunked, QUICK, 8, axes="TYX", correct="stripes").compute()
    np.testing.assert_allclose(lazy, wanted.image, atol=1e-2)


def test_parts_of_a_corrected_array_are_those_of_the_whole():
    given = (noisy_picture(2, 3) + levels(96)[:, None]).astype(np.uint16)
    correction = prepare_correction(given, "TCYX", parse_correction("stripes"))
    whole, lazy = correction.applied(given), CorrectedArray(Lazy(given), correction)
    for index in (1, (1, 2), (0, 1, slice(5, 9)), (slice(1, 2), ..., 3), (..., slice(2, 90))):
        np.testing.assert_array_equal(lazy[index], whole[index])


def test_frames_of_a_stream():
    given = (noisy_picture(3) + levels(3 * 96).reshape(3, 96, 1)).astype(np.float32)
    found = list(gd.stream(QUICK, given, 8, correct="stripes"))
    for frame, result in zip(given, found, strict=True):
        np.testing.assert_allclose(
            result, gd.denoise(gd.remove_stripes(frame), QUICK, 8).image, atol=1e-3
        )
    assert len(list(gd.stream(QUICK, [], 8, correct="stripes"))) == 0


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("sigma", [0.0, SIGMA])
def test_salt_and_pepper_is_found_and_removed(share, sigma):
    random = np.random.default_rng(3)
    clean = 40 + cells() * 0.6
    image = clean + random.normal(0, sigma, clean.shape)
    chance = random.random(clean.shape)
    wrong = (chance < share / 2) | (chance > 1 - share / 2)
    image = np.rint(np.where(wrong, 255 * (chance > 0.5), image)).clip(0, 255).astype(np.uint8)
    found = {each.kind: each.share for each in gd.find_structure(image).findings}
    assert found.keys() == {"hot", "dead"}
    assert sum(found.values()) == pytest.approx(100 * wrong.mean(), rel=0.25)
    removed = gd.remove_outliers(image).astype(float)
    assert np.mean(np.abs(removed - clean)[wrong] > 40) < 0.15
    assert np.mean((removed != image)[~wrong]) < 0.01
    assert any("pixels" in note for note in gd.estimate_noise(image).notes)
