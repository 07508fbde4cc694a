"""Arrays of layers: those that are not in memory, and results too large for it."""

from __future__ import annotations

import itertools
import math
import mmap
import os
import shutil
import sys
import tempfile
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError, OutputError
from napari_gpu_denoise.image.axes import index_parts
from napari_gpu_denoise.protocol.settings import size_in_words
from napari_gpu_denoise.run.progress import SILENT, Progress

_SLAB = 16_000_000  # bytes read at a time from arrays without chunks
_LOADED = 1 << 27  # bytes from which on data without an axis of time are read part by part
_HELD = 64_000_000  # most bytes of frames read at a time, where a chunk holds several

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


class AsNumbers:
    """Boolean data as the numbers 0 and 1, converted when they are indexed."""

    dtype = np.dtype(np.uint8)

    def __init__(self, data: Any):
        self._data, self.shape, self.ndim = data, data.shape, len(data.shape)
        self.chunks = getattr(data, "chunks", None)

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.asarray(self._data[index]).astype(self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype)


class LazyArray:
    """A part of lazy data that reads only what is indexed, until `progress` is to stop.

    `data` has ``shape``, ``dtype`` and NumPy indexing. `part` has an index, or a slice, for each
    axis; by default it is all. `time` is an axis of frames, whole in the part: a chunk with several
    of them is read once. Without it `chunks` says what is best read at once, if the data have
    chunks.
    """

    def __init__(
        self,
        data: Any,
        progress: Progress = SILENT,
        part: tuple[int | slice, ...] | None = None,
        time: int | None = None,
    ):
        self._data, self._progress, self._time = data, progress, time
        part = part or (slice(None),) * len(data.shape)
        self._places = [
            at if isinstance(at, int) else range(length)[at]
            for at, length in zip(part, data.shape, strict=True)
        ]
        self.shape = tuple(len(each) for each in self._places if isinstance(each, range))
        self.dtype, self.ndim, self.size = data.dtype, len(self.shape), math.prod(self.shape)
        self._held: tuple[slice, np.ndarray | None] = slice(0), None
        held = None if time is not None else getattr(data, "chunks", None)
        if held is not None and self.ndim == len(data.shape):
            lengths = (one if isinstance(one, int) else max(one, default=1) for one in held)
            self.chunks = tuple(map(min, lengths, self.shape))

    def __getitem__(self, index: Any) -> Any:
        self._progress.check()
        if index is Ellipsis and self._time is not None:
            self._check_size()
        index = tuple(index_parts(index, self.shape))
        wanted = iter(index)
        read = tuple(
            each if isinstance(each, int) else _composed(each, next(wanted))
            for each in self._places
        )
        t = self._time
        if t is not None and index[:t] == (slice(None),) * t and isinstance(index[t], int):
            slab, first = self._frames_with(read[t])
            return slab[(*read[:t], read[t] - first, *read[t + 1 :])]
        return self._data[read]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype)

    def _check_size(self) -> None:
        # Only frames too large for the device are read whole, to be filtered in parts.
        if self.size * np.dtype(self.dtype).itemsize >= LARGEST_IN_MEMORY:
            raise DeviceMemoryError(
                "The device has too little memory for whole frames of this size: use fewer frames "
                "before and after, choose another device, or open a part of the stack."
            )

    def _frames_with(self, number: int) -> tuple[np.ndarray, int]:
        """Return the frames that are read together with one, and the number of the first."""
        held, slab = self._held
        if slab is None or not held.start <= number < held.stop:
            self._held = slice(0), None  # not two at a time
            held = _slab(self._data, self._time, number)
            slab = np.asarray(self._data[at(self._time, held)])
            self._held = held, slab
        return slab, held.start


def _composed(places: range, index: int | slice) -> int | slice:
    chosen = places[index]
    if isinstance(chosen, int):
        return chosen
    stop = chosen.stop if chosen.stop >= 0 else None
    return slice(chosen.start, stop, None if chosen.step == 1 else chosen.step)


def at(axis: int, where: int | slice) -> tuple[int | slice, ...]:
    """Return an index into one axis that takes all of the others."""
    return (slice(None),) * axis + (where,)


def load(data: Any, progress: Progress) -> np.ndarray:
    """Load lazy data into memory, chunk by chunk."""
    if isinstance(data, np.ndarray):
        return data
    blocks = list(itertools.product(*(cuts(data, i) for i in range(len(data.shape)))))
    image = np.empty(data.shape, data.dtype)
    for done, block in enumerate(blocks):
        progress.tell(done, len(blocks), "reading: chunk")
        image[block] = np.asarray(data[block])
    return image


def cuts(data: Any, axis: int) -> list[slice]:
    """Return slices that follow the chunks of dask, zarr and HDF5; slabs of anything else."""
    chunks, length = getattr(data, "chunks", None), data.shape[axis]
    if chunks is not None:
        chunk = chunks[axis]
    elif axis == 0:
        row = math.prod(data.shape[1:]) * np.dtype(data.dtype).itemsize
        chunk = _SLAB // max(row, 1)
    else:
        chunk = length
    if isinstance(chunk, int):
        chunk = (max(chunk, 1),) * -(-length // max(chunk, 1))
    stops = list(itertools.accumulate(chunk))
    return [slice(a, min(b, length)) for a, b in itertools.pairwise([0, *stops])]


def _slab(data: Any, axis: int, number: int) -> slice:
    """Return the frames to read with one: those of its chunk, or fewer where they are large."""
    if getattr(data, "chunks", None) is None:
        return slice(number, number + 1)
    frame = math.prod(data.shape) // max(data.shape[axis], 1) * np.dtype(data.dtype).itemsize
    most = max(1, _HELD // max(frame, 1))
    cut = next(cut for cut in cuts(data, axis) if number < cut.stop)
    start = cut.start + (number - cut.start) // most * most
    return slice(start, min(start + most, cut.stop))


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
