"""Hot and dead pixels: single pixels that no noise and no object of the image explains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.ndimage import uniform_filter

from napari_gpu_denoise.image.threads import in_threads, quiet
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.robust import finite_medians
from napari_gpu_denoise.noise.structure import rows

WINDOW = 9  # pixels in which the local noise is measured
PART = 64  # pixels of a row whose mean deviation is a first guess of it

# A sorting network for eight values (Batcher's).
_NETWORK = (
    *((0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3)),
    *((4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6)),
)


class Neighbours(NamedTuple):
    """What the eight neighbours of pixels show."""

    middle: np.ndarray  # their median
    spread: np.ndarray  # from the third to the sixth
    low: np.ndarray  # the second lowest
    high: np.ndarray  # the second highest


def compare_neighbours(views: list[np.ndarray]) -> Neighbours:
    """Sort nine arrays with the pixels around, and leave out the middle one."""
    values = [*views[:4], *views[5:]]
    for a, b in _NETWORK:
        low = np.minimum(values[a], values[b])
        values[a], values[b] = low, np.maximum(values[a], values[b])
    _, low, third, fourth, fifth, sixth, high, _ = values
    return Neighbours((fourth + fifth) * np.float32(0.5), sixth - third, low, high)


@dataclass(frozen=True)
class Outliers:
    """Outliers of a plane on one side, hot or dead."""

    mask: np.ndarray  # (y, x), bool
    excess: float = 0.0  # median of how far they are from their neighbours, grey levels
    weight: float = 0.0  # their number and distance as evidence, 1 if just found
    lines: int = 0  # whole rows and columns among them

    @property
    def found(self) -> bool:
        """Whether the image has such outliers."""
        return self.weight >= 1


@quiet()
def find_outliers(plane: np.ndarray, threshold: float | None = None) -> tuple[Outliers, Outliers]:
    """Return the hot and the dead pixels of a plane (y, x), float32.

    A pixel is compared with the median of its eight neighbours, in units of the local noise: the
    spread of the neighbours, or the mean deviation around it, if that is more. Its second most
    extreme neighbour must be far less extreme, as it is not where an object is resolved.
    `threshold` is by default that which an exponential tail of all deviations exceeds by chance 0.2
    times in an image. Whole rows and columns are left out first, and salt and pepper: far more
    pixels that are all at the end of the grey levels.
    """
    first = _salt_and_pepper(plane)
    down, across = (rows.outlying_rows(rows.segments(plane, axis)) for axis in (1, 0))
    lines = [(down == sign, across == sign) for sign in (1, -1)]
    for mask, (some, others) in zip(first, lines, strict=True):
        mask |= some[:, None] | others
    left_out = first[0] | first[1]
    rest = replaced(plane, left_out) if left_out.any() else plane
    near, size, noise = _local_noise(rest)
    score = (rest - near.middle) / noise
    size = np.where(left_out, np.abs(plane - rest), size)

    def side(sign: int) -> Outliers:
        signed = sign * score
        limit = _limit(signed) if threshold is None else threshold
        second = near.high - near.middle if sign > 0 else near.middle - near.low
        mask = (signed > limit) & (second < limits.MAX_SECOND_OUTLIER * size) & ~left_out
        before = first[sign < 0]
        weight = 10.0 if before.any() else _evidence(mask, signed, limit)
        mask |= before
        excess = float(np.median(size[mask])) if mask.any() else 0.0
        whole = sum(int(np.count_nonzero(each)) for each in lines[sign < 0])
        return Outliers(mask, excess, weight, whole)

    return tuple(in_threads(side, (1, -1)))


def _local_noise(plane: np.ndarray) -> tuple[Neighbours, np.ndarray, np.ndarray]:
    """Compare the pixels of a plane with their neighbours; return how far they are away, too.

    The last is the noise at each pixel, the largest of several measures.
    """
    padded = np.pad(plane, 1, mode="reflect")
    bands = [padded[k : k + 130] for k in range(0, len(plane), 128)]  # which stay in the cache
    parts = in_threads(lambda band: compare_neighbours(around(band)), bands)
    near = Neighbours(*map(np.concatenate, zip(*parts, strict=True)))
    size = np.abs(plane - near.middle)
    # Limited, so that outliers hardly raise the noise around them.
    limited = np.minimum(size, np.quantile(size[::2, ::2], 0.99).astype(np.float32))
    mean = (uniform_filter(limited, WINDOW) * WINDOW**2 - limited) / (WINDOW**2 - 1)
    # Dark background may hold rare photons: there, the whole plane tells.
    whole = 0.5 * math.sqrt(np.mean(limited**2, dtype=np.float64))
    noise = np.maximum(near.spread, 1.4 * mean)
    return near, size, np.maximum(noise, np.float32(max(whole, _quantum(plane))))


def around(padded: np.ndarray) -> list[np.ndarray]:
    """Return the nine pixels around each of a plane, which is padded by one pixel."""
    ny, nx = padded.shape[0] - 2, padded.shape[1] - 2
    return [padded[y : y + ny, x : x + nx] for y in range(3) for x in range(3)]


def _salt_and_pepper(plane: np.ndarray) -> list[np.ndarray]:
    """Return masks of scattered pixels at the bright and the dark end of the grey levels.

    Noise that is clipped there does not jump, and objects are not scattered.
    """
    masks = [plane == end for end in (plane.max(), plane.min())]
    least, most = limits.SALT_SHARE
    for mask in masks:
        share = np.count_nonzero(mask) / mask.size
        fits = least <= share <= most
        # Beyond twice as many beside each other as there are by chance, it is an object.
        beside = np.count_nonzero(mask[:, 1:] & mask[:, :-1])
        mask &= bool(fits and beside <= (2 * share + 0.01) * share * mask.size)
    if np.any(masks):
        rest = replaced(plane, masks[0] | masks[1])
        jumps = np.abs(plane - rest) > 0.5 * limits.MIN_OUTLIER_SCORE * _local_noise(rest)[2]
        for mask in masks:
            mask &= jumps
            mask &= bool(mask.mean() >= least)
    return masks


def seem_to_be(plane: np.ndarray) -> bool:
    """Return whether a plane may have enough outliers to count as found, at a glance.

    Pixels are looked at that are far from both beside them, for their part of a row.
    """
    flat = plane.ravel()
    away = flat[:-2] + flat[2:]
    away *= np.float32(-0.5)
    away += flat[1:-1]
    parts = np.abs(away, out=away)[: away.size // PART * PART].reshape(-1, PART)
    mean = parts @ np.full(PART, 1 / PART, np.float32)
    far = np.flatnonzero(parts > 4 * mean[:, None])
    mean = mean[far // PART]
    steps = [y * plane.shape[1] + x + 1 for y in (-1, 0, 1) for x in (-1, 0, 1)]
    views = [np.take(flat, far + step, mode="clip") for step in steps]
    near = compare_neighbours(views)
    away = np.abs(views[4] - near.middle)
    second = np.where(views[4] > near.middle, near.high - near.middle, near.middle - near.low)
    noise = np.maximum(near.spread, 0.9 * mean)
    alone = (away > limits.MIN_OUTLIER_SCORE * noise) & (second < limits.MAX_SECOND_OUTLIER * away)
    if np.count_nonzero(alone) < limits.MIN_OUTLIERS:
        return False
    # The mean deviation around each, but for the three that it is part of.
    near = range(-(WINDOW // 2), WINDOW // 2 + 1)
    steps = [y * plane.shape[1] + x for y in near for x in near if y or abs(x) > 1]
    around = np.take(parts.ravel(), far[alone, None] + steps, mode="clip").mean(axis=1)
    noise = np.maximum(np.maximum(noise[alone], around), _quantum(plane))
    ratio = np.sort(away[alone] / noise)[::-1] / limits.MIN_OUTLIER_SCORE
    number = np.arange(limits.MIN_OUTLIERS, np.count_nonzero(ratio > 1) + 1)
    # What so many of the farthest would weigh.
    weight = number * ratio[(number - 1) // 2] ** 2
    return bool(weight.max(initial=0) >= _least_weight(plane.size))


def _quantum(plane: np.ndarray) -> float:
    """Return the least step of grey levels: photons come one by one, and levels are rounded."""
    step = max(3, math.isqrt(plane.size >> 14))
    levels = np.diff(np.unique(plane[::step, ::step])).min(initial=np.inf)
    return max(levels if levels < np.inf else 0.0, 1e-9 * float(np.ptp(plane)), 1e-37)


def _least_weight(size: int) -> float:
    return limits.MIN_OUTLIER_WEIGHT * math.sqrt(size / (481 * 321))


def replaced(plane: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return a plane with pixels replaced by the median of neighbours that are not replaced."""
    out = plane.copy()
    known = np.where(mask, np.nan, plane)
    ny, nx = plane.shape
    ys, xs = np.divmod(np.flatnonzero(mask), nx)  # `nonzero` takes several times as long
    for reach in (1, 2, 4):
        near = np.arange(-reach, reach + 1)
        rows = np.clip(ys[:, None, None] + near[:, None], 0, ny - 1)
        columns = np.clip(xs[:, None, None] + near, 0, nx - 1)
        values = known[rows, columns].reshape(len(ys), near.size**2)
        some = np.isfinite(values).any(axis=1)
        out[ys[some], xs[some]] = finite_medians(values[some])
        ys, xs = ys[~some], xs[~some]
    return out


def _limit(score: np.ndarray) -> float:
    """Return the score that an exponential tail exceeds 0.2 times in a plane, by chance."""
    low, high = 0.95, 0.99
    some = np.sort(score[::2, ::2], axis=None)
    first, second = some[[int(share * (some.size - 1)) for share in (low, high)]].tolist()
    times = math.log(score.size * (1 - low) / 0.2) / math.log((1 - low) / (1 - high))
    return max(first + max(times, 0.0) * max(second - first, 0.1), limits.MIN_OUTLIER_SCORE)


def _evidence(mask: np.ndarray, score: np.ndarray, limit: float) -> float:
    """Return what the outliers at a mask prove, by being many, far away, and scattered."""
    count = np.count_nonzero(mask)
    if count < limits.MIN_OUTLIERS:
        return 0.0
    window = 7
    beside = uniform_filter(mask.astype(np.float32), window, mode="constant")[mask]
    # Objects that look like outliers have others beside them.
    crowded = float(np.mean(beside * window**2 > 1.5))
    if crowded > limits.MAX_CROWDED_OUTLIERS:
        return 0.0
    ratio = float(np.median(score[mask])) / limit
    return count * (1 - crowded) ** 2 * ratio**2 / _least_weight(mask.size)
