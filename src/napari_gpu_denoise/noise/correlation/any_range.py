"""The autocovariance of noise of any range, from its power in patches of 8 x 8 pixels.

A patch sees noise that reaches beyond it at its lowest frequencies only, where single images have
slopes: what is fitted here must hold noise alone, as differences of frames do.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from napari_gpu_denoise.noise.correlation.fit import LAGS
from napari_gpu_denoise.noise.patches.white import PATCH, cosine_transform

FREQUENCIES = 16  # of the spectrum, besides 0, along each axis
ROUNDS = 30  # iterations; with more, what is not noise makes it peak at the lowest frequency


def covariance_of_any_range(power: np.ndarray) -> np.ndarray:
    """Return the autocovariance, (5, 5), of noise with this power of coefficients, (8, 8).

    The first coefficient is ignored. The spectrum, nowhere negative, is found from a flat one by
    multiplicative updates (C. Févotte, N. Bertin, J.-L. Durrieu, Neural Computation 21 (2009),
    :doi:`10.1162/neco.2008.04-08-771`), which suit variances: errors are relative to the power.
    """
    seen, cosines = _responses()
    known = np.ones(power.shape)
    known[0, 0] = 0
    floor = 1e-6 * float(power.max())
    if not floor > 0:
        return np.zeros((LAGS + 1, LAGS + 1))
    power = np.maximum(power, floor)
    spectrum = np.full((FREQUENCIES + 1,) * 2, power[1:, 1:].mean())
    for _ in range(ROUNDS):
        found = seen @ spectrum @ seen.T
        more = seen.T @ (known * power / found**2) @ seen
        spectrum = spectrum * more / (seen.T @ (known / found) @ seen)
    return cosines @ spectrum @ cosines.T


@cache
def _responses() -> tuple[np.ndarray, np.ndarray]:
    """Return how much coefficients, and displacements, see of each frequency along an axis."""
    number = np.arange(FREQUENCIES + 1)
    turns = np.pi * number / FREQUENCIES
    waves = np.exp(-1j * np.outer(np.arange(PATCH), turns))
    # All frequencies but the ends are there twice.
    share = np.where(number % FREQUENCIES, 2.0, 1.0) / (2 * FREQUENCIES)
    seen = np.square(np.abs(cosine_transform(PATCH) @ waves)) * share
    return seen, np.cos(np.outer(np.arange(LAGS + 1), turns)) * share
