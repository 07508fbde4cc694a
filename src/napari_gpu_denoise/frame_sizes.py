"""How many frames of a video are taken at once, and how large they may be: by memory and work."""

from __future__ import annotations

import math
from typing import Protocol

from napari_gpu_denoise.axes import Frames
from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.tile_sizes import SMALLEST_TILE, Cost, bytes_per_pixel, tile_yield
from napari_gpu_denoise.tiles import Reach, Span, Tile, split

# Pixels that a launch should be given, for small frames not to waste it, and most frames at once.
_BUSY = {"CPU": 1 << 16, "simulator": 1 << 14}
_BUSY_GPU = 1 << 23
_MOST_FRAMES = 16
# Memory that is not exceeded only to take more frames at once.
_MODEST_BYTES = 1 << 30


class FrameCost(Cost, Protocol):
    """What a filter over time tells of itself besides."""

    def frame_bytes(self, batch: int) -> float:
        """Return device bytes a pixel of a frame, beside input and output, for a batch of them."""


def frame_budget(
    settings: Cost,
    device: Device,
    source: Frames,
    memory_limit: int | None,
    is_map: bool,
    videos: int = 1,
) -> tuple[int, int]:
    """Return how many bytes of device memory may be used, and for how many pixels of a frame.

    `videos` are filtered at once.

    Raises
    ------
    DeviceMemoryError
        If `memory_limit` is too little.
    """
    frame = source.joined * math.prod(source.shape[2:])
    each = bytes_per_pixel(settings, is_map)
    budget = device.memory // 2
    if memory_limit is not None:
        needed = math.ceil(min(SMALLEST_TILE, frame) * each) * videos
        if memory_limit < needed:
            raise DeviceMemoryError(
                f"A memory limit of {memory_limit} bytes is too little for a part of this work: "
                f"allow at least {needed}."
            )
        budget = min(budget, memory_limit)
    # No buffer holds more than half of what a filter needs.
    pixels = min(budget / videos / each, 2 * device.max_alloc / each, frame)
    return budget, int(pixels)


def spatial_tiles(
    settings: Cost, device: Device, whole: tuple[Span, Span, Span], channels: int, pixels: int
) -> list[Tile]:
    """Cut frames into parts that are filtered one after another, each through the whole time."""
    reach = Reach((0, 0), settings.reach.z, settings.reach.y, settings.reach.x)
    lengths = (1, 1, *(span.length for span in whole))
    one = (Span.whole(1), *whole)
    return split(lengths, reach, pixels, one, tile_yield(settings, device), channels)


def frames_at_once(settings: FrameCost, device: Device, tile: Tile, budget: int) -> int:
    """Return how many frames of this size are taken at once: small ones together."""
    pixels = tile.channels * math.prod(tile.source_shape[1:])
    busy = _BUSY.get(device.kind, _BUSY_GPU)
    batch = max(1, min(busy // pixels, _MOST_FRAMES))
    # As in `frame_budget`, no buffer holds more than half.
    limit = min(budget, _MODEST_BYTES, 2 * device.max_alloc)
    while batch > 1 and (settings.frame_bytes(batch) + 16 * batch) * pixels > limit:
        batch -= 1
    return batch
