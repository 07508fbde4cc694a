"""The coarser levels of an image, as means of blocks of the next finer one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_SMALLEST = 512  # pixels along Y and X up to which a new image gets no coarser level
_AT_ONCE = 1 << 22  # pixels of a finer level that are read at a time, at least a chunk


def factors_like(shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return by how much each level of a pyramid is coarser than the one before it."""
    return [
        tuple(max(1, round(a / max(b, 1))) for a, b in zip(finer, coarser, strict=True))
        for finer, coarser in itertools.pairwise(shapes)
    ]


def new_factors(axes: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the factors of a new pyramid: halves along Y and X while the plane is large."""
    factors = []
    lengths = {a: n for a, n in zip(axes, shape, strict=True) if a in "YX"}
    while max(lengths.values()) > _SMALLEST:
        factors.append(tuple(2 if a in "YX" else 1 for a in axes))
        lengths = {a: math.ceil(n / 2) for a, n in lengths.items()}
    return factors


def coarser_shape(
    shape: tuple[int, ...], factor: tuple[int, ...], wanted: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the shape of the next level: as wanted, if blocks of these factors fill it."""
    filled = tuple(math.ceil(n / f) for n, f in zip(shape, factor, strict=True))
    if wanted is None or any(n > m or n < m - 1 for n, m in zip(wanted, filled, strict=True)):
        return filled
    return wanted


def fill(finer: Any, coarser: Any, factor: tuple[int, ...]) -> Iterator[None]:
    """Write a level part by part; yields after each."""
    unit = tuple(coarser.shards or coarser.chunks)
    size = _grown(unit, coarser.shape, math.prod(factor))
    starts = (range(0, n, s) for n, s in zip(coarser.shape, size, strict=True))
    for start in itertools.product(*starts):
        where = tuple(
            slice(a, min(a + s, n)) for a, s, n in zip(start, size, coarser.shape, strict=True)
        )
        read = tuple(
            slice(w.start * f, min(w.stop * f, n))
            for w, f, n in zip(where, factor, finer.shape, strict=True)
        )
        coarser[where] = block_means(np.asarray(finer[read]), factor).astype(coarser.dtype)
        yield


def _grown(unit: tuple[int, ...], shape: tuple[int, ...], finer: int) -> tuple[int, ...]:
    """Return chunks joined along the last axes, as many as are worth reading at once."""
    size = [min(u, n) for u, n in zip(unit, shape, strict=True)]
    for axis in reversed(range(len(size))):
        room = _AT_ONCE // max(math.prod(size) * finer, 1)
        if room > 1:
            size[axis] = min(shape[axis], size[axis] * room)
    return tuple(size)


def block_means(pixels: np.ndarray, factor: Sequence[int]) -> np.ndarray:
    """Return means of blocks, smaller at the ends of axes; of integers, rounded to nearest."""
    dtype = pixels.dtype
    wide = np.float64 if dtype.itemsize > 2 else np.float32
    means = pixels
    for axis, step in enumerate(factor):
        if step == 1:
            continue
        starts = np.arange(0, means.shape[axis], step)
        counts = np.diff([*starts, means.shape[axis]])
        sums = np.add.reduceat(means, starts, axis=axis, dtype=wide)
        means = sums / counts.reshape([-1 if i == axis else 1 for i in range(means.ndim)])
    return (np.rint(means) if dtype.kind in "iu" else means).astype(dtype)
