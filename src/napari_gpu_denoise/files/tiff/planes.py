"""The pixels of an image in a TIFF file, read on demand.

Files are read and not mapped, since mapped pages count as memory of the process.
"""

from __future__ import annotations

import contextlib
import math
import operator
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import DTypeLike

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.tiff import imagej
from napari_gpu_denoise.files.tiff.messages import listening

_CACHED = 4  # decoded blocks kept in memory,
_CACHED_BYTES = 2**25  # as long as they do not exceed this; one is always kept


def index_parts(index: Any, shape: tuple[int, ...]) -> list[int | slice]:
    """Return one number, not below 0, or slice for each axis."""
    parts = list(index) if isinstance(index, tuple) else [index]
    gaps = [i for i, part in enumerate(parts) if part is Ellipsis]
    missing = len(shape) - len(parts) + len(gaps)
    if missing < 0 or len(gaps) > 1:
        raise IndexError(f"The index {index} does not fit {len(shape)} axes.")
    gap = gaps[0] if gaps else len(parts)
    parts[gap : gap + len(gaps)] = [slice(None)] * missing
    for axis, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            continue
        try:
            number = operator.index(part)
        except TypeError:
            number = None
        if number is None or isinstance(part, bool):
            raise IndexError(f"Planes are chosen by whole numbers and slices, not by {part!r}.")
        if not -length <= number < length:
            raise IndexError(f"Index {number} is outside of axis {axis} of length {length}.")
        parts[axis] = number % length
    return parts


