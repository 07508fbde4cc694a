"""What precedes the voxels in a NIfTI file: header, extensions, and our records in them."""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from collections.abc import Iterable
from typing import Any

from napari_gpu_denoise.files.regular import open_regular
from napari_gpu_denoise.files.tiff.ome_xml import parsed_record
from napari_gpu_denoise.files.tiff.picture import MARK

SUFFIXES = (".nii", ".nii.gz")
GZIP = b"\x1f\x8b"
COMMENT = 6  # code of extensions that hold plain text
# By version: length of the header, and where the word is that names the version.
LENGTHS = {1: 348, 2: 540}
_PLACES = {1: 344, 2: 4}
LONGEST = max(LENGTHS.values()) + 4


def has_suffix(path: str | os.PathLike) -> bool:
    """Return whether a name ends like that of a NIfTI file."""
    return os.fspath(path).lower().endswith(SUFFIXES)


def is_nifti(path: str | os.PathLike) -> bool:
    """Return whether a file starts like a NIfTI file; False also if it cannot be opened."""
    try:
        with open_regular(path) as file:
            start = file.read(LONGEST)
            if start.startswith(GZIP):
                file.seek(0)
                with gzip.open(file) as unpacked:
                    start = unpacked.read(LONGEST)
    except (OSError, EOFError, zlib.error):
        return False
    return version_of(start) is not None


def version_of(start: bytes) -> int | None:
    """Return the version of a file that starts like this, of one part or two; None if of none."""
    found = (n for n, at in _PLACES.items() if start[at : at + 3] in (b"n+%d" % n, b"ni%d" % n))
    return next(found, None)


def in_two_files(start: bytes, version: int) -> bool:
    """Return whether a header says that its voxels are in a file of their own."""
    return start[_PLACES[version] :].startswith(b"ni")


def header_of(block: bytes, version: int, byteorder: str | None = None) -> Any:
    """Return the header in some bytes as nibabel has it, without changing what is unusual in it."""
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    kind = Nifti1Header if version == 1 else Nifti2Header
    return kind(block, byteorder, check=False)


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


def pack_extensions(extensions: Iterable[tuple[int, bytes]], byteorder: str) -> bytes:
    """Return the bytes behind a header for extensions, each as long as the standard wants."""
    packed = b""
    for code, content in extensions:
        content += b"\0" * (-(len(content) + 8) % 16)
        packed += struct.pack(byteorder + "ii", len(content) + 8, code) + content
    return bytes([bool(packed), 0, 0, 0]) + packed


def with_record(extensions: list[tuple[int, bytes]], record: dict) -> list[tuple[int, bytes]]:
    """Return extensions with one more, a comment that holds a record as JSON."""
    return [*extensions, (COMMENT, (MARK + json.dumps(record)).encode("ascii"))]


def records_in(extensions: Iterable[tuple[int, bytes]]) -> tuple[dict, ...]:
    """Return the records in extensions, oldest first."""
    found = []
    for code, content in extensions:
        text = content.rstrip(b"\0").decode("ascii", "replace")
        if code == COMMENT and text.startswith(MARK):
            found += parsed_record(text[len(MARK) :])
    return tuple(found)
