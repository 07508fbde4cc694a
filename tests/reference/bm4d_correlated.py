"""Correlated noise in groups of cubes, slow and plain, in float64.

Every pair of voxels of two cubes is looked up in the autocovariance of the noise, which is that of
a plane times that along z, and what the transform makes of those is added up.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from reference.bm3d import LEAST_VARIANCE
from reference.bm3d_correlated import (
    FURTHEST,
    LEAST_MEAN,
    LEAST_POWER,
    PERIOD,
    PROJECTIONS,
    autocovariance,
)
from reference.transforms import line_matrix

REACH = 4  # convention: voxels beyond their sides from which cubes share no noise


@cache
def autocovariance_along(line: tuple[float, ...]) -> np.ndarray:
    """Return the covariance of voxels that are dz apart, as `autocovariance` does of a plane."""
    known = np.arange(1 - len(line), len(line))
    lag = np.abs((np.arange(PERIOD) + PERIOD // 2) % PERIOD - PERIOD // 2)
    around = np.zeros(PERIOD)
    for _ in range(PROJECTIONS):
        around = np.where(lag <= FURTHEST, around, 0.0)
        around[known] = np.array(line)[np.abs(known)]
        around = np.fft.ifft(np.maximum(np.fft.fft(around).real, LEAST_POWER)).real
    return around / around[0]


@cache
def shared(spectrum, transform: str, cube: tuple, apart: tuple) -> np.ndarray:
    """Return the covariance of each coefficient, (z, y, x), of two cubes that are `apart`."""
    deep = REACH if any(spectrum.along_z[1:]) else 0
    reaches = [side + more for side, more in zip(cube, (deep, REACH, REACH), strict=True)]
    if any(abs(d) >= reach for d, reach in zip(apart, reaches, strict=True)):
        return np.zeros(cube)
    z, y, x = (each.ravel() for each in np.indices(cube))
    dz, dy, dx = (each[:, None] - each - d for each, d in zip((z, y, x), apart, strict=True))
    voxels = autocovariance_along(spectrum.along_z)[dz] * autocovariance(spectrum.plane)[dy, dx]
    matrix = np.ones((1, 1))
    for side in cube:
        matrix = np.kron(matrix, line_matrix(transform, side))
    return np.einsum("ki,ij,kj->k", matrix, voxels, matrix, optimize=True).reshape(cube)


def correlated_variances(places, one, along, channel: int = 0) -> np.ndarray:
    """Return the variance of the noise, in sigma squared, in the spectrum of cubes at places.

    If the pass does not ask for more, cubes count as if they shared nothing.
    """
    spectrum = one.spectra[channel]
    alone = shared(spectrum, one.transform, one.cube, (0, 0, 0))
    if not one.shared_noise:
        return np.broadcast_to(alone, (len(places), *one.cube))
    pairs = np.array(
        [
            [
                shared(spectrum, one.transform, one.cube, tuple(np.subtract(p, q).tolist()))
                for q in places
            ]
            for p in places
        ]
    )
    variance = np.einsum("kp,pqzyx,kq->kzyx", along, pairs, along, optimize=True)
    return np.maximum(variance, LEAST_VARIANCE * alone)


def mean_variance(one, channel: int = 0) -> float:
    """Return the variance of the mean of a cube, which weights are relative to by convention."""
    if not one.spectra:
        return 1.0
    alone = shared(one.spectra[channel], one.transform, one.cube, (0, 0, 0))
    return max(float(alone[0, 0, 0]), LEAST_MEAN)
