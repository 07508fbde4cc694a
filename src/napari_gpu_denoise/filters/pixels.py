"""Images on the device as filters pass them on: pixels, their place in a tile, their noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from napari_gpu_denoise.run.tiles import Span, Tile


@dataclass(frozen=True)
class Pixels:
    """float32 pixels on the device, and which part of the image they are: what `tile` yields."""

    buffer: Any
    tile: Tile


@dataclass(frozen=True)
class Noisy:
    """What is filtered, of shape (channels, frames, ny, nx), and the deviation of its noise.

    Attributes
    ----------
    pixels : Pixels
        What is filtered.
    levels : pyopencl.Buffer
        float32 of shape (channels, frames).
    variation : Pixels, optional
        A map that the levels are multiplied by.
    """

    pixels: Pixels
    levels: Any
    variation: Pixels | None = None


def spread(tile: Tile, around: int) -> Tile:
    """Return a tile that yields more in Y and X, as far as what it reads goes."""

    def wider(span: Span) -> Span:
        start = max(span.start - around, span.source_start)
        stop = min(span.stop + around, span.source_stop)
        return replace(span, start=start, stop=stop)

    return replace(tile, y=wider(tile.y), x=wider(tile.x))


def all_read(tile: Tile) -> Tile:
    """Return a tile that yields all that it reads in Y and X."""
    return spread(tile, max(tile.source_shape))
