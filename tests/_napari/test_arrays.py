"""Lazy layers are read part by part; results too large for memory are kept in files."""

import gc
import os
import shutil
import sys
import weakref

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from _napari.inputs import Sliced, drive
from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise.errors import Cancelled, DeviceMemoryError, OutputError
from napari_gpu_denoise.run.progress import Progress


def test_what_is_lazy_and_how_it_is_loaded(stack, tmp_path):
    np.save(tmp_path / "a.npy", stack)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert not arrays.is_lazy(stack) and not arrays.is_lazy(stack[1:, ::2])
    assert arrays.is_lazy(mapped) and arrays.is_lazy(np.asarray(mapped)[1:].T)
    assert arrays.is_lazy(da.from_array(stack)) and arrays.is_lazy(Sliced(stack))
    stages, image = drive(arrays.load, stack)
    assert not stages and image is stack
    # Without an axis of time, large ones are never read whole.
    large = da.zeros((1 << 9, 1 << 9, 1 << 9), dtype=np.uint8)
    found = [arrays.is_read_by_parts(each, None) for each in (large, large[1:], np.zeros(5))]
    assert found == [True, False, False] and arrays.is_read_by_parts(Sliced(stack), 0)
    # Large arrays without chunks are read in slabs.
    large = np.zeros((5, 2000, 2000), np.uint16)
    stages, image = drive(arrays.load, Sliced(large))
    assert len(stages) == 3 and image.shape == large.shape


def read_along(data, axis):
    """Each frame along an axis, as a run reads them."""
    array = arrays.LazyArray(data, time=axis)
    return [array[arrays.at(axis, number)] for number in range(data.shape[axis])]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "chunks", [None, (2, 7, 40), ((1, 3, 1), (30,), (25, 15))], ids=["none", "even", "uneven"]
)
def test_frames_come_one_by_one_and_chunks_are_read_once(stack, chunks, axis):
    data = Sliced(stack, chunks)
    assert_array_equal(np.stack(read_along(data, axis), axis), stack)
    expected = stack.shape[axis] if chunks is None else len(arrays.cuts(data, axis))
    assert len(data.read) == expected


def test_a_chunk_of_many_frames_is_not_held_whole():
    large = np.zeros((5, 4000, 4000), np.uint16)
    data = Sliced(large, large.shape)
    assert len(read_along(data, 0)) == 5
    assert [index[0] for index in data.read] == [slice(0, 2), slice(2, 4), slice(4, 5)]


def test_reading_stops_at_once(stack):
    data, stop = Sliced(stack), []
    array = arrays.LazyArray(data, Progress(stopped=lambda: bool(stop)), time=0)
    _ = array[0]
    stop.append(True)
    with pytest.raises(Cancelled):
        _ = array[1]
    assert len(data.read) == 1


def test_only_what_fits_into_memory_is_read_whole(stack, small_memory):
    data = Sliced(stack)
    with pytest.raises(DeviceMemoryError, match="fewer frames"):
        np.asarray(arrays.LazyArray(data, time=0))
    assert not data.read


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
