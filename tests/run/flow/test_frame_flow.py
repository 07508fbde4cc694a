"""The frames of one video through a device: reading ahead, memory that runs out, what is noted."""

from __future__ import annotations

import math
import threading
from contextlib import closing, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from flows import Remembered, work_of
from frames_over_time import SETTINGS, eventful, executed, posing_as_gpu, steps_of
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.filters import VBM3D
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.memory import Arena, borrow, release_memory
from napari_gpu_denoise.protocol.plan import FrameNote, FramePlan
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow, note_frames
from napari_gpu_denoise.run.flow.work import Stages
from scenes import bytes_per_pixel, noisy


def flow_over(stack, settings, held, arena, batch, **options):
    """Return a flow over frames, how it reads them, how it writes them, and what came out."""
    ny, nx = stack.shape[1:]
    tile = Tile(0, *map(Span.whole, (1, 1, ny, nx)))
    work, out, asked = work_of(stack, np.empty_like(stack), settings, held, axes="TYX"), {}, []
    stages = Stages.of(FramePlan, work, arena)

    def read(t, host):
        asked.append(t)
        notes = []
        for k in range(min(host.shape[1], len(stack) - t)):
            host[0, k, 0] = stack[t + k]
            noise = [(np.array([20.0]), np.zeros(1, np.int32))]
            notes += note_frames([stack[t + k][None, None]], noise, work.levels, VBM3D())
        return notes

    def write(t, values, clipped):
        assert clipped is None
        for k in range(values.shape[1]):
            assert t + k not in out
            out[t + k] = values[0, k, 0].copy()

    return FrameFlow(work, arena, stages, tile, batch, **options), read, write, out, asked


@pytest.mark.parametrize("name", ["vbm3d 1+1", "vbm3d causal", "nl_means 2+1"])
def test_tables_are_sent_where_they_change(flowing, name):
    """A driver may wait for the device wherever a few bytes are copied."""
    stack, sent = noisy(24, 32, 36), []
    for frames in (stack[:12], stack):
        with borrow(flowing) as arena:
            flow, read, write, *_ = flow_over(
                frames, SETTINGS[name], flowing, arena, 1, profiling=True
            )
            list(flow.run(read, write))
            flow.close()
        sent.append([event for event, _ in flow.events if event.endswith("tables")])
    assert sent[0] == sent[1] != []


def test_frames_are_read_ahead_and_what_fails_there_passes_on(device):
    stack, settings = eventful(12, 32, 36), SETTINGS["vbm3d 1+1"]
    held, threads = posing_as_gpu(device), set()
    expected = executed(stack, settings, held)
    for broken in (False, True):
        with borrow(held) as arena:
            flow, fill, write, out, asked = flow_over(stack, settings, held, arena, 2, ahead=True)

            def read(t, host, fill=fill, broken=broken):
                threads.add(threading.current_thread().name)
                if broken and t == 6:
                    raise OSError("the disk is gone")
                return fill(t, host)

            with closing(flow), pytest.raises(OSError) if broken else nullcontext():
                list(flow.run(read, write))
            assert asked == list(range(0, 6 if broken else 13, 2))
        for t, frame in out.items():
            np.testing.assert_array_equal(frame, expected[t])
    assert threads == {"frames in_0"}
    assert not threads & {thread.name for thread in threading.enumerate()}


def part_limit(settings, columns: int) -> int:
    """Return a memory limit that cuts frames of so many columns in parts."""
    # The smallest part reads 1.5 times the reach; there may be a map of sigma besides.
    rows = max(sum(settings.reach.y) + 60, math.ceil(1.75 * sum(settings.reach.y)))
    return math.ceil(rows * columns * bytes_per_pixel(settings))


# What is left behind, and little memory


@pytest.mark.parametrize("name", ["vbm3d 1+1", "vbm3d 4+4", "nl_means 2+1"])
def test_leaving_early_frees_the_device(flowing, arenas, name):
    image, settings = eventful(20, 2, 48, 52), SETTINGS[name]
    threads = set(threading.enumerate())
    release_memory()
    for count in (1, 2, 4):
        options = {"axes": "TZYX", "told": Remembered(count)}
        with pytest.raises(Cancelled):
            steps_of(image, settings, flowing, np.empty_like(image), **options)
        assert sum(arena.nbytes for arena in arenas) == 0
        assert set(threading.enumerate()) <= threads
        assert not flowing.turn.locked()


