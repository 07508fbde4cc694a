"""How many frames are taken at once, and how large they may be."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.filters import VBM3D, NLMeans
from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow.tile_flow import (
    bytes_per_pixel,
    frame_budget,
    frames_at_once,
    smallest_tile,
)

SETTINGS = {"vbm3d": VBM3D(), "nl_means": NLMeans(frames_before=2, frames_after=1)}
GB = 1 << 30


@pytest.fixture
def plan(device):
    """Return what makes the plan of a filter."""
    return lambda settings: settings.plan(Arena(session(device)))


@pytest.fixture
def gpu(device):
    """A graphics card with 8 GB of memory."""
    return dataclasses.replace(device, kind="discrete GPU", memory=8 * GB, max_alloc=2 * GB)


def frames(ny: int, nx: int, nt: int = 5, channels: int = 1):
    image = np.broadcast_to(np.float32(0), (nt, channels, ny, nx))
    return arrange(image, "TCYX", "CT")


def whole(ny: int, nx: int, channels: int = 1) -> Tile:
    return Tile(0, *map(Span.whole, (1, 1, ny, nx)), channels)


def test_no_ring_is_larger_than_a_buffer_may_be(gpu, plan):
    """Drivers refuse it, and a stream has no second time."""
    one = plan(VBM3D(frames_before=16, frames_after=16))
    tile = whole(256, 256)
    for megabytes in (22, 24, 28):
        small = dataclasses.replace(gpu, max_alloc=megabytes << 20)
        batch = frames_at_once(one, small, tile, gpu.memory // 2)
        assert max(one.buffers(tile, batch).values()) <= small.max_alloc
        assert batch < 16


@pytest.mark.parametrize("is_map", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_budget_is_half_the_memory_or_the_limit(gpu, plan, name, is_map):
    settings, image = SETTINGS[name], frames(4000, 5000)
    one = plan(settings)
    each = bytes_per_pixel(one, settings, is_map=is_map)
    budget, pixels = frame_budget(one, settings, gpu, image, None, is_map)
    assert (budget, pixels) == (4 * GB, min(int(4 * GB / each), 4000 * 5000))
    budget, pixels = frame_budget(one, settings, gpu, image, 1 << 30, is_map)
    assert (budget, pixels) == (1 << 30, int((1 << 30) / each))
    # Videos that are filtered at once share it.
    _, shared = frame_budget(one, settings, gpu, image, 1 << 30, is_map, videos=4)
    assert shared == int((1 << 28) / each)
    small = dataclasses.replace(gpu, max_alloc=16 << 20)
    _, pixels = frame_budget(one, settings, small, image, None, is_map)
    assert pixels == int((32 << 20) / each)


@pytest.mark.parametrize("videos", [1, 3])
def test_a_limit_that_is_too_little_says_how_much_is_needed(gpu, plan, videos):
    settings, image = SETTINGS["vbm3d"], frames(400, 500)
    one = plan(settings)
    each = bytes_per_pixel(one, settings)
    smallest = smallest_tile(settings, image)
    needed = math.ceil(smallest * each) * videos
    with pytest.raises(DeviceMemoryError, match=f"at least {needed}"):
        frame_budget(one, settings, gpu, image, needed - 1, False, videos)
    _, pixels = frame_budget(one, settings, gpu, image, needed, False, videos)
    assert pixels >= smallest
    # A frame that is smaller needs less.
    frame_budget(one, settings, gpu, frames(10, 10), math.ceil(100 * each), False)
