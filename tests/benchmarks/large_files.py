"""Files that are large for whoever reads them, and small on disk: their blocks repeat."""

from __future__ import annotations

import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

SIGMA = 8.0
_BLOCKS = 16  # that differ; neighbours in each direction do
_SIZES = {3: 2, 4: 4, 16: 8}  # bytes of the types of TIFF: short, long, long8


def blocks(ny: int, nx: int, dtype: np.dtype) -> list[np.ndarray]:
    """Return noisy blocks of one scene, which continues from each to each."""
    y, x = np.mgrid[:ny, :nx]
    waves = np.sin(2 * math.pi * 3 * x / nx) * np.cos(2 * math.pi * 2 * y / ny)
    steps = ((8 * x // nx + 8 * y // ny) % 2) * 30.0
    rng = np.random.default_rng(3)
    scene = 110 + 40 * waves + steps
    return [(scene + rng.normal(0, SIGMA, (ny, nx))).astype(dtype) for _ in range(_BLOCKS)]


def _number(*place: int) -> int:
    """Return the number of a block: no neighbour along any axis has the same."""
    return sum((2 * k + 1) * at for k, at in enumerate(place)) % _BLOCKS


def write_zarr(
    path: Path, shape: tuple[int, ...], axes: str, side: int, compressors: Any = "auto"
) -> Path:
    """Write a uint16 OME-Zarr of chunks of `side` x `side` pixels; equal chunks are one file."""
    import zarr

    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    chunks = (*(1,) * (len(shape) - 2), side, side)
    names = [axis.lower() for axis in axes]
    array = group.create_array(
        "0",
        shape=shape,
        chunks=chunks,
        dtype=np.uint16,
        dimension_names=names,
        compressors=compressors,
    )
    made: dict[int, Path] = {}
    tiles = blocks(side, side, np.dtype(np.uint16))
    for place in np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks, strict=True))):
        number = _number(*place)
        file = path / "0" / "c" / Path(*map(str, place))
        if number in made:
            file.parent.mkdir(parents=True, exist_ok=True)
            os.link(made[number], file)
        else:
            where = tuple(slice(p * c, p * c + c) for p, c in zip(place, chunks, strict=True))
            array[where] = tiles[number].reshape(chunks)
            made[number] = file
    kinds = {"T": "time", "C": "channel"}
    named = [
        {"name": a.lower(), "type": kinds.get(a, "space")}
        | ({} if a in kinds else {"unit": "micrometer"})
        for a in axes
    ]
    scale = [{"type": "scale", "scale": [1.0 if a in kinds else 0.2 for a in axes]}]
    image = {"axes": named, "datasets": [{"path": "0", "coordinateTransformations": scale}]}
    group.attrs.update({"ome": {"version": "0.5", "multiscales": [image]}})
    return path


def write_tiff(path: Path, side: int, layout: str = "tiles", *, packed: bool = False) -> Path:
    """Write a BigTIFF of one plane of `side` x `side` uint8; equal blocks are stored once.

    `layout` is ``"tiles"`` of 512 x 512 or ``"strips"`` of 16 rows; `packed` ones are of deflate.
    """
    ny, nx = (512, 512) if layout == "tiles" else (16, side)
    across = -(-side // nx)
    count = across * -(-side // ny)
    tile = blocks(512, 512, np.dtype(np.uint8))
    stored = []
    for number in range(_BLOCKS):
        block = tile[number]
        if layout == "strips":
            block = np.tile(block[number * 32 % 512 :][:16], (1, -(-side // 512)))[:, :side]
        content = np.ascontiguousarray(block).tobytes()
        stored.append(zlib.compress(content, 1) if packed else content)
    with open(path, "wb") as file:
        file.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0))
        places = []
        for content in stored:
            places.append(file.tell())
            file.write(content)
        numbers = [_number(k // across, k % across) for k in range(count)]
        lengths = [len(stored[n]) for n in numbers]
        if layout == "strips" and side % 16:
            lengths[-1] = lengths[-1] if packed else side * (side % 16)
        tables = []
        for values in ([places[n] for n in numbers], lengths):
            tables.append(file.tell())
            file.write(np.asarray(values, "<u8").tobytes())
        tags = [(256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8)]
        tags += [(259, 3, 1, 8 if packed else 1), (262, 3, 1, 1), (277, 3, 1, 1)]
        if layout == "tiles":
            tags += [(322, 4, 1, nx), (323, 4, 1, ny)]
            tags += [(324, 16, count, tables[0]), (325, 16, count, tables[1])]
        else:
            tags += [(273, 16, count, tables[0]), (278, 4, 1, ny), (279, 16, count, tables[1])]
        head = file.tell()
        file.write(struct.pack("<Q", len(tags)))
        for code, kind, number, value in sorted(tags):
            file.write(struct.pack("<HHQQ", code, kind, number, value))
        file.write(struct.pack("<Q", 0))
        file.seek(8)
        file.write(struct.pack("<Q", head))
    return path
