"""The voxels of a NIfTI file, read on demand.

Files are read and not mapped, as those of `files.tiff.planes` are: mapped pages count as memory of
the process, and reading one of a file that was cut short meanwhile would end it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.tiff.messages import reading
from napari_gpu_denoise.files.tiff.planes import Blocks

_AT_ONCE = 1 << 20  # values that are read and scaled at a time
_REST = 1 << 20  # bytes behind the voxels that are read for the checksum of a gzip file

# Stored whole numbers up to this, counted in steps of the slope, are told apart by float32.
_EXACT = 2.0**22


def type_of_levels(stored: np.dtype, scaling: tuple[float, float] | None) -> np.dtype:
    """Return the type of grey levels: float32 for scaled values, float64 where it holds too little.

    Values that are not scaled keep their type.
    """
    if scaling is None:
        return stored.newbyteorder("=")
    slope, inter = map(abs, scaling)
    if stored.kind == "f":
        return np.dtype(np.float32 if stored.itemsize <= 4 and not inter else np.float64)
    largest = max(abs(int(end)) for end in (np.iinfo(stored).min, np.iinfo(stored).max))
    fits = largest + inter / slope <= _EXACT and largest * slope + inter < 1e37 and slope > 1e-30
    return np.dtype(np.float32 if fits else np.float64)


class Voxels(Blocks):
    """The voxels of a NIfTI file; indexing reads only the planes required.

    NumPy's basic indexing, by whole numbers, slices and ``...``, gives arrays in memory; so does
    ``numpy.asarray`` for the whole. Several threads may read. What is compressed, and cannot be
    entered in the middle, is read completely when any of it is indexed, and kept.
    """

    def __init__(
        self,
        handle: Any,
        path: Path,
        shape: tuple[int, ...],
        stored: np.dtype,
        offset: int,
        scaling: tuple[float, float] | None,
        *,
        packed: bool,
        by_plane: bool,
    ) -> None:
        outer = len(shape) - 2 if by_plane else 0
        super().__init__(shape, type_of_levels(stored, scaling), outer)
        self._handle, self._path, self._packed = handle, path, packed
        self._stored, self._offset, self._scaling = stored, offset, scaling
        self._kept: np.ndarray | None = None

    def reads_by_plane(self, *axes: int) -> bool:
        """Return whether a plane of these two axes can be read without reading the whole file."""
        return self._outer <= min(axes) and self._numbers.size > 1

    def close(self) -> None:
        """End reading; `open_stack` closes the file."""
        with self._lock:
            self._handle = self._kept = None

    def _block(self, number: int) -> np.ndarray:
        with self._lock:
            if self._outer == 0:
                if self._kept is None:
                    self._kept = self._whole()
                return self._kept
            block = np.empty(self._block_shape, self.dtype)
            self._fill(block.reshape(-1), number * block.size)
            return block

    def _whole(self) -> np.ndarray:
        with self._lock:
            whole = np.empty(self.shape, self.dtype)
            self._fill(whole.reshape(-1), 0)
            if self._packed:
                with reading(self._path):
                    self._handle.read(_REST)  # gzip compares its checksum at the end
            return whole

    def _fill(self, out: np.ndarray, first: int) -> None:
        """Read the values from a number on into a flat array."""
        if self._handle is None:
            raise FileError(f"{self._path} is closed: read its planes within open_stack().")
        with reading(self._path):
            self._handle.seek(self._offset + first * self._stored.itemsize)
            for start in range(0, out.size, _AT_ONCE):
                part = out[start : start + _AT_ONCE]
                values = np.empty(part.shape, self._stored)
                rest = memoryview(values.view(np.uint8))
                while rest:
                    count = self._handle.readinto(rest)
                    if not count:
                        raise FileError(
                            f"{self._path} is cut short or damaged: copy it again from its source."
                        )
                    rest = rest[count:]
                if self._scaling is None:
                    part[...] = values
                    continue
                slope, inter = self._scaling
                with np.errstate(over="ignore", invalid="ignore"):
                    part[...] = values.astype(np.float64) * slope + inter


def size_of(shape: tuple[int, ...], stored: np.dtype) -> int:
    """Return the bytes that voxels take as they are stored, without compression."""
    return math.prod(shape) * stored.itemsize
