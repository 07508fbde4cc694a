"""The frames of one video through a device: each is read and written once, in order."""

from __future__ import annotations

import threading
from contextlib import closing, nullcontext

import numpy as np
import pytest

from frames_over_time import SETTINGS, eventful, executed, posing_as_gpu
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.memory import borrow
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow, note_frame
from napari_gpu_denoise.run.flow.work import Stages


def flow_over(stack, settings, held, arena, batch, **options):
    """Return a flow over frames, how it reads them, how it writes them, and what came out."""
    ny, nx = stack.shape[1:]
    tile = Tile(0, *map(Span.whole, (1, 1, ny, nx)))
    levels, out, asked = Levels.of(stack), {}, []

    def read(t, host):
        asked.append(t)
        notes = []
        for k in range(min(host.shape[1], len(stack) - t)):
            host[0, k, 0] = stack[t + k]
            notes.append(
                note_frame([stack[t + k][None]], np.array([20.0]), levels, brightness=True)
            )
        return notes

    def write(t, values, clipped):
        assert clipped is None
        for k in range(values.shape[1]):
            assert t + k not in out
            out[t + k] = values[0, k, 0].copy()

    return (
        FrameFlow(held, arena, Stages(settings.plan(arena)), tile, batch, **options),
        read,
        write,
        out,
        asked,
    )


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_flow_reads_and_writes_each_frame_once_in_order(flowing, name, batch, prompt):
    stack, settings = eventful(10, 32, 36), SETTINGS[name]
    with borrow(flowing) as arena:
        flow, read, write, out, asked = flow_over(
            stack, settings, flowing, arena, batch, prompt=prompt
        )
        done = list(flow.run(read, write))
        flow.close()
    assert done == sorted(done) and done[-1] == 10
    assert list(out) == list(range(10))
    assert asked == sorted(set(asked))
    np.testing.assert_array_equal(list(out.values()), executed(stack, settings, flowing))


@pytest.mark.parametrize("name", SETTINGS)
def test_a_flow_may_begin_and_end_within(flowing, name):
    stack, settings = eventful(30, 32, 36), SETTINGS[name]
    expected = executed(stack, settings, flowing)
    start = settings.reach.t[0]
    for batch in (1, 4):
        with borrow(flowing) as arena:
            flow, read, write, out, asked = flow_over(stack, settings, flowing, arena, batch)
            done = list(flow.run(read, write, 3, 3 + start, 8 + start))
            # A flow may be run again.
            again = list(flow.run(read, write, 0, 0, 2))
            flow.close()
        assert done[-1] == 5 and again[-1] == 2
        assert asked[0] == 3
        assert list(out) == [*range(3 + start, 8 + start), 0, 1]
        for t, frame in out.items():
            np.testing.assert_array_equal(frame, expected[t])


def test_profiling_names_every_launch(device):
    import pyopencl as cl

    stack, settings = eventful(5, 32, 36), SETTINGS["vbm3d 1+1"]
    chosen = Session(device, cl.Context([device.handle]))
    with borrow(chosen) as arena:
        flow, read, write, out, _ = flow_over(stack, settings, chosen, arena, 2, profiling=True)
        list(flow.run(read, write))
        flow.close()
        names = [name for name, _ in flow.events]
        assert len(out) == 5
        assert names.count("upload") == names.count("download") == 3
        assert {"basic search", "basic shrink", "final join", "store"} <= set(names)
        for _, event in flow.events:
            assert event.profile.end >= event.profile.start > 0


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
