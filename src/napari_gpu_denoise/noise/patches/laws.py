"""How the noise variance depends on brightness: laws fitted to levels of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.coefficients import flatness_of
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra
from napari_gpu_denoise.noise.patches.variance import LEAST_LEVELS, MEMBERS, VarianceCurve
from napari_gpu_denoise.noise.robust import huber_weights, medians

# How the noise variance depends on brightness: constant, linear, quadratic, or a table.
#
# Texture raises the variance of a level of brightness, and never lowers it. So a level above a law
# costs no more than a little, one below it much more; a law that does not fit most levels is
# refused. Levels whose smoothest patches look like white noise count alone where there are enough:
# on textured photographs with white noise of sigma 1 to 10 their variances differ by up to half.
SYSTEMATIC, RAISED = 0.08, 0.2  # relative error of a variance that few patches, and texture, leave
ABOVE, BELOW = 9.0, 25.0  # most that a level above or below a law costs
LEVEL_FLATNESS = 0.65  # power at the top over that at the middle frequencies, at least
FREE_FLATNESS = 0.8  # the same of levels with more noise than others, for a table
LEVEL_DISPERSION = 3.0  # variance of the energy of patches over that by chance, and over flatness
MOST_KNOTS = 6  # of a table
KNOT = 2.0  # squared standard errors that each of them explains by chance, about
SETTLED = 0.01  # standard errors by which a level moves, below which its fit is done
ROUNDS = 20  # of its fit, whose weights depend on which levels are above it
BEND = 0.5  # weight of a second difference of its logarithms: more only where levels are few
WHITE_SHARE = 0.75  # share of the levels, or of the patches, that have to, where levels are few
STEPS = 60  # of each end of a line that is tried
LOWER = 2.5  # logarithm of the variance of the darkest level used over the least one tried
DARK, BRIGHT = np.triu_indices(STEPS, 1)  # of the ends of rising lines
CONSTANTS = np.linspace(-3, 1, 400)  # values of a law of one parameter that are tried

PIXELS = 64  # of a patch
FARTHER = (
    10.0  # standard deviations of the mean of a patch, between the darkest and brightest level
)
GROWTH = 1.3  # of the variance over the levels of brightness, at least, to matter
CLEARLY = 16.0  # squared standard errors by which a law must be better than a constant
LIKELY = 9.0  # the same, where something else tells, too: levels look like white noise
AS_WELL = 5.0  # the same, by which the square may be worse than the line, which has one more number
FITS = 3.0  # squared standard errors a level, above which no law fits
SPREAD = 2.5  # of brightness, below which a line and a square are the same


class VarianceLaws(NamedTuple):
    """How badly each law fits, as sums of squared standard errors over the levels."""

    curve: VarianceCurve  # that they were fitted to
    errors: tuple[tuple[float, ...], ...]  # of the logarithms of the variances, above and below
    levels: int
    constant: float
    line: float
    square: float
    spread: float  # largest mean of a level over the smallest; infinite if that is not above 0
    growth: float  # of the variance from the darkest level to the brightest, along the line
    white: bool  # whether the noise of most levels is
    free: float
    table: tuple[tuple[float, ...], tuple[float, ...]]  # grey levels and sigmas of the free law
    proven: bool  # whether the smoothest patches of the levels used look like white noise
    flatness: float  # of the levels, weighted by how far their variance is above the lowest one

    @property
    def is_quadratic(self) -> bool:
        """Whether the variance is proportional to the squared mean."""
        return (
            self.spread >= SPREAD
            and self.square <= FITS * self.levels
            and self.square + CLEARLY <= self.constant
            and self.square <= self.line + AS_WELL
        )

    @property
    def grows(self) -> bool:
        """Whether a rising line fits the variance clearly better than a constant."""
        return self.growth >= GROWTH and self.line + CLEARLY <= self.constant

    @property
    def is_linear(self) -> bool:
        """Whether the variance grows linearly with the mean."""
        return self.grows and self.line <= FITS * self.levels

    @property
    def changes(self) -> bool:
        """Whether the variance changes with brightness, by any law."""
        return self.is_linear or self.free + CLEARLY <= self.constant

    @property
    def tells(self) -> bool:
        """Whether levels of brightness are further apart than noise puts them."""
        mean, variance = self.curve.fitted
        noise = math.sqrt(float(medians(variance)) / PIXELS)
        return bool(mean[-1] - mean[0] > FARTHER * noise)

    @property
    def is_irregular(self) -> bool:
        """Whether the variance is not constant, though another law may not fit either."""
        least = min(self.line, self.square)
        return self.constant > FITS * self.levels and self.constant > least + CLEARLY

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
    flatness, dispersion = _whiteness(patches)
    white = used & (flatness >= LEVEL_FLATNESS) & (dispersion <= LEVEL_DISPERSION * flatness)
    least = min(LEAST_LEVELS, WHITE_SHARE * np.count_nonzero(used))
    most = found.count[white].sum() >= WHITE_SHARE * found.count[used].sum()
    proven = np.count_nonzero(white) >= (2 if most else max(least, 2))
    if proven or np.count_nonzero(white := used & found.white) >= LEAST_LEVELS:
        used = white
    if np.count_nonzero(used) < 2:
        return None
    x, y = found.mean[used], np.log(found.variance[used])
    # Texture may have raised what looks like white noise, too.
    raised = [RAISED if proven else SYSTEMATIC, SYSTEMATIC]
    error = np.hypot(found.error[used], np.array(raised)[:, None])
    line, growth = _line((x - found.mean[0]) / max(np.ptp(found.mean), 1e-300), y, error)
    constant = _constant(y, error)
    # Beside a constant that fits, a table of two knots is enough.
    free, table = _table(x, y, error, MOST_KNOTS if constant > CLEARLY else 2)
    positive = x[0] > 0
    columns = (found.mean, found.variance, found.count, used)
    return VarianceLaws(
        VarianceCurve(*(tuple(each.tolist()) for each in columns)),
        tuple(map(tuple, error.tolist())),
        len(x),
        constant,
        line,
        _constant(y - 2 * np.log(x), error) if positive else np.inf,
        float(x[-1] / x[0]) if positive else np.inf,
        growth,
        2 * np.count_nonzero(found.white[used]) > len(x),
        free,
        table,
        bool(proven),
        float(np.average(flatness[used], weights=y - y.min() + 1e-9)) if proven else 0.0,
    )


def _whiteness(patches: PatchSpectra) -> tuple[np.ndarray, np.ndarray]:
    """Return the flatness and the dispersion of the patches that each level was read from.

    Of white noise, power is the same at all high frequencies, and energies of patches differ by
    chance only: both are about 1.
    """
    found, high = patches.level_noise, len(patches.upper)
    power, count = (each[: len(found.mean)] for each in patches.pooled[2:])
    energy = patches.energy_of("high").astype(np.float64)
    read = zip(patches.levels.each(), count.tolist(), strict=True)
    each = [energy[members[:number]] for members, number in read]
    spread = np.array([part.var() / max(part.mean() ** 2, 1e-300) for part in each]) * high / 2
    return flatness_of(power), spread


def capped_cost(distance: np.ndarray) -> np.ndarray:
    """Return the cost of distances in standard errors, summed over the last axis.

    A value above costs no more than a little, one below more: texture only raises a variance.
    """
    kept = np.maximum(np.minimum(distance, math.sqrt(ABOVE)), -math.sqrt(BELOW))
    return np.einsum("...k,...k->...", kept, kept)


def _distance(above: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return differences of logarithms from a law in standard `errors`, above and below it."""
    return above / np.where(above > 0, *errors)


