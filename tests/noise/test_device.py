"""Patches that a device transforms, beside the same patches in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.errors import KernelError, NoDeviceError
from napari_gpu_denoise.noise.patches import device as device_patches
from napari_gpu_denoise.noise.patches.coefficients import (
    Squares,
    range_moments,
    span_sums,
)
from napari_gpu_denoise.noise.patches.device import patches_on, read_statistics
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.sampling import PlaneStack
from opencl.simulate import CHECKS
from reference.patch_statistics import patch_statistics as slow

LIMIT = 600


def planes(dtype="float32", shape=(2, 61, 75)):
    level = 90 + 60 * np.sin(np.arange(shape[-1]) / 9)
    values = np.random.default_rng(0).normal(level, 8, shape)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        values = np.rint(values - (20 if limits.min < 0 else 0)).clip(limits.min, limits.max)
    return list(values.astype(dtype))


def same_patches(found, expected):
    np.testing.assert_array_equal(found.clipped, expected.clipped)
    np.testing.assert_allclose(found.place, expected.place, atol=1e-12)
    np.testing.assert_allclose(found.mean, expected.mean, 1e-6)
    np.testing.assert_allclose(found.seen, expected.seen, 1e-5, 1e-3)
    np.testing.assert_allclose(found.energy, expected.energy, 1e-5, 1e-3)
    np.testing.assert_allclose(np.asarray(found.coefficients), expected.coefficients, 1e-4, 2e-3)
    assert found.coefficients.shape == expected.coefficients.shape
    assert (found.overlap, found.lows) == (expected.overlap, expected.lows)
    np.testing.assert_array_equal(found.upper, expected.upper)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", ">u2", "int16", "float32"])
def test_patches_are_those_in_memory(device, dtype):
    stack = planes(dtype, (1, 8, 8) if dtype == "int16" else (2, 61, 75))
    levels = [[127]] * len(stack) if dtype == "int8" else [[]] * len(stack)
    blanks = [None] * len(stack)
    with patches_on(device) as place:
        found = place.read(stack, LIMIT, blanks, levels)
        same_patches(found, read_spectra(stack, LIMIT, blanks, levels))


def test_only_rows_with_patches_are_sent(device):
    stack = planes("float32", (1, 500, 64))
    with patches_on(device) as place:  # every 20th row begins a patch
        found = place.read(stack, 100, [None], [[]])
        same_patches(found, read_spectra(stack, 100, [None], [[]]))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("limit", [60, 400, 3000])
def test_what_a_gpu_is_sent_holds_the_same_patches(device, monkeypatch, dtype, limit):
    stack = planes(dtype, (2, 203, 181))
    with patches_on(device) as place:
        monkeypatch.setattr(place, "cpu", False)
        found = place.read(stack, limit, [None] * 2, [[]] * 2)
        same_patches(found, read_spectra(stack, limit, [None] * 2, [[]] * 2))


def test_pixels_that_are_left_out(device):
    stack = planes("float32", (2, 64, 64))
    stack[0][5, 5], stack[1][:30] = np.nan, np.inf
    blank = np.zeros((64, 64), bool)
    blank[40:, :20] = True
    with patches_on(device) as place:
        found = place.read(stack, LIMIT, [blank, None], [[], []])
        expected = read_spectra(stack, LIMIT, [blank, None], [[], []])
        same_patches(found, expected)
        order = np.random.default_rng(1).permutation(len(found.mean))
        starts, stops = np.array([0, 3, 50, 60]), np.array([3, 70, 50, len(order)])
        weight = np.random.default_rng(2).random(len(order))
        for each in (None, weight):
            one, other = (
                span_sums(Squares(k.coefficients, 35), order, starts, stops, each)
                for k in (found, expected)
            )
            np.testing.assert_allclose(one, other, 1e-4)
        limits = np.array([0, 40, 40, len(order)])
        one, other = (range_moments(k.coefficients, order, limits) for k in (found, expected))
        np.testing.assert_allclose(one[0], other[0], 1e-4, 0.1)
        np.testing.assert_allclose(one[1], other[1], 1e-4)


def test_long_spans_are_summed_in_chunks(device):
    stack = planes("float32", (1, 130, 133))
    with patches_on(device) as place:
        found, expected = (read_spectra(stack, 9000, device=k) for k in (place, None))
        assert len(found.mean) > 5 * 512
        order = np.arange(len(found.mean))
        limits = [np.array([0, 7]), np.array([len(order), 2000])]
        one, other = (span_sums(Squares(k.coefficients), order, *limits) for k in (found, expected))
        np.testing.assert_allclose(one, other, 1e-4)


@pytest.mark.parametrize("scale", [1e-20, 1e17])
def test_extreme_grey_levels_are_left_to_memory(device, scale):
    stack = [(scale * plane).astype(np.float32) for plane in planes()]
    wide = [plane.astype(np.float64) for plane in planes()]
    with patches_on(device) as place:
        for each in (stack, wide, [np.zeros((40, 40), np.float32)], [plane[:7] for plane in stack]):
            count = len(each)
            assert place.read(each, LIMIT, [None] * count, [[]] * count) is None
        found = read_spectra(stack, LIMIT, device=place)
    assert found.coefficients.dtype == np.float64


def test_memory_of_patches_is_used_again(device, monkeypatch):
    stack = planes()
    with patches_on(device) as place:
        first = place.read(stack, LIMIT, [None] * 2, [[]] * 2)
        held = first.coefficients.buffer
        assert place.read(stack, LIMIT, [None] * 2, [[]] * 2).coefficients.buffer is not held
        monkeypatch.setattr(device_patches, "MOST_BYTES", 1)
        assert place.read(stack, LIMIT, [None] * 2, [[]] * 2) is None
        monkeypatch.undo()
        del first
        assert place.read(stack, LIMIT, [None] * 2, [[]] * 2).coefficients.buffer is held


def test_a_device_that_fails_is_done_without(monkeypatch):
    class Broken:
        def __init__(self, arena):
            raise KernelError("It is broken.")

    image = np.random.default_rng(3).normal(100, 10, (256, 256)).astype(np.float32)
    monkeypatch.setattr(device_patches, "DevicePatches", Broken)
    assert estimate_noise(image).sigma[0] == pytest.approx(10, rel=0.03)
    with pytest.raises(KernelError):
        estimate_noise(image, device=0)


SIMULATION = """
import dataclasses, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from opencl.simulate import simulator, suit_oclgrind
from napari_gpu_denoise.noise.patches.coefficients import range_moments, range_sums, Squares
from napari_gpu_denoise.noise.patches.device import patches_on
suit_oclgrind()
planes = list(np.load(sys.argv[2]))
device = dataclasses.replace(simulator(), kind=sys.argv[3])
with patches_on(device) as place:
    found = place.read(planes, 120, [None, None], [[], []])
    order, limits = np.arange(len(found.mean)), np.array([0, 40, len(found.mean)])
    weighted = range_sums(Squares(found.coefficients), order, limits, 0.0 * order + 2)
    moments = range_moments(found.coefficients, order, limits)
