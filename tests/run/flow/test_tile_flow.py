"""Tiles through a device: memory that runs out, events for timing, tile sizes."""

from __future__ import annotations

import itertools
import math
import threading
from contextlib import closing

import numpy as np
import pytest

from flows import Remembered, part_steps, tiled, work_of
from frames_over_time import posing_as_gpu
from napari_gpu_denoise import denoise
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.memory import Arena, borrow, release_memory
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.run.flow.tile_flow import TileFlow
from napari_gpu_denoise.run.progress import Step
from scenes import bytes_per_pixel, noisy, small

KIND = FILTERS[0]


def steps_of(image, settings, device, out=None, **options):
    out = np.empty_like(image) if out is None else out
    steps, _ = part_steps(image, settings, device, out, **options)
    return out, steps


def test_smaller_tiles_are_tried_when_memory_runs_out(device, small_device):
    image, settings = noisy(200, 210), small(KIND)
    expected, steps = steps_of(image, settings, device)
    assert steps[-1] == Step(1, 1)
    small_device(300_000)
    out, steps = steps_of(image, settings, device)
    assert steps[0] == Step(0, 1)
    total = steps[-1].total
    assert total > 1
    assert steps[-1].done == total
    np.testing.assert_array_equal(out, expected)


def test_a_memory_limit_bounds_the_buffers(device):
    image, settings = noisy(300, 310), small(KIND)
    limit = math.ceil(20000 * bytes_per_pixel(settings))
    release_memory()
    out, steps = steps_of(image, settings, device, memory_limit=limit)
    assert steps[-1].total > 3
    with borrow(session(device)) as arena:
        # Padding of rows comes on top of what a pixel needs.
        assert 0 < arena.nbytes < 1.6 * limit
    expected, _ = steps_of(image, settings, device)
    np.testing.assert_array_equal(out, expected)


@pytest.fixture
def posing(device):
    """A session of a device that is taken for a GPU: three queues, two slots, a writer."""
    return posing_as_gpu(device)


@pytest.mark.parametrize("late", ["up", "compute"])
def test_what_a_late_tile_reads_is_not_overwritten(posing, device, late):
    import pyopencl as cl

    image, settings = noisy(3, 60, 71), small(KIND)
    out = np.empty_like(image)
    work = work_of(image, out, settings, posing, axes=".YX")
    with borrow(posing) as arena, closing(tiled(work, arena, 60 * 71)) as flow:
        assert len(flow.tiles) == 3
        flow.run()
        out[:] = 0
        # The device begins anew when the host has had time for all tiles; nothing is built by now.
        gate = cl.UserEvent(posing.context)
        cl.enqueue_barrier(getattr(flow.queues, late), wait_for=[gate])
        opened = threading.Timer(0.3, gate.set_status, [cl.command_execution_status.COMPLETE])
        opened.start()
        flow.run()
        opened.join()
    np.testing.assert_array_equal(out, denoise(image, settings, 20, device=device).image)


@pytest.mark.parametrize("how", ["cancelled", "failing"])
def test_memory_goes_only_when_nothing_is_written_any_more(posing, monkeypatch, how):
    write, free = TileFlow._write, Arena.free
    numbers, writing, freed = itertools.count(), [], []
    begun, go_on = threading.Event(), threading.Event()

    def slow(self, *given):
        number = next(numbers)
        writing.append(number)
        if how == "cancelled" and number:
            begun.set()
            assert go_on.wait(60)
        clipped = write(self, *given)
        writing.remove(number)
        if how == "failing":
            raise OSError("the disk is full")
        return clipped

    def watched(self):
        freed.append(list(writing))
        free(self)

    monkeypatch.setattr(TileFlow, "_write", slow)
    monkeypatch.setattr(Arena, "free", watched)
    image, settings = noisy(8, 64, 64), small(KIND)
    out = np.empty_like(image)
    limit = math.ceil(4096 * bytes_per_pixel(settings))

    def stops() -> bool:
        if len(told.steps) < 2:
            return False
        assert begun.wait(60)  # the second tile is being written
        threading.Timer(0.05, go_on.set).start()
        return True

    told = Remembered()
    told.stopped = told.stopped if how == "failing" else stops
    options = {"axes": ".YX", "memory_limit": limit, "told": told}
    with pytest.raises(OSError if how == "failing" else Cancelled):
        part_steps(image, settings, posing.device, out, **options)
    assert told.steps[:2] == [Step(0, 8), Step(1, 8)][: len(told.steps)]
    assert freed == [[]]
    assert not [t for t in threading.enumerate() if t.name.startswith("tiles out")]


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
