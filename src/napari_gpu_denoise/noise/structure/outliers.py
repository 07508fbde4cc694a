"""Hot and dead pixels: single pixels that no noise and no object of the image explains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.image.threads import in_threads, quiet
from napari_gpu_denoise.noise.robust import finite_medians

# Pixels and their eight neighbours, and the noise that these show at each brightness.
# A sorting network for eight values (Batcher's).
_NETWORK = (
    *((0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3)),
    *((4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6)),
)
AROUND = tuple((y, x) for y in (0, 1, 2) for x in (0, 1, 2) if (y, x) != (1, 1))
SAMPLE = 1 << 16  # pixels of a plane that levels of brightness are taken from, about
_ENTRIES = 4096  # of the table of the noise at each level of brightness


def sorted_neighbours(padded: np.ndarray, rows: slice) -> list[np.ndarray]:
    """Return the eight neighbours of each pixel of some rows, sorted."""
    height, width = rows.stop - rows.start, padded.shape[1] - 2
    return in_order(
        [padded[rows.start + y : rows.start + y + height, x : x + width] for y, x in AROUND]
    )


def in_order(values: list[np.ndarray]) -> list[np.ndarray]:
    """Return eight arrays with the values at each place sorted."""
    spare = np.empty_like(values[0])
    for k, (a, b) in enumerate(_NETWORK):
        if k < len(values) // 2:  # these are views, each of which comes up once
            values[a], values[b] = (
                np.minimum(values[a], values[b]),
                np.maximum(values[a], values[b]),
            )
            continue
        np.minimum(values[a], values[b], out=spare)
        np.maximum(values[a], values[b], out=values[b])
        values[a], spare = spare, values[a]
    return values


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
    ny, nx = plane.shape
    step = max(2, math.isqrt(plane.size // SAMPLE))
    ranked = in_order([padded[y : y + ny : step, x : x + nx : step] for y, x in AROUND])
    levels = ((ranked[3] + ranked[4]) / 2).ravel()
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
    table = np.interp(np.linspace(low, high, _ENTRIES), where, found).astype(np.float32)
    return NoiseTable(low, (_ENTRIES - 1) / (high - low), table)


SMALLEST = 16  # pixels of the shortest side of a plane that is looked at
LEAST = 5.5  # times the local noise that a pixel has to be away
_NEARLY = 0.999  # of that, so that rounding leaves nothing out
_MOST_FAR = 0.1  # of the pixels, up to which those that may be so far are looked at alone
_MOST_LOOKED_AT = 500  # pixels of which the texture around is measured one by one
_BAND = 128  # rows sorted at once: threads wait for each other between operations
_WINDOW = 9  # pixels in which the local noise is measured
_TEXTURE = 1.5  # mean deviation that counts as one standard deviation, with a margin
_ALONE = 0.5  # of its deviation that the second most extreme neighbour may have at most
_QUANTILES = 0.95, 0.99  # of the deviations that their tail is extrapolated from
_CHANCE = 0.2  # pixels of a plane that noise may be expected to make
_NEIGHBOURHOOD = 7  # pixels in which outliers count as a crowd,
_MOST_CROWDED = 0.35  # and the share of them that may be in one
_FEWEST = 4
# Salt and pepper: its share of the pixels, and of those beside it, beyond twice that by chance.
_FEWEST_SALT, _MOST_SALT, _BESIDE = 0.002, 0.1, 0.01
_SALT = 10.0  # times the least weight that it has as evidence
_PIXELS = 481 * 321  # of the images for which the next number was chosen
LEAST_WEIGHT = 28.0  # of the outliers of an image; without any at most 24 (BSD68, W2S)


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
    known = _salt_and_pepper(plane)
    if any(map(np.any, known)):
        rest = replaced(plane, known[0] | known[1])
        both = []
        for each, more in zip(known, find_outliers(rest, threshold, many=many), strict=True):
            excess = float(np.median(np.abs(plane - rest)[each])) if each.any() else more.excess
            weight = _SALT * LEAST_WEIGHT if each.any() else more.weight
            both.append(Outliers(each | more.mask, excess, weight))
        return both[0], both[1]
    padded = np.pad(plane, 1, mode="reflect")
    noise = noise_levels(plane, padded)
    if many and not _may_be_many(plane, padded, noise):
        none = Outliers(np.zeros(plane.shape, bool), 0.0, 0.0)
        return none, none
    compared = _compared(plane, padded)
    score = _scores(plane, compared, noise)
    size = np.abs(plane - compared.middle)

    def side(sign: int) -> Outliers:
        signed = sign * score
        limit = _limit(signed) if threshold is None else threshold
        mask = (signed > limit) & compared.alone
        return _described(mask, signed, size, limit)

    hot, dead = in_threads(side, (1, -1))
    return hot, dead


def _salt_and_pepper(plane: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return masks of scattered pixels at the bright and the dark end of the grey levels.

    Noise that is clipped there does not jump, and objects are not scattered. There are no masks
    where some rows hold less than half the least share: clusters elsewhere are none either.
    """
    some = plane[:: max(1, plane.size >> 18)]
    least = _FEWEST_SALT / 2 * some.size
    if all(np.count_nonzero(some == end) < least for end in (some.max(), some.min())):
        return ()
    ends = plane.max(), plane.min()
    both = [plane == end for end in ends]
    for mask in both:
        mask &= _FEWEST_SALT <= np.count_nonzero(mask) / plane.size <= _MOST_SALT
    if not any(map(np.any, both)):
        return both[0], both[1]
    rest = replaced(plane, both[0] | both[1])
    noise = noise_levels(rest, np.pad(rest, 1, mode="reflect"))
    for mask, end in zip(both, ends, strict=True):
        inside = rest[mask]
        mask[mask] = np.abs(end - inside) > LEAST * noise.at(inside)
        ys, xs = np.divmod(np.flatnonzero(mask), plane.shape[1])
        crowd, share = np.pad(mask, 1), mask.mean()
        beside = np.mean([crowd[ys + y, xs + x] for y, x in AROUND]) if len(ys) else 0.0
        mask &= bool(share >= _FEWEST_SALT and beside <= 2 * share + _BESIDE)
    return both[0], both[1]


