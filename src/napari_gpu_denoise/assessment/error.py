"""The error of a result, predicted from the noisy image: its mean square, and a map of it.

A filter's output is compared with the noisy pixels. That difference is the error plus the noise,
but for how much the output follows the noise of its own pixel: a little fresh noise, added and
subtracted, shows that (Stein's unbiased risk estimate, with a symmetric difference as large as a
tenth of the noise, since groups of patches change in jumps).
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter, zoom

EPSILON = 0.1  # fresh noise in units of the noise
PAIRS = 3
MAP_WIDTH = 12.0  # pixels: standard deviation of the mean that makes the map


def told(strength: float) -> float:
    """Return the factor on sigma for an image with so much fresh noise, in units of its own."""
    return float(np.sqrt(1 + strength**2))


def squared_errors(
    noisy: np.ndarray, spread: np.ndarray, unit: np.ndarray, plus: np.ndarray, minus: np.ndarray
) -> np.ndarray:
    """Return an unbiased estimate of the squared error at each pixel, of any shape.

    `spread` is the standard deviation of the noise, `unit` the fresh noise in units of it; `plus`
    and `minus` are the results for the noisy image with `EPSILON` times as much of it added and
    subtracted.
    """
    followed = (spread * unit) * (plus - minus) / np.float32(EPSILON)
    return ((plus - noisy) ** 2 + (minus - noisy) ** 2) / 2 + followed - spread**2


def error_map(
    squared: np.ndarray,
    varied: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    known: np.ndarray,
    correlated: float = 1.0,
) -> np.ndarray:
    """Return the expected squared error around each pixel of planes (…, y, x), float32.

    It is the local mean of `squared`, drawn towards what follows from the noise that is kept
    (`varied`, the variance of the result) and from the slopes of the result, as far as the noise of
    that mean asks for it: few pixels tell little where the error is far below the noise. How both
    add up is fitted to `squared` itself. `correlated` is the sum of the squared autocorrelation of
    the noise.
    """
    slope = np.square(np.gradient(mean, axis=-1)) + np.square(np.gradient(mean, axis=-2))
    told = [_coarse(each, known) for each in (spread**2, varied, slope, np.sqrt(slope))]
    found = _coarse(squared, known)
    weight = _coarse(known.astype(np.float32), np.ones_like(known))
    usable = weight > 0.25
    terms = np.stack([each[usable] for each in told], axis=-1).astype(np.float64)
    scale = np.sqrt(np.mean(np.square(terms), axis=0)) + 1e-30
    factors, *_ = np.linalg.lstsq(terms / scale, found[usable].astype(np.float64), rcond=None)
    model = np.stack(told, axis=-1) @ (factors / scale)
    noise = (
        2 * correlated * np.square(told[0]) / (4 * np.pi * MAP_WIDTH**2) / np.maximum(weight, 0.1)
    )
    apart = np.mean(np.square(found - model)[usable]) - np.mean(noise[usable])
    trust = max(float(apart), 0.0) / (max(float(apart), 0.0) + noise)
    expected = np.where(usable, model + trust * (found - model), found)
    # Some of the noise is left everywhere, though not all that `varied` has, which jumps raise.
    return _fine(np.maximum(expected, _LEAST * told[1]), mean.shape)


_LEAST = 0.25  # of the variance of the result, that the error has
_BLOCK = 4  # pixels along Y and X that are taken together before local means


def _coarse(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return Gaussian means of known pixels of planes (…, y, x), at every fourth pixel."""
    width = [0] * (values.ndim - 2) + [MAP_WIDTH / _BLOCK] * 2
    options = {"sigma": width, "mode": "constant", "truncate": 3.0}
    total = gaussian_filter(_blocks(np.where(known, values, 0)), **options)
    weight = gaussian_filter(_blocks(known), **options)
    return total / np.maximum(weight, 1e-6)


def _blocks(values: np.ndarray) -> np.ndarray:
    """Return sums over blocks; those at the end may be of fewer pixels."""
    ny, nx = values.shape[-2:]
    rest = [(0, 0)] * (values.ndim - 2) + [(0, -n % _BLOCK) for n in (ny, nx)]
    padded = np.pad(values.astype(np.float32), rest)
    shape = (*values.shape[:-2], padded.shape[-2] // _BLOCK, _BLOCK, padded.shape[-1] // _BLOCK, -1)
    return padded.reshape(shape).sum(axis=(-3, -1))


def _fine(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return values at blocks as values at pixels, by linear interpolation."""
    factors = [1] * (values.ndim - 2) + [_BLOCK] * 2
    found = zoom(values, factors, order=1, mode="nearest", grid_mode=True)
    return found[..., : shape[-2], : shape[-1]].astype(np.float32)


def standard_error(spread: np.ndarray, correlated: float = 1.0) -> float:
    """Return the standard error of a predicted mean square over pixels with noise of a spread.

    The noise that there is has not exactly the variance that is expected of it. `correlated` is
    the sum of its squared autocorrelation.
    """
    fourth = np.sum(np.square(np.square(spread, dtype=np.float64)))
    return float(np.sqrt(2 * correlated * fourth) / max(spread.size, 1))


def decibels(mse: float, peak: float) -> float:
    """Return the PSNR."""
    return float(10 * np.log10(peak**2 / mse))