@pytest.mark.parametrize("name", ["vbm3d 1+1", "nl_means 2+1"])
def test_smaller_parts_are_tried_when_memory_runs_out(flowing, small_device, name):
    settings = SETTINGS[name]
    image = noisy(5, 200, 210) + 80
    expected = executed(image.astype(np.float32), settings, flowing)
    # Not enough for a frame, but for the smallest part, which has less than two thirds of it.
    frame = Tile(0, *map(Span.whole, (1, 1, 200, 210)))
    small_device(0.8 * max(settings.plan(Arena(flowing)).buffers(frame, 1).values()))
    out = np.zeros(image.shape, np.uint8)
    done, tally = steps_of(image, settings, flowing, out, dtype="uint8")
    assert done[0].total == 5 < done[-1].total == done[-1].done
    np.testing.assert_array_equal(out, np.clip(np.rint(expected), 0, 255))
    # What a part had clipped before memory ran out is not counted twice.
    assert tally.saturated == np.count_nonzero(np.rint(expected) > 255) > 0


@pytest.mark.parametrize("name", SETTINGS)
def test_a_memory_limit_bounds_the_buffers(flowing, name):
    settings = SETTINGS[name]
    image = noisy(6, max(400, 2 * sum(settings.reach.y)), 300)
    limit = part_limit(settings, 300)
    release_memory()
    executed(image, settings, flowing, memory_limit=limit)
    with borrow(flowing) as arena:
        # Padding of frames comes on top of what a pixel needs.
        assert 0 < arena.nbytes < 1.6 * limit


LEVELS = Levels(0, 1.0)


def note_of(*planes, sigma=12.0, levels=LEVELS, brightness=True, whole=False) -> FrameNote:
    """Return the note of a frame of these channels."""
    sigma = np.broadcast_to(sigma, sum(map(len, planes)))
    compared = SimpleNamespace(compares_brightness=brightness, whole_volumes=whole)
    noise = [(sigma, np.zeros(len(planes), np.int32))]
    (note,) = note_frames([plane[None] for plane in planes], noise, levels, compared)
    return note


@pytest.mark.parametrize("brightness", [False, True])
def test_a_frame_without_noise_or_of_one_level_is_empty(brightness):
    for sigma in ((0.0,), (0.0, 0.0), (0.0, 3.0)):
        assert FrameNote(np.array(sigma)).empty == (not any(sigma))
    flat = np.full((1, 40, 44), 3.0)
    for level in (0, 117.25, np.nan):
        note = note_of(np.full_like(flat, level), flat, brightness=brightness)
        # NaN equals nothing, itself included.
        assert note.empty == (level == level)
        if note.empty:
            assert note.means is None and note.sigma.shape == (2,)
    # One pixel that differs makes a frame of it, be it of another channel.
    for place in ((0, 0), (17, 23), (39, 43), (8, 9)):
        spotted = np.full((1, 40, 44), 7, np.uint8)
        spotted[0][place] += 1
        assert not note_of(spotted, brightness=brightness).empty
        assert not note_of(np.full_like(spotted, 7), spotted, brightness=brightness).empty


def test_brightness_is_compared_of_planes_and_of_whole_volumes():
    volume, flat = noisy(3, 64, 64), np.full((3, 64, 64), 7.0)
    # A run may see some of the slices of a volume only.
    part = note_of(volume, sigma=(12.0, 0.0, 9.0))
    assert part.means is None
    np.testing.assert_array_equal(part.sigma, (12.0, 0.0, 9.0))
    assert not note_of(flat).empty
    whole = note_of(volume, whole=True)
    planes = [note_of(plane[None]) for plane in volume]
    np.testing.assert_allclose(whole.means, np.mean([plane.means for plane in planes], axis=0))
    assert whole.block_pixels == 3 * planes[0].block_pixels
    assert note_of(flat, whole=True).empty
