"""BM4D in NumPy, written to be read: Maggioni et al. 2013, with the noise that cubes share.

Grouping, shrinkage and aggregation are those of `reference.bm3d`, with cubes in place of patches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from reference.block_matching import as_kernels_know
from reference.bm3d import LEAST_VARIANCE, SMALLEST_SIGMA, shrink_hard, shrink_wiener
from reference.bm4d_correlated import correlated_variances, mean_variance
from reference.transforms import line_matrix, stack_matrix

CUBES = {"4x4x4": (4, 4, 4), "2x4x8": (2, 4, 8), "1x8x8": (1, 8, 8)}


@dataclass(frozen=True)
class Cube:
    """A cube of a group: its first voxel, and its mean squared difference to the reference."""

    place: tuple[int, int, int]
    d2: float


def bm4d(volume, sigma, settings, *, exact: bool = True) -> np.ndarray:
    """Denoise a volume (z, y, x), no side of which is shorter than that of a cube.

    `sigma` broadcasts to the volume. `settings` has the attributes of ``filters.bm4d.BM4D``, with
    the cube chosen; `exact` is as in `reference.block_matching.find_matches`.
    """
    volume = np.asarray(volume, np.float64)
    sigma = np.broadcast_to(np.asarray(sigma, np.float64), volume.shape)
    estimate = None
    for one in settings.passes.values():
        estimate = one_pass(volume, sigma, one, estimate, exact)
    return estimate


def one_pass(noisy, sigma, one, estimate=None, exact: bool = True) -> np.ndarray:
    """Filter a volume once; an estimate is searched in its place, and guides a Wiener filter."""
    searched = noisy if estimate is None else estimate
    total, weights = np.zeros(noisy.shape), np.zeros(noisy.shape)
    windows = [np.kaiser(side, one.kaiser) for side in one.cube]
    kaiser = np.einsum("z,y,x->zyx", *windows)
    matrices = [line_matrix(one.transform, side) for side in one.cube]
    inverses = [np.linalg.inv(matrix) for matrix in matrices]
    for place in reference_cubes(noisy.shape, one):
        limit = one.similar * middle(sigma, place, one.cube) ** 2
        group = find_cubes(searched, place, one, limit, exact)
        group = group[: 2 ** (len(group).bit_length() - 1)]
        level = noisy[place]
        own = np.sqrt(np.mean([middle(sigma, cube.place, one.cube) ** 2 for cube in group]))
        along = stack_matrix(one.stack, len(group))

        def spectrum(image, group=group, level=level, own=own, along=along):
            cubes = np.array([image[region(c.place, one.cube)] for c in group])
            cubes = (cubes - level) / max(own, SMALLEST_SIGMA)
            return np.einsum("kj,jzyx,az,by,cx->kabc", along, cubes, *matrices, optimize=True)

        variance = variances(group, one, matrices, along)
        if not one.wiener:
            removed, weight = hard(spectrum(noisy), one.threshold, variance)
        else:
            removed, weight = wiener(
                spectrum(noisy), spectrum(estimate), one.threshold**2, variance
            )
        weight = weight * mean_variance(one)
        cubes = np.einsum("kj,kabc,za,yb,xc->jzyx", along, removed, *inverses, optimize=True)
        for cube, taken in zip(group, cubes, strict=True):
            at = region(cube.place, one.cube)
            total[at] += own * weight * kaiser * taken
            weights[at] += weight * kaiser
    return noisy - total / weights


def hard(spectrum, threshold: float, variance):
    """Threshold as in BM3D, on spectra with one axis more."""
    flat = spectrum.reshape(len(spectrum), -1, 1)
    removed, weight = shrink_hard(flat, threshold, flattened(variance, flat))
    return removed.reshape(spectrum.shape), weight


def wiener(spectrum, guide, strength: float, variance):
    """Filter as in BM3D, on spectra with one axis more."""
    flat = spectrum.reshape(len(spectrum), -1, 1)
    guide = guide.reshape(flat.shape)
    removed, weight = shrink_wiener(flat, guide, strength, flattened(variance, flat))
    return removed.reshape(spectrum.shape), weight


def flattened(variance, flat):
    return variance if np.ndim(variance) == 0 else np.reshape(variance, flat.shape)


def reference_cubes(shape, one) -> Iterator[tuple[int, int, int]]:
    """Yield where reference cubes begin: on a grid, and at the last place of each axis."""
    axes = []
    for length, side, step in zip(shape, one.cube, one.steps, strict=True):
        last = length - side
        axes.append(sorted({*range(0, last + 1, step), last}))
    return itertools.product(*axes)


def find_cubes(image, place, one, limit: float, exact: bool) -> list[Cube]:
    """Return the cubes most similar to the one at `place`, which comes first.

    Among equal ones the nearer one comes first, then by dz, dy, dx.
    """
    starts, ends = [], []
    for at, length, side, width in zip(place, image.shape, one.cube, one.windows, strict=True):
        starts.append(max(at - width // 2, 0))
        ends.append(min(at + width // 2, length - side) + side)
    part = image[tuple(slice(*pair) for pair in zip(starts, ends, strict=True))]
    cubes = sliding_window_view(part, one.cube)
    difference = cubes - image[region(place, one.cube)]
    d2 = np.square(difference).mean(axis=(3, 4, 5))
    offsets = np.indices(d2.shape).reshape(3, -1).T + np.array(starts) - np.array(place)
    d2 = d2.ravel()
    known = d2 if exact else as_kernels_know(d2, int(np.prod(one.windows)))
    dz, dy, dx = offsets.T
    order = np.lexsort((dx, dy, dz, (offsets**2).sum(axis=1), known))
    similar = order[(known[order] <= limit) | (order == order[0])][: one.neighbours]
    return [Cube(tuple(int(n) for n in place + offsets[k]), float(d2[k])) for k in similar]


def variances(group: list[Cube], one, matrices, along) -> np.ndarray | float:
    """Return the variance of the noise, in sigma squared, in the spectrum of a group."""
    if one.spectra:
        return correlated_variances([cube.place for cube in group], one, along)
    return noise_variances(group, one, matrices, along) if one.shared_noise else 1.0


def noise_variances(group: list[Cube], one, matrices, along) -> np.ndarray:
    """Return the variance of white noise, in sigma squared, in the spectrum of a group."""
    places = np.array([cube.place for cube in group])
    common = np.ones((len(group), len(group), 1, 1, 1))
    for axis, matrix in enumerate(matrices):
        side = len(matrix)
        apart = np.abs(places[:, None, axis] - places[None, :, axis])
        table = np.zeros((max(apart.max(), side) + 1, side))
        for d in range(side):
            table[d] = np.sum(matrix[:, d:] * matrix[:, : side - d], axis=1)
        factor = [1, 1, 1]
        factor[axis] = side
        common = common * table[apart].reshape(*apart.shape, *factor)
    variance = np.einsum("kp,pqabc,kq->kabc", along, common, along, optimize=True)
    return np.maximum(variance, LEAST_VARIANCE)


def middle(sigma, place, sides) -> float:
    """Return sigma in the middle of a cube."""
    return sigma[tuple(at + side // 2 for at, side in zip(place, sides, strict=True))]


def region(place, sides) -> tuple[slice, ...]:
    return tuple(slice(at, at + side) for at, side in zip(place, sides, strict=True))
