"""Hot and dead pixels: single pixels that no noise and no object of the image explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.ndimage import uniform_filter

from napari_gpu_denoise.image.threads import in_threads, quiet
from napari_gpu_denoise.noise.robust import finite_medians

SMALLEST = 16  # pixels of the shortest side of a plane that is looked at
SAMPLE = 1 << 16  # pixels of a plane that levels of brightness are taken from, about
TABLE = 4096  # entries of the table of the noise at each level of brightness
BAND = 128  # rows compared at once, which stay in the cache
LEAST = 5.5  # times the local noise that a pixel has to be away
WINDOW = 9  # pixels in which the local noise is measured
TEXTURE = 1.5  # mean deviation that counts as one standard deviation, with a margin
ALONE = 0.5  # of its deviation that the second most extreme neighbour may have at most
QUANTILES = 0.95, 0.99  # of the deviations that their tail is extrapolated from
CHANCE = 0.2  # pixels of a plane that noise may be expected to make
NEIGHBOURHOOD, MAX_CROWDED = 7, 0.35  # pixels around an outlier; share of them beside another
FEWEST = 4
MANY = 500  # possible outliers, from which they are not looked at one by one
# Salt and pepper: its share of the pixels, and of those beside it, beyond twice that by chance.
MIN_SALT, MAX_SALT, BESIDE = 0.002, 0.1, 0.01
PIXELS = 481 * 321  # of the images for which the next number was chosen
LEAST_WEIGHT = 28.0  # of the outliers of an image; without any at most 24 (BSD68, W2S)

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


def compare_neighbours(views: Sequence[np.ndarray]) -> Neighbours:
    """Sort nine arrays with the pixels around, and leave out the middle one."""
    values = [*views[:4], *views[5:]]
    for a, b in _NETWORK:
        low = np.minimum(values[a], values[b])
        values[a], values[b] = low, np.maximum(values[a], values[b])
    _, low, third, fourth, fifth, sixth, high, _ = values
    return Neighbours((fourth + fifth) * np.float32(0.5), sixth - third, low, high)


def _around(padded: np.ndarray, step: int = 1) -> list[np.ndarray]:
    """Return the nine pixels around each of a plane, which is padded by one pixel."""
    ny, nx = padded.shape[0] - 2, padded.shape[1] - 2
    return [padded[y : y + ny : step, x : x + nx : step] for y in range(3) for x in range(3)]


class NoiseTable(NamedTuple):
    """The noise at each brightness: a table, as `numpy.interp` takes ten times as long."""

    low: float  # brightness of the first entry
    step: float  # entries per grey level
    noise: np.ndarray  # float32

    def at(self, middle: np.ndarray) -> np.ndarray:
        """Return the noise at levels of brightness, float32."""
        place = middle - np.float32(self.low)
        place *= np.float32(self.step)
        np.clip(place, 0, len(self.noise) - 1, out=place)
        return self.noise[np.rint(place, out=place).astype(np.int16)]


def noise_levels(plane: np.ndarray, padded: np.ndarray) -> NoiseTable:
    """Return the root of the mean squared deviation at each brightness, of some pixels."""
    step = max(2, math.isqrt(plane.size // SAMPLE))
    levels = compare_neighbours(_around(padded, step)).middle.ravel()
    sizes = np.abs(plane[::step, ::step].ravel() - levels)
    order = np.argsort(levels)
    parts = np.array_split(order, min(16, max(1, levels.size // 256)))
    where = np.array([levels[part].mean(dtype=np.float64) for part in parts])
    found = []
    for part in parts:
        inside = sizes[part]
        last = int(0.99 * (inside.size - 1))
        most = np.partition(inside, last)[last]
        found.append(math.sqrt(np.mean(np.minimum(inside, most) ** 2, dtype=np.float64)))
    low, high = where[0], where[-1]
    if not high > low:
        return NoiseTable(low, 0.0, np.full(1, found[0], np.float32))
    table = np.interp(np.linspace(low, high, TABLE), where, found).astype(np.float32)
    return NoiseTable(low, (TABLE - 1) / (high - low), table)


@dataclass(frozen=True)
class Outliers:
    """Outliers of a plane on one side, hot or dead."""

    mask: np.ndarray  # (y, x), bool
    excess: float  # median of how far they are from their neighbours, grey levels
    weight: float  # their number and distance as evidence; from `LEAST_WEIGHT` they count as found

    @property
    def found(self) -> bool:
        """Whether the image has such outliers."""
        return self.weight >= LEAST_WEIGHT


@quiet()
def find_outliers(
    plane: np.ndarray, threshold: float | None = None, *, many: bool = False
) -> tuple[Outliers, Outliers]:
    """Return the hot and the dead pixels of a plane (y, x), float32.

    A pixel is compared with the median of its eight neighbours, in units of the local noise: the
    largest of the spread of the neighbours, the noise at this brightness, and the mean deviation
    around it. Its second most extreme neighbour must be far less extreme, as it is not where an
    object is resolved. `threshold` is by default that which an exponential tail of all deviations
    exceeds by chance 0.2 times in an image, at least `LEAST`. With `many`, there are none on a side
    with too few to count as found. Salt and pepper, far more pixels that are all at the end of the
    grey levels, is left out first.
    """
    none = Outliers(np.zeros(plane.shape, bool), 0.0, 0.0)
    if many and min(plane.shape) < SMALLEST:
        return none, none
    salt = _salt_and_pepper(plane)
    if salt:
        rest = replaced(plane, salt[0] | salt[1])
        both = []
        for each, more in zip(salt, find_outliers(rest, threshold, many=many), strict=True):
            excess, weight = more.excess, more.weight
            if each.any():
                excess, weight = float(np.median(np.abs(plane - rest)[each])), 10 * LEAST_WEIGHT
            both.append(Outliers(each | more.mask, excess, weight))
        return both[0], both[1]
    padded = np.pad(plane, 1, mode="reflect")
    noise = noise_levels(plane, padded)
    if many and not _likely_many(plane, padded, noise):
        return none, none
    near = _neighbours(padded)
    away = plane - near.middle
    size = np.abs(away)
    score = away / _local_noise(plane, size, near, noise)

    def side(sign: int) -> Outliers:
        signed = sign * score
        limit = _limit(signed) if threshold is None else threshold
        second = near.high - near.middle if sign > 0 else near.middle - near.low
        mask = (signed > limit) & (second < ALONE * size)
        return _described(mask, signed, size, limit)

    hot, dead = in_threads(side, (1, -1))
    return hot, dead


def _neighbours(padded: np.ndarray) -> Neighbours:
    """Compare the neighbours of all pixels of a plane, which is padded by one pixel."""
    bands = [padded[k : k + BAND + 2] for k in range(0, len(padded) - 2, BAND)]
    parts = in_threads(lambda band: compare_neighbours(_around(band)), bands)
    return Neighbours(*map(np.concatenate, zip(*parts, strict=True)))


def _local_noise(
    plane: np.ndarray, size: np.ndarray, near: Neighbours, noise: NoiseTable
) -> np.ndarray:
    """Return the largest of several measures of the noise, given how far pixels are away."""
    typical = noise.at(near.middle)
    # Limited, so that outliers hardly raise the noise around them.
    limited = np.minimum(size, 4 * typical)
    around = (uniform_filter(limited, WINDOW) * WINDOW**2 - limited) / (WINDOW**2 - 1)
    # Photons come one by one, and grey levels are rounded.
    step = max(3, math.isqrt(plane.size // SAMPLE))
    quantum = np.diff(np.unique(plane[::step, ::step])).min(initial=np.inf)
    least = max(quantum if quantum < np.inf else 0.0, 1e-9 * float(np.ptp(plane)), 1e-37)
    scale = np.maximum(np.maximum(near.spread, typical), TEXTURE * around)
    return np.maximum(scale, np.float32(least))


def _salt_and_pepper(plane: np.ndarray) -> list[np.ndarray]:
    """Return masks of scattered pixels at the bright and the dark end of the grey levels.

    Noise that is clipped there does not jump, and objects are not scattered.
    """
    ends = plane.max(), plane.min()
    masks = [plane == end for end in ends]
    shares = [np.count_nonzero(mask) / plane.size for mask in masks]
    if not any(MIN_SALT <= share <= MAX_SALT for share in shares):
        return []
    for mask, share in zip(masks, shares, strict=True):
        mask &= MIN_SALT <= share <= MAX_SALT
    rest = replaced(plane, masks[0] | masks[1])
    noise = noise_levels(rest, np.pad(rest, 1, mode="reflect"))
    for mask, end in zip(masks, ends, strict=True):
        mask[mask] = np.abs(end - rest[mask]) > LEAST * noise.at(rest[mask])
        share, beside = mask.mean(), _others_around(mask, 3).sum() / 8
        mask &= bool(share >= MIN_SALT and beside <= (2 * share + BESIDE) * mask.sum())
    return masks if any(map(np.any, masks)) else []


def _others_around(mask: np.ndarray, width: int) -> np.ndarray:
    """Return how many others of a mask are in the window around each of its pixels."""
    inside = uniform_filter(mask.astype(np.float32), width, mode="constant")[mask]
    return np.rint(inside * width**2) - 1


def _likely_many(plane: np.ndarray, padded: np.ndarray, noise: NoiseTable) -> bool:
    """Return whether enough pixels to count as found may be outliers on one side.

    In most planes there are few, which are found in a fraction of the time.
    """
    limit = np.float32(0.999 * LEAST)  # so that rounding leaves nothing out
    # The noise where a pixel is at least as bright.
    floor = noise._replace(noise=np.minimum.accumulate(noise.noise[::-1])[::-1])

    def far(first: int) -> list[np.ndarray]:
        near = padded[first : first + BAND + 2]
        inside = near[1:-1, 1:-1]
        # The median of eight is between the least and the largest of any five of them.
        five = [near[:-2, :-2], near[:-2, 1:-1], near[:-2, 2:], near[1:-1, :-2], near[1:-1, 2:]]
        low, high = reduce(np.minimum, five), reduce(np.maximum, five)
        found = []
        for away in (inside - low, high - inside):
            places = np.flatnonzero(away > limit * floor.noise[0])
            places = places[away.ravel()[places] > limit * floor.at(low.ravel()[places])]
            found.append(first * plane.shape[1] + places)
        return found

    parts = in_threads(far, range(0, len(plane), BAND))
    for sign, some in zip((1, -1), zip(*parts, strict=True), strict=True):
        ys, xs = np.divmod(np.concatenate(some), plane.shape[1])
        if len(ys) > plane.size // 10:
            return True
        near = _neighbours_at(padded, ys, xs)
        away = sign * (plane[ys, xs] - near.middle)
        second = near.high - near.middle if sign > 0 else near.middle - near.low
        least = np.maximum(near.spread, noise.at(near.middle))
        is_far = (away > limit * least) & (second < ALONE * away)
        count = np.count_nonzero(is_far)
        if count > MANY:
            return True
        if count >= FEWEST:
            # In a photograph, texture leaves few of them.
            around = TEXTURE * _deviation_around(plane, padded, noise, ys[is_far], xs[is_far])
            scale = np.maximum(np.maximum(around, least[is_far]), 1e-3 * away[is_far])
            ratio = away[is_far] / (limit * scale)
            # What so many of the farthest would weigh at most.
            number = np.arange(FEWEST - 1, np.count_nonzero(ratio > 1))
            weight = (number + 1) * np.sort(ratio)[::-1][number // 2] ** 2
            if weight.max(initial=0) >= LEAST_WEIGHT * math.sqrt(plane.size / PIXELS):
                return True
    return False


def _neighbours_at(padded: np.ndarray, ys: np.ndarray, xs: np.ndarray) -> Neighbours:
    """Compare the neighbours of some pixels of a plane, which is padded by one pixel."""
    return compare_neighbours([padded[ys + y, xs + x] for y in range(3) for x in range(3)])


def _deviation_around(
    plane: np.ndarray, padded: np.ndarray, noise: NoiseTable, ys: np.ndarray, xs: np.ndarray
) -> np.ndarray:
    """Return the mean deviation around some pixels, as `_local_noise` has it."""
    reach = WINDOW // 2
    near = np.arange(WINDOW)
    down, across = (np.pad(np.arange(n), reach, mode="symmetric") for n in plane.shape)
    rows, columns = down[ys[:, None, None] + near[:, None]], across[xs[:, None, None] + near]
    middle = _neighbours_at(padded, rows, columns).middle
    limited = np.minimum(np.abs(plane[rows, columns] - middle), 4 * noise.at(middle))
    return (limited.sum(axis=(1, 2)) - limited[:, reach, reach]) / (WINDOW**2 - 1)


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
    """Return the score that an exponential tail exceeds `CHANCE` times in a plane."""
    low, high = QUANTILES
    some = np.sort(score[::2, ::2], axis=None)
    first, second = some[[int(share * (some.size - 1)) for share in QUANTILES]].tolist()
    times = math.log(score.size * (1 - low) / CHANCE) / math.log((1 - low) / (1 - high))
    return max(first + max(times, 0.0) * max(second - first, 0.1), LEAST)


def _described(mask: np.ndarray, score: np.ndarray, size: np.ndarray, limit: float) -> Outliers:
    """Return the outliers at a mask with what they prove: many, far away, and scattered."""
    count = int(np.count_nonzero(mask))
    if not count:
        return Outliers(mask, 0.0, 0.0)
    excess = float(np.median(size[mask]))
    crowded = float(np.mean(_others_around(mask, NEIGHBOURHOOD) > 0))
    if count < FEWEST or crowded > MAX_CROWDED:
        return Outliers(mask, excess, 0.0)
    # Objects that look like outliers have others beside them.
    count = count * (1 - crowded) ** 2
    ratio = float(np.median(score[mask])) / limit
    return Outliers(mask, excess, count * ratio**2 / math.sqrt(mask.size / PIXELS))
