"""NIfTI in and out: voxels replaced, header and extensions kept.

A file holds its axes as (x, y, z, t, …), the first varying fastest. From the last to the first they
are (…, T, Z, Y, X), in the order in which NumPy lays arrays out, so that nothing is turned round or
copied. nibabel knows the header; it is imported when a NIfTI file is read or written.

Files are read and not mapped: mapped pages count as memory of the process, and reading one of a
file that was cut short meanwhile would end it.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import math
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from napari_gpu_denoise.errors import FileError, ImageError, OutputError
from napari_gpu_denoise.files import image_file, input_checks
from napari_gpu_denoise.files.image_file import FileBlocks, Format, ImageFile, PixelMetadata

# The standard calls the axes x, y, z, t, u, v, w; the fifth is of unknown meaning, or of vectors.
_AXES = "XYZTQVW"
# Tables of diffusion weighting and its directions, beside an image whose fourth axis is no time.
_WEIGHTING = ".bval", ".bvec"
_VECTORS = {1006, 1007, 2003, 2004}  # intents: displacements, any vectors, RGB and RGBA vectors
# Codes of types of pixels.
_NUMBERS = {2, 4, 8, 16, 64, 256, 512, 768, 1024, 1280}
_OTHERS: dict[int, str] = dict.fromkeys((128, 2304), "holds colours")
_OTHERS |= dict.fromkeys((32, 1792, 2048), "holds complex numbers")
_UNITS = {1: "m", 2: "mm", 3: "µm"}
_TIMES = {8: "s", 16: "ms", 24: "µs"}
_MOST_EXTENSIONS = 1 << 26  # bytes
_FAULTY = 40  # level from which on nibabel refuses a header itself

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # tells zlib of the header of gzip
_PACKED = 1 << 12  # bytes of a compressed file that hold its header
_COMMENT = 6  # code of extensions that hold plain text
# By version: length of the header, and where the word is that names the version.
_LENGTHS = {1: 348, 2: 540}
_PLACES = {1: 344, 2: 4}
_LONGEST = max(_LENGTHS.values()) + 4

_AT_ONCE = 1 << 20  # values that are read and scaled at a time
_REST = 1 << 20  # bytes behind the voxels that are read for the checksum of a gzip file

# Stored whole numbers up to this, counted in steps of the slope, are told apart by float32.
_EXACT = 2.0**22
_COMPRESSION = 1  # as nibabel: higher levels take several times as long for a few per cent


def is_nifti(path: str | os.PathLike) -> bool:
    """Return whether a file starts like a NIfTI file; False also if it cannot be opened."""
    start = input_checks.start_of(path, _PACKED)
    if start.startswith(_GZIP):
        with contextlib.suppress(zlib.error):
            start = zlib.decompressobj(_GZIP_WINDOW).decompress(start, _LONGEST)
    return _version_of(start) is not None


def open_image(
    path: Path, held: contextlib.ExitStack, companions_anywhere: bool = False
) -> ImageFile:
    """Open a NIfTI file, to read its planes on demand.

    Grey levels are what slope and intercept of the header make of the stored values. Companions
    are tables of diffusion, which are copied.
    """
    for table in () if companions_anywhere else (_beside(path, end) for end in _WEIGHTING):
        if table.exists() and input_checks.leads_out(table.parent, table):
            raise input_checks.link_outside(table, os.path.realpath(table), table.parent)
    file = held.enter_context(input_checks.open_image(path))
    size = os.fstat(file.fileno()).st_size
    packed = file.read(2) == _GZIP
    file.seek(0)
    handle = held.enter_context(_unpacked(file)) if packed else file
    return _picture(handle, path, size, packed)


def _unpacked(file: BinaryIO) -> Any:
    """Return a reader of a compressed file: with indexed_gzip, of any part of it."""
    try:
        from indexed_gzip import IndexedGzipFile  # pyright: ignore[reportMissingImports]
    except ImportError:
        return gzip.open(file)
    return IndexedGzipFile(fileobj=file)


def _header(handle: Any, path: Path) -> Any:
    """Return the header of a file as nibabel has it, without changing what is unusual in it."""
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    start = handle.read(_LONGEST)
    version = _version_of(start)
    if version is None:
        raise FileError(f"{path} is not a NIfTI file: choose a .nii or .nii.gz file.")
    if start[_PLACES[version] :].startswith(b"ni"):
        raise FileError(
            f"{path} is the header of a pair of files, .hdr and .img: convert them to one .nii "
            "file, for example with nibabel."
        )
    length = _LENGTHS[version]
    if len(start) < length + 4:
        raise input_checks.cut_short(path)
    return (Nifti1Header if version == 1 else Nifti2Header)(start[:length], check=False)


def _shape(header: Any, path: Path) -> tuple[int, ...]:
    """Return the shape of an image, x first, if it has pixels and more than one axis."""
    shape = tuple(int(n) for n in header.get_data_shape())
    if 0 in shape:
        raise ImageError(f"{path} has no pixels (its shape is {shape}): nothing to filter.")
    if min(shape) < 0:
        raise input_checks.cut_short(path)
    if len(shape) < 2:
        raise ImageError(
            f"{path} is not an image, because it has a single axis of {sum(shape)}: choose another."
        )
    return shape


def _picture(handle: Any, path: Path, size: int, packed: bool) -> ImageFile:
    header = _header(handle, path)
    stored, length = _stored_type(header, path), header.template_dtype.itemsize
    notes, shape = _reports(header), _shape(header, path)
    offset, nbytes = int(header["vox_offset"]) or length + 4, math.prod(shape) * stored.itemsize
    if offset < length + 4 or (not packed and offset + nbytes > size):
        raise input_checks.cut_short(path)
    if packed:
        input_checks.check_declared(nbytes, size, path, "nibabel")
    if offset > _MOST_EXTENSIONS:
        raise FileError(
            f"The header of {path} says that {offset} bytes precede the pixels: it is damaged; "
            "save the image again as NIfTI."
        )
    handle.seek(length)
    behind = handle.read(offset - length)
    if len(behind) < offset - length:
        raise input_checks.cut_short(path)
    extensions, whole = unpack_extensions(behind, header.endianness)
    if not whole:
        notes.append("The extensions of the header are damaged, and not all of them are kept.")
    beside = map(partial(_beside, path), (".json", ".tsv", ".mat"))
    if others := [each.name for each in beside if each.exists()]:
        notes.append(f"What other files tell of the image is not copied: {', '.join(others)}.")
    scaling = header.get_slope_inter()
    scaling = None if scaling in ((None, None), (1.0, 0.0)) else scaling
    vector = int(header["intent_code"]) in _VECTORS
    axes = "".join("C" if a == "Q" and vector else a for a in reversed(_AXES[: len(shape)]))
    if _beside(path, _WEIGHTING[0]).exists():
        axes = axes.replace("T", "D")
    metadata = {"header": header, "extensions": extensions, "scaling": scaling}
    places = {"packed": packed, "by_plane": not isinstance(handle, gzip.GzipFile)}
    voxels = Voxels(handle, path, shape[::-1], stored, offset, scaling, **places)
    comments = [content for code, content in extensions if code == _COMMENT]
    history = image_file.records_in(b"\n".join(comments).decode("ascii", "replace"))
    told = _pixel_metadata(header, len(shape))
    kept = (path, (path,), tuple(notes), history, told)
    return ImageFile(voxels, axes, "nifti", metadata, *kept)


def _reports(header: Any) -> list[str]:
    """Return the warnings of nibabel on a header, which is kept; raise its errors."""
    found: list[str] = []
    logger, handler = logging.Logger("nibabel"), logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())
    logger.addHandler(handler)
    header.copy().check_fix(logger, _FAULTY)
    several = map(input_checks.brief, [*dict.fromkeys(found)][:3])
    return [f"nibabel reports: {message}." for message in several]


def _stored_type(header: Any, path: Path) -> np.dtype:
    """Return the type of the stored values, of those that are real numbers."""
    code = int(header["datatype"])
    if code not in _NUMBERS:
        raise ImageError(
            f"{path} {_OTHERS.get(code, f'holds pixels of type {code}')}, which NIfTI files are "
            "not read with: save channels, parts or magnitudes as images of integers of up to 64 "
            "bits, float32 or float64."
        )
    return header.get_data_dtype()


def _pixel_metadata(header: Any, ndim: int) -> PixelMetadata:
    """Return the steps along the axes and their units."""
    code = int(header["xyzt_units"])
    units = {**dict.fromkeys("XYZ", _UNITS.get(code % 8, "")), "T": _TIMES.get(code & 0x38, "")}
    steps = zip("XYZT"[:ndim], header["pixdim"][1:], strict=False)
    # As the fields of NIfTI-1 are float32, 1.2 would be 1.2000000476837158.
    known = {letter: (float(f"{float(step):.7g}"), units[letter]) for letter, step in steps}
    return PixelMetadata(image_file.kept_steps(known))


def _version_of(start: bytes) -> int | None:
    """Return the version of a file that starts like this, of one part or two; None if of none."""
    found = (n for n, at in _PLACES.items() if start[at : at + 3] in (b"n+%d" % n, b"ni%d" % n))
    return next(found, None)


def unpack_extensions(held: bytes, byteorder: str) -> tuple[list[tuple[int, bytes]], bool]:
    """Return codes and contents of the extensions behind a header, and whether all are whole.

    `held` are the bytes between header and voxels, four of which say whether there is any.
    """
    found: list[tuple[int, bytes]] = []
    at = 4
    if not held[:1].strip(b"\0"):
        return found, True
    while len(held) - at >= 16:
        size, code = struct.unpack_from(byteorder + "ii", held, at)
        if size < 8 or at + size > len(held):
            return found, False
        found.append((code, held[at + 8 : at + size]))
        at += size
    return found, True


def type_of_levels(stored: np.dtype, scaling: tuple[float, float] | None) -> np.dtype:
    """Return the type of grey levels: float32 for scaled values, float64 where it holds too little.

    Values that are not scaled keep their type.
    """
    if scaling is None:
        return stored.newbyteorder("=")
    slope, inter = map(abs, scaling)
    if stored.kind == "f":
        return np.dtype(np.float32 if stored.itemsize <= 4 and not inter else np.float64)
    largest = max(abs(int(end)) for end in (np.iinfo(stored).min, np.iinfo(stored).max))
    fits = largest + inter / slope <= _EXACT and largest * slope + inter < 1e37 and slope > 1e-30
    return np.dtype(np.float32 if fits else np.float64)


class Voxels(FileBlocks):
    """The voxels of a NIfTI file; indexing reads only the planes required.

    NumPy's basic indexing, by whole numbers, slices and ``...``, gives arrays in memory; so does
    ``numpy.asarray`` for the whole. Several threads may read. What is compressed, and cannot be
    entered in the middle, is read completely when any of it is indexed, and kept.
    """

    def __init__(
        self,
        handle: Any,
        path: Path,
        shape: tuple[int, ...],
        stored: np.dtype,
        offset: int,
        scaling: tuple[float, float] | None,
        *,
        packed: bool,
        by_plane: bool,
    ) -> None:
        outer = len(shape) - 2 if by_plane else 0
        super().__init__(path, shape, type_of_levels(stored, scaling), outer)
        self._handle, self._packed = handle, packed
        self._stored, self._offset, self._scaling = stored, offset, scaling

    def _read(self, number: int) -> np.ndarray:
        if self._outer == 0:
            return self._whole()
        block = np.empty(self._block_shape, self.dtype)
        self._fill(block.reshape(-1), number * block.size)
        return block

    def _whole(self) -> np.ndarray:
        with self._reading():
            whole = np.empty(self.shape, self.dtype)
            self._fill(whole.reshape(-1), 0)
            if self._packed:
                self._handle.read(_REST)  # gzip compares its checksum at the end
            return whole

    def _fill(self, out: np.ndarray, first: int) -> None:
        """Read the values from a number on into a flat array."""
        self._handle.seek(self._offset + first * self._stored.itemsize)
        for start in range(0, out.size, _AT_ONCE):
            part = out[start : start + _AT_ONCE]
            values = np.empty(part.shape, self._stored)
            if not image_file.read_into(self._handle, values):
                raise input_checks.cut_short(self._path)
            if self._scaling is None:
                part[...] = values
                continue
            slope, inter = self._scaling
            with np.errstate(over="ignore", invalid="ignore"):
                part[...] = values.astype(np.float64) * slope + inter


def write(
    file: Any, path: Path, data: Any, like: ImageFile, records: Sequence[dict]
) -> tuple[str, ...]:
    """Write new voxels with the header of another NIfTI file, as `formats.write` does.

    The name says whether the file is compressed. The record becomes an extension of the header.
    """
    with contextlib.ExitStack() as opened:
        if path.suffix.lower() == ".gz":
            # Neither name nor time, so that the same call gives the same bytes.
            options = {"filename": "", "mode": "wb", "mtime": 0, "compresslevel": _COMPRESSION}
            file = opened.enter_context(gzip.GzipFile(fileobj=file, **options))
        file.write(_head(data.dtype, like, records))
        stored = data.dtype.newbyteorder(like.metadata["header"].endianness)
        for place in np.ndindex(data.shape[:-2]):
            file.write(np.ascontiguousarray(data[place], stored).data)
    return ()


def tables(path: Path, target: Path) -> dict[Path, Path]:
    """Return the tables of diffusion weighting of an image, and where those of a result lie."""
    pairs = ((_beside(path, end), _beside(target, end)) for end in _WEIGHTING)
    return {source: copy for source, copy in pairs if source.exists() and source != copy}


def _beside(path: Path, end: str) -> Path:
    """Return the file of the same name with another end: beside an image, or what that links to."""
    both = path, path.resolve()
    places = [one.with_name(one.name[: one.name.lower().rfind(".nii")] + end) for one in both]
    return next(filter(os.path.exists, places), places[0])


def _head(dtype: np.dtype, like: ImageFile, records: Sequence[dict]) -> bytes:
    """Return all that precedes the voxels."""
    kept = like.metadata
    header = kept["header"].copy()
    header.set_data_dtype(dtype)
    if kept["scaling"] is not None:
        # The values written are grey levels.
        header["scl_slope"], header["scl_inter"] = 1, 0
    extensions = list(kept["extensions"])
    extensions += [(_COMMENT, image_file.record_line(each).encode("ascii")) for each in records]
    behind = pack_extensions(extensions, header.endianness)
    header["vox_offset"] = header.template_dtype.itemsize + len(behind)
    return header.binaryblock + behind


def described_anew(like: ImageFile, name: str) -> ImageFile:
    """Return an image of another format as one of which `write` makes a new NIfTI file.

    An affine in its metadata makes pixels (x, y, z) positions in mm (RAS); by default it holds the
    steps.
    """
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    data, axes = like.data, like.axes
    if axes not in {"YX", "ZYX", "TYX", "TZYX"}:
        raise OutputError(
            f"Axes {axes} of {like.path} do not fit NIfTI, which holds T, Z, Y and X: end the "
            "name of the result with .ome.tif."
        )
    shape = list(data.shape)
    if axes == "TYX":
        shape.insert(1, 1)
    version = 1 if max(shape) < 2**15 else 2
    header = (Nifti1Header if version == 1 else Nifti2Header)()
    header.set_data_shape(shape[::-1])
    steps = like.pixel_metadata.steps
    told = {letter: steps.get(letter, (1.0, "")) for letter in "XYZT"}
    # DICOM, which alone becomes NIfTI, tells millimeters and milliseconds.
    zooms = [step * (1e-3 if unit == "millisecond" else 1) for step, unit in told.values()]
    header.set_zooms(zooms[: len(shape)])
    header.set_xyzt_units("mm", "sec")
    known = like.metadata.get("affine")
    affine = np.diag([*zooms[:3], 1.0]) if known is None else known
    header.set_sform(affine, code=int(known is not None))
    header.set_qform(affine, code=int(known is not None), strip_shears=True)
    header["magic"] = b"n+1" if version == 1 else header["magic"]
    metadata = {"header": header, "extensions": [], "scaling": None}
    return replace(like, kind="nifti", metadata=metadata)


def pack_extensions(extensions: Iterable[tuple[int, bytes]], byteorder: str) -> bytes:
    """Return the bytes behind a header for extensions, each as long as the standard wants."""
    packed = b""
    for code, content in extensions:
        content += b"\0" * (-(len(content) + 8) % 16)
        packed += struct.pack(byteorder + "ii", len(content) + 8, code) + content
    return bytes([bool(packed), 0, 0, 0]) + packed


FORMAT = Format(
    name="NIfTI",
    suffixes=(".nii", ".nii.gz"),
    kinds=("nifti",),
    is_format=is_nifti,
    open_image=open_image,
    write=write,
    held={"nifti": ("a NIfTI", image_file.INTEGERS | {"float32", "float64"})},
    tables=tables,
    described_anew=described_anew,
)
