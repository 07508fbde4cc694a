"""Exact pixelwise NL-means, slow and plain: what the kernels have to compute.

B. Goossens et al., "A GPU-accelerated real-time NLMeans algorithm for denoising color video
sequences", 2010, sections 2.2 to 2.5; for plain weights and Gaussian patches A. Buades et al. 2005.
Images are arrays (c, t, z, y, x). What the papers leave open is settled here ("convention").
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def patch_weights(width: int, shape: str = "box") -> np.ndarray:
    """Return the weights of the pixels of a patch along one axis; their sum is 1."""
    places = np.arange(width) - width // 2
    weights = np.exp(-(places**2) / 2) if shape == "gaussian" else np.ones(width)
    return weights / weights.sum()


def distance_weights(distance, strength: float, weights: str) -> np.ndarray:
    """Return the weights of distances in units of sigma squared.

    Convention: weights below the smallest normal number of single precision are 0.
    """
    if weights == "bisquare":
        return np.maximum(1 - distance / strength**2, 0) ** 2
    excess = np.maximum(distance - 2, 0) if weights == "exp" else distance
    found = np.exp(-excess / strength**2)
    return np.where(found > 2.0**-126, found, 0)


def patch_means(squares: np.ndarray, taps: list[np.ndarray]) -> np.ndarray:
    """Return weighted means over the patches (z, y, x) that lie wholly inside an array."""
    for axis, weights in zip((-3, -2, -1), taps, strict=True):
        squares = sliding_window_view(squares, len(weights), axis) @ weights
    return squares


def weights_by_offset(
    compared, sigma, taps, *, strength, weights, window, slices=0, frames=(0, 0), offsets=None
):
    """Yield (dt, dz, dy, dx) and the weights (t, z, y, x) of what lies there, 0 outside.

    `compared` is (c, t, z, y, x); `sigma` broadcasts to it and is that of the pixel filtered.
    Convention: patches are mirrored at the borders, the last pixel repeated, but only pixels
    inside the image are averaged, each once. Channels without noise are not compared, unless it is
    the only one.
    """
    _, nt, *lengths = compared.shape
    sigma = np.broadcast_to(np.asarray(sigma, np.float64), compared.shape)
    told = sigma if len(compared) == 1 else np.where(sigma > 0, sigma, np.inf)
    units = 1 / np.maximum(told, 1e-15)
    units = units / np.sqrt(np.maximum(np.isfinite(told).sum(axis=0), 1))
    pads = [(len(one) // 2,) * 2 for one in taps]
    mirrored = np.pad(compared, [(0, 0), (0, 0), *pads], "symmetric")
    reaches = slices, window // 2, window // 2
    wide = np.pad(mirrored, [(0, 0), (0, 0), *((r, r) for r in reaches)], constant_values=np.nan)
    here = np.pad(
        np.zeros(lengths), [(r, r) for r in reaches], constant_values=np.nan
    )  # NaN outside
    for dt in range(-frames[0], frames[1] + 1):
        for d in product(*(range(-r, r + 1) for r in reaches)):
            found = np.zeros(compared.shape[1:])
            starts = [r + o for r, o in zip(reaches, d, strict=True)]
            inside = tuple(slice(s, s + n) for s, n in zip(starts, lengths, strict=True))
            there = np.isfinite(here[inside])
            patches = tuple(
                slice(s, s + n + 2 * p[0]) for s, n, p in zip(starts, lengths, pads, strict=True)
            )
            for t in range(nt):
                if not 0 <= t + dt < nt:
                    continue
                squares = np.nan_to_num(wide[(slice(None), t + dt, *patches)] - mirrored[:, t]) ** 2
                distance = sum(
                    patch_means(one, taps) * unit[t] ** 2
                    for one, unit in zip(squares, units, strict=True)
                )
                found[t] = np.where(there, distance_weights(distance, strength, weights), 0)
            yield (dt, *d), found


def pixelwise(
    image,
    sigma,
    *,
    patch: int = 5,
    window: int = 13,
    strength: float = 0.75,
    weights: str = "exp",
    shape: str = "box",
    patch_slices: int = 0,
    slices: int = 0,
    frames_before: int = 0,
    frames_after: int = 0,
    pixels: bool = False,
) -> np.ndarray:
    """Denoise an image (c, t, z, y, x), all channels by the same weights.

    `sigma` broadcasts to it. The pixel itself has a weight of 1. With `pixels`, return the number
    of pixels averaged, ``(sum of weights)**2 / (sum of squared weights)``, in place of the mean.
    """
    image = np.asarray(image, np.float64)
    flat = patch_weights(patch, shape)
    taps = [patch_weights(2 * patch_slices + 1, shape), flat, flat]
    nt, lengths = image.shape[1], image.shape[2:]
    total, squares = np.zeros(image.shape[1:]), np.zeros(image.shape[1:])
    summed = np.zeros(image.shape)
    for (dt, *d), found in weights_by_offset(
        *(image, sigma, taps),
        strength=strength,
        weights=weights,
        window=window,
        slices=slices,
        frames=(frames_before, frames_after),
    ):
        if (dt, *d) == (0, 0, 0, 0):
            continue
        for t in range(max(0, -dt), min(nt, nt - dt)):
            to = tuple(
                slice(max(0, -o), max(n - max(0, o), 0)) for o, n in zip(d, lengths, strict=True)
            )
            of = tuple(
                slice(max(0, o), max(n + min(0, o), 0)) for o, n in zip(d, lengths, strict=True)
            )
            summed[(slice(None), t, *to)] += found[(t, *to)] * image[(slice(None), t + dt, *of)]
        total += found
        squares += found**2
    if pixels:
        return ((total + 1) ** 2 / (squares + 1))[None]
    return (summed + image) / (total + 1)
