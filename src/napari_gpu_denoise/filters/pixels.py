"""Images on the device with their place in a tile and their noise, and tables sent there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.protocol.plan import Launches
from napari_gpu_denoise.protocol.tiles import Span, Tile


@dataclass(frozen=True)
class Pixels:
    """float32 pixels on the device: those that `tile` yields."""

    buffer: Any
    tile: Tile


@dataclass(frozen=True)
class Noisy:
    """An image of shape (channels, frames, ny, nx), and the standard deviation of its noise."""

    pixels: Pixels
    levels: Any  # device buffer, float32 of shape (channels, frames)
    variation: Pixels | None = None  # map that the levels are multiplied by


def spread(tile: Tile, around: int | tuple[int, int, int]) -> Tile:
    """Return a tile that yields `around` more pixels, as far as what it reads allows.

    One number is for Y and X, three are for Z, Y and X.
    """

    def wider(span: Span, around: int) -> Span:
        start = max(span.start - around, span.source_start)
        return replace(span, start=start, stop=min(span.stop + around, span.source_stop))

    z, y, x = (0, around, around) if isinstance(around, int) else around
    return replace(tile, z=wider(tile.z, z), y=wider(tile.y, y), x=wider(tile.x, x))


def including_margins(tile: Tile) -> Tile:
    """Return a tile that yields all that it reads in Z, Y and X."""
    return spread(tile, tile.source_shape[1:])


def restrict_to(tile: Tile, available: Tile) -> Tile:
    """Return a tile that reads no more than another one yields in Z, Y and X."""

    def restricted(span: Span, part: Span) -> Span:
        return replace(span, source_start=part.start, source_stop=part.stop)

    return replace(
        tile,
        z=restricted(tile.z, available.z),
        y=restricted(tile.y, available.y),
        x=restricted(tile.x, available.x),
    )


def send_table(queue, device: Device, values: np.ndarray, buffer, launches: Launches):
    """Copy a small float32 array to a buffer; `launches` keeps it alive until it is there."""
    import pyopencl as cl

    array = np.ascontiguousarray(values, np.float32)
    # On a CPU there is nothing to gain by not waiting.
    event = cl.enqueue_copy(queue, buffer, array, is_blocking=device.shares_cores)
    launches.append(("tables", event))
    return buffer
