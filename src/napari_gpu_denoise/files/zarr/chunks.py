"""Chunks of arrays of zarr in folders, each read or written in one thread.

zarr's own way takes several coroutines a chunk, all in one thread; of 16 cores most would wait.
What is stored otherwise than most images (shards, filters, addresses) is left to zarr.
"""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from types import SimpleNamespace
from typing import Any

import numpy as np
from zarr.abc.codec import SupportsSyncCodec
from zarr.codecs import BytesCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

from napari_gpu_denoise.image.axes import chosen_range
from napari_gpu_denoise.image.threads import shared_executor

_THREADS = min(16, os.cpu_count() or 1)
_AT_ONCE = 1 << 28  # bytes of decoded chunks in all threads, at least one chunk

Span = tuple[slice, ...]
Stored = dict[tuple[int, ...], tuple[int, int]]  # size and CRC-32 of files, by places of chunks


def read(array: Any, parts: Sequence[int | slice]) -> np.ndarray:
    """Return the pixels that a number or a slice of each axis selects, in native byte order."""
    stored, region = _ChunkFiles.of(array), _region_of(parts, array.shape)
    dtype = np.dtype(array.dtype).newbyteorder("=")
    kept = tuple(slice(None) if isinstance(part, slice) else 0 for part in parts)
    if stored is None or region is None:
        # zarr takes no negative steps: such an axis is read forwards, and turned round.
        chosen = list(map(chosen_range, parts, array.shape))
        ahead = [one if one.step > 0 else one[::-1] for one in chosen]
        found = np.asarray(array[tuple(slice(one.start, one.stop, one.step) for one in ahead)])
        found = found[tuple(slice(None, None, 1 if one.step > 0 else -1) for one in chosen)]
        return found[kept].astype(dtype, copy=False)
    pixels = np.empty([one.stop - one.start for one in region], dtype)

    def fill(place: tuple[int, ...], inside: Span, outside: Span) -> None:
        chunk = stored.chunk(place)
        pixels[outside] = stored.fill_value if chunk is None else chunk[inside]

    _for_each(fill, _chunks_of(region, array.chunks), stored.nbytes)
    return pixels[kept]


def write(array: Any, parts: Sequence[int | slice], values: np.ndarray) -> Stored:
    """Set such pixels; of threads that share a chunk, one calls at a time.

    Returns what was stored for each chunk; nothing where that is left to zarr.
    """
    stored, region = _ChunkFiles.of(array), _region_of(parts, array.shape)
    made: Stored = {}
    if stored is None or region is None:
        array[tuple(parts)] = values
        return made
    values = np.asarray(values).reshape([one.stop - one.start for one in region])

    def store(place: tuple[int, ...], inside: Span, outside: Span) -> None:
        chunk = values[outside]
        if chunk.shape != array.chunks:
            # Only what is in the array counts as the whole of a chunk at its end.
            ends = zip(place, inside, array.chunks, array.shape, strict=True)
            whole = all(
                one.start == 0 and one.stop >= min(step, n - at * step) for at, one, step, n in ends
            )
            before = None if whole else stored.chunk(place)
            chunk = np.full(array.chunks, stored.fill_value, stored.dtype)
            if before is not None:
                chunk[...] = before
            chunk[inside] = values[outside]
        made[place] = stored.set_chunk(place, chunk)

    _for_each(store, _chunks_of(region, array.chunks), stored.nbytes)
    return made


