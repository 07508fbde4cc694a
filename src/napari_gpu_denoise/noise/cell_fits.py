"""Fits of the noise in cells of a plane: a surface, one value, a curve over brightness."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.laws import capped_cost

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
