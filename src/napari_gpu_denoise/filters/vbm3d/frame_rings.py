"""The frames of a video that are still looked at, and what groups took away, in rings on a device.

Frame t lies in slot t modulo the length of its ring.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from napari_gpu_denoise.filters.pixels import Pixels
from napari_gpu_denoise.filters.vbm3d.predictive_search import RingShape
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.work_items import pixel_grid
from napari_gpu_denoise.run.plan import Buffers, Sizes
from napari_gpu_denoise.run.tiles import Tile


class FrameRings:
    """Rings of padded frames on one device; belongs to one thread.

    Parameters
    ----------
    arena : Arena
        Keeps the buffers.
    shape : RingShape
        What the rings are like.
    tile : Tile
        What is read of each frame; it has the channels that are filtered.
    held : Buffers
        The rings, by name: float32 images ``"noisy ring"`` and ``"basic ring"`` of shape (channels,
        images, pny, pitch), what is searched in their place (``"noisy guide ring"``), and the
        sums of a pass, int32 of shape (channels, sums, 2, pny, pitch).
    """

    def __init__(self, arena: Arena, shape: RingShape, tile: Tile, held: Buffers):
        self.shape, self.held = shape, held
        self._tile = tile
        self._device = arena.session.device
        self._store = arena.kernel("vbm3d/store_frames", {})

    def images(self, name: str):
        """Return the ring of some images."""
        return self.held[f"{name} ring"]

    def guides(self, name: str):
        """Return the ring of what is searched in place of them."""
        return self.held[f"{name} guide ring"]

    def sums(self, name: str):
        """Return the ring of the sums of a pass."""
        return self.held[f"{name} sums"]

    def store(self, queue, ring, pixels: Pixels, first: int, launches: list) -> None:
        """Enqueue the storing of frames in a ring of images.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        ring : pyopencl.Buffer
            What `images` or `guides` returned.
        pixels : Pixels
            The frames: what a tile yields of them, as many as it yields along T.
        first : int
            Time of the first one.
        launches : list of (str, pyopencl.Event)
            Takes the launch.
        """
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

    def clear(self, queue, name: str, first: int, stop: int, launches: list) -> None:
        """Enqueue the setting to 0 of the sums of a pass, for frames from `first` to `stop`."""
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
    """Return the rings of some images and of the sums of some passes, in bytes by name.

    With `guided` an image of its own is searched in place of each image.
    """
    image = 4 * shape.images * shape.plane
    sizes = {f"{name} ring": channels * image for name in images}
    if guided:
        sizes |= {f"{name} guide ring": image for name in images}
    return sizes | {f"{name} sums": 8 * channels * shape.sums * shape.plane for name in passes}
