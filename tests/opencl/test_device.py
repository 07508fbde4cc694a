"""Which devices there are, which one is used, and why."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import pytest

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.opencl.device import ADVICE, KINDS, Device, choose, devices, find, why


def made(index: int, kind: str, **changes) -> Device:
    values = {
        "index": index,
        "name": f"{kind} {index}",
        "platform": "Acme OpenCL",
        "vendor": "Acme",
        "version": "OpenCL 3.0",
        "driver": "1",
        "kind": kind,
        "memory": 1 << 30,
        "max_alloc": 1 << 28,
        "local_memory": 1 << 15,
        "compute_units": 8,
        "clock": 1000,
        "max_group": 256,
        "float_lanes": 1,
        "problem": "",
        "tested": True,
        "handle": None,
    }
    return Device(**{**values, **changes})


def output_of(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


FORKED = """
import multiprocessing, sys
import numpy as np
import napari_gpu_denoise as gd
image = np.random.default_rng(0).normal(100, 10, (1200, 600))
def call(name):
    try:
        if name == "devices":
            return len(gd.devices())
        if name == "estimate":
            return gd.estimate_noise(image).sigma
        return gd.nl_means(image[:20, :20], 10).shape
    except gd.errors.ForkedProcessError as error:
        return str(error)
call(sys.argv[1])
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(*pool.map(call, [sys.argv[2]]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(
    ("before", "after"),
    [("devices", "run"), ("run", "estimate"), ("estimate", "run")],
)
def test_a_forked_process_is_told_so(before, after):
    """Not left waiting for threads and locks that are not in it."""
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, before, after],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if "estimate" not in (before, after):  # it needs no device
        assert "'spawn' or 'forkserver'" in told
    assert told.strip()


def test_devices_of_this_machine_are_listed_in_order():
    found = devices()
    assert [device.index for device in found] == list(range(len(found)))
    assert all(device.kind in KINDS for device in found)
    assert all(device.memory >= device.max_alloc > 1 << 20 for device in found)


def test_the_order_is_discrete_then_integrated_then_cpu(machine):
    order = ["simulator", "other", "CPU", "integrated GPU", "discrete GPU"]
    found = machine(*(made(k, kind) for k, kind in enumerate(order)))
    for count in range(5, 1, -1):
        machine(*found[:count])
        assert choose() is found[count - 1]
        assert why().startswith(str(found[count - 1]))
    _, fast = machine(made(0, "discrete GPU"), made(1, "discrete GPU", compute_units=80))
    assert choose() is fast and "fastest discrete GPU" in why()
    broken = made(0, "CPU", problem="it is too old", compute_units=80)
    _, sound = machine(broken, made(1, "CPU"))
    assert choose() is choose("cpu") is sound and "only usable" in why()


def test_a_simulator_is_never_chosen_unless_asked_for(machine):
    simulator, broken = made(0, "simulator"), made(1, "CPU", problem="it is too old")
    machine(simulator, broken)
    with pytest.raises(NoDeviceError, match=r"it is too old.*CPU"):
        choose()
    assert choose(0) is simulator
    assert choose("simulator") is simulator


def test_a_device_can_be_named(machine):
    cpu, gpu = machine(made(3, "CPU", name="Ryzen 9"), made(7, "discrete GPU", name="Radeon"))
    for wanted in (cpu, 3, "3", "cpu", "CPU", "ryz"):
        assert choose(wanted) is cpu
    assert choose("gpu") is choose("radeon") is gpu
    assert choose("acme") is gpu
    assert "requested" in why("cpu")


@pytest.mark.parametrize("wanted", [5, "5", "-1", "abacus", "²"])
def test_a_device_that_is_not_there_is_an_error(machine, wanted):
    machine(made(3, "CPU", name="Ryzen 9"))
    with pytest.raises(NoDeviceError, match="choose one of 3: Ryzen 9"):
        choose(wanted)


def test_the_environment_variable_is_the_default(machine, monkeypatch):
    cpu, gpu = machine(made(0, "CPU"), made(1, "discrete GPU"))
    monkeypatch.setenv("GPU_DENOISE_DEVICE", "cpu")
    assert choose() is cpu
    assert "GPU_DENOISE_DEVICE" in why()
    assert choose("gpu") is gpu
    monkeypatch.setenv("GPU_DENOISE_DEVICE", "  ")
    assert choose() is gpu
    monkeypatch.setenv("GPU_DENOISE_DEVICE", "abacus")
    with pytest.raises(NoDeviceError, match="abacus"):
        choose()


def test_a_device_moves_to_another_process_by_name(device):
    again = pickle.loads(pickle.dumps(device))
    assert again is device
    assert copy.deepcopy(device) is device
    assert b"pyopencl" not in pickle.dumps(device)
    with pytest.raises(NoDeviceError, match="not on this machine"):
        find("Abacus", "Acme", 0)


def test_of_two_equal_devices_the_same_one_is_found(machine):
    twins = machine(made(0, "discrete GPU", name="H200"), made(1, "discrete GPU", name="H200"))
    for twin in twins:
        assert pickle.loads(pickle.dumps(twin)).index == twin.index


@pytest.mark.parametrize(("floats", "lanes"), [(1, 1), (2, 1), (4, 4), (8, 8), (12, 8), (32, 16)])
def test_vectors_are_as_wide_as_a_device_has_them(floats, lanes):
    assert made(0, "CPU", float_lanes=floats).lanes == lanes


def test_a_machine_without_a_driver_has_no_devices(monkeypatch):
    """No ICD: the list is empty, and nothing is raised."""
    monkeypatch.delenv("GPU_DENOISE_DEVICE", raising=False)
    script = (
        "import pyopencl\n"
        "pyopencl.get_platforms = lambda: (_ for _ in ()).throw(\n"
        "    pyopencl.LogicError('clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR'))\n"
        "import napari_gpu_denoise as gd\n"
        "assert gd.devices() == ()\n"
        "try:\n"
        "    gd.choose()\n"
        "except gd.errors.NoDeviceError as error:\n"
        "    print(error)\n"
    )
    assert output_of(script) == f"No OpenCL device was found. {ADVICE}"


def test_without_pyopencl_there_are_no_devices():
    script = "import sys; sys.modules['pyopencl'] = None\n"
    script += "import napari_gpu_denoise as gd; print(gd.devices())"
    assert output_of(script) == "()"
