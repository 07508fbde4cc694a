"""Covariance of the noise in the transforms of overlapping cubes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from napari_gpu_denoise.filters.bm3d.patch_noise import (
    extended_autocorrelation,
    products_at_distances,
    transform_matrix,
)
from napari_gpu_denoise.filters.bm4d.cube_settings import CUBE, CubeSpectrum
from napari_gpu_denoise.noise.correlation import LAGS


def share_sides(cube: tuple[int, int, int], spectra: tuple[CubeSpectrum, ...]) -> tuple[int, ...]:
    """Return the displacements along z, y, x at which two cubes share noise, 0 included."""
    z, y, x = cube
    if not spectra:
        return cube
    deep = any(any(one.along_z[1:]) for one in spectra)
    return z + LAGS * deep, y + LAGS, x + LAGS


def shared_noise(
    name: str, cube: tuple[int, int, int], spectra: tuple[CubeSpectrum, ...] = ()
) -> np.ndarray:
    """Return the covariance of noise in each coefficient of two cubes, in sigma squared.

    The shape is (spectra, displacements + 1, 64), white noise being one spectrum; displacements, as
    many as the product of `share_sides`, and coefficients are in the order (z, y, x). The last row,
    for cubes that share no noise, is 0.
    """
    sides = share_sides(cube, spectra)
    if spectra:
        tables = [_correlated(name, cube, sides, one) for one in spectra]
    else:
        table = np.ones((1, 1))
        for length in cube:
            matrix = transform_matrix(name, length)
            along = np.array(
                [np.sum(matrix[:, d:] * matrix[:, : length - d], axis=1) for d in range(length)]
            )
            table = np.kron(table, along)
        tables = [table]
    return np.stack([np.vstack([table, np.zeros(CUBE)]) for table in tables])


@lru_cache(maxsize=32)
def _correlated(
    name: str, cube: tuple[int, int, int], sides: tuple[int, ...], spectrum: CubeSpectrum
) -> np.ndarray:
    """Return the table of one spectrum. The array is cached: do not modify it."""
    each = zip(cube, sides, strict=True)
    deep, down, across = (products_at_distances(name, *lengths) for lengths in each)
    column = extended_autocorrelation(np.reshape(spectrum.along_z, (-1, 1)))[:, 0]
    plane = extended_autocorrelation(spectrum.plane)
    found = np.einsum("cfj,j,dgk,kl,ehl->cdefgh", deep, column, down, plane, across, optimize=True)
    return found.reshape(-1, CUBE)
