"""Planes of a TIFF file that are too large to be read whole: only what is asked for is decoded."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.tiff.planes import PartOfPlanes, Planes, grey, page_axis

LARGE_PLANE = 1 << 27  # bytes from which on a plane is read in regions
# Rows and columns that are best read at once where rows are stored as they are.
_ROWS, _COLUMNS = 256, 1024
_AT_ONCE = 64  # segments that are in memory
_THREADS = min(4, os.cpu_count() or 1)


def is_large(series: tifffile.TiffPageSeries) -> bool:
    """Return whether the planes of an image are large, and stored so that regions can be read."""
    page = series.keyframe
    if math.prod(page.shape) * page.dtype.itemsize < LARGE_PLANE or series.transform is not None:
        return False
    shape, axes = grey(series)
    outer = page_axis(shape, math.prod(page.shape))
    whole = outer is not None and axes[outer:] in ("YX", "YXS")
    separate = page.planarconfig == 2 and page.samplesperpixel > 1
    return whole and page.imagedepth == 1 and not separate and page.shape == shape[outer:]


class LargePlanes(Planes):
    """Planes that are read in regions: `chunks` are the tiles, strips or rows they are stored in.

    Whole planes can be read as well, if there is memory for them.
    """

    def __init__(self, series: tifffile.TiffPageSeries, path: Path, *, signed16: bool) -> None:
        super().__init__(series, path, signed16=signed16)
        page = series.keyframe
        ny, nx = page.shape[:2]
        if self._contiguous or self._by_rows(page):
            unit = min(_ROWS, ny), min(_COLUMNS, nx)
        elif page.is_tiled:
            unit = min(page.tilelength, ny), min(page.tilewidth, nx)
        else:
            unit = min(page.rowsperstrip, ny), nx
        self.chunks = (1,) * self._outer + unit + page.shape[2:]

    @staticmethod
    def _by_rows(page: tifffile.TiffPage | tifffile.TiffFrame) -> bool:
        keyframe = page.keyframe
        return not keyframe.is_tiled and keyframe.is_final and page.is_contiguous

    def reads_by_plane(self, *axes: int) -> bool:
        """Return whether a plane of these two axes can be read without reading the whole file."""
        return True

    def as_planes(self) -> PartOfPlanes:
        """Return the same pixels, for who reads whole planes."""
        return PartOfPlanes(self, (slice(None),) * self.ndim)

    def __getitem__(self, index: Any) -> Any:
        numbers, part, shape = self._select(index)
        result = np.empty(numbers.shape + shape, self.dtype)
        region, inner = _region_of(part, self._block_shape)
        for place in np.ndindex(numbers.shape):
            result[place] = self._region(int(numbers[place]), region)[inner]
        return result[()]

    def _region(self, number: int, region: tuple[slice, ...]) -> np.ndarray:
        """Read a region of a plane, of at least a pixel."""
        shape = tuple(one.stop - one.start for one in region)
        if 0 in shape:
            return np.empty(shape, self.dtype)
        with self._lock, self._reading() as series:
            if self._contiguous:
                start = series.dataoffset + number * self._block_bytes
                return self._shown(self._rows(series, start, region, shape), shape)
            with self._opened(series, number) as page:
                if page is None:
                    pixels = np.zeros(shape, self._stored)
                elif self._by_rows(page):
                    pixels = self._rows(page, page.dataoffsets[0], region, shape)
                else:
                    pixels = self._segments(page, region, shape)
                return self._shown(pixels, shape)

    def _rows(
        self, page: Any, start: int, region: tuple[slice, ...], shape: tuple[int, ...]
    ) -> np.ndarray:
        handle, dtype = page.parent.filehandle, self._stored.newbyteorder(page.parent.byteorder)
        pixels = np.empty(shape, dtype)
        samples = math.prod(shape[2:])
        width = self._block_shape[1] * samples
        first, row = region[0].start * width + region[1].start * samples, shape[1] * samples
        if row == width:
            row *= shape[0]  # at once
        flat = pixels.reshape(-1, row)
        for number in range(len(flat)):
            handle.seek(start + (first + number * width) * dtype.itemsize)
            if handle.readinto(memoryview(flat[number]).cast("B")) != flat[number].nbytes:
                raise FileError(
                    f"{self._path} is cut short or damaged: copy it again from its source."
                )
        return pixels

    def _segments(
        self, page: tifffile.TiffPage, region: tuple[slice, ...], shape: tuple[int, ...]
    ) -> np.ndarray:
        handle, keyframe = page.parent.filehandle, page.keyframe
        ny, nx = self.chunks[self._outer : self._outer + 2]
        if keyframe.is_tiled:
            ny, nx = keyframe.tilelength, keyframe.tilewidth
        across = -(-self._block_shape[1] // nx)
        numbers = [
            y * across + x
            for y in range(region[0].start // ny, -(-region[0].stop // ny))
            for x in range(region[1].start // nx, -(-region[1].stop // nx))
        ]
        options: dict[str, Any] = {"_fullsize": False}
        if keyframe.compression in (6, 7, 33007, 34892):
            options |= {"jpegtables": page.jpegtables, "jpegheader": keyframe.jpegheader}
        pixels = np.zeros(shape, self._stored)

        def place(segment: tuple[bytes | None, int]) -> None:
            decoded, (_, _, y, x, _), _ = keyframe.decode(*segment, **options)
            if decoded is None:
                return
            decoded = decoded[0].reshape(*decoded.shape[1:3], *shape[2:])
            into, outof = [], []
            for start, n, one in zip((y, x), decoded.shape, region, strict=False):
                low, high = max(start, one.start), min(start + n, one.stop)
                into.append(slice(low - one.start, high - one.start))
                outof.append(slice(low - start, high - start))
            pixels[tuple(into)] = decoded[tuple(outof)]

        with ThreadPoolExecutor(_THREADS) as threads:
            for start in range(0, len(numbers), _AT_ONCE):
                read = []
                for number in numbers[start : start + _AT_ONCE]:
                    offset, length = page.dataoffsets[number], page.databytecounts[number]
                    handle.seek(offset)
                    read.append((handle.read(length) if offset and length else None, number))
                list(threads.map(place, read))
        return pixels


def _region_of(
    part: tuple[int | slice, ...], shape: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[int | slice, ...]]:
    """Return the region that holds what an index selects, and the index into that region.

    Samples of a pixel lie side by side, and are all read.
    """
    region, inner = [slice(0, n) for n in shape], list(part)
    for axis, (one, length) in enumerate(zip(part[:2], shape[:2], strict=True)):
        if not isinstance(one, slice):
            region[axis], inner[axis] = slice(one, one + 1), 0
            continue
        chosen = range(length)[one]
        low, high = sorted((chosen[0], chosen[-1])) if chosen else (0, -1)
        region[axis], inner[axis] = slice(low, high + 1), slice(None, None, chosen.step)
    return tuple(region), tuple(inner)
