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
from napari_gpu_denoise.opencl.program import Session, session
from napari_gpu_denoise.pipeline import Pipeline, Progress, execute
from napari_gpu_denoise.sigma import FrameSigma
from napari_gpu_denoise.tiles import Span, split
from scenes import joining, noisy, small

KIND = FILTERS[0]


def steps_of(image, settings, device, out=None, **options):
    out = np.empty_like(image) if out is None else out
    source, target = arrange(image, "YX"), arrange(out, "YX")
    sigma = FrameSigma.of(20.0, image.shape, "YX")
    steps = execute(source, target, Levels.of(image), settings, sigma, session(device), **options)
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
    first = (t.source_start, 0, y.source_start, x.source_start)
    steps = execute(
        arrange(held, "TYX", "T", first),
        arrange(out, "TYX", "T", (t.start, 0, y.start, x.start)),
        Levels.of(image),
        settings,
        FrameSigma.of(20.0, held.shape, "TYX", "T", first),
        session(device),
        part=(t, Span.whole(1), y, x),
    )
    list(steps)
    np.testing.assert_array_equal(out, expected[1:3, 13:37, 31:64])


@pytest.mark.parametrize("sigma", [20.0, "planes", "map"])
def test_two_tiles_in_flight_have_each_their_own_sigma(device, sigma):
    import pyopencl as cl

    # A device that is taken for a GPU gets three queues and two slots.
    posing = dataclasses.replace(device, kind="discrete GPU")
    chosen = Session(posing, cl.Context([device.handle]))
    image, settings = noisy(3, 93, 71), small(KIND)
    if sigma == "planes":
        sigma = np.array([5.0, 20.0, 40.0])[:, None, None]
    elif sigma == "map":
        sigma = np.linspace(1, 30, 93)[:, None] * np.ones((93, 71))
    out = np.empty_like(image)
    source, target = arrange(image, "TYX"), arrange(out, "TYX")
    tiles = split(source.shape, settings.reach, 3000)
    assert len(tiles) > 5
    with borrow(chosen) as arena:
        pipeline = Pipeline(chosen, arena, settings)
        spread = FrameSigma.of(sigma, image.shape, "TYX")
        for _ in pipeline.run(tiles, source, target, Levels.of(image), spread):
            pass
        pipeline.drain()
    given = np.squeeze(sigma)
    expected = denoise(image, settings, given, axes="TYX", device=device).image
    np.testing.assert_array_equal(out, expected)


def test_profiling_names_every_launch(device):
    image, settings = noisy(50, 60), small(KIND)
    chosen = session(device)
    out = np.empty_like(image)
    tiles = split((1, 1, 1, 50, 60), settings.reach, 1500)
    with borrow(chosen) as arena:
        pipeline = Pipeline(chosen, arena, settings, profiling=True)
        source, target = arrange(image, "YX"), arrange(out, "YX")
        sigma = FrameSigma.of(20.0, image.shape, "YX")
        run = pipeline.run(tiles, source, target, Levels.of(image), sigma)
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
