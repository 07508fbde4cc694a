"""Noise that differs between places, as after the correction of uneven illumination.

The noise is read in cells of the plane, less the texture there (`photon.texture`), relative to what
the model expects at their brightness. A smooth surface through the cells is believed only where it
is known everywhere, far better than one value for all, and better than a curve over the brightness
of the cells. Texture raises cells, but hardly ever as such a surface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.laws import CLEARLY, capped_cost
from napari_gpu_denoise.noise.patches.variance import CLIPPED, Parts, grouped
from napari_gpu_denoise.noise.patches.white import RATIO
from napari_gpu_denoise.noise.photon import LEAST, level_variances, read_levels
from napari_gpu_denoise.noise.robust import medians

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.evidence import Evidence
    from napari_gpu_denoise.noise.models import NoiseModel
    from napari_gpu_denoise.noise.patches.spectra import PatchSpectra


# Fits of the noise in cells of a plane: a surface, one value, a curve over brightness.
UPWARD, DOWNWARD = 1.0, 3.0  # standard errors from which a cell above, or below, counts less
ROUNDS = 20  # of the robust fit, at most
SETTLED = 1e-6  # change of its weights from which on it has come to an end


class CellFit(NamedTuple):
    found: np.ndarray
    covariance: np.ndarray
    cost: float


def three_fits(
    place: np.ndarray,
    sigma: np.ndarray,
    error: np.ndarray,
    bright: np.ndarray,
    rounds: int = ROUNDS,
) -> list[CellFit]:
    """Fit a surface, one value for all cells, and a curve over their brightness."""
    bright = (bright - bright.mean()) / (np.ptp(bright) or 1.0)
    constant, curve = np.ones((len(sigma), 1)), bright[:, None] ** np.arange(3)
    return robust_fits([powers(place), constant, curve], sigma, error, rounds)


def powers(place: np.ndarray) -> np.ndarray:
    y, x = place.T
    return np.column_stack([np.ones(len(y)), y, x, y * y, y * x, x * x])


def robust_fits(
    designs: list[np.ndarray], values: np.ndarray, error: np.ndarray, rounds: int = ROUNDS
) -> list[CellFit]:
    """Fit values by sums of the terms of each design (value, term), all of them side by side.

    Texture, which only raises a value, counts little.
    """
    sizes = [terms.shape[1] for terms in designs]
    terms = np.zeros((len(designs), len(values), max(sizes)))
    for row, each in zip(terms, designs, strict=True):
        row[:, : each.shape[1]] = each
    scaled, target = terms / error[:, None], values / error
    # Products of terms with each other, and with the values: each round weights them anew.
    most = terms.shape[2]
    squares = (scaled[:, :, :, None] * scaled[:, :, None, :]).reshape(*terms.shape[:2], -1)
    products = np.concatenate([squares, scaled * target[:, None]], axis=2)
    # Terms that are not there, or tell nothing, get a factor of 0.
    unit = 1e-13 * np.eye(most)
    weight = np.ones(terms.shape[:2])
    for _ in range(rounds):
        sums = np.square(weight)[:, None] @ products
        normal = sums[:, 0, : most**2].reshape(-1, most, most)
        normal += unit * normal[:, :1, :1]
        found = np.linalg.solve(normal, sums.transpose(0, 2, 1)[:, most**2 :])
        distance = target - (scaled @ found)[:, :, 0]
        limit = np.where(distance > 0, UPWARD, DOWNWARD)
        before, weight = weight, np.minimum(1, limit / np.maximum(np.abs(distance), 1e-12))
        if np.abs(weight - before).max() < SETTLED:
            break
    scatter = np.maximum(1.0, np.mean(np.square(weight * distance), axis=1))
    covariance = np.linalg.inv(normal) * scatter[:, None, None]
    return [
        CellFit(one[:size, 0], two[:size, :size], float(cost))
        for one, two, cost, size in zip(
            found, covariance, capped_cost(distance), sizes, strict=True
        )
    ]


# A surface of sigma.
CELLS, NARROWEST = 6, 32  # cells along an axis, at most, and their width, at least
FEWEST = 4  # cells along an axis
COVERED = 0.75  # share of the cells that have to tell, at least
SYSTEMATIC = 0.03  # relative error of sigma in a cell that statistics do not show
SIGNIFICANT = 6.0  # standard errors by which the largest sigma is above the smallest, at least
SMOOTH = 8  # one of so many patches of a cell, the smoothest, shows whether cells may differ:
ALIKE = 0.15  # less spread of their logarithms, or of a surface through them, is none,
UNLIKE = 12.0  # nor is a surface that is better than others by less,
ROUGH = 6  # after so many rounds of the fits
KNOWN = 0.12  # relative error of sigma at any place, at most
SAMPLE = 512  # patches that a typical variance is taken of, about
POINTS = 64  # along an axis, where the mean variance is taken
LARGEST = 64.0  # ratio of sigma between places, at most


@dataclass(frozen=True)
class SigmaSurface:
    """Sigma at each place relative to its root mean square over the plane.

    Its logarithm is a polynomial of the second degree.
    """

    # Of 1, y, x, y y, y x and x x, each of y and x from -1 to 1 over the plane.
    coefficients: tuple[float, ...]
    low: float  # smallest and largest value
    high: float

    def factors(self, ny: int, nx: int) -> np.ndarray:
        """Return the factor of sigma at each pixel of a plane, (ny, nx)."""
        y, x = (np.linspace(-1, 1, 2 * n + 1)[1::2] for n in (ny, nx))
        one, down, across, curved, both, wide = self.coefficients
        rows = one + down * y + curved * y**2
        found = rows[:, None] + (across + both * y[:, None]) * x + wide * x**2
        return np.exp(np.clip(found, math.log(self.low), math.log(self.high)))

    @property
    def valid(self) -> bool:
        """Whether the numbers, which may come from a file, are those of a surface."""
        known = len(self.coefficients) == 6 and all(map(math.isfinite, self.coefficients))
        return known and 1 / LARGEST <= self.low <= self.high <= LARGEST

    @property
    def ratio(self) -> float:
        """Largest sigma over the smallest."""
        return self.high / self.low

    def words(self) -> str:
        """Say where the noise is how strong."""
        return f"the noise differs between places, {place_words(self)}"


def place_words(places: Any) -> str:
    """Say of a map by how much sigma differs, and where it is smallest and largest."""
    table = places.factors(3, 3)
    rows, columns = ("top", "", "bottom"), ("left", "", "right")
    ends = []
    for extreme in (table.min(), table.max()):
        there = np.argwhere(table == extreme)
        y, x = there[np.abs(there - there.mean(axis=0)).sum(axis=1).argmin()]  # the middle one
        ends.append(" ".join(filter(None, (rows[y], columns[x]))) or "middle")
    return (
        f"by a factor of {places.ratio:.2g}: it is weakest at the {ends[0]} and strongest at the "
        f"{ends[1]}, independently of brightness"
    )


class Cells(NamedTuple):
    """Noise in cells of the plane, NaN where it was not measured."""

    sigma: np.ndarray  # logarithm, relative to what is expected
    error: np.ndarray
    brightness: np.ndarray


def noise_surface(
    channels: list[Evidence], models: list[NoiseModel]
) -> tuple[SigmaSurface, list[float]] | None:
    """Return the surface of sigma, if it clearly differs between places and is known everywhere.

    All channels have the same surface; what the sigma of each is multiplied by to get its root mean
    square comes with it.
    """
    shape = channels[0].planes.shape[1:]
    counts = tuple(min(n // NARROWEST, CELLS) for n in shape)
    if min(counts) < FEWEST or any(model.scaled(1.0) is None for model in models):
        return None
    place = centres(counts)
    cells = [
        read_cells(channel, _expected(channel.spectra, model), counts, _may_differ)
        if channel.sigma > 0 and channel.spectra
        else None
        for channel, model in zip(channels, models, strict=True)
    ]
    if all(each is None for each in cells):
        return None
    found = _smooth(joined(cells), place, 1 / np.array(counts))
    if found is None:
        return None
    surface, low, high = found
    raw = SigmaSurface(tuple(surface.tolist()), math.exp(low), math.exp(high))
    mean = math.sqrt(np.mean(np.square(raw.factors(POINTS, POINTS))))
    scales = [mean * _scale(each, powers(place) @ surface) for each in cells]
    surface = surface - math.log(mean) * np.eye(6)[0]
    return SigmaSurface(tuple(surface.tolist()), raw.low / mean, raw.high / mean), scales


@lru_cache(maxsize=16)
def centres(counts: tuple[int, ...]) -> np.ndarray:
    """Return y and x of the middle of so many cells along y and x, from -1 to 1, (cell, 2)."""
    centres = [(2 * np.arange(count) + 1) / count - 1 for count in counts]
    return np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1).reshape(-1, 2)


def _expected(spectra: PatchSpectra, model: NoiseModel) -> np.ndarray:
    """Return the variance that a model expects of each patch."""
    line = model.variance(spectra.seen)
    if not model.additive:
        # A small minimum keeps ratios finite where the model has no noise; some of many tell it.
        some = line[:: max(1, len(line) // SAMPLE)]
        line = np.maximum(line, 1e-3 * float(medians(some)) or 1e-300)
    return line


def read_cells(
    channel: Evidence,
    line: np.ndarray,
    counts: tuple[int, ...],
    may_differ: Callable[[Cells, tuple[int, ...]], bool],
) -> Cells | None:
    """Return the noise of a channel in so many cells along y and x; None where all are alike.

    `line` (patch,) is the variance that is expected. `may_differ` tells that from the smoothest
    patches of cells, texture included.
    """
    spectra = channel.spectra
    found = _no_cells(counts)
    if not spectra.whole:
        return found
    number = len(found.sigma)
    down, across = (
        (along * count).astype(np.uint8) for along, count in zip(spectra.place, counts, strict=True)
    )
    cell = down * np.uint8(counts[1]) + across
    parts = grouped(cell, number, spectra.statistics.order)
    there = cell[parts.members[parts.first]]
    high = spectra.energy_of("high")
    usable = parts.count >= LEAST
    if not high.min() > 0:
        usable &= parts.sums(high) > 0
    if spectra.clipped.any():
        usable &= parts.sums(spectra.clipped) <= CLIPPED * parts.count
    told, parts = there[usable], parts.kept(usable)
    if not len(told):
        return found
    if line.min() < line.max():
        parts = parts.by_rank(spectra.relative("low", line))
    rough = _no_cells(counts)
    for values, each in zip(rough, _smoothest(high / line, spectra, parts), strict=True):
        values[told] = each
    if not may_differ(rough, counts):
        return None
    readings = read_levels(spectra, line, parts, relative=True)
    each = level_variances(readings, 0.0, 1.0, spectra.overlap)
    total = each.variance
    # The strength of texture is measured relative to the noise, so what was found is divided by it.
    noise = total[readings.level][:, None]
    readings = readings._replace(power=readings.power / noise, own=readings.own / noise)
    each = level_variances(readings, 0.0, 1.0, spectra.overlap)
    found.sigma[told] = np.log(total * each.variance) / 2
    found.error[told] = np.hypot(each.error / 2, SYSTEMATIC)
    found.brightness[told] = each.mean
    return found


def _no_cells(counts: tuple[int, ...]) -> Cells:
    return Cells(*(np.full(math.prod(counts), np.nan) for _ in Cells._fields))


def _smoothest(power: np.ndarray, spectra: PatchSpectra, parts: Parts) -> Cells:
    """Return the noise of the smoothest patches of cells, texture included.

    `power` (patch,) is that of the high frequencies relative to what is expected, and `parts` has
    the patches of each cell, from the smoothest on.
    """
    sizes, first = parts.count, parts.first
    read = np.maximum(sizes // SMOOTH, np.minimum(sizes, LEAST // 2))
    # Sums over the smoothest of each cell, and the others, in turn.
    spans = np.stack([first, first + read], axis=1).ravel()
    inside = power[parts.members]
    mean = np.maximum(np.add.reduceat(inside, spans)[::2] / read, 1e-300)
    numbers = np.maximum(read / spectra.overlap * len(spectra.upper), 1)
    error = np.hypot(np.sqrt(0.5 / numbers), SYSTEMATIC)
    return Cells(np.log(mean) / 2, error, parts.sums(spectra.seen) / sizes)


def _may_differ(cells: Cells, counts: tuple[int, ...]) -> bool:
    """Return whether a surface may fit the smoothest patches of cells."""
    used = np.isfinite(cells.sigma)
    sigma, error, bright = (each[used] for each in cells)
    if np.ptp(sigma) < ALIKE:
        return False
    place = centres(counts)[used]
    surface, *others = three_fits(place, sigma, error, bright, ROUGH)
    values = powers(place) @ surface.found
    unlike = min(each.cost for each in others) - surface.cost
    return bool(unlike > UNLIKE and np.ptp(values) > ALIKE)


def joined(cells: Sequence[Cells | None]) -> Cells:
    """Return the noise of several channels together; None is a channel without any.

    Channels of one scene share its texture: several are no more certain than one.
    """
    known = [each for each in cells if each is not None]
    return Cells(
        np.mean([each.sigma for each in known], axis=0),
        np.sqrt(np.mean([np.square(each.error) for each in known], axis=0)),
        np.mean([each.brightness for each in known], axis=0),
    )


def _smooth(
    cells: Cells, place: np.ndarray, half: np.ndarray
) -> tuple[np.ndarray, float, float] | None:
    """Return the surface through cells, and its smallest and largest value; None if it is unsure.

    `half` is half of the height and width of a cell.
    """
    used = np.isfinite(cells.sigma)
    if used.mean() < COVERED:
        return None
    place, sigma, error, bright = (each[used] for each in (place, *cells))
    surface, *others = three_fits(place, sigma, error, bright)
    if surface.cost + CLEARLY > min(each.cost for each in others):
        return None
    # The outer corners of the cells.
    outer = powers(place + half * np.sign(place))
    values = outer @ surface.found
    across = outer[values.argmax()] - outer[values.argmin()]
    unsure = math.sqrt(across @ surface.covariance @ across)
    unknown = math.sqrt(np.einsum("ij,jk,ik->i", outer, surface.covariance, outer).max())
    apart = float(np.ptp(values))
    if apart < max(math.log(RATIO), SIGNIFICANT * unsure) or unknown > KNOWN:
        return None
    return surface.found, float(values.min()), float(values.max())


def _scale(cells: Cells | None, surface: np.ndarray) -> float:
    """Return sigma of a channel over that of its model, where the surface is 0."""
    if cells is None:
        return 1.0
    used = np.isfinite(cells.sigma)
    rest = (cells.sigma - surface)[used]
    return math.exp(robust_fits([np.ones((len(rest), 1))], rest, cells.error[used])[0].found[0])
