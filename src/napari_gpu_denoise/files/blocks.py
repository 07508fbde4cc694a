"""Arrays that are read in blocks, such as planes of a file, and a temporary file of that kind."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.image.axes import index_parts


class Blocks(ABC):
    """An array that is read in blocks, each of which holds all but the first `outer` axes."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, outer: int) -> None:
        self.shape = tuple(int(length) for length in shape)
        self.dtype = dtype
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.nbytes = self.size * dtype.itemsize
        self._outer = outer
        self._block_shape = self.shape[outer:]
        self._block_bytes = math.prod(self._block_shape) * dtype.itemsize
        self._numbers = np.arange(math.prod(self.shape[:outer])).reshape(self.shape[:outer])
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        numbers, part, shape = self._select(index)
        result = np.empty(numbers.shape + shape, self.dtype)
        for place in np.ndindex(numbers.shape):
            result[place] = self._block(int(numbers[place]))[part]
        return result[()]

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("copy=False is not possible: planes are read from disk.")
        whole = self._whole()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _select(self, index: Any) -> tuple[np.ndarray, tuple[int | slice, ...], tuple[int, ...]]:
        """Return the numbers of the blocks wanted, the index into each, and the shape it gives."""
        parts = tuple(index_parts(index, self.shape))
        numbers, part = np.asarray(self._numbers[parts[: self._outer]]), parts[self._outer :]
        return numbers, part, np.broadcast_to(False, self._block_shape)[part].shape

    def reads_by_plane(self, *axes: int) -> bool:
        """Return whether a plane of these two axes can be read without reading the whole file."""
        return self._outer <= min(axes) and self._numbers.size > 1

    def _whole(self) -> np.ndarray:
        return self[...]

    @abstractmethod
    def _block(self, number: int) -> np.ndarray:
        """Read one block, which the caller does not change."""


class PartOfBlocks(Blocks):
    """Part of each block of an array, such as the colours of an image without alpha."""

    def __init__(self, blocks: Blocks, kept: tuple[slice, ...]) -> None:
        shape = np.broadcast_to(False, blocks.shape)[kept].shape
        super().__init__(shape, blocks.dtype, blocks._outer)
        self._numbers = blocks._numbers[kept[: self._outer]]
        self._blocks, self._kept = blocks, kept[self._outer :]

    def _block(self, number: int) -> np.ndarray:
        return self._blocks._block(number)[self._kept]


class PlaneStore(Blocks):
    """An array in a temporary file, for a result that is complete before it can be written.

    It is a context manager. The file has no name where the system allows that, else a hidden one,
    and is gone when the block or the process ends, by whatever way. What was not set is 0.

    The file is made in `folder`: best where the result goes, which needs as much room. The last
    `axes_of_plane` axes are read and written at once (3 for interleaved samples: Y, X, S); any part
    may be set. With `path` it is that file, which stays, and is continued if it is there.
    `OutputError` tells of a file that cannot be made, read or written, as when the disk is full.

    Examples
    --------
    >>> import numpy as np
    >>> with PlaneStore((3, 4, 5), np.uint16, ".") as store:
    ...     store[2] = np.ones((4, 5))
    ...     store[1:, 0].sum()
    np.uint64(5)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        folder: str | os.PathLike,
        *,
        axes_of_plane: int = 2,
        path: Path | None = None,
    ) -> None:
        outer = max(0, len(shape) - axes_of_plane)
        super().__init__(shape, np.dtype(dtype).newbyteorder("="), outer)
        self._folder, self._path = folder, path

    def __enter__(self) -> PlaneStore:
        options = {"prefix": ".gpu-denoise-", "suffix": ".part", "dir": self._folder}
        with self._file_errors(), contextlib.ExitStack() as made:
            # Without a buffer, so that a full disk is noticed when a plane is written.
            if self._path is None:
                opened = tempfile.TemporaryFile(buffering=0, **options)
            else:
                self._path.touch()
                opened = open(self._path, "r+b", buffering=0)
            self._file = made.enter_context(opened)
            self._file.truncate(self.nbytes)
            self._made = made.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._made.close()

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        numbers, part, shape = self._select(index)
        values = np.broadcast_to(values, numbers.shape + shape)
        for place in np.ndindex(numbers.shape):
            number = int(numbers[place])
            with self._lock:
                first = _start_of(part, self._block_shape)
                if first is None:
                    block = self._block(number)
                    block[part] = values[place]
                    self._write(number, 0, block)
                else:
                    block = np.ascontiguousarray(values[place], self.dtype)
                    self._write(number, first, block)

    def _write(self, number: int, first: int, values: np.ndarray) -> None:
        """Write values that follow each other in a block, from the `first` on."""
        rest = memoryview(values.reshape(-1)).cast("B")
        with self._file_errors():
            self._file.seek(number * self._block_bytes + first * self.dtype.itemsize)
            while rest:
                rest = rest[self._file.write(rest) :]

    def _block(self, number: int) -> np.ndarray:
        block = np.empty(self._block_shape, self.dtype)
        rest = memoryview(block.reshape(-1)).cast("B")
        with self._lock, self._file_errors():
            self._file.seek(number * self._block_bytes)
            while rest:
                count = self._file.readinto(rest)
                if not count:
                    raise OSError("it is shorter than what was written")
                rest = rest[count:]
        return block

    @contextlib.contextmanager
    def _file_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"The temporary file of the result in {self._folder} cannot be used: "
                f"{error.strerror or error}."
            ) from error


def _start_of(part: tuple[int | slice, ...], shape: tuple[int, ...]) -> int | None:
    """Return the number of the first value of a part whose values follow each other, else None."""
    first, cut = 0, False
    for one, length in zip(part, shape, strict=True):
        chosen = range(length)[one] if isinstance(one, slice) else range(one, one + 1)
        if (cut and len(chosen) < length) or chosen.step != 1 or not chosen:
            return None
        first = first * length + chosen.start
        cut = cut or len(chosen) > 1
    return first
