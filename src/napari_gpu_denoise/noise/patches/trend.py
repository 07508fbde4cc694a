"""Whether noise grows with brightness within one plane.

Photon noise has a variance that rises linearly with brightness. Texture raises the variance of a
level too, but irregularly, and more at the lower of the high frequencies than at the upper ones,
where white noise has the same power at both. So levels whose noise is not white are left out, and
the rest must rise one after the other, near a straight line, and by a factor that matters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.levels import (
    LEAST_LEVELS,
    MEMBERS,
    brightness_levels,
    level_noise,
)
from napari_gpu_denoise.noise.patches.pooling import PatchStatistics

MOST_LEVELS = 12  # fewer than elsewhere: more of them show a trend less reliably
ORDERED = 0.65  # share of pairs of levels that rise, less that of those that fall, at least
STRAIGHT = 0.7  # share of the differences that a straight line explains, at least
RELEVANT = 2.0  # ratio of variances, brightest to darkest, below which one sigma does well
SIGNIFICANT = 4.0  # standard errors by which that ratio is above 1, at least


class Trend(NamedTuple):
    """Noise that grows with brightness."""

    sigma: float  # square root of the mean variance
    error: float  # standard error of sigma
    dark: float  # standard deviation at the dark end
    bright: float


def brightness_trend(patches: PatchStatistics) -> Trend | None:
    """Return how noise grows with brightness; None where it does not clearly grow."""
    upper = patches.upper
    if len(patches.mean) < LEAST_LEVELS * MEMBERS or not upper.any() or upper.all():
        return None
    found = level_noise(patches, brightness_levels(patches.mean, most=MOST_LEVELS))
    # Where pixels are clipped the noise is too weak. Patches are not left out one by one: those
    # that were spared by clipping are those whose noise happened to be weak.
    usable = (found.count >= MEMBERS) & found.open
    mean, y, error, counts, _, white = (each[usable] for each in found)
    if np.count_nonzero(white) < LEAST_LEVELS:
        return None
    x = mean - mean[0]
    fit = _line(x[white], y[white])
    if fit is None:
        return None
    line = np.maximum(np.polyval(fit, x), y[white].min())
    spread = float(np.hypot(*error[white][[0, -1]]))
    factor = max(RELEVANT, math.exp(SIGNIFICANT * spread))
    if not line[white][-1] >= factor * line[white][0]:
        return None
    # Texture may have raised the levels that are not white, but never lowered one.
    variance = np.where(white, y, np.minimum(y, line))
    weight = counts / counts.sum()
    sigma = math.sqrt(weight @ variance)
    return Trend(
        sigma,
        float(np.linalg.norm(weight * variance * error)) / (2 * sigma),
        math.sqrt(variance[0]),
        math.sqrt(variance[-1]),
    )


def _line(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return slope and offset of the line through points that rise along one, else None."""
    i, j = np.triu_indices(len(x), 1)
    if np.sign(y[j] - y[i]).mean() < ORDERED:
        return None
    if np.corrcoef(x, y)[0, 1] ** 2 < STRAIGHT:
        return None
    # The median of all slopes: one level with texture does not tilt it.
    slope = np.median((y[j] - y[i]) / (x[j] - x[i]))
    return np.array([slope, np.median(y - slope * x)])
