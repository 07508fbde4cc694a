"""How the noise variance depends on brightness: laws fitted to levels of it.

Texture raises the variance of a level of brightness, and never lowers it. So a level above a law
costs no more than a little, one below it much more; a law that does not fit most levels is refused.
Levels whose smoothest patches look like white noise count alone where there are enough: on textured
photographs with white noise of sigma 1 to 10 their variances differ by up to half.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.patches.coefficients import PATCH
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra
from napari_gpu_denoise.noise.patches.variance import MEMBERS, VarianceCurve
from napari_gpu_denoise.noise.robust import huber_weights, medians

MAX_DISTANCES = 3.0, 5.0  # standard errors above and below a law, from where a level costs no more
KNOT = 2.0  # squared standard errors that each knot of a table explains by chance, about


class VarianceLaws(NamedTuple):
    """How badly each law fits, as sums of squared standard errors over the levels."""

    curve: VarianceCurve  # that they were fitted to
    errors: tuple[tuple[float, ...], ...]  # of the logarithms of the variances, above and below
    levels: int
    constant: float
    line: float
    square: float
    growth: float  # of the variance from the darkest level to the brightest, along the line
    free: float
    table: tuple[tuple[float, ...], tuple[float, ...]]  # grey levels and sigmas of the free law
    proven: bool  # whether the smoothest patches of the levels used look like white noise
    flatness: float  # of the levels, weighted by how far their variance is above the lowest one

    @property
    def is_quadratic(self) -> bool:
        """Whether the variance is proportional to the squared mean."""
        return (
            self.square <= limits.MAX_COST_OF_LEVEL * self.levels
            and self.square + limits.MIN_COST_GAIN <= self.constant
            and self.square <= self.line + limits.MAX_COST_OF_SQUARE_OVER_LINE
        )

    @property
    def grows(self) -> bool:
        """Whether a rising line fits the variance clearly better than a constant."""
        clearly = self.line + limits.MIN_COST_GAIN <= self.constant
        return clearly and self.growth >= limits.MIN_VARIANCE_GROWTH

    @property
    def is_linear(self) -> bool:
        """Whether the variance grows linearly with the mean."""
        return self.grows and self.line <= limits.MAX_COST_OF_LEVEL * self.levels

    @property
    def tells(self) -> bool:
        """Whether levels of brightness are ten times further apart than noise puts them."""
        mean, variance = self.curve.fitted
        return bool(mean[-1] - mean[0] > 10 * math.sqrt(float(medians(variance))) / PATCH)

    def distance(self, above: np.ndarray) -> np.ndarray:
        """Return how far logarithms of variances are `above` a law, in standard errors."""
        return _distance(above, np.array(self.errors))

    def range(self) -> str:
        """Return the variance at both ends of the levels used, in words."""
        (low, high), (dark, bright) = (each[[0, -1]] for each in self.curve.fitted)
        return f"from {dark:.3g} at a grey level of {low:.4g} to {bright:.3g} at {high:.4g}"


def variance_laws(patches: PatchSpectra) -> VarianceLaws | None:
    """Fit a constant, a line, a square and a table to the variance at each level of brightness.

    None where fewer than two levels show any noise.
    """
    found = patches.level_noise
    used = (found.variance > 0) & found.open & (found.count >= MEMBERS)
    white = used & (found.flatness >= limits.MIN_PATCH_FLATNESS)
    white &= found.dispersion <= limits.MAX_LEVEL_DISPERSION * found.flatness
    least = min(limits.MIN_WHITE_LEVELS, limits.MIN_WHITE_SHARE * np.count_nonzero(used))
    proven = bool(np.count_nonzero(white) >= max(least, 2))
    used = white if proven else used
    if np.count_nonzero(used) < 2:
        return None
    x, y = found.mean[used], np.log(found.variance[used])
    # What few patches leave, and texture, which may have raised what looks like white noise too.
    error = np.hypot(found.error[used], np.array([[0.2 if proven else 0.08], [0.08]]))
    constant, level = _constant(y, error)
    line, growth, square = constant, 1.0, math.inf
    free, table = math.inf, ((float(x[0]), float(x[-1])), (math.exp(level / 2),) * 2)
    if constant > limits.MIN_COST_GAIN_BESIDE_PROOF:  # else no law can fit clearly better
        line, growth = _line((x - found.mean[0]) / max(np.ptp(found.mean), 1e-300), y, error)
        square = _constant(y - 2 * np.log(x), error)[0] if x[0] > 0 else math.inf
        free, table = min(_table(x, y, error, number) for number in (2, 4, 6))
    columns = (found.mean, found.variance, found.count, used)
    return VarianceLaws(
        VarianceCurve(*(tuple(each.tolist()) for each in columns)),
        tuple(tuple(row) for row in error.tolist()),
        len(x),
        constant,
        line,
        square,
        growth,
        free,
        table,
        proven,
        float(np.average(found.flatness[used], weights=y - y.min() + 1e-9)) if proven else 0.0,
    )


def capped_cost(distance: np.ndarray) -> np.ndarray:
    """Return the cost of distances in standard errors, summed over the last axis."""
    above, below = MAX_DISTANCES
    kept = np.maximum(np.minimum(distance, above), -below)
    return np.einsum("...k,...k->...", kept, kept)


def _distance(above: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return differences of logarithms from a law in standard `errors`, above and below it."""
    return above / np.where(above > 0, *map(np.asarray, errors))


