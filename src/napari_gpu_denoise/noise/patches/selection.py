"""Which pixels and patches of a plane noise is read from: no padding, no clipped values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.patches.coefficients import PATCH

# Constant areas of a plane (padding, masks, borders of a field of view, saturation), and padding
# that repeats the pixels of its edge, say nothing about the noise. But where noise is weak next to
# the steps of grey levels, or photons are rare, parts of a true image are constant by chance. So
# squares of one value count only where chance would hardly make one: two equal neighbours of a
# share q in the rest of the plane are pixels that take their most frequent value with a probability
# of at most sqrt(q). An area of its own also has a border: where most pixels beside it have its
# value too, as around the dark parts of an image of few photons, it is image.
MIN_CLEAR_PATCHES = 64  # that have to remain,
MIN_CLEAR_SHARE = 0.01  # and share of all


class Plane(NamedTuple):
    """A plane, and what of it the noise is not read from."""

    pixels: np.ndarray  # (y, x)
    blank: np.ndarray | None = None  # mask of what is not image; None for nothing
    ends: Sequence[Any] = ()  # extreme values at which it is clipped, or filled

    @classmethod
    def of(cls, pixels: np.ndarray, blank: np.ndarray | None) -> Plane:
        """Return a plane with the values at which it seems to be clipped."""
        return cls(pixels, blank, clipping_levels(pixels, blank))

    @classmethod
    def of_image(cls, planes: Sequence[np.ndarray]) -> list[Plane]:
        """Return planes of one image, of each what is image as all of them show it."""
        return list(map(cls.of, planes, not_image(planes)))


class Blank(NamedTuple):
    """What is not image in a plane, and the width of the constant squares that told so."""

    pixels: np.ndarray  # bool, (y, x)
    width: int  # 0 where only edges are repeated


def blank_area(plane: np.ndarray) -> Blank | None:
    """Return what of a plane is not image; None where there is nothing.

    Constant areas hold a constant square, half of which may lie beyond the border of the plane, and
    what of the same value is joined to it. Of a plane of one value all is blank. Repeated edges are
    rows or columns along a border that are the same.
    """
    if min(plane.shape) < PATCH:
        return None
    edges = _repeated_edges(plane)
    area = _constant_area(plane, edges) if _may_hold_square(plane) else None
    if edges is None:
        return area
    return Blank(edges, 0) if area is None else area._replace(pixels=area.pixels | edges)


def _repeated_edges(plane: np.ndarray) -> np.ndarray | None:
    """Return a mask of three or more rows or columns that repeat one another up to a border."""
    found = None
    for turn in range(4):
        rows = np.rot90(plane, turn)
        edge, few = rows[0], 1 + len(rows[0]) // PATCH
        if not np.array_equal(rows[1][::few], edge[::few]):  # nearly always
            continue
        if np.count_nonzero(edge[1:] != edge[:-1]) >= PATCH:
            different = (k for k, row in enumerate(rows) if not np.array_equal(row, edge))
            count = next(different, len(rows))
            if count >= 3:
                found = np.zeros(plane.shape, bool) if found is None else found
                np.rot90(found, turn)[:count] = True
    return found


def _constant_area(plane: np.ndarray, edges: np.ndarray | None) -> Blank | None:
    """Return the constant areas; `edges` is a mask of what is known not to be image."""
    whole = None
    for width in (8, 16, 32, 64):  # larger ones where chance makes smaller
        seeds = constant_squares(plane, width)
        if seeds is None or (wider := constant_squares(plane, width // 2)) is None:
            return whole
        area = Blank(_distinct(plane, seeds, wider), width)
        if not area.pixels.any():
            return whole
        blank = area.pixels if edges is None else area.pixels | edges
        share = _equal_neighbours(plane, blank, width)
        if share is None:  # there is nothing else
            whole = whole or area
            continue
        whole = None
        # Chance may make 0.001 of them; at the border of the plane half the square is enough.
        if share == 0 or -math.log(share) / 2 * width**2 / 2 >= math.log(1000 * plane.size):
            return area
    return whole


def not_image(
    planes: Sequence[np.ndarray], areas: Sequence[Blank | None] | None = None
) -> list[np.ndarray | None]:
    """Return for each of several planes a mask of what to leave out; None for nothing.

    `areas` is what `blank_area` returned for them, if known. Masks have a rim, for pixels that
    interpolation has mixed with an area. Planes with hardly anything else are left out as a whole;
    where that holds for all together, nothing is left out: a drawing, or a blank image.
    """
    areas = list(map(blank_area, planes)) if areas is None else areas
    if not any(areas):
        return [None] * len(planes)
    masks = [None if area is None else _with_rim(area.pixels) for area in areas]
    total = math.prod(max(length - PATCH + 1, 1) for length in planes[0].shape)
    clear = [total] * len(planes)
    for k, (plane, mask) in enumerate(zip(planes, masks, strict=True)):
        if mask is not None:
            clear[k] = int(np.count_nonzero(clear_patches(mask | ~np.isfinite(plane), PATCH)))
            if clear[k] < MIN_CLEAR_PATCHES:
                masks[k], clear[k] = np.ones(plane.shape, bool), 0
    few = sum(clear) < max(MIN_CLEAR_PATCHES, MIN_CLEAR_SHARE * total * len(planes))
    return [None] * len(planes) if few else masks


def constant_squares(plane: np.ndarray, width: int) -> np.ndarray | None:
    """Return a mask of pixels in squares of one value; None where there is no such square.

    Half of a square may lie beyond the border of the plane.
    """
    if min(plane.shape) < width:
        return None
    margin = width // 2
    wide = np.pad(plane, margin, mode="edge")
    rows = all_of(wide[:, 1:] == wide[:, :-1], width - 1, 1)
    columns = all_of(wide[1:] == wide[:-1], width - 1, 0)
    squares = all_of(rows, width, 0) & columns[:, : rows.shape[1]]
    if not squares.any():
        return None
    return _spread(squares, width)[margin:-margin, margin:-margin]


def number_of_patches(wanted: int, planes: Sequence[Plane]) -> int:
    """Return the number of patches to spread so that about `wanted` touch no blank."""
    shares = [1.0 if each.blank is None else float(np.mean(~each.blank)) for each in planes]
    return round(wanted / max(float(np.mean(shares)), MIN_CLEAR_SHARE))


def clear_patches(blank: np.ndarray, size: int, down: int = 1, across: int = 1) -> np.ndarray:
    """Return a mask of patches that touch no blank, at every `down`-th and `across`-th place.

    Their height and width are `size`, or the length of a shorter axis.
    """
    height, width = (min(size, length) for length in blank.shape)
    rows = all_of(~blank, width, 1)[:, ::across]
    return all_of(rows, height, 0)[::down]


def _with_rim(pixels: np.ndarray) -> np.ndarray:
    """Return an area with two pixels around it that may have been mixed with it."""
    return _spread(pixels, 5)[2:-2, 2:-2]


def _may_hold_square(plane: np.ndarray) -> bool:
    """Return whether an area of 16 x 16 pixels may be constant, or one of 8 along a border.

    A row in eight goes through every area, with four of every fourth pixels in a row.
    """
    edges = plane[-1, ::4], plane[::4, 0], plane[::4, -1]
    if any(all_of(edge[1:] == edge[:-1], 3, 0).any() for edge in edges):
        return True
    some = plane[::PATCH, ::4]
    y, x = np.nonzero(all_of(some[:, 1:] == some[:, :-1], 3, 1))
    if len(y) > 4096:  # too many to look at each
        return True
    run = plane[PATCH * y[:, None], 4 * x[:, None] + np.arange(13)]
    return bool((run == run[:, :1]).all(axis=1).any())


def _equal_neighbours(plane: np.ndarray, blank: np.ndarray, size: int) -> float | None:
    """Return the share of neighbours that are equal in most, not all, of the rest; None without."""
    blank = _with_rim(blank)
    while size >= PATCH:  # squares of the size of those of the area tell best, if there is room
        rows, columns = (length - size + 1 for length in plane.shape)
        step = math.ceil(math.sqrt(rows * columns / 4096) * size / PATCH)
        clear = clear_patches(blank, size, step, step)
        if clear.any():
            equal = sliding_window_view(plane[:, 1:] == plane[:, :-1], (size, size - 1))
            return float(np.quantile(equal[::step, ::step][clear].mean(axis=(1, 2)), 0.75))
        size //= 2
    return None


def _distinct(plane: np.ndarray, seeds: np.ndarray, area: np.ndarray) -> np.ndarray:
    """Return the connected parts of an area that hold seeds and differ from what is beside them."""
    from scipy.ndimage import label

    # Areas of two values that touch are two areas.
    parts = area.copy()
    parts[:-1] &= ~area[1:] | (plane[1:] == plane[:-1])
    parts[:, :-1] &= ~area[:, 1:] | (plane[:, 1:] == plane[:, :-1])
    numbers, count = label(parts)
    kept = np.bincount(numbers[seeds], minlength=count + 1) > 0
    same, beside = np.zeros((2, count + 1))
    for turn in range(4):  # six pixels away
        number, value = np.rot90(numbers, turn), np.rot90(plane, turn)
        outside = (number[6:] == 0) & (number[:-6] > 0)
        which, equal = number[:-6][outside], value[6:][outside] == value[:-6][outside]
        beside += np.bincount(which, minlength=count + 1)
        same += np.bincount(which, equal, count + 1)
    kept &= same <= 0.75 * beside
    kept[0] = False
    return kept[numbers]


def all_of(flags: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Return where `length` flags in a row along an axis, from here on, are all set."""
    done = 1
    while done < length:
        step = min(done, length - done)
        before, after = [slice(None)] * flags.ndim, [slice(None)] * flags.ndim
        before[axis], after[axis] = slice(None, max(flags.shape[axis] - step, 0)), slice(step, None)
        flags = flags[tuple(before)] & flags[tuple(after)]
        done += step
    return flags


