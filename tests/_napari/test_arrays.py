"""Lazy layers are read part by part; results too large for memory are kept in files."""

import gc
import os
import shutil
import sys
import weakref

import dask.array as da
import numpy as np
import pytest

from _napari.inputs import Sliced, drive
from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise.errors import Cancelled, DeviceMemoryError, OutputError

pytestmark = pytest.mark.gui


@pytest.mark.parametrize("chunks", [None, (2, 30, 25), ((3, 2), (30,), (25, 15))])
def test_every_chunk_is_read_once(stack, chunks):
    data = Sliced(stack, chunks)
    stages, image = drive(arrays.load(data))
    np.testing.assert_array_equal(image, stack)
    covered = np.zeros(stack.shape, int)
    for index in data.read:
        covered[index] += 1
    assert (covered == 1).all()
    assert len(stages) == len(data.read) == {None: 1, (2, 30, 25): 6}.get(chunks, 4)


def test_large_arrays_without_chunks_are_read_in_slabs(stack, monkeypatch):
    monkeypatch.setattr(arrays, "_SLAB", 2 * stack[0].nbytes)
    stages, image = drive(arrays.load(Sliced(stack)))
    assert len(stages) == 3
    np.testing.assert_array_equal(image, stack)


def test_numpy_is_taken_as_it_is(stack):
    stages, image = drive(arrays.load(stack))
    assert not stages and image is stack


def test_what_is_lazy(stack, tmp_path):
    np.save(tmp_path / "a.npy", stack)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert not arrays.is_lazy(stack) and not arrays.is_lazy(stack[1:, ::2])
    assert arrays.is_lazy(mapped) and arrays.is_lazy(np.asarray(mapped)[1:].T)
    assert arrays.is_lazy(da.from_array(stack)) and arrays.is_lazy(Sliced(stack))


def read_along(data, axis, stopped=lambda: False):
    """Each frame along an axis, as a run reads them."""
    array = arrays.LazyArray(data, stopped, time=axis)
    for number in range(data.shape[axis]):
        yield array[arrays.at(axis, number)]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "chunks", [None, (2, 7, 40), ((1, 3, 1), (30,), (25, 15))], ids=["none", "even", "uneven"]
)
def test_frames_come_one_by_one_and_chunks_are_read_once(stack, chunks, axis):
    data = Sliced(stack, chunks)
    frames = list(read_along(data, axis))
    np.testing.assert_array_equal(np.stack(frames, axis), stack)
    expected = {0: 5, 1: 30, 2: 40}[axis] if chunks is None else len(arrays.cuts(data, axis))
    assert len(data.read) == expected


def test_a_chunk_of_many_frames_is_not_held_whole(stack, monkeypatch):
    monkeypatch.setattr(arrays, "_HELD", 2 * stack[0].nbytes)
    data = Sliced(stack, (5, 30, 40))
    assert len(list(read_along(data, 0))) == 5
    assert [index[0] for index in data.read] == [slice(0, 2), slice(2, 4), slice(4, 5)]


def test_reading_stops_at_once(stack):
    stop = []
    data = Sliced(stack)
    frames = read_along(data, 0, lambda: bool(stop))
    next(frames)
    stop.append(True)
    with pytest.raises(Cancelled):
        next(frames)
    with pytest.raises(Cancelled):
        arrays.LazyArray(data, lambda: True)[0, :, :]
    assert len(data.read) == 1


def test_alpha_is_left_out():
    data = np.random.default_rng(1).integers(0, 9, (3, 4, 5, 4))
    array = arrays.LazyArray(data, part=(slice(None),) * 3 + (slice(3),), time=0)
    assert array.shape == (3, 4, 5, 3) and array.size == 180 and array.ndim == 4
    np.testing.assert_array_equal(array[1, :, :, 2], data[1, :, :, 2])
    np.testing.assert_array_equal(array[1, 2, :, :], data[1, 2, :, :3])
    np.testing.assert_array_equal(array[1], data[1, ..., :3])
    np.testing.assert_array_equal(np.asarray(array), data[..., :3])


def test_only_what_fits_into_memory_is_read_whole(stack, monkeypatch):
    monkeypatch.setattr(arrays, "LARGEST_IN_MEMORY", stack.nbytes)
    data = Sliced(stack)
    with pytest.raises(DeviceMemoryError, match="fewer frames"):
        np.asarray(arrays.LazyArray(data, time=0))
    assert not data.read


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "LARGEST_IN_MEMORY", 1000)
    monkeypatch.setattr(arrays, "_folder", lambda: str(tmp_path))
    return tmp_path


def test_small_results_stay_in_memory(folder):
    image, place = arrays.allocate((9, 55), np.dtype(np.uint16))
    assert place is None and image.flags.owndata


def test_the_file_goes_with_its_last_array(folder):
    image, place = arrays.allocate((10, 50), np.dtype(np.uint16))
    assert place == str(folder)
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
    assert not list(folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="the file has a name there until it is closed")
def test_nothing_is_left_however_the_program_ends(folder):
    image, _ = arrays.allocate((10, 50), np.dtype(np.uint16))
    assert image.base is not None and not list(folder.iterdir())


def test_a_disk_without_room_is_told_before_the_run(folder, monkeypatch):
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=999_999))
    with pytest.raises(OutputError, match=r"takes 2 GB, but .* only 1 MB free.*TMPDIR"):
        arrays.allocate((1000, 1_000_000), np.dtype(np.uint16))


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="not reserved there")
def test_a_disk_that_fills_up_is_told(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match="free some there"):
        arrays.allocate((10, 50), np.dtype(np.uint16))
    assert not list(folder.iterdir())


def test_the_folder_is_the_one_chosen_by_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert arrays._folder() == str(tmp_path)
