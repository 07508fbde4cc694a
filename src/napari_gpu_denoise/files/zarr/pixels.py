"""The pixels of an array of zarr, read part by part."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.tiff.messages import reading
from napari_gpu_denoise.files.tiff.planes import Blocks, index_parts
from napari_gpu_denoise.files.zarr.steady import steadily


class ZarrPixels(Blocks):
    """The pixels of an array of zarr; indexing reads only the chunks required.

    NumPy's basic indexing, by whole numbers, slices and ``...``, gives arrays in memory; so does
    ``numpy.asarray`` for the whole. Several threads may read. `chunks` is what is best read and
    written at once: shards, if there are.
    """

    def __init__(self, array: Any, path: Path) -> None:
        # Without numbers of planes, which would fill the memory where shapes lie.
        super().__init__((1,) * len(array.shape), np.dtype(array.dtype).newbyteorder("="), 0)
        self.shape = tuple(int(length) for length in array.shape)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        self._array, self._path = array, path
        self.chunks = tuple(array.shards or array.chunks)

    def reads_by_plane(self, *axes: int) -> bool:
        """Return whether a plane of these two axes can be read without reading the whole."""
        return True

    def close(self) -> None:
        """End reading."""
        self._array = None

    def __getitem__(self, index: Any) -> Any:
        parts = tuple(index_parts(index, self.shape))
        if self._array is None:
            raise FileError(f"{self._path} is closed: read its planes within open_stack().")
        with reading(self._path, "damaged"):
            # zarr takes no negative steps.
            read = steadily(self._path, lambda: np.asarray(self._array[parts]))
            return read.astype(self.dtype, copy=False)[()]

    def _block(self, number: int) -> np.ndarray:
        return self[...]
