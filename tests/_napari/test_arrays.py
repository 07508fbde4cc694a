"""Lazy layers are read part by part; results too large for memory are kept in files."""

import gc
import os
import shutil
import sys
import weakref

import dask.array as da
import numpy as np
import pytest

from _napari.inputs import Sliced
from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise.errors import Cancelled, OutputError
from napari_gpu_denoise.run.progress import Progress


def test_what_is_lazy_and_how_it_is_read(stack, tmp_path):
    np.save(tmp_path / "a.npy", stack)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert not arrays.is_lazy(stack) and not arrays.is_lazy(stack[1:, ::2])
    assert arrays.is_lazy(mapped) and arrays.is_lazy(np.asarray(mapped)[1:].T)
    assert arrays.is_lazy(da.from_array(stack)) and arrays.is_lazy(Sliced(stack))
    # Without an axis of time, large ones are never read whole.
    large = da.zeros((1 << 9, 1 << 9, 1 << 9), dtype=np.uint8)
    found = [arrays.is_read_by_parts(each, None) for each in (large, large[1:], np.zeros(5))]
    assert found == [True, False, False] and arrays.is_read_by_parts(Sliced(stack), 0)


@pytest.mark.parametrize(
    ("chunks", "time", "told"),
    [
        (None, 0, None),
        ((1, 30, 40), 0, None),  # frames are read one by one
        ((1, 30, 40), None, (1, 30, 40)),
        ((2, 7, 40), 0, (2, 7, 40)),
        (((1, 3, 1), (30,), (25, 15)), 0, (3, 30, 25)),
        ((9, 99, 99), None, (5, 30, 40)),
    ],
)
def test_what_is_best_read_at_once(stack, chunks, time, told):
    array = arrays.LazyArray(Sliced(stack, chunks), time=time)
    assert getattr(array, "chunks", None) == told


def test_reading_stops_at_once(stack):
    data, stop = Sliced(stack), []
    array = arrays.LazyArray(data, Progress(stopped=lambda: bool(stop)), time=0)
    _ = array[0]
    stop.append(True)
    with pytest.raises(Cancelled):
        _ = array[1]
    assert len(data.read) == 1


# --- results --------------------------------------------------------------------------------------


def allocate(*shape):
    return arrays.allocate(shape, np.dtype(np.uint16))


def test_the_file_goes_with_its_last_array(small_memory):
    image, place = allocate(9, 55)  # small ones stay in memory
    assert place is None and image.flags.owndata
    image, place = allocate(10, 50)
    assert place == str(small_memory)
    if sys.platform != "win32":  # the file has a name there until it is closed
        assert not list(small_memory.iterdir())
    image[...] = 7
    assert (image == 7).all() and image.flags.writeable
    mapping = weakref.ref(image.base)
    part = image[3:]
    del image
    gc.collect()
    assert (part == 7).all()
    del part
    gc.collect()
    assert mapping() is None
    assert not list(small_memory.iterdir())


def test_a_disk_without_room_is_told_before_the_run(small_memory, monkeypatch):
    usage = shutil.disk_usage(small_memory)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=999_999))
    with pytest.raises(OutputError, match=r"takes 2 GB, but .* only 1 MB free.*TMPDIR"):
        allocate(1000, 1_000_000)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="not reserved there")
def test_a_disk_that_fills_up_is_told(small_memory, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match="free some there"):
        allocate(10, 50)
    assert not list(small_memory.iterdir())
