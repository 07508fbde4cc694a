"""Peaks of the power spectrum of a plane that stand out of what is around them."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.fft import rfft2

from napari_gpu_denoise.image.threads import number_of_workers

_FEWEST_CYCLES = 8  # over the plane; slower waves may be its shading
_AROUND = 17  # frequencies whose mean is what a peak is compared with
_LEAST_RATIO = 15.0  # of the power of a peak to that
_BAND = 128  # rows of the spectrum looked at at once
_APART = 3  # frequencies; a lower peak within these is the same


@lru_cache(maxsize=8)
def hann(count: int) -> np.ndarray:
    """Return the window of Hann, float32, read-only."""
    window = np.hanning(count).astype(np.float32)
    window.flags.writeable = False
    return window


def find_peaks(plane: np.ndarray, most: int) -> np.ndarray:
    """Return the frequencies of the highest peaks of a plane (y, x), float32.

    Returns
    -------
    ndarray, (peak, 2), float64
        Frequencies along y and x in cycles per pixel, the highest above its surroundings first; at
        most `most`.
    """
    ny, nx = plane.shape
    windowed = plane * hann(ny)[:, None]
    windowed *= hann(nx)
    spectrum = rfft2(windowed, overwrite_x=True, workers=number_of_workers())
    power = np.square(spectrum.real)
    power += np.square(spectrum.imag)
    largest = float(power.max())
    if not largest > 0 or not math.isfinite(largest):
        return np.zeros((0, 2))
    # The mean logarithm of the power of noise is 0.577 below that of its mean.
    by_chance = math.log(math.log(power.size) + 1) + 0.577
    ys, xs, ratio = _standing_out(power, largest, max(math.log(_LEAST_RATIO), by_chance))
    # Near a frequency of 0 or 1/2 along both axes, a wave cannot be told from its mirror image.
    sides = [np.minimum(2 * k % n, -2 * k % n) for k, n in ((ys, ny), (xs, nx))]
    slow = np.hypot(*sides) < 2 * _FEWEST_CYCLES
    half = (xs == 0) & (2 * ys >= ny)  # each is there twice
    keep = np.flatnonzero(~(slow | half))
    keep = keep[np.argsort(-ratio[keep], kind="stable")]
    found: list[int] = []
    while keep.size and len(found) < most:
        best = keep[0]
        found.append(best)
        same = np.zeros(len(keep), bool)
        for sign in (1, -1):  # it is there twice, too, where its other half is near x = 0
            away = (ys[keep] - sign * ys[best]) % ny
            same |= (np.minimum(away, ny - away) <= _APART) & (
                np.abs(xs[keep] - sign * xs[best]) <= _APART
            )
        keep = keep[~same]
    return _between(power, ys[found], xs[found], nx)


def _standing_out(
    power: np.ndarray, largest: float, least: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places (y, x) whose logarithm is `least` above the means around it, and by how much.

    Stripes are lines in the spectrum: a peak has to stand out of a square, and of lines along both
    axes. Few do of the line along y, so the others are looked at only where it does.
    """
    ny, width = power.shape
    reach = _AROUND // 2
    found = []
    for first in range(0, ny, _BAND):  # of rows, which stay in the cache
        count = min(_BAND, ny - first)
        # Along y the spectrum begins again at its end.
        near = np.arange(first - reach, first + count + reach) % ny
        level = power[near]
        np.log(np.maximum(level, 1e-12 * largest, out=level), out=level)
        sums = level[:-1] + level[1:]  # of 2, then of 4, 8 and 16
        for step in (2, 4, 8):
            sums = sums[:-step] + sums[step:]
        upright = sums[:count]
        upright += level[2 * reach :]
        upright *= np.float32(1 / _AROUND)
        level = level[reach : reach + count]
        places = np.flatnonzero(level - upright >= least)
        if not len(places):
            continue
        ys, xs = np.divmod(places, width)
        # It is mirrored at both ends of x.
        beside = np.abs(xs[:, None] + np.arange(-reach, reach + 1))
        beside = (width - 1) - np.abs((width - 1) - beside)
        around = np.maximum(upright[ys, xs], level[ys[:, None], beside].mean(axis=1))
        around = np.maximum(around, upright[ys[:, None], beside].mean(axis=1))
        ratio = level[ys, xs] - around
        some = ratio >= least
        found.append((first + ys[some], xs[some], ratio[some]))
    if not found:
        return (np.zeros(0, int),) * 2 + (np.zeros(0),)
    ys, xs, ratio = (np.concatenate(each) for each in zip(*found, strict=True))
    return ys, xs, ratio


def _between(power: np.ndarray, ys: np.ndarray, xs: np.ndarray, nx: int) -> np.ndarray:
    """Return the frequencies (peak, 2) of peaks, between those of the spectrum."""
    ny, last = power.shape[0], power.shape[1] - 1
    left = np.where(xs > 0, power[ys, xs - 1], power[-ys % ny, min(1, last)])
    right = np.where(xs < last, power[ys, np.minimum(xs + 1, last)], 0)
    middle = np.sqrt(power[ys, xs])
    shifts = []
    for before, after in ((power[ys - 1, xs], power[(ys + 1) % ny, xs]), (left, right)):
        before, after = np.sqrt(before), np.sqrt(after)
        shifts.append(2.0 * (after - before) / (before + 2 * middle + after))  # of such a window
    fy = np.where(2 * ys <= ny, ys, ys - ny)
    inside = (xs > 0) & (xs < last)
    return np.stack([(fy + shifts[0]) / ny, (xs + shifts[1] * inside) / nx], axis=1)
