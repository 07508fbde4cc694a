"""Reading NIfTI."""

from __future__ import annotations

import contextlib
import gzip
import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files.nifti.header import (
    GZIP,
    LENGTHS,
    LONGEST,
    header_of,
    in_two_files,
    records_in,
    unpack_extensions,
    version_of,
)
from napari_gpu_denoise.files.nifti.voxels import Voxels, size_of
from napari_gpu_denoise.files.regular import open_regular
from napari_gpu_denoise.files.tiff.checks import check_declared
from napari_gpu_denoise.files.tiff.looks import Looks, kept_steps
from napari_gpu_denoise.files.tiff.messages import brief, reading
from napari_gpu_denoise.files.tiff.picture import Picture

# The standard calls the axes x, y, z, t, u, v, w; the fifth is of unknown meaning, or of vectors.
_AXES = "XYZTQVW"
_VECTORS = {1006, 1007, 2003, 2004}  # intents: displacements, any vectors, RGB and RGBA vectors
# Codes of types of pixels.
_NUMBERS = {2, 4, 8, 16, 64, 256, 512, 768, 1024, 1280}
_COLOURS = {128: "RGB", 2304: "RGBA"}
_COMPLEX = {32, 1792, 2048}
_OTHERS = {1: "binary", 1536: "float128"}
_UNITS = {1: "m", 2: "mm", 3: "µm"}
_TIMES = {8: "s", 16: "ms", 24: "µs"}
_MOST_EXTENSIONS = 1 << 26  # bytes
_FAULTY = 40  # level from which on nibabel refuses a header itself


@contextlib.contextmanager
def open_stack(path: str | os.PathLike) -> Iterator[Picture]:
    """Open a NIfTI file, to read its planes on demand, as `files.tiff.open_stack` does for TIFF.

    Grey levels are what slope and intercept of the header make of the stored values.
    """
    path = Path(path)
    if path.is_dir():
        raise FileError(
            f"{path} is a folder, not an image: choose a file, or a folder with TIFF, NIfTI or "
            "OME-Zarr in it."
        )
    with contextlib.ExitStack() as held:
        with reading(path):
            file = held.enter_context(open_regular(path))
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise FileError(f"{path} is empty: copy it again from its source.")
            packed = file.read(2) == GZIP
            file.seek(0)
            handle = held.enter_context(_unpacked(file)) if packed else file
            picture = _picture(handle, path, size, packed)
        held.callback(picture.data.close)
        yield picture


def _unpacked(file: BinaryIO) -> Any:
    """Return what reads a compressed file: where indexed_gzip is installed, any part of it."""
    try:
        from indexed_gzip import IndexedGzipFile
    except ImportError:
        return gzip.open(file)
    return IndexedGzipFile(fileobj=file)


