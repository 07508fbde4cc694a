"""Files that are large for whoever reads them; blocks repeat, and those of Zarr are stored once."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import tables  # noqa: F401  (puts the folder of the tests on the path)

from zarr_stores import describe

SIGMA = 8.0
_BLOCKS = 16  # that differ; neighbours in each direction do


def blocks(ny: int, nx: int, dtype: str) -> list[np.ndarray]:
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


def write_zarr(path: Path, shape: tuple[int, ...], axes: str, side: int, **options) -> Path:
    """Write a uint16 OME-Zarr of chunks of `side` x `side` pixels; equal chunks are one file."""
    import zarr

    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    chunks = (*(1,) * (len(shape) - 2), side, side)
    array = group.create_array("0", shape=shape, chunks=chunks, dtype="uint16", **options)
    made: dict[int, Path] = {}
    tiles = blocks(side, side, "uint16")
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
    named = [{"name": axis.lower(), "type": kinds.get(axis, "space")} for axis in axes]
    scale = [{"type": "scale", "scale": [1.0 if axis in kinds else 0.2 for axis in axes]}]
    datasets = [{"path": "0", "coordinateTransformations": scale}]
    return describe(path, multiscales=[{"axes": named, "datasets": datasets}])


def write_tiff(path: Path, side: int, tile: int = 512) -> Path:
    """Write a BigTIFF of one plane of `side` x `side` uint8 in tiles."""
    import tifffile

    tiles, across = blocks(tile, tile, "uint8"), -(-side // tile)
    pixels = (tiles[_number(*place)] for place in np.ndindex(across, across))
    about = {"shape": (side, side), "dtype": "uint8", "tile": (tile, tile)}
    tifffile.imwrite(path, pixels, bigtiff=True, photometric="minisblack", **about)
    return path
