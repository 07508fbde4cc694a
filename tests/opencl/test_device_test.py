"""Devices are tested before they are used, in processes that may crash, hang or be wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import psutil
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import DeviceMemoryError, KernelError, NoDeviceError
from napari_gpu_denoise.filters import self_test
from napari_gpu_denoise.opencl import device as devices
from napari_gpu_denoise.opencl import device_test
from napari_gpu_denoise.opencl.device_test import (
    Answer,
    Patience,
    answer_file,
    answers_for,
    outcome_of,
)
from reference.bm3d import bm3d
from reference.nl_means import nl_means
from reference.vbm3d import vbm3d

CHILD = """
import json, os, subprocess, sys, time
platform, name, index, lanes, part = json.loads(sys.argv[1])
def report(**message):
    print(json.dumps(message), flush=True)
report()
report(step="BM3D")
"""
PASSES = "report(outcome=['', True])"


@pytest.fixture(autouse=True)
def folder(own_cache, monkeypatch):
    """A cache folder of this test alone, and devices that no setting chooses from."""
    monkeypatch.delenv("GPU_DENOISE_DEVICE", raising=False)
    monkeypatch.setattr(devices, "_known", {})
    device_test._say_here.cache_clear()
    return own_cache


@pytest.fixture
def untested(device):
    """The device under test as its driver describes it, with vectors of 16 floats."""
    found = devices.find_untested(device.name, device.platform, device.index)
    return replace(found, kind="CPU", float_lanes=16, tested=False)


@pytest.fixture
def child(monkeypatch):
    """Return a function that replaces the processes of tests, and the requests they got."""

    def put(body: str) -> list:
        requests = []

        def command(request):
            requests.append(request)
            return [sys.executable, "-c", CHILD + body, json.dumps(request)]

        monkeypatch.setattr(device_test, "child_command", command)
        return requests

    return put


def only(device, *patience) -> Answer:
    (answer,) = answers_for([device], *patience)
    return answer


def asked(requests: list) -> list[int]:
    """Return the widths of vectors that were tried, in order."""
    return list(dict.fromkeys(lanes for _, _, _, lanes, _ in requests))


def test_this_device_passes_and_nobody_asks_again(device, child):
    found = devices.find_untested(device.name, device.platform, device.index)
    assert only(found) == Answer("", device.float_lanes)
    requests = child("sys.exit(1)")
    assert only(found) == Answer("", device.float_lanes) and not requests
    assert devices.find(device.name, device.platform, device.index) == device


@pytest.mark.thorough
def test_stored_results_are_those_of_the_reference():
    frames, stored = self_test.video().astype(np.float32), np.load(self_test._STORED)
    plain = gd.NLMeans().as_dict() | {"sigma": self_test._SIGMA}
    expected = {
        "nl_means": nl_means(frames[0], **plain),
        "bm3d": bm3d(frames[0], self_test._SIGMA, gd.BM3D(), exact=False),
        "vbm3d": vbm3d(frames, self_test._SIGMA, gd.VBM3D()),
    }
    assert set(stored) == set(expected)
    for name, values in expected.items():
        error = stored[name] / self_test._SCALE - np.reshape(values, stored[name].shape)
        assert np.abs(error).max() < 0.05, name


# Wide vectors


ABORTS = "if lanes > 8:\n    print('LLVM ERROR: Cannot select', file=sys.stderr); os.abort()\n"
SLOW = "report(step=f'vectors, {lanes} floats wide')\nwhile lanes > 4:\n    pass\n"
WRONG = "report(outcome=['' if lanes == 4 else 'it is wrong', True])"


@pytest.mark.parametrize(
    ("body", "widths"),
    [(ABORTS + PASSES, [16, 8]), (SLOW + PASSES, [16, 8, 4]), (WRONG, [16, 8, 4])],
    ids=["aborts", "takes too long", "wrong"],
)
def test_narrower_vectors_are_tried(untested, child, body, widths):
    """PoCL 3.0 aborts on AMD Zen 4, and takes two minutes before it does."""
    requests = child(body)
    assert only(untested, Patience(vectors=0.2)) == Answer("", widths[-1])
    assert asked(requests) == widths
    (tested,) = devices._tested([untested])
    assert (tested.float_lanes, tested.problem, tested.tested) == (widths[-1], "", True)


def test_a_gpu_is_tried_once(untested, child):
    requests = child("report(outcome=['it is wrong', True])")
    gpu = replace(untested, kind="discrete GPU", float_lanes=1)
    assert only(gpu) == Answer("it is wrong", 1) and asked(requests) == [1]


# Crashes, hangs and wrong results


@pytest.mark.skipif(os.name == "nt", reason="signals end processes elsewhere")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            "print('LLVM ERROR: no fma\\nIn function: f', file=sys.stderr)\nos.abort()\n",
            "ended with SIGABRT: LLVM ERROR: no fma",
        ),
        (
            "print('no licence', file=sys.stderr)\nsys.exit(77)",
            "ended with exit status 77: no licence",
        ),
    ],
    ids=["signal", "exit"],
)
def test_a_crash_is_named_by_signal_and_error(untested, child, body, problem):
    requests = child(body)
    assert only(untested) == Answer(f"the test of BM3D {problem}", 16)
    assert asked(requests) == [16, 8, 4]


@pytest.mark.skipif(os.name == "nt", reason="signals end processes elsewhere")
def test_a_test_that_somebody_ends_says_nothing(untested, child, folder):
    requests = child("import signal; os.kill(os.getpid(), signal.SIGKILL)")
    answer = only(untested)
    assert "SIGKILL" in answer.problem and not answer.lasting
    assert asked(requests) == [16] and not list(folder.glob("*.json"))


def test_a_hanging_process_is_killed_with_all_it_has_started(untested, child, tmp_path):
    started = tmp_path / "started"
    requests = child(
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(started)!r}, 'a').write(f'{{os.getpid()}} {{other.pid}} ')\n"
        "time.sleep(600)\n"
    )
    problem = only(untested, Patience(idle=1.0)).problem
    assert problem == "it did not finish a test within 1 s (BM3D)"
    assert asked(requests) == [16]  # others would hang as well
    if os.name != "nt":
        processes = [int(number) for number in started.read_text().split()]
        assert len(processes) == 4
        for _ in range(600):  # the system takes its time
            if not any(map(psutil.pid_exists, processes)):
                break
            time.sleep(0.1)
        else:
            pytest.fail("processes of a test are still there")


def test_a_process_that_computes_does_not_hang(untested, child):
    """Nor one that waits for a core of a busy machine."""
    child("while time.process_time() < 1.5:\n    pass\n" + PASSES)
    assert only(untested, Patience(idle=0.5)).problem == ""
    device_test.forget_answers()
    slow = only(untested, Patience(idle=0.5, computing=0.2))
    assert "it did not finish a test within" in slow.problem


@pytest.mark.parametrize(
    ("name", "kernel", "wrong"),
    [
        ("vectors", "vector_functions", "its result is wrong by 1"),
        ("barriers", "prefix_sums", "its result is wrong by 1"),
        ("loops", "long_loop", "a loop ended before its 131072 turns"),
        ("BM3D", "", "its result is wrong by 1"),
    ],
)
def test_a_wrong_result_is_named(device, monkeypatch, name, kernel, wrong):
    plain, stored = self_test._run, np.load(self_test._STORED)

    def spoiled(device, launched, *given, **results):
        plain(device, launched, *given, **results)
        if launched == kernel:
            *_, last = results.values()
            last[-1] += 1

    monkeypatch.setattr(self_test, "_run", spoiled)
    monkeypatch.setattr(self_test, "_filtered", lambda step, _: stored[step] / 200.0 - 1)
    steps = self_test.run_part(
        device.platform, device.name, device.index, device.float_lanes, part=0
    )
    problem, lasting = outcome_of(steps, lambda step: None)
    assert problem.startswith(f"the test of {name}") and wrong in problem and lasting


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DeviceMemoryError("It is full."), ("", False)),
        (NoDeviceError("Busy: DEVICE_NOT_AVAILABLE"), ("", False)),
        (NoDeviceError("It is gone."), ("It is gone.", False)),
        (KernelError("No build.\n" + "x" * 99), ("the test of BM3D failed: No build.", True)),
        (KernelError("x" * 999), (f"the test of BM3D failed: {'x' * 299}…", True)),
        (TypeError("a mistake"), ("the test of BM3D failed: TypeError: a mistake", False)),
    ],
    ids=str,
)
def test_what_an_error_says_of_a_device(error, expected):
    def steps():
        yield "BM3D"
        raise error

    assert outcome_of(steps(), lambda step: None) == expected


# Without processes


@pytest.mark.parametrize("executable", ["", "/nowhere", "/bin/echo"])
def test_without_processes_the_test_runs_in_this_one(device, monkeypatch, executable):
    """Also where what is started is not this Python."""
    monkeypatch.setattr(sys, "executable", executable)
    found = devices.find_untested(device.name, device.platform, device.index)
    with pytest.warns(UserWarning, match="they are tested in this one") as said:
        assert only(found) == Answer("", device.float_lanes)
    assert len(said) == 1


def test_a_process_ends_with_the_one_that_started_it(device):
    request = [device.platform, device.name, device.index, device.float_lanes, 0]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(device_test.child_command(request), **pipes) as process:
        assert process.stdout.readline().strip() == b"{}"
        process.stdin.close()
        assert process.wait(60) == 1


# Answers that are kept


def test_another_process_uses_the_answer(device, tmp_path):
    """So do workers, however they are started."""
    script = (
        "import napari_gpu_denoise as gd\n"
        "from napari_gpu_denoise.opencl import device_test\n"
        "from napari_gpu_denoise.opencl.device import listed\n"
        f"found = listed()[{device.index}]\n"
        "file = device_test.answer_file(found)\n"
        "file.parent.mkdir(parents=True)\n"
        "device_test.keep_answer(file, found, device_test.Answer('it is broken', 1))\n"
        "try:\n"
        f"    gd.choose({device.index})\n"
        "except gd.errors.NoDeviceError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "it is broken" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"problem": ""}', '{"problem": "", "float_lanes": 32}', "\0\udcff"],
)
def test_a_damaged_answer_is_no_answer(untested, child, text):
    file = answer_file(untested)
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    child(PASSES)
    assert only(untested) == Answer("", 16)
    child("sys.exit(1)")
    assert only(untested) == Answer("", 16)  # it was mended


def test_answers_that_cannot_be_kept(untested, child, folder):
    folder.write_text("a file is in the place of the folder")
    requests = child(PASSES)
    for count in (1, 2):
        assert only(untested) == Answer("", 16)
        assert len(requests) == count * device_test._PARTS


@pytest.mark.parametrize(
    "change",
    [{"driver": "2"}, {"version": "3"}, {"name": "B"}, {"float_lanes": 4}, {"kind": "other"}],
    ids=str,
)
def test_an_answer_is_that_of_driver_and_processor(untested, change):
    assert answer_file(replace(untested, **change)) != answer_file(untested)


def test_who_comes_second_waits_for_the_answer(untested, child):
    """Processes that start at the same time, such as workers."""
    requests = child("time.sleep(0.5)\n" + PASSES)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(only, [untested] * 3)) == [Answer("", 16)] * 3
    assert len(requests) == device_test._PARTS


def test_answers_are_forgotten_on_request(untested, child, folder):
    device_test.forget_answers()  # there is no folder
    requests = child(PASSES)
    only(untested)
    device_test.forget_answers()
    only(untested)
    assert len(requests) == 2 * device_test._PARTS


# Which devices are tested


class Platform:
    def __init__(self, version):
        self.version = version


class Handle:
    def __init__(self, version="1"):
        self.platform = Platform(version)


@pytest.fixture
def untested_machine(untested, machine):
    """Put devices into the machine that nobody has tested."""

    def put(**kinds):
        made = [
            replace(untested, index=k, name=name, platform=name, kind=kind, handle=Handle())
            for k, (name, kind) in enumerate(kinds.items())
        ]
        return machine(*made)

    return put


FAILING = "report(outcome=['it is wrong' if name in {names} else '', True])"


def test_of_several_the_best_that_passes_is_chosen(untested_machine, child):
    machine = untested_machine
    machine(cpu="CPU", gpu="discrete GPU", broken="discrete GPU")
    requests = child(FAILING.format(names=["broken"]))
    assert gd.choose().name == "gpu"
    # Whoever has a GPU does not wait for the test of the CPU.
    assert {name for _, name, *_ in requests} == {"gpu"}
    assert gd.choose("gpu").name == "gpu" and gd.choose(0).name == "cpu"
    with pytest.raises(NoDeviceError, match=r"broken .*it is wrong.*Update its driver"):
        gd.choose("broken")
    assert [each.problem for each in gd.devices()] == ["", "", "it is wrong"]
    assert len(requests) == (1 + 1 + 3) * device_test._PARTS
    machine(cpu="CPU", broken="discrete GPU")
    assert gd.choose().name == "cpu" and "only usable" in gd.why()
    machine(broken="discrete GPU")
    with pytest.raises(NoDeviceError, match=r"broken .*it is wrong.*pip install"):
        gd.choose()


def test_devices_are_tested_side_by_side_and_twins_once(untested_machine, child):
    first, *others = untested_machine(one="CPU", other="CPU", third="CPU")
    requests = child("time.sleep(0.3 * (name == 'one'))\n" + FAILING.format(names=["one"]))
    answers = answers_for([first, *others, replace(first, index=7)])
    assert [each.problem for each in answers] == ["it is wrong", "", "", "it is wrong"]
    assert len({name for _, name, *_ in requests}) == 3


def test_a_device_that_poses_as_another_is_not_tested(device, child):
    requests, posing = child(PASSES), replace(device, kind="discrete GPU", float_lanes=1)
    assert gd.choose(posing) is posing and not requests
