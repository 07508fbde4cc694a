"""What the base class of all filters decides."""

from __future__ import annotations

import dataclasses

import pytest

from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.filters import FILTERS
from scenes import joining, small

KIND = FILTERS[0]


def test_settings_along_an_axis_of_length_one_do_not_apply():
    joined = joining(KIND, "TZ")
    assert joined.for_array("TZYX", (3, 2, 5, 6)) == joined
    assert joined.for_array("TZYX", (3, 1, 5, 6)) == joining(KIND, "T")
    assert joined.for_array("TZYX", (1, 1, 5, 6)) == small(KIND)
    with pytest.raises(AxesError, match="needs an axis Z"):
        joined.for_array("TYX", (3, 5, 6))


def test_a_filter_may_depend_on_the_array():
    @dataclasses.dataclass(frozen=True)
    class Colours(KIND):
        def for_array(self, names, shape):
            fitting = super().for_array(names, shape)
            return dataclasses.replace(fitting, neighbours=shape[names.index("C")])

    settings = small(Colours, frames_after=1)
    applied = settings.for_array("TCYX", (1, 3, 5, 6))
    assert applied == small(Colours, neighbours=3)
