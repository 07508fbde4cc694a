"""Frames that come one after another give what the whole stack gives."""

from __future__ import annotations

import gc
import itertools
import threading

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import (
    AxesError,
    DeviceMemoryError,
    ImageError,
    NonFiniteError,
    SettingsError,
    SigmaError,
)
from napari_gpu_denoise.filters import BM3D, VBM3D, NLMeans
from napari_gpu_denoise.opencl.memory import release_memory
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.run.record import Tally
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.run.stream import FrameStream, StreamFrame
from scenes import noisy, small
from streams import SETTINGS, SHAPES, streamed, whole


def camera(frames):
    """Give frames in one buffer, as a camera does."""
    buffer = np.empty_like(frames[0])
    for one in frames:
        buffer[...] = one
        yield buffer
    buffer[...] = 0


def assert_as_the_stack(settings, frames, sigma=20.0, known=None, source=camera, **options):
    """Stream frames, live and not, and compare with the whole stack, of a sigma that is known."""
    expected = whole(settings, frames, sigma if known is None else known, **options)
    before = np.array(frames)
    for live in (False, True):
        out = streamed(settings, source(frames), sigma, live=live, **options)
        assert out.dtype == expected.dtype and out.dtype.isnative
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(frames, before)
    return expected


STACKS = {
    "YX": (7, 28, 32),
    "ZYX": (7, 2, 28, 32),
    "CYX": (7, 2, 28, 32),
    "YXS": (7, 28, 32, 3),
    "one frame": (1, 28, 32),
    "two frames": (2, 28, 32),
    "few rows": (4, 5, 32),
    "two channels of few columns": (4, 2, 28, 3),
    "one pixel in colour": (4, 1, 1, 3),
}
AXES = {"two channels of few columns": "CYX", "one pixel in colour": "YXS"}
DTYPES = {"YX": "int16", "ZYX": "uint16", "CYX": "float32"}


@pytest.mark.parametrize(
    ("name", "stack"),
    [("vbm3d 2+1", stack) for stack in STACKS]
    + [(name, stack) for name in ("bm3d", "nl_means 2+1") for stack in ("ZYX", "two frames")],
)
def test_a_stream_gives_what_the_stack_gives(streaming_device, name, stack):
    frames = noisy(*STACKS[stack], dtype=DTYPES.get(stack, "uint8"))
    if frames.dtype == "int16":
        frames -= 120
    axes = AXES.get(stack, stack if stack in SHAPES else "YX")
    assert_as_the_stack(SETTINGS[name], frames, axes=axes, device=streaming_device)


def assert_counted(settings, frames, sigma=20.0, known=None, axes="ZYX", **options):
    """Compare what a stream counts, and what it yields, with the record of the whole stack."""
    flow = FrameStream(Run(settings, sigma, axes=axes, **options), frames)
    out, counts = zip(*flow, strict=True)
    out, counted = np.array(out), sum(counts, Tally())
    known = sigma if known is None else known
    expected = gd.denoise(frames, settings, known, axes="T" + axes, **options)
    np.testing.assert_array_equal(out, expected.image)
    told = expected.record
    assert (counted.nonfinite, counted.saturated) == (told.nonfinite, told.saturated)
    return out, counted


@pytest.mark.parametrize("name", ["vbm3d 2+1", "bm3d"])
def test_what_is_clipped_and_left_out_is_counted_once(streaming_device, name):
    frames = noisy(6, 3, 28, 32) + 90
    options = {"dtype": "uint8", "device": streaming_device}
    sigma = np.array([20.0, 0.0, 20.0])
    for given, known in ((20.0, 20.0), (sigma, np.broadcast_to(sigma, (6, 3)))):
        _, counted = assert_counted(SETTINGS[name], frames, given, known, **options)
        assert counted.saturated > 400
    for each in (np.zeros(6), 20.0 * (np.arange(6) != 2)):
        planes, still = np.repeat(each[:, None], 3, 1), each == 0
        out, _ = assert_counted(SETTINGS[name], frames, each.item, planes, **options)
        np.testing.assert_array_equal(out[still], np.minimum(np.rint(frames[still]), 255))
        assert np.count_nonzero(np.rint(frames[still]) > 255) > 40
    frames[2, 0, 3, 4:7], frames[4] = (np.nan, np.inf, -np.inf), np.nan
    options |= {"dtype": "float32", "nonfinite": "keep"}
    _, counted = assert_counted(SETTINGS[name], frames, **options)
    assert counted.nonfinite == 3 + frames[4].size


# Noise


@pytest.mark.parametrize("name", ["vbm3d 2+1", "bm3d"])
def test_sigma_of_every_kind(streaming_device, name):
    """Maps and functions are compared in tests/test_ways.py."""
    frames, asked = noisy(6, 2, 28, 32, dtype="uint8"), []
    found = gd.estimate_noise(frames[0, 0]).sigma
    each = np.array([(10 + k, (20.0 - k) * (k != 2)) for k in range(6)])
    # What `stream` is given, and what `denoise` is.
    cases = [
        (None, found, "YX"),
        (0, 0, "YX"),
        ((0, 25), (0, 25), "CYX"),
        (np.array([10, 25.0]), np.full((6, 2), (10, 25.0)), "ZYX"),
        (lambda k: asked.append(k) or each[k, 1], each[:, 1], "YX"),
        (lambda k: tuple(each[k]), each, "CYX"),
    ]
    for given, known, axes in cases:
        stack = frames if len(axes) > 2 else frames[:, 0]
        assert_as_the_stack(SETTINGS[name], stack, given, known, axes=axes, device=streaming_device)
    assert asked == [*range(6), *range(6)]