np.save(sys.argv[2], np.array([weighted, *moments]))
"""


@pytest.mark.parametrize("kind", ["simulator", "discrete GPU"])
def test_every_access_is_sound(simulator, tmp_path, kind):
    """No read or write out of bounds, and none of what was never written."""
    stack = planes("uint16", (2, 17, 21))
    np.save(tmp_path / "planes.npy", stack)
    tests = str(Path(__file__).parents[1])
    arguments = ["-W", "ignore", "-c", SIMULATION, tests, str(tmp_path / "planes.npy"), kind]
    done = subprocess.run(
        [sys.executable, *arguments],
        env={k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")} | CHECKS,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert not done.stderr and not done.returncode, done.stderr[:5000]
    expected = read_spectra(stack, 120, [None] * 2, [[]] * 2)
    number = len(expected.mean)
    sums, squares = range_moments(expected.coefficients, np.arange(number), [0, 40, number])
    found = np.load(tmp_path / "planes.npy")
    for one, other in zip(found, (2 * squares, sums, squares), strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 0.05)


def compared_planes(dtype="uint16", shape=(3, 61, 75), seed=0):
    level = 90 + 60 * np.sin(np.arange(shape[-1]) / 9)
    values = np.random.default_rng(seed).normal(level, 8, shape)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        values = np.rint(values - (20 if limits.min < 0 else 0)).clip(limits.min, limits.max)
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", ">u2", "int16", "float32"])
def test_the_device_agrees_with_the_reference(device, dtype):
    stack = compared_planes(dtype)
    found = read_statistics(PlaneStack.held(stack), 400, device)
    assert len(found) == 3
    for plane, each in zip(stack, found, strict=True):
        ends = [127] if dtype == "int8" else []
        expected = slow(plane, 4, 3, ends)
        assert len(each.mean) == len(expected)
        for name, wanted in zip(
            ("mean", "rank", "clipped", "energy"), zip(*expected, strict=True), strict=True
        ):
            np.testing.assert_allclose(getattr(each, name), wanted, 1e-5, 1e-3, err_msg=name)
        assert each.overlap == pytest.approx(8 / 4 * 8 / 3)
    if dtype == "int8":
        assert max(each.clipped.max() for each in found) > 0


@pytest.mark.parametrize("shape", [(5, 8, 8), (2, 8, 300), (4, 200, 9), (7, 130, 133)])
def test_with_and_without_a_device(device, shape):
    stack = PlaneStack.held(compared_planes("float32", shape))
    for found, expected in zip(
        read_statistics(stack, 300, device), read_statistics(stack, 300), strict=True
    ):
        for name in ("mean", "rank", "energy", "upper"):
            one, other = getattr(found, name), getattr(expected, name)
            np.testing.assert_allclose(one, other, 1e-5, 1e-3, err_msg=name)
        assert found.overlap == expected.overlap


def test_pixels_that_are_not_finite(device):
    stack = compared_planes("float32", (4, 64, 64))
    stack[0, 5, 5] = np.nan
    stack[1, :40] = np.inf
    stack[2, ::6, ::6] = np.nan  # no patch of 8 x 8 pixels is whole
    stack[3] = np.nan
    held = PlaneStack.held(stack)
    found, expected = read_statistics(held, 500, device), read_statistics(held, 500)
    assert [each is None for each in found] == [False, False, False, True]
    assert expected[3] is None
    for one, other in zip(found[:3], expected[:3], strict=True):
        assert len(one.mean) == len(other.mean)
        np.testing.assert_allclose(one.energy, other.energy, 1e-4, 1e-3)


def test_clipped_levels_of_each_plane(device):
    stack = compared_planes("uint8", (2, 64, 64))
    stack[0] = np.clip(stack[0], 60, 120)
    found = read_statistics(PlaneStack.held(stack), 500, device)
    expected = read_statistics(PlaneStack.held(stack), 500)
    assert found[0].clipped.max() > 0.05  # large areas of 120 are left out
    assert found[1].clipped.max() == 0
    np.testing.assert_array_equal(found[0].clipped, expected[0].clipped)


def test_several_batches(device, monkeypatch):
    stack = PlaneStack.held(compared_planes(shape=(5, 64, 64)))
    whole = read_statistics(stack, 500, device)
    monkeypatch.setattr(device_patches, "BATCH_BYTES", 2 * 64 * 64 * 2)
    for one, other in zip(read_statistics(stack, 500, device), whole, strict=True):
        np.testing.assert_array_equal(one.energy, other.energy)


def test_which_device(monkeypatch):
    stack = PlaneStack.held(compared_planes())

    def none(device):
        raise NoDeviceError("There is none.")

    monkeypatch.setattr("napari_gpu_denoise.opencl.device.choose", none)
    monkeypatch.setattr(device_patches, "WORTHWHILE", 0)
    assert len(read_statistics(stack, 100)) == 3
    with pytest.raises(NoDeviceError):
        read_statistics(stack, 100, "gpu")


COMPARED_SIMULATION = """
import dataclasses, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from opencl.simulate import simulator, suit_oclgrind
from napari_gpu_denoise.noise.patches.device import read_statistics
from napari_gpu_denoise.noise.sampling import PlaneStack
suit_oclgrind()
planes = np.load(sys.argv[2])
device = dataclasses.replace(simulator(), kind=sys.argv[3])
found = read_statistics(PlaneStack.held(planes), 60, device)
np.save(sys.argv[2], np.array([each.energy for each in found]))
"""


@pytest.mark.parametrize("kind", ["simulator", "discrete GPU"])
def test_every_access_to_compared_planes_is_sound(simulator, tmp_path, kind):
    """No read or write out of bounds, and none of what was never written."""
    stack = compared_planes("uint16", (2, 30, 37))
    np.save(tmp_path / "planes.npy", stack)
    tests = str(Path(__file__).parents[1])
    arguments = [
        "-W",
        "ignore",
        "-c",
        COMPARED_SIMULATION,
        tests,
        str(tmp_path / "planes.npy"),
        kind,
    ]
    done = subprocess.run(
        [sys.executable, *arguments],
        env={k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")} | CHECKS,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = read_statistics(PlaneStack.held(stack), 60)
    for found, wanted in zip(np.load(tmp_path / "planes.npy"), expected, strict=True):
        np.testing.assert_allclose(found, wanted.energy, 1e-4, 1e-2)
