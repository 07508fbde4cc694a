"""Image stacks plane by plane: read from a TIFF file, or kept in a temporary one.

Both look like arrays, of which only the planes that an index asks for come into memory. Files are
read and not mapped, since mapped pages count as memory of the process.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import ArrayLike, DTypeLike

from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.io import imagej
from napari_gpu_denoise.io.messages import listening

_CACHED = 4  # blocks kept after they were decoded,
_CACHED_BYTES = 2**25  # as long as they do not exceed this; one is always kept


@dataclass(frozen=True)
class _Selection:
    """What an index asks for: which blocks, and which part of each.

    Attributes
    ----------
    places : tuple of range
        Positions along each axis before those of a block.
    part : tuple of int or slice
        Index into a block.
    shape : tuple of int
        Lengths of `places`, then of the part of a block.
    drop : tuple of int or slice
        Index that drops the axes of `places` which the caller gave one number for.
    """

    places: tuple[range, ...]
    part: tuple[int | slice, ...]
    shape: tuple[int, ...]
    drop: tuple[int | slice, ...]

    @classmethod
    def of(cls, index: Any, shape: tuple[int, ...], outer: int) -> _Selection:
        parts = _parts(index, shape)
        places = tuple(
            range(n)[p] if isinstance(p, slice) else range(p, p + 1)
            for p, n in zip(parts[:outer], shape[:outer], strict=True)
        )
        part = tuple(parts[outer:])
        inner = np.broadcast_to(False, shape[outer:])[part].shape
        drop = tuple(slice(None) if isinstance(p, slice) else 0 for p in parts[:outer])
        return cls(places, part, (*map(len, places), *inner), drop)

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield where each block goes in the selection, and where it is in the stack."""
        return zip(np.ndindex(*map(len, self.places)), product(*self.places), strict=True)


def _parts(index: Any, shape: tuple[int, ...]) -> list[int | slice]:
    """One number, not below 0, or slice for each axis."""
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


class _Blocks(ABC):
    """An array that is read by blocks: each holds the last axes as a whole.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
    outer : int
        Number of axes before those of a block.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, outer: int) -> None:
        self.shape = tuple(int(length) for length in shape)
        self.dtype = dtype
        self._outer = outer
        self._block_shape = self.shape[outer:]
        self._block_bytes = math.prod(self._block_shape) * dtype.itemsize
        self._lock = threading.RLock()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes that the whole would take in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        chosen = _Selection.of(index, self.shape, self._outer)
        result = np.empty(chosen.shape, self.dtype)
        for place, position in chosen:
            result[place] = self._block(self._number(position))[chosen.part]
        return result[chosen.drop]

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Planes come into memory as a copy.")
        whole = self._whole()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _number(self, position: tuple[int, ...]) -> int:
        """Count blocks in their order."""
        number = 0
        for place, length in zip(position, self.shape, strict=False):
            number = number * length + place
        return number

    def _whole(self) -> np.ndarray:
        return self[...]

    @abstractmethod
    def _block(self, number: int) -> np.ndarray:
        """Read one block, which the caller does not change."""


def page_axis(shape: tuple[int, ...], size: int) -> int | None:
    """Find the axis from which on the axes fill a page.

    Parameters
    ----------
    shape : tuple of int
        Of an image.
    size : int
        Number of values in each page of its file.

    Returns
    -------
    int or None
        The last such axis; None if pages are cut otherwise.
    """
    fitting = (n for n in range(len(shape), -1, -1) if math.prod(shape[n:]) == size)
    return next(fitting, None)


class Planes(_Blocks):
    """The pixels of an image in a TIFF file, of which an index reads the pages it needs.

    NumPy's basic indexing, by whole numbers, slices and ``...``, gives arrays in memory; so does
    ``numpy.asarray`` for the whole. Several threads may read. `open_stack` makes it.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
        In native byte order.

    Notes
    -----
    What is not stored in pages of whole planes, as an image scaled by its metadata, is read as a
    whole when any of it is asked for, and kept.
    """

    def __init__(self, series: tifffile.TiffPageSeries, path: Path, *, signed16: bool) -> None:
        page, scaled = math.prod(series.keyframe.shape), series.transform is not None
        self._contiguous = series.dataoffset is not None and not scaled
        if self._contiguous and series.axes.endswith(("YX", "YXS")):
            outer = series.axes.rindex("Y")
        elif self._contiguous or scaled or page * len(series) != math.prod(series.shape):
            outer = 0
        else:
            outer = page_axis(series.shape, page) or 0
        stored = series.dtype if self._contiguous or scaled else series.keyframe.dtype
        stored = stored.newbyteorder("=")
        super().__init__(series.shape, np.dtype(np.int16) if signed16 else stored, outer)
        self._stored, self._signed16 = stored, signed16
        self._path = path
        self._series: tifffile.TiffPageSeries | None = series
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()

    def close(self) -> None:
        """End reading: the file is closed."""
        with self._lock:
            self._series = None
            self._kept.clear()

    def _block(self, number: int) -> np.ndarray:
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
                return self._kept[number]
            most = min(_CACHED, max(1, _CACHED_BYTES // self._block_bytes))
            while len(self._kept) >= most:
                self._kept.popitem(last=False)
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
        page = series[number]
        if page is None:
            return np.zeros(self._block_shape, self._stored)
        with _opened(page.parent.filehandle):
            return page.asarray()

    def _shown(self, pixels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Pixels as a program shows them that knows the format."""
        pixels = pixels.astype(self._stored, copy=False).reshape(shape)
        return imagej.swap_sign16(pixels) if self._signed16 else pixels


