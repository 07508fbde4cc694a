"""Which chunks, or shards, of an array are stored: zarr reads all others as the fill value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.tiff.checks import check_declared, enough_stored
from napari_gpu_denoise.files.zarr.address import Address
from napari_gpu_denoise.files.zarr.naming import HEADS

# Chunks up to which any number may be missing, of which zarr fills 5000 in a second; of more at
# least one of so many must be stored.
_MISSING, _ONE_OF = 1 << 18, 500
_LISTED = 1 << 16  # chunks up to which those at an address are listed, a thousand by each request


def check_stored(array: Any, place: Path | Address, path: Path | Address) -> list[str]:
    """Return a note of what is missing; `FileError` if nearly all of a huge image is.

    Files are listed, not the chunks that the metadata declare, which may be any number.
    """
    unit, kind = array.shards or array.chunks, "shards" if array.shards else "chunks"
    grid = [-(-n // u) for n, u in zip(array.shape, unit, strict=True)]
    total, read_as = math.prod(grid), f"read as {array.fill_value}"
    files = dict(_at_address(place, total) if isinstance(place, Address) else _in_folder(place))
    if isinstance(place, Address) and not any(name in files for name in HEADS):
        return [f"Of {total} {kind} those that are not at the address, if any, are {read_as}."]
    named = _named(array, grid)
    there = [size for name, size in files.items() if named(name)]
    stored, enough = 0, enough_stored(array.nbytes)
    for size in there:
        if stored >= enough:
            break
        stored += size()
    check_declared(array.nbytes, stored, path, "zarr")
    if total > _MISSING and total > _ONE_OF * len(there):
        raise FileError(
            f"{path} declares {total} {kind} but holds {len(there)}: it is damaged or blank. If it "
            "is correct, read it with zarr and pass the array."
        )
    if len(there) == total:
        return []
    return [f"{total - len(there)} of {total} {kind} are not in the folder and were {read_as}."]


def _named(array: Any, grid: list[int]) -> Callable[[str], bool]:
    """Return what tells whether a file has the name of a chunk."""
    if array.metadata.zarr_format == 2:
        start, between = "", array.metadata.dimension_separator
    else:
        encoding = array.metadata.chunk_key_encoding
        start, between = "", encoding.separator
        if encoding.name == "default":
            start = f"c{between}"

    def named(name: str) -> bool:
        parts = name.removeprefix(start).split(between)
        return (
            name.startswith(start)
            and len(parts) == len(grid)
            and all(p.isdecimal() and str(int(p)) == p for p in parts)
            and all(int(p) < n for p, n in zip(parts, grid, strict=True))
        )

    return named


def _in_folder(place: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the names of all files, and what returns the size of each."""
    for folder, _, names in os.walk(place):
        inside = os.path.relpath(folder, place).replace(os.sep, "/")
        for name in names:
            size = partial(os.path.getsize, os.path.join(folder, name))
            yield name if inside == "." else f"{inside}/{name}", size


def _at_address(place: Address, total: int) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the same at an address; nothing where there are too many, or cannot be listed."""
    if total > _LISTED:
        return
    system, inside = place.system()
    for name, told in system.find(inside, detail=True).items():
        yield name.partition(inside.strip("/"))[2].strip("/"), lambda size=told["size"]: size