def _may_be_many(plane: np.ndarray, padded: np.ndarray, noise: NoiseTable) -> bool:
    """Return whether enough pixels to count as found may be outliers on one side."""
    # The median of eight is neither below the least of any five of them nor above the largest, so
    # few pixels are far from it: those are compared with it.
    limit = np.float32(_NEARLY * LEAST)
    # The noise where a pixel is at least as bright.
    floor = noise._replace(noise=np.minimum.accumulate(noise.noise[::-1])[::-1])

    def far(first: int) -> list[np.ndarray]:
        inside = plane[first : first + _BAND]
        near = padded[first : first + len(inside) + 2]

        def of_five(extreme: np.ufunc) -> np.ndarray:
            three = extreme(near[:, :-2], near[:, 1:-1])
            extreme(three, near[:, 2:], out=three)
            five = extreme(three[:-2], near[1:-1, :-2])
            return extreme(five, near[1:-1, 2:], out=five)

        least, most = of_five(np.minimum), of_five(np.maximum)
        found = []
        for away in (inside - least, most - inside):
            places = np.flatnonzero(away > limit * floor.noise[0])
            places = places[away.ravel()[places] > limit * floor.at(least.ravel()[places])]
            found.append(first * plane.shape[1] + places)
        return found

    parts = in_threads(far, range(0, len(plane), _BAND))
    for sign, some in zip((1, -1), zip(*parts, strict=True), strict=True):
        places = np.concatenate(some)
        if len(places) > _MOST_FAR * plane.size:
            return True
        ys, xs = np.divmod(places, plane.shape[1])
        ranked = in_order([padded[ys + y, xs + x] for y, x in AROUND])
        median = (ranked[3] + ranked[4]) * np.float32(0.5)
        away = sign * (plane[ys, xs] - median)
        next_one = ranked[6] - median if sign > 0 else median - ranked[1]
        # The local noise is at least the spread of the neighbours, and that at this brightness.
        least = np.maximum(ranked[5] - ranked[2], noise.at(median))
        is_far = (away > limit * least) & (next_one < _ALONE * away)
        count = np.count_nonzero(is_far)
        if count > _MOST_LOOKED_AT:
            return True
        if count >= _FEWEST:
            # In a photograph, texture leaves few of them.
            around = _TEXTURE * _around(plane, padded, noise, ys[is_far], xs[is_far])
            size = away[is_far] / limit
            ratio = size / np.maximum(np.maximum(around, least[is_far]), size / 1000)
            # What so many of the farthest would weigh at most.
            number = np.arange(_FEWEST - 1, np.count_nonzero(ratio > 1))
            weight = (number + 1) * np.sort(ratio)[::-1][number // 2] ** 2
            if weight.max(initial=0) >= LEAST_WEIGHT * math.sqrt(plane.size / _PIXELS):
                return True
    return False


def _around(
    plane: np.ndarray, padded: np.ndarray, noise: NoiseTable, ys: np.ndarray, xs: np.ndarray
) -> np.ndarray:
    """Return the mean deviation around pixels, as `_scores` has it."""
    reach = _WINDOW // 2
    near = np.arange(-reach, reach + 1)
    down, across = (np.pad(np.arange(n), reach, mode="symmetric") for n in plane.shape)
    rows = down[ys[:, None, None] + reach + near[:, None]]
    columns = across[xs[:, None, None] + reach + near]
    ranked = in_order([padded[rows + y, columns + x] for y, x in AROUND])
    middle = (ranked[3] + ranked[4]) * np.float32(0.5)
    limited = np.minimum(np.abs(plane[rows, columns] - middle), 4 * noise.at(middle))
    return (limited.sum(axis=(1, 2)) - limited[:, reach, reach]) / (_WINDOW**2 - 1)


def replaced(plane: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return a plane with pixels replaced by the median of neighbours that are not replaced."""
    out = plane.copy()
    known = np.where(mask, np.nan, plane)
    ny, nx = plane.shape
    ys, xs = np.divmod(np.flatnonzero(mask), nx)  # `nonzero` takes several times as long
    left = np.ones(len(ys), bool)
    for reach in (1, 2, 4):
        if not left.any():
            break
        near = np.arange(-reach, reach + 1)
        rows = np.clip(ys[left, None, None] + near[:, None], 0, ny - 1)
        columns = np.clip(xs[left, None, None] + near, 0, nx - 1)
        values = known[rows, columns].reshape(np.count_nonzero(left), -1)
        some = np.isfinite(values).any(axis=1)
        where = np.nonzero(left)[0][some]
        out[ys[where], xs[where]] = finite_medians(values[some])
        left[where] = False
    return out


class _Compared(NamedTuple):
    """Pixels of a plane (y, x), compared with their neighbours."""

    middle: np.ndarray  # median of the neighbours
    spread: np.ndarray  # of the neighbours
    alone: np.ndarray  # whether no other neighbour is nearly as extreme


def _compared(plane: np.ndarray, padded: np.ndarray) -> _Compared:
    """Compare pixels with their neighbours; the plane is `padded` by one pixel."""
    middle, spread = np.empty_like(plane), np.empty_like(plane)
    alone = np.empty(plane.shape, bool)

    def compare(first: int) -> None:
        rows = slice(first, min(first + _BAND, len(plane)))
        ranked = sorted_neighbours(padded, rows)
        median, around = middle[rows], spread[rows]
        np.add(ranked[3], ranked[4], out=median)
        median *= 0.5
        np.subtract(ranked[5], ranked[2], out=around)
        away = np.subtract(plane[rows], median, out=ranked[3])
        # Of a bright pixel and of a dark one: only one of the two can be.
        half = np.multiply(away, _ALONE, out=ranked[4])
        single = np.less(np.subtract(ranked[6], median, out=ranked[6]), half, out=alone[rows])
        np.negative(half, out=half)
        single |= np.subtract(median, ranked[1], out=ranked[1]) < half

    in_threads(compare, range(0, len(plane), _BAND))
    return _Compared(middle, spread, alone)


def _scores(plane: np.ndarray, compared: _Compared, noise: NoiseTable) -> np.ndarray:
    """Return the deviation from the neighbours in units of the local noise."""
    middle, reach = compared.middle, _WINDOW // 2
    # Photons come one by one, and grey levels are rounded.
    least = max(_quantum(plane), 1e-9 * float(np.ptp(plane)), np.finfo(np.float32).tiny)
    mirrored = np.pad(np.arange(len(plane)), reach, mode="symmetric")
    out = np.empty_like(plane)

    def score(first: int) -> None:
        rows = slice(first, min(first + _BAND, len(plane)))
        near = mirrored[rows.start : rows.stop + 2 * reach]
        typical, level = noise.at(middle[near]), plane[near] - middle[near]
        # Limited, so that outliers hardly raise the noise around them.
        limited = np.minimum(np.abs(level), 4 * typical)
        inside = slice(reach, reach + rows.stop - rows.start)
        beside = ((0, 0), (reach, reach))
        around = _window_sums(np.pad(limited, beside, mode="symmetric")) - limited[inside]
        around *= np.float32(1 / (_WINDOW**2 - 1))
        scale = np.maximum(compared.spread[rows], typical[inside])
        np.maximum(scale, _TEXTURE * around, out=scale)
        np.maximum(scale, np.float32(least), out=scale)
        np.divide(level[inside], scale, out=out[rows])

    in_threads(score, range(0, len(plane), _BAND))
    return out


def _window_sums(padded: np.ndarray) -> np.ndarray:
    """Return the sum over each whole window of a plane.

    Of values that differ by little, in float32; `uniform_filter` takes five times as long.
    """
    pairs = padded[:-1] + padded[1:]
    fours = pairs[:-2] + pairs[2:]
    sums = fours[:-5] + fours[4:-1] + padded[8:]
    pairs = sums[:, :-1] + sums[:, 1:]
    fours = pairs[:, :-2] + pairs[:, 2:]
    return fours[:, :-5] + fours[:, 4:-1] + sums[:, 8:]


def _quantum(plane: np.ndarray) -> float:
    """Return the smallest difference between grey levels."""
    step = max(3, math.isqrt(plane.size // SAMPLE))
    levels = np.unique(plane[::step, ::step])
    return float(np.diff(levels).min()) if levels.size > 1 else 0.0


def _limit(score: np.ndarray) -> float:
    """Return the score that an exponential tail exceeds `_CHANCE` times in a plane."""
    low, high = _QUANTILES
    some = score[::2, ::2].ravel()
    # One place after the other: `numpy.quantile` looks for both at once, in ten times as long.
    places = [int(share * (some.size - 1)) for share in _QUANTILES]
    some.partition(places[0])
    first, rest = some[places[0]], some[places[0] :]
    second = np.partition(rest, places[1] - places[0])[places[1] - places[0]]
    times = math.log(score.size * (1 - low) / _CHANCE) / math.log((1 - low) / (1 - high))
    return max(float(first + max(times, 0.0) * max(second - first, 0.1)), LEAST)


def _described(mask: np.ndarray, score: np.ndarray, size: np.ndarray, limit: float) -> Outliers:
    """Return the outliers at a mask with what they prove: many, far away, and scattered."""
    count = int(np.count_nonzero(mask))
    if not count:
        return Outliers(mask, 0.0, 0.0)
    excess = float(np.median(size[mask]))
    wide = np.pad(mask, _NEIGHBOURHOOD // 2)
    near = sliding_window_view(wide, (_NEIGHBOURHOOD,) * 2)[mask].sum(axis=(1, 2))
    crowded = float(np.mean(near > 1))
    if count < _FEWEST or crowded > _MOST_CROWDED:
        return Outliers(mask, excess, 0.0)
    # Objects that look like outliers have others beside them.
    count = count * (1 - crowded) ** 2
    ratio = float(np.median(score[mask])) / limit
    return Outliers(mask, excess, count * ratio**2 / math.sqrt(mask.size / _PIXELS))