@contextlib.contextmanager
def _opened(handle: tifffile.FileHandle) -> Iterator[None]:
    """Open a file of a set while it is read: a set may have more than a process may open."""
    if not handle.closed:
        yield
        return
    handle.open()
    try:
        yield
    finally:
        handle.close()


class PlaneStore(_Blocks):
    """An array in a temporary file, for a result that is complete before it can be written.

    It is a context manager. The file has no name where the system allows that, else a hidden one,
    and is gone when the block or the process ends, by whatever way. What was not set is 0.

    Parameters
    ----------
    shape : tuple of int
    dtype : data type
    folder : path-like
        Where the file is made: best where the result goes, which needs as much room.
    axes_of_plane : int, default 2
        How many of the last axes are read and written at once; 3 for interleaved samples
        (Y, X, S). Whatever it is, any part may be set.

    Raises
    ------
    OutputError
        If the file cannot be made; later if it cannot be read or written, as when the disk is full.

    Examples
    --------
    >>> import numpy as np
    >>> with PlaneStore((3, 4, 5), np.uint16, ".") as store:
    ...     store[2] = np.ones((4, 5))
    ...     store[1:, 0].sum()
    np.uint64(5)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        folder: str | os.PathLike,
        *,
        axes_of_plane: int = 2,
    ) -> None:
        outer = max(0, len(shape) - axes_of_plane)
        super().__init__(shape, np.dtype(dtype).newbyteorder("="), outer)
        self._folder = folder

    def __enter__(self) -> PlaneStore:
        with self._telling(), contextlib.ExitStack() as made:
            # Without a buffer, so that a full disk is told when a plane is written.
            self._file = made.enter_context(
                tempfile.TemporaryFile(
                    buffering=0, prefix=".gpu-denoise-", suffix=".part", dir=self._folder
                )
            )
            self._file.truncate(self.nbytes)
            self._made = made.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._made.close()

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        chosen = _Selection.of(index, self.shape, self._outer)
        kept = tuple(np.newaxis if part == 0 else part for part in chosen.drop)
        inner = chosen.shape[self._outer :]
        lengths = [len(n) for n, part in zip(chosen.places, chosen.drop, strict=True) if part != 0]
        values = np.broadcast_to(values, (*lengths, *inner))[kept]
        full = all(
            isinstance(part, slice) and range(n)[part] == range(n)
            for part, n in zip(chosen.part, self._block_shape, strict=True)
        )
        for place, position in chosen:
            number = self._number(position)
            with self._lock:
                if full:
                    block = np.ascontiguousarray(values[place], self.dtype)
                else:
                    block = self._block(number)
                    block[chosen.part] = values[place]
                self._write(number, block)

    def _write(self, number: int, block: np.ndarray) -> None:
        rest = memoryview(block.reshape(-1)).cast("B")
        with self._telling():
            self._file.seek(number * self._block_bytes)
            while rest:
                rest = rest[self._file.write(rest) :]

    def _block(self, number: int) -> np.ndarray:
        block = np.empty(self._block_shape, self.dtype)
        rest = memoryview(block.reshape(-1)).cast("B")
        with self._lock, self._telling():
            self._file.seek(number * self._block_bytes)
            while rest:
                count = self._file.readinto(rest)
                if not count:
                    raise OSError("it is shorter than what was written")
                rest = rest[count:]
        return block

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"The temporary file of the result in {self._folder} cannot be used: "
                f"{error.strerror or error}."
            ) from error
