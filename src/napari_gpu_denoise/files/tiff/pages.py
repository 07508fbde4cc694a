"""The pixels of a TIFF file in the pieces in which it is written: pages, tiles, or strips."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tifffile

from napari_gpu_denoise.files.tiff import imagej, large_planes
from napari_gpu_denoise.files.tiff.plane_store import PlaneStore
from napari_gpu_denoise.files.tiff.planes import Planes, page_axis

_AT_ONCE = 1 << 24  # bytes of uncompressed rows that are written at once
_PACKBITS = 32773


def is_banded(stored: tuple[int, ...], dtype: np.dtype) -> bool:
    """Return whether pages are too large to be in memory, and can be written in bands of rows.

    `stored` is the shape of a page: separate samples, z, y, x, joint samples.
    """
    separate, depth, *plane = stored
    size = math.prod(plane) * np.dtype(dtype).itemsize
    return separate == depth == 1 and size >= large_planes.LARGE_PLANE


def pages_of(
    data: np.ndarray | Planes | PlaneStore, kept: dict[str, Any], options: dict[str, Any]
) -> Iterator[np.ndarray | bytes]:
    """Yield pages, or their tiles or strips, as ``TiffWriter.write`` takes them one by one.

    `kept` is the metadata of the picture, `options` are those of ``TiffWriter.write``.
    """
    tile, stored = options.get("tile"), kept["stored"]
    outer = page_axis(data.shape, math.prod(stored))
    if outer is None:
        data, outer = np.asarray(data).reshape(-1, *stored), 1

    def shown(pixels: np.ndarray) -> np.ndarray:
        swapped = kept["signed16"] and pixels.dtype == np.int16
        return imagej.swap_sign16(pixels) if swapped else pixels

    banded = is_banded(stored, data.dtype) and data.shape[outer : outer + 2] == stored[2:4]
    for index in np.ndindex(data.shape[:outer]):
        if banded:
            yield from _of_bands(data, index, shown, stored, options, kept["byteorder"])
            continue
        page = shown(np.asarray(data[index])).reshape(stored)
        if tile is None:
            yield page
        else:
            yield from _tiles(page.reshape(-1, *page.shape[2:]), tile)


def _of_bands(
    data: Any,
    index: tuple[int, ...],
    shown: Any,
    stored: tuple[int, ...],
    options: dict[str, Any],
    byteorder: str,
) -> Iterator[np.ndarray | bytes]:
    """Yield the tiles or strips of a page that is read in bands of rows."""
    _, _, ny, nx, samples = stored
    tile, rows = options.get("tile"), options.get("rowsperstrip")
    if tile is not None:
        size = tile[0]
    elif "compression" in options:
        # As tifffile chooses where it is not told.
        size = rows or max((1 << 18) // (nx * samples * data.dtype.itemsize), 1)
    else:
        size = max(_AT_ONCE // (nx * samples * data.dtype.itemsize), 1)
    for y in range(0, ny, size):
        band = shown(np.asarray(data[(*index, slice(y, min(y + size, ny)))]))
        band = band.reshape(-1, nx, samples)
        if tile is not None:
            yield from _tiles(band[None], tile)
        elif "compression" in options:
            yield _packed(band.astype(band.dtype.newbyteorder(byteorder), copy=False), options)
        else:
            yield band.astype(band.dtype.newbyteorder(byteorder), copy=False).tobytes()


def _packed(strip: np.ndarray, options: dict[str, Any]) -> bytes:
    """Return a compressed strip (y, x, samples): tifffile takes whole pages only, or bytes."""
    code = options["compression"]
    if options.get("predictor"):
        number = 3 if strip.dtype.kind == "f" else 2
        strip = tifffile.TIFF.PREDICTORS[number](strip, axis=-2)
    axis = {"axis": -2} if code == _PACKBITS else {}
    return bytes(tifffile.TIFF.COMPRESSORS[code](np.ascontiguousarray(strip), **axis))


def _tiles(planes: np.ndarray, tile: tuple[int, int]) -> Iterator[np.ndarray]:
    """Cut planes (n, y, x, joint samples) into tiles (y, x, joint samples)."""
    ny, nx = tile
    for plane in planes:
        for y in range(0, plane.shape[0], ny):
            for x in range(0, plane.shape[1], nx):
                part = plane[y : y + ny, x : x + nx]
                missing = (ny - part.shape[0], nx - part.shape[1])
                if any(missing):
                    part = np.pad(part, [*((0, n) for n in missing), (0, 0)])
                yield part
