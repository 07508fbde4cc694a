"""How bright the surroundings of patches are: brightness that shares no noise with the patches."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.noise.patches.selection import read_patches
from napari_gpu_denoise.noise.patches.white import PATCH

WIDTH = 2 * PATCH  # of the square around the middle of a patch that is averaged, without the patch


def surroundings(
    planes: list[np.ndarray], limit: int, blanks: list[np.ndarray | None]
) -> np.ndarray:
    """Return the mean grey level around each of the patches that `read_spectra` reads.

    Pixels that are not finite, or blank, do not count.
    """
    found = []
    for plane, blank in zip(planes, blanks, strict=True):
        values = plane.astype(np.float64)
        finite = np.isfinite(values)
        seen = finite if blank is None else finite & ~blank
        total = _around(np.where(seen, values, 0.0)) / np.maximum(_around(seen * 1.0), 0.5)
        total[~finite] = np.nan  # so that the same patches are left out
        found.append(read_patches(total, PATCH, limit // len(planes), blank).values[:, 0])
    return np.concatenate(found)


def _around(values: np.ndarray) -> np.ndarray:
    """Return the sum around each patch, at its first pixel; what is beyond the plane counts 0."""
    from scipy.ndimage import uniform_filter

    sums = [
        uniform_filter(values, size, mode="constant", origin=-PATCH // 2) * size**2
        for size in (WIDTH, PATCH)
    ]
    return sums[0] - sums[1]
