"""Slow NumPy of the kernel `noise/patch_coefficients`, which keeps squares, written to be read."""

from __future__ import annotations

import numpy as np
from scipy.fft import dctn


def patch_statistics(plane: np.ndarray, down: int, across: int, ends: tuple[float, ...]) -> list:
    """Return mean, low energy, clipped share and high squares of each finite patch, row by row.

    A patch of 8 x 8 pixels begins at every `down`-th row and every `across`-th pixel of it.
    """
    found = []
    y, x = np.indices((8, 8))
    high = y + x + 1 > 9
    for row in range(0, plane.shape[0] - 7, down):
        for column in range(0, plane.shape[1] - 7, across):
            patch = plane[row : row + 8, column : column + 8].astype(np.float64)
            if not np.isfinite(patch).all():
                continue
            power = np.square(dctn(patch - patch.mean(), norm="ortho"))
            clipped = np.isin(patch, ends).mean()
            found.append((patch.mean(), power[~high].sum(), clipped, power[high]))
    return found
