"""Writing TIFF: new pixels with the metadata of the input."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import tifffile

from napari_gpu_denoise.errors import DenoiseError, OutputError
from napari_gpu_denoise.files.tiff import imagej, ome_xml
from napari_gpu_denoise.files.tiff.output import new_file
from napari_gpu_denoise.files.tiff.pages import is_banded, pages_of
from napari_gpu_denoise.files.tiff.picture import MARK, Picture, records_of
from napari_gpu_denoise.files.tiff.plane_store import PlaneStore
from napari_gpu_denoise.files.tiff.planes import Planes

if TYPE_CHECKING:
    from napari_gpu_denoise.run.record import Record

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


def write(
    path: str | os.PathLike,
    data: np.ndarray | Planes | PlaneStore,
    like: Picture,
    record: Record | Sequence[dict] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write new pixels with the metadata of another image.

    The file is either complete or absent: it is written under a temporary name in the same folder,
    flushed to disk and renamed.

    Parameters
    ----------
    path : path-like
        The new file.
    data : ndarray, Planes or PlaneStore
        Pixels of the shape of ``like.data``, of any real type. If they are not in memory, they are
        read page by page.
    like : Picture
        Source of axes, voxel size, units, time interval, channel names, byte order, tiles and
        compression. Lossy compression becomes deflate.
    record : Record or sequence of dict, optional
        How the pixels were made; several as `Record.as_dict` returns them. It is stored as JSON:
        in the Info of an ImageJ file, as an annotation of an OME image, otherwise as a line of
        the Software tag; `read` finds it.
    overwrite : bool, default False
        Replace an existing file. The input itself is never replaced.

    Returns
    -------
    tuple of str
        What could not be preserved, one sentence each.

    Raises
    ------
    OutputError
        If the file exists, is the input, or cannot be written, or the kind of file cannot hold
        this type of pixels; nothing is left behind.
    """
    path = Path(path)
    if data.shape != like.data.shape:
        raise OutputError(
            f"Pixels of shape {data.shape} cannot take the metadata of an image of shape "
            f"{like.data.shape}: write them like an image of the same shape."
        )
    _check_dtype(like, data.dtype)
    notes: list[str] = []
    with new_file(path, overwrite=overwrite, keep=(like.path, *like.files)) as file:
        _encode(file, path, data, like, record, notes)
    return tuple(notes)


def check_writable(like: Picture, dtype: np.dtype) -> None:
    """Refuse pixels of a type, before they are computed, that cannot be written like an image."""
    _check_dtype(like, dtype)
    # A small image with all the tags of the large one.
    separate, depth, y, x, contiguous = like.metadata["stored"]
    stored = (separate, min(depth, 2), min(y, 16), min(x, 16), contiguous)
    small = np.zeros(stored, dtype)
    like = replace(like, data=small, metadata={**like.metadata, "stored": stored})
    _encode(io.BytesIO(), like.path, small, like, None, [])


def _encode(
    file: BinaryIO,
    path: Path,
    data: np.ndarray | Planes | PlaneStore,
    like: Picture,
    record: Record | Sequence[dict] | None,
    notes: list[str],
) -> None:
    """Write a whole TIFF file; `path` is what an error names."""
    try:
        options = _prepare(data.dtype, like, record, notes)
        pages = pages_of(data, like.metadata, options)
        layout = {"bigtiff": options.pop("bigtiff"), "byteorder": like.metadata["byteorder"]}
        with tifffile.TiffWriter(file, **layout, ome=False, imagej=False) as tif:
            tif.write(pages, metadata=None, buffersize=_ENCODED_AT_ONCE, **options)
    except (DenoiseError, OSError, MemoryError):
        raise
    except Exception as error:
        raise OutputError(f"{path} cannot be written as TIFF: {error}.") from error


def _check_dtype(like: Picture, dtype: np.dtype) -> None:
    """Refuse an output type that the kind of file of the input cannot hold."""
    imagej_types = imagej.HOLDS | imagej.CONVERTS
    kinds = {"ome": ("an OME-TIFF", ome_xml.HELD), "imagej": ("an ImageJ", imagej_types)}
    name, held = kinds.get(like.kind, ("", {dtype.name}))
    if dtype.name not in held:
        raise OutputError(
            f"{like.path} is {name} file, which cannot hold {dtype}",
            "pass dtype='float32'",
            code="file-dtype",
        )


def _prepare(
    dtype: np.dtype, like: Picture, record: Record | Sequence[dict] | None, notes: list[str]
) -> dict[str, Any]:
    """Return the arguments of ``TiffWriter.write`` for pixels of a type."""
    kept = like.metadata
    records = records_of(record)
    lines = [MARK + json.dumps(entry) for entry in records]
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
    if all(map(_is_number, kept["resolution"])):
        options["resolution"] = kept["resolution"]
        options["resolutionunit"] = unit = kept["resolutionunit"]
        if unit is not None and unit not in _RESOLUTION_UNITS:
            options["resolutionunit"] = _NO_UNIT
            notes.append(f"The unit of resolution of the file, {unit!r}, is not valid: left out.")

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


def _is_number(resolution: Any) -> bool:
    """Return whether a resolution is valid: some files hold 0/0, or nothing."""
    if isinstance(resolution, tuple):
        return len(resolution) == 2 and resolution[1] != 0
    return isinstance(resolution, (int, float)) and resolution > 0


def _colour(
    options: dict[str, Any], dtype: np.dtype, samples: int, like: Picture, notes: list[str]
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
    like: Picture,
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
    options["extratags"] += kept["imagej"].with_lines(lines).tags()
