"""Whether sigma fits: the loss of a filter that may not look at the pixels it predicts.

Some pixels are replaced by the mean of their neighbours, and the filter's result there is compared
with what they were. Their noise is independent of everything the filter saw, so that the loss is
lowest where the filter predicts best, whatever sigma it was told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FACTORS = (0.6, 0.73, 0.87, 1.0, 1.15, 1.35, 1.6)
GRID = 4  # every so-manieth pixel along Y and X
FITS = (0.85, 1.25)  # of the best factor, within which sigma is taken to be right
WORTH = 0.012  # by which the loss has to fall: that of smooth images hardly depends on sigma
MOST = 1 << 17  # pixels of the crop for this


@dataclass(frozen=True)
class SigmaCheck:
    """How well the filter predicts pixels it has not seen, told other strengths of the noise.

    Attributes
    ----------
    factors, losses : tuple of float
        Factors on sigma, and the loss of each in units of the variance of the noise.
    best : float
        Factor with the lowest loss.
    """

    factors: tuple[float, ...]
    losses: tuple[float, ...]
    best: float

    @property
    def fits(self) -> bool:
        """Whether the sigma assumed is near enough to the best: then it is better kept."""
        told = self.losses[self.factors.index(1.0)]
        gain = told / min(self.losses) - 1 if min(self.losses) > 0 else 0.0
        return FITS[0] <= self.best <= FITS[1] or gain < WORTH


def grid(shape: Sequence[int], axes: tuple[int, int], first: int = 1) -> np.ndarray:
    """Return the mask of the pixels that are replaced."""
    mask = np.ones(tuple(shape), bool)
    for k in axes:
        along = np.zeros(shape[k], bool)
        along[first::GRID] = True
        mask &= along.reshape([-1 if j == k else 1 for j in range(len(shape))])
    return mask


def replaced(values: np.ndarray, mask: np.ndarray, axes: tuple[int, int]) -> np.ndarray:
    """Return pixels with those of the mask replaced by the mean of their four neighbours."""
    total = np.zeros_like(values)
    for k in axes:
        padded = np.pad(
            values, [(1, 1) if j == k else (0, 0) for j in range(values.ndim)], "reflect"
        )
        for start in (0, 2):
            index = [slice(None)] * values.ndim
            index[k] = slice(start, start + values.shape[k])
            total += padded[tuple(index)]
    return np.where(mask, total / 4, values)


def loss(values: np.ndarray, spread: np.ndarray, result: np.ndarray, mask: np.ndarray) -> float:
    """Return the mean squared difference at the pixels of the mask, in units of the noise."""
    return float(np.mean(np.square(((result - values) / spread)[mask]), dtype=np.float64))


def best_of(factors: Sequence[float], losses: Sequence[float]) -> SigmaCheck:
    """Return the check, with the minimum of a parabola through the lowest loss."""
    k = int(np.argmin(losses))
    best = math.log(factors[k])
    if 0 < k < len(factors) - 1:
        x = np.log(factors[k - 1 : k + 2])
        a, b, _ = np.polyfit(x, losses[k - 1 : k + 2], 2)
        if a > 0:
            best = float(np.clip(-b / (2 * a), x[0], x[-1]))
    return SigmaCheck(tuple(factors), tuple(losses), math.exp(best))
