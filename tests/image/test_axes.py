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


def test_channels_are_the_first_axis_named_c_or_s():
    assert [channel_axis(axes) for axes in ("TYXS", "YCSX", "TZQYX")] == [3, 1, None]
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    frames = arrange(array, "SCYX", "C")
    assert (frames.joined, frames.shape) == (2, (1, 3, 1, 4, 5))
    np.testing.assert_array_equal(frames.frame(0, 2, 1)[0], array[1, 2])
    assert arrange(array, "TZYX", "C").joined == 1
