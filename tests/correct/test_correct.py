"""Removal of structured noise: what is left of it, what stays, and the option of every run."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.correct.correction import CorrectedArray, prepare_correction
from napari_gpu_denoise.correct.request import parse_correction
from scenes import small

SHAPE = 96, 128
QUICK = small(gd.NLMeans)


def clean() -> np.ndarray:
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    discs = (np.hypot(y - 40, x - 50) < 25) * 60 + (np.hypot(y - 70, x - 100) < 15) * 90
    return 100.0 + discs


def noisy(*more: int, seed=0) -> np.ndarray:
    return clean() + np.random.default_rng(seed).normal(0, 8, (*more, *SHAPE))


def levels(count: int, seed=1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 8, count)


def left(result: np.ndarray, without: np.ndarray, axis: int) -> float:
    """Return the standard deviation of the offsets that are left, of 8."""
    return float((result - without).mean(axis=axis).std())


def test_rows_and_columns_are_removed():
    image, rows, columns = noisy(), levels(96)[:, None], levels(128)
    assert left(gd.remove_stripes(image + rows), image, 1) < 3
    assert left(gd.remove_stripes(image + columns), image, 0) < 3
    both = gd.remove_stripes(image + rows + columns)
    assert left(both, image, 1) < 3 and left(both, image, 0) < 3


def test_only_what_is_asked_for_is_removed():
    image, rows = noisy(), levels(96)[:, None]
    given = image + rows
    np.testing.assert_array_equal(
        gd.remove_stripes(given, kind="columns", fixed=False).shape, SHAPE
    )
    np.testing.assert_array_equal(gd.remove_stripes(given, kind="hum"), given)
    np.testing.assert_array_equal(gd.remove_stripes(image), image)
    assert left(gd.remove_stripes(given, kind="rows"), image, 1) < 3


def test_axes_may_be_in_any_order():
    given = noisy(3) + levels(96)[:, None]
    wanted = gd.remove_stripes(given, "TYX")
    for axes, order in (("YXT", (1, 2, 0)), ("XTY", (2, 0, 1))):
        moved = gd.remove_stripes(np.transpose(given, order), axes)
        np.testing.assert_allclose(moved, np.transpose(wanted, order), atol=1e-3)


def test_fixed_offsets_are_measured_together():
    image, rows = noisy(6), levels(96)[:, None]
    together = gd.remove_stripes(image + rows, "TYX") - image - rows
    assert np.ptp(together[:, :, 5], axis=0).max() < 1e-3  # the same is removed from all
    alone = gd.remove_stripes(image + rows, "TYX", fixed=False) - image - rows
    assert np.ptp(alone[:, :, 5], axis=0).max() > 0.1
    changing = image + levels(6 * 96).reshape(6, 96, 1)
    assert left(gd.remove_stripes(changing, "TYX"), image, 2) < 3


def test_hum_is_removed_from_each_frame():
    y = np.arange(96)[:, None]
    hum = np.stack([6 * np.cos(0.9 * y + phase) * np.ones(128) for phase in (0, 1, 2.5)])
    image = noisy(3)
    assert np.std(gd.remove_stripes(image + hum, "TYX", kind="hum") - image) < 1


def test_outliers_are_replaced_and_nothing_else():
    image = noisy().astype(np.float32)
    given = image.copy()
    places = [(0, 0), (10, 20), (10, 21), (50, 127), (70, 64), (30, 50)]
    for number, place in enumerate(places):
        given[place] += 150 * (-1) ** number
    result = gd.remove_outliers(given)
    changed = set(map(tuple, np.argwhere(result != given)))
    assert changed <= set(places) and len(changed) >= 5
    for place in changed:
        assert abs(result[place] - clean()[place]) < 30


def test_pixels_hot_in_most_planes_are_replaced_in_all():
    image = noisy(6)
    image[:, 40, 60] += [150, 150, 150, 150, 20, 150]
    result = gd.remove_outliers(image, "TYX")
    assert result[4, 40, 60] != image[4, 40, 60]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64"])
def test_types_are_kept_and_the_input_not_changed(dtype):
    given = (noisy() + levels(96)[:, None]).astype(dtype)
    before = given.copy()
    for result in (gd.remove_stripes(given), gd.remove_outliers(given)):
        assert result.dtype == given.dtype and result.shape == given.shape
    assert gd.remove_stripes(given, dtype="float32").dtype == np.float32
    np.testing.assert_array_equal(given, before)


def test_nan_is_refused_or_kept():
    given = noisy() + levels(96)[:, None]
    given[5:9, 7] = np.nan
    for call in (gd.remove_stripes, gd.remove_outliers):
        with pytest.raises(errors.NonFiniteError):
            call(given)
        kept = call(given, nonfinite="keep")
        np.testing.assert_array_equal(np.isnan(kept), np.isnan(given))


def test_padding_stays_to_the_bit():
    given = np.zeros((160, 200), np.float32)
    given[30:126, 40:168] = noisy() + levels(96)[:, None]
    result = gd.remove_stripes(given)
    assert not result[:28].any() and not result[:, :38].any()
    assert left(result[30:126, 40:168], noisy(), 1) < 3


def test_wrong_arguments_are_named():
    with pytest.raises(errors.SettingsError, match="kind='all'"):
        gd.remove_stripes(noisy(), kind="all")
    with pytest.raises(errors.SettingsError, match="threshold=-1"):
        gd.remove_outliers(noisy(), threshold=-1)
    for wrong in ("all", ("stripes", "x"), 3, [None]):
        with pytest.raises(errors.SettingsError, match="correct="):
            gd.Run(QUICK, correct=wrong)
    with pytest.raises(errors.AxesError):
        gd.remove_stripes(noisy(), "TYX")


# The option of a run


def test_a_run_corrects_first_and_says_so():
    given = (noisy() + levels(96)[:, None]).astype(np.float32)
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
    given = noisy().astype(np.uint16)
    result = gd.denoise(given, QUICK, 8, correct=("stripes", "outliers"))
    np.testing.assert_array_equal(result.image, gd.denoise(given, QUICK, 8).image)
    assert result.record.corrected == ("nothing was found",)


def test_types_of_a_run_are_those_of_the_image():
    given = (noisy() + levels(96)[:, None]).astype(np.uint16)
    for dtype, made in ((None, "float32"), ("same", "uint16"), ("uint8", "uint8")):
        result = gd.denoise(given, QUICK, 8, correct="stripes", dtype=dtype)
        assert result.image.dtype == made
        assert (result.record.input_dtype, result.record.output_dtype) == ("uint16", made)


def test_noise_is_measured_after_the_correction():
    given = noisy() + 3 * levels(96)[:, None]
    sigma = gd.denoise(given, QUICK, noise="gaussian", correct="stripes").record.sigma[0]
    assert sigma == pytest.approx(8, rel=0.1)


class Lazy:
    """An array that is read by NumPy indexing, and counts planes."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, index):
        return self.array[index]


