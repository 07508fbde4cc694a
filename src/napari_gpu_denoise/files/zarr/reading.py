"""Reading OME-Zarr."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files.tiff import voxel
from napari_gpu_denoise.files.tiff.checks import check_memory
from napari_gpu_denoise.files.tiff.looks import SYMBOLS, Looks
from napari_gpu_denoise.files.tiff.messages import reading
from napari_gpu_denoise.files.tiff.picture import Picture
from napari_gpu_denoise.files.zarr.address import Address, located
from napari_gpu_denoise.files.zarr.chunks import check_stored
from napari_gpu_denoise.files.zarr.heads import Node, node_at
from napari_gpu_denoise.files.zarr.metadata import described, ome_of
from napari_gpu_denoise.files.zarr.naming import is_zarr, zarr_package
from napari_gpu_denoise.files.zarr.pixels import ZarrPixels

_LARGE_CHUNK = 1 << 28  # bytes from which on there must be memory for a chunk


@contextlib.contextmanager
def open_stack(path: str | os.PathLike, *, companions_anywhere: bool = False) -> Iterator[Picture]:
    """Open an image of OME-Zarr, to read it part by part, as `files.tiff.open_stack` does TIFF.

    Links that lead out of its folder are followed with `companions_anywhere` only.
    """
    path = located(path)
    zarr_package()
    if not is_zarr(path):
        raise FileError(f"{path} is not there, or holds no zarr: check the name.")
    with reading(path, "damaged"):
        picture = _picture(path, None if companions_anywhere else os.path.realpath(path))
    try:
        yield picture
    finally:
        picture.data.close()
        for level in picture.metadata["levels"]:
            level.close()


def _picture(path: Path | Address, within: str | None) -> Picture:
    # It needs zarr.
    from napari_gpu_denoise.files.zarr.codecs import open_arrays

    place, node = path, _node(path, within)
    if node.array:
        raise FileError(
            f"{path} is a single array of zarr, without the names of its axes: choose the folder "
            "around it, which holds the metadata of OME-Zarr, or pass the array in Python."
        )
    notes: list[str] = []
    if "multiscales" not in ome_of(node.attributes)[1]:
        place, node = _first_image(path, node, within, notes)
    attributes = dict(node.attributes)
    found = described(attributes, path)
    opened = [open_arrays(place, name, _node(place / name, within), within) for name in found.paths]
    levels = [like for _, like in opened]
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
    for level in levels:
        held = math.prod(level.shards or level.chunks) * np.dtype(level.dtype).itemsize
        if held >= _LARGE_CHUNK:
            check_memory(2 * held, path)
    notes += check_stored(finest, place / found.paths[0], path)
    if is_zarr(place / "labels"):
        notes.append("The labels beside the image are not part of the result.")
    pixels = [ZarrPixels(read, path) for read, _ in opened]
    metadata = {
        "attributes": attributes,
        "arrays": levels,
        "levels": pixels[1:],
        "format": node.form,
    }
    size = _voxel(found.looks)
    kept = (path, (path,), tuple(notes), found.history, *size, found.looks)
    return Picture(pixels[0], found.axes, "zarr", metadata, *kept)


def _node(place: Path | Address, within: str | None) -> Node:
    node = node_at(place, within)
    if node is None:
        raise FileError(f"{place} holds no metadata of zarr: the image is damaged; copy it again.")
    return node


def _first_image(
    path: Path | Address, node: Node, within: str | None, notes: list[str]
) -> tuple[Path | Address, Node]:
    """Return the first image of a folder that holds several, numbered from 0."""
    ome = ome_of(node.attributes)[1]
    if "plate" in ome:
        raise FileError(
            f"{path} is a plate, which is a batch of images: name the folder of one, such as "
            f"{path}/A/1/0, or filter all of them by gpu-denoise or run_batch()."
        )
    if "well" in ome:
        raise FileError(f"{path} is a well: name the folder of an image, such as {path}/0.")
    first = node_at(path / "0", within)
    if first is None or "multiscales" not in ome_of(first.attributes)[1]:
        return path, node
    inside = path.inside() if isinstance(path, Address) else path.iterdir()
    numbered = sum(each.name.isdigit() for each in inside)
    if numbered > 1:
        notes.append(f"The folder holds {numbered} images: the first was used.")
    return path / "0", first


def _voxel(looks: Looks) -> voxel.Voxel:
    """Return the voxel size (z, y, x), if all three steps and units are known."""
    steps = [looks.steps.get(letter, (0.0, "")) for letter in "ZYX"]
    if not all(unit for _, unit in steps):
        return voxel.NONE
    size, unit = voxel.sized([step for step, _ in steps], [unit for _, unit in steps])
    return size, SYMBOLS.get(unit, unit)
