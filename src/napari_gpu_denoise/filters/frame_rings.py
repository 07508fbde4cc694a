"""The frames of a video that are still looked at, and what groups took away, in rings on a device.

Frame t lies in slot t modulo the length of its ring.
"""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.filters.group_filter import Pixels
from napari_gpu_denoise.filters.predictive_search import RingShape
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Tile


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
    """

    def __init__(self, arena: Arena, shape: RingShape, tile: Tile):
        self.shape = shape
        self._arena, self._tile = arena, tile
        self._store = arena.kernel("vbm3d/store_frames", {})

    def images(self, name: str):
        """Return the ring of some images: float32, (channels, images, pny, pitch)."""
        return self._images(f"{name} ring", self._tile.channels)

    def guides(self, name: str):
        """Return the ring of what is searched in place of them: float32, (images, pny, pitch)."""
        return self._images(f"{name} guide ring", 1)

    def sums(self, name: str):
        """Return the ring of the sums of a pass: int32, (channels, sums, 2, pny, pitch)."""
        nbytes = 8 * self._tile.channels * self.shape.sums * self.shape.plane
        return self._arena.buffer(f"{name} sums", nbytes)

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
            (shape.pitch, shape.pny, held.channels * count),
            None,
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

    def _images(self, name: str, channels: int):
        return self._arena.buffer(name, 4 * channels * self.shape.images * self.shape.plane)
