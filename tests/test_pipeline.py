"""Tiles through a device: memory that runs out, events for timing, tile sizes."""

from __future__ import annotations

import dataclasses
import math
import threading
import time

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
from napari_gpu_denoise.transfer import Receiver
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


@pytest.fixture
def posing(device):
    """A session of a device that is taken for a GPU: three queues, two slots, a writer."""
    import pyopencl as cl

    gpu = dataclasses.replace(device, kind="discrete GPU")
    return Session(gpu, cl.Context([device.handle]))


@pytest.mark.parametrize("pixels", [3000, 20000])
@pytest.mark.parametrize("sigma", [20.0, "planes", "map"])
def test_two_tiles_in_flight_have_each_their_own_sigma(posing, device, sigma, pixels):
    image, settings = noisy(6, 93, 71), small(KIND)
    if sigma == "planes":
        sigma = np.array([5.0, 20.0, 40.0, 1.0, 30.0, 10.0])[:, None, None]
    elif sigma == "map":
        sigma = np.linspace(1, 30, 93)[:, None] * np.ones((93, 71))
    out = np.empty_like(image)
    source, target = arrange(image, "TYX"), arrange(out, "TYX")
    tiles = split(source.shape, settings.reach, pixels)
    assert len(tiles) > 5 or pixels == 20000
    with borrow(posing) as arena:
        pipeline = Pipeline(posing, arena, settings)
        # The second run is of another sigma, which the device must not take for the first.
        for given in (np.array(sigma)[..., ::-1, :] / 2 if np.ndim(sigma) else 3.0, sigma):
            spread = FrameSigma.of(given, image.shape, "TYX")
            for _ in pipeline.run(tiles, source, target, Levels.of(image), spread):
                pass
        pipeline.drain()
    given = np.squeeze(sigma)
    expected = denoise(image, settings, given, axes="TYX", device=device).image
    np.testing.assert_array_equal(out, expected)


def test_what_a_late_tile_reads_is_not_overwritten(posing, device):
    import pyopencl as cl

    image, settings = noisy(3, 60, 71), small(KIND)
    out = np.empty_like(image)
    source, target = arrange(image, ".YX"), arrange(out, ".YX")
    tiles = split(source.shape, settings.reach, 60 * 71)
    assert len(tiles) == 3
    with borrow(posing) as arena:
        pipeline = Pipeline(posing, arena, settings)
        sigma = FrameSigma.of(20.0, image.shape, ".YX")
        given = tiles, source, target, Levels.of(image), sigma
        list(pipeline.run(*given))
        out[:] = 0
        # The device begins anew when the host has had time for all tiles; nothing is built by now.
        gate = cl.UserEvent(posing.context)
        cl.enqueue_barrier(pipeline.compute, wait_for=[gate])
        opened = threading.Timer(0.3, gate.set_status, [cl.command_execution_status.COMPLETE])
        opened.start()
        list(pipeline.run(*given))
        pipeline.drain()
        opened.join()
    np.testing.assert_array_equal(out, denoise(image, settings, 20, device=device).image)


def test_a_map_is_sent_once_for_all_tiles_that_see_the_same_part(posing, monkeypatch):
    image, settings = noisy(12, 40, 40), small(KIND)
    sigma = FrameSigma.of(np.linspace(1, 30, 40) * np.ones((40, 1)), image.shape, "TYX")
    asked, variation = [], FrameSigma.variation
    monkeypatch.setattr(
        FrameSigma, "variation", lambda self, tile: asked.append(tile) or variation(self, tile)
    )
    out = np.empty_like(image)
    source, target = arrange(image, "TYX"), arrange(out, "TYX")
    for pixels, whole in ((2 * 1600, True), (1000, False)):
        tiles = split(source.shape, settings.reach, pixels)
        asked.clear()
        with borrow(posing) as arena:
            pipeline = Pipeline(posing, arena, settings)
            list(pipeline.run(tiles, source, target, Levels.of(image), sigma))
            pipeline.drain()
        assert len(tiles) == 6 if whole else len(tiles) > 12
        assert len(asked) == (2 if whole else len(tiles))  # two slots


@pytest.mark.parametrize("how", ["closed", "failing"])
def test_memory_goes_only_when_nothing_is_written_any_more(posing, monkeypatch, how):
    write, free = Receiver.write, Arena.free
    writers, freed = set(), []

    def slow(self, arriving):
        writers.add(threading.current_thread().name)
        time.sleep(0.05)
        clipped = write(self, arriving)
        writers.discard(threading.current_thread().name)
        if how == "failing":
            raise OSError("the disk is full")
        return clipped

    def watched(self):
        freed.append(set(writers))
        free(self)

    monkeypatch.setattr(Receiver, "write", slow)
    monkeypatch.setattr(Arena, "free", watched)
    image, settings = noisy(8, 64, 64), small(KIND)
    out = np.empty_like(image)
    sigma = FrameSigma.of(20.0, image.shape, ".YX")
    frames = arrange(image, ".YX"), arrange(out, ".YX")
    limit = math.ceil(4096 * (settings.bytes_per_pixel + 16))
    steps = execute(*frames, Levels.of(image), settings, sigma, posing, limit)
    assert next(steps) == Progress(0, 8)
    if how == "failing":
        with pytest.raises(OSError, match="the disk is full"):
            list(steps)
    else:
        assert next(steps) == Progress(1, 8)
        assert writers
        steps.close()
    assert freed == [set()]
    assert not [t for t in threading.enumerate() if t.name.startswith("tiles out")]


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
