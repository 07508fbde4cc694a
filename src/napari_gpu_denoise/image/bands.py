"""Process large host arrays in several threads: one thread cannot saturate the memory bus."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from napari_gpu_denoise.image.threads import kept_pool

_LEAST_BYTES = 1 << 21
_MOST_THREADS = 8


@cache
def _threads() -> int:
    return min(_MOST_THREADS, os.cpu_count() or 1)


def _pool() -> ThreadPoolExecutor:
    return kept_pool("copy", _threads())


def in_bands(function: Callable[..., Any], *arrays: np.ndarray) -> list:
    """Call a function on matching bands of arrays of one shape; return the results in order.

    Bands run in parallel threads, this one among them, since NumPy releases the GIL while it
    copies. Small arrays are passed whole, in this thread.
    """
    shape = arrays[0].shape
    threads = _threads()
    if arrays[0].nbytes < _LEAST_BYTES or threads == 1 or len(shape) < 2:
        return [function(*arrays)]
    axis = int(np.argmax(shape[:-1]))
    cuts = [shape[axis] * k // threads for k in range(threads + 1)]
    bands = [
        tuple(array[(slice(None),) * axis + (slice(start, stop),)] for array in arrays)
        for start, stop in itertools.pairwise(cuts)
        if stop > start
    ]
    others = [_pool().submit(function, *band) for band in bands[1:]]
    try:
        first = function(*bands[0])
    finally:
        for other in others:
            other.exception()  # waits: they use the arrays of the caller
    return [first, *(other.result() for other in others)]


def begin_each(function: Callable[..., Any], items: Sequence[Any], nbytes: int) -> Iterator[Any]:
    """Begin to call a function on items in parallel threads; return the results in order.

    `nbytes` is how much is read for each. Where that is little, items are passed in this thread,
    when their results are asked for. The function must not call `in_bands`.
    """
    if nbytes < _LEAST_BYTES or len(items) < 2 or _threads() == 1:
        return map(function, items)
    return _pool().map(function, items)
