"""The quick filters of volumes in NumPy, written to be read: sliding 3D DCT, and PRI-NLM."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

CUBES = {"4x4x4": (4, 4, 4), "2x4x8": (2, 4, 8), "1x8x8": (1, 8, 8)}


def dct_matrix(n: int) -> np.ndarray:
    """Return the orthonormal DCT-II of length n; its rows are the basis."""
    k, x = np.mgrid[:n, :n]
    matrix = np.sqrt(2 / n) * np.cos(np.pi * (2 * x + 1) * k / (2 * n))
    matrix[0] /= np.sqrt(2)
    return matrix


def dct3d(volume, sigma, cube="4x4x4", step=1, threshold=2.7) -> np.ndarray:
    """Denoise a volume (z, y, x), which is mirrored at its borders; the last voxel is repeated.

    `sigma` is a number, or broadcasts to the volume: a cube has the root mean square of its slices,
    each in the middle of the cube's rows and columns.
    """
    shape = CUBES[cube]
    # Cubes begin at multiples of the step, also outside; thin ones leave no gaps.
    steps = [min(step, c) for c in shape]
    every = tuple(slice(None, None, s) for s in steps)
    pads = [(-(-(c - 1) // s) * s, c - 1) for c, s in zip(shape, steps, strict=True)]
    sigma = np.broadcast_to(np.asarray(sigma, np.float64), np.shape(volume))
    wide, noise = (np.pad(np.asarray(a, np.float64), pads, "symmetric") for a in (volume, sigma))
    matrices = [dct_matrix(c) for c in shape]
    cubes = sliding_window_view(wide, shape)[every]
    spectra = np.einsum("...zyx,az,by,cx->...abc", cubes, *matrices, optimize=True)
    noise = sliding_window_view(noise, shape)[every]
    noise = noise[..., :, shape[1] // 2, shape[2] // 2]
    limit = threshold * np.sqrt(np.mean(noise**2, axis=-1))[..., None, None, None]
    kept = np.abs(spectra) > limit
    kept[..., 0, 0, 0] = True
    estimates = np.einsum("...abc,az,by,cx->...zyx", spectra * kept, *matrices, optimize=True)
    weights = 1 / kept.sum(axis=(-3, -2, -1))
    total, weight = np.zeros_like(wide), np.zeros_like(wide)
    for dz, dy, dx in np.ndindex(*shape):
        counts = zip((dz, dy, dx), cubes.shape, steps, strict=False)
        covered = tuple(slice(d, d + s * (n - 1) + 1, s) for d, n, s in counts)
        total[covered] += weights * estimates[..., dz, dy, dx]
        weight[covered] += weights
    inside = tuple(slice(b, b + n) for (b, _), n in zip(pads, np.shape(volume), strict=True))
    return total[inside] / weight[inside]


def neighbour_mean(volume) -> np.ndarray:
    """Return the mean of those of the 3 x 3 x 3 voxels around each that are in the volume."""
    around = sliding_window_view(np.pad(volume, 1, constant_values=np.nan), (3, 3, 3))
    return np.nanmean(around, axis=(-3, -2, -1))


def pri_nlm(volume, guide, sigma, window=11, window_z=11, strength=0.4) -> np.ndarray:
    """Average the voxels of a window by the similarity of the guide and its mean around them."""
    volume, guide = (np.asarray(one, np.float64) for one in (volume, guide))
    h = strength * np.broadcast_to(np.asarray(sigma, np.float64), volume.shape)
    mean = neighbour_mean(guide)
    radii = window_z // 2, window // 2, window // 2
    # Voxels outside are NaN, and have no weight.
    pads = [(r, r) for r in radii]
    around = [np.pad(one, pads, constant_values=np.nan) for one in (volume, guide, mean)]
    total, weight = np.zeros_like(volume), np.zeros_like(volume)
    for offset in np.ndindex(*(2 * r + 1 for r in radii)):
        region = tuple(slice(o, o + n) for o, n in zip(offset, volume.shape, strict=True))
        v, g, m = (one[region] for one in around)
        squares = (g - guide) ** 2 + 3 * (m - mean) ** 2
        w = np.where(np.isnan(squares), 0, np.exp(-np.nan_to_num(squares) / (4 * h**2)))
        total += w * np.nan_to_num(v)
        weight += w
    return total / weight
