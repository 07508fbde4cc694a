"""The motion of blocks against cases that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reference.block_motion import block_motion, block_motions
from reference.video_links import Link


def pattern(ny=48, nx=56, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (ny, nx)).astype(float)


@pytest.mark.parametrize(("dy", "dx"), [(0, 0), (3, -7), (-7, 7), (5, 2)])
def test_a_frame_that_moves_as_a_whole(dy, dx):
    """At borders, blocks of which no neighbour stays in the frame tell nothing of the truth."""
    wide = pattern(80, 90)
    frame, other = wide[16:64, 16:72], wide[16 - dy : 64 - dy, 16 - dx : 72 - dx]
    found = block_motion(frame, other, 15, 0.01)
    assert found.shape == (6, 7, 2)
    assert (found[1:-1, 1:-1] == (dy, dx)).all()


def test_an_object_that_moves_before_a_still_background():
    frame, moving = pattern(), pattern(24, 24, seed=1)
    other = frame.copy()
    frame[8:32, 8:32], other[12:36, 11:35] = moving, moving
    found = block_motion(frame, other, 15, 0.01)
    assert found[2, 2].tolist() == [4, 3]
    assert (found[:, 6] == 0).all()


def test_short_displacements_are_preferred():
    assert not block_motion(np.zeros((16, 24)), np.zeros((16, 24)), 9, 0.01).any()
    frame = np.zeros((24, 24))
    other = np.full((24, 24), 1.0)
    other[:, 1:] = 0.9
    found = block_motion(frame, other, 3, 1.0)
    assert not found.any(), "a pixel further must gain more than is gained here"


def test_frames_that_are_compared():
    video = np.stack([pattern() + k for k in range(5)])
    found = block_motions(video, 3, [2.0, 2.0, 2.0, 5.0, 2.0], holes=[0])
    assert set(found) == {(1, 2), (2, 1)}, "no holes, and no noise of another strength"


def test_grey_levels_of_other_frames_are_brought_to_those_of_the_frame():
    wide = pattern(64, 64)
    video = np.stack([wide[8:56, 8:56], wide[8:56, 6:54] * 2 + 5])

    def links(r, t):
        return Link(0.5, -2.5) if (r, t) == (0, 1) else Link(2.0, 5.0)

    found = block_motions(video, 7, [1.0, 2.0], links)
    assert (found[0, 1][1:-1, 1:-1] == (0, 2)).all()
    assert (found[1, 0][1:-1, 1:-1] == (0, -2)).all()
