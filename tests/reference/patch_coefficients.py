"""Slow NumPy of the kernel `noise/patch_coefficients`, written to be read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.fft import dctn, idctn


class Patch(NamedTuple):
    """A patch of 8 x 8 pixels."""

    mean: float
    seen: float  # brightness as the high frequencies see it
    clipped: float  # share of the pixels
    coefficients: np.ndarray  # (8, 8), frequency along y and x


def patch_coefficients(
    plane: np.ndarray, down: int, across: int, ends: tuple[float, ...] = ()
) -> list[Patch]:
    """Return the patches with finite pixels, at every `down`-th row and `across`-th column."""
    j, k = np.indices((8, 8))
    units = np.eye(64).reshape(-1, 8, 8)[(j + k + 1 > 9).ravel()]
    sight = np.mean([np.square(idctn(unit, norm="ortho")) for unit in units], axis=0)
    found = []
    for row in range(0, plane.shape[0] - 7, down):
        for column in range(0, plane.shape[1] - 7, across):
            patch = plane[row : row + 8, column : column + 8].astype(np.float64)
            if np.isfinite(patch).all():
                mean, seen = patch.mean(), (sight * patch).sum()
                values = dctn(patch - mean, norm="ortho")
                found.append(Patch(mean, seen, np.isin(patch, ends).mean(), values))
    return found
