"""Patches of a plane as rows of numbers, and clipping."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.noise.patches.blank import clear_patches

CLIPPING_SAMPLE = 250_000  # pixels looked at to find clipped values
SPARSE = 6  # one of so many rows and columns of these is looked at first
CLIPPED_PIXELS = 16  # an extreme value found in fewer of them is left alone

# Counts of photons:
BLOCK = 8  # width of the blocks they are looked at in
BLOCKS = 4096  # number of them, about
WHOLE = 0.01  # distance from whole numbers of photons, at most
MOST_STEPS = 2.0**20  # grey values above the lowest one, at most
LEAST_PHOTONS = 100  # in the darker half of the blocks
DARK_SHARE = 0.05  # of the pixels, without a photon
DISPERSION = (0.75, 1.3)  # variance of counts over their mean
FEW, MORE = 16, 2.0  # one of so many blocks is looked at first; so many times that rules counts out


def grid_steps(rows: int, columns: int, limit: int) -> tuple[int, int]:
    """Return steps along y and x that leave about `limit` places of a grid at most."""
    down = min(rows, math.ceil(math.sqrt(rows * columns / limit)))
    return down, math.ceil(math.ceil(rows / down) * columns / limit)


class Patches(NamedTuple):
    """Patches of a plane."""

    values: np.ndarray  # (number, height * width), in the dtype of the plane
    shape: tuple[int, int]  # height and width
    overlap: float  # how many patches share a pixel, at least 1
    place: np.ndarray  # (number, 2), y and x of the first pixel


def read_patches(
    plane: np.ndarray, size: int, limit: int, blank: np.ndarray | None = None
) -> Patches:
    """Read about `limit` patches, evenly spread over a plane; those not all finite are left out.

    So are those that touch pixels of `blank`, a mask as `not_image` returns it.

    Their height and width are `size`, or the length of a shorter axis.
    """
    shape = (min(size, plane.shape[0]), min(size, plane.shape[1]))
    windows = sliding_window_view(plane, shape)
    down, across = grid_steps(*windows.shape[:2], limit)
    patches = windows[::down, ::across]
    if blank is None:
        kept = np.ones(patches.shape[:2], bool)
        patches = patches.reshape(-1, shape[0] * shape[1])
    else:
        kept = clear_patches(blank, shape, down, across)
        patches = patches[kept].reshape(-1, shape[0] * shape[1])
    place = np.argwhere(kept) * (down, across)
    finite = np.isfinite(patches) if plane.dtype.kind == "f" else np.array(True)
    if not finite.all():
        whole = finite.all(axis=1)
        patches, place = patches[whole], place[whole]
    overlap = max(1.0, shape[0] / down) * max(1.0, shape[1] / across)
    return Patches(patches, shape, overlap, place)


def clipping_levels(plane: np.ndarray, blank: np.ndarray | None = None) -> list:
    """Return the extreme values at which a plane seems to be clipped, or filled.

    Pixels of `blank`, a mask, are not looked at.
    """
    step = math.ceil(math.sqrt(plane.size / CLIPPING_SAMPLE))
    values = np.ascontiguousarray(plane[::step, ::step])
    if blank is not None:
        values = values[~blank[::step, ::step]]
    values = _finite(values)
    if values.size == 0:
        return []
    ends = np.iinfo(plane.dtype) if plane.dtype.kind in "iu" else None
    levels = []
    for inner in (np.min, np.max):
        level = inner(values)
        count = np.count_nonzero(values == level)
        if count < CLIPPED_PIXELS or count == values.size:
            continue
        # The tail of a distribution falls towards its end: a last value that is found more often
        # than the one before it is where values were cut off.
        cut = ends is not None and level in (ends.min, ends.max)
        if not cut:
            others = values[values != level]
            cut = count > 2 * np.count_nonzero(others == inner(others))
        # Where photons are few, most pixels have none: those are not cut off.
        if cut and (inner is np.max or photon_step(plane, level) is None):
            levels.append(level)
    return levels


def _finite(values: np.ndarray) -> np.ndarray:
    """Return the values that are finite."""
    if values.dtype.kind != "f" or not values.size:
        return values
    if np.isfinite(values.min()) and np.isfinite(values.max()):  # they hand on NaN
        return values
    return values[np.isfinite(values)]


def photon_counts(plane: np.ndarray) -> float | None:
    """Return grey levels per photon where many pixels have none and others few; else None."""
    step = math.ceil(math.sqrt(plane.size / CLIPPING_SAMPLE))
    values = plane[::step, ::step]
    # A few pixels nearly always show that none of the darkest values is frequent.
    some = _finite(values[::SPARSE, ::SPARSE])
    if some.size and np.count_nonzero(some == some.min()) < 0.5 * DARK_SHARE * some.size - 1:
        return None
    values = _finite(values)
    if not values.size or np.count_nonzero(values == values.min()) < DARK_SHARE * values.size:
        return None
    return photon_step(plane, values.min())


def photon_step(plane: np.ndarray, darkest: float) -> float | None:
    """Return grey levels per photon where a plane holds counts, `darkest` meaning none; else None.

    All values are whole steps above the darkest, and where it is darkest they vary as much as
    counts of photons do, whose variance is their mean. A pixel and the next one show that: given
    how many photons a block holds, they fall on its pixels independently.
    """
    rows, columns = (length // BLOCK for length in plane.shape)
    if not rows or not columns:
        return None
    held = plane[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK)

    def counts(limit: int) -> _Counts | None:
        down, across = grid_steps(rows, columns, limit)
        blocks = held[::down, :, ::across].transpose(0, 2, 1, 3)
        return _counts(blocks.reshape(-1, BLOCK, BLOCK), darkest)

    # A few of them nearly always show that the values vary more. Others may show a smaller step,
    # of which they vary even more.
    few = counts(BLOCKS // FEW)
    if few is not None and few.photons and few.dispersion > MORE * DISPERSION[1]:
        return None
    found = counts(BLOCKS)
    if found is None or not found.whole or found.photons < LEAST_PHOTONS:
        return None
    return found.step if DISPERSION[0] <= found.dispersion <= DISPERSION[1] else None


class _Counts(NamedTuple):
    """What blocks hold if their smallest value that is not the darkest is one photon."""

    step: float  # grey levels
    whole: bool  # whether all are whole numbers of photons
    photons: float  # in the darker half of the blocks that have any
    dispersion: float  # variance over mean, there


def _counts(blocks: np.ndarray, darkest: float) -> _Counts | None:
    """Return what blocks of pixels hold; None if nothing is above the darkest."""
    values = blocks.astype(np.float64) - float(darkest)
    if blocks.dtype.kind == "f" or values.min(initial=0) < 0:
        values = values[np.isfinite(values).all(axis=(1, 2)) & (values >= 0).all(axis=(1, 2))]
    step = float(values.min(initial=np.inf, where=values > 0))
    if not math.isfinite(step):
        return None
    counts = values / step
    whole = counts.max() <= MOST_STEPS and np.abs(counts - np.rint(counts)).max() <= WHOLE
    total = counts.sum(axis=(1, 2))
    lit = np.flatnonzero(total > 0)
    dark = lit[np.argsort(total[lit], kind="stable")[: max(len(lit) // 2, 1)]]
    photons = float(total[dark].sum())
    difference = np.square(np.diff(counts[dark], axis=2)).mean(axis=(1, 2)) / 2
    dispersion = float(difference.sum()) * BLOCK**2 / max(photons, 1.0)
    return _Counts(step, bool(whole), photons, dispersion)


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
