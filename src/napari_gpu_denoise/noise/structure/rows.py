"""Individual offsets of rows: whether there are any, and how large they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.fft import dct, idct
from scipy.linalg import solveh_banded
from scipy.ndimage import gaussian_filter, gaussian_filter1d, median_filter
from scipy.sparse.linalg import LinearOperator, cg

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.robust import deviation, medians

IMAGE_SLOPE = -2.3  # of the power of images over the frequency, on logarithmic scales
SHORTEST, NARROWEST = 16, 48  # rows and columns of the smallest plane that is looked at


@dataclass(frozen=True)
class Segments:
    """Means of short pieces of rows."""

    means: np.ndarray  # (row, segment), float64
    # (row, segment); False in padding, and wherever else a piece is constant and equal to a row
    # beside it.
    valid: np.ndarray
    width: int  # of a piece, pixels

    def differences(self) -> np.ndarray:
        """Return those of rows, (row - 1, segment); NaN where one of the two is not valid."""
        known = self.valid[1:] & self.valid[:-1]
        return np.where(known, np.diff(self.means, axis=0), np.nan)

    @cached_property
    def jumps(self) -> np.ndarray:
        """Second differences of the levels of rows in thirds of the plane, (3, row - 2).

        NaN where nothing is known.
        """
        thirds = np.array_split(self.differences(), 3, axis=1)
        return np.diff([*map(middle_means, thirds)], axis=1)


@dataclass(frozen=True)
class RowEvidence:
    """Individual offsets of rows that were found."""

    strength: float  # standard deviation of the offsets, grey levels
    jumps: np.ndarray  # (row - 2,), second differences of the levels; 0 where nothing is known


def segments(plane: np.ndarray, axis: int = 1, width: int = 16) -> Segments:
    """Return the means of pieces of each row of a plane (y, x); with `axis` 0, of each column.

    Pieces are `width` pixels wide, or more if there are many; small planes have none.
    """
    n = plane.shape[axis]
    if plane.shape[1 - axis] < SHORTEST or n < NARROWEST:
        return Segments(np.zeros((SHORTEST, 6)), np.zeros((SHORTEST, 6), bool), width)
    width = max(n // 64, min(width, n // 6))
    count = n // width
    weights = np.full(width, 1 / width, np.float32)
    if axis:
        pieces = plane[:, : count * width].reshape(-1, count, width)
        means = pieces @ weights
    else:
        blocks = plane[: count * width].reshape(count, width, -1)
        pieces, means = blocks.transpose(2, 0, 1), (weights @ blocks).T
    means = means.astype(np.float64)
    same = np.pad(np.diff(means, axis=0) == 0, ((1, 1), (0, 0)))
    valid = ~(same[1:] | same[:-1])
    places = np.nonzero(~valid)
    valid[places] = np.ptp(pieces[places], axis=1) > 0
    return Segments(means, valid, width)


def outlying_rows(parts: Segments) -> np.ndarray:
    """Return 1 for rows that are hot all along, -1 for dead ones, and 0 for all others, (row,).

    As a hot pixel, such a row is far from both beside it, by what the rows around differ by; as
    offsets of rows do not reach, by single pixels.
    """
    found, jumps = np.zeros(len(parts.means), np.int8), parts.jumps
    far = np.nan_to_num(np.abs(jumps)).min(axis=0)
    least = limits.MIN_OUTLIER_SCORE * deviation(jumps.mean(axis=0))
    if not (far > least).any():
        return found
    # Those beside a single row are half as high, those of edges as high.
    beside = np.pad(far, 1)
    near = np.flatnonzero((far > least) & (far > 1.5 * np.maximum(beside[2:], beside[:-2])))
    rows = np.unique(np.clip(near[:, None] + (0, 1, 2), 0, len(found) - 1))
    steps = np.diff(parts.means, axis=0)
    up = np.append(-steps[:1], steps, axis=0)[rows]
    down = np.append(-steps, steps[-1:], axis=0)[rows]
    around = np.clip(rows[:, None] + (-5, -4, -3, -2, 1, 2, 3, 4), 0, len(steps) - 1)
    limit = limits.MIN_OUTLIER_SCORE * parts.width**0.5 * np.abs(steps[around]).mean(axis=1)
    for sign in (1, -1):
        most = np.median(np.minimum(sign * up, sign * down) - limit, axis=1) > 0
        found[rows[most]] = sign
    return found


def row_evidence(parts: Segments) -> RowEvidence | None:
    """Return individual offsets of rows, if any.

    Offsets change the whole row alike, objects rarely. So the second differences of the rows'
    levels are compared between the thirds of the image, by a correlation that a few edges as long
    as the image cannot raise (Gnanadesikan and Kettenring's, from median deviations).
    """
    jumps = parts.jumps
    known = jumps[:, np.isfinite(jumps).all(axis=0)]
    count = known.shape[1]
    if count < SHORTEST - 2:
        return None
    agreement, variance = (float(each.min()) for each in shared_variation(known, known[[1, 2, 0]]))
    # So many do not agree as well by chance.
    if agreement < max(limits.MIN_ROW_AGREEMENT, 4 / math.sqrt(count)):
        return None
    # A second difference of independent offsets has six times their variance.
    return RowEvidence(math.sqrt(variance / 6), np.nan_to_num(jumps.mean(axis=0)))


def middle_means(values: np.ndarray) -> np.ndarray:
    """Return the means of the middle half of what is finite in each row; NaN where nothing is."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    if not np.isnan(ordered[:, -1]).any():
        quarter = values.shape[1] // 4
        return ordered[:, quarter : values.shape[1] - quarter].mean(axis=1)
    count = np.count_nonzero(np.isfinite(values), axis=1)[:, None]
    rank = np.arange(int(values.shape[1]))
    middle = (rank >= count // 4) & (rank < count - count // 4)
    with np.errstate(invalid="ignore"):
        return np.where(middle, ordered, 0.0).sum(axis=1) / middle.sum(axis=1)


def shared_variation(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a robust correlation of series of one length, (..., value), and their covariance."""
    both = np.stack([first + second, first - second])
    together, apart = (1.4826 * medians(np.abs(both - medians(both)[..., None]))) ** 2
    total = np.where(together + apart > 0, together + apart, 1.0)
    return (together - apart) / total, (together - apart) / 4


def plane_offsets(planes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the offset of each row that planes (y, x) have in common, float32, with a mean of 0.

    Planes are averaged. Each segment is a column of levels: a smooth image with sudden steps, the
    offsets of the rows, which all segments share, and noise. Differences along a segment follow a
    Cauchy law, whose scale is measured around each place, the offsets a normal law that is too
    wide. Image and offsets that are most probable together are found by reweighted least squares.
    These offsets also hold what all segments of the image have in common, most of it at low
    frequencies; `shrunk` leaves that in the image.
    """
    parts = [segments(plane, width=8) for plane in planes]
    # Side by side, an object that stands still would count several times.
    means = np.mean([each.means for each in parts], axis=0)
    valid = np.all([each.valid for each in parts], axis=0)
    steps = Segments(means, valid, parts[0].width).differences()
    shared = middle_means(steps)
    variance = deviation(np.diff(shared)) ** 2 / 6
    if not variance > 0:
        return np.zeros(len(means), np.float32)
    shared = np.nan_to_num(shared)
    # Of one segment; differences of neighbours have twice the variance.
    noise = max(deviation(steps - shared[:, None]) ** 2 / 2, 1e-2 * variance)
    profile = np.append(0.0, np.cumsum(shared))
    # Steps that last, and are too high for offsets, as a horizon, are image.
    lasting = np.diff(median_filter(profile, 15, mode="nearest"), prepend=0.0)
    lasting[0] = 0.0
    high = 2.5 * math.sqrt(variance)
    edges = np.cumsum(np.where(np.abs(lasting) > high, lasting, 0.0))
    means, profile = means - edges[:, None], profile - edges
    found = profile - gaussian_filter1d(profile, 8.0, mode="nearest")
    # A segment that is padding all along still needs some level.
    weights = np.where(valid, 1.0, 1e-6) / noise
    image = gaussian_filter1d(means - found[:, None], 3.0, axis=0, mode="nearest")
    for _ in range(6):
        # The weight of each difference along the rows, (row - 1, segment).
        squares = np.diff(image, axis=0) ** 2
        around = gaussian_filter(squares, (3.0, 0.7), mode="nearest")
        links = 1 / (np.maximum(around, 1e-3 * noise) + squares)
        found, image = most_probable(means, weights, links, 16 * variance, found)
    given = zip(*(np.array_split(each, 3, axis=1) for each in (means, weights, links)), strict=True)  # pyright: ignore[reportPossiblyUnboundVariable]
    thirds = [most_probable(m, w, k, 16 * variance, found)[0] for m, w, k in given]
    return shrunk(found, thirds, variance).astype(np.float32)


def most_probable(
    means: np.ndarray, weights: np.ndarray, links: np.ndarray, variance: float, found: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets (row,) and image (row, segment) that are most probable at given weights.

    `variance` is that of the offsets. The image is eliminated: for given offsets it is a set of
    tridiagonal systems. Offsets are found by conjugate gradients from `found`.
    """
    ny, count = means.shape
    # All segments are one banded system, without links from one to the next.
    bands = np.zeros((2, count, ny))
    bands[0] = weights.T
    bands[0, :, :-1] += links.T
    bands[0, :, 1:] += links.T
    bands[1, :, :-1] = -links.T

    def smooth(levels: np.ndarray) -> np.ndarray:
        given = (weights * levels).T.ravel()
        return solveh_banded(bands.reshape(2, -1), given, lower=True).reshape(count, ny).T

    def system(values: np.ndarray) -> np.ndarray:
        levels = np.repeat(values[:, None], count, axis=1)
        return values / variance + (weights * (levels - smooth(levels))).sum(axis=1)

    wanted = (weights * (means - smooth(means))).sum(axis=1)
    matrix = LinearOperator((ny, ny), system, dtype=float)
    found = cg(matrix, wanted, found, rtol=1e-3, maxiter=100)[0]
    return found, smooth(means - found[:, None])


def shrunk(found: np.ndarray, thirds: Sequence[np.ndarray], variance: float) -> np.ndarray:
    """Return offsets shrunk at each frequency by what is image or noise of it (Wiener), mean 0.

    Offsets of rows that are independent of each other have the same power at all frequencies. Noise
    is what estimates from thirds of the image do not share. What the image adds falls with a power
    of the frequency. Both powers are those under which the spectrum of `found` is most probable
    (Whittle). `variance` is a first guess.
    """
    ny = len(found)
    # The first frequency of each band from 1 on, and the end of the last.
    edges: np.ndarray = np.unique(np.geomspace(1, ny, 15).round().astype(int))
    counts = np.diff(edges)

    def power(values: np.ndarray) -> np.ndarray:
        squares = dct(values, norm="ortho") ** 2
        return np.add.reduceat(squares[: edges[-1]], edges[:-1]) / counts

    # A difference has twice the noise of a third, which has three times that of all.
    apart = [power(thirds[k] - thirds[k - 1]) / 6 for k in range(3)]
    noise: np.ndarray = np.maximum(np.mean(apart, axis=0), np.finfo(np.float64).tiny)
    middles = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    crossings = np.geomspace(0.03, ny / 3, 60)[:, None, None]  # where the image is as `variance`
    powers = variance * np.geomspace(0.5, 30, 60)[:, None]  # of the offsets
    total = powers + noise + variance * (middles / crossings) ** IMAGE_SLOPE
    cost: np.ndarray = (counts * (np.log(total) + power(found) / total)).sum(axis=-1)
    image, own = np.unravel_index(cost.argmin(), cost.shape)
    frequency = np.arange(1, ny)
    rest = np.exp(np.interp(np.log(frequency), np.log(middles), np.log(noise)))
    rest += variance * (frequency / crossings[image, 0]) ** IMAGE_SLOPE
    gains = np.append(0.0, powers[own] / (powers[own] + rest))
    return idct(gains * dct(found, norm="ortho"), norm="ortho")
