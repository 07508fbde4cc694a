"""Sizes of tiles: what a device has room and time for, and what margins cost."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from flows import work_of
from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session, session
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import TilePlan
from napari_gpu_denoise.protocol.tiles import Reach, Tile, split
from napari_gpu_denoise.run.flow.tile_flow import tile_pixels, tile_yield
from napari_gpu_denoise.run.flow.work import Work
from scenes import joining

KIND = FILTERS[0]


class Declared(TilePlan):
    """A plan that needs so many bytes a pixel."""

    def __init__(self, nbytes: float):
        self.nbytes, self.arena = nbytes, SimpleNamespace(declared={})

    def buffers(self, tile: Tile, is_map: bool = False) -> dict[str, int]:
        return {"all": int(self.nbytes * tile.channels * math.prod(tile.source_shape))}

    def enqueue(self, queue, tile, source, out, sigma):
        raise AssertionError("nothing is run")


def looking(around: int) -> Filter:
    """Return a filter that looks so far around a pixel."""

    class Looking(Filter):
        reach = Reach(y=(around, around), x=(around, around))

    return Looking()


def work_on(device, settings, *shape: int, axes="YX") -> Work:
    """Return the work of filtering an image of a shape."""
    image = np.broadcast_to(np.float32(0), shape)
    return work_of(image, image, settings, Session(device, None), axes=axes)


def test_tiles_suit_the_device(device):
    settings = KIND()
    gpu = dataclasses.replace(
        device,
        kind="discrete GPU",
        memory=16 << 30,
        max_alloc=4 << 30,
        compute_units=100,
        clock=1500,
        vendor="NVIDIA",
    )
    plan, each = Declared(24.0), 24 + 16
    work = work_on(gpu, settings, 4608, 3456)
    assert tile_pixels(plan, work) * each <= 24 * 4608 * 3456
    assert tile_pixels(plan, dataclasses.replace(work, memory_limit=1 << 20)) * each <= 1 << 20
    little = dataclasses.replace(gpu, memory=256 << 20, max_alloc=64 << 20)
    assert tile_pixels(plan, work_on(little, settings, 4608, 3456)) * each <= 128 << 20
    slow = dataclasses.replace(gpu, compute_units=2, clock=600)
    assert tile_yield(settings, slow) < tile_yield(settings, gpu)
    hard = dataclasses.replace(KIND(), **({"window": 41} if hasattr(settings, "window") else {}))
    assert tile_yield(hard, slow) < tile_yield(settings, slow)


@pytest.mark.parametrize("axes", ["YX", "TYX", "ZYX"])
def test_heavy_work_on_a_slow_device_is_not_cut_to_crumbs(device, axes):
    slow = dataclasses.replace(
        device, kind="integrated GPU", compute_units=2, clock=600, memory=2 << 30, vendor="Intel"
    )
    heavy = joining(KIND, axes, patch=8, step=1, window=51)
    work = work_on(slow, heavy, *[10] * (len(axes) - 2), 700, 800, axes=axes)
    shape, plan = work.source.shape, heavy.plan(Arena(session(device)))
    pixels = tile_pixels(plan, work)
    tiles = split(shape, heavy.reach, pixels, max_yield=tile_yield(heavy, slow))
    assert max(math.prod(tile.shape) for tile in tiles) <= tile_yield(heavy, slow)
    assert min(math.prod(tile.shape) for tile in tiles) > 1000
    # What is read beside what is yielded costs far less than the search itself.
    assert sum(math.prod(tile.source_shape) for tile in tiles) < 100 * math.prod(shape)


@pytest.mark.parametrize("around", [5, 17, 45, 90])
def test_the_smallest_tiles_are_worth_their_margins(device, around):
    settings, plan = looking(around), Declared(24.0)
    work = work_on(device, settings, 3, 700, 800, axes=".YX")
    with pytest.raises(DeviceMemoryError) as raised:
        tile_pixels(plan, dataclasses.replace(work, memory_limit=1))
    limit = raised.value.values["needed"]
    pixels = tile_pixels(plan, dataclasses.replace(work, memory_limit=limit))
    tiles = split(work.source.shape, settings.reach, pixels)
    assert max(math.prod(tile.source_shape) for tile in tiles) <= pixels
    assert sum(math.prod(tile.source_shape) for tile in tiles) < 10 * 3 * 700 * 800
