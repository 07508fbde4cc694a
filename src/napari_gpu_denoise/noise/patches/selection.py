"""Patches of a plane as rows of numbers, and clipping."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.noise.patches.blank import clear_patches

CLIPPING_SAMPLE = 250_000  # pixels looked at to find clipped values
CLIPPED_PIXELS = 16  # an extreme value found in fewer of them is left alone


def grid_steps(rows: int, columns: int, limit: int) -> tuple[int, int]:
    """Return steps along y and x that leave about `limit` places of a grid at most."""
    down = min(rows, math.ceil(math.sqrt(rows * columns / limit)))
    return down, math.ceil(math.ceil(rows / down) * columns / limit)


def read_patches(
    plane: np.ndarray, size: int, limit: int, blank: np.ndarray | None = None
) -> tuple[np.ndarray, tuple[int, int], float]:
    """Read about `limit` patches, evenly spread over a plane; those not all finite are left out.

    So are those that touch pixels of `blank`, a mask as `not_image` returns it.

    Returns the patches (number, height * width) in the dtype of the plane; their height and width,
    `size` or the length of a shorter axis; and how many patches share a pixel, at least 1.
    """
    shape = (min(size, plane.shape[0]), min(size, plane.shape[1]))
    windows = sliding_window_view(plane, shape)
    down, across = grid_steps(*windows.shape[:2], limit)
    patches = windows[::down, ::across]
    if blank is not None:
        patches = patches[clear_patches(blank, shape, down, across)]
    patches = patches.reshape(-1, shape[0] * shape[1])
    if plane.dtype.kind == "f":
        patches = patches[np.isfinite(patches).all(axis=1)]
    return patches, shape, max(1.0, shape[0] / down) * max(1.0, shape[1] / across)


def clipping_levels(plane: np.ndarray, blank: np.ndarray | None = None) -> list:
    """Return the extreme values at which a plane seems to be clipped, or filled.

    Pixels of `blank`, a mask, are not looked at.
    """
    step = math.ceil(math.sqrt(plane.size / CLIPPING_SAMPLE))
    values = plane[::step, ::step]
    if blank is not None:
        values = values[~blank[::step, ::step]]
    if plane.dtype.kind == "f":
        values = values[np.isfinite(values)]
    if values.size == 0:
        return []
    ends = np.iinfo(plane.dtype) if plane.dtype.kind in "iu" else None
    levels = []
    for level, inner in ((values.min(), np.min), (values.max(), np.max)):
        others = values[values != level]
        count = values.size - others.size
        if count < CLIPPED_PIXELS or others.size == 0:
            continue
        at_end = ends is not None and level in (ends.min, ends.max)
        # The tail of a distribution falls towards its end: a last value that is found more often
        # than the one before it is where values were cut off.
        if at_end or count > 2 * np.count_nonzero(others == inner(others)):
            levels.append(level)
    return levels


def as_floats(patches: np.ndarray, levels: list) -> tuple[np.ndarray, list[float], float]:
    """Return patches and levels as float64, without a common offset if needed, and their unit."""
    if patches.dtype.kind in "iu" and patches.dtype.itemsize == 8:
        # Large 64-bit integers do not fit float64; their distance to the smallest mostly does,
        # and modulo 2**64 it is right even where a signed difference would overflow.
        origin = patches.min()
        levels = [float(int(level) - int(origin)) for level in levels]
        patches = patches.astype(np.uint64) - origin.astype(np.uint64)
    values = patches.astype(np.float64)
    levels = [float(level) for level in levels]
    largest = float(np.abs(values).max())
    if largest == 0 or 2.0**-400 < largest < 2.0**400:
        return values, levels, 1.0
    # Squares of such values would overflow or vanish; a power of two scales without rounding.
    unit = 2.0**600 if largest > 1 else 2.0**-600
    return values / unit, [level / unit for level in levels], unit
