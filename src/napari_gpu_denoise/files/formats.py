"""The formats of image files: which one a file has, and what reads and writes it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files import nifti, tiff, zarr
from napari_gpu_denoise.files.blocks import Blocks
from napari_gpu_denoise.files.image_file import Format, ImageFile
from napari_gpu_denoise.files.output import check_folder, check_output

if TYPE_CHECKING:
    from napari_gpu_denoise.run.record import Record


#: In the order in which they are tried; the first reads, or refuses, what none recognises.
FORMATS = (tiff.FORMAT, nifti.FORMAT, zarr.FORMAT)
SUFFIXES = tuple(suffix for each in FORMATS for suffix in each.suffixes)


def has_suffix(path: str | os.PathLike) -> bool:
    """Return whether a name ends like that of a file that can be read and written."""
    return os.fspath(path).lower().rstrip("/\\").endswith(SUFFIXES)


def is_image(path: str | os.PathLike) -> bool:
    """Return whether a file starts like one that can be read; False also if it cannot be opened."""
    path = zarr.as_path(path)
    return any(each.is_format(path) for each in FORMATS)


def read(path: str | os.PathLike, *, companions_anywhere: bool = False) -> ImageFile:
    """Read a NIfTI file, an OME-Zarr folder, or the first image of a TIFF file.

    Parameters
    ----------
    path : path-like
        A TIFF, BigTIFF, ImageJ or OME-TIFF file; the folder of an OME-Zarr image, of version 0.4 or
        0.5; or a NIfTI file, of version 1 or 2, compressed by gzip or not. The axes of a NIfTI file
        are in reverse order, as in (t, z, y, x), and slope and intercept of its header are applied.
    companions_anywhere : bool, default False
        Read the other files of an OME-TIFF set wherever its XML says they are, and what links in an
        OME-Zarr lead to. By default only those in the folder of `path`, or below.

    Returns
    -------
    ImageFile

    Raises
    ------
    FileError
        If the file is missing, of another format, cut short, or needs a codec that is not
        installed; if it declares far more pixels than it holds, or more than fit into memory.
    ImageError
        If it has no pixels, or a NIfTI file contains colours or complex numbers.
    """
    with open_stack(path, companions_anywhere=companions_anywhere) as picture:
        return picture.loaded()


def open_stack(
    path: str | os.PathLike, *, companions_anywhere: bool = False
) -> AbstractContextManager[ImageFile]:
    """Open a NIfTI file, an OME-Zarr, or the first image of a TIFF file, to read it on demand.

    Its context is what `read` returns, but with ``data`` in the file until the context ends.
    """
    path = zarr.as_path(path)
    return format_of(path).open_stack(path, companions_anywhere=companions_anywhere)


def format_of(path: Any) -> Format:
    """Return the format of a file: as it starts, else as its name says."""
    if isinstance(path, zarr.Address):
        return zarr.FORMAT
    by_content = (each for each in FORMATS if each.is_format(path))
    by_name = (each for each in FORMATS if os.path.isfile(path) and each.is_path(path))
    return next(itertools.chain(by_content, by_name), FORMATS[0])


def write(
    path: str | os.PathLike,
    data: np.ndarray | Blocks,
    like: ImageFile,
    record: Record | Sequence[dict] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write new pixels with the metadata of another image, in its format.

    The file is either complete or absent: it is written under a temporary name in the same folder,
    flushed to disk and renamed.

    Parameters
    ----------
    path : path-like
        The new file. The name of a NIfTI image ends with ``.nii``, or with ``.nii.gz`` to
        compress it, the name of an OME-Zarr with ``.zarr``.
    data : ndarray, or array that is read in blocks
        Pixels of the shape of ``like.data``, of any real type. If they are not in memory, they are
        read page by page.
    like : ImageFile
        Source of the metadata. Of a TIFF file: axes, voxel size, units, time interval, channel
        names, byte order, tiles and compression; lossy compression becomes deflate. Of a NIfTI
        file: the header, with affine and units, its extensions, and byte order; slope and intercept
        become 1 and 0, because pixels are grey levels. Of an OME-Zarr: all attributes, chunks,
        shards and compression; the levels of its pyramid are computed again, as means of blocks.
    record : Record or sequence of dict, optional
        How the pixels were made; several as `Record.as_dict` returns them. It is stored as JSON:
        in the Info of an ImageJ file, as an annotation of an OME image, as a comment among the
        extensions of a NIfTI header, otherwise as a line of the Software tag; `read` finds it.
    overwrite : bool, default False
        Replace an existing file. The input itself is never replaced.

    Returns
    -------
    tuple of str
        What could not be preserved, one sentence each.

    Raises
    ------
    OutputError
        If the file exists, is the input, or cannot be written, its name is that of another format,
        or the kind of file cannot hold this type of pixels; nothing is left behind.
    """
    path = zarr.as_path(path)
    if tuple(data.shape) != tuple(like.data.shape):
        raise OutputError(
            f"Pixels of shape {tuple(data.shape)} cannot take the metadata of an image of shape "
            f"{tuple(like.data.shape)}: write them like an image of the same shape."
        )
    check_name(path, like)
    return _writer(like).write(path, data, like, record, overwrite=overwrite)


def check_name(path: str | os.PathLike, like: ImageFile) -> None:
    """Refuse a name for a result that is not one of the format of its input."""
    wanted = _writer(like)
    if next((each for each in FORMATS if each.is_path(path)), FORMATS[0]) is not wanted:
        raise OutputError(
            f"{path} cannot be the result of {like.path}, which is written as {wanted.name}: end "
            f"it with {wanted.new_suffix}."
        )


def check_target(path: str | os.PathLike, keep: Sequence[str | os.PathLike]) -> None:
    """Refuse a name at which no result can be written, before the work starts."""
    check = check_folder if zarr.is_zarr_path(path) else check_output
    check(path, overwrite=True, keep=keep)


def check_writable(like: ImageFile, dtype: np.dtype) -> None:
    """Refuse pixels of a type, before they are computed, that cannot be written like an image."""
    _writer(like).check_writable(like, dtype)


def _writer(like: ImageFile) -> Format:
    """Return the format in which an image is written."""
    return next(each for each in FORMATS if like.kind in each.kinds)