def _constant(y: np.ndarray, error: np.ndarray) -> float:
    """Return the least cost of a constant; texture makes it lower than the median, if anything."""
    tried = medians(y) + CONSTANTS
    return float(capped_cost(_distance(y - tried[:, None], error)).min())


def _line(share: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Return the least cost of a rising line fitted to the logarithms y, and its growth.

    `share` is how bright levels are, from 0 at the darkest to 1 at the brightest of all levels,
    used or not: the line is above 0 at both.
    """
    ends = np.exp(np.linspace(y.min() - LOWER, y.max() + 0.5, STEPS))
    dark, bright = ends[:, None] * (1 - share), ends[:, None] * share
    cost = capped_cost(_distance(y - np.log(dark[DARK] + bright[BRIGHT]), error))
    best = int(cost.argmin())
    ends = ends[DARK[best]] * (1 - share) + ends[BRIGHT[best]] * share
    return float(cost[best]), float(ends[-1] / ends[0])


def _table(
    x: np.ndarray, y: np.ndarray, error: np.ndarray, most: int
) -> tuple[float, tuple[tuple[float, ...], tuple[float, ...]]]:
    """Fit tables of 2 to `most` knots to the logarithms y; return the cost, grey levels and sigmas.

    The cost includes that of knots beyond two.
    """
    numbers = range(2, min(most, (len(x) + 1) // 2) + 1)
    found = [_table_of(x, y, error, number) for number in numbers]
    return min(found, default=(math.inf, ((), ())))


def _table_of(
    x: np.ndarray, y: np.ndarray, error: np.ndarray, number: int
) -> tuple[float, tuple[tuple[float, ...], tuple[float, ...]]]:
    knots = np.unique(np.quantile(x, np.linspace(0, 1, number)))
    hats = np.stack([np.interp(x, knots, one) for one in np.eye(len(knots))], axis=1)
    bends = BEND * np.diff(np.eye(len(knots)), 2, axis=0)
    distance = np.zeros(len(x))
    for _ in range(ROUNDS):
        weight = np.sqrt(huber_weights(distance, math.sqrt(ABOVE), math.sqrt(BELOW)))
        weight /= np.where(distance > 0, *error)
        rows = np.concatenate([hats * weight[:, None], bends])
        values = np.linalg.lstsq(rows, np.append(y * weight, np.zeros(len(bends))))[0]
        before, distance = distance, _distance(y - hats @ values, error)
        if np.abs(distance - before).max() < SETTLED:
            break
    cost = float(capped_cost(distance)) + KNOT * (number - 2)
    return cost, (tuple(knots.tolist()), tuple(np.exp(values / 2).tolist()))
