"""The pixels of straight segments in 32 directions, of which isolines are made."""

from __future__ import annotations

import math

import numpy as np

DIRECTIONS = 32
_QUARTER = DIRECTIONS // 4
_DIAGONAL = DIRECTIONS // 8


def segment_patterns(length: int) -> np.ndarray:
    """Return the segments that leave a pixel, one in each direction.

    Direction d points d * 11.25 degrees counter-clockwise from +x. As y points down, dy is negative
    for 0 < d < 16. Direction d + 16 is exactly opposite to d. All 32 segments differ from a length
    of 3 on; 24 of those of 2 pixels do, and 8 of those of one pixel.

    Parameters
    ----------
    length : int
        Pixels of a segment, at least 1. The pixel it leaves is not one of them.

    Returns
    -------
    ndarray of int32, shape (32, length, 2)
        Offsets (dy, dx) of the pixels, the nearest first; the larger of abs(dy) and abs(dx) counts
        them from 1 on.

    References
    ----------
    G. Perrot, S. Domas, R. Couturier, N. Bertaux, "Fast GPU-based denoising filter using isoline
    levels", 2014, section 5.1 and figure 2.
    """
    quarter = np.array([_first_quarter(d, length) for d in range(_QUARTER)])
    turns = [quarter]
    for _ in range(3):
        # A quarter turn takes +x to -y, and +y to +x.
        dy, dx = turns[-1][..., 0], turns[-1][..., 1]
        turns.append(np.stack([-dx, dy], axis=-1))
    return np.concatenate(turns).astype(np.int32)


def _first_quarter(direction: int, length: int) -> list[tuple[int, int]]:
    """Return the offsets of a direction from +x to just before -y."""
    steep = direction > _DIAGONAL
    shallow = _QUARTER - direction if steep else direction
    slope = math.tan(shallow * 2 * math.pi / DIRECTIONS)
    steps = [(k, round(k * slope)) for k in range(1, length + 1)]
    return [(-along, aside) if steep else (-aside, along) for along, aside in steps]
