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

_CHANCE = 12.0  # chi-squared, two degrees of freedom, up to which the identity is accepted
_AGREE = 3.0  # standard deviations within which a block agrees with a line
_TOLERANCE = 0.01  # of the contrast of the blocks: what gain and offset leave unexplained
_SHARE = 0.15  # of the differences between the frames: likewise, for slight motion
_MOST_TOLERANCE = 0.02  # of the contrast, at most
_MOST = 0.55  # of the blocks must agree with the line
_EVIDENCE = 30.0  # chi-squared by which the identity must fit worse than the line
_EXPLAINED = 3.0  # a line must explain this many times what it leaves unexplained beyond noise
_SURE = 2.0  # standard errors by which a gain must differ from 1


@dataclass(frozen=True)
class Change:
    """Map from grey levels of one frame to those of another: level -> gain * level + offset."""

    gain: float = 1.0
    offset: float = 0.0

    @property
    def is_identity(self) -> bool:
        """Whether levels do not change."""
        return self.gain == 1.0 and self.offset == 0.0

    def then(self, other: Change) -> Change:
        """Return this change followed by another."""
        return Change(other.gain * self.gain, other.gain * self.offset + other.offset)

    def inverse(self) -> Change:
        """Return the inverse change."""
        return self if self.is_identity else Change(1.0 / self.gain, -self.offset / self.gain)


IDENTITY = Change()


@dataclass(frozen=True)
class _Grid:
    """Blocks along y and x: how many, pixels read per block, pixel spacing, first pixel."""

    blocks: tuple[int, int]
    width: tuple[int, int]
    step: tuple[int, int]
    start: tuple[int, int]


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
    """Return how many pixels `block_means` averages per block of a frame (ny, nx).

    Independent noise of standard deviation sigma is ``sigma / sqrt(block_pixels(shape))`` in a
    block mean.
    """
    return math.prod(_grid(tuple(shape)).width)


def block_means(frame: np.ndarray) -> np.ndarray:
    """Average a frame (ny, nx) over a grid of 16 x 16 blocks; return float64, shape (blocks,).

    There are fewer blocks along an axis of less than 64 pixels. Of a large frame, a regular subset
    of the pixels is read, the same for all frames of one shape. NaN and infinity pass on to means.
    """
    grid = _grid(frame.shape)
    (rows, columns), (height, width) = grid.blocks, grid.width
    along = zip(grid.blocks, grid.width, grid.step, grid.start, strict=True)
    read = tuple(slice(first, first + (b * w - 1) * s + 1, s) for b, w, s, first in along)
    pixels = frame[read].astype(np.float64, order="C")
    with np.errstate(over="ignore", invalid="ignore"):
        lines = pixels.reshape(rows, height, columns * width).sum(axis=1)
        sums = lines.reshape(rows * columns, width).sum(axis=1)
    return sums / (height * width)


def brightness_change(before: np.ndarray, after: np.ndarray, noise: float) -> Change:
    """Measure ``after = gain * before + offset`` from the `block_means` of two frames.

    `noise` is the standard deviation of ``after - before`` of a block, in grey levels:
    ``sigma * sqrt(2 / block_pixels(shape))`` for frames with noise sigma.

    The result is finite, with 0.2 <= gain <= 5. It is the identity unless most blocks agree with
    another change and clearly not with the identity: so too if the scene moves as a whole or is
    replaced by another. Blocks that move or saturate are left out. If the contrast is too low to
    measure the gain, it is 1, with an offset.
    """
    with np.errstate(all="ignore"):
        if not np.isfinite(before.sum() + after.sum() + noise):
            known = np.isfinite(before) & np.isfinite(after)
            before, after = before[known], after[known]
        if len(before) < _LEAST_BLOCKS or not math.isfinite(noise):
            return IDENTITY
        # Centred, and scaled to 1, so that no digits are lost to a large level or a small range.
        centre = float(before.mean())
        x, y = before - centre, after - centre
        scale = float(max(x.max(), -x.min(), y.max(), -y.min()))
        if not scale < math.inf or x.min() == x.max() or y.min() == y.max():
            return IDENTITY
        x, y, noise = x / scale, y / scale, min(max(float(noise) / scale, 1e-7), 1e3)
        d = y - x
        if _by_chance(x, d, noise):
            return IDENTITY
        gain, offset = _robust_line(x, y, d, noise)
        change = Change(gain, scale * offset + centre * (1 - gain))
        sound = _GAINS[0] <= gain <= _GAINS[1] and math.isfinite(change.offset)
        return change if sound else IDENTITY


