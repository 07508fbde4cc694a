"""New arrays whose memory is made ready before they are written."""

from __future__ import annotations

import ctypes
import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from napari_gpu_denoise.image.threads import kept_pool

_LEAST_BYTES = 1 << 25  # of an array for which it is worth the threads
_PART_BYTES = 1 << 26  # that a thread asks for before it is free for other arrays
_STEP_BYTES = 1 << 21  # asked for at a time: meanwhile, nobody else gets memory from the system
_THREADS = 2
_MADV_POPULATE_WRITE = 23  # Linux 5.14 and later


def new_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array with undefined contents, for results that come after other work.

    The system provides the pages of a new array when they are first written, which takes about as
    long as writing them. Where it can be asked to (Linux), threads let it do so beforehand. It is
    only a hint: pages that have been written keep their contents.
    """
    array = np.empty(shape, dtype)
    if array.nbytes >= _LEAST_BYTES and _madvise() is not None:
        address = array.ctypes.data
        first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
        for start in range(first, address + array.nbytes, _PART_BYTES):
            _pool().submit(
                _populate, array, start, min(start + _PART_BYTES, address + array.nbytes)
            )
    return array


def _populate(array: np.ndarray, start: int, stop: int) -> int:
    """Ask for the pages between two addresses of an array, which is kept until they are there.

    Return 0, or another number if the system does not know the request.
    """
    ask = _madvise()
    for at in range(start, stop - mmap.PAGESIZE + 1, _STEP_BYTES):
        nbytes = min(stop - at, _STEP_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
        # Without the GIL, as all calls by ctypes.
        if failed := ask(at, nbytes, _MADV_POPULATE_WRITE):
            return failed
    return 0


@cache
def _madvise() -> Any:
    """Return the system's function; None where there is none."""
    if sys.platform != "linux":
        return None
    found = getattr(ctypes.CDLL(None), "madvise", None)
    if found is not None:
        found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


def _pool() -> ThreadPoolExecutor:
    return kept_pool("pages", _THREADS)
