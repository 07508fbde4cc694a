"""Planes of a result, kept in a temporary file until it is complete."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files.tiff.blocks import Blocks, Selection


class PlaneStore(Blocks):
    """An array in a temporary file, for a result that is complete before it can be written.

    It is a context manager. The file has no name where the system allows that, else a hidden one,
    and is gone when the block or the process ends, by whatever way. What was not set is 0.

    Parameters
    ----------
    shape : tuple of int
    dtype : data type
    folder : path-like
        Where the file is made: best where the result goes, which needs as much room.
    axes_of_plane : int, default 2
        How many of the last axes are read and written at once; 3 for interleaved samples
        (Y, X, S). Whatever it is, any part may be set.

    Raises
    ------
    OutputError
        If the file cannot be made; later if it cannot be read or written, as when the disk is full.

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
    ) -> None:
        outer = max(0, len(shape) - axes_of_plane)
        super().__init__(shape, np.dtype(dtype).newbyteorder("="), outer)
        self._folder = folder

    def __enter__(self) -> PlaneStore:
        with self._telling(), contextlib.ExitStack() as made:
            # Without a buffer, so that a full disk is noticed when a plane is written.
            self._file = made.enter_context(
                tempfile.TemporaryFile(
                    buffering=0, prefix=".gpu-denoise-", suffix=".part", dir=self._folder
                )
            )
            self._file.truncate(self.nbytes)
            self._made = made.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._made.close()

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        chosen = Selection.of(index, self.shape, self._outer)
        kept = tuple(np.newaxis if part == 0 else part for part in chosen.drop)
        inner = chosen.shape[self._outer :]
        lengths = [len(n) for n, part in zip(chosen.places, chosen.drop, strict=True) if part != 0]
        values = np.broadcast_to(values, (*lengths, *inner))[kept]
        full = all(
            isinstance(part, slice) and range(n)[part] == range(n)
            for part, n in zip(chosen.part, self._block_shape, strict=True)
        )
        for place, position in chosen:
            number = self._number(position)
            with self._lock:
                if full:
                    block = np.ascontiguousarray(values[place], self.dtype)
                else:
                    block = self._block(number)
                    block[chosen.part] = values[place]
                self._write(number, block)

    def _write(self, number: int, block: np.ndarray) -> None:
        rest = memoryview(block.reshape(-1)).cast("B")
        with self._telling():
            self._file.seek(number * self._block_bytes)
            while rest:
                rest = rest[self._file.write(rest) :]

    def _block(self, number: int) -> np.ndarray:
        block = np.empty(self._block_shape, self.dtype)
        rest = memoryview(block.reshape(-1)).cast("B")
        with self._lock, self._telling():
            self._file.seek(number * self._block_bytes)
            while rest:
                count = self._file.readinto(rest)
                if not count:
                    raise OSError("it is shorter than what was written")
                rest = rest[count:]
        return block

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"The temporary file of the result in {self._folder} cannot be used: "
                f"{error.strerror or error}."
            ) from error
