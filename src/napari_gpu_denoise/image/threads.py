"""Threads that are kept, work of NumPy shared among them, and pages of new arrays."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np

quiet = partial(np.errstate, over="ignore", invalid="ignore")  # a decorator, too
_quiet = partial(np.seterr, over="ignore", invalid="ignore")  # of a thread


# Threads that are kept from call to call, by what they are for.
@cache
def shared_executor(purpose: str, number: int) -> ThreadPoolExecutor:
    """Return the executor kept for a purpose, of so many threads; they begin when there is work."""
    return ThreadPoolExecutor(number, f"gpu-denoise-{purpose}", _quiet)


if hasattr(os, "register_at_fork"):
    # The threads of a pool are not in the child.
    os.register_at_fork(after_in_child=shared_executor.cache_clear)


@contextmanager
def mapping(threads: int) -> Iterator[Callable]:
    """Open a function like `map` that uses so many threads."""
    if threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads, initializer=_quiet) as pool:
        yield pool.map


def ahead(
    function: Callable[[Any], Any], items: Iterable[Any], threads: int
) -> Generator[Any, None, None]:
    """Yield the results of a function in order, so many of them computed in advance."""
    with ThreadPoolExecutor(threads, initializer=_quiet) as pool:
        coming: deque[Future] = deque()
        for item in items:
            coming.append(pool.submit(function, item))
            if len(coming) > threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def at_once(function: Callable[..., Any], *given: Any) -> Future:
    """Call a function in this thread, as `submit` of an executor has it called in another."""
    done: Future = Future()
    done.set_result(function(*given))
    return done


# Process large host arrays in several threads: one thread cannot saturate the memory bus.
_WORTHWHILE = 1 << 23  # bytes; with less the threads wait for each other (H200)
_MOST_THREADS = 8


@cache
def _threads() -> int:
    return min(_MOST_THREADS, os.cpu_count() or 1)


def in_bands(function: Callable[..., Any], *arrays: np.ndarray) -> list:
    """Call a function on matching bands of arrays of one shape; return the results in order.

    Bands run in parallel threads, this one among them, since NumPy releases the GIL while it
    copies. Small arrays are passed whole, in this thread.
    """
    shape = arrays[0].shape
    threads = _threads()
    if arrays[0].nbytes < _WORTHWHILE or threads == 1 or len(shape) < 2:
        return [function(*arrays)]
    axis = int(np.argmax(shape[:-1]))
    cuts = [shape[axis] * k // threads for k in range(threads + 1)]
    bands = [
        tuple(array[(slice(None),) * axis + (slice(start, stop),)] for array in arrays)
        for start, stop in itertools.pairwise(cuts)
        if stop > start
    ]
    others = [shared_executor("copy", _threads()).submit(function, *band) for band in bands[1:]]
    try:
        first = function(*bands[0])
    finally:
        for other in others:
            other.exception()  # waits: they use the arrays of the caller
    return [first, *(other.result() for other in others)]


# New arrays whose memory is made ready before they are written.
_LEAST_BYTES = 1 << 25  # of an array for which it is worth the threads
_PART_BYTES = 1 << 26  # that a thread asks for before it is free for other arrays
_STEP_BYTES = 1 << 21  # asked for at a time: meanwhile, nobody else gets memory from the system
_PAGES = "pages", 2  # threads that ask, for what and how many
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
            stop = min(start + _PART_BYTES, address + array.nbytes)
            shared_executor(*_PAGES).submit(_populate, array, start, stop)
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


# Threads for parts of one plane, which NumPy computes without the GIL.
# More gain nothing beside the other threads: between two operations each needs the GIL.
_MOST_WORKERS = 2


def number_of_workers() -> int:
    """Return the number of parts computed at once."""
    return min(_MOST_WORKERS, os.cpu_count() or 1)


def in_threads(function: Callable, parts: Iterable[Any]) -> list:
    """Call a function for each of some parts; return the results in order.

    The function must not call this one: it would wait for threads that wait for it.
    """
    parts = list(parts)
    if len(parts) == 1 or number_of_workers() == 1:
        return list(map(function, parts))
    return list(shared_executor("structure", number_of_workers()).map(function, parts))
