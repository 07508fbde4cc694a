"""Grey levels along a line, before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
from napari.layers import Image

from napari_gpu_denoise._napari.compare.pair import Pair, luminance
from napari_gpu_denoise._napari.noise.plots import Series

_MOST = 2000  # points of a curve


def along(plane: np.ndarray, corners: np.ndarray, *, rgb: bool = False) -> np.ndarray:
    """Return grey levels between corners (rows of y, x), interpolated, one each half pixel or so.

    Points outside the plane have the value at its edge.
    """
    points = _points(corners)
    last = plane.shape[0] - 1, plane.shape[1] - 1
    low = [np.clip(p, 0, end).astype(int) for p, end in zip(points, last, strict=True)]
    high = [np.minimum(each + 1, end) for each, end in zip(low, last, strict=True)]
    parts = [np.clip(each - start, 0, 1) for each, start in zip(points, low, strict=True)]
    (y0, x0), (y1, x1), (fy, fx) = low, high, parts

    def values(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        found = plane[y, x]
        return luminance(found) if rgb else found.astype(np.float64)

    top = values(y0, x0) * (1 - fx) + values(y0, x1) * fx
    bottom = values(y1, x0) * (1 - fx) + values(y1, x1) * fx
    return top * (1 - fy) + bottom * fy


def _points(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points from corner to corner."""
    lengths = np.hypot(*np.diff(corners, axis=0).T)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    count = int(np.clip(np.ceil(2 * ends[-1]) + 1, 2, _MOST))
    at = np.linspace(0, ends[-1], count)
    return tuple(np.interp(at, ends, corners[:, k]) for k in range(2))


def profile(
    pair: Pair, corners: np.ndarray, index: tuple[int | slice, ...], axes: tuple[int, int]
) -> tuple[list[Series], str]:
    """Return the curves along a line in a plane of a pair, and the label of distances.

    `corners` have a place for each axis of the result; `index` takes the plane, which has `axes`
    of the result as rows and columns.
    """
    rgb = pair.after.rgb
    planes = pair.read((*index, slice(None)) if rgb else index)
    if axes[0] > axes[1]:
        planes = [np.swapaxes(each, 0, 1) for each in planes]
    curves = [along(each, corners[:, axes], rgb=rgb).tolist() for each in planes]
    scale, unit = _scale(pair.after, axes)
    points = np.array(_points(corners[:, axes])).T * scale
    steps = np.hypot(*np.diff(points, axis=0).T)
    distance = np.concatenate([[0], np.cumsum(steps)]).tolist()
    names = ("before", "after")
    series = [
        Series(distance, curve, name, "line", k)
        for k, (curve, name) in enumerate(zip(curves, names, strict=True))
    ]
    return series, f"Distance ({unit})"


def _scale(layer: Image, axes: tuple[int, int]) -> tuple[np.ndarray, str]:
    """Return the length of a pixel along two axes, in one unit, and that unit."""
    units: list[Any] = [layer.units[axis] for axis in axes]
    sizes = np.abs([float(layer.scale[axis]) for axis in axes])
    if not units[0].is_compatible_with(units[1]):
        return np.ones(2), "pixels"
    factor = float((1 * units[0]).to(units[1]).magnitude)
    unit = f"{units[1]:~P}"
    return sizes * (factor, 1), "pixels" if str(units[1]) == "pixel" else unit
