"""Noise that neighbours share, and its autocorrelation, for tests of the filters that know it."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise.noise.models import Correlated

SIGMA = 20.37  # no coefficient of whole numbers is exactly at the threshold
LAG = np.arange(5.0)

Table = tuple[tuple[float, ...], ...]


def line(width: float) -> tuple[float, ...]:
    """Return the autocorrelation of white noise blurred with a Gaussian of this width, pixels."""
    return tuple(np.exp(-(LAG**2) / (4 * max(width, 1e-3) ** 2)).tolist())


def table(down: float, across: float) -> Table:
    """Return the autocorrelation of white noise blurred with Gaussians of these widths."""
    return tuple(map(tuple, np.outer(line(down), line(across)).tolist()))


BLURRED, STREAKS, CUT, WHITE = table(0.9, 1.3), table(0.2, 1.5), table(3.0, 3.0), table(0, 0)
# Neighbours that differ: the least power is at the mean.
OPPOSED = tuple(map(tuple, np.outer(*2 * [[1, -0.35, 0, 0, 0]]).tolist()))


def model(y: float, x: float, z: float = 0.0, sigma: float = SIGMA) -> Correlated:
    """Return the model of white noise blurred with Gaussians of these widths."""
    return Correlated(sigma, table(y, x), along_z=line(z))


def blur(shape, widths=(0.9, 1.3), sigma: float = SIGMA, seed: int = 0) -> np.ndarray:
    """Return noise blurred along the last axes, one for each width."""
    noise = np.random.default_rng(seed).normal(size=shape)
    axes = tuple(range(-len(widths), 0))
    noise = gaussian_filter(noise, widths, axes=axes, mode="wrap")
    return sigma * noise / noise.std()
