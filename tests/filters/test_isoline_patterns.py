"""The segments that isolines are made of."""

from __future__ import annotations

import math

import numpy as np
import pytest

from napari_gpu_denoise.errors import SettingsError
from reference.isoline_patterns import DIRECTIONS, segment_patterns

LENGTHS = [1, 2, 3, 5, 8, 17, 40]


def as_sets(patterns):
    return [{tuple(offset) for offset in pattern} for pattern in patterns.tolist()]


def test_first_quarter_by_hand():
    """Steps aside: k * 0.199, k * 0.414, k * 0.668, rounded."""
    aside = [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 1, 2, 2], [1, 1, 2, 3, 3], [1, 2, 3, 4, 5]]
    patterns = segment_patterns(5)
    for direction, steps in enumerate(aside):
        expected = [(-step, k) for k, step in enumerate(steps, 1)]
        assert patterns[direction].tolist() == [list(offset) for offset in expected]
    for direction in (5, 6, 7):
        expected = [[-k, step] for k, step in enumerate(aside[8 - direction], 1)]
        assert patterns[direction].tolist() == expected


@pytest.mark.parametrize("length", LENGTHS)
def test_shape_and_type(length):
    patterns = segment_patterns(length)
    assert patterns.shape == (DIRECTIONS, length, 2)
    assert patterns.dtype == np.int32


def test_axes_and_the_sense_of_rotation():
    """Direction 0 is right, 8 is up (y points down), 16 is left, 24 is down."""
    ends = segment_patterns(4)[:, -1]
    assert ends[::8].tolist() == [[0, 4], [-4, 0], [0, -4], [4, 0]]
    assert ends[4::8].tolist() == [[-4, 4], [-4, -4], [4, -4], [4, 4]]
    assert (ends[1:16, 0] < 0).all()
    assert (ends[17:, 0] > 0).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_a_quarter_turn_is_exact(length):
    """On the screen (x, up) becomes (-up, x)."""
    patterns = segment_patterns(length)
    dy, dx = np.moveaxis(patterns, -1, 0)
    turned = np.roll(patterns, -8, axis=0)
    np.testing.assert_array_equal(turned[..., 1], dy)
    np.testing.assert_array_equal(-turned[..., 0], dx)


@pytest.mark.parametrize("length", LENGTHS)
def test_opposite_and_mirrored_directions(length):
    patterns = segment_patterns(length)
    np.testing.assert_array_equal(np.roll(patterns, 16, axis=0), -patterns)
    left_to_right = patterns[(16 - np.arange(DIRECTIONS)) % DIRECTIONS]
    np.testing.assert_array_equal(left_to_right, patterns * (1, -1))
    diagonal = patterns[(8 - np.arange(DIRECTIONS)) % DIRECTIONS]
    np.testing.assert_array_equal(diagonal, -patterns[..., ::-1])


@pytest.mark.parametrize("length", LENGTHS)
def test_pixel_k_lies_k_steps_away(length):
    distances = abs(segment_patterns(length)).max(axis=-1)
    np.testing.assert_array_equal(distances, np.tile(np.arange(1, length + 1), (DIRECTIONS, 1)))


@pytest.mark.parametrize("length", LENGTHS)
def test_neighbours_touch(length):
    """The first pixel touches the centre, every other one the one before."""
    steps = np.diff(segment_patterns(length), axis=1, prepend=0)
    np.testing.assert_array_equal(abs(steps).max(axis=-1), 1)


@pytest.mark.parametrize("length", LENGTHS)
def test_segments_keep_to_their_angle(length):
    """No pixel lies further than half a pixel, along an axis, from the true line."""
    for direction, pattern in enumerate(segment_patterns(length)):
        angle = direction * 2 * math.pi / DIRECTIONS
        along = np.array([-math.sin(angle), math.cos(angle)])
        true = np.arange(1, length + 1)[:, None] * along / abs(along).max()
        assert abs(pattern - true).max() <= 0.5


def test_all_differ_from_three_pixels_on():
    for length, different in [(1, 8), (2, 24), (3, 32), (5, 32), (9, 32)]:
        assert len(np.unique(segment_patterns(length), axis=0)) == different


@pytest.mark.parametrize("length", LENGTHS)
def test_eighths_share_no_pixel(length):
    stars = as_sets(segment_patterns(length)[::4])
    assert len(set.union(*stars)) == 8 * length
    assert (0, 0) not in set.union(*stars)


@pytest.mark.parametrize("length", [0, -1])
def test_too_short(length):
    with pytest.raises(SettingsError, match="at least 1"):
        segment_patterns(length)
