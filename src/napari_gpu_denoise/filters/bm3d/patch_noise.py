"""What noise is in the spectra of patches that overlap."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

# Corrections of Haar's sums by the differences beside them that make the wavelet bior1.5.
_BESIDE = 11 / 64

APARTS = 12  # pixels from which on patches count as sharing no correlated noise
LEAST_POWER = 1e-3  # of correlated noise at any frequency, in units of its mean power
_FURTHEST = 13  # pixels from which on noise is independent
_PERIOD = 64  # pixels: more than twice what two patches that share noise span
_PROJECTIONS = 200


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


def extended_autocorrelation(autocorrelation) -> np.ndarray:
    """Return an autocorrelation as far as any patch needs it, of which the beginning is given.

    One that is cut off where it is not yet 0 belongs to no noise at all: its power spectrum would
    be negative at some frequencies. Of those that have at least `LEAST_POWER` of the mean power
    everywhere, are 0 from `_FURTHEST` on and begin as the given one, one near the cut one is found
    by projecting in turn on each of these. Where there is none the beginning gives way.

    Parameters
    ----------
    autocorrelation : array_like, (lags, lags)
        For displacements of 0, 1, ... pixels along y and x; 1 at no displacement. The noise is the
        same seen in a mirror.

    Returns
    -------
    ndarray of float64, shape (33, 33)
        For displacements of up to 32 pixels.

    References
    ----------
    A. Papoulis, "A new algorithm in spectral analysis and band-limited extrapolation", IEEE Trans.
    Circuits and Systems 22 (1975), for projections in turn, :doi:`10.1109/TCS.1975.1084118`.
    """
    found = np.zeros((_PERIOD // 2 + 1,) * 2)
    lags = len(autocorrelation)
    lag = np.arange(_PERIOD // 2 + 1)
    cosines = np.cos(2 * np.pi * np.outer(lag, lag) / _PERIOD)
    sums = cosines * np.where(lag % (_PERIOD // 2), 2.0, 1.0)  # all but the ends are there twice
    for _ in range(_PROJECTIONS):
        found[_FURTHEST:] = found[:, _FURTHEST:] = 0.0
        found[:lags, :lags] = autocorrelation
        power = np.maximum(sums @ found @ sums.T, LEAST_POWER)
        found = sums @ power @ sums.T / _PERIOD**2
    return found / found[0, 0]


@lru_cache(maxsize=32)
def covariances(name: str, autocorrelation: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Return the covariance of correlated noise in the spectra of two patches.

    Parameters
    ----------
    name : {"bior1.5", "dct", "haar", "dft"}
        The transform along y and x.
    autocorrelation : tuple of tuple of float, (5, 5)
        As for `extended_autocorrelation`.

    Returns
    -------
    ndarray of float64, shape (12, 12, 8, 8)
        By displacement of the patches along y and x, and coefficient along y and x, in sigma
        squared. Patches further apart are taken to share nothing. Kept for the next call: not to
        be written to.
    """
    matrix, lag = transform_matrix(name), np.arange(8)
    near = extended_autocorrelation(autocorrelation)
    apart = np.arange(APARTS)
    # How often pixels n of one patch and m of another that is so far away are so many pixels apart.
    between = np.abs(apart[:, None, None] + lag - lag[:, None])
    along = np.zeros((len(apart), 8, len(near)))
    for d, at in enumerate(between):
        for n in range(8):
            for m in range(8):
                along[d, :, at[n, m]] += matrix[:, n] * matrix[:, m]
    return np.einsum("dfk,kl,egl->defg", along, near, along, optimize=True)
