"""Tiles through a device: memory that runs out, events for timing, tile sizes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from napari_gpu_denoise import denoise
from napari_gpu_denoise.axes import Levels, arrange
from napari_gpu_denoise.errors import DeviceMemoryError, KernelError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl import memory
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors, release_memory
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.pipeline import Pipeline, Progress, execute, tile_pixels, tile_yield
from napari_gpu_denoise.tiles import Span, split
from scenes import joining, noisy, small

KIND = FILTERS[0]


def steps_of(image, settings, device, out=None, **options):
    out = np.empty_like(image) if out is None else out
    source, target = arrange(image, "YX"), arrange(out, "YX")
    steps = execute(source, target, Levels.of(image), settings, (20.0,), session(device), **options)
    return out, list(steps)


@pytest.fixture
def small_device(monkeypatch):
    """Give a limit to the size of a buffer, as a device with little memory has."""

    def limit(nbytes):
        plain = Arena.buffer

        def buffer(self, name, wanted):
            # More than the device can have: it refuses, as when its memory is full.
            return plain(self, name, 1 << 60 if wanted > nbytes else wanted)

        release_memory()
        monkeypatch.setattr(Arena, "buffer", buffer)

    return limit


def test_smaller_tiles_are_tried_when_memory_runs_out(device, small_device):
    image, settings = noisy(200, 210), small(KIND)
    expected, steps = steps_of(image, settings, device)
    assert steps[-1] == Progress(1, 1)
    small_device(300_000)
    out, steps = steps_of(image, settings, device)
    assert steps[0] == Progress(0, 1)
    total = steps[-1].total
    assert total > 1
    assert steps[-1].done == total
    np.testing.assert_array_equal(out, expected)


def test_too_little_memory_for_any_tile_is_an_error_with_a_sentence(device, small_device):
    small_device(1000)
    with pytest.raises(DeviceMemoryError, match="too little free memory even for tiles of"):
        steps_of(noisy(200, 210), small(KIND), device)


def test_other_opencl_errors_name_the_device(device):
    import pyopencl as cl

    with (
        pytest.raises(KernelError, match=r"failed while running a kernel.*driver"),
        device_errors(session(device)),
    ):
        raise cl.RuntimeError("clEnqueueNDRangeKernel", -5, "INVALID_KERNEL_ARGS")


def test_a_memory_limit_bounds_the_buffers(device):
    image, settings = noisy(300, 310), small(KIND)
    limit = math.ceil(20000 * (settings.bytes_per_pixel + 16))
    release_memory()
    out, steps = steps_of(image, settings, device, memory_limit=limit)
    assert steps[-1].total > 3
    with borrow(session(device)) as arena:
        # Padding of rows comes on top of what a pixel needs.
        assert 0 < arena.nbytes < 1.6 * limit
    expected, _ = steps_of(image, settings, device)
    np.testing.assert_array_equal(out, expected)


def test_a_part_comes_out_as_in_the_whole(device):
    image = noisy(4, 60, 64)
    settings = joining(KIND, "T")
    expected = denoise(image, settings, 20, axes="TYX", device=device).image
    reach = settings.reach
    spans = {"T": (1, 3, 4), "Y": (13, 37, 60), "X": (31, 64, 64)}
    part = {}
    for a, (start, stop, length) in spans.items():
        before, after = getattr(reach, a.lower())
        part[a] = Span(start, stop, max(start - before, 0), min(stop + after, length), length)
    t, y, x = part.values()
    held = image[
        t.source_start : t.source_stop,
        y.source_start : y.source_stop,
        x.source_start : x.source_stop,
    ]
    out = np.empty((2, 24, 33), np.float32)
    steps = execute(
        arrange(held, "TYX", "T", (t.source_start, 0, y.source_start, x.source_start)),
        arrange(out, "TYX", "T", (t.start, 0, y.start, x.start)),
        Levels.of(image),
        settings,
        (20.0,),
        session(device),
        part=(t, Span.whole(1), y, x),
    )
    list(steps)
    np.testing.assert_array_equal(out, expected[1:3, 13:37, 31:64])


def test_profiling_names_every_launch(device):
    image, settings = noisy(50, 60), small(KIND)
    chosen = session(device)
    out = np.empty_like(image)
    tiles = split((1, 1, 1, 50, 60), settings.reach, 1500)
    with borrow(chosen) as arena:
        pipeline = Pipeline(chosen, arena, settings, profiling=True)
        run = pipeline.run(
            tiles, arrange(image, "YX"), arrange(out, "YX"), Levels.of(image), np.array([20.0])
        )
        assert list(run) == list(range(1, len(tiles) + 1))
        pipeline.drain()
        names = [name for name, _ in pipeline.events]
        assert names.count("upload") == names.count("download") == len(tiles) > 1
        for _, event in pipeline.events:
            assert event.profile.end >= event.profile.start > 0
    np.testing.assert_array_equal(out, denoise(image, settings, 20, device=device).image)


def test_buffers_are_kept_between_runs_and_freed_on_request(device):
    release_memory()
    image, settings = noisy(50, 60), small(KIND)
    steps_of(image, settings, device)
    with borrow(session(device)) as first:
        assert first.nbytes > 0
    steps_of(image, settings, device)
    with borrow(session(device)) as second:
        assert second is first
    release_memory()
    assert first.nbytes == 0
    with borrow(session(device)) as third:
        assert third is not first


def test_buffers_are_freed_after_an_error(device):
    release_memory()
    with pytest.raises(ZeroDivisionError), borrow(session(device)) as arena:
        arena.buffer("one", 1000)
        assert arena.nbytes >= 1000
        raise ZeroDivisionError
    assert arena.nbytes == 0


def test_large_buffers_are_not_kept(device, monkeypatch):
    monkeypatch.setattr(memory, "_KEEP_BYTES", 1000)
    with borrow(session(device)) as arena:
        arena.buffer("one", 5000)
    assert arena.nbytes == 0


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
    pixels = 4608 * 3456
    each = settings.bytes_per_pixel + 16
    assert tile_pixels(settings, gpu, pixels) * each <= 24 * pixels
    assert tile_pixels(settings, gpu, pixels, 1 << 20) * each <= 1 << 20
    little = dataclasses.replace(gpu, memory=256 << 20, max_alloc=64 << 20)
    assert tile_pixels(settings, little, pixels) * each <= 128 << 20
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
    shape = (1, 10 if "T" in axes else 1, 10 if "Z" in axes else 1, 700, 800)
    pixels = tile_pixels(heavy, slow, math.prod(shape))
    tiles = split(shape, heavy.reach, pixels, max_yield=tile_yield(heavy, slow))
    assert max(math.prod(tile.shape) for tile in tiles) <= tile_yield(heavy, slow)
    assert min(math.prod(tile.shape) for tile in tiles) > 1000
    # What is read beside what is yielded costs far less than the search itself.
    assert sum(math.prod(tile.source_shape) for tile in tiles) < 100 * math.prod(shape)
