"""Named axes, and the order of frames."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.image.axes import arrange, channel_axis, check_axes

# Names


@pytest.mark.parametrize(
    ("axes", "shape", "names"),
    [
        (None, (5, 6), "YX"),
        (None, (2, 3, 5, 6), "..YX"),
        (None, (512, 3), "YX"),
        (None, (512, 15, 3), ".YX"),
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
        (
            "YX",
            (2, 5, 6),
            r"names 2 axes, but the array has 3, of lengths \(2, 5, 6\): .* such as 'TYX'",
        ),
        ("TTYX", (2, 2, 5, 6), "names T twice"),
        ("TX", (5, 6), "has no Y"),
        ("YZ", (5, 6), "has no X"),
        ("Y X", (2, 5, 6), "holds ' '"),
        ("ÄYX", (2, 5, 6), "holds 'Ä'"),
        ("", (5, 6), "names 0 axes"),
        (None, (512, 512, 3), r"may be colour: pass axes='YXS' for colour, or axes='\.YX'"),
        (None, (2, 512, 16, 4), r"axes='\.YXS' .* axes='\.\.YX' for planes of 16 x 4 pixels"),
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


def test_channels_are_the_first_axis_named_c_or_s():
    assert [channel_axis(axes) for axes in ("TYXS", "YCSX", "TZQYX")] == [3, 1, None]
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