class _ChunkFiles:
    """An array whose chunks are files, and its codecs, which are called without an event loop."""

    def __init__(self, array: Any, dtype: np.dtype, compressor: Any, codecs: Sequence[Any]) -> None:
        self._array, self.dtype, self._compressor, self._codecs = array, dtype, compressor, codecs
        self.nbytes = math.prod(array.chunks) * dtype.itemsize
        self.fill_value = 0 if array.fill_value is None else array.fill_value
        self._spec = SimpleNamespace(prototype=default_buffer_prototype())

    @classmethod
    def of(cls, array: Any) -> _ChunkFiles | None:
        """Return an array as it is stored; None if that is zarr's own business."""
        metadata, pipeline = array.metadata, array.async_array.codec_pipeline
        dtype, codecs = np.dtype(array.dtype), pipeline.bytes_bytes_codecs
        if metadata.zarr_format == 2:
            compressor, known = metadata.compressor, not metadata.filters and metadata.order == "C"
        else:
            first, compressor = pipeline.array_bytes_codec, None
            known = isinstance(first, BytesCodec) and not pipeline.array_array_codecs
            told: Any = first.to_dict()
            order = told.get("configuration", {}).get("endian")
            dtype = dtype.newbyteorder(order or "=")
        known = known and all(isinstance(codec, SupportsSyncCodec) for codec in codecs)
        known = known and isinstance(array.store, LocalStore)
        return cls(array, dtype, compressor, codecs) if known else None

    def _name(self, place: tuple[int, ...]) -> str:
        return f"{self._array.path}/{self._array.metadata.encode_chunk_key(place)}".lstrip("/")

    def chunk(self, place: tuple[int, ...]) -> np.ndarray | None:
        """Return a chunk; None if it is not stored."""
        data = self._array.store.get_sync(self._name(place))
        if data is None:
            return None
        for codec in reversed(self._codecs):
            data = codec._decode_sync(data, self._spec)
        content = data.as_numpy_array()
        if self._compressor is not None:
            content = self._compressor.decode(content)
        return np.frombuffer(content, self.dtype).reshape(self._array.chunks)

    def set_chunk(self, place: tuple[int, ...], pixels: np.ndarray) -> tuple[int, int]:
        """Store a chunk; return size and CRC-32 of what is stored."""
        content = np.ascontiguousarray(pixels, self.dtype)
        if self._compressor is not None:
            content = np.frombuffer(self._compressor.encode(content), np.uint8)
        data = self._spec.prototype.buffer.from_array_like(content.reshape(-1).view(np.uint8))
        for codec in self._codecs:
            data = codec._encode_sync(data, self._spec)
        try:
            self._array.store.set_sync(self._name(place), data)
        except (FileExistsError, FileNotFoundError):
            # Its folder was moved away as it was made: it is made again, and the run tells.
            self._array.store.set_sync(self._name(place), data)
        return len(data), zlib.crc32(data.as_numpy_array())


def _region_of(parts: Sequence[int | slice], shape: Sequence[int]) -> Span | None:
    """Return the range of each axis; None if one is empty or has steps."""
    spans = list(map(chosen_range, parts, shape))
    if any(span.step != 1 or not span for span in spans):
        return None
    return tuple(slice(span.start, span.stop) for span in spans)


def _chunks_of(region: Span, sizes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Span, Span]]:
    """Yield the place of each chunk in the grid, what is taken of it, and where in the region."""
    grid = [
        range(one.start // size, -(-one.stop // size))
        for one, size in zip(region, sizes, strict=True)
    ]
    for place in itertools.product(*grid):
        inside, outside = [], []
        for at, size, one in zip(place, sizes, region, strict=True):
            first = at * size
            low, high = max(first, one.start), min(first + size, one.stop)
            inside.append(slice(low - first, high - first))
            outside.append(slice(low - one.start, high - one.start))
        yield place, tuple(inside), tuple(outside)


def _for_each(work: Callable[..., None], chunks: Iterable[tuple[Any, ...]], nbytes: int) -> None:
    """Do the work for each chunk, and wait for all threads, also if it fails for one."""
    todo = list(chunks)
    left, threads = iter(todo), min(_THREADS, len(todo), max(1, _AT_ONCE // nbytes))

    def in_this_thread() -> None:
        for chunk in left:
            work(*chunk)

    executor = shared_executor("chunks", _THREADS)
    begun = [executor.submit(in_this_thread) for _ in range(threads)]
    try:
        for each in begun:
            each.result()
    finally:
        deque(left, maxlen=0)
        wait(begun)
