"""Subspace of a series of measurements, in slow NumPy: components, their number, and the guard.

The filter of components is a function of the caller. Noise is Gaussian, of one sigma.
"""

from __future__ import annotations

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
    kept = number_of_components(series, sigma)[1] if kept is None else kept
    made = np.zeros_like(flat)
    for k in np.argsort(powers)[::-1][:kept]:
        component = (vectors[:, k] @ flat).reshape(series.shape[1:])
        made += np.outer(vectors[:, k], filter(component).ravel())
    made = made.reshape(series.shape)
    constant = np.ptp(series, axis=0) == 0
    made[:, constant] = series[:, constant]
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
