"""Covariance of the noise in the transforms of overlapping patches."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

# Corrections of Haar's sums by the differences beside them that make the wavelet bior1.5.
_BESIDE = 11 / 64

APARTS = 12  # displacement, in pixels, from which patches count as sharing no noise
LEAST_POWER = 1e-3  # of correlated noise at any frequency, relative to the mean power
_FURTHEST = 13  # distance, in pixels, from which noise is independent
_PERIOD = 64  # pixels: more than twice what two patches that share noise span
_PROJECTIONS = 200


def transform_matrix(name: str, length: int = 8) -> np.ndarray:
    """Return the matrix of a transform in `TRANSFORMS` of a line, with rows of unit norm.

    There are 1, 2, 4 or 8 values, 8 for the DFT. kernels/bm3d/patch_transform.h and
    kernels/bm4d/line_transform.h compute the same.
    """
    n, k = np.arange(length), np.arange(length)[:, None]
    if name == "dct":
        rows = np.cos(np.pi * k * (2 * n + 1) / (2 * length))
    elif name == "dft":
        turns = 2 * np.pi * n / 8
        waves = [wave(f * turns) for f in (1, 2, 3) for wave in (np.cos, np.sin)]
        rows = np.array([np.ones(8), *waves, (-1.0) ** n])
    else:
        rows = _wavelets(length, _BESIDE if name == "bior1.5" else 0.0)
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


def _wavelets(length: int, beside: float) -> np.ndarray:
    """Return the rows of a wavelet; of fewer than eight values all wavelets are Haar's."""
    if length == 1:
        return np.ones((1, 1))
    sums = np.repeat(np.eye(length // 2), 2, axis=1)
    differences = sums * (-1.0) ** np.arange(length)
    before, after = np.roll(differences, 1, axis=0), np.roll(differences, -1, axis=0)
    return np.vstack(
        [_wavelets(length // 2, 0.0) @ (sums - beside * (before - after)), differences]
    )


def correlations(name: str) -> np.ndarray:
    """Return how white noise correlates between the spectra of two patches along one axis.

    The shape is (9, 8), by displacement along that axis and coefficient: 1 without displacement, 0
    where patches lie side by side.
    """
    matrix = transform_matrix(name)
    return np.array([np.sum(matrix[:, d:] * matrix[:, : 8 - d], axis=1) for d in range(9)])


def extended_autocorrelation(autocorrelation) -> np.ndarray:
    """Extend an autocorrelation, given for displacements of 0, 1, ... along y and x, to 32 pixels.

    One that is cut off before it reaches 0 is not that of any noise: its power spectrum would be
    negative at some frequencies. By alternating projections (A. Papoulis, IEEE Trans. Circuits and
    Systems 22 (1975), :doi:`10.1109/TCS.1975.1084118`) a nearby one is found that has at least
    `LEAST_POWER` of the mean power at all frequencies, is 0 from `_FURTHEST` on and begins as
    given. If there is none, the given values change. The noise is symmetric along each axis.
    """
    found = np.zeros((_PERIOD // 2 + 1,) * 2)
    rows, columns = np.shape(autocorrelation)
    lag = np.arange(_PERIOD // 2 + 1)
    cosines = np.cos(2 * np.pi * np.outer(lag, lag) / _PERIOD)
    sums = cosines * np.where(lag % (_PERIOD // 2), 2.0, 1.0)  # all but the ends are there twice
    for _ in range(_PROJECTIONS):
        found[_FURTHEST:] = found[:, _FURTHEST:] = 0.0
        found[:rows, :columns] = autocorrelation
        power = np.maximum(sums @ found @ sums.T, LEAST_POWER)
        found = sums @ power @ sums.T / _PERIOD**2
    return found / found[0, 0]


@lru_cache(maxsize=32)
def covariances(name: str, autocorrelation: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Return the covariance of correlated noise in the spectra of two patches, in sigma squared.

    The shape is (12, 12, 8, 8), by displacement of the patches along y and x, and coefficient along
    y and x. Patches further apart count as sharing nothing. The array is cached: do not modify it.
    """
    along, near = products_at_distances(name), extended_autocorrelation(autocorrelation)
    return np.einsum("dfk,kl,egl->defg", along, near, along, optimize=True)


def products_at_distances(name: str, length: int = 8, apart: int = APARTS) -> np.ndarray:
    """Return sums of products of the coefficients' weights in two lines, by pixels between them.

    The shape is (apart, length, 33), by displacement of the lines, coefficient, and distance.
    """
    matrix, at = transform_matrix(name, length), np.arange(length)
    # Distance between pixel n of one line and pixel m of another, by their displacement.
    between = np.abs(np.arange(apart)[:, None, None] + at - at[:, None])
    along = np.zeros((apart, length, _PERIOD // 2 + 1))
    for d, distance in enumerate(between):
        for n, m in np.ndindex(length, length):
            along[d, :, distance[n, m]] += matrix[:, n] * matrix[:, m]
    return along