def _spread(flags: np.ndarray, width: int) -> np.ndarray:
    """Return the pixels of squares of a width, given which squares are set by their first pixel."""
    wide = np.pad(~flags, width - 1, constant_values=True)
    return ~all_of(all_of(wide, width, 1), width, 0)


def grid_steps(rows: int, columns: int, limit: int) -> tuple[int, int]:
    """Return steps along y and x that leave about `limit` places of a grid at most."""
    down = min(rows, math.ceil(math.sqrt(rows * columns / limit)))
    return down, math.ceil(math.ceil(rows / down) * columns / limit)


def blocks_of(plane: np.ndarray, size: int) -> np.ndarray:
    """Return the whole blocks of a plane side by side, (row, column, y, x)."""
    rows, columns = (length // size for length in plane.shape)
    whole = plane[: rows * size, : columns * size].reshape(rows, size, columns, size)
    return whole.transpose(0, 2, 1, 3)


def clipping_levels(plane: np.ndarray, blank: np.ndarray | None = None) -> list[Any]:
    """Return the extreme values at which a plane seems to be clipped, or filled.

    Pixels of `blank`, a mask, are not looked at.
    """
    values = _sample(plane, 1 << 16, blank)
    ends = np.iinfo(plane.dtype) if plane.dtype.kind in "iu" else None
    known = values.size and values.min() >= 0 and values.max() < 2**16
    if ends is None and known and np.array_equal(values, np.rint(values)):
        # Whole numbers come from integers, and have the ends of these.
        ends = np.iinfo(np.min_scalar_type(int(values.max())))
    levels: list[Any] = []
    for inner in (np.min, np.max) if values.size else ():
        level = inner(values)
        count = np.count_nonzero(values == level)
        if count < limits.MIN_CLIPPED_PIXELS or count == values.size:
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


def _sample(plane: np.ndarray, number: int, blank: np.ndarray | None = None) -> np.ndarray:
    """Return about `number` finite pixels of a plane, those of `blank` left out."""
    step = math.ceil(math.sqrt(plane.size / number))
    some = plane[::step, ::step]
    values = some.ravel() if blank is None else some[~blank[::step, ::step]]
    if values.dtype.kind != "f" or not values.size or np.isfinite(values.min() + values.max()):
        return values
    return values[np.isfinite(values)]


def photon_counts(plane: np.ndarray) -> float | None:
    """Return grey levels per photon where many pixels have none and others few; else None."""
    values = _sample(plane, 1 << 14)
    if not values.size or np.count_nonzero(values == values.min()) < 0.05 * values.size:
        return None
    return photon_step(plane, values.min())


def photon_step(plane: np.ndarray, darkest: float) -> float | None:
    """Return grey levels per photon where a plane holds counts, `darkest` meaning none; else None.

    All values are whole steps above the darkest, and where it is darkest they vary as much as
    counts of photons do, whose variance is their mean. A pixel and the next one show that: given
    how many photons a block holds, they fall on its pixels independently.
    """
    blocks = blocks_of(plane, PATCH)
    if not blocks.size:
        return None
    down, across = grid_steps(*blocks.shape[:2], limit=1024)
    values = blocks[::down, ::across].reshape(-1, PATCH, PATCH).astype(np.float64) - float(darkest)
    values = values[(np.isfinite(values) & (values >= 0)).all(axis=(1, 2))]
    step = float(values.min(initial=np.inf, where=values > 0))
    counts = values / step
    if not counts.any() or counts.max() > 2.0**20 or np.abs(counts - np.rint(counts)).max() > 0.01:
        return None
    total = counts.sum(axis=(1, 2))
    lit = np.flatnonzero(total > 0)
    dark = lit[np.argsort(total[lit], kind="stable")[: max(len(lit) // 2, 1)]]
    photons = float(total[dark].sum())
    difference = np.square(np.diff(counts[dark], axis=2)).mean(axis=(1, 2)) / 2
    dispersion = float(difference.sum()) * PATCH**2 / photons
    low, high = limits.COUNT_DISPERSION
    return step if photons >= 100 and low <= dispersion <= high else None
