"""Whether the rows of a plane have individual offsets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from napari_gpu_denoise.image.threads import in_threads, number_of_workers
from napari_gpu_denoise.noise.robust import deviation, finite_medians, medians

SHORTEST, NARROWEST = 16, 48  # rows and columns of the smallest plane that is looked at
_WIDTH = 16  # columns of a segment, about
_MOST_SEGMENTS = 64
_THIRDS = 3
_LEAST_AGREEMENT = 0.25  # of natural images without such offsets: 0.18 at most (BSD68, W2S)
_BAND = 1 << 22  # pixels worth a thread: those of few take longer to meet than to add up
_AT_ONCE = 64  # rows converted at once, which stay in the cache
_TUNING = 4.685  # Tukey's biweight, 95 % efficient on normal values


@dataclass(frozen=True)
class Segments:
    """Means of short pieces of rows."""

    means: np.ndarray  # (row, segment), float64
    # (row, segment); False in padding, and wherever else a piece is constant and equal to a row
    # beside it.
    valid: np.ndarray


@dataclass(frozen=True)
class RowEvidence:
    """Evidence for individual offsets of rows."""

    agreement: float  # least correlation of the rows' levels between thirds of the plane, at most 1
    needed: float  # agreement from which offsets count as found
    strength: float  # standard deviation of the offsets, grey levels
    jumps: np.ndarray  # (row - 2,), second differences of the levels; 0 where no offsets were found

    @property
    def found(self) -> bool:
        """Whether the rows have offsets."""
        return self.agreement >= self.needed and self.strength > 0


def segments(plane: np.ndarray, finer: int = 1, axis: int = 1, exact: bool = True) -> Segments:
    """Return the means of some tens of pieces of each row of a plane (y, x), or `finer` ones.

    With `axis` 0, of each column. They may be added up in float32 if they need not be `exact`.
    """
    nx = plane.shape[axis]
    count = min(max(finer * nx // _WIDTH, 6), finer * _MOST_SEGMENTS)
    cuts = np.arange(count) * nx // count
    sizes = np.diff(np.append(cuts, nx))
    means = _sums(plane, cuts, axis, exact) / sizes
    level = np.diff(means, axis=0) == 0
    valid = np.ones(means.shape, bool)
    if level.any():
        same = np.pad(level, ((1, 0), (0, 0))) | np.pad(level, ((0, 1), (0, 0)))
        ends = plane.take(cuts, axis) == plane.take(cuts + sizes - 1, axis)
        same &= ends if axis else ends.T
        rows = np.flatnonzero(same.any(axis=1))
        some = plane.take(rows, 1 - axis)
        most, least = (
            _over_pieces(each.reduce, some, cuts, axis) for each in (np.maximum, np.minimum)
        )
        valid[rows] = ~((most == least) & same[rows])
    return Segments(means, valid)


def _over_pieces(reduce: Callable, plane: np.ndarray, cuts: np.ndarray, axis: int) -> np.ndarray:
    """Reduce pieces of rows, or of columns, to one number each, (row, piece)."""

    def of(band: np.ndarray) -> np.ndarray:
        parts = np.split(band, cuts[1:], axis=axis)
        return np.stack([reduce(part, axis=axis) for part in parts], axis=1)

    return np.concatenate(in_threads(of, _bands(plane, axis)))


def _sums(plane: np.ndarray, cuts: np.ndarray, axis: int, exact: bool) -> np.ndarray:
    """Return sums of pieces of rows, or of columns, (row, piece), float64."""
    count, width = len(cuts), plane.shape[axis] // len(cuts)
    single = not exact and plane.dtype == np.float32
    if axis == 0 and single:
        # Columns are added up alike, so those that are equal have equal sums.
        return np.stack([_added(part) for part in np.split(plane, cuts[1:])], axis=1)
    if axis == 0 or width * count != plane.shape[1]:
        return _over_pieces(partial(np.add.reduce, dtype=np.float64), plane, cuts, axis)
    ones = np.ones((width, 1), np.float32 if single else np.float64)

    def of(band: np.ndarray) -> np.ndarray:
        out = np.empty((len(band), count))
        for first in range(0, len(band), _AT_ONCE):
            some = band[first : first + _AT_ONCE].astype(ones.dtype, copy=False)
            # Row by row: OpenBLAS shares larger products among threads.
            out[first : first + _AT_ONCE] = (some.reshape(-1, count, width) @ ones)[..., 0]
        return out

    return np.concatenate(in_threads(of, _bands(plane, axis)))


def _added(rows: np.ndarray) -> np.ndarray:
    """Return the sum of rows, float64, with the rounding errors of few additions in float32."""
    while len(rows) > 1:
        half, odd = divmod(len(rows), 2)
        sums = rows[:half] + rows[half : 2 * half]
        if odd:
            sums[0] += rows[-1]
        rows = sums
    return rows[0].astype(np.float64)


def _bands(plane: np.ndarray, axis: int) -> list[np.ndarray]:
    number = min(number_of_workers(), max(plane.size // _BAND, 1))
    return np.array_split(plane, number, axis=1 - axis)


def row_evidence(parts: Segments) -> RowEvidence:
    """Return the evidence for offsets of the rows.

    Offsets change the whole row alike, objects rarely. So the second differences of the rows'
    levels are compared between the thirds of the image, by a correlation that a few edges as long
    as the image cannot raise (Gnanadesikan and Kettenring's, from median deviations).
    """
    ny = len(parts.means)
    nothing = RowEvidence(0.0, 1.0, 0.0, np.zeros(max(ny - 2, 0)))
    steps = differences(parts)
    count = steps.shape[1]
    thirds = [steps[:, count * k // _THIRDS : count * (k + 1) // _THIRDS] for k in range(_THIRDS)]
    jumps: list[np.ndarray] = []
    for third in thirds:
        jumps.append(np.diff(location(third.astype(np.float32))).astype(np.float64))
        if len(jumps) == 2 and parts.valid.all() and len(jumps[0]):
            # The least of three is no larger than the first.
            agreement, needed = _shared(*jumps)[0], _needed(len(jumps[0]))
            if agreement < needed:
                return replace(nothing, agreement=agreement, needed=needed)
    known = np.all(np.isfinite(jumps), axis=0)
    if np.count_nonzero(known) < SHORTEST - 2:
        return nothing
    pairs = [_shared(a[known], b[known]) for a, b in combinations(jumps, 2)]
    agreement, variance = (min(each) for each in zip(*pairs, strict=True))
    needed = _needed(np.count_nonzero(known))
    # A second difference of independent offsets has six times their variance.
    strength = math.sqrt(max(variance, 0) / 6)
    found = RowEvidence(float(agreement), needed, strength, nothing.jumps)
    return replace(found, jumps=np.nan_to_num(np.diff(location(steps)))) if found.found else found


def differences(parts: Segments) -> np.ndarray:
    """Return the differences of rows (row - 1, segment); NaN where one of the two is not valid."""
    steps = np.diff(parts.means, axis=0)
    if not parts.valid.all():
        steps[~(parts.valid[1:] & parts.valid[:-1])] = np.nan
    return steps


def _needed(count: int) -> float:
    """Return the agreement of so many second differences that chance hardly reaches."""
    return max(_LEAST_AGREEMENT, 4 / math.sqrt(count))


def location(values: np.ndarray) -> np.ndarray:
    """Return a robust mean along the second axis, Tukey's biweight; NaN where nothing is known."""
    known = np.isfinite(values)
    whole = bool(known.all())
    centres = medians if whole else finite_medians
    with np.errstate(all="ignore"):
        middle = centres(values)
        spread = 1.4826 * centres(np.abs(values - middle[:, None]))
        typical = np.median(spread[np.isfinite(spread)]) if np.isfinite(spread).any() else 0.0
        scale = 1 / (_TUNING * np.maximum(spread, 0.5 * typical))[:, None]
        held = values if whole else np.where(known, values, 0.0)
        for _ in range(3):
            weight = held - middle[:, None]
            weight *= scale
            np.square(weight, out=weight)
            np.subtract(1, weight, out=weight)
            np.fmax(weight, 0, out=weight)
            np.square(weight, out=weight)
            if not whole:
                weight *= known
            total = weight.sum(axis=1)
            mean = np.einsum("ij,ij->i", weight, held) / total
            middle = np.where(total > 0, mean, middle)
    return middle


def _shared(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return a robust correlation of two series, and their covariance."""
    together, apart = deviation(first + second) ** 2, deviation(first - second) ** 2
    total = together + apart
    return ((together - apart) / total if total else 0.0), (together - apart) / 4


def agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Return a robust correlation of two series of one length."""
    return _shared(first, second)[0]
