"""Planes of a result in a temporary file: an array, and nothing is left of it."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from files.test_io_planes import INDICES
from files.tiffs import noise
from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files.image_file import PlaneStore


@pytest.fixture(params=["without a name", "with a name"])
def named(request, monkeypatch):
    """Files that have no name are not to be had everywhere."""
    if request.param == "with a name":
        monkeypatch.setattr(tempfile, "_O_TMPFILE_WORKS", False, raising=False)


@pytest.mark.parametrize("axes_of_plane", [0, 1, 2, 3, 4, 7])
def test_store_is_an_array(tmp_path, named, axes_of_plane):
    shape = (4, 3, 5, 6)
    expected = np.zeros(shape, "int16")
    rng = np.random.default_rng(0)
    with PlaneStore(shape, "int16", tmp_path, axes_of_plane=axes_of_plane) as store:
        assert (store.shape, store.dtype, store.ndim) == (shape, np.dtype("int16"), 4)
        assert (store.size, store.nbytes, len(store)) == (360, 720, 4)
        for index in (*rng.permutation(4).tolist(), *INDICES):
            values = rng.integers(-900, 900, expected[index].shape)
            store[index] = values
            expected[index] = values
            np.testing.assert_array_equal(store, expected)
            np.testing.assert_array_equal(store[index], expected[index])
        store[1:3] = 7.75
        expected[1:3] = 7.75
        store[0, ..., 1] = np.arange(5)
        expected[0, ..., 1] = np.arange(5)
        np.testing.assert_array_equal(store, expected)
        with pytest.raises(IndexError):
            store[4] = 0
        with pytest.raises(ValueError, match="broadcast"):
            store[0] = np.zeros((5, 7))
    assert os.listdir(tmp_path) == []


def test_store_of_other_byte_order_and_memory_layout(tmp_path):
    image = noise(3, 20, 30, dtype="uint16")
    with PlaneStore(image.shape, ">u2", tmp_path) as store:
        assert store.dtype.isnative
        store[0] = image[0].astype(">u2")
        store[1:] = image.transpose(0, 2, 1).copy().transpose(0, 2, 1)[1:]
        np.testing.assert_array_equal(store, image)


def test_store_leaves_nothing(tmp_path, named):
    for error in (KeyboardInterrupt, ValueError, None):
        try:
            with PlaneStore((3, 20, 30), "u2", tmp_path) as store:
                store[1] = 5
                if os.name == "posix":
                    assert os.listdir(tmp_path) == []
                if error:
                    raise error
        except (KeyboardInterrupt, ValueError):
            pass
        assert os.listdir(tmp_path) == []
        with pytest.raises(ValueError, match="closed"):
            store[1]


class Full:
    """A file on a disk that gets full."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self.file.write(data[: self.room])
        self.room -= count
        return count

    def readinto(self, buffer) -> int:
        return self.file.readinto(buffer[:100])  # as the system may do


def test_disk_that_gets_full(tmp_path, named, monkeypatch):
    make = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **o: Full(make(**o), room=1500))
    with PlaneStore((3, 20, 30), "u1", tmp_path) as store:
        store[1] = store[2] = 5
        assert (store[1:] == 5).all()  # read in pieces
        with pytest.raises(OutputError, match=r"temporary file .*No space left on device\.$"):
            store[0] = 5
    assert os.listdir(tmp_path) == []


def test_files_that_are_gone(tmp_path):
    with (
        pytest.raises(OutputError, match=r"none cannot be used: No such file or directory\.$"),
        PlaneStore((3, 20, 30), "u2", tmp_path / "none"),
    ):
        pass
    with PlaneStore((3, 20, 30), "u2", tmp_path) as store:
        store._file.truncate(3000)
        with pytest.raises(OutputError, match="shorter than what was written"):
            store[2]


def test_threads_that_set_channels_of_one_plane(tmp_path, monkeypatch):
    image = noise(10, 20, 30, 4)
    write = PlaneStore._write

    def late(self, number, runs, block):
        time.sleep(0.001)  # after it was read
        write(self, number, runs, block)

    monkeypatch.setattr(PlaneStore, "_write", late)
    with PlaneStore(image.shape, image.dtype, tmp_path, axes_of_plane=3) as store:

        def work(channel: int) -> None:
            for t in range(10):
                store[t, ..., channel] = image[t, ..., channel]

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        np.testing.assert_array_equal(store, image)


def test_large_offsets(tmp_path):
    """Beyond 4 GB, in a file of holes."""
    with PlaneStore((5000, 1000, 1000), "u1", tmp_path) as store:
        store[4999, 999] = 3
        store[0] = 1
        assert store[4999, 999, 999] == 3
        assert not store[4998].any()
