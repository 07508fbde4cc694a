"""What noise is in the spectra of patches that overlap."""

from __future__ import annotations

import numpy as np

# Corrections of Haar's sums by the differences beside them that make the wavelet bior1.5.
_BESIDE = 11 / 64


def transform_matrix(name: str) -> np.ndarray:
    """Return the transform of eight values, as kernels/bm3d/patch_transform.h computes it.

    Parameters
    ----------
    name : {"bior1.5", "dct", "haar", "dft"}

    Returns
    -------
    ndarray of float64, shape (8, 8)
        Rows of unit norm.
    """
    n, k = np.arange(8), np.arange(8)[:, None]
    if name == "dct":
        rows = np.cos(np.pi * k * (2 * n + 1) / 16)
    elif name == "dft":
        turns = 2 * np.pi * n / 8
        waves = [wave(f * turns) for f in (1, 2, 3) for wave in (np.cos, np.sin)]
        rows = np.array([np.ones(8), *waves, (-1.0) ** n])
    else:
        pairs = np.repeat(np.eye(4), 2, axis=1)
        differences = pairs * (-1.0) ** n
        sums = pairs.copy()
        if name == "bior1.5":
            before, after = np.roll(differences, 1, axis=0), np.roll(differences, -1, axis=0)
            sums -= _BESIDE * (before - after)
        halves = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]])
        rows = np.vstack([halves @ sums, differences])
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


def correlations(name: str) -> np.ndarray:
    """Return how white noise correlates between the spectra of two overlapping patches.

    Parameters
    ----------
    name : {"bior1.5", "dct", "haar", "dft"}
        The transform along one axis.

    Returns
    -------
    ndarray of float64, shape (9, 8)
        By displacement of the patches along that axis, and coefficient: 1 without displacement, 0
        where patches lie side by side.
    """
    matrix = transform_matrix(name)
    return np.array([np.sum(matrix[:, d:] * matrix[:, : 8 - d], axis=1) for d in range(9)])
