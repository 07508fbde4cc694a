"""Threads that are kept, and work of NumPy shared among them."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Concatenate

import numpy as np

quiet = partial(np.errstate, over="ignore", invalid="ignore")  # a decorator, too
_quiet = partial(np.seterr, over="ignore", invalid="ignore")  # of a thread


# Threads that are kept from call to call, by what they are for.
@cache
def shared_executor(purpose: str, number: int) -> ThreadPoolExecutor:
    """Return the executor of a purpose and number of threads; they begin when there is work."""
    return ThreadPoolExecutor(number, f"gpu-denoise-{purpose}", _quiet)


if hasattr(os, "register_at_fork"):
    # The threads of a pool are not in the child.
    os.register_at_fork(after_in_child=shared_executor.cache_clear)


@contextmanager
def mapping(threads: int) -> Generator[Callable[..., Iterator[Any]]]:
    """Open a function like `map` that uses a number of threads."""
    if threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads, initializer=_quiet) as pool:
        yield pool.map


def ahead(
    function: Callable[[Any], Any], items: Iterable[Any], threads: int
) -> Generator[Any, None, None]:
    """Yield the results of a function in order, a number of them computed in advance."""
    with ThreadPoolExecutor(threads, initializer=_quiet) as pool:
        coming: deque[Future[Any]] = deque()
        for item in items:
            coming.append(pool.submit(function, item))
            if len(coming) > threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def at_once(function: Callable[..., Any], *given: Any) -> Future[Any]:
    """Call a function in this thread, as `submit` of an executor has it called in another."""
    done: Future[Any] = Future()
    done.set_result(function(*given))
    return done


# Process large host arrays in several threads: one thread cannot saturate the memory bus.
_WORTHWHILE = 1 << 23  # bytes; with less the threads wait for each other (H200)
_MOST_THREADS = 8


@cache
def copy_threads() -> int:
    """Return the number of threads that saturate the memory bus."""
    return min(_MOST_THREADS, os.cpu_count() or 1)


def in_bands(
    function: Callable[Concatenate[np.ndarray, ...], Any], *arrays: np.ndarray
) -> list[Any]:
    """Call a function on matching bands of arrays of one shape; return the results in order.

    Bands run in parallel threads, this one among them, since NumPy releases the GIL while it
    copies. Small arrays are passed whole, in this thread.
    """
    shape = arrays[0].shape
    threads = copy_threads()
    if arrays[0].nbytes < _WORTHWHILE or threads == 1 or len(shape) < 2:
        return [function(*arrays)]
    axis = int(np.argmax(shape[:-1]))
    cuts = [shape[axis] * k // threads for k in range(threads + 1)]
    bands = [
        tuple(array[(slice(None),) * axis + (slice(start, stop),)] for array in arrays)
        for start, stop in itertools.pairwise(cuts)
        if stop > start
    ]
    others = [shared_executor("copy", copy_threads()).submit(function, *band) for band in bands[1:]]
    try:
        first = function(*bands[0])
    finally:
        for other in others:
            other.exception()  # waits: they use the arrays of the caller
    return [first, *(other.result() for other in others)]


def in_threads(function: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
    """Call a function for each of some parts of a plane; return the results in order.

    The function must not call this one: it would wait for threads that wait for it.
    """
    # More gain nothing beside other threads: between two operations each needs the GIL.
    return list(shared_executor("structure", 2).map(function, parts))
