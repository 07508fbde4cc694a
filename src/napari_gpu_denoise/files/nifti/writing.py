"""Writing NIfTI: new voxels with header and extensions of the input."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files.nifti.header import (
    LENGTHS,
    header_of,
    pack_extensions,
    with_record,
)
from napari_gpu_denoise.files.tiff.output import new_file
from napari_gpu_denoise.files.tiff.picture import Picture, records_of

if TYPE_CHECKING:
    from napari_gpu_denoise.run.record import Record

_HELD = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_HELD |= {"float32", "float64"}
_COMPRESSION = 1  # as nibabel: higher levels take several times as long for a few per cent


def write(
    path: str | os.PathLike,
    data: Any,
    like: Picture,
    record: Record | Sequence[dict] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write new voxels with the header of another NIfTI file, as `files.tiff.write` does for TIFF.

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


def check_writable(like: Picture, dtype: np.dtype) -> None:
    """Refuse pixels of a type that NIfTI files cannot hold."""
    if np.dtype(dtype).name not in _HELD:
        raise OutputError(
            f"{like.path} is a NIfTI file, which cannot hold {dtype}",
            "pass dtype='float32'",
            code="file-dtype",
        )


def _head(dtype: np.dtype, like: Picture, record: Record | Sequence[dict] | None) -> bytes:
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
