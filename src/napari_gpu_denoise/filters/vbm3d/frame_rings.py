"""Rings on a device: the frames of a video that are still needed, and the sums over their groups.

Frame t lies in slot t modulo the length of its ring.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.filters.pixels import Pixels
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes
from napari_gpu_denoise.protocol.tiles import Tile


@dataclass(frozen=True)
class RingShape:
    """Shape of rings of padded frames on a device."""

    images: int  # frames in rings of images
    sums: int  # frames in rings of sums
    margin: int  # pixels of FAR around a frame
    ny: int  # of a frame
    nx: int
    shift: tuple[int, int] = (0, 0)  # pixels of the first block of 8 x 8 that lie before the frame

    @property
    def blocks(self) -> tuple[int, int]:
        """Rows and columns of blocks of 8 x 8 pixels, which lie alike in all parts of a frame."""
        return tuple(-(-(n + s) // 8) for n, s in zip((self.ny, self.nx), self.shift, strict=True))

    @property
    def pny(self) -> int:
        """Rows of a padded frame."""
        return self.ny + 2 * self.margin

    @property
    def pitch(self) -> int:
        """Values in a row of a padded frame."""
        return -(-(self.nx + 2 * self.margin) // 16) * 16

    @property
    def plane(self) -> int:
        """Values in a padded frame."""
        return self.pny * self.pitch

    @property
    def layout(self) -> tuple:
        """Kernel arguments: pny, pitch, y0, x0."""
        return tuple(map(np.int32, (self.pny, self.pitch, self.margin, self.margin)))


class FrameRings:
    """Rings of padded frames on one device; belongs to one thread.

    `tile` is what is read of each frame, with the channels that are filtered; `held` are the rings
    that `ring_buffers` declares.
    """

    def __init__(self, arena: Arena, shape: RingShape, tile: Tile, held: Buffers):
        self.shape, self.held = shape, held
        self._tile = tile
        self._device = arena.session.device
        self._store = arena.kernel("vbm3d/store_frames", {})

    def images(self, name: str):
        """Return the ring ``"noisy"`` or ``"basic"``: float32 (channels, images, pny, pitch)."""
        return self.held[f"{name} ring"]

    def guides(self, name: str):
        """Return the ring of the guides of these images: float32 (images, pny, pitch)."""
        return self.held[f"{name} guide ring"]

    def sums(self, name: str):
        """Return the ring of the sums of a pass: int32 (channels, sums, 2, pny, pitch)."""
        return self.held[f"{name} sums"]

    def store(self, queue, ring, pixels: Pixels, first: int, launches: Launches) -> None:
        """Enqueue the storing of frames, the first one of time `first`, in a ring of images."""
        i32, shape, held = np.int32, self.shape, pixels.tile
        count = held.t.size
        down = shape.margin + held.y.start - self._tile.y.source_start
        right = shape.margin + held.x.start - self._tile.x.source_start
        launch = self._store(
            queue,
            *pixel_grid(self._device, shape.pitch, shape.pny, held.channels * count),
            *(pixels.buffer, i32(count), i32(held.y.size), i32(held.x.size)),
            *(ring, i32(shape.images), i32(first % shape.images)),
            *(i32(shape.pny), i32(shape.pitch), i32(down), i32(right)),
        )
        launches.append(("store", launch))

    def clear(self, queue, name: str, first: int, stop: int, launches: Launches) -> None:
        """Enqueue the zeroing of the sums of a pass, for frames from `first` to `stop`."""
        import pyopencl as cl

        shape, sums = self.shape, self.sums(name)
        frame = 8 * shape.plane
        while first < stop:
            slot = first % shape.sums
            count = min(stop - first, shape.sums - slot)
            for c in range(self._tile.channels):
                offset = (c * shape.sums + slot) * frame
                event = cl.enqueue_fill_buffer(queue, sums, np.int32(0), offset, count * frame)
                launches.append(("clear", event))
            first += count


def ring_buffers(
    shape: RingShape, channels: int, images: Iterable[str], passes: Iterable[str], guided: bool
) -> Sizes:
    """Return the rings of images and of the sums of passes; with `guided` those of guides, too."""
    image = 4 * shape.images * shape.plane
    sizes = {f"{name} ring": channels * image for name in images}
    if guided:
        sizes |= {f"{name} guide ring": image for name in images}
    return sizes | {f"{name} sums": 8 * channels * shape.sums * shape.plane for name in passes}
