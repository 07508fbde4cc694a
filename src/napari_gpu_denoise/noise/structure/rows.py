"""Whether the rows of a plane have individual offsets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from napari_gpu_denoise.noise.robust import deviation

SHORTEST, NARROWEST = 16, 48  # rows and columns of the smallest plane that is looked at
SEGMENT_WIDTH = 16  # columns, about
MIN_SEGMENTS, MAX_SEGMENTS = 6, 64
MIN_AGREEMENT = 0.25  # of natural images without such offsets: 0.18 at most (BSD68, W2S)


@dataclass(frozen=True)
class Segments:
    """Means of short pieces of rows."""

    means: np.ndarray  # (row, segment), float64
    # (row, segment); False in padding, and wherever else a piece is constant and equal to a row
    # beside it.
    valid: np.ndarray

    def differences(self) -> np.ndarray:
        """Return those of rows, (row - 1, segment); NaN where one of the two is not valid."""
        known = self.valid[1:] & self.valid[:-1]
        return np.where(known, np.diff(self.means, axis=0), np.nan)


@dataclass(frozen=True)
class RowEvidence:
    """Individual offsets of rows that were found."""

    agreement: float  # least correlation of the rows' levels between thirds of the plane, at most 1
    strength: float  # standard deviation of the offsets, grey levels
    jumps: np.ndarray  # (row - 2,), second differences of the levels; 0 where nothing is known


def segments(plane: np.ndarray, finer: int = 1, axis: int = 1) -> Segments:
    """Return the means of some tens of pieces of each row of a plane (y, x), or `finer` ones.

    With `axis` 0, of each column.
    """
    nx = plane.shape[axis]
    count = min(max(finer * nx // SEGMENT_WIDTH, MIN_SEGMENTS), finer * MAX_SEGMENTS)
    cuts = np.arange(count) * nx // count
    pieces = np.split(plane, cuts[1:], axis=axis)
    if axis:
        means = np.add.reduceat(plane, cuts, axis=1, dtype=np.float64)
    else:
        means = np.stack([each.sum(axis=0, dtype=np.float64) for each in pieces], axis=1)
    means /= np.diff(cuts, append=nx)
    same = np.pad(np.diff(means, axis=0) == 0, ((1, 1), (0, 0)))
    valid = ~(same[1:] | same[:-1])
    if not valid.all():
        valid |= np.stack([np.ptp(each, axis=axis) > 0 for each in pieces], axis=1)
    return Segments(means, valid)


def row_evidence(plane: np.ndarray, axis: int = 1) -> RowEvidence | None:
    """Return individual offsets of the rows of a plane (y, x), or of columns with `axis` 0, if any.

    Offsets change the whole row alike, objects rarely. So the second differences of the rows'
    levels are compared between the thirds of the image, by a correlation that a few edges as long
    as the image cannot raise (Gnanadesikan and Kettenring's, from median deviations).
    """
    if plane.shape[1 - axis] < SHORTEST or plane.shape[axis] < NARROWEST:
        return None
    steps = segments(plane, axis=axis).differences()
    thirds = np.array_split(steps, 3, axis=1)
    jumps = np.diff([middle_means(third) for third in thirds], axis=1)
    known = jumps[:, np.isfinite(jumps).all(axis=0)]
    count = known.shape[1]
    if count < SHORTEST - 2:
        return None
    pairs = [shared_variation(a, b) for a, b in combinations(known, 2)]
    agreement, variance = (min(each) for each in zip(*pairs, strict=True))
    # A second difference of independent offsets has six times their variance.
    strength = math.sqrt(max(variance, 0) / 6)
    # So many do not agree as well by chance.
    if agreement < max(MIN_AGREEMENT, 4 / math.sqrt(count)) or not strength:
        return None
    return RowEvidence(agreement, strength, np.nan_to_num(np.diff(middle_means(steps))))


def middle_means(values: np.ndarray) -> np.ndarray:
    """Return the means of the middle half of what is finite in each row; NaN where nothing is."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    count = np.count_nonzero(np.isfinite(values), axis=1)[:, None]
    rank = np.arange(values.shape[1])
    middle = (rank >= count // 4) & (rank < count - count // 4)
    with np.errstate(invalid="ignore"):
        return np.where(middle, ordered, 0.0).sum(axis=1) / middle.sum(axis=1)


def shared_variation(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return a robust correlation of two series of one length, and their covariance."""
    together, apart = deviation(first + second) ** 2, deviation(first - second) ** 2
    total = together + apart
    return ((together - apart) / total if total else 0.0), (together - apart) / 4
