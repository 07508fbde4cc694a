"""Threads for parts of one plane, which NumPy computes without the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from napari_gpu_denoise.image.threads import kept_pool

_MOST = 2  # more gain nothing beside the other threads: between two operations each needs the GIL


def number_of_workers() -> int:
    """Return how many parts are computed at once."""
    return min(_MOST, os.cpu_count() or 1)


def in_threads(function: Callable, parts: Iterable[Any]) -> list:
    """Call a function for each of some parts; return the results in order.

    The function must not call this one: it would wait for threads that wait for it.
    """
    parts = list(parts)
    if len(parts) == 1 or number_of_workers() == 1:
        return list(map(function, parts))
    return list(kept_pool("structure", number_of_workers()).map(function, parts))
