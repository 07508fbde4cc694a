"""TIFF, NIfTI and OME-Zarr by one name: which format a file has, and what reads and writes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files import nifti, tiff, zarr

if TYPE_CHECKING:
    from napari_gpu_denoise.run.record import Record

SUFFIXES = (*tiff.SUFFIXES, *nifti.SUFFIXES, *zarr.SUFFIXES)


def has_suffix(path: str | os.PathLike) -> bool:
    """Return whether a name ends like that of a file that can be read and written."""
    return os.fspath(path).lower().endswith(SUFFIXES) or zarr.has_suffix(path)


def is_image(path: str | os.PathLike) -> bool:
    """Return whether a file starts like one that can be read; False also if it cannot be opened."""
    path = zarr.as_path(path)
    return tiff.is_tiff(path) or nifti.is_nifti(path) or zarr.is_zarr(path)


def read(path: str | os.PathLike, *, companions_anywhere: bool = False) -> tiff.Picture:
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
    Picture

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
) -> AbstractContextManager[tiff.Picture]:
    """Open a NIfTI file, an OME-Zarr, or the first image of a TIFF file, to read it on demand.

    Its context is what `read` returns, but with ``data`` in the file until the context ends.
    """
    path = zarr.as_path(path)
    if isinstance(path, zarr.Address) or zarr.is_zarr(path):
        return zarr.open_stack(path, companions_anywhere=companions_anywhere)
    if tiff.is_tiff(path) or not os.path.isfile(path):
        return tiff.open_stack(path, companions_anywhere=companions_anywhere)
    if nifti.has_suffix(path) or nifti.is_nifti(path):
        return nifti.open_stack(path)
    return tiff.open_stack(path, companions_anywhere=companions_anywhere)


def write(
    path: str | os.PathLike,
    data: np.ndarray | tiff.Planes | tiff.PlaneStore,
    like: tiff.Picture,
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
    data : ndarray, Planes or PlaneStore
        Pixels of the shape of ``like.data``, of any real type. If they are not in memory, they are
        read page by page.
    like : Picture
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
    check_name(path, like)
    return _of(like).write(path, data, like, record, overwrite=overwrite)


def check_name(path: str | os.PathLike, like: tiff.Picture) -> None:
    """Refuse a name for a result that is not one of the format of its input."""
    forms = {"nifti": ("a NIfTI file", ".nii or .nii.gz"), "zarr": ("an OME-Zarr", ".ome.zarr")}
    named = "nifti" if nifti.has_suffix(path) else "zarr" if zarr.is_zarr_path(path) else ""
    if named == (like.kind if like.kind in forms else ""):
        return
    form, endings = forms.get(like.kind, ("a TIFF file", ".tif"))
    raise OutputError(
        f"{path} cannot be the result of {like.path}, which is written as {form}: end it with "
        f"{endings}."
    )


def check_target(path: str | os.PathLike, keep: Sequence[str | os.PathLike]) -> None:
    """Refuse a name at which no result can be written, before the work starts."""
    check = tiff.check_folder if zarr.is_zarr_path(path) else tiff.check_output
    check(path, overwrite=True, keep=keep)


def check_writable(like: tiff.Picture, dtype: np.dtype) -> None:
    """Refuse pixels of a type, before they are computed, that cannot be written like an image."""
    _of(like).check_writable(like, dtype)


def _of(like: tiff.Picture) -> ModuleType:
    """Return the package that writes images of the format of another."""
    return {"nifti": nifti, "zarr": zarr}.get(like.kind, tiff)
