"""Tiles: how large they are. For what they read and yield see tests/test_ways.py."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from napari_gpu_denoise.protocol.tiles import Reach, split

lengths = st.integers(1, 60)
margins = st.tuples(st.integers(0, 9), st.integers(0, 9))
shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 7), lengths, lengths)
reaches = st.builds(Reach, margins, margins, margins, margins)


@settings(max_examples=100)
@given(shapes, reaches, st.integers(3000, 20000))
def test_tiles_stay_within_the_limit_where_they_can(shape, reach, pixels):
    smallest = math.prod(
        min(before + 1 + after, length)
        for length, (before, after) in zip(
            shape[1:], (reach.t, reach.z, reach.y, reach.x), strict=True
        )
    )
    tiles = split(shape, reach, pixels)
    largest = max(math.prod(tile.source_shape) for tile in tiles)
    assert largest <= max(pixels, 2 * smallest)


def test_one_tile_where_it_fits_and_channels_count_and_stay_together():
    reach, shape = Reach(y=(5, 5), x=(5, 5)), (1, 1, 1, 100, 100)
    assert len(split(shape, reach, 10000)) == 1
    assert len(split(shape, reach, 9999)) == 2
    assert len(split((3, *shape[1:]), reach, 10000)) == 3
    assert len(split(shape, reach, 30000, channels=3)) == 1
    for limits in ({"max_pixels": 29999}, {"max_pixels": 10**9, "max_yield": 29999}):
        tiles = split(shape, reach, channels=3, **limits)
        assert [tile.shape for tile in tiles] == [(1, 1, 50, 100)] * 2
        assert {tile.channels for tile in tiles} == {3}
