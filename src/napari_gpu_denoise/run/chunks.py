"""Chunks that suit a filter: what their margins cost, and larger ones where that is much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.job import reach_along
from napari_gpu_denoise.run.lazy import check_shape, joined_chunks, uncut_axes
from napari_gpu_denoise.run.settings import number_of_bytes

_RESULT = 4  # bytes of a pixel of the result, at most


@dataclass(frozen=True)
class Chunks:
    """Chunks proposed for a filter.

    Attributes
    ----------
    axes : str
        Axes of the array.
    chunks : tuple of int
        Lengths of a chunk, as ``rechunk`` of dask and ``chunks=`` of zarr take them.
    overhead : float
        Additional pixels that are read and filtered because of margins, relative to the pixels of
        the result: 0.2 means a fifth more work than for the image as a whole.
    present : float or None
        The same for the present chunks of the array, with small ones joined as `denoise_lazy` does;
        None if it has no chunks.
    margins : tuple of (int, int)
        Pixels read before and after a chunk along each axis.
    nbytes : int
        Bytes of a chunk with its margins, and of its result.
    """

    axes: str
    chunks: tuple[int, ...]
    overhead: float
    present: float | None
    margins: tuple[tuple[int, int], ...]
    nbytes: int

    def __str__(self) -> str:
        size = " x ".join(map(str, self.chunks))
        margins = ", ".join(
            f"{before} and {after} along {axis}"
            for axis, (before, after) in zip(self.axes, self.margins, strict=True)
            if before or after
        )
        now = "" if self.present is None else f", {self.present:.0%} with the chunks of the array"
        return (
            f"chunks of {size}, {self.nbytes / 1e6:.3g} MB each with margins of {margins or '0'}: "
            f"they add {self.overhead:.0%} to the work{now}"
        )


def propose_chunks(
    array: Any, filter: Filter, *, axes: str | None = None, nbytes: int | str = "256M"
) -> Chunks:
    """Propose chunks of an array that is to be filtered by dask, or stored as zarr.

    Each chunk is read with the margin that the filter needs, so pixels in margins are filtered more
    than once. Larger chunks have less margin, but need more memory.

    Parameters
    ----------
    array : array_like
        Anything with ``shape`` and ``dtype``; nothing is read. For dask and zarr arrays the
        proposal is a multiple of their chunks, along axes that may be divided.
    filter : Filter
        An object of one of `FILTERS`, such as ``BM3D()``.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``. By default the last two are Y and X, the rest
        independent planes.
    nbytes : int or str, default "256M"
        Bytes that a chunk may take with its margins and its result; each worker needs a few
        times as much.

    Returns
    -------
    Chunks

    Raises
    ------
    AxesError, ImageError, SettingsError
        If axes or filter do not fit the array, or its shape is not known.

    Examples
    --------
    >>> import dask.array as da
    >>> import napari_gpu_denoise as gd
    >>> stack = da.zeros((100, 2048, 2048), dtype="uint16", chunks=(1, 256, 256))
    >>> print(gd.propose_chunks(stack, gd.BM3D.of(profile="fast"), axes="TYX"))  # doctest: +SKIP
    """
    if not isinstance(filter, Filter):
        raise SettingsError(f"{filter!r} is not a filter", "give one such as BM3D()")
    check_shape(array)
    shape = tuple(int(n) for n in array.shape)
    names, most = check_axes(axes, shape), number_of_bytes(nbytes)
    filter = filter.for_array(names, shape)
    uncut = uncut_axes(filter, names)
    margins = tuple(
        (0, 0) if i in uncut else reach_along(filter, letter) for i, letter in enumerate(names)
    )
    own = _own_chunks(array)
    size = []
    for i, (letter, n) in enumerate(zip(names, shape, strict=True)):
        least = max(*margins[i], filter.smallest if letter in "YX" else 1)
        unit = max(own[i]) if own else (n if letter in "YXS" else 1)
        size.append(n if i in uncut else min(n, math.ceil(least / unit) * unit))
    itemsize = np.dtype(array.dtype).itemsize
    while True:
        grow = [i for i, n in enumerate(shape) if size[i] < n]
        axis = max(grow, key=lambda i: (sum(margins[i]) / size[i], i), default=None)
        if axis is None:
            break
        larger = [*size]
        larger[axis] = min(shape[axis], 2 * size[axis])
        if _bytes(larger, shape, margins, itemsize) > most:
            break
        size = larger
    cut = [_cut(n, s) for n, s in zip(shape, size, strict=True)]
    present = None
    if own is not None:
        joined = joined_chunks(own, names, filter, dict(enumerate(margins)))
        present = overhead(shape, joined, margins)
    taken = _bytes(size, shape, margins, itemsize)
    return Chunks(names, tuple(size), overhead(shape, cut, margins), present, margins, taken)


def overhead(
    shape: Sequence[int], chunks: Sequence[Sequence[int]], margins: Sequence[tuple[int, int]]
) -> float:
    """Return the pixels read for margins, as a share of the pixels of the result."""
    share = 1.0
    for n, lengths, (before, after) in zip(shape, chunks, margins, strict=True):
        ends = np.cumsum(lengths)
        first = np.maximum(ends - lengths - before, 0)
        share *= float(np.sum(np.minimum(ends + after, n) - first)) / max(n, 1)
    return share - 1.0


def _own_chunks(array: Any) -> list[tuple[int, ...]] | None:
    """Return the lengths of the chunks of a dask or zarr array along each axis, if it has any."""
    chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
    if not chunks:
        return None
    return [
        _cut(int(n), int(one)) if isinstance(one, (int, np.integer)) else tuple(one)
        for n, one in zip(array.shape, chunks, strict=True)
    ]


def _cut(length: int, size: int) -> tuple[int, ...]:
    whole, rest = divmod(length, size)
    return (size,) * whole + (rest,) * bool(rest)


def _bytes(
    size: Sequence[int], shape: Sequence[int], margins: Sequence[tuple[int, int]], itemsize: int
) -> int:
    read = math.prod(min(s + sum(both), n) for s, n, both in zip(size, shape, margins, strict=True))
    return read * itemsize + math.prod(size) * _RESULT
