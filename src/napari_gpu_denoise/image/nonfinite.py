"""NaN and infinity: refused, or replaced by the nearest finite pixel."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.image.axes import arrange


def check_policy(nonfinite: str) -> None:
    """Refuse an unknown choice of what to do with NaN and infinity."""
    if not isinstance(nonfinite, str) or nonfinite not in ("raise", "keep"):
        raise ImageError(f"nonfinite={nonfinite!r} is unknown: choose 'raise' or 'keep'.")


def fill_nonfinite(
    array: np.ndarray, names: str, nonfinite: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the array with NaN and infinity replaced by the nearest finite pixel, and a mask.

    The mask is None if all pixels are finite, or not checked, as with "raise". A plane without a
    finite pixel becomes 0.
    """
    check_policy(nonfinite)
    if nonfinite == "raise" or array.dtype.kind != "f":
        return array, None
    mask = ~np.isfinite(array)
    if not mask.any():
        return array, None
    from scipy.ndimage import distance_transform_edt

    filled = array.copy()
    planes, holes = arrange(filled, names), arrange(mask, names)
    for t in range(planes.shape[1]):
        plane, hole = planes.frame(0, t)[0], holes.frame(0, t)[0]
        if hole.all():
            plane[...] = 0
        elif hole.any():
            nearest = distance_transform_edt(hole, return_distances=False, return_indices=True)
            plane[hole] = plane[tuple(nearest)][hole]
    return filled, mask
