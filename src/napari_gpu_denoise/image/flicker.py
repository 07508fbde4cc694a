"""Bleaching and flicker: how grey levels change from one frame of a time-lapse to the next.

The change is one gain and one offset for the whole frame, measured on the means of a grid of
blocks. A wrong change does harm and a missed one little, so in doubt no change is reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

_MOST_PIXELS = 65536  # read from a frame
_MOST_BLOCKS = 16  # along an axis
_BLOCK_WIDTH = 4  # pixels, at least, along an axis
_LEAST_BLOCKS = 16  # needed to measure anything

_GAINS = (0.2, 5.0)
_CANDIDATES = 64  # lines through two blocks; the best one starts the fit
_WIDTHS = (2.0, 2.0, 1.5, 1.5, 1.5)  # of the bisquare weights, round by round, in reaches
_KEPT = 0.815  # of the noise variance, with those weights

_CHANCE = 8.0  # chi-squared, two degrees of freedom, up to which the identity is accepted
_AGREE = 3.0  # standard deviations within which a block agrees with a line
_TOLERANCE = 0.01  # of the contrast of the blocks: what gain and offset leave unexplained
_SHARE = 0.15  # of the differences between the frames: likewise, for slight motion
_MOST_TOLERANCE = 0.02  # of the contrast, at most
_MOST = 0.55  # of the blocks must agree with the line
_EVIDENCE = 30.0  # chi-squared by which the identity must fit worse than the line
_EXPLAINED = 3.0  # a line must explain this many times what it leaves unexplained beyond noise
_SURE = 2.0  # standard errors by which a gain must differ from 1


@dataclass(frozen=True)
class _Grid:
    """Blocks along y and x: how many, pixels read per block, pixel spacing, first pixel."""

    blocks: tuple[int, ...]
    width: tuple[int, ...]
    step: tuple[int, ...]
    start: tuple[int, ...]


@lru_cache(maxsize=64)
def _grid(shape: tuple[int, int]) -> _Grid:
    blocks = tuple(min(_MOST_BLOCKS, max(1, n // _BLOCK_WIDTH)) for n in shape)
    widest = [max(1, n // (b * _BLOCK_WIDTH)) for n, b in zip(shape, blocks, strict=True)]
    # The same spacing along both axes, unless one is too short for it.
    step = math.ceil(math.sqrt(math.prod(shape) / _MOST_PIXELS))
    steps = [min(max(1, step), w) for w in widest]
    for axis in (0, 1):
        other = len(range(0, shape[1 - axis], steps[1 - axis]))
        if len(range(0, shape[axis], steps[axis])) * other > _MOST_PIXELS:
            steps[axis] = min(math.ceil(shape[axis] * other / _MOST_PIXELS), widest[axis])
    width = tuple(max(1, n // (b * s)) for n, b, s in zip(shape, blocks, steps, strict=True))
    start = tuple(
        (n - (b * w - 1) * s - 1) // 2
        for n, b, w, s in zip(shape, blocks, width, steps, strict=True)
    )
    return _Grid(blocks, width, tuple(steps), start)


def block_pixels(shape: tuple[int, int]) -> int:
    """Return the number of pixels `block_means` averages per block of a frame (ny, nx).

    Independent noise of standard deviation sigma is ``sigma / sqrt(block_pixels(shape))`` in a
    block mean.
    """
    return math.prod(_grid(tuple(shape)).width)


def block_means(frames: np.ndarray) -> np.ndarray:
    """Average frames (…, ny, nx) over a grid of 16 x 16 blocks; return float64, (…, blocks).

    There are fewer blocks along an axis of less than 64 pixels. Of a large frame, a regular subset
    of the pixels is read, the same for all frames of one shape. NaN and infinity pass on to means.
    """
    *stack, ny, nx = frames.shape
    grid = _grid((ny, nx))
    (rows, columns), (height, width) = grid.blocks, grid.width
    along = zip(grid.blocks, grid.width, grid.step, grid.start, strict=True)
    read = tuple(slice(first, first + (b * w - 1) * s + 1, s) for b, w, s, first in along)
    pixels = frames[(..., *read)].astype(np.float64, order="C")
    with np.errstate(over="ignore", invalid="ignore"):
        lines = pixels.reshape(*stack, rows, height, columns * width).sum(axis=-2)
        sums = lines.reshape(*stack, rows * columns, width).sum(axis=-1)
    return sums / (height * width)


def brightness_changes(before: np.ndarray, after: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Measure ``after = gain * before + offset`` from the `block_means` of pairs of frames.

    `before` and `after` are of shape (pairs, blocks). `noise`, of shape (pairs,), is the standard
    deviation of ``after - before`` of a block, in grey levels: ``sigma * sqrt(2 /
    block_pixels(shape))`` for frames with noise sigma. Returned are gains and offsets, (pairs, 2).
    A pair has the same result whichever others are measured with it.

    The result is finite, with 0.2 <= gain <= 5. It is the identity unless most blocks agree with
    another change and clearly not with the identity: so too if the scene moves as a whole or is
    replaced by another. Blocks that move or saturate are left out. If the contrast is too low to
    measure the gain, it is 1, with an offset.
    """
    found = np.tile((1.0, 0.0), (len(before), 1))
    with np.errstate(all="ignore"):
        known = np.isfinite(before) & np.isfinite(after)
        told, whole = np.isfinite(noise), known.all(axis=1)
        rows = np.flatnonzero(told & whole)
        if len(rows):
            found[rows] = _changes(before[rows], after[rows], noise[rows])
        for row in np.flatnonzero(told & ~whole):
            there = known[row]
            pair = before[row, there][None], after[row, there][None]
            found[row] = _changes(*pair, noise[row, None])
    return found


