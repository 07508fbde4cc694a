"""Named axes, the order of frames, and grey levels to float32 and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napari_gpu_denoise.axes import (
    Levels,
    arrange,
    channel_axis,
    check_axes,
    check_numbers,
    output_dtype,
)
from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError

# Names


@pytest.mark.parametrize(
    ("axes", "shape", "names"),
    [
        (None, (5, 6), "YX"),
        (None, (2, 3, 5, 6), "..YX"),
        ("yx", (5, 6), "YX"),
        (" tzyx ", (2, 3, 5, 6), "TZYX"),
        ("XYC", (5, 6, 3), "XYC"),
        ("QRYX", (2, 3, 5, 6), "QRYX"),
        ("..YX", (2, 3, 5, 6), "..YX"),
    ],
)
def test_names_are_upper_case_and_default_to_planes(axes, shape, names):
    assert check_axes(axes, shape) == names


@pytest.mark.parametrize(
    ("axes", "shape", "sentence"),
    [
        (None, (5,), "at least two axes"),
        ("YX", (2, 5, 6), r"names 2 axes, but the array has 3, of lengths \(2, 5, 6\)"),
        ("TTYX", (2, 2, 5, 6), "names T twice"),
        ("TX", (5, 6), "has no Y"),
        ("YZ", (5, 6), "has no X"),
        ("Y X", (2, 5, 6), "holds ' '"),
        ("ÄYX", (2, 5, 6), "holds 'Ä'"),
        ("", (5, 6), "names 0 axes"),
    ],
)
def test_names_that_do_not_fit_are_refused(axes, shape, sentence):
    with pytest.raises(AxesError, match=sentence):
        check_axes(axes, shape)


# Frames


@pytest.mark.parametrize(
    ("axes", "joint", "shape", "independent"),
    [
        ("YX", "", (1, 1, 1, 5, 6), ()),
        ("TZYX", "", (1, 6, 1, 5, 6), (2, 3)),
        ("TZYX", "T", (3, 2, 1, 5, 6), (3,)),
        ("TZYX", "Z", (1, 2, 3, 5, 6), (2,)),
        ("TZYX", "TZ", (1, 2, 3, 5, 6), ()),
        ("YX", "TZ", (1, 1, 1, 5, 6), ()),
        ("CTZYX", "TZ", (4, 2, 3, 5, 6), (4,)),
        ("XCYTZ", "TZ", (4, 2, 3, 5, 6), (4,)),
        ("XCYTZ", "", (1, 24, 1, 5, 6), (4, 2, 3)),
    ],
)
def test_frames_have_joined_axes_last(axes, joint, shape, independent):
    lengths = {"T": 2, "Z": 3, "C": 4, "Y": 5, "X": 6}
    frames = arrange(np.zeros([lengths[a] for a in axes]), axes, joint)
    assert frames.shape == shape
    assert frames.independent == independent


def test_frames_are_views_at_the_right_place():
    lengths = {"T": 2, "Z": 3, "C": 4, "Y": 5, "X": 6}
    for axes in ("TZCYX", "XCYZT", "ZXTYC"):
        array = np.arange(720).reshape([lengths[a] for a in axes])
        usual = np.transpose(array, [axes.index(a) for a in "CTZYX"])
        both = arrange(array, axes, "TZ")
        for c in range(4):
            for t in range(2):
                np.testing.assert_array_equal(both.frame(c, t), usual[c, t])
        single = arrange(array, axes, "Z")
        assert single.joined == both.joined == 1
        seen = {}
        for t in range(8):
            frame = single.frame(0, t)
            assert np.shares_memory(frame, array)
            where = np.argwhere(usual == frame[0, 0, 0])[0]
            np.testing.assert_array_equal(frame, usual[where[0], where[1]])
            seen[tuple(where[:2])] = t
        assert len(seen) == 8


def test_channels_are_the_first_axis_named_c_or_s():
    assert channel_axis("TYXS") == 3
    assert channel_axis("YCSX") == 1
    assert channel_axis("TZQYX") is None


@pytest.mark.parametrize("axes", ["TZCYX", "XSYZT", "ZXTYC"])
def test_joined_channels_lie_side_by_side(axes):
    lengths = {"T": 2, "Z": 3, "C": 4, "S": 4, "Y": 5, "X": 6}
    array = np.arange(720).reshape([lengths[a] for a in axes])
    names = axes.replace("S", "C")
    usual = np.transpose(array, [names.index(a) for a in "CTZYX"])
    together = arrange(array, axes, "CTZ")
    assert together.joined == 4
    assert together.shape == (1, 2, 3, 5, 6)
    alone = arrange(array, axes, "C")
    assert alone.joined == 4
    assert alone.shape == (1, 6, 1, 5, 6)
    order = [a for a in names if a in "TZ"]
    for c, t, z in np.ndindex(4, 2, 3):
        frame = together.frame(0, t, c)
        assert np.shares_memory(frame, array)
        np.testing.assert_array_equal(frame, usual[c, t])
        number = 3 * t + z if order == ["T", "Z"] else 2 * z + t
        np.testing.assert_array_equal(alone.frame(0, number, c)[0], usual[c, t, z])


def test_of_two_axes_of_channels_the_first_is_joined():
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    frames = arrange(array, "SCYX", "C")
    assert (frames.joined, frames.shape) == (2, (1, 3, 1, 4, 5))
    np.testing.assert_array_equal(frames.frame(0, 2, 1)[0], array[1, 2])
    assert arrange(array, "TZYX", "C").joined == 1


def test_a_part_is_indexed_by_where_it_lies_in_the_whole():
    whole = np.arange(4 * 3 * 8 * 9).reshape(4, 3, 8, 9)
    part = arrange(whole[1:3, 1:, 2:7, 3:], "TZYX", "TZ", origin=(1, 1, 2, 3))
    region = part.region(slice(1, 3), slice(4, 7), slice(5, 9))
    np.testing.assert_array_equal(part.frame(0, 2)[region], whole[2, 1:3, 4:7, 5:9])


# Levels


def through(array, levels=None, dtype=None):
    levels = levels or Levels.of(array)
    values, out = np.empty(array.shape, np.float32), np.empty(array.shape, dtype or array.dtype)
    levels.load(array, values)
    return values, out, levels.store(values, out)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_short_integers_pass_as_they_are(dtype):
    limits = np.iinfo(dtype)
    array = np.linspace(limits.min, limits.max, 1000).astype(dtype)
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


def test_ordinary_float32_passes_as_it_is():
    array = np.random.default_rng(0).normal(100, 20, 1000).astype(np.float32)
    assert Levels.of(array).plain
    assert Levels.of(array / 100).plain


def test_float64_of_the_largest_range_does_not_overflow():
    top = 0.999 * np.finfo(np.float64).max
    array = np.array([-top, -top / 3, 0, top / 7, top])
    values, out, _ = through(array)
    assert np.all(np.isfinite(values))
    np.testing.assert_allclose(out, array, rtol=1e-6, atol=top * 1e-7)


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


def test_empty_and_unreal_arrays_are_refused():
    with pytest.raises(ImageError, match="no pixels"):
        check_numbers(np.ones((3, 0)))
    for dtype in ("bool", "complex64", "longdouble", "datetime64[s]", "U3", object):
        with pytest.raises(ImageError, match="not filtered: convert"):
            check_numbers(np.zeros((3, 3), dtype))


def test_nonfinite_values_are_counted():
    array = np.ones((3, 4))
    array[0, 0], array[1, 1], array[2, 2] = np.nan, np.inf, -np.inf
    with pytest.raises(NonFiniteError, match="3 of 12 pixels"):
        Levels.of(array)


def test_the_type_of_a_result():
    for dtype in (None, "same"):
        assert output_dtype(dtype, np.dtype(">u2")) == np.dtype("u2")
    assert output_dtype("float32", np.dtype("u1")) == np.float32
    assert output_dtype(np.uint16, np.dtype("u1")) == np.uint16
    for dtype in ("grey", "bool", "complex128", "U2", "longdouble"):
        with pytest.raises(ImageError, match="dtype="):
            output_dtype(dtype, np.dtype("u1"))