def test_a_function_may_give_each_frame_a_map_of_its_own(device):
    settings = small(BM3D)
    frames = noisy(4, 40, 44)
    left = np.where(np.arange(44) < 22, 8.0, 24.0) * np.ones((40, 1))
    for maps in ([left, left[:, ::-1]] * 2, [np.full((40, 44), 24.0), left] * 2):
        out = streamed(settings, frames, maps.__getitem__, device=device)
        for k in range(4):
            expected = streamed(settings, frames, maps[k], device=device)[k]
            np.testing.assert_array_equal(out[k], expected)
    # Frames that are filtered together share one.
    together = small(VBM3D, frames_before=1, frames_after=1)
    with pytest.raises(SigmaError, match="one map for all frames"):
        streamed(together, frames, lambda k: left * (1 + k), device=device)


# Frames that do not fit


@pytest.mark.parametrize("name", ["vbm3d causal", "bm3d", "nl_means"])
@pytest.mark.parametrize("change", ["shape", "type"])
def test_frames_unlike_the_first_one_are_refused_by_number(device, arenas, name, change):
    frames = list(noisy(5, 40, 44))
    frames[3] = frames[3].T if change == "shape" else frames[3].astype(np.float64)
    steps = gd.stream(SETTINGS[name], frames, 20.0, live=True, device=device)
    for _ in range(3):
        next(steps)
    said = r"Frame 3 has.*\(44, 40\)" if change == "shape" else "Frame 3 has.*float64.*float32"
    with pytest.raises(ImageError, match=said):
        next(steps)
    assert next(steps, None) is None


NAN = {"frames": np.full((3, 20, 20), np.nan, np.float32)}
BAD = {
    "NaN": (NAN, NonFiniteError, "keep"),
    "NaN as integers": ({**NAN, "nonfinite": "keep", "dtype": "uint8"}, NonFiniteError, "float32"),
    "time within a frame": ({"frames": noisy(2, 3, 20, 20), "axes": "TYX"}, AxesError, "T"),
    "no slices": ({"filter": small(NLMeans, slices=1)}, AxesError, "needs an axis Z"),
    "no colours": ({"filter": small(VBM3D, channels="opponent")}, SettingsError, "channels"),
    "no memory": ({"memory_limit": 1}, DeviceMemoryError, "at least"),
    "little memory": ({"memory_limit": 6 << 20}, DeviceMemoryError, "frame"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_sentence(device, case):
    changes, error, sentence = BAD[case]
    size = 300 if case == "little memory" else 20
    options = {"filter": SETTINGS["vbm3d 2+1"], "frames": noisy(3, size, size), "sigma": 20.0}
    with pytest.raises(error, match=sentence):
        list(gd.stream(**{**options, "device": device, **changes}))


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


@pytest.mark.parametrize("name", ["vbm3d causal", "vbm3d 4+4", "bm3d", "nl_means 2+1"])
def test_live_waits_for_no_more_frames_than_it_looks_at(streaming_device, name):
    source, settings = Source(noisy(20, 28, 32)), SETTINGS[name]
    ahead = settings.reach.t[1] if over(settings) else 0
    steps = gd.stream(settings, source, 20.0, live=True, device=streaming_device)
    assert source.asked == 0
    for k, _ in enumerate(steps):
        assert source.asked == min(k + 1 + ahead, 20)


@pytest.mark.parametrize(
    ("name", "live"), [("vbm3d 2+1", False), ("vbm3d 2+1", True), ("nl_means 2+1", True)]
)
def test_memory_does_not_grow(streaming_device, arenas, name, live):
    def alive() -> int:
        return sum(type(each) is StreamFrame for each in gc.get_objects())

    counts, sizes = {}, []
    source = itertools.repeat(noisy(20, 24), 66)
    frames = gd.stream(SETTINGS[name], source, 20.0, live=live, device=streaming_device)
    for k, _ in enumerate(frames):
        if k in (32, 38, 44) or k > 62:  # as many are filtered at once as ever
            counts[k] = alive()
        sizes.append(held(arenas))
    assert len(sizes) == 66
    # At the end the last frames may be joined at once: one more buffer, whatever came before.
    assert sizes[10 if live else 40] == sizes[60] > 0
    assert max(counts[k] for k in counts if k > 62) <= max(counts[k] for k in counts if k < 45)
    if live:
        assert max(counts.values()) <= 2 + sum(SETTINGS[name].reach.t)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("name", "axes"), [("vbm3d 2+1", "ZYX"), ("bm3d", "YX")])
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
@pytest.mark.parametrize("name", ["vbm3d 2+1", "bm3d"])
def test_an_error_of_the_source_passes_on(streaming_device, arenas, name, live):
    settings, frames, taken = SETTINGS[name], noisy(6, 40, 44), []

    def source(count):
        for one in frames[:count]:
            # A camera may wait for long, and a source may use the device itself.
            taken.append(session(streaming_device).turn.locked())
            yield one
        if count < 6:
            raise KeyError("camera gone")

    threads, out = set(threading.enumerate()), []
    with pytest.raises(KeyError, match="camera gone"):
        for one in gd.stream(settings, source(4), 20.0, live=live, device=streaming_device):
            out.append(one)
    if live:
        assert len(out) == 4 - (settings.reach.t[1] if over(settings) else 0)
    assert set(threading.enumerate()) <= threads
    if over(settings):
        assert held(arenas) == 0
    expected = whole(settings, frames, device=streaming_device)
    np.testing.assert_array_equal(streamed(settings, source(6), device=streaming_device), expected)
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
