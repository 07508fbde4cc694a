"""How large tiles may be: the memory they take, the time, and what their margins cost."""

from __future__ import annotations

import math

from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.plan import FramePlan, Sizes, TilePlan
from napari_gpu_denoise.run.tiles import Reach, Span, Tile

# Pixels a tile reads at most. On a GPU a few tiles an image let transfers overlap with compute; on
# a CPU a tile is also how often progress moves and a cancel is heard.
_LARGEST_TILE = {"CPU": 1 << 18, "simulator": 1 << 16}
_LARGEST_GPU_TILE = 1 << 22
SMALLEST_TILE = 1 << 12

# A filter that looks far gets larger tiles than that, up to a limit, so that no more than this
# share of the pixels read are margins; on a CPU, where a tile is long work, more of them may be.
_MARGIN_SHARE = {"CPU": 0.4}
_GPU_MARGIN_SHARE = 0.1
_LARGEST_WIDE_TILE = 1 << 25

# Seconds a launch may take, far below what makes a display driver kill it.
_LAUNCH_SECONDS = 0.05

# Seconds a tile may take on a CPU: how long a cancel may go unheard.
_TILE_SECONDS = 0.25


# Side of the tile that tells how many bytes a pixel takes, and its frames or slices where others
# are looked at: large enough for what is padded around it to matter little.
_SIDE, _DEEP = 1024, 16


def bytes_per_pixel(
    plan: TilePlan | FramePlan, settings: Filter, channels: int = 1, is_map: bool = False
) -> float:
    """Return how many bytes of device memory a pixel of a tile needs, input and output included.

    It is what the plan declares for a large tile, over time for one frame at once. Two tiles are in
    flight; where sigma is a map, with their part of it.
    """
    buffers, pixels = _large(plan, settings, channels, is_map)
    return sum(buffers.values()) / pixels + (24 if is_map else 16)


def _large(plan, settings: Filter, channels: int, is_map: bool) -> tuple[Sizes, int]:
    """Return the buffers that a plan declares for a large tile, and the pixels of it."""
    known, key = plan.arena.declared, (settings, channels, is_map)
    if key not in known:
        known[key] = _declared(plan, settings, channels, is_map)
    return known[key]


def _declared(plan, settings: Filter, channels: int, is_map: bool) -> tuple[Sizes, int]:
    deep = any(settings.reach.t) and not settings.over_time, any(settings.reach.z)
    lengths = (_DEEP if one else 1 for one in deep)
    tile = Tile(0, *map(Span.whole, (*lengths, _SIDE, _SIDE)), channels)
    pixels = channels * math.prod(tile.source_shape)
    more = (1,) if settings.over_time else ()
    return plan.buffers(tile, *more, is_map=is_map), pixels


def tile_pixels(
    plan: TilePlan,
    settings: Filter,
    device: Device,
    pixels: int,
    memory_limit: int | None = None,
    channels: int = 1,
    is_map: bool = False,
) -> int:
    """Return how many pixels a tile may read.

    Parameters
    ----------
    plan : TilePlan
        Declares the memory.
    settings : Filter
        Tells how far it looks.
    device : Device
        Its kind and memory.
    pixels : int
        Size of the whole array: small work is not given large buffers.
    memory_limit : int, optional
        Bytes of device memory to stay within.
    channels : int, optional
        Joined channels: a tile holds them all, and each counts.
    is_map : bool, optional
        Whether sigma is a map.
    """
    each = bytes_per_pixel(plan, settings, channels, is_map)
    buffers, size = _large(plan, settings, channels, is_map)
    largest_buffer = max(*buffers.values(), 4 * size) / size if buffers else 4.0
    largest = _LARGEST_TILE.get(device.kind, _LARGEST_GPU_TILE)
    # Six images' worth of float32 beside the two copies in flight, and never a large share of the
    # device: other programs, the display first of all, live there too.
    budget = max(24 * pixels, 1 << 26)
    if device.kind != "simulator":
        share = _MARGIN_SHARE.get(device.kind, _GPU_MARGIN_SHARE)
        wide = min(_wide_tile(settings.reach, channels, share), _LARGEST_WIDE_TILE)
        largest = max(largest, wide)
        budget = max(budget, min(min(wide, pixels) * each, device.memory // 4))
    budget = min(budget, device.memory // 2)
    if memory_limit is not None:
        budget = min(budget, memory_limit)
    limit = min(budget / each, device.max_alloc / largest_buffer, largest)
    return max(int(limit), 1)


def check_limit(
    plan: TilePlan | FramePlan,
    settings: Filter,
    memory_limit: int | None,
    pixels: int,
    channels: int,
    is_map: bool,
    videos: int = 1,
) -> None:
    """Refuse a memory limit that leaves no room for the smallest tile.

    Parameters
    ----------
    plan, settings, memory_limit, channels, is_map
        As `tile_pixels` takes them.
    pixels : int
        Size of all that is to be cut into tiles.
    videos : int, optional
        How many are filtered at once.

    Raises
    ------
    DeviceMemoryError
    """
    each = bytes_per_pixel(plan, settings, channels, is_map)
    needed = math.ceil(min(SMALLEST_TILE, pixels) * each) * videos
    if memory_limit is not None and memory_limit < needed:
        part = "part" if settings.over_time else "tile"
        raise DeviceMemoryError(
            f"A memory limit of {memory_limit} bytes is too little for a {part} of this work",
            f"allow at least {needed}",
            code="memory-limit",
            needed=needed,
        )


def _wide_tile(reach: Reach, channels: int, share: float) -> int:
    """Return how many pixels a tile needs to read for its margins to be no more than a share."""
    # A square of this side, less its margins, holds all but the allowed share of its pixels.
    shrink = 1 - math.sqrt(1 - share)
    square = sum(reach.y) * sum(reach.x) / shrink**2
    return math.ceil(channels * (1 + sum(reach.t)) * (1 + sum(reach.z)) * square)


def tile_yield(settings: Filter, device: Device) -> int:
    """Return how many pixels a tile may yield, so that its launches take no longer than they may.

    Parameters
    ----------
    settings : Filter
        Tells operations a pixel.
    device : Device
        Its kind and speed.
    """
    # Operations a clock and unit: a tenth of the peak, what a poor driver reaches (Intel's GPUs
    # count small units); on a CPU, where no display waits, what is reached.
    seconds, per_clock = _LAUNCH_SECONDS, 1.6 if "intel" in device.vendor.lower() else 12.8
    operations, least = settings.operations_per_launch, SMALLEST_TILE
    if device.kind in _LARGEST_TILE:
        seconds, per_clock = _TILE_SECONDS, 4.0
        operations = settings.operations_per_pixel
    if device.kind in _MARGIN_SHARE:
        share = _MARGIN_SHARE[device.kind]
        least = max(least, int(_wide_tile(settings.reach, 1, share) * (1 - share)))
    speed = per_clock * device.compute_units * max(device.clock, 500) * 1e6
    return max(int(seconds * speed / operations), least)
