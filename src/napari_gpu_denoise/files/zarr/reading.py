"""Reading OME-Zarr."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files import input_checks
from napari_gpu_denoise.files.image_file import BOOLEAN, FileBlocks, ImageFile
from napari_gpu_denoise.files.zarr.metadata import Node, beside, described, node_at, ome_of
from napari_gpu_denoise.files.zarr.places import HEADS, Address, is_zarr, zarr_package
from napari_gpu_denoise.image.axes import index_parts

_LARGE_CHUNK = 1 << 28  # bytes from which on there must be memory for a chunk

# Chunks up to which any number may be missing, of which zarr fills 5000 in a second; of more at
# least one of so many must be stored.
_MISSING, _ONE_OF = 1 << 18, 500
_NOT_STORED = (1 << 64) - 1  # place and length of a chunk that a shard lacks
_LISTED = 1 << 16  # chunks up to which those at an address are listed, a thousand by each request


def open_image(
    path: Path | Address, held: contextlib.ExitStack, companions_anywhere: bool = False
) -> ImageFile:
    """Open an image of OME-Zarr, to read it part by part.

    Links that lead out of its folder are followed with `companions_anywhere` only.
    """
    zarr_package()
    if not is_zarr(path):
        raise FileError(f"{path} is not there, or holds no zarr: check the name.")
    with input_checks.reading(path, "damaged"):
        picture = _picture(path, None if companions_anywhere else os.path.realpath(path))
    for level in picture.metadata["levels"]:
        held.callback(level.close)
    return picture


def _picture(path: Path | Address, within: str | None) -> ImageFile:
    # It needs zarr.
    from napari_gpu_denoise.files.zarr.arrays import open_arrays

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
            input_checks.check_memory(2 * held, path)
    notes += check_stored(finest, place / found.paths[0], path, within)
    notes += beside(place, found.paths)
    notes += [BOOLEAN] * (finest.dtype.kind == "b")
    if place != path:  # other images are said
        notes += beside(path, [*map(str, range(1000))])
    if (several := len(ome_of(attributes)[1]["multiscales"])) > 1:
        notes.append(f"The metadata describe {several} images: the first was used.")
    pixels = [ZarrPixels(read, path) for read, _ in opened]
    metadata = {
        "attributes": attributes,
        "arrays": levels,
        "levels": pixels[1:],
        "format": node.form,
    }
    kept = (path, (path,), tuple(notes), found.history, found.pixel_metadata)
    return ImageFile(pixels[0], found.axes, "zarr", metadata, *kept)


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
    numbered = sum(each.name.isdigit() for each in path.iterdir())
    if numbered > 1:
        notes.append(f"The folder holds {numbered} images: the first was used.")
    if others := sorted({*node.attributes, *ome} - {"bioformats2raw.layout", "ome", "version"}):
        notes.append(f"Attributes of {path} are not part of the result: {', '.join(others)}.")
    return path / "0", first


class ZarrPixels(FileBlocks):
    """The pixels of an array of zarr; indexing reads only the chunks required.

    NumPy's basic indexing, by whole numbers, slices and ``...``, gives arrays in memory; so does
    ``numpy.asarray`` for the whole. Several threads may read. `chunks` is what is best read and
    written at once: shards, if there are.
    """

    def __init__(self, array: Any, path: Path) -> None:
        stored = np.dtype(array.dtype).newbyteorder("=")
        number = np.dtype(np.uint8) if stored.kind == "b" else stored  # which filters take
        super().__init__(path, array.shape, number, 0)
        self._array = array
        self.chunks = tuple(array.shards or array.chunks)

    def __getitem__(self, index: Any) -> Any:
        # It needs zarr.
        from napari_gpu_denoise.files.zarr import chunks

        parts = index_parts(index, self.shape)
        if self._kept is None:
            raise input_checks.closed(self._path)
        with input_checks.reading(self._path, "damaged"):
            pixels = chunks.read(self._array, parts)
        return pixels.astype(self.dtype, copy=False)[()]


def check_stored(
    array: Any, place: Path | Address, path: Path | Address, within: str | None
) -> list[str]:
    """Return notes of what is missing; `FileError` if nearly all of a huge image is.

    Files are listed, not the chunks that the metadata declare, which may be any number.
    """
    unit, kind = array.shards or array.chunks, "shards" if array.shards else "chunks"
    grid = [-(-n // u) for n, u in zip(array.shape, unit, strict=True)]
    total, read_as = math.prod(grid), f"read as {array.fill_value}"
    listed = (
        _at_address(place, total)
        if isinstance(place, Address)
        else _in_folder(place, within, len(grid))
    )
    files = dict(listed)
    # Of shards that are turned, or in shards, the chunks cannot be counted, nor at an address.
    divided = str(array.metadata.to_dict().get("codecs")).count("sharding_indexed")
    counted = array.shards and divided == 1 and not isinstance(place, Address)
    notes = [f"Chunks that are missing inside of shards, if any, are {read_as}."]
    notes *= bool(divided and not counted)
    if isinstance(place, Address) and not any(name in files for name in HEADS):
        note = f"Of {total} {kind} those that are not at the address, if any, are {read_as}."
        return [note, *notes]
    there = []
    for name, size in files.items():
        at = tuple(map(int, re.findall(r"\d+", name)))
        inside = len(at) == len(grid) and all(i < n for i, n in zip(at, grid, strict=True))
        if inside and array.metadata.encode_chunk_key(at) == name:
            there.append((name, at, size))
    stored, enough = 0, input_checks.enough_stored(array.nbytes)
    for *_, size in there:
        if stored >= enough:
            break
        stored += size()
    input_checks.check_declared(array.nbytes, stored, path, "zarr")
    if total > _MISSING and total > _ONE_OF * len(there):
        raise FileError(
            f"{path} declares {total} {kind} but holds {len(there)}: it is damaged or blank. If it "
            "is correct, read it with zarr and pass the array."
        )
    if missing := total - len(there):
        notes.append(f"{missing} of {total} {kind} are not in the folder and were {read_as}.")
    if counted and (missing := _missing(array, there)):
        notes.append(f"{missing} chunks inside of shards are missing and were {read_as}.")
    return notes


def _missing(array: Any, there: Iterable[tuple[str, tuple[int, ...], Callable[[], int]]]) -> int:
    """Return how many chunks the shards lack; ValueError for an index that cannot be true."""
    # It needs zarr.
    from zarr.abc.store import RangeByteRequest

    codec, missing = array.metadata.codecs[0], 0
    sides = list(zip(array.shape, array.shards, array.chunks, strict=True))
    shape = [shard // chunk for _, shard, chunk in sides] + [2]
    first, *checksums = codec.index_codecs
    dtype = np.dtype("u8").newbyteorder(_word(first.endian)[0])
    nbytes = 8 * math.prod(shape) + 4 * len(checksums)
    for name, place, size in there:
        if (end := size() - nbytes) < 0:
            raise ValueError(f"a shard has {end + nbytes} bytes, and its index would have {nbytes}")
        at, low = (0, nbytes) if _word(codec.index_location) == "start" else (end, 0)
        part = RangeByteRequest(at, at + nbytes)
        index = array.store.get_sync(f"{array.path}/{name}".lstrip("/"), byte_range=part)
        for each in checksums:
            index = each._decode_sync(index, codec._get_index_chunk_spec(tuple(shape[:-1])))
        index = np.frombuffer(index.as_numpy_array(), dtype).astype("u8").reshape(shape)
        # Chunks that are wholly outside of the array need not be there.
        ends = (-(-(n - i * s) // c) for i, (n, s, c) in zip(place, sides, strict=True))
        inside = index[tuple(map(slice, ends))].reshape(-1, 2)
        held = inside[(inside != _NOT_STORED).any(1)]
        missing += len(inside) - len(held)
        begin, taken = held[np.argsort(held[:, 0])].T
        room = np.append(begin[1:], np.uint64(low + end)) - begin
        if ((begin < low) | (begin > low + end) | (taken > room) | (taken == 0)).any():
            raise ValueError("the index of a shard names places that overlap or are not in it")
    return missing


def _word(setting: Any) -> Any:
    """Return a setting of zarr as a word; up to zarr 3.1 it was an enumeration."""
    return getattr(setting, "value", setting)


def _in_folder(
    place: Path, within: str | None, depth: int
) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the names of all files, and what returns the size of each.

    Links to folders are followed as when chunks are read: `within` a real folder only. Each is
    followed once, as they may lead in circles; chunks lie at most `depth` folders deep.
    """
    followed: set[str] = set()

    def is_walked(folder: str) -> bool:
        if not os.path.islink(folder):
            return True
        real = os.path.realpath(folder)
        new = real not in followed and (within is None or Path(within) in Path(real).parents)
        followed.add(real)
        return new

    for folder, folders, names in os.walk(place, followlinks=True):
        inside = folder[len(os.fspath(place)) :].replace(os.sep, "/").strip("/")
        below = inside.count("/") + 1 if inside else 0
        folders[:] = [
            name for name in folders if below < depth and is_walked(os.path.join(folder, name))
        ]
        for name in names:
            size = partial(os.path.getsize, os.path.join(folder, name))
            yield f"{inside}/{name}" if inside else name, size


def _at_address(place: Address, total: int) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the same at an address; nothing where there are too many, or cannot be listed."""
    if total > _LISTED:
        return
    system, inside = place.system()
    for name, told in system.find(inside, detail=True).items():
        yield name.partition(inside.strip("/"))[2].strip("/"), lambda size=told["size"]: size
