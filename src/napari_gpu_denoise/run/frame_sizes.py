"""How many frames of a video are taken at once, and how large they may be: by memory and work."""

from __future__ import annotations

import math

from napari_gpu_denoise.image.axes import Frames
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.plan import FramePlan
from napari_gpu_denoise.run.tile_sizes import bytes_per_pixel, check_limit, tile_yield
from napari_gpu_denoise.run.tiles import Reach, Span, Tile, split

# Pixels that a launch should be given, for small frames not to waste it, and most frames at once.
_BUSY = {"CPU": 1 << 16, "simulator": 1 << 14}
_BUSY_GPU = 1 << 23
_MOST_FRAMES = 16
# Memory that is not exceeded only to take more frames at once.
_MODEST_BYTES = 1 << 30


def frame_budget(
    plan: FramePlan,
    settings: Filter,
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
    each = bytes_per_pixel(plan, settings, source.joined, is_map)
    budget = device.memory // 2
    if memory_limit is not None:
        check_limit(plan, settings, memory_limit, frame, source.joined, is_map, videos)
        budget = min(budget, memory_limit)
    # No buffer holds more than half of what a filter needs.
    pixels = min(budget / videos / each, 2 * device.max_alloc / each, frame)
    return budget, int(pixels)


def spatial_tiles(
    settings: Filter, device: Device, whole: tuple[Span, Span, Span], channels: int, pixels: int
) -> list[Tile]:
    """Cut frames into parts that are filtered one after another, each through the whole time."""
    reach = Reach((0, 0), settings.reach.z, settings.reach.y, settings.reach.x)
    lengths = (1, 1, *(span.length for span in whole))
    one = (Span.whole(1), *whole)
    return split(lengths, reach, pixels, one, tile_yield(settings, device), channels)


def frames_at_once(plan: FramePlan, device: Device, tile: Tile, budget: int) -> int:
    """Return how many frames of this size are taken at once: small ones together."""
    pixels = tile.channels * math.prod(tile.source_shape[1:])
    busy = _BUSY.get(device.kind, _BUSY_GPU)
    batch = max(1, min(busy // pixels, _MOST_FRAMES))
    while batch > 1:
        buffers = plan.buffers(tile, batch).values()
        needed = sum(buffers) + 16 * batch * pixels
        if needed <= min(budget, _MODEST_BYTES) and max(buffers) <= device.max_alloc:
            break
        batch -= 1
    return batch
