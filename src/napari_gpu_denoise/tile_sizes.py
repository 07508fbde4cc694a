"""How large tiles may be: the memory they take, the time, and what their margins cost."""

from __future__ import annotations

import math
from typing import Protocol

from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.tiles import Reach

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


class Cost(Protocol):
    """What a filter tells of itself, for its tiles to get a size.

    Attributes
    ----------
    reach : Reach
        How far around a pixel the filter looks.
    bytes_per_pixel, operations_per_pixel : float
        Device memory, beside input and output, and arithmetic that a pixel of a tile needs; joined
        channels count as pixels of their own.
    operations_per_launch : float
        The same for the longest of the launches that a tile takes.
    """

    reach: Reach
    bytes_per_pixel: float
    operations_per_pixel: float
    operations_per_launch: float


def bytes_per_pixel(settings: Cost, is_map: bool = False) -> float:
    """Return how many bytes of device memory a pixel of a tile needs, input and output included.

    Two tiles are in flight; where sigma is a map, with their part of it.
    """
    return settings.bytes_per_pixel + (24 if is_map else 16)


def tile_pixels(
    settings: Cost,
    device: Device,
    pixels: int,
    memory_limit: int | None = None,
    channels: int = 1,
    is_map: bool = False,
) -> int:
    """Return how many pixels a tile may read.

    Parameters
    ----------
    settings : Cost
        Tells memory a pixel, and reach.
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
    each = bytes_per_pixel(settings, is_map)
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
    limit = min(budget / each, device.max_alloc / max(settings.bytes_per_pixel, 4.0), largest)
    return max(int(limit), 1)


def _wide_tile(reach: Reach, channels: int, share: float) -> int:
    """Return how many pixels a tile needs to read for its margins to be no more than a share."""
    # A square of this side, less its margins, holds all but the allowed share of its pixels.
    shrink = 1 - math.sqrt(1 - share)
    square = sum(reach.y) * sum(reach.x) / shrink**2
    return math.ceil(channels * (1 + sum(reach.t)) * (1 + sum(reach.z)) * square)


def tile_yield(settings: Cost, device: Device) -> int:
    """Return how many pixels a tile may yield, so that its launches take no longer than they may.

    Parameters
    ----------
    settings : Cost
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
