"""What is read of many patches of many planes, on the device and without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.noise.patches import device as device_patches
from napari_gpu_denoise.noise.patches.device import read_statistics
from napari_gpu_denoise.noise.sampling import PlaneStack
from opencl.simulate import CHECKS
from reference.patch_statistics import patch_statistics as slow


def planes(dtype="uint16", shape=(3, 61, 75), seed=0):
    level = 90 + 60 * np.sin(np.arange(shape[-1]) / 9)
    values = np.random.default_rng(seed).normal(level, 8, shape)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        values = np.rint(values - (20 if limits.min < 0 else 0)).clip(limits.min, limits.max)
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", ">u2", "int16", "float32"])
def test_the_device_agrees_with_the_reference(device, dtype):
    stack = planes(dtype)
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
    stack = PlaneStack.held(planes("float32", shape))
    for found, expected in zip(
        read_statistics(stack, 300, device), read_statistics(stack, 300), strict=True
    ):
        for name in ("mean", "rank", "energy", "upper"):
            one, other = getattr(found, name), getattr(expected, name)
            np.testing.assert_allclose(one, other, 1e-5, 1e-3, err_msg=name)
        assert found.overlap == expected.overlap


def test_pixels_that_are_not_finite(device):
    stack = planes("float32", (4, 64, 64))
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
    stack = planes("uint8", (2, 64, 64))
    stack[0] = np.clip(stack[0], 60, 120)
    found = read_statistics(PlaneStack.held(stack), 500, device)
    expected = read_statistics(PlaneStack.held(stack), 500)
    assert found[0].clipped.max() > 0.05  # large areas of 120 are left out
    assert found[1].clipped.max() == 0
    np.testing.assert_array_equal(found[0].clipped, expected[0].clipped)


def test_several_batches(device, monkeypatch):
    stack = PlaneStack.held(planes(shape=(5, 64, 64)))
    whole = read_statistics(stack, 500, device)
    monkeypatch.setattr(device_patches, "BATCH_BYTES", 2 * 64 * 64 * 2)
    for one, other in zip(read_statistics(stack, 500, device), whole, strict=True):
        np.testing.assert_array_equal(one.energy, other.energy)


def test_which_device(monkeypatch):
    stack = PlaneStack.held(planes())

    def none(device):
        raise NoDeviceError("There is none.")

    monkeypatch.setattr("napari_gpu_denoise.opencl.device.choose", none)
    monkeypatch.setattr(device_patches, "WORTHWHILE", 0)
    assert len(read_statistics(stack, 100)) == 3
    with pytest.raises(NoDeviceError):
        read_statistics(stack, 100, "gpu")


SIMULATION = """
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
def test_every_access_is_sound(simulator, tmp_path, kind):
    """No read or write out of bounds, and none of what was never written."""
    stack = planes("uint16", (2, 30, 37))
    np.save(tmp_path / "planes.npy", stack)
    tests = str(Path(__file__).parents[1])
    arguments = ["-W", "ignore", "-c", SIMULATION, tests, str(tmp_path / "planes.npy"), kind]
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
