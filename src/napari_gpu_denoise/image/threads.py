"""Threads that are kept from call to call, by what they are for."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache


@cache
def kept_pool(purpose: str, number: int) -> ThreadPoolExecutor:
    """Return the threads for a purpose, so many; they begin when there is work."""
    return ThreadPoolExecutor(number, thread_name_prefix=f"gpu-denoise-{purpose}")


if hasattr(os, "register_at_fork"):
    # The threads of a pool are not in the child.
    os.register_at_fork(after_in_child=kept_pool.cache_clear)