class Blocks(ABC):
    """An array that is read in blocks, each of which holds all but the first `outer` axes."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, outer: int) -> None:
        self.shape = tuple(int(length) for length in shape)
        self.dtype = dtype
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.nbytes = self.size * dtype.itemsize
        self._outer = outer
        self._block_shape = self.shape[outer:]
        self._block_bytes = math.prod(self._block_shape) * dtype.itemsize
        self._numbers = np.arange(math.prod(self.shape[:outer])).reshape(self.shape[:outer])
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        numbers, part, shape = self._select(index)
        result = np.empty(numbers.shape + shape, self.dtype)
        for place in np.ndindex(numbers.shape):
            result[place] = self._block(int(numbers[place]))[part]
        return result[()]

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Planes come into memory as a copy.")
        whole = self._whole()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _select(self, index: Any) -> tuple[np.ndarray, tuple[int | slice, ...], tuple[int, ...]]:
        """Return the numbers of the blocks wanted, the index into each, and the shape it gives."""
        parts = tuple(index_parts(index, self.shape))
        numbers, part = np.asarray(self._numbers[parts[: self._outer]]), parts[self._outer :]
        return numbers, part, np.broadcast_to(False, self._block_shape)[part].shape

    def _whole(self) -> np.ndarray:
        return self[...]

    @abstractmethod
    def _block(self, number: int) -> np.ndarray:
        """Read one block, which the caller does not change."""


def page_axis(shape: tuple[int, ...], size: int) -> int | None:
    """Return the last axis from which on an image fills pages of `size` values; None if none."""
    fitting = (n for n in range(len(shape), -1, -1) if math.prod(shape[n:]) == size)
    return next(fitting, None)


def grey(series: tifffile.TiffPageSeries) -> tuple[tuple[int, ...], str]:
    """Return shape and axes of an image, without an axis of colours that has a single one.

    Only damaged files have such an axis, and no file that is written like them would.
    """
    pairs = zip(series.shape, series.axes, strict=True)
    kept = [(length, axis) for length, axis in pairs if (length, axis) != (1, "S")]
    return tuple(length for length, _ in kept), "".join(axis for _, axis in kept)


class Planes(Blocks):
    """The pixels of an image in a TIFF file; indexing reads only the pages required.

    NumPy's basic indexing, by whole numbers, slices and ``...``, gives arrays in memory; so does
    ``numpy.asarray`` for the whole. Several threads may read. `open_stack` makes it.

    What is not stored in pages of whole planes, such as an image scaled by its metadata, is read
    completely when any of it is indexed, and kept.
    """

    def __init__(self, series: tifffile.TiffPageSeries, path: Path, *, signed16: bool) -> None:
        page, scaled = math.prod(series.keyframe.shape), series.transform is not None
        shape, axes = grey(series)
        self._contiguous = series.dataoffset is not None and not scaled
        if self._contiguous and {"Y", "X"} <= set(axes):
            outer = min(axes.index("Y"), axes.index("X"))
        elif self._contiguous or scaled or page * len(series) != math.prod(shape):
            outer = 0
        else:
            outer = page_axis(shape, page) or 0
        stored = series.dtype if self._contiguous or scaled else series.keyframe.dtype
        stored = stored.newbyteorder("=")
        super().__init__(shape, np.dtype(np.int16) if signed16 else stored, outer)
        self._stored, self._signed16 = stored, signed16
        self._path = path
        self._series: tifffile.TiffPageSeries | None = series
        self._kept: dict[int, np.ndarray] = {}  # the block used longest ago comes first

    def reads_by_plane(self, *axes: int) -> bool:
        """Return whether a plane of these two axes can be read without reading the whole file."""
        return self._outer <= min(axes) and self._numbers.size > 1

    def close(self) -> None:
        """End reading; `open_stack` closes the file."""
        with self._lock:
            self._series = None
            self._kept.clear()

    def _block(self, number: int) -> np.ndarray:
        with self._lock:
            block = self._kept.pop(number, None)
            if block is None:
                most = min(_CACHED, max(1, _CACHED_BYTES // self._block_bytes))
                while len(self._kept) >= most:
                    del self._kept[next(iter(self._kept))]
                if self._outer == 0:
                    block = self._whole()
                else:
                    with self._reading() as series:
                        block = self._shown(self._read(series, number), self._block_shape)
            self._kept[number] = block
            return block

    def _whole(self) -> np.ndarray:
        with self._lock, self._reading() as series:
            return self._shown(series.asarray(), self.shape)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[tifffile.TiffPageSeries]:
        if self._series is None:
            raise FileError(f"{self._path} is closed: read its planes within open_stack().")
        with listening(self._path):
            yield self._series

    def _read(self, series: tifffile.TiffPageSeries, number: int) -> np.ndarray:
        if self._contiguous:
            handle = series.parent.filehandle
            dtype = self._stored.newbyteorder(series.parent.byteorder)
            count = self._block_bytes // dtype.itemsize
            return handle.read_array(dtype, count, series.dataoffset + number * self._block_bytes)
        with self._opened(series, number) as page:
            if page is None:
                return np.zeros(self._block_shape, self._stored)
            return page.asarray()

    @contextlib.contextmanager
    def _opened(
        self, series: tifffile.TiffPageSeries, number: int
    ) -> Iterator[tifffile.TiffPage | tifffile.TiffFrame | None]:
        """Yield a page, with its file open; None if the file does not hold it."""
        page = series[number]
        with contextlib.ExitStack() as opened:
            if page is not None and page.parent.filehandle.closed:
                # A set may have more files than a process may open.
                page.parent.filehandle.open()
                opened.callback(page.parent.filehandle.close)
            yield page

    def _shown(self, pixels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return pixels as programs that know the format show them."""
        pixels = pixels.astype(self._stored, copy=False).reshape(shape)
        return imagej.swap_sign16(pixels) if self._signed16 else pixels


class PartOfPlanes(Blocks):
    """Part of each plane of an image, such as its colours without alpha, read as `Planes` are."""

    def __init__(self, planes: Planes, kept: tuple[slice, ...]) -> None:
        shape = np.broadcast_to(False, planes.shape)[kept].shape
        super().__init__(shape, planes.dtype, planes._outer)
        self._numbers = planes._numbers[kept[: self._outer]]
        self._planes, self._kept = planes, kept[self._outer :]

    def _block(self, number: int) -> np.ndarray:
        return self._planes._block(number)[self._kept]
