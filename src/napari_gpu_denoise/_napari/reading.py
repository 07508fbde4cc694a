"""Read data that are not in memory: whole, or frame by frame along time."""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import Cancelled

_SLAB = 16_000_000  # bytes read at a time from arrays without chunks
_HELD = 64_000_000  # most bytes of frames read at a time, where a chunk holds several


@dataclass(frozen=True)
class Stage:
    """How far a run is: what it does, `done` of `total` parts; a total of 0 is not known yet."""

    text: str
    done: int = 0
    total: int = 0


def is_lazy(data: Any) -> bool:
    """Return whether pixels are read from elsewhere when asked for: dask, zarr, a mapped file."""
    base = data
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    return isinstance(base, mmap.mmap) or not isinstance(data, np.ndarray)


class Planes:
    """Lazy data for those that read single planes of it, until they are stopped.

    Parameters
    ----------
    data : array-like
    stopped : callable
        Once it says so, reading raises `Cancelled`.
    alpha : bool
        Whether the last of the colour samples is alpha, and left out.
    """

    def __init__(self, data: Any, stopped: Callable[[], bool], alpha: bool):
        self._data, self._stopped, self._alpha = data, stopped, alpha
        self.shape = (*data.shape[:-1], 3) if alpha else tuple(data.shape)
        self.dtype, self.ndim, self.size = data.dtype, len(self.shape), math.prod(self.shape)

    def __getitem__(self, index: tuple) -> Any:
        _go_on(self._stopped)
        if self._alpha and index[-1] == slice(None):
            index = (*index[:-1], slice(3))
        return self._data[index]


def at(axis: int, where: int | slice) -> tuple[int | slice, ...]:
    """Return an index of one axis, of which the later ones are whole."""
    return (slice(None),) * axis + (where,)


def load(data: Any) -> Generator[Stage, None, np.ndarray]:
    """Bring lazy data into memory, chunk by chunk."""
    if isinstance(data, np.ndarray):
        return data
    blocks = list(itertools.product(*(_cuts(data, i) for i in range(len(data.shape)))))
    image = np.empty(data.shape, data.dtype)
    for done, block in enumerate(blocks):
        yield Stage("Reading: chunk", done, len(blocks))
        image[block] = np.asarray(data[block])
    return image


def load_frames(data: Any, axis: int, wanted: range) -> Generator[Stage, None, np.ndarray]:
    """Bring some frames along an axis into memory, and no others."""
    shape = list(data.shape)
    shape[axis] = len(wanted)
    image = np.empty(shape, data.dtype)
    for part in _slabs(data, axis, wanted):
        yield Stage("Reading: frame", part.start - wanted.start, len(wanted))
        inside = slice(part.start - wanted.start, part.stop - wanted.start)
        image[at(axis, inside)] = np.asarray(data[at(axis, part)])
    return image


def frames_along(
    data: Any, axis: int, stopped: Callable[[], bool]
) -> Generator[np.ndarray, None, None]:
    """Yield the frames along an axis, reading no more at a time than a chunk holds.

    Raises
    ------
    Cancelled
        As soon as `stopped` says so.
    """
    for part in _slabs(data, axis, range(data.shape[axis])):
        slab = None
        for number in range(part.start, part.stop):
            _go_on(stopped)
            if slab is None:
                slab = np.asarray(data[at(axis, part)])
            yield slab[at(axis, number - part.start)]


def _go_on(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise Cancelled("The run was cancelled: no result was made.")


def _cuts(data: Any, axis: int) -> list[slice]:
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


def _slabs(data: Any, axis: int, wanted: range) -> Iterator[slice]:
    """Yield which frames to read at a time: a chunk's, so that each is decoded once, or fewer."""
    frame = math.prod(data.shape) // max(data.shape[axis], 1) * np.dtype(data.dtype).itemsize
    most = max(1, _HELD // max(frame, 1))
    chunked = getattr(data, "chunks", None) is not None
    cuts = _cuts(data, axis) if chunked else [slice(k, k + 1) for k in wanted]
    for cut in cuts:
        first, last = max(cut.start, wanted.start), min(cut.stop, wanted.stop)
        for start in range(first, last, most):
            yield slice(start, min(start + most, last))
