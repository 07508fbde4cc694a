"""The region of a layer that the camera shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from napari.components import Dims
from napari.layers import Image

from napari_gpu_denoise._napari.layers.source import finest
from napari_gpu_denoise.errors import LayerError

MOST = 1 << 20  # pixels that are filtered; of a larger view only the middle


@dataclass(frozen=True)
class Region:
    """What is previewed: a span of each axis of a layer, without its colours.

    Axes that are not on the screen have a span of one place. `plane` are the two that are, and
    `cut` says that more is on the screen.
    """

    spans: tuple[tuple[int, int], ...]
    plane: tuple[int, int]
    cut: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Pixels along each axis."""
        return tuple(stop - start for start, stop in self.spans)

    @property
    def starts(self) -> dict[int, int]:
        """The first pixel along each axis."""
        return {axis: start for axis, (start, _) in enumerate(self.spans)}

    def words(self) -> str:
        """Return the size in words."""
        height, width = (self.shape[axis] for axis in sorted(self.plane))
        size = f"{height} by {width} pixels"
        return f"the middle {size} of the view" if self.cut else size


def region_shown(layer: Image, dims: Dims, most: int = MOST) -> Region:
    """Return the region of the finest level that the camera and the sliders show.

    Raises `LayerError` if that is no plane of the layer.
    """
    first = dims.ndim - layer.ndim
    plane = tuple(axis - first for axis in dims.displayed if axis >= first)
    if dims.ndisplay != 2 or len(plane) != 2:
        raise LayerError("The preview works in 2D: switch the viewer to 2D.")
    shape, point = finest(layer).shape, layer.world_to_data(dims.point)
    spans = []
    for axis in range(layer.ndim):
        place = int(np.round(point[axis]))  # as napari does
        if axis not in plane and not 0 <= place < shape[axis]:
            raise LayerError(
                f"{layer.name!r} has no data at the current slider positions: move the sliders."
            )
        spans.append((place, place + 1))
    corners = np.asarray(layer.corner_pixels, float)
    if layer.multiscale:
        # A pixel of a coarse level stands for all those below it.
        factors = np.asarray(layer.downsample_factors)[layer.data_level]
        corners = np.stack([corners[0] * factors, (corners[1] + 1) * factors - 1])
    for axis in plane:
        low, high = corners[:, axis]
        spans[axis] = max(math.floor(low), 0), min(math.ceil(high) + 1, shape[axis])
        if spans[axis][1] <= spans[axis][0] or high <= low:
            raise LayerError(f"No part of {layer.name!r} is in view.")
    size = math.prod(stop - start for start, stop in (spans[axis] for axis in plane))
    if size <= most:
        return Region(tuple(spans), plane)
    lengths = _within([spans[axis][1] - spans[axis][0] for axis in plane], most)
    for axis, length in zip(plane, lengths, strict=True):
        start, stop = spans[axis]
        start += (stop - start - length) // 2
        spans[axis] = start, start + length
    return Region(tuple(spans), plane, cut=True)


def _within(lengths: list[int], most: int) -> list[int]:
    """Return lengths whose product is at most so many, cut as alike as they allow."""
    side = math.isqrt(most)
    if min(lengths) <= side:
        short = min(lengths)
        return [min(length, max(most // short, 1)) for length in lengths]
    return [side, side]
