"""Subspace of a series of measurements, in slow NumPy: components, their number, and the guard.

The filter of components is a function of the caller. Noise is Gaussian, of one sigma.
"""

from __future__ import annotations

import itertools
import math

import numpy as np


def number_of_components(series: np.ndarray, sigma: float) -> tuple[int, int]:
    """Return how many eigenvalues exceed those of noise alone, and how many are kept."""
    m = len(series)
    voxels = [v for v in series.reshape(m, -1).T if np.ptp(v) > 0]
    gram = sum(np.outer(v.astype(np.float64), v) for v in voxels)
    edge = 1.05 * (sigma * (math.sqrt(len(voxels)) + math.sqrt(m))) ** 2
    above = int(np.sum(np.linalg.eigvalsh(gram) > edge))
    return above, min(max(4, 2 * above), m)


def subspace(series: np.ndarray, sigma: float, filter, kept: int | None = None) -> np.ndarray:
    """Return a series (m, ...) with its components filtered by ``filter(image)``."""
    m = len(series)
    flat = series.reshape(m, -1).astype(np.float64)
    powers, vectors = np.linalg.eigh(flat @ flat.T)
    above, number = number_of_components(series, sigma)
    kept = number if kept is None else kept
    vectors = vectors[:, np.argsort(powers)[::-1][:kept]]
    noisy = (vectors.T @ flat).reshape(kept, *series.shape[1:])
    filtered = np.stack([filter(component) for component in noisy])
    if above < m:
        given = noisy[:above] / sigma, filtered[:above] / sigma
        filtered[:above] = explained(*given, kept) * sigma
    made = np.tensordot(vectors, filtered, 1)
    constant = np.ptp(series, axis=0) == 0
    made[:, constant] = series[:, constant]
    return made


def explained(noisy: np.ndarray, filtered: np.ndarray, ridge: float) -> np.ndarray:
    """Return noisy components, (n, ...), as filtered ones explain them in windows of 3 blocks.

    Blocks have two pixels a side; beyond the border are those at the border.
    """
    n, *lengths = noisy.shape
    grid = [-(-length // 2) for length in lengths]
    steps = list(itertools.product((-1, 0, 1), repeat=len(grid)))
    shares, made = np.zeros((*grid, n, n)), np.zeros_like(filtered, np.float64)

    def beside(block):
        return [tuple(np.clip(np.add(block, step), 0, np.subtract(grid, 1))) for step in steps]

    def pixels(image, block):
        return image[(slice(None), *(slice(2 * k, 2 * k + 2) for k in block))]

    for block in np.ndindex(*grid):
        guide, given = (
            np.concatenate([pixels(image, near).reshape(n, -1) for near in beside(block)], axis=1)
            for image in (filtered.astype(np.float64), noisy.astype(np.float64))
        )
        shares[block] = np.linalg.solve(guide @ guide.T + ridge * np.eye(n), guide @ given.T)
    for block in np.ndindex(*grid):
        share = np.mean([shares[near] for near in beside(block)], axis=0)
        pixels(made, block)[...] = np.tensordot(share.T, pixels(filtered, block), 1)
    return made


def events(
    series: np.ndarray, result: np.ndarray, sigma: float, window: tuple[int, ...], limit: float
) -> np.ndarray:
    """Return where the mean of what was taken away in a window exceeds `limit` standard errors.

    Beyond the border nothing was taken away.
    """
    taken = series.astype(np.float64) - result
    found = np.zeros(series.shape, bool)
    half = [n // 2 for n in window]
    size = math.prod(window)
    for m, image in enumerate(taken):
        padded = np.pad(image, [(h, h) for h in half])
        for place in np.ndindex(image.shape):
            part = padded[tuple(slice(p, p + n) for p, n in zip(place, window, strict=True))]
            found[m][place] = abs(part.sum() / size) * math.sqrt(size) > limit * sigma
    return found
