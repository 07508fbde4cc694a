"""How many frames are taken at once, and how large they may be."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from flows import work_of
from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.filters import VBM3D, NLMeans
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session, session
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


def video(settings, device, ny: int, nx: int, limit: int | None = None, is_map: bool = False):
    """Return the work of filtering five frames of so many pixels."""
    image = np.broadcast_to(np.float32(0), (5, 1, ny, nx))
    sigma = np.broadcast_to(np.linspace(1, 9, nx), (ny, nx)) if is_map else 20.0
    work = work_of(image, image, settings, Session(device, None), sigma, "TCYX")
    return dataclasses.replace(work, memory_limit=limit)


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
    settings = SETTINGS[name]
    one = plan(settings)
    each = bytes_per_pixel(one, settings, is_map=is_map)

    def budget(device=gpu, limit=None, videos=1):
        work = video(settings, device, 4000, 5000, limit, is_map)
        return frame_budget(one, work, videos)

    assert budget() == (4 * GB, min(int(4 * GB / each), 4000 * 5000))
    assert budget(limit=1 << 30) == (1 << 30, int((1 << 30) / each))
    # Videos that are filtered at once share it.
    assert budget(limit=1 << 30, videos=4)[1] == int((1 << 28) / each)
    small = dataclasses.replace(gpu, max_alloc=16 << 20)
    assert budget(small)[1] == int((32 << 20) / each)


@pytest.mark.parametrize("videos", [1, 3])
def test_a_limit_that_is_too_little_says_how_much_is_needed(gpu, plan, videos):
    settings = SETTINGS["vbm3d"]
    one, work = plan(settings), video(settings, gpu, 400, 500)
    each, smallest = bytes_per_pixel(one, settings), smallest_tile(work)
    needed = math.ceil(smallest * each) * videos
    with pytest.raises(DeviceMemoryError, match=f"at least {needed}"):
        frame_budget(one, dataclasses.replace(work, memory_limit=needed - 1), videos)
    _, pixels = frame_budget(one, dataclasses.replace(work, memory_limit=needed), videos)
    assert pixels >= smallest
    # A frame that is smaller needs less.
    frame_budget(one, video(settings, gpu, 10, 10, math.ceil(100 * each)))
