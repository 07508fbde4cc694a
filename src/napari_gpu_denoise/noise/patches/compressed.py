"""White noise of a plane that was compressed as JPEG afterwards.

JPEG rounds the cosine coefficients of 8 x 8 blocks to multiples of a step, so that the blocks of
one grid show lattices of values; other grids, and images that were not compressed, do not. Rounding
raises the power of noise near the size of the step, and removes that far below it. How much is left
follows from the noise and the step, which is inverted here.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.noise.patches.coefficients import ranked
from napari_gpu_denoise.noise.patches.products import times
from napari_gpu_denoise.noise.patches.variance import FIRST_PATCHES, WHITE, pooled_variance

BLOCK = 8
WHITE_LEVEL = 255  # largest value of a pixel
SMALLEST, LARGEST = 5, 121  # steps looked for
OFF = 1.0  # distance from a multiple that rounding of pixels causes, at most,
ON = 0.97  # in this share of the coefficients
NUMBER = 16  # of coefficients that are not 0, at least
SHOWN = 8  # frequencies with a lattice that show a grid, at least
SAMPLE = 400  # blocks in which grids are looked for
FEW, TOLD = 36, 16  # those that rule most grids out, about, by so many coefficients of a frequency
KNOWN = 0.22  # noise over the step of a frequency, below which too little is left of it


def noise_before(
    plane: np.ndarray, matrix: np.ndarray, low: int, upper: np.ndarray, levels: list
) -> tuple[float, float] | None:
    """Return sigma before compression, and its relative error; None for planes that never were.

    `matrix` are cosines of 8 x 8 pixels, the first `low` of low frequencies, and `upper` marks the
    upper ones of the others; blocks with one of the `levels`, at which values are clipped, are left
    out. None, too, where too little of the noise is left.
    """
    sample = plane[:: max(1, len(plane) // 16)]
    if min(plane.shape) < 3 * BLOCK or sample.min() < 0 or sample.max() > WHITE_LEVEL:
        return None
    if plane.dtype.kind == "f" and not (sample == np.rint(sample)).all():
        return None
    origin = _grid(plane, matrix[low:], levels)
    if origin is None:
        return None
    found = times(_blocks(plane, *origin, levels), matrix.T)
    if len(found) < FIRST_PATCHES:
        return None
    rank, energy = np.square(found[:, :low]).sum(axis=1), np.square(found[:, low:])
    _, error, power = pooled_variance(ranked(rank), energy, 1.0)
    steps = np.array([_step(each) for each in found[:, low:].T], np.float64)
    variance = power.copy()
    coarse = steps > 0
    variance[coarse] = steps[coarse] ** 2 * _before(power[coarse] / steps[coarse] ** 2)
    known = (np.abs(found[:, low:]) > SMALLEST / 2).sum(axis=0) >= NUMBER
    if not known.any():
        return None
    # The finer half of the steps tells about how strong the noise is, and so which are too coarse.
    about = float(np.median(variance[known & (steps <= np.median(steps[known]))]))
    known &= math.sqrt(about) > KNOWN * np.maximum(steps, SMALLEST)
    if np.count_nonzero(known) < 0.5 * len(known):
        return None
    parts = [variance[known & each] for each in (upper, ~upper)]
    if min(map(len, parts)) == 0:
        return None
    ratio = float(parts[0].mean() / parts[1].mean())
    if not 1 / WHITE < ratio < WHITE:
        return None  # it was not white before
    kept = variance[known]
    mean = min(float(kept.mean()), float(np.median(kept)))
    spread = float(np.std(kept)) / (2 * mean * math.sqrt(len(kept)))
    return math.sqrt(mean), math.hypot(error, spread)


def _blocks(
    plane: np.ndarray, y: int, x: int, levels: list, limit: int | None = None
) -> np.ndarray:
    """Return the blocks of a grid with this origin, (block, 64); about `limit` of them.

    Those with clipped values, and of one value, are left out.
    """
    rows, columns = (plane.shape[0] - y) // BLOCK, (plane.shape[1] - x) // BLOCK
    step = 1 if limit is None else max(1, math.isqrt(rows * columns // limit))
    part = plane[y : y + BLOCK * rows, x : x + BLOCK * columns]
    found = part.reshape(rows, BLOCK, columns, BLOCK).transpose(0, 2, 1, 3)[::step, ::step]
    found = found.reshape(-1, BLOCK**2).astype(np.float64)
    clear = np.isfinite(found).all(axis=1) & (np.ptp(found, axis=1) > 0)
    if levels:
        clear &= ~np.isin(found, levels).any(axis=1)
    return found[clear]


def _grid(plane: np.ndarray, high: np.ndarray, levels: list) -> tuple[int, int] | None:
    """Return the origin of the grid in which coefficients lie on lattices, if there is one."""
    some = high[:: max(1, len(high) // (2 * SHOWN))]
    for y, x in zip(*np.divmod(_possible(plane, some[::4], levels), BLOCK), strict=True):
        found = times(_blocks(plane, y, x, levels, SAMPLE), some.T).T
        # A few nearly always show that there is none.
        if any(map(_step, found[::4])) and np.count_nonzero([*map(_step, found)]) >= SHOWN:
            return int(y), int(x)
    return None


def _possible(plane: np.ndarray, some: np.ndarray, levels: list) -> np.ndarray:
    """Return the origins y * 8 + x whose grids some coefficients of a few blocks do not rule out.

    All origins at once. A lattice that `_step` finds has nearly all of these on it, too.
    """
    rows, columns = ((length - BLOCK + 1) // BLOCK for length in plane.shape)
    step = max(1, math.isqrt(rows * columns // FEW))
    wide = sliding_window_view(plane, (2 * BLOCK - 1,) * 2)[:: BLOCK * step, :: BLOCK * step]
    blocks = sliding_window_view(wide, (BLOCK, BLOCK), axis=(2, 3))
    blocks = blocks.transpose(2, 3, 0, 1, 4, 5).reshape(BLOCK**2, -1, BLOCK**2)
    clear = np.ones(blocks.shape[:2], bool)
    for level in levels:
        clear &= ~(blocks == level).any(axis=2)
    number = blocks.shape[1]
    values = times(blocks.reshape(-1, BLOCK**2).astype(np.float32), some.T.astype(np.float32))
    size = np.abs(values.reshape(BLOCK**2, number, len(some)).transpose(0, 2, 1))
    usable = (size > SMALLEST / 2) & clear[:, None]
    known = usable.sum(axis=2) >= TOLD
    # The first of the usable ones of each origin and frequency.
    first = np.argsort(~usable, axis=2, kind="stable")[:, :, :TOLD]
    series = np.take_along_axis(size, first, axis=2)[known]
    steps = np.arange(SMALLEST, LARGEST, dtype=np.float32)[:, None]
    # As many may be off as of the most values that `_step` looks at.
    most = (1 - ON) * 8 * NUMBER
    series = np.ascontiguousarray(series.T)
    # A few values rule out most steps, a few more most of the others.
    which, where = np.nonzero(_off(series[: TOLD // 4, None], steps) <= most)
    for number in (TOLD // 2, TOLD):
        left = _off(series[:number, where], steps[which, 0]) <= most
        which, where = which[left], where[left]
    open_ = ~known
    open_[known] = np.bincount(where, minlength=series.shape[1]) > 0
    return np.flatnonzero(open_.any(axis=1))


def _step(values: np.ndarray) -> int:
    """Return the step of a lattice that these coefficients lie on; 0 if they do not."""
    size = np.abs(values)
    values = size[size > SMALLEST / 2][: 8 * NUMBER]
    if len(values) < NUMBER:
        return 0
    steps, column = np.arange(SMALLEST, LARGEST, dtype=np.float64), values[:, None]
    # A few values rule out nearly all steps.
    steps = steps[_off(column[: NUMBER // 2], steps) <= (1 - ON) * len(values)]
    if not len(steps):
        return 0
    found = steps[_off(column, steps) <= (1 - ON) * len(values)]
    return int(found[-1]) if len(found) else 0


def _off(values: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return how many values (value, ...) do not lie on the lattice of each of the steps (...)."""
    number = values / steps
    np.rint(number, out=number)
    off = number == 0
    number *= steps
    np.subtract(values, number, out=number)
    off |= np.abs(number, out=number) >= OFF
    return off.sum(axis=0, dtype=np.uint8)  # of at most 128 values


def _before(variance: np.ndarray) -> np.ndarray:
    """Return the variance of normal values that have this one after rounding to whole numbers."""
    before, after = _rounded()
    return np.interp(variance, after, before)


@lru_cache(maxsize=1)
def _rounded() -> tuple[np.ndarray, np.ndarray]:
    """Return variances of normal values, and those after rounding to whole numbers."""
    from scipy.special import erfc

    sigma = np.geomspace(0.1, 16, 200)
    number = np.arange(1, 100)[:, None]
    low, high = (erfc((number + k) / (math.sqrt(2) * sigma)) for k in (-0.5, 0.5))
    after = (number**2 * (low - high)).sum(axis=0)
    return np.append(0, sigma**2), np.append(0, after)
