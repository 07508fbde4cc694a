"""The pixels of an image in a TIFF file, read when they are asked for.

Files are read and not mapped, since mapped pages count as memory of the process.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.tiff import imagej
from napari_gpu_denoise.files.tiff.blocks import Blocks, index_parts
from napari_gpu_denoise.files.tiff.messages import listening

_CACHED = 4  # blocks kept after they were decoded,
_CACHED_BYTES = 2**25  # as long as they do not exceed this; one is always kept


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


class Planes(Blocks):
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
        if self._contiguous and {"Y", "X"} <= set(series.axes):
            outer = min(series.axes.index("Y"), series.axes.index("X"))
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

    def reads_by_plane(self, *axes: int) -> bool:
        """Whether an index that leaves these axes whole can do with a part of the file.

        Parameters
        ----------
        *axes : int
            The two axes of a plane.
        """
        return self._outer <= min(axes) and math.prod(self.shape[: self._outer]) > 1

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


class WithoutLast:
    """Planes of an image, but for the last place of an axis, as for alpha among colours.

    Read as `Planes` are.

    Parameters
    ----------
    planes : Planes
    axis : int
        Not below 0.
    """

    def __init__(self, planes: Planes, axis: int) -> None:
        self._planes, self._axis = planes, axis
        shape = planes.shape
        self.shape = (*shape[:axis], shape[axis] - 1, *shape[axis + 1 :])
        self.dtype = planes.dtype
        self.ndim, self.size = len(self.shape), math.prod(self.shape)

    def __getitem__(self, index: Any) -> Any:
        parts = index_parts(index, self.shape)
        part = parts[self._axis]
        if isinstance(part, slice):
            # Its ends are to be counted on the shorter axis.
            places = range(self.shape[self._axis])[part]
            stop = places.stop if places.stop >= 0 else None
            parts[self._axis] = slice(places.start, stop, places.step) if places else slice(0)
        return self._planes[tuple(parts)]
