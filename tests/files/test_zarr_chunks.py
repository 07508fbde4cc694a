"""Chunks of zarr read and written by threads: the pixels, the bytes stored, and what fails."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

from napari_gpu_denoise.files.zarr import chunks
from napari_gpu_denoise.files.zarr.writing import block_means

V2 = {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}}
STORED = {
    "zstd": {},
    "blosc": {"compressors": zarr.codecs.BloscCodec(cname="lz4")},
    "a checksum": {"compressors": (zarr.codecs.ZstdCodec(level=1), zarr.codecs.Crc32cCodec())},
    "uncompressed": {"compressors": None},
    "big-endian": {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "filled": {"fill_value": 7},
    "transposed": {"filters": zarr.codecs.TransposeCodec(order=(2, 0, 1))},
    "shards": {"shards": (2, 10, 16)},
    "version 2": V2,
    "version 2, by columns": V2 | {"order": "F"},
    "version 2, big-endian": V2 | {"dtype": ">u2"},
    "version 2, uncompressed": V2 | {"compressors": None},
}
SHAPE = (3, 21, 30)
REGIONS = {
    "all": (slice(None),) * 3,
    "whole chunks": (slice(1, 2), slice(5, 15), slice(8, 24)),
    "parts of chunks": (slice(0, 3), slice(3, 17), slice(7, 30)),
    "a plane": (1, slice(None), slice(2, 30)),
    "steps": (slice(None), slice(0, 21, 2), slice(None)),
    "nothing": (slice(None), slice(4, 4), slice(None)),
}
PIXELS = np.random.default_rng(2).integers(0, 1000, SHAPE).astype(np.uint16)


def new(folder: Path, stored: str):
    """Make an array that holds only fill values."""
    options = {"dtype": np.uint16, "chunks": (1, 5, 8), "config": {"write_empty_chunks": True}}
    return zarr.create_array(f"{folder}/0", shape=SHAPE, **options | STORED[stored])


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# What has steps is left to zarr, however it is stored.
WRITTEN = [("zstd", "steps"), *itertools.product(STORED, ["all", "parts of chunks"])]


@pytest.mark.parametrize(("stored", "region"), WRITTEN)
def test_regions_are_read_and_stored_as_by_zarr(tmp_path, stored, region):
    index = REGIONS[region]
    ours, theirs = new(tmp_path / "ours", stored), new(tmp_path / "theirs", stored)
    for array in (ours, theirs):
        array[:2, :12] = PIXELS[:2, :12]  # the rest is not stored, or holds fill values
    chunks.write(ours, index, PIXELS[index][...] + 1)
    theirs[index] = PIXELS[index] + 1
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    whole = theirs[...]
    for other in REGIONS.values():
        read = chunks.read(ours, other)
        assert np.array_equal(read, whole[other])
        assert read.dtype == np.uint16


def test_a_damaged_chunk_that_is_written_as_a_whole_is_not_read(tmp_path):
    array = new(tmp_path, "zstd")
    array[...] = 1
    for chunk in ("c/0/0/0", "c/1/4/3"):  # of which the second ends behind the array
        (tmp_path / "0" / chunk).write_bytes(b"damaged")
    chunks.write(array, REGIONS["all"], PIXELS)
    assert np.array_equal(chunks.read(array, REGIONS["all"]), PIXELS)
    (tmp_path / "0/c/1/4/3").write_bytes(b"damaged")
    with pytest.raises(RuntimeError):
        chunks.write(array, (1, 20, slice(24, 29)), PIXELS[1, 20, 24:29])


def test_all_threads_have_ended_when_a_chunk_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "_THREADS", 4)
    array, begun, ended = new(tmp_path, "zstd"), [], []
    failed = threading.Event()

    def set_sync(store, key, value):
        begun.append(key)
        if key.endswith("c/0/0/0"):
            failed.set()
            raise OSError(28, "No space left on device")
        failed.wait(60)
        ended.append(key)

    monkeypatch.setattr(type(array.store), "set_sync", set_sync)
    with pytest.raises(OSError, match="No space"):
        chunks.write(array, REGIONS["all"], PIXELS)
    assert len(ended) == len(begun) - 1


@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("factor", [(1, 2, 2), (2, 2, 2), (3, 2, 2), (2, 3, 1)])
def test_means_of_blocks(dtype, factor):
    pixels = (PIXELS[:, :7, :13] / 8).astype(dtype)
    made = block_means(pixels, factor)
    for place in np.ndindex(made.shape):
        block = pixels[tuple(slice(k * f, (k + 1) * f) for k, f in zip(place, factor, strict=True))]
        exact = np.asarray(block, np.float64).mean()
        assert abs(made[place] - exact) <= (0.5 if pixels.dtype.kind in "iu" else 1e-3 * exact)
    assert made.dtype == dtype
