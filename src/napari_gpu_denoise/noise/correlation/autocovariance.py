"""The autocovariance of noise from the power of its cosine coefficients, and back."""

from __future__ import annotations

from functools import cache

import numpy as np

from napari_gpu_denoise.noise.patches.white import PATCH, cosine_transform

LAGS = 4  # largest displacement of the autocovariance, in pixels


@cache
def power_of_lags(ny: int, nx: int) -> np.ndarray:
    """Return the power of each coefficient, (64, ny * nx), for an autocovariance of (ny, nx).

    Stationary noise with autocovariance c has, in coefficient k of an axis, the variance sum over d
    of c(d) a(k, d): a is 1 for d = 0, else twice the correlation of row k of the transform with
    itself shifted by d. Along two axes the sums factor, for noise that is the same seen in a
    mirror.
    """
    transform = cosine_transform(PATCH)

    def along(lags: int) -> np.ndarray:
        shifted = [
            (transform[:, d:] * transform[:, : PATCH - d]).sum(axis=1) * (2 if d else 1)
            for d in range(lags)
        ]
        return np.array(shifted).T

    found = np.kron(along(ny), along(nx))
    found.flags.writeable = False  # it is kept for the next call
    return found


def autocovariance(power: np.ndarray) -> np.ndarray:
    """Return the autocovariance, (5, 5), that best fits this power of coefficients, (8, 8).

    Least squares of relative errors. The first coefficient is ignored; 0 where there is no power.
    """
    values = power.ravel()
    if not values[1:].any():
        return np.zeros((LAGS + 1, LAGS + 1))
    weight = 1 / np.maximum(values, 1e-3 * values.max())
    weight[0] = 0  # not measured
    design = power_of_lags(LAGS + 1, LAGS + 1)
    found, *_ = np.linalg.lstsq(design * weight[:, None], values * weight, rcond=None)
    return found.reshape(LAGS + 1, LAGS + 1)
