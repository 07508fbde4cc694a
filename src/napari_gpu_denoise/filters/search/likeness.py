"""How neighbouring frames resemble each other, and how far structures move between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.noise.sampling import PlaneReader, spread

_BLOCK = 16  # pixels along y and x
_REACH = 8  # pixels that are searched each way, in the frame or at a quarter of its size
_SPAN, _SIDE = 2 * _REACH + 1, 2 * _REACH + _BLOCK  # places of a block; pixels that these cover
_COARSE, _LARGE = 4, 192  # that quarter; images of fewer pixels are searched at half their size
_MOST_BLOCKS = 8  # along an axis
_FEWEST = 4  # blocks of which anything is said
_STANDS_OUT = 1.0  # variance of structure, over that of the noise, of blocks that are followed
_BETTER = 0.1  # more found again, from which fast motion is believed
_FLATTEST = 0.25  # share of the blocks in which noise is compared
_PAIRS = 3  # of neighbouring frames that are compared
_ROUNDING = 5e-7  # of the largest square, which float32 leaves of a constant block
FOUND = 0.35  # share of structures found again, from which frames help
# Each row averages the pixels of a block at one place.
_MEANS = np.array(
    [[(k <= n < k + _BLOCK) / _BLOCK for n in range(_SIDE)] for k in range(_SPAN)], np.float32
)
# Fourier transforms of so few pixels are faster as products: along an axis, and back to _SPAN
# places along Y, and along X from half of the frequencies, whose conjugates the others are.
_WAVES = np.exp(-2j * np.pi / _SIDE * np.outer(*2 * [np.arange(_SIDE)])).astype(np.complex64)
_HALF = np.ascontiguousarray(_WAVES[:, : _SIDE // 2 + 1])
_TWICE = np.array([1, *[2] * (_SIDE // 2 - 1), 1], np.float32) / _SIDE
_BACK = _WAVES[:_SPAN].conj() / _SIDE, (_HALF[:_SPAN].conj() * _TWICE).T


@dataclass(frozen=True)
class Likeness:
    """Neighbouring frames compared.

    `found` is the share of the structure that is found again, 0 to 1, and `moved` how far it moves
    from one frame to the next, in pixels along y or x; both NaN where none stands out of the noise.
    `repeated` is the share of the noise that is found again, NaN where that is not known.
    """

    found: float = math.nan
    moved: float = math.nan
    repeated: float = math.nan


def compared(reader: PlaneReader, axis: int, sigma: Sequence[float] = (math.inf,)) -> Likeness:
    """Return how neighbouring planes along an axis resemble each other, in the middle channel.

    `sigma` is the noise of each channel, or of all. At most `_PAIRS` pairs of planes are read.
    """
    number = len(reader.channels) // 2
    channel = reader.channels[number]
    starts = spread(reader.shape[axis] - 1, _PAIRS)
    held = list(reader.along(axis, channel, [k + step for k in starts for step in (0, 1)]))
    pairs = list(zip(held[::2], held[1::2], strict=True))
    return likeness(pairs, sigma[number if number < len(sigma) else 0])


def likeness(pairs: Sequence[tuple[np.ndarray, np.ndarray]], sigma: float = math.inf) -> Likeness:
    """Compare pairs of neighbouring frames (y, x).

    `sigma` is the standard deviation of the noise, at most: without it, the blocks that differ
    least tell it, and nothing is known of noise that is repeated.
    """
    near = _matched(pairs, 1)
    found, moved = _followed(near, min(sigma**2, _flat_noise(near)))
    if not found >= 1 - _BETTER:
        by = _COARSE if min(pairs[0][0].shape) >= _LARGE else _COARSE // 2
        far = _matched(pairs, by)
        # At a smaller size the noise is not known: it may be correlated.
        wide = _followed(far, _flat_noise(far))
        if math.isnan(found) or wide[0] > found + _BETTER:
            found, moved = wide[0], wide[1] * by
    return Likeness(found, moved, _repeated(near, sigma**2))


class _Blocks(NamedTuple):
    """Blocks of frames and where they are found in the next ones."""

    variance: np.ndarray  # of their pixels, (n,)
    left: np.ndarray  # mean squared difference at the best place, without that of the means
    moved: np.ndarray  # distance of the best place along y or x, the larger, in pixels
    own: np.ndarray  # pixels, (n, _BLOCK, _BLOCK), less their mean
    best: np.ndarray  # those at the best place
    spectrum: np.ndarray  # of their pixels
    elsewhere: np.ndarray  # pixels with other structures of the same kind, (n, _SIDE, _SIDE)


def _matched(pairs: Sequence[tuple[np.ndarray, np.ndarray]], by: int) -> _Blocks:
    """Search the blocks of pairs of frames, reduced `by` times, all at once: a call takes long."""
    firsts, seconds = zip(*pairs, strict=True)
    own, around = _windows(firsts, by), _windows(seconds, by)
    # Turned by half, a frame has the same kind of structures in other places.
    elsewhere = around[:, ::-1, ::-1, ::-1]
    if min(seconds[0].shape) // by < _SIDE + _BLOCK:
        # A single window along an axis lies at its start: turned, it is in the same place.
        elsewhere = _windows([frame[::-1, ::-1] for frame in seconds], by)
    largest = np.abs(around).max(axis=(1, 2, 3), initial=0)
    least = np.repeat(_ROUNDING * largest**2, around.shape[1])
    own, around, elsewhere = (a.reshape(-1, _SIDE, _SIDE) for a in (own, around, elsewhere))
    own = own[:, _REACH : _REACH + _BLOCK, _REACH : _REACH + _BLOCK]
    own = own - own.mean(axis=(1, 2), keepdims=True)
    variance, spectrum = np.mean(own**2, axis=(1, 2)), _spectra(own / _BLOCK**2).conj()
    left = _differences(around, spectrum, variance).reshape(-1, _SPAN**2)
    dy, dx = np.divmod(left.argmin(axis=1), _SPAN)
    best = sliding_window_view(around, (_BLOCK, _BLOCK), (1, 2))[np.arange(len(own)), dy, dx]
    moved = np.maximum(abs(dy - _REACH), abs(dx - _REACH))
    variance, left = (np.where(a < least, 0, a) for a in (variance, left.min(axis=1)))
    found = variance, left, moved, own, best, spectrum, elsewhere
    # Padding, blank frames: nothing is found again there.
    return _Blocks(*(each[variance > 0] for each in found))


def _differences(windows: np.ndarray, spectrum: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the mean squared differences of blocks at each place of windows, less their means."""
    shared = _BACK[0] @ (_spectra(windows) * spectrum) @ _BACK[1]
    return variance[:, None, None] + (_means(windows**2) - _means(windows) ** 2) - 2 * shared.real


