"""Arrays that are read by blocks: of an index only the blocks that it asks for come into memory."""

from __future__ import annotations

import math
import operator
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


@dataclass(frozen=True)
class Selection:
    """What an index asks for: which blocks, and which part of each.

    Attributes
    ----------
    places : tuple of range
        Positions along each axis before those of a block.
    part : tuple of int or slice
        Index into a block.
    shape : tuple of int
        Lengths of `places`, then of the part of a block.
    drop : tuple of int or slice
        Index that drops the axes of `places` which the caller gave one number for.
    """

    places: tuple[range, ...]
    part: tuple[int | slice, ...]
    shape: tuple[int, ...]
    drop: tuple[int | slice, ...]

    @classmethod
    def of(cls, index: Any, shape: tuple[int, ...], outer: int) -> Selection:
        parts = index_parts(index, shape)
        places = tuple(
            range(n)[p] if isinstance(p, slice) else range(p, p + 1)
            for p, n in zip(parts[:outer], shape[:outer], strict=True)
        )
        part = tuple(parts[outer:])
        inner = np.broadcast_to(False, shape[outer:])[part].shape
        drop = tuple(slice(None) if isinstance(p, slice) else 0 for p in parts[:outer])
        return cls(places, part, (*map(len, places), *inner), drop)

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield where each block goes in the selection, and where it is in the stack."""
        return zip(np.ndindex(*map(len, self.places)), product(*self.places), strict=True)


def index_parts(index: Any, shape: tuple[int, ...]) -> list[int | slice]:
    """One number, not below 0, or slice for each axis."""
    parts = list(index) if isinstance(index, tuple) else [index]
    gaps = [i for i, part in enumerate(parts) if part is Ellipsis]
    missing = len(shape) - len(parts) + len(gaps)
    if missing < 0 or len(gaps) > 1:
        raise IndexError(f"The index {index} does not fit {len(shape)} axes.")
    gap = gaps[0] if gaps else len(parts)
    parts[gap : gap + len(gaps)] = [slice(None)] * missing
    for axis, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            continue
        try:
            number = operator.index(part)
        except TypeError:
            number = None
        if number is None or isinstance(part, bool):
            raise IndexError(f"Planes are chosen by whole numbers and slices, not by {part!r}.")
        if not -length <= number < length:
            raise IndexError(f"Index {number} is outside of axis {axis} of length {length}.")
        parts[axis] = number % length
    return parts


class Blocks(ABC):
    """An array that is read by blocks: each holds the last axes as a whole.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
    outer : int
        Number of axes before those of a block.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, outer: int) -> None:
        self.shape = tuple(int(length) for length in shape)
        self.dtype = dtype
        self._outer = outer
        self._block_shape = self.shape[outer:]
        self._block_bytes = math.prod(self._block_shape) * dtype.itemsize
        self._lock = threading.RLock()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes that the whole would take in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        chosen = Selection.of(index, self.shape, self._outer)
        result = np.empty(chosen.shape, self.dtype)
        for place, position in chosen:
            result[place] = self._block(self._number(position))[chosen.part]
        return result[chosen.drop]

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Planes come into memory as a copy.")
        whole = self._whole()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _number(self, position: tuple[int, ...]) -> int:
        """Count blocks in their order."""
        number = 0
        for place, length in zip(position, self.shape, strict=False):
            number = number * length + place
        return number

    def _whole(self) -> np.ndarray:
        return self[...]

    @abstractmethod
    def _block(self, number: int) -> np.ndarray:
        """Read one block, which the caller does not change."""
