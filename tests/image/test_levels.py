"""Grey levels to float32 and back, and straight to another type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napari_gpu_denoise.errors import ImageError, NonFiniteError, SettingsError
from napari_gpu_denoise.image.levels import Levels, check_numbers, convert, output_dtype, readable


def through(array, levels=None, dtype=None):
    levels = levels or Levels.of(array)
    values, out = np.empty(array.shape, np.float32), np.empty(array.shape, dtype or array.dtype)
    levels.load(array, values)
    return values, out, levels.store(values, out)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "float32"])
def test_short_integers_and_ordinary_floats_pass_as_they_are(dtype):
    ends = (-3, 200) if dtype == "float32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    array = np.linspace(*ends, 1000).astype(dtype)
    assert Levels.of(array).plain
    values, out, clipped = through(array)
    np.testing.assert_array_equal(values, array)
    np.testing.assert_array_equal(out, array)
    assert clipped == 0


@pytest.mark.parametrize("dtype", ["uint32", "int32", "uint64", "int64"])
@pytest.mark.parametrize("where", ["low", "middle", "high"])
def test_wide_integers_with_a_small_range_pass_exactly(dtype, where):
    limits = np.iinfo(dtype)
    middle = (int(limits.min) + int(limits.max)) // 2
    base = {"low": int(limits.min), "middle": middle, "high": int(limits.max) - 70000}[where]
    array = np.array([base + k for k in (0, 1, 2, 255, 32767, 65537, 70000)], dtype)
    values, out, clipped = through(array)
    np.testing.assert_array_equal(out, array)
    np.testing.assert_array_equal(values, [0, 1, 2, 255, 32767, 65537, 70000])
    assert clipped == 0


@pytest.mark.parametrize("dtype", ["uint32", "int32", "uint64", "int64"])
def test_wide_integers_over_the_full_range_keep_relative_precision(dtype):
    limits = np.iinfo(dtype)
    span = int(limits.max) - int(limits.min)
    given_levels = [int(limits.min) + span * k // 1000 for k in range(1001)]
    array = np.array(given_levels, dtype)
    values, out, _ = through(array)
    assert np.all(np.abs(values) <= 2**20)
    errors = [abs(int(a) - b) for a, b in zip(out, given_levels, strict=True)]
    assert max(errors) <= span * 2.0**-23
    assert np.all(np.diff(out.astype(float)) > 0)


@given(st.floats(-1e300, 1e300), st.floats(1e-6, 1e6))
def test_float64_keeps_precision_relative_to_its_range(offset, spread):
    array = offset + spread * np.linspace(0, 1, 50)
    values, out, _ = through(array)
    found = array.max() - array.min()
    assert np.max(np.abs(out - array)) <= max(found, 0) * 2.0**-22 + 4 * np.spacing(abs(offset))
    assert np.all(np.isfinite(values))


@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1e-3, 1.0, 1e3, 1e20, 3e38])
def test_float32_of_any_size_gives_values_whose_squares_are_finite(scale):
    array = (np.linspace(-1, 1, 100) * scale).astype(np.float32)
    values, out, _ = through(array)
    with np.errstate(over="raise"):
        squares = values**2
    assert squares.max() > 0
    np.testing.assert_allclose(out, array, rtol=1e-6, atol=abs(scale) * 1e-7)


def test_float64_of_the_largest_range_does_not_overflow():
    top = 0.999 * np.finfo(np.float64).max
    array = np.array([-top, -top / 3, 0, top / 7, top])
    values, out, _ = through(array)
    assert np.all(np.isfinite(values))
    np.testing.assert_allclose(out, array, rtol=1e-6, atol=top * 1e-7)
    below = array[:3]
    assert Levels.of(below, keep_zero=True).takes(below[[0, -1]])
    wide = Levels(0, 4.0)
    assert [wide.takes(level + np.arange(2.0)) for level in (0, 1e5, 1e6)] == [True, True, False]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_results_out_of_range_are_clipped_and_counted(dtype):
    limits = np.iinfo(dtype)
    low, high = float(limits.min), float(limits.max)
    room = high - low
    levels = Levels(0, 2.0 ** np.ceil(np.log2(room)))
    wanted = np.array([low - room, low - 0.2 * room, low + room / 4, high + room / 8, 2 * room])
    out = np.empty(5, dtype)
    clipped = levels.store((wanted / levels.scale).astype(np.float32), out)
    assert clipped == 4
    assert out.tolist()[:2] == [limits.min] * 2
    assert out.tolist()[3:] == [limits.max] * 2
    assert abs(int(out[2]) - int(low + room / 4)) <= 1 + room * 2**-22


def test_results_are_rounded_to_nearest():
    out = np.empty(4, np.uint8)
    assert Levels(0, 1.0).store(np.array([1.4, 1.6, 254.6, 255.4], np.float32), out) == 0
    assert out.tolist() == [1, 2, 255, 255]
    assert Levels(0, 1.0).store(np.array([-0.4, -0.6, 255.6, 256], np.float32), out) == 3
    assert out.tolist() == [0, 0, 255, 255]
    for wild, kept in ((300, 255), (-2, 0)):
        values = np.array([3.4, wild, 7, 8], np.float32)
        assert Levels(0, 1.0).store(values, out) == 1
        assert out.tolist() == [3, kept, 7, 8] and values[0] == np.float32(3.4)


def test_empty_and_unreal_arrays_and_nan_are_refused():
    with pytest.raises(ImageError, match="no pixels"):
        check_numbers(np.ones((3, 0)))
    for dtype in ("bool", "complex64", "longdouble", "datetime64[s]", "U3", object):
        with pytest.raises(ImageError, match="not supported: convert"):
            readable(np.zeros((3, 3), dtype))
    array = np.ones((3, 4))
    array[0, 0], array[1, 1], array[2, 2] = np.nan, np.inf, -np.inf
    with pytest.raises(NonFiniteError, match="3 of 12 pixels"):
        Levels.of(array)


def test_the_type_of_a_result():
    assert output_dtype("same", np.dtype(">u2")) == np.dtype("u2")
    for dtype in (None, "auto"):
        assert output_dtype(dtype, np.dtype(">u2")) is None  # depends on the noise
        assert output_dtype(dtype, np.dtype(">f4")) == np.float32
    assert output_dtype("float32", np.dtype("u1")) == np.float32
    assert output_dtype(np.uint16, np.dtype("u1")) == np.uint16
    for dtype in ("grey", "bool", "complex64", "U2", "longdouble"):
        with pytest.raises(SettingsError, match="dtype="):
            output_dtype(dtype, np.dtype("u1"))


@pytest.mark.parametrize(
    ("levels", "dtype", "expected", "clipped"),
    [
        ([0.4, 0.6, 255.6, -3], "uint8", [0, 1, 255, 0], 2),
        ([0, 255], "int32", [0, 255], 0),
        (np.array([0, 300], np.uint16), "uint8", [0, 255], 1),
        (np.array([-5, 5], np.int8), "uint64", [0, 5], 1),
        (np.array([2**64 - 1, 7], np.uint64), "int64", [2**63 - 1, 7], 1),
        (np.array([2**63 - 1, -1], np.int64), "uint64", [2**63 - 1, 0], 1),
        ([1e30, 7.0], "uint64", [2**64 - 1, 7], 1),
        ([1e30, 7.0], "int64", [2**63 - 1, 7], 1),
        (np.array([2.0**31, 5], np.float32), "int32", [2**31 - 1, 5], 1),
        (np.array([65504, -1], np.float16), "uint16", [65504, 0], 1),
        ([1.25, -2.5], "float32", [1.25, -2.5], 0),
    ],
)
def test_unfiltered_pixels_are_rounded_clipped_and_counted(levels, dtype, expected, clipped):
    out = np.empty(len(levels), dtype)
    assert convert(np.asarray(levels), out) == clipped
    assert out.tolist() == expected


@pytest.mark.parametrize(("dtype", "level"), [("f2", 1e5), ("f4", 1e300), ("f4", -1e300)])
def test_a_float_type_that_is_too_narrow_saturates(dtype, level):
    """Grey levels beyond it became infinite, without a word."""
    array = np.array([[level, level / 2, -level]])
    largest = np.finfo(dtype).max
    expected = np.clip(array, -largest, largest).astype(dtype)
    out = np.empty(array.shape, dtype)
    assert convert(array, out) == np.count_nonzero(abs(array) > largest)
    np.testing.assert_array_equal(out, expected)
    _, out, clipped = through(array, dtype=dtype)
    assert clipped == np.count_nonzero(abs(array) > largest)
    assert np.isfinite(out).all()


def test_the_ends_of_float64_stay_finite():
    array = np.array([[-np.finfo(np.float64).max, np.finfo(np.float64).max]])
    levels = Levels.of(array)
    values, out = np.empty(array.shape, np.float32), np.empty_like(array)
    levels.load(array, values)
    levels.store(np.nextafter(values, np.float32(np.inf) * np.sign(values)), out)
    assert np.isfinite(out).all()
    spoilt = np.array([[np.nan, np.inf, 1.0]])
    narrow = np.empty(spoilt.shape, np.float32)
    assert convert(spoilt, narrow) == 0
    np.testing.assert_array_equal(narrow, spoilt)