def _constant(y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Return the least cost of a constant, and its value.

    Texture makes it lower than the median, if anything.
    """
    tried = medians(y) + np.linspace(-3, 1, 400)
    cost = capped_cost(_distance(y - tried[:, None], error))
    return float(cost.min()), float(tried[cost.argmin()])


def _line(share: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Return the least cost of a rising line fitted to the logarithms y, and its growth.

    `share` is how bright levels are, from 0 at the darkest to 1 at the brightest of all levels,
    used or not: the line is above 0 at both.
    """
    ends = np.exp(np.linspace(np.asarray(y.min() - 2.5), np.asarray(y.max() + 0.5), 60))
    dark, bright = np.triu_indices(60, 1)
    lines = ends[dark, None] * (1 - share) + ends[bright, None] * share
    cost = capped_cost(_distance(y - np.log(lines), error))
    best = int(cost.argmin())
    return float(cost[best]), float(lines[best, -1] / lines[best, 0])


def _table(
    x: np.ndarray, y: np.ndarray, error: np.ndarray, number: int
) -> tuple[float, tuple[tuple[float, ...], tuple[float, ...]]]:
    """Fit a table of some knots to the logarithms y; return the cost, grey levels and sigmas.

    The cost includes that of knots beyond two; it is infinite for more than half of the levels.
    """
    if 2 < number > (len(x) + 1) // 2:
        return math.inf, ((), ())
    knots = np.unique(np.quantile(x, np.linspace(0, 1, number)))
    hats = np.stack([np.interp(x, knots, one) for one in np.eye(len(knots))], axis=1)
    # Where levels are few a table bends little.
    bends = 0.5 * np.diff(np.eye(len(knots)), 2, axis=0)
    above, below = map(np.asarray, error)
    distance = np.zeros(len(x))
    for _ in range(20):  # weights depend on which levels are above it
        weight = huber_weights(distance, *MAX_DISTANCES) / np.where(distance > 0, above, below) ** 2
        normal = hats.T @ (hats * weight[:, None]) + bends.T @ bends
        values = np.linalg.solve(normal, hats.T @ (weight * y))
        before, distance = distance, _distance(y - hats @ values, error)
        if np.abs(distance - before).max() < 0.05:
            break
    cost = float(capped_cost(distance)) + KNOT * (number - 2)
    return cost, (tuple(knots.tolist()), tuple(np.exp(values / 2).tolist()))  # pyright: ignore[reportPossiblyUnboundVariable]
