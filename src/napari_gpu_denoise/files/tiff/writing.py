"""Writing TIFF: new pixels with the metadata of the input."""

from __future__ import annotations

import io
import json
import math
import os
import string
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tifffile

from napari_gpu_denoise.files.image_file import ImageFile, PixelMetadata, record_line
from napari_gpu_denoise.files.output import writing
from napari_gpu_denoise.files.tiff import imagej, ome_xml, reading
from napari_gpu_denoise.files.tiff.reading import page_axis
from napari_gpu_denoise.image.threads import ahead

CLASSIC_LIMIT = 2**32 - 2**25  # bytes of pixels that a TIFF of 32-bit offsets may hold
_LOSSLESS = {1, 5, 8, 32773, 32946, 34925, 50000}  # none, LZW, deflate, PackBits, LZMA, Zstandard
_NO_PREDICTOR = {1, 32773}
_DEFLATE = 8
_MINISBLACK, _RGB, _PALETTE, _YCBCR = 1, 2, 3, 6
_PHOTOMETRIC = {0, 1, 2, 3, 5, 8}  # written unchanged
_NO_UNIT = 1
_RESOLUTION_UNITS = {_NO_UNIT, 2, 3, 4, 5}
_SAMPLES = {2: 3, 5: 4, 8: 3}  # colours of a pixel, without alpha, at least
_ENCODED_AT_ONCE = 2**24  # bytes of pixels that are compressed in several threads

_AT_ONCE = 1 << 24  # bytes of uncompressed rows that are written at once
_STRIPS_AT_ONCE = 8  # that are compressed
_PACKBITS = 32773

_UNASSOCIATED_ALPHA = 2


def write(
    file: BinaryIO,
    path: Path,
    data: Any,
    like: ImageFile,
    records: Sequence[dict],
) -> tuple[str, ...]:
    """Write new pixels with the metadata of another TIFF file, as `formats.write` does."""
    notes: list[str] = []
    options = _prepare(data.dtype, like, records, notes)
    pages = pages_of(data, like.metadata, options)
    layout = {"bigtiff": options.pop("bigtiff"), "byteorder": like.metadata["byteorder"]}
    with tifffile.TiffWriter(file, **layout, ome=False, imagej=False) as tif:
        tif.write(pages, metadata=None, buffersize=_ENCODED_AT_ONCE, **options)
    return tuple(notes)


def check_writable(like: ImageFile, dtype: np.dtype) -> None:
    """Refuse pixels of a type, before they are computed, that cannot be written like an image."""
    # A small image with all the tags of the large one.
    separate, depth, y, x, contiguous = like.metadata["stored"]
    stored = (separate, min(depth, 2), min(y, 16), min(x, 16), contiguous)
    small = np.zeros(stored, dtype)
    like = replace(like, data=small, metadata={**like.metadata, "stored": stored})
    with writing(like.path, "TIFF"):
        write(io.BytesIO(), like.path, small, like, ())


def _prepare(
    dtype: np.dtype, like: ImageFile, records: Sequence[dict], notes: list[str]
) -> dict[str, Any]:
    """Return the arguments of ``TiffWriter.write`` for pixels of a type."""
    kept = like.metadata
    lines = [record_line(entry) for entry in records]
    separate, depth, y, x, contiguous = kept["stored"]
    if kept["signed16"] and dtype == np.int16:
        dtype = np.dtype(np.uint16)
    page = [n for n in (separate, depth) if n > 1] + [y, x] + [n for n in (contiguous,) if n > 1]
    count = math.prod(like.data.shape) // math.prod(page)
    options: dict[str, Any] = {"shape": (count, *page), "dtype": dtype}
    options |= {"volumetric": depth > 1, "extratags": list(kept["tags"])}
    if separate * contiguous > 1:
        options["planarconfig"] = "separate" if separate > 1 else "contig"
    _colour(options, dtype, separate * contiguous, like, notes)
    _storage(options, dtype, kept, notes)
    if is_banded(kept["stored"], dtype) and "tile" not in options:
        options["rowsperstrip"] = kept["rowsperstrip"] or None
    _resolution(options, kept, notes)

    software = (kept["software"] or b"").rstrip(b"\0")
    if like.kind == "ome":
        descriptions = [
            ome_xml.revise(
                kept["xml"],
                kept["image"],
                dtype=dtype.name,
                big_endian=kept["byteorder"] == ">",
                planes=count,
                records=records,
            )
        ]
    else:
        descriptions = list(kept["descriptions"])
        if like.kind == "imagej":
            _imagej(options, descriptions, dtype.name, like, lines, notes)
        else:
            software = b"\n".join(filter(None, (software, *(t.encode("ascii") for t in lines))))
    options["software"] = software or False
    if descriptions:
        options["description"] = descriptions[0]
        # By name, since tifffile treats a second tag of the same number as a mistake.
        options["extratags"] += [("ImageDescription", 2, 0, d, True) for d in descriptions[1:]]

    stored = math.prod(like.data.shape) * dtype.itemsize
    large = stored + 512 * count + sum(map(len, descriptions)) > CLASSIC_LIMIT
    options["bigtiff"] = kept["bigtiff"] or large
    options["truncate"] = kept["truncate"]
    if like.kind == "imagej" and large and not kept["bigtiff"]:
        # ImageJ cannot open BigTIFF; its own large stacks are one page followed by all pixels.
        options["bigtiff"], options["truncate"] = False, True
    if options["truncate"]:
        options.pop("rowsperstrip", None)
        removed = [options.pop(key, None) for key in ("tile", "compression", "predictor")]
        if any(removed):
            notes.append("The large ImageJ stack is stored without tiles and compression.")
    return options


