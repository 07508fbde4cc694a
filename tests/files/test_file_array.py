"""Pixels of a result that is not complete: an array in a file, for which the disk has room."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from files.test_io_planes import INDICES
from files.tiffs import noise
from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files.resuming import FileArray, ResumeLedger


@pytest.fixture
def file(tmp_path):
    with open(tmp_path / "pixels", "w+b") as opened:
        yield opened


def test_it_is_an_array_that_stays(file):
    shape = (4, 3, 5, 6)
    expected = np.zeros(shape, "int16")
    rng = np.random.default_rng(0)
    made = FileArray(file, shape, "int16")
    assert (made.shape, made.dtype, made.ndim, len(made)) == (shape, np.dtype("int16"), 4, 4)
    for index in (*rng.permutation(4).tolist(), *INDICES):
        values = rng.integers(-900, 900, expected[index].shape)
        made[index] = values
        expected[index] = values
        np.testing.assert_array_equal(made, expected)
        np.testing.assert_array_equal(made[index], expected[index])
        assert type(made[index]) is type(expected[index])
    made[1:3] = 7.75
    expected[1:3] = 7.75
    with pytest.raises(IndexError):
        made[4] = 0
    with pytest.raises(ValueError, match="broadcast"):
        made[0] = np.zeros((5, 7))
    with open(file.name, "r+b") as again:
        np.testing.assert_array_equal(FileArray(again, shape, "int16"), expected)


def test_of_other_byte_order_and_memory_layout(file):
    image = noise(3, 20, 30, dtype="uint16")
    made = FileArray(file, image.shape, ">u2")
    assert made.dtype.isnative
    made[0] = image[0].astype(">u2")
    made[1:] = image.transpose(0, 2, 1).copy().transpose(0, 2, 1)[1:]
    np.testing.assert_array_equal(made, image)


def test_room_is_kept_where_the_system_cannot_be_asked_for_it(file, monkeypatch):
    """As on macOS: without room, a disk that gets full would end the process."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    file.write(b"kept")
    made = FileArray(file, (3, 700, 700), "u2")
    assert os.stat(file.name).st_blocks * 512 >= made.mapped().nbytes  # no holes
    assert made.mapped().tobytes()[:8] == b"kept" + bytes(4)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="room is not asked for here")
def test_disk_that_gets_full(tmp_path, monkeypatch):
    """It is full before any work, not when a part is written."""

    def full(file, start, length):
        raise OSError(errno.ENOSPC, "No space left on device")

    with ResumeLedger(tmp_path / "out.tif", {}, False) as ledger:
        ledger.array("pixels", (3, 20, 30), "u2")
        assert os.stat(ledger.folder / "pixels").st_blocks * 512 >= 3600  # no holes
        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OutputError, match=r"the disk is full.*No space left on device\.$"):
            ledger.array("more", (3, 20, 30), "u2")
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_mapped_is_named(file, monkeypatch):
    """As where the address space of a process is limited."""
    made = FileArray(file, (3, 20, 30), "u2")

    def refused(*given, **options):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(np, "memmap", refused)
    with pytest.raises(OutputError, match=r"pixels cannot be written: Cannot allocate memory\.$"):
        made[0] = 1


def test_threads_that_set_channels_of_one_plane(file):
    image = noise(10, 20, 30, 4)
    made = FileArray(file, image.shape, image.dtype)

    def work(channel: int) -> None:
        for t in range(10):
            made[t, ..., channel] = image[t, ..., channel]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    np.testing.assert_array_equal(made, image)
