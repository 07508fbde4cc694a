"""Whether noise grows with brightness: the same estimate, in strata of brightness.

Photon noise has a variance that rises in a straight line with brightness. Texture raises the
estimate of a stratum too, but irregularly, and more at the lower of the high frequencies than at
the upper ones, where white noise has the same power at both. So strata whose noise is not white are
left out, and those left must rise one after the other, near a straight line, and by a factor that
matters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.pooling import FIRST_PATCHES, Pooled, pooled_variance

STRATA = 12
CLIPPED = 0.01  # share of clipped pixels in a stratum, at most
LEAST_STRATA = 5  # white ones that are needed to see a trend
WHITE = 1.3  # power at the lower high frequencies over that at the upper ones, at most
ORDERED = 0.65  # share of pairs of strata that rise, less that of those that fall, at least
STRAIGHT = 0.7  # share of the differences that a straight line explains, at least
RELEVANT = 2.0  # ratio of variances, brightest to darkest, below which one sigma does well
SIGNIFICANT = 4.0  # standard errors by which that ratio is above 1, at least


class Trend(NamedTuple):
    """Noise that grows with brightness.

    `sigma` is the square root of the mean variance, `error` its standard error, `dark` and `bright`
    are the standard deviations at both ends.
    """

    sigma: float
    error: float
    dark: float
    bright: float


def brightness_trend(
    mean: np.ndarray,
    rank: np.ndarray,
    energy: np.ndarray,
    clipped: np.ndarray,
    upper: np.ndarray,
    overlap: float,
) -> Trend | None:
    """Compare the noise of dark and bright patches.

    Parameters
    ----------
    mean, rank : ndarray, (patch,)
        Brightness of the patches, and what orders them from smooth to textured.
    energy : ndarray, (patch, frequency)
        Their squared high-frequency coefficients.
    clipped : ndarray, (patch,)
        Share of the pixels of each patch that are clipped.
    upper : ndarray of bool, (frequency,)
        Which of the frequencies are the upper ones.
    overlap : float
        How many patches share a pixel.

    Returns
    -------
    Trend or None
        None where the noise does not clearly grow with brightness.
    """
    if len(mean) < LEAST_STRATA * FIRST_PATCHES or not upper.any() or upper.all():
        return None
    level, share, pooled = [], [], []
    for members in _strata(mean):
        # Where pixels are clipped the noise is too weak. Patches are not chosen by that one by one:
        # those of a stratum that were spared are those whose noise happened to be weak.
        if len(members) >= FIRST_PATCHES and clipped[members].mean() <= CLIPPED:
            level.append(float(mean[members].mean()))
            share.append(len(members))
            pooled.append(pooled_variance(rank, energy, overlap, members))
    white = np.array([_is_white(each, upper) for each in pooled])
    if np.count_nonzero(white) < LEAST_STRATA:
        return None
    x, counts = np.array(level) - level[0], np.array(share, float)
    y = np.array([each.variance for each in pooled])
    error = 2 * np.array([each.error for each in pooled])  # relative, of the variance
    fit = _line(x[white], y[white])
    if fit is None:
        return None
    line = np.maximum(np.polyval(fit, x), y[white].min())
    spread = float(np.hypot(*error[white][[0, -1]]))
    factor = max(RELEVANT, math.exp(SIGNIFICANT * spread))
    if not line[white][-1] >= factor * line[white][0]:
        return None
    # Texture may have raised the strata that are not white, but never lowered one.
    variance = np.where(white, y, np.minimum(y, line))
    weight = counts / counts.sum()
    sigma = math.sqrt(weight @ variance)
    return Trend(
        sigma,
        float(np.linalg.norm(weight * variance * error)) / (2 * sigma),
        math.sqrt(variance[0]),
        math.sqrt(variance[-1]),
    )


def _strata(mean: np.ndarray) -> list[np.ndarray]:
    """Return the indices of the patches in each stratum, from dark to bright.

    The limits lie halfway between those of equal numbers and those of equal widths, so that a few
    bright cells on a dark ground have strata of their own.
    """
    order = np.argsort(mean)
    ordered = mean[order]
    steps = np.arange(1, STRATA) / STRATA
    numbers = ordered[(steps * len(mean)).astype(int)]
    first, last = ordered[FIRST_PATCHES], ordered[-FIRST_PATCHES]
    limits = (numbers + first + steps * (last - first)) / 2
    return np.split(order, np.searchsorted(ordered, limits))


def _is_white(pooled: Pooled, upper: np.ndarray) -> bool:
    return bool(pooled.power[~upper].mean() <= WHITE * pooled.power[upper].mean())


def _line(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return slope and offset of the line through points that rise along one, else None."""
    i, j = np.triu_indices(len(x), 1)
    if np.sign(y[j] - y[i]).mean() < ORDERED:
        return None
    if np.corrcoef(x, y)[0, 1] ** 2 < STRAIGHT:
        return None
    # The median of all slopes: one stratum with texture does not tilt it.
    slope = np.median((y[j] - y[i]) / (x[j] - x[i]))
    return np.array([slope, np.median(y - slope * x)])
