"""Noise in groups of patches or cubes, white or correlated, slow and plain, in float64.

Y. Makinen, L. Azzari, A. Foi, "Collaborative filtering of correlated noise", 2020, section III.
Every pair of voxels of two cubes is looked up in the autocovariance of the noise, which is that of
a plane times that along z, and what the transform makes of those is added up. A patch is a cube of
one slice. Frames are slices that share no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from reference.transforms import cube_matrix, stack_matrix

PERIOD = 64  # voxels after which the noise is taken to repeat itself
LEAST_POWER = 1e-3  # convention: of the noise at any frequency, in units of the mean
FURTHEST = 12  # convention: voxels that noise reaches at most
PROJECTIONS = 200
REACH = 4  # convention: voxels beyond their sides from which cubes share no noise
LEAST_MEAN = 1 / 16  # convention: variance of the mean of a cube that weights are told relative to
LEAST_VARIANCE = 1e-3  # convention: overlapping patches leave at least so much in a coefficient

Table = tuple[tuple[float, ...], ...]


class Spectrum(NamedTuple):
    """Autocorrelations of noise, by displacement along y and x, and along z."""

    plane: Table = ((1.0,),)
    along_z: tuple[float, ...] = (1.0,)


WHITE = Spectrum()


@cache
def autocovariance(table: tuple) -> np.ndarray:
    """Return the covariance of voxels that are so far apart, of any sign, modulo `PERIOD`.

    Convention: that of a spectrum nowhere below `LEAST_POWER`, found by projections in turn.
    """
    given = np.array(table)
    known = np.ix_(*(np.arange(1 - length, length) for length in given.shape))
    lag = np.abs((np.arange(PERIOD) + PERIOD // 2) % PERIOD - PERIOD // 2)
    near = np.ix_(*[lag <= FURTHEST] * given.ndim)
    around = np.zeros([PERIOD] * given.ndim)
    for _ in range(PROJECTIONS):
        inner = around[near]
        around[...] = 0
        around[near] = inner
        around[known] = given[tuple(map(np.abs, known))]
        around = np.fft.ifftn(np.maximum(np.fft.fftn(around).real, LEAST_POWER)).real
    return around / around.flat[0]


@cache
def shared(spectrum: Spectrum, transform: str, cube: tuple, apart: tuple) -> np.ndarray:
    """Return the covariance of each coefficient, (z, y, x), of two cubes that are `apart`."""
    deep = REACH if any(spectrum.along_z[1:]) else 0
    reaches = [side + more for side, more in zip(cube, (deep, REACH, REACH), strict=True)]
    if any(abs(d) >= reach for d, reach in zip(apart, reaches, strict=True)):
        return np.zeros(cube)
    z, y, x = (each.ravel() for each in np.indices(cube))
    dz, dy, dx = (each[:, None] - each - d for each, d in zip((z, y, x), apart, strict=True))
    voxels = autocovariance(spectrum.along_z)[dz] * autocovariance(spectrum.plane)[dy, dx]
    matrix = cube_matrix(transform, cube)
    return np.einsum("ki,ij,kj->k", matrix, voxels, matrix, optimize=True).reshape(cube)


def variances(
    places: Sequence[tuple],
    spectrum: Spectrum,
    transform: str,
    cube: tuple,
    stack: str,
    overlap: bool,
) -> np.ndarray:
    """Return the variance of the noise, in sigma squared, in the spectrum of cubes at places.

    Without `overlap` cubes count as if they shared nothing.
    """
    apart = np.subtract(places, places[0])[:, -3:].astype(int).tolist()
    return _variances(tuple(map(tuple, apart)), spectrum, transform, cube, stack, overlap)


@lru_cache(4096)  # of channels that are filtered together the groups are the same
def _variances(places, spectrum, transform, cube, stack, overlap) -> np.ndarray:
    alone = shared(spectrum, transform, cube, (0, 0, 0))
    if not overlap:
        return np.broadcast_to(alone, (len(places), *cube))
    along, places = stack_matrix(stack, len(places)), np.array(places)
    apart = np.abs(places[:, None] - places).reshape(-1, 3)
    kinds, which = np.unique(apart, axis=0, return_inverse=True)
    known = np.array([shared(spectrum, transform, cube, tuple(d)) for d in kinds.tolist()])
    pairs = known[which.ravel()].reshape(len(places), len(places), *cube)
    variance = np.einsum("kq,kqzyx->kzyx", along, np.tensordot(along, pairs, axes=1))
    return np.maximum(variance, LEAST_VARIANCE * alone)


def mean_variance(spectrum: Spectrum, transform: str, cube: tuple) -> float:
    """Return the variance of the mean of a cube, which weights are relative to by convention."""
    return max(float(shared(spectrum, transform, cube, (0, 0, 0)).flat[0]), LEAST_MEAN)


def mixed(tables: Sequence[Table], shares) -> Table:
    """Return the autocorrelation of a sum of independent noises of these variances."""
    total = sum(v * np.array(table) for v, table in zip(shares, tables, strict=True))
    return tuple(map(tuple, total / np.sum(shares)))
