"""How large offsets of rows are: what all pieces share, and how much of it is no image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.fft import dct, idct
from scipy.linalg import lapack
from scipy.ndimage import gaussian_filter, gaussian_filter1d, median_filter

from napari_gpu_denoise.noise.structure.rows import (
    Segments,
    deviation,
    differences,
    location,
    segments,
)

_FINER = 2  # times as many segments as to look for offsets
_ROUNDS, _STEPS, _ENOUGH = 6, 30, 1e-2  # reweighting; conjugate gradients, and their end
_NEAR = 3.0, 0.7  # rows and segments over which the scale of differences is averaged
_FLATTEST = 1e-3  # least and largest square of that scale: this and 1, of the noise of a segment
_LEAST_NOISE = 1e-2  # of a segment, of the variance of the offsets
_PADDING = 1e-6  # weight of what is not valid
_KEPT_SCALE = 8.0  # rows; smoother offsets are not part of the first guess
_LOOSE = 16.0  # times the variance of the offsets, for an estimate that is to be shrunk later
_LASTING = 15  # rows of the median that leaves steps, but not the offsets of single rows
_HIGH = 2.5  # times the deviation of offsets: a step in these medians that they do not make
_PARTS = 3  # of the width, whose estimates are compared
_WIDER = 1.5  # from one band of frequencies to the next
_STEEP, _SPREAD = 2.3, 0.7  # the power of image left falls as frequency ** -2.3, give or take
_SLOPES = np.linspace(1.0, 4.5, 15)
_CROSSINGS, _VARIANCES = 60, np.geomspace(0.5, 30.0, 60)

Smooth = Callable[[np.ndarray], np.ndarray]


def plane_offsets(planes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the offset of each row that planes (y, x) have in common, (row,), float32."""
    parts = [segments(np.ascontiguousarray(plane), _FINER) for plane in planes]
    return row_offsets(parts).astype(np.float32)


