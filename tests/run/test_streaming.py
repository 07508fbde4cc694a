"""Frames that come one after another give what the whole stack gives."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import VBM3D
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.run.stream import FrameStream
from scenes import noisy
from streams import SETTINGS, SHAPES, streamed, whole


def camera(frames):
    """Give frames in one buffer, as a camera does."""
    buffer = np.empty_like(frames[0])
    for one in frames:
        buffer[...] = one
        yield buffer
    buffer[...] = 0


# How frames are converted does not depend on their axes.
DTYPES = {"YX": ("uint8", "int16"), "ZYX": ("uint16",), "CYX": ("float32",), "YXS": ("uint8",)}


@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_stream_gives_what_the_stack_gives(streaming_device, name, axes):
    settings = SETTINGS[name]
    for dtype in DTYPES[axes]:
        frames = noisy(7, *SHAPES[axes], dtype=dtype)
        if dtype == "int16":
            frames -= 120
        expected = whole(settings, frames, axes=axes, device=streaming_device)
        for live in (False, True):
            out = streamed(settings, frames, axes=axes, live=live, device=streaming_device)
            assert out.dtype == frames.dtype
            np.testing.assert_array_equal(out, expected)


def test_frames_without_axes_are_planes(device):
    frames = noisy(5, 2, 40, 44)
    for name in ("vbm3d 2+1", "bm3d", "nl_means 2+1"):
        out = streamed(SETTINGS[name], frames, device=device)
        expected = whole(SETTINGS[name], frames, axes="ZYX", device=device)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("axes", ["YX", "CYX", "YXS"])
def test_frames_that_are_cut_small_by_others_come_out_whole(device, axes):
    shape = {"YX": (5, 44), "CYX": (2, 40, 3), "YXS": (1, 1, 3)}[axes]
    frames = noisy(4, *shape, dtype="uint8")
    for name in ("vbm3d 2+1", "bm3d", "nl_means 2+1"):
        out = streamed(SETTINGS[name], frames, axes=axes, device=device)
        expected = whole(SETTINGS[name], frames, axes=axes, device=device)
        np.testing.assert_array_equal(out, expected)


def test_brightness_that_changes_is_followed_as_in_the_stack(streaming_device):
    gain = np.linspace(1, 0.6, 8)[:, None, None]
    frames = np.rint(noisy(8, 64, 64, sigma=8) * 100 * gain).astype(np.uint16)
    for name in ("vbm3d 4+4", "nl_means 2+1"):
        settings = SETTINGS[name]
        expected = whole(settings, frames, 700, device=streaming_device)
        plain = dataclasses.replace(settings, flicker=False)
        assert not np.array_equal(expected, whole(plain, frames, 700, device=streaming_device))
        for live in (False, True):
            out = streamed(settings, frames, 700, live=live, device=streaming_device)
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_frames_of_any_layout_are_taken_and_left_alone(device, dtype):
    frames = noisy(6, 40, 44, dtype=dtype)
    expected = whole(SETTINGS["vbm3d 2+1"], frames, device=device)
    wide = np.zeros((6, 80, 132), dtype)
    wide[:, ::2, ::3] = frames
    layouts = {
        "big-endian": frames.astype(frames.dtype.newbyteorder(">")),
        "read-only": frames.copy(),
        "strided": wide[:, ::2, ::3],
        "Fortran order": [np.asfortranarray(one) for one in frames],
    }
    layouts["read-only"].setflags(write=False)
    for name, given in layouts.items():
        before = np.array(given)
        out = streamed(SETTINGS["vbm3d 2+1"], given, device=device)
        np.testing.assert_array_equal(out, expected, err_msg=name)
        assert out.dtype.isnative
        np.testing.assert_array_equal(np.array(given), before)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("case", ["plain", "slices", "a channel without noise", "NaN"])
def test_a_source_may_overwrite_its_buffer(streaming_device, case, live):
    axes = {"slices": "ZYX", "a channel without noise": "CYX"}.get(case, "YX")
    frames = noisy(6, *SHAPES[axes])
    sigma = (20, 0) if axes == "CYX" else 20.0
    options = {
        "axes": axes,
        "nonfinite": "keep" if case == "NaN" else "raise",
        "device": streaming_device,
    }
    if case == "NaN":
        frames[0, 3:5, 4:9] = frames[3, 30:33, 2:5] = np.nan
    for name in ("vbm3d 2+1", "bm3d", "nl_means 2+1"):
        settings = SETTINGS[name]
        expected = whole(settings, frames, sigma, **options)
        out = streamed(settings, camera(frames), sigma, live=live, **options)
        np.testing.assert_array_equal(out, expected, err_msg=name)


def test_each_result_is_an_array_of_its_own(device):
    frames = list(noisy(5, 40, 44))
    out = list(gd.stream(SETTINGS["vbm3d 2+1"], frames, 0, device=device))
    out += list(gd.stream(SETTINGS["vbm3d 2+1"], frames, 20, device=device))
    for k, one in enumerate(out):
        assert one.flags.owndata and one.flags.writeable
        assert not any(np.shares_memory(one, other) for other in (*frames, *out[:k]))
    np.testing.assert_array_equal(out[:5], frames)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_streams_shorter_than_the_window(streaming_device, name, count):
    frames = noisy(count, 40, 44, dtype="uint8")
    expected = whole(SETTINGS[name], frames, device=streaming_device)
    for live in (False, True):
        out = streamed(SETTINGS[name], frames, live=live, device=streaming_device)
        np.testing.assert_array_equal(out, expected)


def test_a_causal_stream_of_one_frame_is_as_the_stack_of_it(device):
    # Spacings of references that are left to the filter depend on whether it looks ahead.
    frames, settings = noisy(1, 40, 44, dtype="uint8"), VBM3D(frames_after=0)
    expected = whole(settings, frames, device=device)
    np.testing.assert_array_equal(streamed(settings, frames, device=device), expected)


@pytest.mark.parametrize("dtype", ["uint8", "float64", "int32"])
def test_results_in_another_type(device, dtype):
    frames = noisy(5, 40, 44, dtype="uint16") + np.uint16(90)
    for name in ("vbm3d 2+1", "bm3d"):
        out = streamed(SETTINGS[name], frames, dtype=dtype, device=device)
        assert out.dtype == dtype
        np.testing.assert_array_equal(
            out, whole(SETTINGS[name], frames, dtype=dtype, device=device)
        )


# The record


def test_what_is_clipped_and_left_out_is_counted(streaming_device):
    frames = noisy(6, 3, 40, 44) + 90
    frames[2, 0, 3, 4:7] = np.nan
    options = {"dtype": "float32", "nonfinite": "keep", "axes": "ZYX", "device": streaming_device}
    settings = SETTINGS["vbm3d 2+1"]
    flow = FrameStream(Run(settings, 20.0, **options), frames)
    list(flow)
    expected = gd.denoise(frames, settings, 20.0, **{**options, "axes": "TZYX"}).record
    record = flow.record()
    assert record.nonfinite == expected.nonfinite == 3
    assert (record.axes, record.settings, record.sigma) == (
        expected.axes,
        expected.settings,
        expected.sigma,
    )
    whole_frames = np.nan_to_num(frames, nan=200.0)
    for sigma in (20.0, np.array([20.0, 0.0, 20.0])):
        options = {"dtype": "uint8", "device": streaming_device}
        flow = FrameStream(Run(settings, sigma, axes="ZYX", **options), whole_frames)
        list(flow)
        spread = np.broadcast_to(sigma, (6, 3)) if np.ndim(sigma) else sigma
        expected = gd.denoise(whole_frames, settings, spread, axes="TZYX", **options).record
        assert expected.saturated > 1000
        assert flow.record().saturated == expected.saturated


def test_slices_that_are_written_side_by_side_are_all_counted(streaming_device, monkeypatch):
    plain = Levels.store

    def slow(self, *given, **options):
        clipped = plain(self, *given, **options)
        time.sleep(0.001)
        return clipped

    frames = noisy(80, 3, 24, 24) + 90
    settings = SETTINGS["vbm3d 2+1"]
    options = {"dtype": "uint8", "device": streaming_device}
    expected = gd.denoise(frames, settings, 20.0, axes="TZYX", **options).record
    monkeypatch.setattr(Levels, "store", slow)
    flow = FrameStream(Run(settings, 20.0, axes="ZYX", **options), frames)
    list(flow)
    assert flow.record().saturated == expected.saturated


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_clipped_without_noise_is_counted_once(streaming_device, name):
    frames = noisy(5, 2, 40, 44) + 90
    options = {"dtype": "uint8", "axes": "ZYX", "device": streaming_device}
    for of in (lambda k: 0, lambda k: 20.0 * (k != 2)):
        flow = FrameStream(Run(SETTINGS[name], of, **options), frames)
        out = np.array(list(flow))
        clipped = np.count_nonzero(np.rint(frames) > 255, axis=(1, 2, 3))
        known = [k for k in range(5) if not of(k)]
        np.testing.assert_array_equal(out[known], np.minimum(np.rint(frames[known]), 255))
        assert clipped[known].min() > 100
        spread = np.array([of(k) for k in range(5)], float)[:, None]
        axes = {**options, "axes": "TZYX"}
        expected = gd.denoise(frames, SETTINGS[name], np.repeat(spread, 2, 1), **axes).record
        assert flow.record().saturated == expected.saturated


@pytest.mark.parametrize("name", ["vbm3d 2+1", "bm3d"])
def test_the_record_is_of_the_frames_that_were_yielded(streaming_device, name):
    frames = noisy(12, 40, 44) + 90
    frames[:, 3, 4] = np.nan
    options = {"dtype": "float32", "nonfinite": "keep", "device": streaming_device}
    flow = FrameStream(Run(SETTINGS[name], 20.0, **options), frames)
    steps = iter(flow)
    for _ in range(4):
        next(steps)
    steps.close()
    assert flow.count == flow.record().nonfinite == 4
    whole_frames = np.nan_to_num(frames, nan=200.0)
    options = {"dtype": "uint8", "device": streaming_device}
    flow = FrameStream(Run(SETTINGS[name], 20.0, **options), whole_frames)
    steps = iter(flow)
    out = [next(steps) for _ in range(4)]
    steps.close()
    kept = gd.denoise(
        whole_frames, SETTINGS[name], 20.0, axes="TYX", device=streaming_device, dtype="float32"
    ).image[:4]
    assert flow.record().saturated == np.count_nonzero(np.rint(kept) > 255) > 100
    np.testing.assert_array_equal(out, np.clip(np.rint(kept), 0, 255))
