"""Sums of whole numbers, which do not depend on order: how fine they are, and who adds when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

# What a patch takes away from a pixel, times its weight, is clipped at this many sigma, so that
# sums cannot overflow. With Haar stacks a pixel that is further off, about 8 sigma, leaves some
# coefficient above the threshold; what is taken away is then less, and weighs less.
_LARGEST_SIGMAS = 16


def fixed_point(added: int, largest: float = _LARGEST_SIGMAS) -> float:
    """Return the integers per sigma, as fine as 31 bits allow when `added` numbers are summed.

    None of these is more than `largest` sigma.
    """
    return 2.0 ** (31 - math.ceil(math.log2(largest * added)))


def weight_units(matched: int) -> float:
    """Return the integers per weight of 1, if a patch is matched at most `matched` times."""
    return 2.0 ** min(31 - math.ceil(math.log2(matched)), 24)


def blocks_in_turns(
    counts: Sequence[int], sizes: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield turns that take every second block along each axis, since neighbours share pixels.

    There are `counts` references, in blocks of `sizes`. A turn is the first block along each axis;
    returned, too, is how many blocks it takes.
    """
    blocks = [-(-count // size) for count, size in zip(counts, sizes, strict=True)]
    for turn in np.ndindex(*(min(2, count) for count in blocks)):
        pairs = zip(blocks, turn, strict=True)
        yield turn, tuple((count - first + 1) // 2 for count, first in pairs)
