"""Patches of planes as cosine spectra: what every estimate of noise under a picture starts from.

The low frequencies of a patch tell how smooth it is, the high ones hold its noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.noise.patches import clipping_levels, read_patches
from napari_gpu_denoise.noise.sampling import readable
from napari_gpu_denoise.noise.white import MAX_PATCHES, PATCH, frequencies

MAX_PLANES = 8  # planes read of a stack


class PatchSpectra(NamedTuple):
    """Patches of one or several planes, those with pixels that are not finite left out.

    `mean` (patch,) is in grey levels; `low` and `high` (patch, frequency) hold orthonormal
    coefficients, the mean of a patch in neither; `upper` (frequency,) tells which of the high ones
    are the upper ones; `clipped` (patch,) is the share of clipped pixels; `overlap` is how many
    patches share a pixel.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    upper: np.ndarray
    clipped: np.ndarray
    overlap: float


def sample_planes(image: Any, most: int = MAX_PLANES) -> list[np.ndarray]:
    """Return planes of a stack, spread evenly over its leading axes.

    Parameters
    ----------
    image : array, (y, x) or (..., y, x), any real dtype
        Anything with ``shape``, ``dtype`` and NumPy indexing; only the sampled planes are read.
    most : int, default 8
        How many planes to read at most.

    Returns
    -------
    list of ndarray, (y, x)

    Raises
    ------
    ImageError
        If there are no pixels, fewer than two axes, or values without grey levels.
    """
    image = readable(image)
    shape = tuple(int(length) for length in image.shape)
    if len(shape) < 2:
        raise ImageError("Noise is estimated from planes; give an array with the axes y and x.")
    count = int(np.prod(shape[:-2]))
    chosen = min(count, most)
    # The middle of each of `chosen` equal parts, as positions in C order.
    places = [(2 * i + 1) * count // (2 * chosen) for i in range(chosen)]
    return [np.asarray(image[np.unravel_index(place, shape[:-2])]) for place in places]


def read_spectra(planes: list[np.ndarray], limit: int = MAX_PATCHES) -> PatchSpectra:
    """Read about `limit` patches of 8 x 8 pixels, evenly spread over all planes.

    Raises
    ------
    NonFiniteError
        If NaN or infinity leave no patch.
    """
    # Scattered non-finite pixels may leave no large patch whole, but still smaller ones.
    for size in (PATCH, PATCH // 2, PATCH // 4):
        parts = [_plane_spectra(plane, size, limit // len(planes)) for plane in planes]
        parts = [part for part in parts if part is not None]
        if parts:
            break
    else:
        raise NonFiniteError(
            "NaN or infinite pixels leave nothing to estimate the noise from; "
            "give the noise, or replace those pixels first."
        )
    mean, low, high, _, clipped, overlap = zip(*parts, strict=True)
    return PatchSpectra(
        *(np.concatenate(each) for each in (mean, low, high)),
        parts[0].upper,
        np.concatenate(clipped),
        max(overlap),
    )


def _plane_spectra(plane: np.ndarray, size: int, limit: int) -> PatchSpectra | None:
    patches, shape, overlap = read_patches(plane, size, limit)
    if not len(patches):
        return None
    low, high, upper = frequencies(shape)
    if not len(high):  # single pixels: nothing to compare them with
        high, upper = np.zeros((1, patches.shape[1])), np.ones(1, bool)
    clipped = np.zeros(len(patches))
    for level in clipping_levels(plane):
        clipped += np.mean(patches == level, axis=1)
    values = patches.astype(np.float64)
    differences = values - values[:, :1]  # small numbers, whatever the level of the patch
    return PatchSpectra(
        values.mean(axis=1), differences @ low.T, differences @ high.T, upper, clipped, overlap
    )