def _resolution(options: dict[str, Any], kept: dict[str, Any], notes: list[str]) -> None:
    if all(map(_is_number, kept["resolution"])):
        options["resolution"] = kept["resolution"]
        options["resolutionunit"] = unit = kept["resolutionunit"]
        if unit is not None and unit not in _RESOLUTION_UNITS:
            options["resolutionunit"] = _NO_UNIT
            notes.append(f"The unit of resolution of the file, {unit!r}, is not valid: left out.")


def _is_number(resolution: Any) -> bool:
    """Return whether a resolution is valid: some files hold 0/0, or nothing."""
    if isinstance(resolution, tuple):
        return len(resolution) == 2 and resolution[1] != 0
    return isinstance(resolution, (int, float)) and resolution > 0


def _colour(
    options: dict[str, Any], dtype: np.dtype, samples: int, like: ImageFile, notes: list[str]
) -> None:
    kept = like.metadata
    photometric = kept["photometric"]
    if photometric == _YCBCR:
        photometric = _RGB  # as decoded
    if photometric == _PALETTE:
        if dtype.name == kept["dtype"] and kept["colormap"] is not None:
            missing = 2 ** (8 * dtype.itemsize) - kept["colormap"].shape[1]  # of a 4-bit table
            options["colormap"] = np.pad(kept["colormap"], ((0, 0), (0, missing)))
            if like.kind == "plain":  # in microscopy formats the table is only for display
                notes.append("The image has a colour table: its indices are filtered, not colours.")
        else:
            photometric = _MINISBLACK
            notes.append(f"The colour table of the image is left out: {dtype} cannot have one.")
    if photometric not in _PHOTOMETRIC or samples < _SAMPLES.get(photometric, 1):
        notes.append(f"Photometric interpretation {photometric} is replaced by grey levels.")
        photometric = _MINISBLACK
    options["photometric"] = photometric
    if len(kept["extrasamples"]) == samples - _SAMPLES.get(photometric, 1) > 0:
        options["extrasamples"] = kept["extrasamples"]


def _storage(options: dict[str, Any], dtype: np.dtype, kept: dict, notes: list[str]) -> None:
    if kept["tile"] and not any(length % 16 for length in kept["tile"]):
        options["tile"] = kept["tile"]
    compression = kept["compression"]
    if compression == 1:
        return
    if compression not in _LOSSLESS:
        name = tifffile.COMPRESSION(compression).name
        notes.append(f"The {name} compression of the input is replaced by lossless deflate.")
        compression = _DEFLATE
    options["compression"] = compression
    small = dtype.kind == "f" or dtype.itemsize <= 4
    if kept["predictor"] != 1 and small and compression not in _NO_PREDICTOR:
        options["predictor"] = True


def _imagej(
    options: dict[str, Any],
    descriptions: list[bytes],
    dtype: str,
    like: ImageFile,
    lines: list[str],
    notes: list[str],
) -> None:
    """Add ImageJ's own metadata: its description, and the tag of Info, labels and tables."""
    kept = like.metadata
    if dtype in imagej.CONVERTS:
        notes.append(f"ImageJ opens {dtype} as 32-bit numbers.")
    elif options["photometric"] == _RGB and dtype != "uint8":
        notes.append(f"ImageJ opens colour images of 8 bits a channel, not of {dtype}.")
    if dtype not in ("uint8", "uint16"):
        uncalibrated = imagej.without_calibration(descriptions[0])
        if uncalibrated != descriptions[0] and not kept["signed16"]:
            notes.append(f"The calibration of grey levels is left out: {dtype} cannot have one.")
        descriptions[0] = uncalibrated
    options["extratags"] += imagej.tags_of(kept["imagej"], lines, kept["byteorder"])


