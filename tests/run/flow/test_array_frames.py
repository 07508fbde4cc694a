"""Frames that pass through a device in order, however they are cut."""

from __future__ import annotations

import dataclasses
import math
import threading

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import finish
from frames_over_time import SETTINGS, eventful, executed, steps_of
from napari_gpu_denoise.filters import VBM3D
from napari_gpu_denoise.opencl.memory import Arena, borrow, release_memory
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow import frame_flow
from napari_gpu_denoise.run.record import Progress
from scenes import bytes_per_pixel, noisy, small


def part_limit(settings, columns: int) -> int:
    """Return a memory limit that cuts frames of so many columns in parts."""
    # The smallest part reads 1.5 times the reach; there may be a map of sigma besides.
    rows = max(sum(settings.reach.y) + 60, math.ceil(1.75 * sum(settings.reach.y)))
    return math.ceil(rows * columns * bytes_per_pixel(settings))


# However the frames are cut


@pytest.mark.parametrize("name", SETTINGS)
def test_batches_of_any_size_give_the_same_bits(flowing, monkeypatch, name):
    image, settings, found = eventful(11, 64, 72), SETTINGS[name], []
    for batch in (1, 2, 5, 16):
        monkeypatch.setattr(frame_flow, "frames_at_once", lambda *_, batch=batch: batch)
        found.append(executed(image, settings, flowing, 10.0))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    assert not np.array_equal(found[0], image)
    plain = dataclasses.replace(settings, flicker=False)
    assert not np.array_equal(executed(image, plain, flowing, 10.0), found[0])


@pytest.mark.parametrize("channels", ["separate", "opponent", "joint"])
def test_batches_of_joined_channels(flowing, monkeypatch, channels):
    image, found = eventful(7, 3, 48, 56), []
    settings = small(VBM3D, frames_before=2, frames_after=1, channels=channels)
    sigma = 10 + np.arange(21.0).reshape(7, 3) / 7
    for batch in (1, 2, 5):
        monkeypatch.setattr(frame_flow, "frames_at_once", lambda *_, batch=batch: batch)
        found.append(executed(image, settings, flowing, sigma, "TCYX"))
        np.testing.assert_array_equal(found[-1], found[0])


