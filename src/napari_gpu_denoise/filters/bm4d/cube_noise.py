"""Covariance of white noise in the transforms of overlapping cubes."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.filters.bm3d.patch_noise import transform_matrix
from napari_gpu_denoise.filters.bm4d.cube_settings import CUBE


def line_matrix(name: str, length: int) -> np.ndarray:
    """Return the (length, length) matrix of a transform, with rows of unit norm.

    kernels/bm4d/line_transform.h computes the same.
    """
    if length == 8:
        return transform_matrix(name)
    if name == "dct":
        n, k = np.arange(length), np.arange(length)[:, None]
        rows = np.cos(np.pi * k * (2 * n + 1) / (2 * length))
    else:  # of so few values all wavelets are Haar's
        rows = {
            1: np.ones((1, 1)),
            2: np.array([[1, 1], [1, -1]]),
            4: np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]),
        }[length]
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


def shared_noise(name: str, cube: tuple[int, int, int]) -> np.ndarray:
    """Return the covariance of white noise in each coefficient of two cubes, in sigma squared.

    The shape is (65, 64), by displacement and coefficient, each in the order (z, y, x); the last
    row, for cubes that share no voxel, is 0.
    """
    table = np.ones((1, 1))
    for length in cube:
        matrix = line_matrix(name, length)
        along = np.array(
            [np.sum(matrix[:, d:] * matrix[:, : length - d], axis=1) for d in range(length)]
        )
        table = np.kron(table, along)
    return np.vstack([table, np.zeros(CUBE)])
