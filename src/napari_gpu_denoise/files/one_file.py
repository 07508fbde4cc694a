"""Denoise one file into another; a large one part by part, never whole in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError, ImageError, OutputError
from napari_gpu_denoise.files import formats, nifti, tiff, zarr
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import check_numbers, output_dtype, put_together
from napari_gpu_denoise.run.denoise import drive
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.job import Run
from napari_gpu_denoise.run.record import Record

# Smaller stacks are read whole, once: for the range of values, the noise and the filter.
STREAMED_BYTES = 1 << 27


def denoise_file(
    path: Path,
    target: Path,
    run: Run,
    *,
    overwrite: bool,
    new_folder: bool,
    companions_anywhere: bool,
    progress: Callable[[int, int], None],
    cancel: Any,
) -> tuple[tiff.Picture, Record, tuple[str, ...]]:
    """Denoise a file into a new one, which appears when it is complete.

    A run without axes takes those of the file. `new_folder` says whether the folder of the result
    may be made; one that held results and is gone is an error. Returns the description of the
    input, the record of the result, and notes about the writing.
    """
    with formats.open_stack(path, companions_anywhere=companions_anywhere) as picture:
        formats.check_name(target, picture)
        check_numbers(picture.data)
        given = picture.data.dtype
        dtype = output_dtype(run.dtype, given)
        if dtype is None and picture.has_palette:
            dtype = output_dtype("same", given)
        possible = [dtype] if dtype else [given, np.dtype(np.float32)]
        for one in possible:
            formats.check_writable(picture, one)
        same = isinstance(run.dtype, str) and run.dtype == "same"
        filter = with_voxel(run.filter, picture)
        run = replace(run, filter=filter, axes=run.axes or picture.filter_axes, dtype=dtype)
        if picture.kind == "zarr":
            _make_folder(target, new_folder)
            with zarr.new_image(target, picture, overwrite=overwrite) as made:
                options = {"progress": progress, "cancel": cancel}
                result = drive(picture.data, run, out=made.finest, **options)
                notes = made.finish(result.record)
            return picture, result.record, notes
        if _is_long(picture, run.axes):
            _make_folder(target, new_folder)
            planes = 3 if picture.axes.endswith("S") else 2
            with contextlib.ExitStack() as held:

                def store(shape: tuple[int, ...], dtype: np.dtype) -> tiff.PlaneStore:
                    made = tiff.PlaneStore(shape, dtype, target.parent, axes_of_plane=planes)
                    return held.enter_context(made)

                result = drive(picture.data, run, out=store, progress=progress, cancel=cancel)
                return _written(target, result.image, picture, result.record, same, overwrite)
        largest = max(one.itemsize for one in possible)
        picture = picture.loaded(result=picture.data.size * largest)
    result = drive(picture.pixels, run, progress=progress, cancel=cancel)
    _make_folder(target, new_folder)
    image = result.image
    if picture.alpha is not None:
        image = put_together(image, picture.colours, picture.data, picture.alpha)
    return _written(target, image, picture, result.record, same, overwrite)


def _written(
    target: Path, image: Any, like: tiff.Picture, record: Record, same: bool, overwrite: bool
) -> tuple[tiff.Picture, Record, tuple[str, ...]]:
    """Write a result, in the stored type of its input if it is to have the `same`."""
    if same:
        image, like, record = nifti.as_stored(image, like, record)
    notes = formats.write(target, image, like, record, overwrite=overwrite)
    return like, record, notes


def with_voxel(filter: Filter, picture: tiff.Picture) -> Filter:
    """Return a filter with the voxel size of a file, if it has that setting and it is empty."""
    known = {spec.name for spec in fields(filter)}
    if "voxel" not in known or filter.voxel or picture.voxel is None:
        return filter
    return replace(filter, voxel=",".join(f"{step:.7g}" for step in picture.voxel))


def _is_long(picture: tiff.Picture, axes: str) -> bool:
    """Return whether a stack is read and filtered frame by frame, or in parts of some planes."""
    data = picture.data
    if data.nbytes < STREAMED_BYTES:
        return False
    names = check_axes(axes, data.shape)
    # Files with alpha, which is not filtered, are read whole, and so are files in which each frame
    # is scattered over the whole file.
    by_frame = data.reads_by_plane(names.index("Y"), names.index("X"))
    return picture.alpha is None and by_frame


def check_result(target: Path, filter: Filter) -> None:
    """Refuse a file that is not a result of the same filter and settings."""
    made: dict[str, Any] = {}
    with contextlib.suppress(FileError, ImageError), formats.open_stack(target) as picture:
        made = dict(picture.history[-1]) if picture.history else {}
        filter = with_voxel(filter, picture)
    if (made.get("filter"), made.get("settings")) != (filter.name, filter.as_dict()):
        raise OutputError(
            f"{target} is not a result of this filter and these settings",
            "choose another name, or pass overwrite=True to replace it",
            code="exists",
        )


def _make_folder(target: Path, new_folder: bool) -> None:
    """Create the folder of a file if necessary."""
    if isinstance(target, zarr.Address):
        return
    if not new_folder and not target.parent.is_dir():
        raise OutputError(
            f"The folder {target.parent} was removed during the run, with the results in it: "
            "repeat the run."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The folder {target.parent} cannot be created: {error.strerror or error}."
        ) from error
