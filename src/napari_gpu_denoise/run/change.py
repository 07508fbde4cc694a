"""How much a filter removed, so that a result that is nearly the image says so."""

from __future__ import annotations

import math

import numpy as np

from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.image.axes import channel_axis

_LEAST = 0.05  # share of the variation between neighbours that a filter is expected to remove
_PIXELS = 1 << 13  # looked at, about, each beside its neighbour


def change_note(before: np.ndarray, after: np.ndarray, names: str) -> Note | None:
    """Return a note if neighbouring pixels of a result vary nearly as much as those of its image.

    Both arrays have the axes `names`; a plane in the middle is looked at. The median of the
    differences shows noise rather than edges.
    """
    channel = channel_axis(names)
    where = tuple(
        slice(None) if letter in "YX" or axis == channel else before.shape[axis] // 2
        for axis, letter in enumerate(names)
    )
    kept = [letter for axis, letter in enumerate(names) if letter in "YX" or axis == channel]
    along = kept.index("X"), kept.index("Y")
    ends = []
    for image in (before, after):
        plane = image[where]
        # Every so many pixels along both axes: reading a large plane takes longer than filtering.
        skip = max(1, math.isqrt(plane.size // _PIXELS))
        steps = [slice(None)] * plane.ndim
        steps[along[1]], pair = slice(None, None, skip), []
        for first, last in ((0, -1), (1, None)):
            steps[along[0]] = slice(first, last, skip)
            pair.append(plane[tuple(steps)].astype(np.float64))
        differences = np.abs(pair[1] - pair[0])
        known = differences[np.isfinite(differences)]
        if not known.size:
            return None
        ends.append((_median(known), float(known.mean())))
    (median, mean), (median_after, mean_after) = ends
    share = 1 - median_after / median if median > 0 else 1 - mean_after / mean if mean > 0 else 1.0
    if share >= _LEAST:
        return None
    return Note(
        f"the result is nearly the same as the image: neighbouring pixels vary {max(share, 0):.0%} "
        "less. If noise is visible, it may be correlated between pixels, or stronger than "
        "measured",
        "noise='correlated', or give sigma",
        code="unchanged",
    )


def _median(values: np.ndarray) -> float:
    """Return the median; `numpy.median` imports numpy.ma, which takes as long as a whole call."""
    middle = [(values.size - 1) // 2, values.size // 2]
    return float(np.partition(values, middle)[middle].mean())
