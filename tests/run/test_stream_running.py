"""A stream while it runs: what it asks for and when, what it holds, and what it leaves behind."""

from __future__ import annotations

import itertools
import threading
import time
import weakref

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.filters import VBM3D, NLMeans
from napari_gpu_denoise.opencl.memory import Arena, release_memory
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.run import stream as streams
from napari_gpu_denoise.run.stream import StreamFrame
from scenes import noisy, small
from streams import SETTINGS, SHAPES, streamed, whole

CAUSAL = {
    "vbm3d": small(VBM3D, frames_before=3, frames_after=0),
    "bm3d": SETTINGS["bm3d"],
    "nl_means": small(NLMeans, frames_before=3),
}


def held(arenas) -> int:
    return sum(arena.nbytes for arena in arenas)


class Source:
    """Frames that tell how many of them were asked for."""

    def __init__(self, frames):
        self.frames, self.asked = frames, 0

    def __iter__(self):
        for one in self.frames:
            self.asked += 1
            yield one


@pytest.mark.parametrize("name", CAUSAL)
def test_live_gives_a_frame_before_the_next_one_is_asked_for(streaming_device, name):
    source = Source(noisy(6, 40, 44))
    for k, _ in enumerate(
        gd.stream(CAUSAL[name], source, 20.0, live=True, device=streaming_device)
    ):
        assert source.asked == k + 1


@pytest.mark.parametrize("name", ["vbm3d 4+4", "vbm3d 2+1", "nl_means 2+1"])
def test_live_waits_for_no_more_frames_than_it_looks_at(streaming_device, name):
    source, settings = Source(noisy(20, 40, 44)), SETTINGS[name]
    ahead = settings.reach.t[1]
    for k, _ in enumerate(gd.stream(settings, source, 20.0, live=True, device=streaming_device)):
        assert source.asked == min(k + 1 + ahead, 20)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("name", ["vbm3d 2+1", "bm3d", "nl_means 2+1"])
def test_memory_does_not_grow(streaming_device, arenas, monkeypatch, name, live):
    alive, plain = weakref.WeakSet(), StreamFrame.__init__

    def begin(self, *given):
        plain(self, *given)
        alive.add(self)

    monkeypatch.setattr(StreamFrame, "__init__", begin)
    frame = noisy(40, 44)
    counts, sizes = [], []
    source = (frame for _ in range(90))
    for _ in gd.stream(SETTINGS[name], source, 20.0, live=live, device=streaming_device):
        counts.append(len(alive))
        sizes.append(held(arenas))
    assert len(sizes) == 90
    # At the end the last frames may be joined at once: one more buffer, whatever came before.
    assert sizes[10 if live else 40] == sizes[60] > 0
    assert max(counts[60:]) <= max(counts[:45])
    if live:
        assert max(counts) <= 2 + sum(SETTINGS[name].reach.t)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("axes", ["YX", "ZYX"])
@pytest.mark.parametrize("name", ["vbm3d 2+1", "bm3d", "nl_means 2+1"])
def test_closing_frees_the_device_at_any_time(streaming_device, arenas, name, axes, live):
    settings = SETTINGS[name]
    frames = noisy(20, *SHAPES[axes], dtype="uint8")
    options = {"axes": axes, "device": streaming_device}
    expected = whole(settings, frames, 20.0, **options)[:3]
    release_memory()
    threads = set(threading.enumerate())
    for count in (0, 1, 3, 30):
        closed = []

        def source(closed=closed):
            try:
                yield from itertools.cycle(frames)
            finally:
                closed.append(True)

        given = source()
        steps = gd.stream(settings, given, 20.0, live=live, **options)
        out = [next(steps) for _ in range(count)]
        if over(settings) and count:
            assert held(arenas) > 0
        steps.close()
        assert set(threading.enumerate()) <= threads
        if over(settings):
            assert held(arenas) == 0
        assert not session(streaming_device).turn.locked()
        # Who gave the frames closes them.
        assert not closed
        given.close()
        for one, known in zip(out, expected[:count], strict=False):
            np.testing.assert_array_equal(one, known)


def over(settings) -> bool:
    return "T" in settings.joint


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("name", ["vbm3d causal", "bm3d", "nl_means 2+1"])
def test_an_error_of_the_source_passes_on(streaming_device, arenas, name, live):
    settings, frames = SETTINGS[name], noisy(6, 40, 44)

    def source():
        yield from frames[:4]
        raise KeyError("camera gone")

    threads, out = set(threading.enumerate()), []
    with pytest.raises(KeyError, match="camera gone"):
        for one in gd.stream(settings, source(), 20.0, live=live, device=streaming_device):
            out.append(one)
    if live:
        assert len(out) == 4 - (settings.reach.t[1] if over(settings) else 0)
    assert set(threading.enumerate()) <= threads
    if over(settings):
        assert held(arenas) == 0
    expected = whole(settings, frames, device=streaming_device)
    np.testing.assert_array_equal(streamed(settings, frames, device=streaming_device), expected)


def test_the_device_is_free_while_the_source_is_asked(device):
    # A camera may wait for long, and a source may use the device itself, as another stream does.
    taken = []

    def source():
        for one in noisy(6, 40, 44):
            taken.append(session(device).turn.locked())
            yield one

    for name in ("vbm3d 2+1", "bm3d", "nl_means 2+1"):
        streamed(SETTINGS[name], source(), device=device)
    assert not any(taken)


def test_two_streams_side_by_side(device):
    frames = noisy(2, 8, 40, 44)
    expected = [whole(SETTINGS["vbm3d 2+1"], one, device=device) for one in frames]
    both = [gd.stream(SETTINGS["vbm3d 2+1"], one, 20.0, device=device) for one in frames]
    out = list(zip(*both, strict=True))
    np.testing.assert_array_equal(np.swapaxes(out, 0, 1), expected)


def test_no_frames_give_no_frames(device, arenas):
    for frames in ([], iter(()), np.empty((0, 5, 5))):
        assert list(gd.stream(SETTINGS["vbm3d 4+4"], frames, device=device)) == []
    assert not arenas


def test_nothing_is_asked_for_before_the_first_frame_is(device):
    source = Source(noisy(4, 40, 44))
    steps = gd.stream(SETTINGS["bm3d"], source, 20.0, live=True, device=device)
    assert source.asked == 0
    next(steps)
    assert source.asked == 1
    steps.close()


@pytest.mark.parametrize("cause", ["the source", "a frame"])
def test_nobody_looks_at_frames_whose_memory_is_gone(streaming_device, monkeypatch, cause):
    look, free, freed, late = streams.note_frame, Arena.free, [], []

    def slow(*given, **named):
        time.sleep(0.05)
        late.append(bool(freed))
        return look(*given, **named)

    def let_go(arena):
        freed.append(arena)
        free(arena)

    def source():
        for k, one in enumerate(noisy(12, 40, 44)):
            if k == 4:
                if cause == "the source":
                    raise KeyError("camera gone")
                one = np.full_like(one, np.nan)
            yield one

    monkeypatch.setattr(streams, "note_frame", slow)
    monkeypatch.setattr(Arena, "free", let_go)
    with pytest.raises((KeyError, NonFiniteError)):
        list(gd.stream(SETTINGS["vbm3d 2+1"], source(), 20.0, device=streaming_device))
    assert freed
    time.sleep(0.3)
    # Without a thread of their own, looks begin when all frames are there.
    assert len(late) >= 4 or streaming_device.shares_cores
    assert not any(late)
