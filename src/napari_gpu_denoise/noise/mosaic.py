"""Noise that steps between parts of a plane, as in a mosaic of different exposures.

The noise is read in cells, as for a surface (`places.py`). Rectangles of cells are believed only if
nearly each of their cells differs by itself, if nothing else explains the cells as well, and if the
noise steps within a few pixels at their edges. Texture may end like that, but hardly ever raises
each cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.noise import places
from napari_gpu_denoise.noise.patches.variance import ABOVE, BELOW, CLEARLY, FITS
from napari_gpu_denoise.noise.patches.white import RATIO
from napari_gpu_denoise.noise.robust import finite_medians, medians

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.channel import ChannelNoise


# Sigma in rectangles of a plane.
MOST = 8  # rectangles


@dataclass(frozen=True)
class SigmaMosaic:
    """Sigma at each place relative to its root mean square over the plane, in rectangles."""

    # Top, bottom, left and right of each, from 0 to 1 over the plane. The first is the whole plane,
    # the others cover those before them.
    edges: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]

    def factors(self, ny: int, nx: int) -> np.ndarray:
        """Return the factor of sigma at each pixel of a plane, (ny, nx)."""
        found = np.ones((ny, nx))
        for (top, bottom, left, right), value in zip(self.edges, self.values, strict=True):
            rows, columns = (
                (round(top * ny), round(bottom * ny)),
                (round(left * nx), round(right * nx)),
            )
            found[slice(*rows), slice(*columns)] = value
        return found

    @property
    def valid(self) -> bool:
        """Whether the numbers, which may come from a file, are those of a mosaic."""
        inside = all(
            len(each) == 4 and 0 <= each[0] <= each[1] <= 1 and 0 <= each[2] <= each[3] <= 1
            for each in self.edges
        )
        known = all(1 / places.LARGEST <= value <= places.LARGEST for value in self.values)
        return inside and known and 1 < len(self.edges) == len(self.values) <= MOST

    @property
    def ratio(self) -> float:
        """Largest sigma over the smallest."""
        return max(self.values) / min(self.values)

    def words(self) -> str:
        """Say where the noise is how strong."""
        parts = f"{len(self.values)} parts of the plane"
        return f"the noise steps between {parts}, {places.place_words(self)}"


def noise_mosaic(channels: list[ChannelNoise]) -> SigmaMosaic | None:
    """Return the mosaic of sigma, the same for all channels, if sigma clearly steps.

    The noise must not depend on brightness otherwise.
    """
    shape = channels[0].planes.shape[1:]
    counts = tuple(min(n // places.NARROWEST, CELLS) for n in shape)
    known = [each for each in channels if each.sigma > 0 and each.spectra]
    if min(counts) < places.FEWEST or not known:
        return None
    cells = [
        places.read_cells(each, np.full(len(each.spectra.seen), each.sigma**2), counts, _may_step)
        for each in known
    ]
    if all(each is None for each in cells):
        return None
    found = _rectangles(places.joined(cells), counts, known[0])
    if found is None:
        return None
    edges, values = found[0], np.exp(found[1])
    mean = math.sqrt(np.mean(np.square(SigmaMosaic(edges, values).factors(*shape))))
    mosaic = SigmaMosaic(edges, tuple((values / mean).tolist()))
    return mosaic if mosaic.valid else None


# Rectangles of cells.
CELLS = 8  # along an axis, at most
THIN = 2  # cells along a side of a rectangle, and beside it, at least
TRIED = 16  # values that are tried for a rectangle, of those of the cells
APART = 3.0  # standard errors of a cell by which it is nearer to its own value than to the other
LEAST = 4  # cells of either that are known well enough to tell
ABOVE_ALL = 0.75  # share of such cells with more noise that are so far above those with less,
BELOW_ALL = 0.5  # and of those, which texture may raise, so far below


@lru_cache(maxsize=16)
def _candidates(counts: tuple[int, ...]) -> np.ndarray:
    """Return top, bottom, left and right of rectangles of so many cells along y and x."""
    spans = [
        [
            (first, last)
            for first in (0, *range(THIN, count))
            for last in (*range(first + THIN, count - THIN + 1), count)
            if last - first >= THIN
        ]
        for count in counts
    ]
    found = np.array([(*down, *across) for down in spans[0] for across in spans[1]])
    return found[(found != (0, counts[0], 0, counts[1])).any(axis=1)]  # not the whole plane


def _costs(cells: places.Cells, values: np.ndarray) -> np.ndarray:
    """Return the cost of each cell at each of several values, (value, cell)."""
    used = np.isfinite(cells.sigma)
    found = np.zeros((len(values), len(used)))
    distance = (cells.sigma[used] - values[:, None]) / cells.error[used]
    found[:, used] = np.square(np.clip(distance, -math.sqrt(BELOW), math.sqrt(ABOVE)))
    return found


def _tried(cells: places.Cells) -> np.ndarray:
    """Return values that rectangles may have."""
    values = np.sort(cells.sigma[np.isfinite(cells.sigma)])
    return values[:: max(1, len(values) // TRIED)]


def _best(
    cells: places.Cells, starts: np.ndarray, candidates: np.ndarray, ny: int
) -> tuple[np.ndarray, float]:
    """Return the rectangle with which the cells cost least, and how much.

    `starts` (start, cell) is what each of `ny` rows of cells costs without it, in several ways.
    """
    costs = np.concatenate([starts, _costs(cells, _tried(cells))])
    table = costs.reshape(len(costs), ny, -1).cumsum(1).cumsum(2)
    table = np.pad(table, ((0, 0), (1, 0), (1, 0)))
    top, bottom, left, right = candidates.T
    inside = table[:, bottom, right] - table[:, top, right] + table[:, top, left]
    now, then = np.split(inside - table[:, bottom, left], [len(starts)])
    total = starts.sum(axis=1)[:, None] - now + then.min(axis=0)
    return candidates[total.min(axis=0).argmin()], float(total.min())


def _with(part: np.ndarray, rectangle: np.ndarray, number: int, ny: int) -> np.ndarray:
    """Return the part of each cell, of `ny` rows, once a rectangle is that of a number."""
    top, bottom, left, right = rectangle
    new = part.reshape(ny, -1).copy()
    new[top:bottom, left:right] = number
    return new.ravel()


def _may_step(cells: places.Cells, counts: tuple[int, ...]) -> bool:
    """Return whether the smoothest patches of cells may show a rectangle."""
    used = np.isfinite(cells.sigma)
    if used.mean() < places.COVERED or np.ptp(cells.sigma[used]) < places.ALIKE:
        return False
    sigma, error, bright = (each[used] for each in cells)
    starts = _costs(cells, _tried(cells)[:: TRIED // 4])
    rectangle, cost = _best(cells, starts, _candidates(counts), counts[0])
    part = _with(np.zeros(len(used), int), rectangle, 1, counts[0])
    parts = [np.sort(sigma[part[used] == k]) for k in (0, 1)]
    if not all(map(len, parts)):
        return False
    low, high = sorted(parts, key=medians)
    # Nearly all cells with more noise are above those with less.
    if not high[int((1 - ABOVE_ALL) * len(high))] - medians(low) > math.log(RATIO):
        return False
    # A surface would follow texture as well.
    _, constant, curve = places.three_fits(
        places.centres(counts)[used], sigma, error, bright, places.ROUGH
    )
    return cost + places.UNLIKE <= min(constant.cost, curve.cost)


def _rectangles(
    cells: places.Cells, counts: tuple[int, ...], channel: ChannelNoise
) -> tuple[tuple[tuple[float, ...], ...], np.ndarray] | None:
    """Return the edges of rectangles, as `SigmaMosaic` has them; None if the noise does not step.

    With them comes the logarithm of sigma in each.
    """
    used = np.isfinite(cells.sigma)
    if used.mean() < places.COVERED:
        return None
    sigma, error, bright = (each[used] for each in cells)
    edges = [(0.0, 1.0, 0.0, 1.0)]
    part, candidates = np.zeros(len(used), int), _candidates(counts)
    fit = places.robust_fits([np.ones((len(sigma), 1))], sigma, error)[0]
    while len(edges) < MOST and len(candidates):
        number = len(edges)
        starts = _costs(cells, _tried(cells)[:: TRIED // 4])
        if number > 1:
            starts = np.take_along_axis(_costs(cells, fit.found), part[None], 0)
        rectangle, _ = _best(cells, starts, candidates, counts[0])
        new = _with(part, rectangle, number, counts[0])
        design = (new[used, None] == np.arange(number + 1)).astype(np.float64)
        if not design.sum(axis=0).all():
            break  # some rectangle is covered
        better = places.robust_fits([design], sigma, error)[0]
        around = int(np.bincount(part[used & (new == number)]).argmax())
        across = np.eye(number + 1)[number] - np.eye(number + 1)[around]
        apart = float(across @ better.found)
        unsure = math.sqrt(across @ better.covariance @ across)
        high, low = (number, around) if apart > 0 else (around, number)
        above = (sigma - better.found[low]) / error > APART
        below = (better.found[high] - sigma) / error > APART
        tell = error * APART < abs(apart)
        upper, lower = (tell & (new[used] == each) for each in (high, low))
        if (
            fit.cost - better.cost < CLEARLY
            or abs(apart) < max(math.log(RATIO), places.SIGNIFICANT * unsure)
            or min(np.count_nonzero(upper), np.count_nonzero(lower)) < LEAST
            or above[upper].mean() < ABOVE_ALL
            or below[lower].mean() < BELOW_ALL
        ):
            break
        placed = _placed(channel, rectangle, better.found[new].reshape(counts))
        unseen = ~np.isfinite(placed)
        if unseen.any():  # the part may end elsewhere
            candidates = candidates[(candidates != rectangle)[:, unseen].all(axis=1)]
            continue
        edges.append(placed)
        part, fit = new, better
    if len(edges) == 1:
        return None
    others = places.three_fits(places.centres(counts)[used], sigma, error, bright)
    most = min(_brightness_step(cells), *(each.cost for each in others)) - CLEARLY
    return (tuple(edges), fit.found) if fit.cost <= min(most, FITS * len(sigma)) else None


def _brightness_step(cells: places.Cells) -> float:
    """Return the least cost if dark cells have one value and bright ones another."""
    costs = _costs(cells, _tried(cells))[:, np.argsort(cells.brightness)]
    dark = np.cumsum(costs, axis=1)
    bright = dark[:, -1:] - dark
    return float((dark.min(axis=0) + bright.min(axis=0)).min())


# The edge of a rectangle, to a pixel.
WINDOW = 1.5  # cells to both sides in which it is looked for
LONGEST = 1024  # pixels of an edge that are read
BESIDE = 1, 7  # pixels from it, to both sides, between which the noise has to step,
SHARE = 0.25  # by so much of what cells show, of which texture covers some
SMOOTHED = np.array([1.0, -4.0, 6.0, -4.0, 1.0]) / math.sqrt(70)  # of neighbours: what is left


def _placed(channel: ChannelNoise, rectangle: np.ndarray, sigma: np.ndarray) -> tuple[float, ...]:
    """Return the edges of a rectangle over the plane, NaN where the noise does not step.

    `sigma` (row, column) is its logarithm in each cell.
    """
    middle = len(channel.planes) // 2
    plane, blank = channel.planes[middle], channel.blanks[middle]
    blank = np.zeros(plane.shape, bool) if blank is None else blank
    found = []
    for axis, (table, values, mask) in enumerate(
        [(sigma.T, plane.T, blank.T), (sigma, plane, blank)]
    ):
        # Edges are between columns.
        along = slice(*rectangle[2 - 2 * axis : 4 - 2 * axis])
        high, wide = (n / count for n, count in zip(values.shape, table.shape, strict=True))
        first, last = round(along.start * high), round(along.stop * high)
        rows = slice(first, min(last, first + LONGEST))
        for edge in rectangle[2 * axis : 2 * axis + 2].tolist():
            at = edge * wide
            if 0 < edge < table.shape[1]:
                height = float(medians(table[along, edge] - table[along, edge - 1]))
                if abs(height) > math.log(RATIO):
                    start = max(round(at - WINDOW * wide), 0)
                    here = rows, slice(start, round(at + WINDOW * wide))
                    column, step = _edge(np.where(mask[here], np.nan, values[here]))
                    at = start + column if step * height >= SHARE * height**2 else math.nan
            found.append(at / values.shape[1])
    return tuple(found)


def _edge(pixels: np.ndarray) -> tuple[int, float]:
    """Return the column at which the noise steps, and the step of its logarithm; 0 for none."""
    rest = sliding_window_view(pixels, len(SMOOTHED), axis=0) @ SMOOTHED
    sizes = finite_medians(np.abs(rest).T)
    known = np.flatnonzero(sizes > 0)
    sigma, third = np.log(sizes[known]), len(known) // 3
    if third < BESIDE[1]:
        return 0, 0.0
    # Of each column, as one of those before the edge and as one of those after it.
    before, after = medians(sigma[:third]), medians(sigma[-third:])
    cost = np.abs(sigma - before) - np.abs(sigma - after)
    at = int(np.cumsum(np.append(0.0, cost)).argmin())
    near, far = BESIDE
    beside = sigma[max(at - far, 0) : max(at - near, 0)], sigma[at + near : at + far]
    if not all(map(len, beside)):
        return 0, 0.0
    return int(known[at]), float(medians(beside[1]) - medians(beside[0]))