def _by_chance(x: np.ndarray, d: np.ndarray, noise: float) -> bool:
    """Return whether the mean and the slope of the differences may be noise alone."""
    # x has a mean of 0. Its own noise, in d with opposite sign, looks like a slope.
    own = 0.5 * len(x) * noise**2
    shift, slope, spread = float(d.sum()), float(x @ d) + own, float(x @ x)
    return shift**2 / len(x) + slope**2 / max(spread, own) < _CHANCE * noise**2


def _robust_line(x: np.ndarray, y: np.ndarray, d: np.ndarray, noise: float) -> tuple[float, float]:
    """Return gain and offset of the line that most blocks lie on; (1, 0) where there is none."""
    contrast = math.sqrt(max(min(x.var(), y.var()) - noise**2 / 2, 0.0))
    # The larger the change, the more motion is tolerated before no change is the better guess.
    share = min(_SHARE * float(np.median(np.abs(d))), _MOST_TOLERANCE * contrast)
    tolerance = math.hypot(_TOLERANCE * contrast, share)
    reach = _AGREE * math.hypot(noise, tolerance)
    gain, offset = _first_line(x, y, d, reach)
    slope = gain - 1
    for width in _WIDTHS:
        far = (d - slope * x - offset) / (width * reach)
        weights = np.maximum(1 - far * far, 0)
        slope, offset = _weighted_line(x, d, weights * weights, noise)
    change = slope * x + offset
    residual = d - change
    agree = np.abs(residual) < reach
    # Most blocks must agree, and most of those that can tell the line from the identity: a
    # background that fits both is no evidence.
    telling = np.abs(change) > reach
    count, told = int(np.count_nonzero(agree)), int(np.count_nonzero(telling))
    if count < _MOST * len(x) or int(np.count_nonzero(agree & telling)) < _MOST * told:
        return 1.0, 0.0
    # A block that differs a lot counts no more than one that just disagrees, so that a few blocks
    # decide nothing. Where motion, not noise, hides the change, the limit is higher.
    squared = np.square(d[agree])
    left = float(np.square(residual[agree]).sum())
    # A gain below 1 shrinks the noise of the first frame; that is no evidence.
    by_noise = count * noise**2 * (1 + (1 + slope) ** 2) / 2
    beyond_noise = max(left - by_noise, 0.0)
    left += max(count * noise**2 - by_noise, 0.0)
    evidence = float(np.minimum(squared, reach**2).sum()) - left
    stands_out = reach**2 + 8 * (_AGREE * tolerance) ** 2
    explained = float(np.minimum(squared, stands_out).sum()) - left
    if evidence < _EVIDENCE * noise**2 or explained < _EXPLAINED * beyond_noise:
        return 1.0, 0.0
    return 1 + slope, offset


def _first_line(x: np.ndarray, y: np.ndarray, d: np.ndarray, reach: float) -> tuple[float, float]:
    """Return gain and offset of the best of some lines through two blocks and pure offsets."""
    order = np.argsort(x, kind="stable")
    half = len(x) // 2
    low, high = order[:half], order[len(x) - half :]
    if half > _CANDIDATES:
        # Blocks with very different levels measure the gain best.
        widest = np.argsort(x[low] - x[high], kind="stable")[:_CANDIDATES]
        low, high = low[widest], high[widest]
    gains = (y[high] - y[low]) / (x[high] - x[low])
    gains = np.clip(np.nan_to_num(gains, nan=1.0), *_GAINS)
    gains = np.append(gains, (1.0, 1.0))
    offsets = np.append(y[low] - gains[:-2] * x[low], (np.median(d), 0.0))
    loss = y - gains[:, None] * x
    loss -= offsets[:, None]
    loss *= loss
    np.minimum(loss, reach**2, out=loss)
    best = int(loss.sum(axis=1).argmin())
    return float(gains[best]), float(offsets[best])


def _weighted_line(
    x: np.ndarray, d: np.ndarray, weights: np.ndarray, noise: float
) -> tuple[float, float]:
    """Return slope and offset of d over x, the slope reduced by as much as may be noise."""
    total = float(weights.sum())
    if not total > 0:
        return 0.0, 0.0
    weighted = weights * x
    sum_x, sum_d = float(weighted.sum()), float(weights @ d)
    # Correct for the noise of x itself, which flattens lines.
    own = 0.5 * total * noise**2 * _KEPT
    spread = float(weighted @ x) - sum_x**2 / total - own
    product = float(weighted @ d) - sum_x * sum_d / total + own
    slope = 0.0
    # A contrast below the noise of a block says nothing about the slope.
    if spread > own:
        slope = product / spread
        # A small slope becomes 0, a large one hardly changes.
        doubt = _SURE**2 * noise**2 * (1 + 1.5 * own / spread) / spread
        slope = slope - doubt / slope if slope**2 > doubt else 0.0
    return slope, (sum_d - slope * sum_x) / total
