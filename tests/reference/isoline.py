"""The isoline filters PI-LD, PI-PD and hybrid PI-PD to the letter, slow and plain.

G. Perrot, S. Domas, R. Couturier, N. Bertaux, "Fast GPU-based denoising filter using isoline
levels", 2014, sections 3 to 5. Images are arrays (y, x). Maps of sums hold two images: the sum of
the grey levels of a segment, and that of their squares (equations 9 and 10). What the paper leaves
open is settled here, and marked "convention".

Convention: borders are mirrored, the last pixel is not repeated (numpy's "reflect"). What leaves
the image goes on in its mirror image.

With `looks` grey levels are those of speckle, of a gamma distribution of so many looks: the paper
announces other noise than additive. A map of squares then holds the logarithms, and what was a
variance is the mean of log(mean / grey level), half of the deviance of one look.

With `channel` the image is a guide: isolines are found in it, and the channel is averaged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reference.isoline_patterns import DIRECTIONS, segment_patterns

# Classes of the hybrid filter.
LOW_SLOPE, EDGE, ISOLINE = 0, 1, 2

# What float64 may lose when a variance is made of sums, relative to the mean of the squares.
ROUNDING = 1e-13

# Of speckle, no level counts as less than such a part of the mean of its segment, nor than this.
# Signs do not count.
FAINTEST, DARKEST = 1 / 1024, 1e-30


@dataclass(frozen=True)
class Lines:
    """What isolines are.

    Attributes
    ----------
    length, pixels : int
        Pixels of a segment, and of the longest isoline.
    t_max, t2_max : float
        The largest log-ratio at which an isoline goes on, and at which no edge is seen.
    thickness : int
        1 to 3 lines that are averaged side by side.
    deviation : int
        Directions by which a searched isoline may turn.
    looks : float, optional
        Those of speckle.
    """

    length: int = 5
    pixels: int = 25
    t_max: float = 1.0
    t2_max: float = 2.0
    thickness: int = 1
    deviation: int = 2
    looks: float | None = None


@dataclass(frozen=True)
class Isolines:
    """The isolines of all pixels, each image (y, x).

    Attributes
    ----------
    mean : ndarray of float64
        Mean of the pixels of an isoline and of the one it starts from: the result of the filter.
    pixels : ndarray of int
        Length, in pixels, without the one it starts from.
    directions : ndarray of uint8
        Direction of the first segment.
    """

    mean: np.ndarray
    pixels: np.ndarray
    directions: np.ndarray


def pi_pd(
    image: np.ndarray, lines: Lines = Lines(), channel: np.ndarray | None = None
) -> np.ndarray:
    """Denoise an image by isolines with precomputed directions (section 4.2, algorithm 3)."""
    return precomputed_isolines(image, lines, channel).mean


def pi_pd_hybrid(
    image: np.ndarray, lines: Lines = Lines(), channel: np.ndarray | None = None
) -> np.ndarray:
    """Denoise an image by means where nothing is seen, by isolines elsewhere (section 4.3).

    Convention: where the slope is low that is the mean of the 8 * length + 1 pixels that algorithm
    4 has looked at; the text takes the square window.
    """
    length = lines.length
    edges, sums, other_sums = edge_tests(image, lines)
    if channel is not None:
        _, sums, other_sums = edge_tests(channel, replace(lines, looks=None))
    flat = (sums[0] + other_sums[0]) / (8 * length + 1)
    # Where there is one edge, the sum over all edges is that of this one.
    beside = np.sum(edges * sums, axis=0) / (5 * length + 1)
    return np.choose(classes(edges), [flat, beside, pi_pd(image, lines, channel)])


def pi_ld(
    image: np.ndarray, lines: Lines = Lines(), channel: np.ndarray | None = None
) -> np.ndarray:
    """Denoise an image by isolines that turn by a few directions at most (section 4.1)."""
    return searched_isolines(image, lines, channel).mean


def first_segments(
    image: np.ndarray, length: int, looks: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the segment of least variance that leaves each pixel (algorithm 2).

    The lowest direction wins a tie.

    Returns
    -------
    directions : ndarray of uint8, (y, x)
    sums : ndarray of float64, (2, y, x)
    """
    sums = segment_sums(image, length, looks=looks)
    directions = variance(length, sums, looks).argmin(axis=0)
    best = np.take_along_axis(sums, directions[None, None], axis=1)[:, 0]
    return directions.astype(np.uint8), best


