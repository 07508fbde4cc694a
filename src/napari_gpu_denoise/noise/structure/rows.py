"""Rows with offsets of their own: whether a plane has them, and how large they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.linalg import lapack
from scipy.ndimage import gaussian_filter1d

SHORTEST, NARROWEST = 16, 48  # rows and columns of the smallest plane that is looked at
_WIDTH = 16  # columns of a segment, about
_MOST_SEGMENTS = 64
_THIRDS = 3
_LEAST_AGREEMENT = 0.25  # of natural images without such offsets: 0.18 at most (BSD68, W2S)
_TUNING = 4.685  # Tukey's biweight, 95 % efficient on normal values
_ROUNDS, _STEPS, _ENOUGH = 6, 20, 1e-4  # reweighting; conjugate gradients, and their end
_TIMES, _SHARE = 1.5, 0.8  # the scale of differences, of this quantile of them
_FLATTEST = 0.03  # least and largest square of that scale: this and 1, of the noise of a segment
_LEAST_NOISE = 1e-2  # of a segment, of the variance of the offsets
_PADDING = 1e-6  # weight of what is not valid
_KEPT_SCALE = 8.0  # rows; smoother offsets are not part of the first guess


@dataclass(frozen=True)
class Segments:
    """Means of short pieces of rows.

    Attributes
    ----------
    means : ndarray, (row, segment), float64
    valid : ndarray, (row, segment), bool
        False in padding, and wherever else a piece is constant and equal to a row beside it.
    """

    means: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True)
class RowEvidence:
    """What speaks for rows with offsets of their own.

    Attributes
    ----------
    agreement : float
        Least correlation of the rows' levels between the left, middle and right third, 1 at most.
    needed : float
        Agreement from which offsets count as found.
    strength : float
        Standard deviation of the offsets, grey levels.
    jumps : ndarray, (row - 2,)
        Second differences of the levels of rows.
    """

    agreement: float
    needed: float
    strength: float
    jumps: np.ndarray

    @property
    def found(self) -> bool:
        """Whether the rows have offsets."""
        return self.agreement >= self.needed and self.strength > 0


def segments(plane: np.ndarray) -> Segments:
    """Return the means of some tens of pieces of each row of a plane (y, x)."""
    nx = plane.shape[1]
    count = min(max(nx // _WIDTH, 6), _MOST_SEGMENTS)
    cuts = np.arange(count) * nx // count
    sizes = np.diff(np.append(cuts, nx))
    means = np.add.reduceat(plane, cuts, axis=1, dtype=np.float64) / sizes
    level = np.diff(means, axis=0) == 0
    valid = np.ones(means.shape, bool)
    if level.any():
        flat = np.maximum.reduceat(plane, cuts, axis=1) == np.minimum.reduceat(plane, cuts, axis=1)
        same = np.zeros(means.shape, bool)
        same[1:] |= level
        same[:-1] |= level
        valid = ~(flat & same)
    return Segments(means, valid)


def row_evidence(parts: Segments) -> RowEvidence:
    """Return what speaks for offsets of the rows.

    Offsets change the whole row alike, objects rarely. So the second differences of the rows'
    levels are compared between the thirds of the image, by a correlation that a few edges as long
    as the image cannot raise (Gnanadesikan and Kettenring's, from median deviations).
    """
    ny = len(parts.means)
    nothing = RowEvidence(0.0, 1.0, 0.0, np.zeros(max(ny - 2, 0)))
    steps = _steps(parts)
    count = steps.shape[1]
    thirds = [steps[:, count * k // _THIRDS : count * (k + 1) // _THIRDS] for k in range(_THIRDS)]
    levels = [_location(third) for third in thirds]
    jumps = [np.diff(each) for each in levels]
    known = np.all(np.isfinite(jumps), axis=0)
    if np.count_nonzero(known) < SHORTEST - 2:
        return nothing
    pairs = [_shared(a[known], b[known]) for a, b in combinations(jumps, 2)]
    agreement, variance = (min(each) for each in zip(*pairs, strict=True))
    needed = max(_LEAST_AGREEMENT, 4 / math.sqrt(np.count_nonzero(known)))
    # A second difference of independent offsets has six times their variance.
    strength = math.sqrt(max(variance, 0) / 6)
    whole = np.nan_to_num(np.diff(_location(steps)))
    return RowEvidence(float(agreement), needed, strength, whole)


def row_offsets(parts: Sequence[Segments]) -> np.ndarray:
    """Return the offset of each row, (row,), with a mean of 0, that planes have in common.

    Planes are averaged. Each segment is a column of levels: a smooth image with sudden steps, the
    offsets of the rows, which all segments share, and noise. Offsets and image are those that are
    most probable together: differences along a segment follow a Cauchy law, offsets a normal one.
    It is reached by reweighted least squares, with the image eliminated by banded solves. Where all
    segments rise alike, that is taken for the image.
    """
    # Side by side, an object that stands still would count several times.
    means = np.mean([each.means for each in parts], axis=0)
    valid = np.all([each.valid for each in parts], axis=0)
    steps = _steps(Segments(means, valid))
    shared = _location(steps)
    offsets = _deviation(np.diff(shared)) ** 2 / 6
    shared = np.nan_to_num(shared)
    spread = _deviation(steps - shared[:, None])
    # Of one segment; differences of neighbours have twice the variance.
    noise = spread**2 / 2
    if not offsets > 0:
        return np.zeros(len(means))
    noise = max(noise, _LEAST_NOISE * offsets)
    profile = np.concatenate([[0.0], np.cumsum(shared)])
    guess = profile - gaussian_filter1d(profile, _KEPT_SCALE, mode="nearest")
    # A segment that is padding all along still needs some level.
    weights = np.where(valid, 1.0, _PADDING) / noise
    found = _most_probable(means, weights, noise, offsets, guess)
    return found - found.mean()


def _most_probable(
    means: np.ndarray, weights: np.ndarray, scale: float, offsets: float, found: np.ndarray
) -> np.ndarray:
    """Return the offsets (row,); `scale` and `offsets` are variances, `weights` inverse ones."""
    ny, count = means.shape
    image = gaussian_filter1d(means - found[:, None], 3.0, axis=0, mode="nearest")
    for _ in range(_ROUNDS):
        steps = np.abs(np.diff(image, axis=0))
        # Each segment has a scale of its own: background is flatter than what is full of structure.
        own = (_TIMES * np.quantile(steps, _SHARE, axis=0)) ** 2
        links = 1 / (np.clip(own, _FLATTEST * scale, scale) + steps**2)
        main, beside = weights.T.copy(), np.zeros((count, ny))
        main[:, :-1] += links.T
        main[:, 1:] += links.T
        beside[:, :-1] = -links.T
        # All segments are one banded system, without links from one to the next.
        factors = lapack.dpttrf(main.ravel(), beside.ravel()[:-1])[:2]

        def smooth(levels: np.ndarray, factors: tuple = factors) -> np.ndarray:
            given = (weights * levels).T.reshape(-1, 1)
            return lapack.dpttrs(*factors, given)[0].reshape(count, ny).T

        def applied(values: np.ndarray, smooth=smooth) -> np.ndarray:
            levels = np.repeat(values[:, None], count, axis=1)
            return values / offsets + (weights * (levels - smooth(levels))).sum(axis=1)

        wanted = (weights * (means - smooth(means))).sum(axis=1)
        found = _conjugate_gradients(applied, wanted, found)
        image = smooth(means - found[:, None])
    return found


def _conjugate_gradients(applied, wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Solve a symmetric positive system, nearly."""
    rest = wanted - applied(found)
    way, left, end = rest, rest @ rest, _ENOUGH**2 * (wanted @ wanted)
    for _ in range(_STEPS):
        if left <= end:
            break
        image = applied(way)
        step = left / (way @ image)
        found, rest = found + step * way, rest - step * image
        left, before = rest @ rest, left
        way = rest + left / before * way
    return found


def _steps(parts: Segments) -> np.ndarray:
    """Return the differences of rows (row - 1, segment); NaN where one of the two is not valid."""
    steps = np.diff(parts.means, axis=0)
    if not parts.valid.all():
        steps[~(parts.valid[1:] & parts.valid[:-1])] = np.nan
    return steps


def _location(values: np.ndarray) -> np.ndarray:
    """Return a robust mean along the second axis, Tukey's biweight; NaN where nothing is known."""
    known = np.isfinite(values)
    whole = bool(known.all())
    with np.errstate(all="ignore"):
        middle = np.median(values, axis=1) if whole else _nanmedian(values)
        away = np.abs(values - middle[:, None])
        spread = 1.4826 * (np.median(away, axis=1) if whole else _nanmedian(away))
        typical = np.median(spread[np.isfinite(spread)]) if np.isfinite(spread).any() else 0.0
        spread = np.maximum(spread, 0.5 * typical)
        held = values if whole else np.where(known, values, 0.0)
        for _ in range(3):
            far = (held - middle[:, None]) / (_TUNING * spread[:, None])
            weight = np.where(np.abs(far) < 1, (1 - far**2) ** 2, 0.0) * known
            total = weight.sum(axis=1)
            mean = (weight * held).sum(axis=1) / total
            middle = np.where(total > 0, mean, middle)
    return middle


def _nanmedian(values: np.ndarray) -> np.ndarray:
    """Return medians along the second axis; NaN without a warning where nothing is known."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    count = np.count_nonzero(np.isfinite(values), axis=1)
    rows = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    found = (ordered[rows, low] + ordered[rows, np.minimum(high, values.shape[1] - 1)]) / 2
    return np.where(count > 0, found, np.nan)


def _deviation(values: np.ndarray) -> float:
    """Return a robust standard deviation of all values that are known."""
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0
    return float(1.4826 * np.median(np.abs(known - np.median(known))))


def _shared(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return a robust correlation of two series, and their covariance."""
    together, apart = _deviation(first + second) ** 2, _deviation(first - second) ** 2
    total = together + apart
    return ((together - apart) / total if total else 0.0), (together - apart) / 4


def agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Return a robust correlation of two series of one length."""
    return _shared(first, second)[0]