def row_offsets(parts: Sequence[Segments]) -> np.ndarray:
    """Return the offset of each row, (row,), with a mean of 0, that planes have in common.

    Planes are averaged. Each segment is a column of levels: a smooth image with sudden steps, the
    offsets of the rows, which all segments share, and noise. Differences along a segment follow a
    Cauchy law, whose scale is measured around each place, the offsets a normal law that is too
    wide. Image and offsets that are most probable together are found by reweighted least squares.
    These offsets also hold what all segments of the image have in common, most of it at low
    frequencies; `shrunk` leaves that in the image.
    """
    # Side by side, an object that stands still would count several times.
    means = np.mean([each.means for each in parts], axis=0)
    valid = np.all([each.valid for each in parts], axis=0)
    steps = differences(Segments(means, valid))
    shared = location(steps)
    variance = deviation(np.diff(shared)) ** 2 / 6
    if not variance > 0:
        return np.zeros(len(means))
    shared = np.nan_to_num(shared)
    # Of one segment; differences of neighbours have twice the variance.
    noise = max(deviation(steps - shared[:, None]) ** 2 / 2, _LEAST_NOISE * variance)
    profile = np.concatenate([[0.0], np.cumsum(shared)])
    edges = _edges(profile, variance)
    means, profile = means - edges[:, None], profile - edges
    found = profile - gaussian_filter1d(profile, _KEPT_SCALE, mode="nearest")
    # A segment that is padding all along still needs some level.
    weights = np.where(valid, 1.0, _PADDING) / noise
    image = gaussian_filter1d(means - found[:, None], 3.0, axis=0, mode="nearest")
    for _ in range(_ROUNDS):
        links = _links(image, noise)
        found, image = most_probable(means, weights, links, _LOOSE * variance, found)
    count = means.shape[1]
    thirds = []
    for k in range(_PARTS):
        some = slice(count * k // _PARTS, count * (k + 1) // _PARTS)
        given = means[:, some], weights[:, some], links[:, some]
        thirds.append(most_probable(*given, _LOOSE * variance, found)[0])
    return shrunk(found, thirds, variance)


def _edges(profile: np.ndarray, variance: float) -> np.ndarray:
    """Return the staircase of steps that last and are too high for offsets: a horizon, say."""
    lasting = median_filter(profile, _LASTING, mode="nearest")
    steps = np.diff(lasting, prepend=lasting[:1])
    return np.cumsum(np.where(np.abs(steps) > _HIGH * math.sqrt(variance), steps, 0.0))


def _links(image: np.ndarray, noise: float) -> np.ndarray:
    """Return the weight of each difference along the rows, (row - 1, segment)."""
    squares = np.diff(image, axis=0) ** 2
    around = gaussian_filter(squares, _NEAR, mode="nearest")
    return 1 / (np.clip(around, _FLATTEST * noise, noise) + squares)


def most_probable(
    means: np.ndarray, weights: np.ndarray, links: np.ndarray, variance: float, found: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets (row,) and image (row, segment) that are most probable at given weights.

    `variance` is that of the offsets. The image is eliminated: for given offsets it is a set of
    tridiagonal systems. Offsets are found by conjugate gradients from `found`, preconditioned by
    what the system would be if all rows had the same weights.
    """
    ny, count = means.shape
    main, beside = weights.T.copy(), np.zeros((count, ny))
    main[:, :-1] += links.T
    main[:, 1:] += links.T
    beside[:, :-1] = -links.T
    # All segments are one banded system, without links from one to the next.
    factors = lapack.dpttrf(main.ravel(), beside.ravel()[:-1])[:2]

    def smooth(levels: np.ndarray) -> np.ndarray:
        given = (weights * levels).T.reshape(-1, 1)
        return lapack.dpttrs(*factors, given)[0].reshape(count, ny).T

    def applied(values: np.ndarray) -> np.ndarray:
        levels = np.repeat(values[:, None], count, axis=1)
        return values / variance + (weights * (levels - smooth(levels))).sum(axis=1)

    curved = 4 * np.sin(np.pi * np.arange(ny)[:, None] / (2 * ny)) ** 2
    curved = curved / (1 / links).mean(axis=0)
    typical = weights.mean(axis=0)
    precision = 1 / variance + (typical * curved / (typical + curved)).sum(axis=1)

    def nearly_solved(values: np.ndarray) -> np.ndarray:
        return idct(dct(values, norm="ortho") / precision, norm="ortho")

    wanted = (weights * (means - smooth(means))).sum(axis=1)
    found = _conjugate_gradients(applied, nearly_solved, wanted, found)
    return found, smooth(means - found[:, None])


def _conjugate_gradients(
    applied: Smooth, nearly_solved: Smooth, wanted: np.ndarray, found: np.ndarray
) -> np.ndarray:
    """Solve a symmetric positive system, nearly."""
    rest = wanted - applied(found)
    way = better = nearly_solved(rest)
    left, end = rest @ better, _ENOUGH**2 * (wanted @ nearly_solved(wanted))
    for _ in range(_STEPS):
        if left <= end:
            break
        image = applied(way)
        step = left / (way @ image)
        found, rest = found + step * way, rest - step * image
        better = nearly_solved(rest)
        left, before = rest @ better, left
        way = better + left / before * way
    return found


def shrunk(found: np.ndarray, parts: Sequence[np.ndarray], variance: float) -> np.ndarray:
    """Return offsets shrunk at each frequency by what is image or noise of it (Wiener), mean 0.

    Offsets of rows that are independent of each other have the same power at all frequencies. Noise
    is what estimates from parts of the image do not share. What the image adds falls with some
    power of the frequency. Both powers and the exponent are those under which the spectrum of
    `found` is most probable (Whittle). `variance` is a first guess.
    """
    ny = len(found)
    edges = _band_edges(ny)
    counts = np.diff(edges)

    def power(values: np.ndarray) -> np.ndarray:
        squares = dct(values, norm="ortho") ** 2
        return np.add.reduceat(squares[: edges[-1]], edges[:-1]) / counts

    apart = [power(a - b) for k, a in enumerate(parts) for b in parts[:k]]
    noise = _falling(np.mean(apart, axis=0) / (2 * len(parts)), counts)
    middles = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    seen = power(found)
    crossings = np.geomspace(0.03, ny / 3, _CROSSINGS)[:, None, None]
    variances = variance * _VARIANCES[:, None]
    best, least = None, np.inf
    for slope in _SLOPES:
        left = noise + variance * (middles / crossings) ** -slope
        total = variances + left
        cost = (counts * (np.log(total) + seen / total)).sum(axis=-1)
        cost += ((slope - _STEEP) / _SPREAD) ** 2
        at = np.unravel_index(cost.argmin(), cost.shape)
        if cost[at] < least:
            best, least = (slope, crossings[at[0], 0, 0], variances[at[1], 0]), cost[at]
    slope, crossing, offsets = best
    frequency = np.arange(1, ny)
    rest = np.exp(np.interp(np.log(frequency), np.log(middles), np.log(noise)))
    rest += variance * (frequency / crossing) ** -slope
    gains = np.concatenate([[0.0], offsets / (offsets + rest)])
    return idct(gains * dct(found, norm="ortho"), norm="ortho")


def _band_edges(count: int) -> np.ndarray:
    """Return where bands of frequencies 1, 2, ... begin, and the end of the last."""
    edges = [1]
    while edges[-1] < count:
        edges.append(max(edges[-1] + 1, round(edges[-1] * _WIDER)))
    # What is left for the last one joins the one before.
    return np.array([*(edge for edge in edges[:-2]), count])


def _falling(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the nearest values that do not rise (pool adjacent violators), above 0."""
    pools: list[list[float]] = []
    for value, count in zip(values, counts, strict=True):
        pools.append([value, count, 1])
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (b, nb, kb), (a, na, ka) = pools.pop(), pools.pop()
            pools.append([(a * na + b * nb) / (na + nb), na + nb, ka + kb])
    found = np.concatenate([np.full(int(k), value) for value, _, k in pools])
    return np.maximum(found, np.finfo(np.float64).tiny)
