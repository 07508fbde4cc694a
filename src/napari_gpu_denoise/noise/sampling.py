"""Sample planes for all noise estimates: a few planes, spread evenly over every axis."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from napari_gpu_denoise.image.axes import channel_axis, check_axes
from napari_gpu_denoise.image.levels import as_array, far_values, is_plain, readable

Channel = tuple[int, int]
"""The axis of channels, and the index of one."""

Place = tuple[int | slice, ...]
"""The index of a plane."""

MAX_PLANES = 8  # planes read of each channel
LARGEST_PLANE = 1 << 23  # pixels of a plane up to which it is read whole, of others windows


def plane_indices(axes: str, shape: tuple[int, ...], channel: Channel | None) -> list[Place]:
    """Return the indices of at most MAX_PLANES planes of a channel, spread over each axis."""
    fixed: set[int] = {axes.index("Y"), axes.index("X")} | ({channel[0]} if channel else set())
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    counts = dict.fromkeys(free, 1)

    def has_room(axis: int) -> bool:
        others = math.prod(counts.values()) // counts[axis]
        return counts[axis] < shape[axis] and others * (counts[axis] + 1) <= MAX_PLANES

    while room := list(filter(has_room, free)):
        # The axis sampled most sparsely gets the next sample.
        counts[max(room, key=lambda axis: shape[axis] / counts[axis])] += 1
    chosen = product(*(spread(shape[axis], counts[axis]) for axis in free))
    found = (dict(zip(free, places, strict=True)) for places in chosen)
    return [_plane_at(len(shape), channel, each) for each in found]


def spread(length: int, count: int) -> list[int]:
    """Return the middles of `count` equal parts of an axis; all of it where it is shorter."""
    count = min(length, count)
    return [(2 * i + 1) * length // (2 * count) for i in range(count)]


def plane_axis(axes: str, shape: Sequence[int]) -> int | None:
    """Return the longest axis of planes that is neither T nor Z; None if there is none."""
    channel = channel_axis(axes)
    found = [k for k, letter in enumerate(axes) if letter not in "TZYX" and k != channel]
    longest = max(found, key=lambda k: shape[k], default=None)
    return None if longest is None or shape[longest] < 2 else longest


def _plane_at(ndim: int, channel: Channel | None, places: dict[int, int]) -> Place:
    """Return the index of the plane at these places (axis: position) of a channel."""
    index: list[int | slice] = [slice(None)] * ndim
    for axis, place in (*places.items(), *([channel] if channel else [])):
        index[axis] = place
    return tuple(index)


class PlaneStack(Sequence[np.ndarray]):
    """Planes of an image; each is read when it is indexed."""

    def __init__(self, read: Callable[[int], np.ndarray], count: int):
        self._read, self._count = read, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride] no slices
        return self._read(index)


class PlaneReader:
    """Reads planes of an image, and counts them.

    `image` is anything with ``shape``, ``dtype`` and NumPy indexing, or what `numpy.asarray` takes;
    `axes` is as `check_axes` takes it. ImageError if the image has no pixels or they are not real
    numbers; AxesError if `axes` does not fit.
    """

    def __init__(self, image: Any, axes: str | None = None):
        self._image = readable(image)
        self.shape = tuple(int(length) for length in self._image.shape)
        self.axes = check_axes(axes, self.shape)
        self.lazy = type(self._image) is not np.ndarray
        axis = channel_axis(self.axes)
        self.channels: list[Channel | None] = [None]
        if axis is not None:
            self.channels = [(axis, index) for index in range(self.shape[axis])]
        self._read: set[tuple[int, ...]] = set()

    @property
    def threads(self) -> int:
        """How many threads may read and analyse planes at once: 1 if they are lazy, or small."""
        large = math.prod(self.shape[self.axes.index(axis)] for axis in "YX") >= 1 << 18
        return min(8, os.cpu_count() or 1) if large and not self.lazy else 1

    @property
    def count(self) -> int:
        """Number of different planes read so far."""
        return len(self._read)

    @property
    def repeats(self) -> int | None:
        """The axis along which planes may repeat a scene: T, or the longest without a name."""
        return self.axes.index("T") if "T" in self.axes else plane_axis(self.axes, self.shape)

    def sampled(self, channel: Channel | None = None, side: int | None = None) -> PlaneStack:
        """Return at most `MAX_PLANES` planes of a channel, spread evenly over each axis.

        With `side`, of each the middle, so many pixels along each axis at most.
        """
        return self._stack(plane_indices(self.axes, self.shape, channel), side=side)

    def sampled_repeats(self, channel: Channel | None, axis: int) -> list[tuple[int, int]]:
        """Return which of the sampled planes follow each other along an axis."""
        places = plane_indices(self.axes, self.shape, channel)
        last: dict[str, int] = {}
        found: list[tuple[int, int]] = []
        for number, place in enumerate(places):
            others = str((*place[:axis], *place[axis + 1 :]))
            if others in last:
                found.append((last[others], number))
            last[others] = number
        return found

    def along(self, axis: int, channel: Channel | None, positions: Sequence[int]) -> PlaneStack:
        """Return planes at these positions of an axis, from the middle of all others."""
        places = {
            k: self.shape[k] // 2
            for k, letter in enumerate(self.axes)
            if letter not in "YX" and k != axis and (channel is None or k != channel[0])
        }
        ndim = len(self.axes)
        found = [_plane_at(ndim, channel, {**places, axis: k}) for k in positions]
        return self._stack(found)

    def _stack(self, places: Sequence[Place], side: int | None = None) -> PlaneStack:
        """Return the planes at these indices; none is read yet."""
        y, x = self.axes.index("Y"), self.axes.index("X")
        large = self.shape[y] * self.shape[x] > LARGEST_PLANE and not side
        lengths = self.shape[y], self.shape[x]
        down, across = (_windows(n) if large else [middle(n, side or n)] for n in lengths)

        def window(place: list[Any], rows: slice, columns: slice) -> np.ndarray:
            place[y], place[x] = rows, columns
            found = as_array(self._image[tuple(place)])
            return found if y < x else found.T

        def read(number: int) -> np.ndarray:
            place = list(places[number])
            self._read.add(tuple(part for part in place if not isinstance(part, slice)))
            parts = [[window(place, rows, columns) for columns in across] for rows in down]
            return without_fill(np.block(parts) if large else parts[0][0])

        return PlaneStack(read, len(places))


def middle(length: int, side: int) -> slice:
    """Return the middle of an axis, of a limited length."""
    start = max(length - side, 0) // 2
    return slice(start, min(start + side, length))


def _windows(length: int) -> list[slice]:
    """Return four windows of 512 pixels along an axis, or fewer of less, spread evenly."""
    count = min(4, max(length // 512, 1))
    size = min(length, 2048) // count
    free = length - count * size
    starts = [(2 * k + 1) * free // (2 * count) + k * size for k in range(count)]
    return [slice(start, start + size) for start in starts]


def without_fill(plane: np.ndarray) -> np.ndarray:
    """Return a plane with NaN in place of fill values; they are looked for if some pixels are far.

    A few that these do not show are in patches that differ too much from others to be read.
    """
    if is_plain(plane.dtype):
        return plane
    step = 1 + math.isqrt(plane.size // 1024)
    some = np.unique(plane[::step, ::step])
    least, low, high, most = map(float, some[(len(some) - 1) * np.array([0, 1, 3, 4]) // 4])
    far = far_values(plane) if most - least > 1024 * (high - low) else None
    return plane if far is None else np.where(far, np.nan, plane)
