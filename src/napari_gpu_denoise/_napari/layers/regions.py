"""Parts of a layer: the region in view, a drawn rectangle."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from napari.components import Dims
from napari.layers import Image, Shapes

from napari_gpu_denoise._napari.layers.source import AXIS_WORDS, finest
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.image.axes import channel_axis

MOST_PREVIEWED = 1 << 20  # pixels that are filtered; of a larger view only the middle


@dataclass(frozen=True)
class Part:
    """A part of an array: for each axis one index, or a slice with both ends.

    `axes` are the letters of those that are left. `place` is the part in words and `code` the index
    in Python, with brackets; both are empty for the whole.
    """

    index: tuple[int | slice, ...]
    axes: str
    place: str
    code: str


def part_of(axes: str, layer: Image, places: dict[int, Any] | None = None) -> Part:
    """Return the part of a layer at places of its axes, by number: an index, or start and stop.

    Of RGBA it is the part without alpha.
    """
    shape = finest(layer).shape
    colours = {len(shape) - 1: (0, 3)} if layer.rgb else {}
    places, index, words, code = {**colours, **(places or {})}, [], [], []
    for i, (letter, length) in enumerate(zip(axes, shape, strict=True)):
        place = places.get(i, (0, length))
        if isinstance(place, int):
            index.append(place)
            words.append(f"{AXIS_WORDS.get(letter, 'plane')} {place}")
            code.append(str(place))
        else:
            index.append(slice(*place))
            code.append(":" if place == (0, length) else "{}:{}".format(*place))
    left = "".join(a for a, at in zip(axes, index, strict=True) if isinstance(at, slice))
    y, x = (index[axes.index(letter)] for letter in "YX")
    if (code[axes.index("Y")], code[axes.index("X")]) != (":", ":"):
        words.append(f"rows {y.start} to {y.stop - 1}, columns {x.start} to {x.stop - 1}")
    while code and code[-1] == ":":
        code.pop()
    return Part(tuple(index), left, ", ".join(words), f"[{', '.join(code)}]" if code else "")


def in_view(layer: Image, axes: str, dims: Dims) -> Part:
    """Return the visible part of a layer, in the slice at the sliders.

    Raises `LayerError` if the viewer shows no plane of Y and X of it.
    """
    region, places = region_shown(layer, dims, math.inf), {}
    if {axes[i] for i in region.plane} != set("YX"):
        raise LayerError(
            f"The viewer does not show a YX plane of {layer.name!r}: bring the axes into their "
            "original order."
        )
    for i, (start, stop) in enumerate(region.spans):
        if i != channel_axis(axes):
            places[i] = (start, stop) if i in region.plane else start
    return part_of(axes, layer, places)


def _index_at(layer: Image, axis: int, point: Any) -> int:
    index = int(np.round(point[axis]))  # as napari does
    if not 0 <= index < finest(layer).shape[axis]:
        raise LayerError(
            f"{layer.name!r} has no data at the current slider positions: move the sliders."
        )
    return index


def in_rectangle(
    layer: Image,
    axes: str,
    dims: Dims,
    shapes: Shapes | None,
    *,
    one_plane: bool = False,
) -> Part:
    """Return the part of a layer inside a drawn shape, or the rectangle around it.

    Of the shapes the one selected counts, else the last; with `one_plane` only the plane that it
    was drawn on, else all. Raises `LayerError` if there is none, or it lies outside the image.
    """
    if shapes is None or not len(shapes.data):
        raise LayerError("There is no rectangle yet: click Draw, and drag one over the image.")
    chosen = max(shapes.selected_data, default=len(shapes.data) - 1)
    corners = np.array(
        [_to_data(layer, dims, shapes.data_to_world(vertex)) for vertex in shapes.data[chosen]]
    )
    shape, places = finest(layer).shape, {}
    for letter in "YX":
        i = axes.index(letter)
        # Shapes are kept in single precision: centres are hit but for rounding.
        low, high = np.round([min(corners[:, i]), max(corners[:, i])], 3)
        if low == high:
            raise LayerError(
                f"The shape has no extent along {letter} of {layer.name!r}: draw a rectangle where "
                "the viewer shows a YX plane."
            )
        places[i] = max(math.ceil(low), 0), min(math.floor(high) + 1, shape[i])
        if places[i][1] <= places[i][0]:
            raise LayerError(
                f"The region contains no pixels of {layer.name!r} along {letter}: choose another."
            )
    if one_plane:
        others = set(range(layer.ndim)) - {*places, channel_axis(axes)}
        places |= {i: _index_at(layer, i, corners.mean(axis=0)) for i in others}
    return part_of(axes, layer, places)


def _to_data(layer: Image, dims: Dims, world: Any) -> np.ndarray:
    """Return the data coordinates of a world point, whose axes are the viewer's last."""
    whole = np.array(dims.point, float)
    count = min(len(whole), len(world))
    whole[len(whole) - count :] = np.asarray(world, float)[len(world) - count :]
    return np.asarray(layer.world_to_data(whole))


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

    @property
    def across(self) -> int:
        """The axis that runs across the screen."""
        return self.plane[1]

    @property
    def gap(self) -> int:
        """Pixels between pictures of this region side by side."""
        return max(self.shape[self.across] // 50, 1)

    def third(self) -> Region:
        """Return the middle across the screen, of which three fit side by side."""
        spans, (start, stop) = list(self.spans), self.spans[self.across]
        length = stop - start
        width = max(min(25 * length // 76, (length - 2) // 3), 1)
        start += (length - width) // 2
        spans[self.across] = start, start + width
        return replace(self, spans=tuple(spans))

    def words(self) -> str:
        """Return the size in words."""
        height, width = (self.shape[axis] for axis in sorted(self.plane))
        size = f"{height} by {width} pixels"
        return f"the middle {size} of the view" if self.cut else size


def region_shown(layer: Image, dims: Dims, most: float = MOST_PREVIEWED) -> Region:
    """Return the region of the finest level that the camera and the sliders show.

    Raises `LayerError` if that is no plane of the layer.
    """
    first = dims.ndim - layer.ndim
    plane = tuple(axis - first for axis in dims.displayed if axis >= first)
    if dims.ndisplay != 2 or len(plane) != 2:
        raise LayerError(f"No plane of {layer.name!r} is shown: switch the viewer to 2D.")
    shape, point = finest(layer).shape, layer.world_to_data(dims.point)
    spans = []
    for axis in range(layer.ndim):
        place = 0 if axis in plane else _index_at(layer, axis, point)
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
    # As equally as possible.
    side, lengths = math.isqrt(int(most)), [spans[axis][1] - spans[axis][0] for axis in plane]
    for axis, own, other in zip(plane, lengths, lengths[::-1], strict=True):
        length = min(own, max(side, int(most) // other))
        start = spans[axis][0] + (own - length) // 2
        spans[axis] = start, start + length
    return Region(tuple(spans), plane, cut=True)
