"""BM3D of several channels with the matches of one search: colours, or any channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.bm3d import bm3d, filter_together

# Rows: luminance and two colour differences of red, green, blue.
OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


def bm3d_channels(
    planes: np.ndarray,
    sigmas: Sequence,
    settings,
    mode: str | None = None,
    **options,
) -> np.ndarray:
    """Denoise channels (c, y, x), each of its own sigma (float or map).

    `mode` ("separate", "opponent", "joint") is that of the settings unless given; "auto" is
    "opponent" for three channels. `options` as in `bm3d`.
    """
    planes = np.asarray(planes, dtype=np.float64)
    if not any(np.any(sigma) for sigma in sigmas):
        return planes.copy()
    mode = settings.channels if mode is None else mode
    if mode == "auto":
        mode = "opponent" if len(planes) == 3 else "separate"
    if mode == "separate":
        pairs = zip(planes, sigmas, strict=True)
        return np.array([bm3d(plane, sigma, settings, **options) for plane, sigma in pairs])
    if mode == "opponent":
        turned, turned_sigmas = mix(OPPONENT, planes), mix_sigmas(OPPONENT, sigmas)
        result = filter_together(turned, turned_sigmas, [1, 0, 0], settings, **options)
        return mix(OPPONENT.T, result)
    return filter_together(planes, sigmas, noise_weights(sigmas), settings, **options)


def mix(matrix: np.ndarray, planes: np.ndarray) -> np.ndarray:
    """Return sums of the planes (c, y, x), one for each row of weights."""
    return np.tensordot(matrix, planes, axes=1)


def mix_sigmas(matrix: np.ndarray, sigmas: Sequence) -> np.ndarray:
    """Return the sigmas of such sums; noise is independent from plane to plane."""
    squares = np.square(np.array(np.broadcast_arrays(*sigmas), dtype=np.float64))
    return np.sqrt(np.tensordot(np.square(matrix), squares, axes=1))


def noise_weights(sigmas: Sequence) -> np.ndarray:
    """Return the weights of the mean over channels in units of their noise.

    Conventions: a map counts with its root mean square; channels without noise are left out.
    """
    scales = np.array([np.sqrt(np.mean(np.square(sigma))) for sigma in sigmas])
    return np.divide(1 / len(scales), scales, out=np.zeros(len(scales)), where=scales > 0)
