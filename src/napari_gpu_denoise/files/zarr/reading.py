"""Reading OME-Zarr."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files.tiff import voxel
from napari_gpu_denoise.files.tiff.checks import check_memory
from napari_gpu_denoise.files.tiff.looks import SYMBOLS, Looks
from napari_gpu_denoise.files.tiff.messages import reading
from napari_gpu_denoise.files.tiff.picture import Picture
from napari_gpu_denoise.files.zarr.address import located
from napari_gpu_denoise.files.zarr.metadata import described, ome_of
from napari_gpu_denoise.files.zarr.naming import is_zarr, zarr_package
from napari_gpu_denoise.files.zarr.pixels import ZarrPixels
from napari_gpu_denoise.files.zarr.steady import steadily

_LARGE_CHUNK = 1 << 28  # bytes from which on there must be memory for a chunk
_COUNTED = 1 << 16  # chunks up to which those that are missing are counted


@contextlib.contextmanager
def open_stack(path: str | os.PathLike) -> Iterator[Picture]:
    """Open an image of OME-Zarr, to read it part by part, as `files.tiff.open_stack` does TIFF."""
    path = located(path)
    zarr = zarr_package()
    if not is_zarr(path):
        raise FileError(f"{path} is not there, or holds no zarr: check the name.")
    with reading(path, "damaged"):
        group = steadily(path, lambda: zarr.open(os.fspath(path), mode="r"))
        picture = _picture(group, path)
    try:
        yield picture
    finally:
        picture.data.close()
        for level in picture.metadata["levels"]:
            level.close()


def _picture(group: Any, path: Path) -> Picture:
    if not hasattr(group, "group_keys"):
        raise FileError(
            f"{path} is a single array of zarr, without the names of its axes: choose the folder "
            "around it, which holds the metadata of OME-Zarr, or pass the array in Python."
        )
    notes: list[str] = []
    attributes = dict(group.attrs)
    if "multiscales" not in ome_of(attributes)[1]:
        group, attributes = _first_image(group, attributes, path, notes)
    found = described(attributes, path)
    levels = [group[name] for name in found.paths]
    finest = levels[0]
    if len(finest.shape) != len(found.axes) or any(
        len(a.shape) != len(finest.shape) for a in levels
    ):
        raise FileError(
            f"The OME-Zarr metadata of {path} name {len(found.axes)} axes, but its pixels have "
            f"{len(finest.shape)}: save it again."
        )
    if 0 in finest.shape:
        raise ImageError(f"{path} has no pixels (its shape is {finest.shape}): nothing to filter.")
    held = math.prod(finest.shards or finest.chunks) * np.dtype(finest.dtype).itemsize
    if held >= _LARGE_CHUNK:
        check_memory(2 * held, path)
    notes += _missing(finest)
    if "labels" in set(group.group_keys()):
        notes.append("The labels beside the image are not part of the result.")
    pixels = [ZarrPixels(one, path) for one in levels]
    metadata = {
        "attributes": attributes,
        "arrays": levels,
        "levels": pixels[1:],
        "format": group.metadata.zarr_format,
    }
    size = _voxel(found.looks)
    kept = (path, (path,), tuple(notes), found.history, *size, found.looks)
    return Picture(pixels[0], found.axes, "zarr", metadata, *kept)


def _missing(array: Any) -> list[str]:
    """Return a note of chunks, or shards, that are not there: zarr writes none without content."""
    unit = array.shards or array.chunks
    total = math.prod(-(-n // u) for n, u in zip(array.shape, unit, strict=True))
    if total > _COUNTED:
        return []
    inside = math.prod(u // c for u, c in zip(unit, array.chunks, strict=True))
    missing = total - array.nchunks_initialized // inside
    if missing <= 0:
        return []
    kind = "shards" if array.shards else "chunks"
    return [
        f"{missing} of {total} {kind} are not in the folder and were read as {array.fill_value}."
    ]


def _first_image(
    group: Any, attributes: Mapping[str, Any], path: Path, notes: list[str]
) -> tuple[Any, dict[str, Any]]:
    """Return the first image of a folder that holds several, numbered from 0."""
    ome = ome_of(attributes)[1]
    if "plate" in ome:
        raise FileError(
            f"{path} is a plate, which is a batch of images: name the folder of one, such as "
            f"{path}/A/1/0, or filter all of them by gpu-denoise or run_batch()."
        )
    if "well" in ome:
        raise FileError(f"{path} is a well: name the folder of an image, such as {path}/0.")
    numbered = [name for name in group.group_keys() if name.isdigit()]
    if "0" in numbered and "multiscales" in ome_of(dict(group["0"].attrs))[1]:
        if len(numbered) > 1:
            notes.append(f"The folder holds {len(numbered)} images: the first was used.")
        return group["0"], dict(group["0"].attrs)
    return group, dict(attributes)


def _voxel(looks: Looks) -> voxel.Voxel:
    """Return the voxel size (z, y, x), if all three steps and units are known."""
    steps = [looks.steps.get(letter, (0.0, "")) for letter in "ZYX"]
    if not all(unit for _, unit in steps):
        return voxel.NONE
    size, unit = voxel.sized([step for step, _ in steps], [unit for _, unit in steps])
    return size, SYMBOLS.get(unit, unit)
