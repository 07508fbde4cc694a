"""Print how fast chunks of OME-Zarr are read and written, by zarr alone and by this package.

    python tests/benchmarks/speed_chunks.py

Planes of 1640 x 1640 uint16 in chunks of 820 x 820, noise on a scene, ten planes at a time; the
files are in the system's cache; the fastest of three. Also a level of a pyramid, of half the size
along Y and X.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr
from large_files import blocks
from tables import show

from napari_gpu_denoise.files.zarr import chunks
from napari_gpu_denoise.files.zarr.writing import fill

STORED = {
    "Zstandard": {},
    "Blosc, as new images": {
        "compressors": zarr.codecs.BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle")
    },
    "LZ4": {"compressors": zarr.codecs.BloscCodec(cname="lz4", clevel=5)},
    "uncompressed": {"compressors": None},
    "Zstandard, shards of ten planes": {"shards": (10, 1640, 1640)},
}

_REPEATS = 3


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planes", type=int, default=160, help="a multiple of ten")
    args = parser.parse_args()
    tiles = blocks(820, 820, np.dtype(np.uint16))
    ten = np.stack(
        [np.block([[tiles[k], tiles[k + 1]], [tiles[k + 2], tiles[k + 3]]]) for k in range(10)]
    )
    rows = []
    for name, options in STORED.items():
        with tempfile.TemporaryDirectory(dir=".") as folder:
            rows += _rows(name, Path(folder), ten, args.planes, options)
    show(["", "written, GB/s", "s of a core per GB", "read, GB/s", "s of a core per GB"], rows)


def _rows(name: str, folder: Path, ten: np.ndarray, planes: int, options: dict) -> list[list[str]]:
    regions = [(slice(k, k + 10), slice(None), slice(None)) for k in range(0, planes, 10)]
    gigabytes = ten.nbytes * len(regions) / 1e9
    ways = {
        "zarr": (lambda a, where: a[where], lambda a, where: a.__setitem__(where, ten)),
        "ours": (chunks.read, lambda a, where: chunks.write(a, where, ten)),
    }
    rows = []
    for way, (read, write) in ways.items():
        array = _new(folder / way, (planes, 1640, 1640), options)
        row = [f"{name}: {way}"]
        for work in (write, read):
            each = functools.partial(work, array)
            row += _measured(lambda each=each: list(map(each, regions)), gigabytes)
        rows.append(row)
        assert np.array_equal(read(array, regions[-1]), ten)
    coarser = _new(folder / "coarser", (planes, 820, 820), {})
    level = _measured(lambda: fill(array, coarser, (1, 2, 2)), gigabytes)
    shutil.rmtree(folder / "coarser")
    return [*rows, [f"{name}: a coarser level, of the finer", *level, "", ""]]


def _new(place: Path, shape: tuple[int, ...], options: dict) -> zarr.Array:
    options = {"chunks": (1, 820, 820), "config": {"write_empty_chunks": True}, **options}
    return zarr.create_array(str(place), shape=shape, dtype=np.uint16, **options)


def _measured(work: Callable[[], object], gigabytes: float) -> list[str]:
    taken = []
    for _ in range(_REPEATS):
        begun, used = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - begun, time.process_time() - used))
    seconds, used = map(min, zip(*taken, strict=True))
    return [f"{gigabytes / seconds:.2f}", f"{used / gigabytes:.2f}"]


if __name__ == "__main__":
    main()
