"""The pixels of layers, put together again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napari_gpu_denoise._napari.layers.origin import Origin


@dataclass(frozen=True)
class Pixels:
    """What a layer that is written holds: its data at the finest level, and what is known of them.

    `record` says how they were made, if that is known.
    """

    name: str
    data: Any = field(repr=False)
    axes: str
    attributes: dict[str, Any] = field(repr=False)
    origin: Origin | None
    record: dict[str, Any] | None


def channels_of(layers: list[Pixels], axis: int | None) -> Any:
    """Return the pixels of layers, along a new axis, as numbers of one type.

    Those in memory are not copied, and those of files not read: they are taken page by page.
    """
    if axis is None:
        (one,) = layers
        return _as_numbers(one.data)
    import dask.array as da

    arrays = [_as_numbers(one.data) for one in layers]
    dtype = np.result_type(*(one.dtype for one in arrays))
    return da.stack([_lazily(one).astype(dtype) for one in arrays], axis)


def _lazily(data: Any) -> Any:
    """Return any array as a dask array of planes, without reading it."""
    import dask.array as da

    if isinstance(data, da.Array):
        return data
    return da.from_array(data, chunks=_planes(data.shape), name=False, asarray=False)


def in_order(data: Any, order: list[int]) -> Any:
    """Return an array with its axes in another order, without reading it."""
    if order == list(range(len(order))):
        return data
    return (data if isinstance(data, np.ndarray) else _lazily(data)).transpose(order)


def _as_numbers(data: Any) -> Any:
    """Return data that are not booleans; those become 0 and 1."""
    if np.dtype(data.dtype).kind != "b":
        return data
    return data.view(np.uint8) if isinstance(data, np.ndarray) else data.astype(np.uint8)


def _planes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return chunks of one plane, and the colours of its pixels."""
    kept = 3 if shape[-1] in (3, 4) else 2
    return tuple(1 if i < len(shape) - kept else n for i, n in enumerate(shape))
