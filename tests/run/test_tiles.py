"""Tiles: together they yield every pixel once, and read what the filter needs."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_gpu_denoise.protocol.tiles import Reach, Span, split

lengths = st.integers(1, 60)
margins = st.tuples(st.integers(0, 9), st.integers(0, 9))
shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 7), lengths, lengths)
reaches = st.builds(Reach, margins, margins, margins, margins)


def axes_of(reach: Reach):
    return reach.t, reach.z, reach.y, reach.x


def check(tiles, shape, reach, wholes):
    seen = np.zeros((shape[0], *(whole.length for whole in wholes)), int)
    for tile in tiles:
        region = []
        for span, one, whole in zip(
            (tile.t, tile.z, tile.y, tile.x), axes_of(reach), wholes, strict=True
        ):
            assert span.length == whole.length
            # It reads its margin, but for what lies beyond the axis or the part that is there.
            assert span.source_start == max(span.start - one[0], whole.source_start)
            assert span.source_stop == min(span.stop + one[1], whole.source_stop)
            assert span.margin == span.start - span.source_start
            region.append(slice(span.start, span.stop))
        assert tile.shape == tuple(r.stop - r.start for r in region)
        assert tile.source_shape == tuple(
            s.source_stop - s.source_start for s in (tile.t, tile.z, tile.y, tile.x)
        )
        seen[(tile.sequence, *region)] += 1
    expected = np.zeros_like(seen)
    expected[(slice(None), *(slice(whole.start, whole.stop) for whole in wholes))] = 1
    np.testing.assert_array_equal(seen, expected)


@settings(max_examples=60)
@given(shapes, reaches, st.integers(500, 20000))
def test_tiles_yield_every_pixel_once(shape, reach, pixels):
    tiles = split(shape, reach, pixels)
    check(tiles, shape, reach, [Span.whole(length) for length in shape[1:]])


@settings(max_examples=60)
@given(st.integers(1, 3), st.lists(st.tuples(*[st.integers(0, 16)] * 5), min_size=4, max_size=4))
def test_tiles_of_a_part_yield_that_part(sequences, cuts):
    wholes = []
    for cut in cuts:
        a, b, c, d, e = sorted(cut)
        wholes.append(Span(b, c + 1, a, d + 1, e + 1))
    reach = Reach((2, 1), (0, 3), (4, 4), (5, 1))
    # What is there covers at least what the part needs, as lazy arrays do.
    wholes = [
        Span(
            w.start,
            w.stop,
            min(w.source_start, max(w.start - one[0], 0)),
            max(w.source_stop, min(w.stop + one[1], w.length)),
            w.length,
        )
        for w, one in zip(wholes, axes_of(reach), strict=True)
    ]
    shape = (sequences, *(whole.source_size for whole in wholes))
    check(split(shape, reach, 2000, tuple(wholes)), shape, reach, wholes)


@settings(max_examples=100)
@given(shapes, reaches, st.integers(3000, 20000))
def test_tiles_stay_within_the_limit_where_they_can(shape, reach, pixels):
    smallest = math.prod(
        min(before + 1 + after, length)
        for length, (before, after) in zip(shape[1:], axes_of(reach), strict=True)
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