def segment_sums(
    image: np.ndarray, length: int, aside: int = 0, looks: float | None = None
) -> np.ndarray:
    """Return the sums of all segments that leave each pixel, an array (2, 32, y, x).

    With `aside` they are shifted by so many pixels to the left of where they point, or to the right
    if it is negative. Convention: a pixel to the left is the first of the perpendicular segment.
    """
    ny, nx = image.shape
    reach = length + abs(aside)
    padded = np.pad(np.asarray(image, dtype=np.float64), reach, mode="reflect")
    patterns = segment_patterns(length)
    left = np.roll(patterns, -DIRECTIONS // 4, axis=0)[:, :1]
    sums = np.zeros((2, DIRECTIONS, ny, nx))
    for direction, pattern in enumerate(patterns + aside * left):
        levels = np.array([padded[dy : dy + ny, dx : dx + nx] for dy, dx in pattern + reach])
        sums[0, direction] = levels.sum(axis=0)
        if looks is None:
            sums[1, direction] = (levels**2).sum(axis=0)
        else:
            least = np.maximum(FAINTEST * np.abs(levels.mean(axis=0)), DARKEST)
            sums[1, direction] = np.log(np.maximum(np.abs(levels), least)).sum(axis=0)
    return sums


def variance(number: int | np.ndarray, sums: np.ndarray, looks: float | None = None) -> np.ndarray:
    """Return the maximum-likelihood variance of `number` grey levels with the given sums.

    It is C_x2 / n - (C_x / n)^2; algorithm 3 prints it otherwise, by a slip. Written so that it is
    exact for whole numbers, where ties are frequent.
    """
    if looks is not None:
        return np.log(np.maximum(np.abs(sums[0]) / number, DARKEST)) - sums[1] / number
    return (number * sums[1] - sums[0] ** 2) / np.square(number)


def log_ratio(
    number: int | np.ndarray,
    sums: np.ndarray,
    more: int | np.ndarray,
    more_sums: np.ndarray,
    looks: float | None = None,
) -> np.ndarray:
    """Return how much two parts speak against one mean: what equation 8 compares with T_max.

    The parts have n = `number` and p = `more` pixels. (n + p) (log sigma_1^2 - log sigma_2^2) is
    twice the difference of the log-likelihoods (7) and (6): sigma_1 is the deviation from the mean
    of all n + p pixels, sigma_2 that from the mean of the part a pixel belongs to, one deviation
    for both parts. It is 0 where the means agree, and positive elsewhere. An isoline goes on while
    it is less than T_max, so that (8) is positive; an edge is seen where it is more than T2_max, so
    that (11) is negative.

    Of speckle only means are unknown: 2 looks ((n + p) log mean - n log mean_n - p log mean_p).

    Convention: no variance counts as less than what rounding leaves of 0.
    """
    both, all_sums = number + more, sums + more_sums
    if looks is not None:
        one, two, three = (
            n * np.log(np.maximum(np.abs(part[0]) / n, DARKEST))
            for n, part in ((both, all_sums), (number, sums), (more, more_sums))
        )
        return 2 * looks * (one - two - three)
    one_mean = variance(both, all_sums)
    two_means = (number * variance(number, sums) + more * variance(more, more_sums)) / both
    least = np.maximum(ROUNDING * all_sums[1] / both, np.finfo(np.float64).tiny)
    return both * (np.log(np.maximum(one_mean, least)) - np.log(np.maximum(two_means, least)))


def precomputed_isolines(
    image: np.ndarray, lines: Lines, channel: np.ndarray | None = None
) -> Isolines:
    """Follow isolines that turn wherever the best first segment of their last pixel points.

    The segments of the first pixel and of each last one come from one pair of maps, so that none is
    searched. Nothing keeps an isoline from turning back on itself.

    Convention: the pixel an isoline starts from counts in the mean, as section 3.1 and line 2 of
    algorithm 3 have it, but not in the tests (line 4 overwrites its sums). A thicker isoline is
    found as a thin one; then the mean counts the parallel segments beside it too, first on the
    left, then on the right, and the pixel it starts from once. A pixel that is passed twice counts
    twice.
    """
    length, looks = lines.length, lines.looks
    reach, channel = lines.pixels + 1, image if channel is None else channel
    padded, averaged = (np.pad(np.float64(a), reach, mode="reflect") for a in (image, channel))
    ends = segment_patterns(length)[:, -1]
    # Maps are made of the mirrored image, not mirrored, so that directions fit there too.
    directions, sums = first_segments(padded, length, looks=looks)
    levels = sum(
        np.take_along_axis(segment_sums(averaged, length, aside)[0], directions[None], axis=0)[0]
        for aside in (0, 1, -1)[: lines.thickness]
    )
    y, x = np.indices(np.shape(image)) + reach
    first = directions[y, x]
    walked, total, number = sums[:, y, x], levels[y, x], np.full(first.shape, length)
    growing = np.ones(first.shape, dtype=bool)
    for _ in range(lines.pixels // length - 1):
        dy, dx = np.moveaxis(ends[directions[y, x]], -1, 0)
        y, x = y + dy, x + dx
        segment = sums[:, y, x]
        growing = growing & (log_ratio(number, walked, length, segment, looks) < lines.t_max)
        walked = np.where(growing, walked + segment, walked)
        total = np.where(growing, total + levels[y, x], total)
        number = np.where(growing, number + length, number)
    mean = (total + np.asarray(channel)) / (number * lines.thickness + 1)
    return Isolines(mean, number, first)


def searched_isolines(
    image: np.ndarray, lines: Lines, channel: np.ndarray | None = None
) -> Isolines:
    """Follow an isoline in every first direction; take the most likely one of the longest.

    Convention: the lowest first direction wins a tie; the first pixel counts in the mean alone.
    """
    reach, channel = lines.pixels, image if channel is None else channel
    padded, averaged = (np.pad(np.float64(a), reach, mode="reflect") for a in (image, channel))
    sums = segment_sums(padded, lines.length, looks=lines.looks)
    levels = segment_sums(averaged, lines.length)[0]
    y, x = np.indices(np.shape(image)) + reach
    number = np.zeros(y.shape, dtype=int)
    spread, mean = np.full(y.shape, np.inf), np.zeros(y.shape)
    directions = np.zeros(y.shape, dtype=np.uint8)
    for first in range(DIRECTIONS):
        found, total, added = _extend(sums, levels, first, (y, x), lines)
        likely = variance(found, total, lines.looks)
        better = (found > number) | ((found == number) & (likely < spread))
        number, spread = np.where(better, found, number), np.where(better, likely, spread)
        mean = np.where(better, (added + channel) / (found + 1), mean)
        directions[better] = first
    return Isolines(mean, number, directions)


def _extend(
    sums: np.ndarray, levels: np.ndarray, first: int, places: tuple, lines: Lines
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lengths, sums and summed levels of the isolines that leave pixels in one direction.

    Of the segments that may follow, the one that makes the whole isoline most likely does: (5) with
    as many pixels is largest where the variance is least. Convention: of equal ones the rightmost.
    """
    length, looks, (y, x) = lines.length, lines.looks, places
    ends = segment_patterns(length)[:, -1]
    direction = np.full(y.shape, first)
    total, number = sums[:, first, y, x], np.full(y.shape, length)
    added = levels[first, y, x]
    growing = np.ones(y.shape, dtype=bool)
    for _ in range(lines.pixels // length - 1):
        dy, dx = np.moveaxis(ends[direction], -1, 0)
        y, x = y + dy, x + dx
        best, best_total, best_direction = np.full(y.shape, np.inf), total, direction
        for turn in range(-lines.deviation, lines.deviation + 1):
            candidate = (direction + turn) % DIRECTIONS
            segment = sums[:, candidate, y, x]
            spread = variance(number + length, total + segment, looks)
            ratio = log_ratio(number, total, length, segment, looks)
            better = (ratio < lines.t_max) & (spread < best)
            best = np.where(better, spread, best)
            best_total = np.where(better, total + segment, best_total)
            best_direction = np.where(better, candidate, best_direction)
        growing = growing & np.isfinite(best)
        total = np.where(growing, best_total, total)
        direction = np.where(growing, best_direction, direction)
        added = np.where(growing, added + levels[direction, y, x], added)
        number = np.where(growing, number + length, number)
    return number, total, added


def edge_tests(image: np.ndarray, lines: Lines) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tell for eight lines through each pixel whether there is an edge beside them (algorithm 4).

    Line k points in direction 4 k. Its own half-plane has the pixel, the two segments on the line
    and the three to its left, 5 * length + 1 pixels; the other one has the three to its right.

    Returns
    -------
    edges : ndarray of bool, (8, y, x)
    sums, other_sums : ndarray of float64, (8, y, x)
        Of the grey levels of the own half-plane, and of the other one.
    """
    image, length, looks = np.asarray(image, np.float64), lines.length, lines.looks
    eighths = segment_sums(image, length, looks=looks)[:, ::4]
    own, other = np.empty((2, 2, 8, *image.shape))
    for line in range(8):
        turned = np.roll(eighths, -line, axis=1)
        own[:, line] = np.stack([image, image**2]) + turned[:, :5].sum(axis=1)
        other[:, line] = turned[:, 5:].sum(axis=1)
    edges = log_ratio(5 * length + 1, own, 3 * length, other, looks) > lines.t2_max
    return edges, own[0], other[0]


def classes(edges: np.ndarray) -> np.ndarray:
    """Return the class of each pixel: no edge, one, or several, which only an isoline follows."""
    return np.minimum(edges.sum(axis=0), 2).astype(np.uint8)
