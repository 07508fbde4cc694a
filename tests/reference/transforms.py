"""The transforms of BM3D as small matrices: a row for each coefficient, the mean first."""

from __future__ import annotations

from functools import cache, reduce

import numpy as np

PATCH = 8

HAAR_LOW = np.array([1, 1]) / np.sqrt(2)
# Cohen, Daubechies, Feauveau 1992, N = 1 and 5: the analysis low-pass beside Haar's high-pass.
BIOR_LOW = np.array([3, -3, -22, 22, 128, 128, 22, -22, -3, 3]) / 256 * np.sqrt(2)


@cache
def transform_matrix(name: str) -> np.ndarray:
    """Return the 8 x 8 transform "dct", "haar", "bior1.5" or "dft"; rows have the norm 1.

    Wavelets go from coarse to fine; the rows of the Fourier transform are mean, cosine and sine of
    the frequencies 1, 2, 3, and the alternating one.
    """
    if name == "dct":
        return dct_matrix(PATCH)
    if name == "dft":
        angle = np.outer(np.arange(1, PATCH // 2), 2 * np.pi / PATCH * np.arange(PATCH))
        waves = np.stack([np.cos(angle), np.sin(angle)], axis=1).reshape(-1, PATCH)
        return unit_rows(np.vstack([np.ones(PATCH), waves, (-1.0) ** np.arange(PATCH)]))
    return unit_rows(wavelet_matrix(PATCH, {"haar": HAAR_LOW, "bior1.5": BIOR_LOW}[name]))


@cache
def inverse_matrix(name: str) -> np.ndarray:
    return np.linalg.inv(transform_matrix(name))


@cache
def stack_matrix(name: str, m: int) -> np.ndarray:
    """Return the m x m transform "haar" or "hadamard", orthonormal; m is a power of two."""
    if name == "haar":
        return wavelet_matrix(m, HAAR_LOW)
    matrix = np.ones((1, 1))
    while len(matrix) < m:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return unit_rows(matrix)


def dct_matrix(length: int) -> np.ndarray:
    k = np.arange(length)
    return unit_rows(np.cos(np.pi / length * np.outer(k, k + 0.5)))


def wavelet_matrix(length: int, low: np.ndarray) -> np.ndarray:
    """Return the periodised analysis with a low-pass and Haar's high-pass: coarse rows first."""
    smooth, details = np.eye(length), []
    while len(smooth) > 1:
        details.insert(0, (smooth[0::2] - smooth[1::2]) / np.sqrt(2))
        first = 1 - len(low) // 2  # the filter is centred between the pixels 0 and 1
        taps = [weight * np.roll(smooth, -(first + k), axis=0) for k, weight in enumerate(low)]
        smooth = np.sum(taps, axis=0)[0::2]
    return np.vstack([smooth, *details])


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def line_matrix(name: str, length: int) -> np.ndarray:
    """Return the transform of a line of 1, 2, 4 or 8 values; rows have the norm 1."""
    if length == 8:
        return transform_matrix(name)
    return dct_matrix(length) if name == "dct" else wavelet_matrix(length, HAAR_LOW)


@cache
def cube_matrix(name: str, sides: tuple[int, ...]) -> np.ndarray:
    """Return the transform of the voxels of a cube, as they lie in memory, along all its axes."""
    return reduce(np.kron, (line_matrix(name, side) for side in sides))