def _changes(before: np.ndarray, after: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return gain and offset of each pair; all means are finite."""
    found = np.tile((1.0, 0.0), (len(before), 1))
    if before.shape[1] < _LEAST_BLOCKS:
        return found
    # Centred, and scaled to 1, so that no digits are lost to a large level or a small range.
    centre = before.mean(axis=1)
    x, y = before - centre[:, None], after - centre[:, None]
    scale = np.maximum(np.abs(x).max(axis=1), np.abs(y).max(axis=1))
    varies = (np.ptp(x, axis=1) > 0) & (np.ptp(y, axis=1) > 0) & (scale < math.inf)
    x, y = x / scale[:, None], y / scale[:, None]
    noise = np.clip(noise / scale, 1e-7, 1e3)
    rows = np.flatnonzero(varies & ~_by_chance(x, y - x, noise))
    if len(rows):
        gain, offset = _robust_lines(x[rows], y[rows], noise[rows])
        offset = scale[rows] * offset + centre[rows] * (1 - gain)
        sound = (gain >= _GAINS[0]) & (gain <= _GAINS[1]) & np.isfinite(offset)
        found[rows[sound]] = np.stack((gain, offset), axis=1)[sound]
    return found


def _by_chance(x: np.ndarray, d: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return a mask of pairs whose mean and slope of differences may be noise alone."""
    shift, slope, spread = d.sum(axis=1), (x * d).sum(axis=1), (x * x).sum(axis=1)
    # The noise of x itself makes a slope; where it is most of the contrast, there is none to tell.
    own = 0.5 * x.shape[1] * noise**2
    sloped = np.where(spread > 2 * own, (slope + own) ** 2 / spread, 0.0)
    return shift**2 / x.shape[1] + sloped < _CHANCE * noise**2


def _robust_lines(x: np.ndarray, y: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return gain and offset of the line that most blocks of a pair lie on; else (1, 0)."""
    d = y - x
    least = np.minimum(x.var(axis=1), y.var(axis=1))
    contrast = np.sqrt(np.maximum(least - noise**2 / 2, 0.0))
    # The larger the change, the more motion is tolerated before no change is the better guess.
    share = np.minimum(_SHARE * np.median(np.abs(d), axis=1), _MOST_TOLERANCE * contrast)
    tolerance = np.hypot(_TOLERANCE * contrast, share)
    reach = _AGREE * np.hypot(noise, tolerance)
    gain, offset = _first_lines(x, y, d, reach)
    slope = gain - 1
    for width in _WIDTHS:
        far = (d - slope[:, None] * x - offset[:, None]) / (width * reach)[:, None]
        weights = np.maximum(1 - far * far, 0)
        slope, offset = _weighted_lines(x, d, weights * weights, noise)
    change = slope[:, None] * x + offset[:, None]
    residual = d - change
    agree = np.abs(residual) < reach[:, None]
    # Most blocks must agree, and most of those that can tell the line from the identity: a
    # background that fits both is no evidence.
    telling = np.abs(change) > reach[:, None]
    count, told = agree.sum(axis=1), telling.sum(axis=1)
    most = (count >= _MOST * x.shape[1]) & ((agree & telling).sum(axis=1) >= _MOST * told)
    # A block that differs a lot counts no more than one that just disagrees, so that a few blocks
    # decide nothing. Where motion, not noise, hides the change, the limit is higher.
    squared = np.where(agree, d * d, 0)
    left = np.where(agree, residual * residual, 0).sum(axis=1)
    # A gain below 1 shrinks the noise of the first frame; that is no evidence.
    by_noise = count * noise**2 * (1 + (1 + slope) ** 2) / 2
    beyond_noise = np.maximum(left - by_noise, 0.0)
    left = left + np.maximum(count * noise**2 - by_noise, 0.0)
    evidence = np.minimum(squared, (reach**2)[:, None]).sum(axis=1) - left
    stands_out = reach**2 + 8 * (_AGREE * tolerance) ** 2
    explained = np.minimum(squared, stands_out[:, None]).sum(axis=1) - left
    clear = (evidence >= _EVIDENCE * noise**2) & (explained >= _EXPLAINED * beyond_noise)
    return np.where(most & clear, 1 + slope, 1.0), np.where(most & clear, offset, 0.0)


def _first_lines(
    x: np.ndarray, y: np.ndarray, d: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return gain and offset of the best of some lines through two blocks and pure offsets."""
    order = np.argsort(x, axis=1, kind="stable")
    half = x.shape[1] // 2
    low, high = order[:, :half], order[:, x.shape[1] - half :]
    rows = np.arange(len(x))
    each = rows[:, None]
    if half > _CANDIDATES:
        # Blocks with very different levels measure the gain best.
        apart = x[each, low] - x[each, high]
        widest = np.argsort(apart, axis=1, kind="stable")[:, :_CANDIDATES]
        low, high = low[each, widest], high[each, widest]
    x_low, y_low = x[each, low], y[each, low]
    gains, offsets = np.ones((2, len(x), low.shape[1] + 2))
    found = (y[each, high] - y_low) / (x[each, high] - x_low)
    np.copyto(gains[:, :-2], np.clip(np.nan_to_num(found, nan=1.0), *_GAINS))
    np.subtract(y_low, gains[:, :-2] * x_low, out=offsets[:, :-2])
    offsets[:, -2], offsets[:, -1] = np.median(d, axis=1), 0.0
    best = np.empty(len(x), np.intp)
    for row in rows:  # one after another, which stays in the cache
        loss = y[row] - gains[row, :, None] * x[row]
        loss -= offsets[row, :, None]
        loss *= loss
        np.minimum(loss, reach[row] ** 2, out=loss)
        best[row] = loss.sum(axis=1).argmin()
    return gains[rows, best], offsets[rows, best]


def _weighted_lines(
    x: np.ndarray, d: np.ndarray, weights: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return slope and offset of d over x, the slope reduced by as much as may be noise."""
    total = weights.sum(axis=1)
    weighted = weights * x
    sum_x, sum_d = weighted.sum(axis=1), (weights * d).sum(axis=1)
    # Correct for the noise of x itself, which flattens lines.
    own = 0.5 * total * noise**2 * _KEPT
    spread = (weighted * x).sum(axis=1) - sum_x**2 / total - own
    product = (weighted * d).sum(axis=1) - sum_x * sum_d / total + own
    # A contrast below the noise of a block says nothing about the slope.
    slope = np.where(spread > own, product / spread, 0.0)
    # A small slope becomes 0, a large one hardly changes.
    doubt = _SURE**2 * noise**2 * (1 + 1.5 * own / spread) / spread
    slope = np.where(slope**2 > doubt, slope - doubt / slope, 0.0)
    slope = np.where(spread > own, slope, 0.0)
    offset = (sum_d - slope * sum_x) / total
    fits = total > 0
    return np.where(fits, slope, 0.0), np.where(fits, offset, 0.0)
