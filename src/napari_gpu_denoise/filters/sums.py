"""Sums of whole numbers, which do not depend on order: how fine these may be in 32 bits."""

from __future__ import annotations

import math

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
