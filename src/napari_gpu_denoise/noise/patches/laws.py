"""How the noise variance depends on brightness: constant, linear or quadratic.

Texture raises the variance of a level of brightness, and never lowers it. So a level above a law
costs no more than a little, one below it much more; a law that does not fit most levels is refused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.levels import (
    LEAST_LEVELS,
    MEMBERS,
    VarianceCurve,
    brightness_levels,
    level_noise,
)
from napari_gpu_denoise.noise.patches.pooling import PatchStatistics

SYSTEMATIC = 0.08  # relative error of a variance that texture and few patches leave
ABOVE, BELOW = 9.0, 25.0  # most that a level above or below a law costs
STEPS = 50  # of each end of a line that is tried
CONSTANTS = 400  # values of a law of one parameter that are tried

GROWTH = 1.5  # of the variance over the levels of brightness, at least, to matter
CLEARLY = 16.0  # squared standard errors by which a law must be better than a constant
AS_WELL = 5.0  # the same, by which the square may be worse than the line, which has one more number
FITS = 3.0  # squared standard errors a level, above which no law fits
SPREAD = 2.5  # of brightness, below which a line and a square are the same


class VarianceLaws(NamedTuple):
    """How badly each law fits, as sums of squared standard errors over the levels."""

    curve: VarianceCurve  # that they were fitted to
    levels: int
    constant: float
    line: float
    square: float
    spread: float  # largest mean of a level over the smallest; infinite if that is not above 0
    growth: float  # of the variance from the darkest level to the brightest, along the line

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
    def is_linear(self) -> bool:
        """Whether the variance grows linearly with the mean."""
        return (
            self.growth >= GROWTH
            and self.line <= FITS * self.levels
            and self.line + CLEARLY <= self.constant
        )

    @property
    def is_irregular(self) -> bool:
        """Whether the variance is not constant, though another law may not fit either."""
        least = min(self.line, self.square)
        return self.constant > FITS * self.levels and self.constant > least + CLEARLY

    def range(self) -> str:
        """Return the variance at both ends of the levels used, in words."""
        used = np.array(self.curve.used, bool)
        low, high = np.array(self.curve.mean)[used][[0, -1]]
        dark, bright = np.array(self.curve.variance)[used][[0, -1]]
        return f"from {dark:.3g} at a grey level of {low:.4g} to {bright:.3g} at {high:.4g}"


def variance_laws(patches: PatchStatistics) -> VarianceLaws | None:
    """Fit a constant, a line and a square to the variance at each level of brightness.

    None where fewer than two levels show any noise.
    """
    found = level_noise(patches, brightness_levels(patches.mean))
    used = (found.variance > 0) & found.open & (found.count >= MEMBERS)
    if np.count_nonzero(used & found.white) >= LEAST_LEVELS:
        used &= found.white
    if np.count_nonzero(used) < 2:
        return None
    x, y = found.mean[used], np.log(found.variance[used])
    error = np.hypot(found.error[used], SYSTEMATIC)
    line, growth = _line(x, y, error)
    positive = x[0] > 0
    columns = (found.mean, found.variance, found.count, used)
    return VarianceLaws(
        VarianceCurve(*(tuple(each.tolist()) for each in columns)),
        len(x),
        _constant(y, error),
        line,
        _constant(y - 2 * np.log(x), error) if positive else np.inf,
        float(x[-1] / x[0]) if positive else np.inf,
        growth,
    )


def _cost(distance: np.ndarray) -> np.ndarray:
    """Return the cost of distances in standard errors, summed over the last axis."""
    return np.minimum(np.square(distance), np.where(distance > 0, ABOVE, BELOW)).sum(axis=-1)


def _constant(y: np.ndarray, error: np.ndarray) -> float:
    """Return the least cost of a constant; texture makes it lower than the median, if anything."""
    tried = np.median(y) + np.linspace(-3, 1, CONSTANTS)
    return float(_cost((y - tried[:, None]) / error).min())


def _line(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Return the least cost of a rising line fitted to the logarithms y, and its growth."""
    ends = np.linspace(y.min() - 1, y.max() + 0.5, STEPS)
    first, last = (each.ravel() for each in np.meshgrid(ends, ends, indexing="ij"))
    rising = last > first
    first, last = np.exp(first[rising])[:, None], np.exp(last[rising])[:, None]
    share = (x - x[0]) / max(x[-1] - x[0], 1e-300)
    cost = _cost((y - np.log(first * (1 - share) + last * share)) / error)
    best = int(cost.argmin())
    return float(cost[best]), float(last[best, 0] / first[best, 0])
