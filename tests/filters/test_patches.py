"""Where patches lie: the grid of reference patches and the offsets of a window."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.filters.search.patch_search import offset_table
from reference import nl_means as reference


@pytest.mark.parametrize("window", [1, 3, 7, 21])
@pytest.mark.parametrize(("frames", "slices"), [((0, 0), 0), ((2, 1), 0), ((0, 0), 2), ((1, 1), 1)])
def test_offsets_are_those_of_the_reference(window, frames, slices):
    table = offset_table(window, frames, slices)
    assert table.dtype == np.int32
    np.testing.assert_array_equal(table, reference.offset_table(window, *frames, slices))
    assert len(np.unique(table, axis=0)) == window**2 * (1 + sum(frames)) * (1 + 2 * slices)
