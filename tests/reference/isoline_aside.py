"""The literal isoline filters where the pixels averaged are not those that isolines are found in.

As `reference.isoline` otherwise: a guide says where isolines go, channels are averaged along them.
"""

from __future__ import annotations

import numpy as np

from reference import isoline as reference
from reference.isoline_patterns import DIRECTIONS, segment_patterns


def pi_pd(
    guide: np.ndarray,
    channel: np.ndarray,
    length: int = 5,
    pixels: int = 25,
    t_max: float = 1.0,
    thickness: int = 1,
    looks: float | None = None,
) -> np.ndarray:
    """Average a channel along the isolines with precomputed directions of a guide."""
    reach = pixels + 1
    padded, aside = (np.pad(np.float64(a), reach, mode="reflect") for a in (guide, channel))
    ends = segment_patterns(length)[:, -1]
    directions, sums = reference.first_segments(padded, length, looks=looks)
    beside = [reference.segment_sums(aside, length, k)[0] for k in (0, 1, -1)[:thickness]]
    levels = np.take_along_axis(sum(beside), directions[None], axis=0)[0]
    y, x = np.indices(np.shape(guide)) + reach
    walked, number = sums[:, y, x], np.full(y.shape, length)
    total, growing = levels[y, x], np.ones(y.shape, bool)
    for _ in range(pixels // length - 1):
        dy, dx = np.moveaxis(ends[directions[y, x]], -1, 0)
        y, x = y + dy, x + dx
        growing &= reference.log_ratio(number, walked, length, sums[:, y, x], looks) < t_max
        walked = walked + growing * sums[:, y, x]
        total = total + growing * levels[y, x]
        number = number + length * growing
    return (total + channel) / (number * thickness + 1)


def hybrid(
    guide: np.ndarray,
    channel: np.ndarray,
    length: int = 5,
    pixels: int = 25,
    t_max: float = 1.0,
    t2_max: float = 2.0,
    thickness: int = 1,
    looks: float | None = None,
) -> np.ndarray:
    """Average a channel by the hybrid filter: a guide tells edges and isolines."""
    edges, *_ = reference.edge_tests(guide, length, t2_max, looks)
    _, own, other = reference.edge_tests(channel, length, t2_max)
    star = (own[0] + other[0]) / (8 * length + 1)
    beside = np.sum(edges * own, axis=0) / (5 * length + 1)
    along = pi_pd(guide, channel, length, pixels, t_max, thickness, looks)
    return np.choose(reference.classes(edges), [star, beside, along])


def pi_ld(
    guide: np.ndarray,
    channel: np.ndarray,
    length: int = 5,
    pixels: int = 25,
    t_max: float = 1.0,
    deviation: int = 2,
    looks: float | None = None,
) -> np.ndarray:
    """Average a channel along the isolines of a guide that turn by little, pixel by pixel."""
    reach, patterns = pixels, segment_patterns(length)
    padded, aside = (np.pad(np.float64(a), reach, mode="reflect") for a in (guide, channel))
    # Sums of the levels, and of their squares or logarithms, of all segments.
    all_sums = reference.segment_sums(padded, length, looks=looks)
    result = np.empty(np.shape(guide))

    def levels(image: np.ndarray, at: np.ndarray, direction: int) -> np.ndarray:
        return image[tuple((at + patterns[direction % DIRECTIONS]).T)]

    def sums(at: np.ndarray, direction: int) -> np.ndarray:
        return all_sums[:, direction % DIRECTIONS, at[0], at[1]]

    for place in np.ndindex(result.shape):
        best = (0, np.inf, 0.0)
        for first in range(DIRECTIONS):
            at, direction = np.array(place) + reach, first
            walked, total = sums(at, first), levels(aside, at, first).sum()
            number = length
            for _ in range(pixels // length - 1):
                at = at + patterns[direction % DIRECTIONS, -1]
                found = []
                for turn in range(-deviation, deviation + 1):
                    more = sums(at, direction + turn)
                    if reference.log_ratio(number, walked, length, more, looks) < t_max:
                        likely = reference.variance(number + length, walked + more, looks)
                        found.append((likely, turn, more))
                if not found:
                    break
                _, turn, more = min(found, key=lambda one: one[0])
                direction += turn
                walked, number = walked + more, number + length
                total += levels(aside, at, direction).sum()
            found = reference.variance(number, walked, looks)
            if number > best[0] or (number == best[0] and found < best[1]):
                best = (number, found, total)
        result[place] = (best[2] + channel[place]) / (best[0] + 1)
    return result
