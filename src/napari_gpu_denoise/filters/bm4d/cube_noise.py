"""Covariance of white noise in the transforms of overlapping cubes."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.filters.bm3d.patch_noise import transform_matrix
from napari_gpu_denoise.filters.bm4d.cube_settings import CUBE


def shared_noise(name: str, cube: tuple[int, int, int]) -> np.ndarray:
    """Return the covariance of white noise in each coefficient of two cubes, in sigma squared.

    The shape is (65, 64), by displacement and coefficient, each in the order (z, y, x); the last
    row, for cubes that share no voxel, is 0.
    """
    table = np.ones((1, 1))
    for length in cube:
        matrix = transform_matrix(name, length)
        along = np.array(
            [np.sum(matrix[:, d:] * matrix[:, : length - d], axis=1) for d in range(length)]
        )
        table = np.kron(table, along)
    return np.vstack([table, np.zeros(CUBE)])