def test_arrays_that_are_not_in_memory():
    given = (noisy(5) + levels(96)[:, None]).astype(np.float32)
    wanted = gd.denoise(given, QUICK, 8, axes="TYX", correct="stripes")
    out = np.empty_like(given)
    result = gd.denoise(Lazy(given), QUICK, 8, axes="TYX", correct="stripes", out=out)
    np.testing.assert_allclose(out, wanted.image, atol=1e-3)
    assert result.record.corrected == wanted.record.corrected
    chunked = da.from_array(given, chunks=(2, 48, 64))
    lazy = gd.denoise_lazy(chunked, QUICK, 8, axes="TYX", correct="stripes").compute()
    np.testing.assert_allclose(lazy, wanted.image, atol=1e-2)


def test_parts_of_a_corrected_array_are_those_of_the_whole():
    given = (noisy(2, 3) + levels(96)[:, None]).astype(np.uint16)
    correction = prepare_correction(given, "TCYX", parse_correction("stripes"))
    whole, lazy = correction.applied(given), CorrectedArray(Lazy(given), correction)
    for index in (1, (1, 2), (0, 1, slice(5, 9)), (slice(1, 2), ..., 3), (..., slice(2, 90))):
        np.testing.assert_array_equal(lazy[index], whole[index])


def test_frames_of_a_stream():
    given = (noisy(3) + levels(3 * 96).reshape(3, 96, 1)).astype(np.float32)
    found = list(gd.stream(QUICK, given, 8, correct="stripes"))
    for frame, result in zip(given, found, strict=True):
        np.testing.assert_allclose(
            result, gd.denoise(gd.remove_stripes(frame), QUICK, 8).image, atol=1e-3
        )
    assert len(list(gd.stream(QUICK, [], 8, correct="stripes"))) == 0
