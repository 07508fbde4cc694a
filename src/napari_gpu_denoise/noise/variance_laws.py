"""Which law the variance of noise follows with brightness: constant, a line, or a square.

Texture raises the variance of a level of brightness, and never lowers it. So a level above a law
costs no more than a little, one below it much more; a law that does not fit most levels is none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patch_spectra import PatchSpectra
from napari_gpu_denoise.noise.photon_curve import MEMBERS, VarianceCurve, brightness_levels
from napari_gpu_denoise.noise.pooling import pooled_variance
from napari_gpu_denoise.noise.strata import CLIPPED, LEAST_STRATA, WHITE

SYSTEMATIC = 0.08  # relative error of a variance that texture and few patches leave
ABOVE, BELOW = 9.0, 25.0  # most that a level above or below a law costs
STEPS = 50  # of each end of a line that is tried
CONSTANTS = 400  # values of a law of one parameter that are tried


class VarianceLaws(NamedTuple):
    """How badly each law fits, as sums of squared standard errors over `levels` levels.

    `curve` is what they were fitted to. `spread` is the largest mean of a level over the smallest,
    infinite where that is not above 0, and `growth` the same of the variance, along the line.
    """

    curve: VarianceCurve
    levels: int
    constant: float
    line: float
    square: float
    spread: float
    growth: float


def variance_laws(spectra: PatchSpectra) -> VarianceLaws | None:
    """Fit a constant, a line and a square to the variance at each level of brightness.

    Returns
    -------
    VarianceLaws or None
        None where fewer than two levels show any noise.
    """
    rank, energy = np.square(spectra.low).sum(axis=1), np.square(spectra.high)
    rows = []
    for part in brightness_levels(spectra.mean):
        pooled = pooled_variance(rank, energy, spectra.overlap, part)
        white = spectra.upper.all() or (
            pooled.power[~spectra.upper].mean() <= WHITE * pooled.power[spectra.upper].mean()
        )
        known = pooled.variance > 0 and spectra.clipped[part].mean() <= CLIPPED
        known = known and len(part) >= MEMBERS
        level = float(spectra.mean[part].mean())
        rows.append((level, pooled.variance, len(part), known, white, 2 * pooled.error))
    columns = (np.array(each) for each in zip(*rows, strict=True))
    mean, variance, count, known, white, error = columns
    used = known.astype(bool)
    if np.count_nonzero(used & white) >= LEAST_STRATA:
        used &= white.astype(bool)
    if np.count_nonzero(used) < 2:
        return None
    x, y = mean[used], np.log(variance[used])
    error = np.hypot(error[used], SYSTEMATIC)
    line, growth = _line(x, y, error)
    positive = x[0] > 0
    curve = VarianceCurve(*(tuple(each.tolist()) for each in (mean, variance, count, used)))
    return VarianceLaws(
        curve,
        len(x),
        _constant(y, error),
        line,
        _constant(y - 2 * np.log(x), error) if positive else np.inf,
        float(x[-1] / x[0]) if positive else np.inf,
        growth,
    )


def _cost(distance: np.ndarray) -> np.ndarray:
    """Return the sum over the last axis of what distances in standard errors cost."""
    return np.minimum(np.square(distance), np.where(distance > 0, ABOVE, BELOW)).sum(axis=-1)


def _constant(y: np.ndarray, error: np.ndarray) -> float:
    """Return the least cost of a constant; texture makes it lower than the median, if anything."""
    tried = np.median(y) + np.linspace(-3, 1, CONSTANTS)
    return float(_cost((y - tried[:, None]) / error).min())


def _line(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Return the least cost of a rising line, whose logarithm is near y, and its growth."""
    ends = np.linspace(y.min() - 1, y.max() + 0.5, STEPS)
    first, last = (each.ravel() for each in np.meshgrid(ends, ends, indexing="ij"))
    rising = last > first
    first, last = np.exp(first[rising])[:, None], np.exp(last[rising])[:, None]
    share = (x - x[0]) / max(x[-1] - x[0], 1e-300)
    cost = _cost((y - np.log(first * (1 - share) + last * share)) / error)
    best = int(cost.argmin())
    return float(cost[best]), float(last[best, 0] / first[best, 0])
