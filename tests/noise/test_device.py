"""Patches that a device transforms and sums up, beside a slow reference."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.noise.patches import device as device_patches
from napari_gpu_denoise.noise.patches.coefficients import (
    Squares,
    coefficient_order,
    frequency_sets,
    span_sums,
)
from napari_gpu_denoise.noise.patches.device import patches_on
from napari_gpu_denoise.noise.patches.selection import Plane
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from opencl.simulate import CHECKS
from reference.patch_coefficients import patch_coefficients

LIMIT = 600
TYPES = ["uint8", "int8", "uint16", ">u2", "int16", "float32", "float64", "int32", "uint64", "f2"]


def planes(dtype="float32", shape=(2, 61, 75)):
    level = 90 + 60 * np.sin(np.arange(shape[-1]) / 9)
    values = np.random.default_rng(0).normal(level, 8, shape)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        low, high = max(limits.min, -128), min(limits.max, 255)
        values = np.rint(values - (20 if limits.min < 0 else 0)).clip(low, high)
    return list(values.astype(dtype))


def compare(found, expected, unit=1.0):
    """Compare patches with those of the reference, in grey levels of a unit."""
    coefficients = np.array([each.coefficients.ravel() for each in expected]) / unit
    energy = np.square(coefficients[:, coefficient_order()]) @ frequency_sets().T
    close = np.testing.assert_allclose
    close(found.mean / unit, [each.mean / unit for each in expected], 1e-6)
    close(found.seen / unit, [each.seen / unit for each in expected], 1e-5, 1e-3)
    close(found.clipped, [each.clipped for each in expected])
    close(found.energy / unit**2, energy.T, 1e-4, 1e-3)
    rows = np.asarray(found.coefficients) / unit
    close(rows, coefficients[:, coefficient_order()], 1e-4, 2e-3)


def reference(stack, found, ends=()):
    """Return the patches of planes, at the places where they were read."""
    y, x = (np.rint(k * n - 4) for k, n in zip(found.place, stack[0].shape, strict=True))
    down, across = (int(np.diff(np.unique(k))[0]) if np.ptp(k) else 1 for k in (y, x))
    assert found.overlap == max(1, 8 / down) * max(1, 8 / across)
    return [each for plane in stack for each in patch_coefficients(plane, down, across, ends)]


@pytest.mark.parametrize("like_a_gpu", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_patches_are_those_of_the_reference(device, monkeypatch, dtype, like_a_gpu):
    stack = planes(dtype)
    ends = [127] if dtype == "int8" else []
    with patches_on(device) as place:
        monkeypatch.setattr(place, "cpu", place.cpu and not like_a_gpu)
        found = read_spectra([Plane(each, None, ends) for each in stack], LIMIT, place)
        compare(found, reference(stack, found, ends))
    assert len(found.count) == 2


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 8, 300), (1, 500, 64), (3, 130, 133)])
@pytest.mark.parametrize("limit", [60, 3000])
def test_patches_of_any_shape(device, monkeypatch, shape, limit):
    stack = planes("uint16", shape)
    monkeypatch.setattr(device_patches, "BATCH_BYTES", 2 * stack[0].nbytes)
    with patches_on(device) as place:
        found = read_spectra(Plane.of_image(stack), limit, place)
        compare(found, reference(stack, found))
    compare(
        read_spectra(Plane.of_image(stack), limit), reference(stack, found)
    )  # their coefficients in memory


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e17, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_grey_levels_travel_in_another_unit(device, scale, dtype):
    stack = [(scale * plane).astype(dtype) for plane in planes()]
    with patches_on(device) as place:
        found = read_spectra(Plane.of_image(stack), LIMIT, place)
        compare(found, reference(stack, found), scale)
        squares = span_sums(found.squares, np.arange(90), [50], [90])[0]
        rows = np.square(np.asarray(found.coefficients)[50:90, 42:] / scale)
        np.testing.assert_allclose(squares / scale**2, rows.sum(axis=0), 1e-4)


@pytest.mark.parametrize(("dtype", "level"), [("f8", 1e12), ("i8", 2**62), ("u8", 2**63)])
def test_levels_far_from_zero_keep_their_digits(device, dtype, level):
    whole = np.rint(planes("float64")[0])
    far = whole.astype(dtype) + np.dtype(dtype).type(level)
    with patches_on(device) as place:
        one, other = (read_spectra([Plane(each)], LIMIT, place) for each in (whole, far))
        np.testing.assert_allclose(other.energy, one.energy, 1e-5)


def test_frames_are_measured_on_the_device_that_is_named(device, monkeypatch):
    asked = []
    monkeypatch.setattr(
        device_patches, "choose_devices", lambda which, *uses: asked.append(which) or (device,)
    )
    frames = np.random.default_rng(0).normal(100, 5, (4, 64, 64)).astype(np.float32)
    estimate_noise(frames, axes="TYX", device=device)
    assert asked and set(asked) == {device}


def test_frames_and_planes_are_not_read_at_once(device, monkeypatch):
    """They share memory on the device: of two threads, one read the numbers of the other."""
    threads, read = set(), device_patches.DevicePatches.read

    def told(*given):
        threads.add(threading.get_ident())
        return read(*given)

    monkeypatch.setattr(device_patches.DevicePatches, "read", told)
    image = np.random.default_rng(0).normal(100, 5, (4, 512, 512)).astype(np.float32)
    estimate_noise(image, "TYX", device=device)
    assert threads == {threading.get_ident()}


def test_pixels_that_are_left_out(device):
    stack = planes("float32", (3, 64, 64))
    stack[0][5, 5], stack[1][:30], stack[2][:] = np.nan, np.inf, np.nan
    stack[1][60, 60] = -3e38  # a fill value
    blank = np.zeros((64, 64), bool)
    blank[40:, :20] = True
    with patches_on(device) as place:
        found = read_spectra([Plane(stack[0], blank), *map(Plane, stack[1:])], LIMIT, place)
        whole = read_spectra([Plane(stack[0])], LIMIT // 3, place)
        stack[0][blank], stack[1][60, 60] = np.nan, np.nan
        expected = [k for plane in stack for k in patch_coefficients(plane, 5, 4)]
        compare(found, expected)
        assert found.count[0] < len(whole.mean) and found.count[2] == 0
        parts = found.alone()
        assert [len(each.mean) for each in parts] == list(found.count[:2])
        compare(parts[1], expected[found.count[0] :])
        with pytest.raises(NonFiniteError):
            read_spectra([Plane(stack[2])], LIMIT, place)
    with pytest.raises(ImageError):
        read_spectra([Plane(np.zeros((7, 90)))])


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_spans(device, weighted):
    """They overlap, are empty, and longer than a chunk; some patches are left out."""
    stack = planes("float32", (1, 130, 133))
    stack[0][5, 5] = np.nan
    with patches_on(device) as place:
        found = read_spectra(Plane.of_image(stack), 9000, place)
        rows, order = np.asarray(found.coefficients), np.arange(len(found.mean))
        assert len(order) > 5 * 512
        np.random.default_rng(1).shuffle(order)
        weight = np.random.default_rng(2).random(len(order)) if weighted else None
        spans = np.array([0, 3, 50, 60]), np.array([3, len(order), 50, 2000])
        squares = np.square(rows.astype(float))
        some = squares[order] * (1 if weight is None else weight[order, None])
        expected = np.array([some[a:b].sum(axis=0) for a, b in zip(*spans, strict=True)])
        for each in (Squares(found.coefficients), Squares(rows), squares):
            np.testing.assert_allclose(span_sums(each, order, *spans, weight), expected, 1e-4)
        high = span_sums(found.squares, order, *spans, weight)
        np.testing.assert_allclose(high, expected[:, 42:], 1e-4)


SIMULATION = """
import dataclasses, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from opencl.simulate import simulator, suit_oclgrind
from napari_gpu_denoise.noise.patches.coefficients import span_sums
from napari_gpu_denoise.noise.patches.device import patches_on
from napari_gpu_denoise.noise.patches.selection import Plane
from napari_gpu_denoise.noise.patches.spectra import read_spectra
suit_oclgrind()
planes, sums = list(map(Plane, np.load(sys.argv[2]))), []
for kind in ("simulator", "discrete GPU"):
    with patches_on(dataclasses.replace(simulator(), kind=kind)) as place:
        found = read_spectra(planes, 120, place)
        order, spans = np.arange(len(found.mean)), ([0, 40], [40, len(found.mean)])
        sums += [span_sums(found.squares, order, *spans, each) for each in (None, 0.0 * order + 2)]
np.save(sys.argv[2], np.array(sums))
"""


def test_every_access_is_sound(simulator, tmp_path):
    """No read or write out of bounds, and none of what was never written."""
    stack = planes("uint16", (2, 17, 21))
    np.save(tmp_path / "planes.npy", stack)
    tests = str(Path(__file__).parents[1])
    arguments = ["-W", "ignore", "-c", SIMULATION, tests, str(tmp_path / "planes.npy")]
    done = subprocess.run(
        [sys.executable, *arguments],
        env={k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")} | CHECKS,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert not done.stderr and not done.returncode, done.stderr[:5000]
    expected = read_spectra(list(map(Plane, stack)), 120)
    number = len(expected.mean)
    squares = span_sums(expected.squares, np.arange(number), [0, 40], [40, number])
    found = np.load(tmp_path / "planes.npy")
    np.testing.assert_allclose(found, 2 * [squares, 2 * squares], 1e-4, 0.05)