def is_banded(stored: tuple[int, ...], dtype: np.dtype) -> bool:
    """Return whether pages are too large to be in memory, and can be written in bands of rows.

    `stored` is the shape of a page: separate samples, z, y, x, joint samples.
    """
    separate, depth, *plane = stored
    size = math.prod(plane) * np.dtype(dtype).itemsize
    return separate == depth == 1 and size >= reading.LARGE_PLANE


def pages_of(data: Any, kept: dict[str, Any], options: dict[str, Any]) -> Iterator[Any]:
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

    several = _AT_ONCE // (math.prod(stored) * data.dtype.itemsize)  # as each waits for Python
    plain = tile is None and "compression" not in options
    if plain and several > 1 and isinstance(data, np.ndarray) and data.flags.c_contiguous:
        data = data.reshape(-1, *stored)
        yield from (shown(data[k : k + several]) for k in range(0, len(data), several))
        return
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
    tile, rows, packed = options.get("tile"), options.get("rowsperstrip"), "compression" in options
    if tile is not None:
        size = tile[0]
    elif packed:
        # As tifffile chooses where it is not told.
        size = rows or max((1 << 18) // (nx * samples * data.dtype.itemsize), 1)
    else:
        size = max(_AT_ONCE // (nx * samples * data.dtype.itemsize), 1)

    def encoded(y: int) -> list[np.ndarray | bytes]:
        band = shown(np.asarray(data[(*index, slice(y, min(y + size, ny)))]))
        band = band.reshape(-1, nx, samples)
        if tile is not None:
            return list(map(np.ascontiguousarray, _tiles(band[None], tile)))
        band = band.astype(band.dtype.newbyteorder(byteorder), copy=False)
        return [_packed(band, options) if packed else band.tobytes()]

    # tifffile compresses tiles in threads of its own.
    threads = min(_STRIPS_AT_ONCE, os.cpu_count() or 1) if packed and tile is None else 1
    for band in ahead(encoded, range(0, ny, size), threads):
        yield from band


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


def described_anew(like: ImageFile, name: str) -> ImageFile:
    """Return an image of another format as one of which `formats.write` makes a new TIFF file.

    Its axes end with Y, X or Y, X, S; others may be unnamed. The file is an OME-TIFF, or where
    that cannot hold axes or type, a plain one with a description in JSON.
    """
    data, axes = like.data, like.axes
    samples = data.shape[-1] if axes.endswith("S") else 1
    y, x = data.shape[axes.index("Y")], data.shape[axes.index("X")]
    dtype = np.dtype(data.dtype)
    named = len(set(axes)) == len(axes) and set(axes) <= set("TZCYXS")
    kind = "ome" if named and dtype.name in ome_xml.HELD else "plain"
    metadata = {
        "byteorder": "<",
        "bigtiff": False,
        "dtype": dtype.name,
        "photometric": _RGB if samples >= 3 else _MINISBLACK,
        "extrasamples": (_UNASSOCIATED_ALPHA,) if samples == 4 else (),
        "compression": 1,
        "predictor": 1,
        "tile": None,
        "truncate": False,
        "resolution": (None, None),
        "resolutionunit": None,
        "colormap": None,
        "software": None,
        "rowsperstrip": None,
        "tags": [],
        "stored": (1, 1, y, x, samples),
        "signed16": False,
        "descriptions": [],
    }
    if kind == "ome":
        metadata |= {"xml": ome_xml.new_xml(data.shape, axes, like.pixel_metadata, name)}
        metadata["image"] = 0
    else:
        axes = lettered(axes)
        metadata["descriptions"] = [_json(data.shape, axes, like.pixel_metadata)]
    return replace(like, kind=kind, axes=axes, metadata=metadata)


def lettered(axes: str) -> str:
    """Return axes with a letter of its own for each that has no name."""
    free = iter("Q" + "".join(a for a in string.ascii_uppercase if a not in "QTZCYXS" + axes))
    taken: set[str] = set()
    out = ""
    for letter in axes:
        if letter in taken or not letter.isalpha():
            letter = next(free)
        taken.add(letter)
        out += letter
    return out


def _json(shape: tuple[int, ...], axes: str, pixel_metadata: PixelMetadata) -> bytes:
    """Return a description as tifffile has it, with steps and channels."""
    channels = [(each.name, each.colour) for each in pixel_metadata.channels]
    kept = {"shape": list(shape), "axes": axes, "steps": pixel_metadata.steps, "channels": channels}
    return json.dumps(kept).encode("ascii")
