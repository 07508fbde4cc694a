"""Sums of whole numbers, which do not depend on order: how fine they are, and who adds when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

LARGEST_SIGMAS = 12.0  # of a number that is summed, where nothing else is known


def sum_arguments(
    added: int, matched: int, largest: float = LARGEST_SIGMAS
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the kernel arguments of sums of weights, and of what is added up with these.

    Whole numbers per sigma are as many as 31 bits allow where `added` numbers of at most `largest`
    sigma are summed: if all patches around a pixel matched, they would be less. Those per weight of
    1 suit patches that are matched at most `matched` times.
    """
    scale = 2.0 ** (31 - math.ceil(math.log2(largest * added)))
    joining = {"scale": scale, "units": 2.0 ** min(31 - math.ceil(math.log2(matched)), 24)}
    return joining, {**joining, "largest": 2.0**31 / added}


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
