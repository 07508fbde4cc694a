"""Which planes of an image are read: few, spread evenly over every axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import channel_axis, check_numbers

MAX_PLANES = 8  # planes read of each channel


def readable(image: Any) -> Any:
    """Return an image with ``shape``, ``dtype`` and NumPy indexing; lazy ones as they are.

    Raises
    ------
    ImageError
        If it has no pixels, or they are no real numbers.
    """
    if not all(hasattr(image, name) for name in ("shape", "dtype", "__getitem__")):
        image = np.asarray(image)
    check_numbers(image)
    return image


def channel_indices(axes: str, shape: tuple[int, ...]) -> Iterator[tuple[int, int] | None]:
    """Yield (axis, index) for each channel, or None once where there are no channels."""
    axis = channel_axis(axes)
    if axis is None:
        yield None
        return
    for index in range(shape[axis]):
        yield axis, index


def plane_indices(
    axes: str, shape: tuple[int, ...], channel: tuple[int, int] | None
) -> list[tuple[int | slice, ...]]:
    """Return the indices of at most MAX_PLANES planes, spread evenly over each axis.

    Parameters
    ----------
    axes, shape
        Of the image.
    channel : tuple of int or None
        Axis and index of the channel, as `channel_indices` yields them.
    """
    fixed = {axes.index("Y"), axes.index("X")} | ({channel[0]} if channel else set())
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    counts = dict.fromkeys(free, 1)
    while True:
        total = int(np.prod(list(counts.values()), initial=1))
        room = [
            axis
            for axis in free
            if counts[axis] < shape[axis]
            and total // counts[axis] * (counts[axis] + 1) <= MAX_PLANES
        ]
        if not room:
            break
        # The axis sampled most sparsely gets the next sample.
        counts[max(room, key=lambda axis: shape[axis] / counts[axis])] += 1
    chosen = product(*(spread(shape[axis], counts[axis]) for axis in free))
    return [
        whole_plane(len(shape), channel, dict(zip(free, places, strict=True))) for places in chosen
    ]


def spread(length: int, count: int) -> list[int]:
    """Return the middles of `count` equal parts of an axis; all of it where it is shorter."""
    count = min(length, count)
    return [(2 * i + 1) * length // (2 * count) for i in range(count)]


def whole_plane(
    ndim: int, channel: tuple[int, int] | None, places: dict[int, int]
) -> tuple[int | slice, ...]:
    """Return the index of the plane at these places, by axis, of an image."""
    index: list[int | slice] = [slice(None)] * ndim
    for axis, place in (*places.items(), *([channel] if channel else [])):
        index[axis] = place
    return tuple(index)


class PlaneStack:
    """Some planes of an image, read when they are asked for: an array (n, y, x) to those who read.

    Parameters
    ----------
    read : callable
        Takes the number of a plane and returns it, (y, x).
    shape : tuple of int
        (n, y, x).
    dtype : dtype
    """

    def __init__(self, read: Callable[[int], np.ndarray], shape: tuple[int, ...], dtype: Any):
        self._read = read
        self.shape = shape
        self.size = math.prod(shape)
        self.dtype = np.dtype(dtype)

    @classmethod
    def held(cls, planes: Sequence[np.ndarray]) -> PlaneStack:
        """Return planes that lie in memory."""
        return cls(planes.__getitem__, (len(planes), *planes[0].shape), planes[0].dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._read(int(index[0] if isinstance(index, tuple) else index))


class PlaneReader:
    """Reads planes of an image, and counts them.

    Parameters
    ----------
    image : array
        Anything with ``shape``, ``dtype`` and NumPy indexing.
    axes : str
        Its axes, as `check_axes` returns them.
    """

    def __init__(self, image: Any, axes: str):
        self.image, self.axes = image, axes
        self.shape = tuple(int(length) for length in image.shape)
        self.lazy = type(image) is not np.ndarray
        self._read: set[tuple[int, ...]] = set()

    @property
    def count(self) -> int:
        """Number of different planes read so far."""
        return len(self._read)

    def stack(self, places: Sequence[tuple[int | slice, ...]]) -> PlaneStack:
        """Return the planes at these indices, of which none is read yet."""
        y, x = self.axes.index("Y"), self.axes.index("X")

        def read(number: int) -> np.ndarray:
            place = places[number]
            self._read.add(tuple(part for part in place if not isinstance(part, slice)))
            plane = np.asarray(self.image[place])
            return plane if y < x else plane.T

        return PlaneStack(read, (len(places), self.shape[y], self.shape[x]), self.image.dtype)

    def along(
        self, axis: int, channel: tuple[int, int] | None, positions: Sequence[int]
    ) -> PlaneStack:
        """Return planes at these positions of an axis, from the middle of all others."""
        places = {
            k: self.shape[k] // 2
            for k, letter in enumerate(self.axes)
            if letter not in "YX" and k != axis and (channel is None or k != channel[0])
        }
        ndim = len(self.axes)
        return self.stack([whole_plane(ndim, channel, {**places, axis: k}) for k in positions])