@pytest.mark.parametrize("name", ["vbm3d 1+1", "vbm3d causal", "nl_means 2+1"])
def test_parts_in_space_give_the_same_bits(flowing, name):
    settings = SETTINGS[name]
    image = eventful(7, 3 * sum(settings.reach.y) + 50, 90)
    expected = executed(image, settings, flowing, 10.0)
    limit = part_limit(settings, 90)
    out = np.full_like(image, 255)
    steps = list(steps_of(image, settings, flowing, out, 10.0, memory_limit=limit))
    assert steps[-1].total >= 2 * 7
    np.testing.assert_array_equal(out, expected)
    y, x = np.mgrid[: image.shape[1], : image.shape[2]]
    sigma = 5 + 10.0 * (y > 50) + x / 20
    expected = executed(image, settings, flowing, sigma)
    np.testing.assert_array_equal(
        executed(image, settings, flowing, sigma, memory_limit=limit), expected
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_parts_in_time_give_the_same_bits(flowing, name):
    settings, nt = SETTINGS[name], 30
    image = eventful(nt, 32, 36)
    image[3] = image[4] = 7
    expected = executed(image, settings, flowing, 10.0)
    for start, stop in ((0, 1), (0, 4), (3, 5), (5, 6), (13, 20), (15, 16), (16, 29), (29, 30)):
        part = [slice(start, stop), slice(0, 32), slice(0, 36)]
        out = np.full((stop - start, 32, 36), 255, np.float32)
        steps = steps_of(image, settings, flowing, out, 10.0, part=part)
        assert [step.done for step in steps][-1] == stop - start
        np.testing.assert_array_equal(out, expected[start:stop])
        # What is wanted of a whole array is got in the same way.
        wanted = gd.denoise(
            image, settings, 10, axes="TYX", frames=slice(start, stop), device=flowing.device
        )
        np.testing.assert_array_equal(wanted.image, expected[start:stop])


@pytest.mark.parametrize("axes", ["TZYX", "ZTYX", "TCYX", "QTZYX"])
@pytest.mark.parametrize("name", ["vbm3d 1+1", "vbm3d causal", "nl_means 2+1"])
def test_several_sequences_do_not_know_of_each_other(flowing, name, axes):
    lengths = {"Q": 2, "T": 6, "Z": 3, "C": 2, "Y": 40, "X": 44}
    image = np.stack([eventful(6, 40, 44, seed=k) for k in range(6)])
    count = math.prod(lengths[a] for a in axes if a in "QZC")
    image = image[:count].reshape([lengths[a] for a in axes if a in "QZC"] + [6, 40, 44])
    image = np.ascontiguousarray(np.moveaxis(image, -3, axes.index("T")))
    settings = SETTINGS[name]
    out = executed(image, settings, flowing, 10.0, axes)
    videos = np.moveaxis(image, axes.index("T"), -3).reshape(-1, 6, 40, 44)
    found = np.moveaxis(out, axes.index("T"), -3).reshape(-1, 6, 40, 44)
    for one, result in zip(videos, found, strict=True):
        np.testing.assert_array_equal(result, executed(one, settings, flowing, 10.0))


@pytest.mark.parametrize("axes", ["YX", "ZYX", "CYX", "YXS"])
def test_frames_without_time_are_filtered_one_by_one(flowing, axes):
    settings = SETTINGS["vbm3d 4+4"].for_array(axes, {"YX": (40, 44)}.get(axes, (3, 40, 44)))
    image = noisy(40, 44) if axes == "YX" else noisy(3, 40, 44)
    if axes == "YXS":
        image = np.ascontiguousarray(np.moveaxis(image, 0, -1))
        settings = small(VBM3D, channels="joint")
    out = np.full_like(image, 255)
    steps = list(steps_of(image, settings, flowing, out, axes=axes))
    assert steps[-1].total == (3 if axes in ("ZYX", "CYX") else 1)
    expected = executed(image[None], settings, flowing, axes="T" + axes)[0]
    np.testing.assert_array_equal(out, expected)


# Progress, and what is left behind


@pytest.mark.parametrize("name", ["vbm3d 1+1", "nl_means 2+1"])
def test_progress_counts_frames(flowing, monkeypatch, name):
    settings = SETTINGS[name]
    ny = 3 * sum(settings.reach.y) + 50
    image = noisy(5, 2, ny, 60)
    limit = part_limit(settings, 60)
    for batch, memory_limit, parts in ((1, None, 1), (2, None, 1), (1, limit, 2)):
        monkeypatch.setattr(frame_flow, "frames_at_once", lambda *_, batch=batch: batch)
        out = np.empty_like(image)
        steps = list(
            steps_of(image, settings, flowing, out, axes="TZYX", memory_limit=memory_limit)
        )
        total = steps[0].total
        # Of two slices each, and in parts: more than there are time points.
        unit = "plane" if total == 10 else "part of a frame"
        assert steps[0] == Progress(0, total, unit)
        assert steps[-1] == Progress(total, total, unit)
        assert total % 10 == 0 and total >= 10 * parts
        assert {step.total for step in steps} == {total}
        counts = [step.done for step in steps]
        assert counts == sorted(counts)
        if batch == 1:
            assert sorted(set(counts)) == list(range(total + 1))


@pytest.mark.parametrize("name", ["vbm3d 1+1", "vbm3d 4+4", "nl_means 2+1"])
def test_leaving_early_frees_the_device(flowing, arenas, monkeypatch, name):
    monkeypatch.setattr(frame_flow, "frames_at_once", lambda *_: 2)
    image, settings = eventful(12, 2, 48, 52), SETTINGS[name]
    threads = set(threading.enumerate())
    expected = executed(image, settings, flowing, axes="TZYX")
    release_memory()
    for count in (1, 2, 4):
        steps = steps_of(image, settings, flowing, np.empty_like(image), axes="TZYX")
        for _ in range(count):
            next(steps)
        steps.close()
        assert sum(arena.nbytes for arena in arenas) == 0
        assert set(threading.enumerate()) <= threads
        assert not flowing.turn.locked()
    np.testing.assert_array_equal(executed(image, settings, flowing, axes="TZYX"), expected)
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize("name", ["vbm3d 1+1", "nl_means 2+1"])
def test_smaller_parts_are_tried_when_memory_runs_out(flowing, small_device, name):
    settings = SETTINGS[name]
    image = noisy(5, 200, 210) + 80
    expected = executed(image.astype(np.float32), settings, flowing)
    # Not enough for a frame, but for the smallest part, which has less than two thirds of it.
    frame = Tile(0, *map(Span.whole, (1, 1, 200, 210)))
    small_device(0.8 * max(settings.plan(Arena(flowing)).buffers(frame, 1).values()))
    out = np.zeros(image.shape, np.uint8)
    done, tally = finish(steps_of(image, settings, flowing, out, dtype="uint8"))
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
