"""Where patches lie: the grid of reference patches and the offsets of a window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napari_gpu_denoise.filters.search.patch_search import Grid, offset_table
from napari_gpu_denoise.protocol.tiles import Span
from reference import nl_means as reference


@pytest.mark.parametrize("window", [1, 3, 7, 21])
@pytest.mark.parametrize(("frames", "slices"), [((0, 0), 0), ((2, 1), 0), ((0, 0), 2), ((1, 1), 1)])
def test_offsets_are_those_of_the_reference(window, frames, slices):
    table = offset_table(window, frames, slices)
    assert table.dtype == np.int32
    np.testing.assert_array_equal(table, reference.offset_table(window, *frames, slices))
    assert len(np.unique(table, axis=0)) == window**2 * (1 + sum(frames)) * (1 + 2 * slices)


def positions(grid: Grid, step: int) -> list[int]:
    return [min(grid.first + k * step, grid.last) for k in range(grid.count)]


@st.composite
def tiles_of_an_axis(draw):
    patch = draw(st.integers(1, 16))
    step = draw(st.integers(1, patch))
    length = draw(st.integers(patch, 80))
    start = draw(st.integers(0, length - 1))
    stop = draw(st.integers(start + 1, length))
    return patch, step, length, start, stop


@given(tiles_of_an_axis())
def test_a_tile_has_the_patches_of_the_whole_that_cover_it(case):
    patch, step, length, start, stop = case
    source_start, source_stop = max(start - patch + 1, 0), min(stop + patch - 1, length)
    grid = Grid.of(Span(start, stop, source_start, source_stop, length), patch, step)
    covering = [p for p in reference.grid(length, patch, step) if p + patch > start and p < stop]
    assert [p + source_start for p in positions(grid, step)] == covering
    # The regular ones are a step apart: only the last may be nearer.
    regular = positions(grid, step)[: grid.regular]
    assert set(np.diff(regular)) <= {step}
    assert grid.count - grid.regular in (0, 1)


@given(tiles_of_an_axis(), st.integers(1, 9))
def test_groups_hold_all_patches(case, size):
    patch, step, length, start, stop = case
    grid = Grid.of(Span(start, stop, 0, length, length), patch, step)
    regular = -(-grid.regular // size)
    assert grid.groups(size) == regular + (grid.count > grid.regular)