def _windows(frames: Sequence[np.ndarray], by: int) -> np.ndarray:
    """Return the pixels in which blocks are searched, reduced `by` times, less their mean.

    They are of shape (frames, n, _SIDE, _SIDE).
    """
    starts, shape = [], frames[0].shape
    for length in shape:
        most = length // by - _SIDE
        if most < 0:
            return np.zeros((len(frames), 0, _SIDE, _SIDE), np.float32)
        count = min(_MOST_BLOCKS, most // _BLOCK + 1)
        starts.append(np.linspace(0, most, count).round().astype(int))
    # All of a small frame is less than what windows share.
    small = math.prod(shape) < 2 * len(starts[0]) * len(starts[1]) * (_SIDE * by) ** 2
    first, then = (by, 1) if small else (1, by)
    side, places = _SIDE * then, np.ix_(*(each * then for each in starts))
    cut = [sliding_window_view(_reduced(each, first), (side, side))[places] for each in frames]
    pixels = _reduced(np.array(cut), then).astype(np.float32, copy=False)
    if not np.isfinite(pixels.sum()):
        np.nan_to_num(pixels, copy=False, posinf=0, neginf=0)
    pixels = pixels.reshape(len(frames), -1, _SIDE, _SIDE)
    return pixels - pixels.mean(axis=(2, 3), keepdims=True)


def _reduced(images: np.ndarray, by: int) -> np.ndarray:
    """Return the means of squares of `by` x `by` pixels, along Y and X, the last axes."""
    if by == 1:
        return images
    ny, nx = (length // by * by for length in images.shape[-2:])
    # Along Y, then along X by slices: faster than means over short axes.
    rows = images[..., :ny, :nx].reshape(*images.shape[:-2], -1, by, nx).sum(-2, np.float32)
    return reduce(np.add, (rows[..., k::by] for k in range(by))) / by**2


def _spectra(blocks: np.ndarray) -> np.ndarray:
    """Return the Fourier transform of blocks in _SIDE pixels, the half of it along X."""
    size = blocks.shape[1]
    # The real and the imaginary part by one product: NumPy would make the pixels complex first.
    rows = blocks @ _HALF[:size].view(np.float32)
    return _WAVES[:, :size] @ rows.view(np.complex64)


def _means(windows: np.ndarray) -> np.ndarray:
    return _MEANS @ windows @ _MEANS.T


def _fine(blocks: np.ndarray) -> np.ndarray:
    """Return the energy of the finest detail of blocks."""
    down, right = (np.mean(np.diff(blocks, 2, axis) ** 2, axis=(1, 2)) for axis in (1, 2))
    return down + right


def _flat_noise(blocks: _Blocks) -> float:
    """Return the variance of the noise by the blocks that differ least from the next frame."""
    return float(np.quantile(blocks.left, 0.1)) / 2 if blocks.left.size else 0.0


def _followed(blocks: _Blocks, noise: float) -> tuple[float, float]:
    """Return the share of structure found again, and how far it moved; NaN without structure."""
    variance, left, moved, _, _, spectrum, elsewhere = blocks
    clear = variance - noise > _STANDS_OUT * max(noise, 1e-12)
    if clear.sum() < _FEWEST:
        return math.nan, math.nan
    chance = _differences(elsewhere[clear], spectrum[clear], variance[clear]).min(axis=(1, 2))
    lost = np.maximum(left[clear] - 2 * noise, 0) / np.maximum(chance - 2 * noise, 1e-12)
    share = 1 - np.clip(lost, 0, 1)
    again = share > 0.5
    far = float(np.quantile(moved[clear][again], 0.75)) if again.any() else math.nan
    return float(np.median(share)), far


def _repeated(blocks: _Blocks, noise: float) -> float:
    """Return the share of the noise that the next frame repeats, by the flattest blocks.

    Texture that is found again looks like repeated noise in the finest detail, and texture that was
    taken for noise in the variance: the smaller share counts.
    """
    variance, left = blocks.variance, blocks.left
    if variance.size < _FEWEST or not 0 < noise < math.inf:
        return math.nan
    flat = variance <= np.quantile(variance, _FLATTEST)
    expected = 2 * np.minimum(variance[flat], noise)
    own, best = blocks.own[flat], blocks.best[flat]
    fine = _fine(own - best) / np.maximum(_fine(own) + _fine(best), 1e-30)
    gone = max(np.median(fine), np.median(left[flat] / np.maximum(expected, 1e-30)))
    return float(np.clip(1 - gone, 0, 1))
