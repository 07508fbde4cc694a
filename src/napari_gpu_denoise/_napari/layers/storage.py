"""Storage of a result: memory, or a temporary file if it is too large."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import sys
import tempfile

import numpy as np

from napari_gpu_denoise.errors import OutputError

LARGEST_IN_MEMORY = 1 << 30  # bytes


def allocate(shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, str | None]:
    """Return an array for a result, and the folder of its file; None for memory.

    The file has no name, or loses it, so that it goes with the last array that shows a part of it,
    and with the process, however that ends. Raises `OutputError` if there is no room for it.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < LARGEST_IN_MEMORY:
        return np.empty(shape, dtype), None
    folder = _folder()
    if shutil.disk_usage(folder).free < size:
        raise _no_room(size, folder)
    with tempfile.TemporaryFile(prefix="gpu-denoise-", dir=folder) as file:
        try:
            # Reserved, not only promised: writing to a mapped file on a full disk ends the program.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            raise _no_room(size, folder) from error
        mapping = mmap.mmap(file.fileno(), size)
    return np.ndarray(shape, dtype, buffer=mapping), folder


def _folder() -> str:
    """Return the folder of temporary files; on Linux one that is never held in memory."""
    chosen = any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP"))
    if sys.platform == "linux" and not chosen and os.access("/var/tmp", os.W_OK):
        return "/var/tmp"
    return tempfile.gettempdir()


def _no_room(size: int, folder: str) -> OutputError:
    free = gigabytes(shutil.disk_usage(folder).free)
    return OutputError(
        f"The result takes {gigabytes(size)}, but {folder} has only {free} free: free some there, "
        "or start napari with TMPDIR set to a folder on a larger disk."
    )


def gigabytes(size: int) -> str:
    """Return a number of bytes in GB, as text."""
    return f"{size / 1e9:.2g} GB" if size < 9.5e9 else f"{size / 1e9:.0f} GB"
