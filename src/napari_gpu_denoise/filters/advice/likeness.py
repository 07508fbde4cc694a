"""How much of a frame is found again in the next one: its structures, and its noise.

Blocks of a frame are looked for in the next one, at full size for slow motion and at a quarter of
it for fast motion. What of a block is not found again is compared with what its noise alone leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_BLOCK = 16  # pixels along y and x
_REACH = 8  # pixels that are searched each way, in the frame or at a quarter of its size
_COARSE, _LARGE = 4, 192  # that quarter; images of fewer pixels are searched at half their size
_MOST_BLOCKS = 12  # along an axis
_FEWEST = 4  # blocks of which anything is said
_STANDS_OUT = 1.0  # variance of structure, over that of the noise, of blocks that are followed
_BETTER = 0.1  # more found again, from which fast motion is believed
_FLATTEST = 0.25  # share of the blocks in which noise is compared


@dataclass(frozen=True)
class Likeness:
    """Neighbouring frames compared.

    `found` is the share of the structure that is found again, 0 to 1, and `moved` how far it moves
    from one frame to the next, in pixels; both NaN where no structure stands out from the noise.
    `repeated` is the share of the noise that is found again, NaN where that is not known.
    """

    found: float = math.nan
    moved: float = math.nan
    repeated: float = math.nan


def likeness(pairs: Sequence[tuple[np.ndarray, np.ndarray]], sigma: float) -> Likeness:
    """Compare pairs of neighbouring frames (y, x), with noise of standard deviation `sigma`."""
    near = [_matched(*pair) for pair in pairs]
    by = _COARSE if min(pairs[0][0].shape) >= _LARGE else _COARSE // 2
    far = [_matched(*(_smaller(frame, by) for frame in pair)) for pair in pairs]
    # At a smaller size the noise is not known: it may be correlated.
    close = _followed(near, min(sigma**2, _flat_noise(near)))
    wide = _followed(far, _flat_noise(far))
    if math.isnan(close[0]) or wide[0] > close[0] + _BETTER:
        found, moved = wide[0], wide[1] * by
    else:
        found, moved = close
    return Likeness(found, moved, _repeated(near, sigma**2))


@dataclass(frozen=True)
class _Blocks:
    """Blocks of a frame and where they are found in the next one."""

    variance: np.ndarray  # of their pixels, (n,)
    left: np.ndarray  # mean squared difference at the best place, without that of the means
    chance: np.ndarray  # the same in a frame with other structures of the same kind
    moved: np.ndarray  # distance of the best place, in pixels
    fine: np.ndarray  # share of the finest detail that differs at the best place


def _matched(first: np.ndarray, second: np.ndarray) -> _Blocks:
    first, second = (np.nan_to_num(np.asarray(f, np.float32)) for f in (first, second))
    places = [_places(length) for length in first.shape]
    corners = [(y, x) for y in places[0] for x in places[1]]
    if not corners:
        return _Blocks(*[np.zeros(0)] * 5)
    own = np.stack([first[y : y + _BLOCK, x : x + _BLOCK] for y, x in corners])
    own -= own.mean(axis=(1, 2), keepdims=True)
    left = _left(own, second, corners)
    # Turned by half, it has the same kind of structures in other places.
    chance = _left(own, second[::-1, ::-1], corners).min(axis=(1, 2))
    best = left.reshape(len(corners), -1).argmin(axis=1)
    dy, dx = np.unravel_index(best, left.shape[1:])
    moved = np.hypot(dy - _REACH, dx - _REACH)
    others = np.stack(
        [
            second[y : y + _BLOCK, x : x + _BLOCK]
            for y, x in np.array(corners) + np.stack([dy, dx], axis=1) - _REACH
        ]
    )
    fine = _fine(own - others) / np.maximum(_fine(own) + _fine(others), 1e-30)
    return _Blocks(np.mean(own**2, axis=(1, 2)), left.min(axis=(1, 2)), chance, moved, fine)


def _fine(blocks: np.ndarray) -> np.ndarray:
    """Return the energy of the finest detail of blocks."""
    return sum(np.mean(np.diff(blocks, 2, axis) ** 2, axis=(1, 2)) for axis in (1, 2))


def _left(own: np.ndarray, second: np.ndarray, corners: list[tuple[int, int]]) -> np.ndarray:
    """Return what is left of blocks, without their means, at each place of a search."""
    variance = np.mean(own**2, axis=(1, 2))
    span = 2 * _REACH + 1
    left = np.empty((len(corners), span, span), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(second, (_BLOCK, _BLOCK))
    for number, (y, x) in enumerate(corners):
        others = windows[y - _REACH : y - _REACH + span, x - _REACH : x - _REACH + span]
        mean, square = others.mean(axis=(2, 3)), np.einsum("abij,abij->ab", others, others)
        shared = np.einsum("abij,ij->ab", others, own[number]) / _BLOCK**2
        left[number] = variance[number] + square / _BLOCK**2 - mean**2 - 2 * shared
    return left


def _places(length: int) -> list[int]:
    """Return the first rows of blocks whose search stays in the frame."""
    low, high = _REACH, length - _REACH - _BLOCK
    if high < low:
        return []
    count = min(_MOST_BLOCKS, (high - low) // _BLOCK + 1)
    return np.linspace(low, high, count).round().astype(int).tolist()


def _smaller(frame: np.ndarray, by: int) -> np.ndarray:
    """Return means of squares of pixels."""
    y, x = (n // by * by for n in frame.shape)
    cut = np.asarray(frame[:y, :x], np.float32)
    return cut.reshape(y // by, by, x // by, by).mean(axis=(1, 3))


def _flat_noise(found: Sequence[_Blocks]) -> float:
    """Return the variance of the noise by the blocks that differ least from the next frame."""
    left = np.concatenate([each.left for each in found])
    return float(np.quantile(left, 0.1)) / 2 if left.size else 0.0


def _followed(found: Sequence[_Blocks], noise: float) -> tuple[float, float]:
    """Return the share of structure found again, and how far it moved; NaN without structure."""
    parts = ("variance", "left", "chance", "moved")
    variance, left, chance, moved = (
        np.concatenate([getattr(each, name) for each in found]) for name in parts
    )
    clear = variance - noise > _STANDS_OUT * max(noise, 1e-12)
    if clear.sum() < _FEWEST:
        return math.nan, math.nan
    lost = np.maximum(left[clear] - 2 * noise, 0) / np.maximum(chance[clear] - 2 * noise, 1e-12)
    share = 1 - np.clip(lost, 0, 1)
    again = share > 0.5
    far = float(np.quantile(moved[clear][again], 0.75)) if again.any() else math.nan
    return float(np.median(share)), far


def _repeated(found: Sequence[_Blocks], noise: float) -> float:
    """Return the share of the noise that the next frame repeats, by the flattest blocks.

    Texture that is found again looks like repeated noise in the finest detail, and texture that was
    taken for noise in the variance: the smaller share counts.
    """
    variance, left, fine = (
        np.concatenate([getattr(each, name) for each in found])
        for name in ("variance", "left", "fine")
    )
    if variance.size < _FEWEST or not noise:
        return math.nan
    flat = variance <= np.quantile(variance, _FLATTEST)
    expected = 2 * np.minimum(variance[flat], noise)
    gone = max(np.median(fine[flat]), np.median(left[flat] / np.maximum(expected, 1e-30)))
    return float(np.clip(1 - gone, 0, 1))