def _picture(handle: Any, path: Path, size: int, packed: bool) -> Picture:
    start = handle.read(LONGEST)
    version = version_of(start)
    if version is None:
        raise FileError(f"{path} is not a NIfTI file: choose a .nii or .nii.gz file.")
    if in_two_files(start, version):
        raise FileError(
            f"{path} is the header of a pair of files, .hdr and .img: convert them to one .nii "
            "file, for example with nibabel."
        )
    length = LENGTHS[version]
    cut = FileError(f"{path} is cut short or damaged: copy it again from its source.")
    if len(start) < length + 4:
        raise cut
    header = header_of(start[:length], version)
    stored = _stored_type(header, path)
    notes = _reports(header)
    shape = tuple(int(n) for n in header.get_data_shape())
    if 0 in shape:
        raise ImageError(f"{path} has no pixels (its shape is {shape}): nothing to filter.")
    if min(shape) < 0:
        raise cut
    if len(shape) < 2:
        raise ImageError(
            f"{path} is not an image, because it has a single axis of {shape[0]}: choose another."
        )
    offset = int(header["vox_offset"]) or length + 4
    if offset < length + 4:
        raise cut
    if not packed and offset + size_of(shape, stored) > size:
        raise cut
    if packed:
        check_declared(size_of(shape, stored), size, path, "nibabel")
    if offset > _MOST_EXTENSIONS:
        raise FileError(
            f"The header of {path} says that {offset} bytes precede the pixels: it is damaged; "
            "save the image again as NIfTI."
        )
    handle.seek(length)
    behind = handle.read(offset - length)
    if len(behind) < offset - length:
        raise cut
    extensions, whole = unpack_extensions(behind, header.endianness)
    if not whole:
        notes.append("The extensions of the header are damaged, and not all of them are kept.")
    scaling = header.get_slope_inter()
    scaling = None if scaling in ((None, None), (1.0, 0.0)) else scaling
    vector = int(header["intent_code"]) in _VECTORS
    axes = "".join("C" if a == "Q" and vector else a for a in reversed(_AXES[: len(shape)]))
    metadata = {
        "header": start[:length],
        "version": version,
        "byteorder": header.endianness,
        "extensions": extensions,
        "scaling": scaling,
        "dtype": stored.name,
        "as_stored": False,
    }
    by_plane = not isinstance(handle, gzip.GzipFile)
    places = {"packed": packed, "by_plane": by_plane}
    voxels = Voxels(handle, path, shape[::-1], stored, offset, scaling, **places)
    history = records_in(extensions)
    size, unit = _voxel(header, len(shape))
    kept = (path, (path,), tuple(notes), history, size, unit, _looks(header, len(shape)))
    return Picture(voxels, axes, "nifti", metadata, *kept)


def _reports(header: Any) -> list[str]:
    """Return what nibabel warns of in a header, which is kept as it is; raise what it refuses."""
    found: list[str] = []
    logger, handler = logging.Logger("nibabel"), logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())
    logger.addHandler(handler)
    header.copy().check_fix(logger, _FAULTY)
    return [f"nibabel reports: {brief(message)}." for message in dict.fromkeys(found)][:3]


def _stored_type(header: Any, path: Path) -> np.dtype:
    """Return the type of the stored values, of those that are real numbers."""
    code = int(header["datatype"])
    if code in _COLOURS:
        raise ImageError(
            f"{path} holds colours ({_COLOURS[code]} of 8 bits), which are not supported in NIfTI "
            "files: save its channels as separate images."
        )
    if code in _COMPLEX:
        raise ImageError(
            f"{path} holds complex numbers, which are not supported: save real and imaginary "
            "parts, or magnitudes."
        )
    if code not in _NUMBERS:
        named = f" ({_OTHERS[code]})" if code in _OTHERS else ""
        raise ImageError(
            f"{path} holds pixels of type {code}{named}, which is not supported: save it as an "
            "integer type of up to 64 bits, float32 or float64."
        )
    return header.get_data_dtype()


def _voxel(header: Any, ndim: int) -> tuple[tuple[float, float, float] | None, str]:
    """Return the voxel size (z, y, x) of a volume and its unit; None if the file does not tell."""
    if ndim < 3:
        return None, ""
    # As the fields of NIfTI-1 are float32, 1.2 would be 1.2000000476837158.
    x, y, z = (abs(float(f"{float(step):.7g}")) for step in header["pixdim"][1:4])
    if not all(math.isfinite(step) and step > 0 for step in (x, y, z)):
        return None, ""
    return (z, y, x), _UNITS.get(int(header["xyzt_units"]) % 8, "")


def _looks(header: Any, ndim: int) -> Looks:
    """Return the steps along the axes and their units."""
    code = int(header["xyzt_units"])
    units = {**dict.fromkeys("XYZ", _UNITS.get(code % 8, "")), "T": _TIMES.get(code & 0x38, "")}
    steps = zip("XYZT"[:ndim], header["pixdim"][1:], strict=False)
    return Looks(kept_steps({a: (float(f"{float(step):.7g}"), units[a]) for a, step in steps}))
