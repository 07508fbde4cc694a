"""Offsets of rows, as in docs/methods/structured_noise.md, written to be read: dense and slow."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from scipy.fft import dct, idct
from scipy.ndimage import gaussian_filter, gaussian_filter1d, median_filter


def piece_means(plane: np.ndarray, count: int) -> np.ndarray:
    """Cut each row into `count` pieces, and return their means, (row, piece)."""
    nx = plane.shape[1]
    cuts = [k * nx // count for k in range(count)] + [nx]
    return np.stack([plane[:, a:b].mean(axis=1) for a, b in pairwise(cuts)], axis=1)


def spread(values: np.ndarray) -> float:
    """Return a standard deviation from the median deviation."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def row_offsets(means: np.ndarray) -> np.ndarray:
    """Return the offset of each row of an image given by the means of pieces of its rows."""
    steps = np.diff(means, axis=0)
    quarter = steps.shape[1] // 4
    shared = np.sort(steps, axis=1)[:, quarter : steps.shape[1] - quarter].mean(axis=1)
    # Second differences of independent offsets have six times their variance.
    variance = spread(np.diff(shared)) ** 2 / 6
    noise = max(spread(steps - shared[:, None]) ** 2 / 2, 0.01 * variance)
    profile = np.concatenate([[0.0], np.cumsum(shared)])

    # Steps of the whole image that last and are too high for offsets belong to the image.
    lasting = median_filter(profile, 15, mode="nearest")
    jumps = np.diff(lasting, prepend=lasting[0])
    stairs = np.cumsum(np.where(np.abs(jumps) > 2.5 * math.sqrt(variance), jumps, 0))
    means, profile = means - stairs[:, None], profile - stairs

    found = profile - gaussian_filter1d(profile, 8, mode="nearest")
    image = gaussian_filter1d(means - found[:, None], 3, axis=0, mode="nearest")
    for _ in range(6):
        squares = np.diff(image, axis=0) ** 2
        around = gaussian_filter(squares, (3, 0.7), mode="nearest")
        links = 1 / (np.clip(around, 1e-3 * noise, noise) + squares)
        found, image = least_squares(means, noise, links, 16 * variance)
    count = means.shape[1]
    thirds = []
    for k in range(3):
        some = slice(count * k // 3, count * (k + 1) // 3)
        thirds.append(least_squares(means[:, some], noise, links[:, some], 16 * variance)[0])
    return shrunk(found, thirds, variance)


def least_squares(
    means: np.ndarray, noise: float, links: np.ndarray, variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets o and the image u of least cost, by one dense system.

    The cost is the sum of (means - u - o)² / noise, links (difference of u along y)² and
    o² / variance.
    """
    ny, count = means.shape
    size = ny * count
    number = np.arange(size).reshape(ny, count)
    system, right = np.zeros((size + ny, size + ny)), np.zeros(size + ny)
    for y in range(ny):
        offset = size + y
        system[offset, offset] += 1 / variance
        for x in range(count):
            for a in (number[y, x], offset):
                right[a] += means[y, x] / noise
                for b in (number[y, x], offset):
                    system[a, b] += 1 / noise
            if y + 1 < ny:
                here, below = number[y, x], number[y + 1, x]
                for a, b, sign in ((here, here, 1), (below, below, 1), (here, below, -1)):
                    system[a, b] += sign * links[y, x]
                    if a != b:
                        system[b, a] += sign * links[y, x]
    solved = np.linalg.solve(system, right)
    return solved[size:], solved[:size].reshape(ny, count)


def shrunk(found: np.ndarray, thirds: list[np.ndarray], variance: float) -> np.ndarray:
    """Shrink each frequency by offsets / (offsets + noise + image), all three powers fitted."""
    ny = len(found)
    edges = sorted({round(ny ** (k / 14)) for k in range(15)})
    bands = list(pairwise(edges))

    def power(values: np.ndarray) -> np.ndarray:
        transformed = dct(values, norm="ortho")
        return np.array([np.mean(transformed[a:b] ** 2) for a, b in bands])

    first, second, third = thirds
    apart = power(first - second) + power(second - third) + power(first - third)
    # A difference has twice the noise of a third, which has three times that of all.
    noise = falling(apart / 3 / 2 / 3, np.array([b - a for a, b in bands]))
    middles = np.array([math.sqrt(a * (b - 1)) for a, b in bands])
    seen = power(found)
    best = None
    for crossing in np.geomspace(0.03, ny / 3, 60):
        for offsets in variance * np.geomspace(0.5, 30, 60):
            total = offsets + noise + variance * (middles / crossing) ** -2.3
            cost = sum(
                (b - a) * (math.log(t) + s / t)
                for (a, b), t, s in zip(bands, total, seen, strict=True)
            )
            if best is None or cost < best[0]:
                best = cost, crossing, offsets
    _, crossing, offsets = best
    transformed = dct(found, norm="ortho")
    transformed[0] = 0.0
    for k in range(1, ny):
        left = math.exp(np.interp(math.log(k), np.log(middles), np.log(noise)))
        left += variance * (k / crossing) ** -2.3
        transformed[k] *= offsets / (offsets + left)
    return idct(transformed, norm="ortho")


def falling(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the nearest sequence that does not rise: least squares, weighted by `counts`.

    It is the least, over all beginnings up to here, of the largest mean of values from there on.
    """
    result = []
    for k in range(len(values)):
        means = [
            max(
                np.average(values[a : b + 1], weights=counts[a : b + 1])
                for b in range(k, len(values))
            )
            for a in range(k + 1)
        ]
        result.append(min(means))
    return np.array(result)
