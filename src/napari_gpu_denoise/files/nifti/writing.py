"""Writing NIfTI: new voxels with header and extensions of the input."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files.image_file import MARK, ImageFile, records_of
from napari_gpu_denoise.files.nifti.reading import COMMENT, LENGTHS, header_of
from napari_gpu_denoise.files.output import new_file
from napari_gpu_denoise.run.record import Record

_HELD = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_HELD |= {"float32", "float64"}
_COMPRESSION = 1  # as nibabel: higher levels take several times as long for a few per cent


def write(
    path: str | os.PathLike,
    data: Any,
    like: ImageFile,
    record: Record | Sequence[dict] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write new voxels with the header of another NIfTI file, as `formats.write` does.

    The name says whether the file is compressed. The record becomes an extension of the header.
    """
    path = Path(path)
    if data.shape != like.data.shape:
        raise OutputError(
            f"Pixels of shape {data.shape} cannot take the metadata of an image of shape "
            f"{like.data.shape}: write them like an image of the same shape."
        )
    check_writable(like, data.dtype)
    keep = (like.path, *like.files)
    with new_file(path, overwrite=overwrite, keep=keep) as file, contextlib.ExitStack() as opened:
        if path.suffix.lower() == ".gz":
            # Neither name nor time, so that the same call gives the same bytes.
            options = {"filename": "", "mode": "wb", "mtime": 0, "compresslevel": _COMPRESSION}
            file = opened.enter_context(gzip.GzipFile(fileobj=file, **options))
        file.write(_head(data.dtype, like, record))
        stored = data.dtype.newbyteorder(like.metadata["byteorder"])
        for place in np.ndindex(data.shape[:-2]):
            file.write(np.ascontiguousarray(data[place], stored).data)
    return ()


def check_writable(like: ImageFile, dtype: np.dtype) -> None:
    """Refuse pixels of a type that NIfTI files cannot hold."""
    if np.dtype(dtype).name not in _HELD:
        raise OutputError(
            f"{like.path} is a NIfTI file, which cannot hold {dtype}",
            "pass dtype='float32'",
            code="file-dtype",
        )


def _head(dtype: np.dtype, like: ImageFile, record: Record | Sequence[dict] | None) -> bytes:
    """Return all that precedes the voxels."""
    kept = like.metadata
    header = header_of(kept["header"], kept["version"], kept["byteorder"])
    header.set_data_dtype(dtype)
    if kept["scaling"] is not None and not kept["as_stored"]:
        # The values written are grey levels.
        header["scl_slope"], header["scl_inter"] = 1, 0
    extensions = list(kept["extensions"])
    for one in records_of(record):
        extensions = with_record(extensions, one)
    behind = pack_extensions(extensions, kept["byteorder"])
    header["vox_offset"] = LENGTHS[kept["version"]] + len(behind)
    return header.binaryblock + behind


@dataclass(frozen=True)
class StoredValues:
    """An array of grey levels as the values that a slope and an intercept make them of.

    Integers are rounded to nearest and saturated. Indexing converts what it reads.
    """

    levels: Any
    dtype: np.dtype
    slope: float
    inter: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.levels.shape

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._converted(index)[0]

    @property
    def clipped(self) -> int:
        """Number of values beyond the range of the type."""
        return sum(self._converted(place)[1] for place in np.ndindex(self.shape[:-2]))

    def _converted(self, index: Any) -> tuple[np.ndarray, int]:
        levels = np.asarray(self.levels[index], np.float64)
        with np.errstate(over="ignore"):
            values = (levels - self.inter) / self.slope
            if self.dtype.kind == "f":
                return values.astype(self.dtype), 0
        limits = np.iinfo(self.dtype)
        whole = np.rint(np.nan_to_num(values, nan=0.0))
        # The float next to the largest 64-bit integer is already out of range.
        past = float(limits.max) > limits.max
        below, above = whole < limits.min, whole >= limits.max if past else whole > limits.max
        out = np.where(below | above, 0, whole).astype(self.dtype)
        out[below], out[above] = limits.min, limits.max
        return out, int(np.count_nonzero(below | above))


def as_stored(image: Any, like: ImageFile, record: Record) -> tuple[Any, ImageFile, Record]:
    """Return a result in the stored type of its input, with its slope and intercept.

    All three are as they came if the input is not scaled, of whatever format.
    """
    scaling = like.metadata.get("scaling")
    if scaling is None:
        return image, like, record
    values = StoredValues(image, np.dtype(like.metadata["dtype"]), *scaling)
    like = replace(like, metadata={**like.metadata, "as_stored": True})
    saturated = record.saturated + values.clipped
    return values, like, replace(record, output_dtype=values.dtype.name, saturated=saturated)


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
