"""New arrays whose memory is made ready in threads."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

from napari_gpu_denoise.image import new_array as pages
from napari_gpu_denoise.image.threads import kept_pool


@pytest.fixture
def small_parts(monkeypatch):
    """Arrays of a few pages are made ready, in several parts and steps."""
    monkeypatch.setattr(pages, "_LEAST_BYTES", 1 << 16)
    monkeypatch.setattr(pages, "_PART_BYTES", 10 * mmap.PAGESIZE)
    monkeypatch.setattr(pages, "_STEP_BYTES", 3 * mmap.PAGESIZE)
    kept_pool.cache_clear()
    yield
    pages._pool().shutdown()
    kept_pool.cache_clear()  # of the threads that were shut down


def first_page(array):
    """Address of the first whole page."""
    return -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE


@pytest.mark.parametrize("size", [70_000, 1_000_001])
def test_whole_pages_of_the_array_are_asked_for_once(small_parts, monkeypatch, size):
    asked = []

    def ask(address, nbytes, advice):
        asked.append((address, address + nbytes))
        return 0

    monkeypatch.setattr(pages, "_madvise", lambda: ask)
    array = pages.new_array((size,), np.dtype(np.uint16))
    pages._pool().shutdown()
    stop = array.ctypes.data + array.nbytes
    edges = sorted(asked)
    assert [first for first, _ in edges[1:]] == [last for _, last in edges[:-1]]
    assert edges[0][0] == first_page(array)
    assert edges[-1][1] == stop // mmap.PAGESIZE * mmap.PAGESIZE


def test_what_has_been_written_stays(small_parts):
    array = pages.new_array((300, 1000), np.dtype(np.float32))
    array[:] = np.arange(1000)
    pages._pool().shutdown()
    pages._populate(array, first_page(array), array.ctypes.data + array.nbytes)
    np.testing.assert_array_equal(array, np.broadcast_to(np.arange(1000), (300, 1000)))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is asked for on Linux only")
def test_memory_is_there_before_it_is_written(small_parts):
    def resident(array):
        first = first_page(array)
        found = (ctypes.c_ubyte * (array.nbytes // mmap.PAGESIZE - 1))()
        ctypes.CDLL(None).mincore(
            ctypes.c_void_p(first), ctypes.c_size_t(len(found) * mmap.PAGESIZE), found
        )
        return np.mean(np.frombuffer(found, np.uint8) & 1)

    # NumPy might reuse memory that is there.
    array = np.frombuffer(mmap.mmap(-1, 1 << 25), np.uint8)
    assert resident(array) < 0.1
    start = first_page(array)
    if pages._populate(array, start, start + (1 << 24)):
        pytest.skip("this system does not know the request")
    assert 0.45 < resident(array) < 0.6
