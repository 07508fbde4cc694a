"""Where patches lie, the offsets of a window, and sums of so many."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.filters.search.patch_search import offset_table
from napari_gpu_denoise.filters.sums import sum_arguments
from reference import nl_means as reference


@pytest.mark.parametrize("window", [1, 3, 7, 21])
@pytest.mark.parametrize(("frames", "slices"), [((0, 0), 0), ((2, 1), 0), ((0, 0), 2), ((1, 1), 1)])
def test_offsets_are_those_of_the_reference(window, frames, slices):
    table = offset_table(window, frames, slices)
    assert table.dtype == np.int32
    np.testing.assert_array_equal(table, reference.offset_table(window, *frames, slices))
    assert len(np.unique(table, axis=0)) == window**2 * (1 + sum(frames)) * (1 + 2 * slices)


@pytest.mark.parametrize(("added", "matched"), [(64, 1), (900, 128), (900, 129), (9000, 4000)])
def test_sums_are_whole_numbers_of_31_bits(added, matched):
    joining, adding = sum_arguments(added, matched, 16.0)
    assert joining["scale"] * 16 * added <= 2**31 < joining["scale"] * 64 * added
    assert matched * joining["units"] <= 2**31 >= added * adding["largest"]
