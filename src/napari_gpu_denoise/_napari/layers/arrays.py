"""Arrays of layers: those that are not in memory, and results too large for it."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import sys
import tempfile
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.image.axes import index_parts
from napari_gpu_denoise.protocol.settings import size_in_words
from napari_gpu_denoise.run.progress import SILENT, Progress

_LOADED = 1 << 27  # bytes from which on data without an axis of time are read part by part

LARGEST_IN_MEMORY = 1 << 30  # bytes


def is_lazy(data: Any) -> bool:
    """Return whether pixels are read only when indexed: dask, zarr, a mapped file."""
    base = data
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    return isinstance(base, mmap.mmap) or not isinstance(data, np.ndarray)


def is_read_by_parts(data: Any, time: int | None) -> bool:
    """Return whether data are filtered without being in memory: long ones, and all over time."""
    size = math.prod(data.shape) * np.dtype(data.dtype).itemsize
    return is_lazy(data) and (time is not None or size >= _LOADED)


def as_dask(data: Any, colours: bool = False) -> Any:
    """Return any array as a dask array of its chunks, else of planes, without reading it."""
    import dask.array as da

    if isinstance(data, da.Array):
        return data
    plane = tuple(data.shape[-2 - colours :])
    chunks: Any = getattr(data, "chunks", None) or (1,) * (len(data.shape) - len(plane)) + plane
    # Without a name dask would read all of it, to make one of its content.
    return da.from_array(data, chunks=chunks, name=False, asarray=False)


class LazyArray:
    """A part of lazy data that reads only what is indexed, until `progress` is to stop.

    `data` has ``shape``, ``dtype`` and NumPy indexing. `part` has an index, or a slice, for each
    axis; by default it is all. If the data have chunks, `chunks` says what is best read at once,
    unless chunks along `time`, an axis of frames, are single frames. `held`, such as the open
    file of the data, is kept for as long as this is.
    """

    def __init__(
        self,
        data: Any,
        progress: Progress = SILENT,
        part: tuple[int | slice, ...] | None = None,
        time: int | None = None,
        held: Any = None,
    ):
        self._data, self._progress, self._held = data, progress, held
        part = part or (slice(None),) * len(data.shape)
        self._places = [
            at if isinstance(at, int) else range(length)[at]
            for at, length in zip(part, data.shape, strict=True)
        ]
        self.shape = tuple(len(each) for each in self._places if isinstance(each, range))
        self.dtype, self.ndim, self.size = data.dtype, len(self.shape), math.prod(self.shape)
        chunks = getattr(data, "chunks", None)
        if chunks is not None and self.ndim == len(data.shape):
            lengths = [one if isinstance(one, int) else max(one, default=1) for one in chunks]
            if time is None or lengths[time] > 1:
                self.chunks = tuple(map(min, lengths, self.shape))

    def __getitem__(self, index: Any) -> Any:
        self._progress.check()
        index = tuple(index_parts(index, self.shape))
        wanted = iter(index)
        read = tuple(
            each if isinstance(each, int) else _composed(each, next(wanted))
            for each in self._places
        )
        return self._data[read]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype)


def _composed(places: range, index: int | slice) -> int | slice:
    chosen = places[index]
    if isinstance(chosen, int):
        return chosen
    stop = chosen.stop if chosen.stop >= 0 else None
    return slice(chosen.start, stop, None if chosen.step == 1 else chosen.step)


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
    free = size_in_words(shutil.disk_usage(folder).free)
    return OutputError(
        f"The result takes {size_in_words(size)}, but {folder} has only {free} free: free some "
        "there, start napari with TMPDIR set to a folder on a larger disk, or use the panel Batch."
    )
