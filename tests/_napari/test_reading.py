"""Data that are not in memory are read in parts, each once."""

import dask.array as da
import numpy as np
import pytest

from _napari.lazy_data import Sliced, drive
from napari_gpu_denoise._napari import reading
from napari_gpu_denoise.errors import Cancelled

pytestmark = pytest.mark.gui


@pytest.fixture
def stack():
    return np.random.default_rng(0).normal(100, 5, (5, 30, 40)).astype(np.float32)


@pytest.mark.parametrize("chunks", [None, (2, 30, 25), ((3, 2), (30,), (25, 15))])
def test_every_chunk_is_read_once(stack, chunks):
    data = Sliced(stack, chunks)
    stages, image = drive(reading.load(data))
    np.testing.assert_array_equal(image, stack)
    covered = np.zeros(stack.shape, int)
    for index in data.read:
        covered[index] += 1
    assert (covered == 1).all()
    assert len(stages) == len(data.read) == {None: 1, (2, 30, 25): 6}.get(chunks, 4)


def test_large_arrays_without_chunks_are_read_in_slabs(stack, monkeypatch):
    monkeypatch.setattr(reading, "_SLAB", 2 * stack[0].nbytes)
    stages, image = drive(reading.load(Sliced(stack)))
    assert len(stages) == 3
    np.testing.assert_array_equal(image, stack)


def test_numpy_is_taken_as_it_is(stack):
    stages, image = drive(reading.load(stack))
    assert not stages and image is stack


def test_what_is_lazy(stack, tmp_path):
    np.save(tmp_path / "a.npy", stack)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert not reading.is_lazy(stack) and not reading.is_lazy(stack[1:, ::2])
    assert reading.is_lazy(mapped) and reading.is_lazy(np.asarray(mapped)[1:].T)
    assert reading.is_lazy(da.from_array(stack)) and reading.is_lazy(Sliced(stack))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "chunks", [None, (2, 7, 40), ((1, 3, 1), (30,), (25, 15))], ids=["none", "even", "uneven"]
)
def test_frames_come_one_by_one_and_chunks_are_read_once(stack, chunks, axis):
    data = Sliced(stack, chunks)
    frames = list(reading.frames_along(data, axis, lambda: False))
    np.testing.assert_array_equal(np.stack(frames, axis), stack)
    expected = {0: 5, 1: 30, 2: 40}[axis] if chunks is None else len(reading._cuts(data, axis))
    assert len(data.read) == expected


def test_a_chunk_of_many_frames_is_not_held_whole(stack, monkeypatch):
    monkeypatch.setattr(reading, "_HELD", 2 * stack[0].nbytes)
    data = Sliced(stack, (5, 30, 40))
    assert len(list(reading.frames_along(data, 0, lambda: False))) == 5
    assert [index[0] for index in data.read] == [slice(0, 2), slice(2, 4), slice(4, 5)]


def test_reading_stops_at_once(stack):
    stop = []
    data = Sliced(stack)
    frames = reading.frames_along(data, 0, lambda: bool(stop))
    next(frames)
    stop.append(True)
    with pytest.raises(Cancelled):
        next(frames)
    planes = reading.Planes(data, lambda: bool(stop), alpha=False)
    with pytest.raises(Cancelled):
        planes[0, :, :]
    assert len(data.read) == 1


def test_only_the_frames_wanted_are_read(stack):
    data = Sliced(stack, (2, 30, 40))
    stages, image = drive(reading.load_frames(data, 0, range(1, 4)))
    np.testing.assert_array_equal(image, stack[1:4])
    assert [index[0] for index in data.read] == [slice(1, 2), slice(2, 4)]
    assert [(stage.done, stage.total) for stage in stages] == [(0, 3), (1, 3)]


def test_planes_leave_alpha_out():
    data = np.random.default_rng(1).integers(0, 9, (3, 4, 5, 4))
    planes = reading.Planes(data, lambda: False, alpha=True)
    assert planes.shape == (3, 4, 5, 3) and planes.size == 180 and planes.ndim == 4
    np.testing.assert_array_equal(planes[1, :, :, 2], data[1, :, :, 2])
    np.testing.assert_array_equal(planes[1, 2, :, :], data[1, 2, :, :3])
