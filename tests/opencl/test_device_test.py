"""Devices are tested before they are used, in processes that may crash, hang or be wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import napari_gpu_denoise as gd
from filters.test_gpu_kernels import REFERENCES
from napari_gpu_denoise.errors import DeviceMemoryError, KernelError, NoDeviceError
from napari_gpu_denoise.filters import self_test
from napari_gpu_denoise.opencl import device as devices
from napari_gpu_denoise.opencl import device_test, program
from napari_gpu_denoise.opencl.device_test import (
    Answer,
    Patience,
    answer_file,
    answer_for,
    outcome_of,
)
from napari_gpu_denoise.protocol.filter import Context
from tools.conftest import load

CHILD = """
import json, os, subprocess, sys, time
platform, name, index, lanes, steps = json.loads(sys.argv[1])
def report(**message):
    print(json.dumps(message), flush=True)
report()
report(step="BM3D")
"""
PASSES = "report(outcome=['', True])"
FAILING = "report(outcome=['it is wrong' if {bad} else '', True])"


@pytest.fixture(autouse=True)
def folder(own_cache, monkeypatch):
    """A cache folder of this test alone, and devices that no setting chooses from."""
    monkeypatch.delenv("GPU_DENOISE_DEVICE", raising=False)
    for name in ("_known", "_plain", "_asked"):
        monkeypatch.setattr(devices, name, {})
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


@pytest.fixture
def untested_machine(untested, machine):
    """Put devices into the machine that nobody has tested."""
    handle = SimpleNamespace(platform=SimpleNamespace(version="1"))

    def put(**kinds):
        made = [
            replace(untested, index=k, name=name, platform=name, kind=kind, handle=handle)
            for k, (name, kind) in enumerate(kinds.items())
        ]
        return machine(*made)

    return put


def only(device, *patience, uses=()) -> Answer:
    return answer_for(device, uses, *patience)


def passes(lanes: int, *filters: str) -> Answer:
    """The answer of a device that has passed the test of the compiler, and of filters."""
    return Answer("", lanes, passed=("", *filters))


def asked(requests: list) -> list[int]:
    """Return the widths of vectors that were tried, in order."""
    return list(dict.fromkeys(lanes for _, _, _, lanes, _ in requests))


def test_this_device_passes_and_nobody_asks_again(device, child):
    found = devices.find_untested(device.name, device.platform, device.index)
    assert only(found) == passes(device.float_lanes)
    requests = child("sys.exit(1)")
    assert only(found) == passes(device.float_lanes) and not requests
    assert devices.find(device.name, device.platform, device.index) == device


def test_every_filter_has_a_stored_result_which_this_device_yields(device):
    names = ["noise", *(each.name for each in gd.FILTERS)]
    assert sorted(np.load(self_test.STORED)) == sorted([*names, "video"])
    request = device.platform, device.name, device.index, device.float_lanes, names
    titles = ["noise", *(each.title for each in gd.FILTERS)]
    assert list(self_test.run_steps(request)) == titles


def test_results_of_one_filter_are_stored_anew_and_others_stay(tmp_path, monkeypatch):
    script = load("store_self_test", "scripts")
    before = dict(np.load(self_test.STORED))
    changed = before | {name: before[name] + 1000 for name in ("swnlm", "isoline")}
    for module in (self_test, script):
        monkeypatch.setattr(module, "STORED", tmp_path / "stored.npz")
    np.savez_compressed(self_test.STORED, **changed)
    monkeypatch.setattr(sys, "argv", ["store_self_test.py", "swnlm"])
    script.main()
    after = np.load(self_test.STORED)
    assert {*after} == {*before}
    for name in {*before} - {"swnlm"}:
        np.testing.assert_array_equal(after[name], changed[name])
    assert np.abs(after["swnlm"].astype(int) - before["swnlm"]).max() < 4 * self_test.SCALE
    monkeypatch.setattr(sys, "argv", ["store_self_test.py", "no_filter"])
    with pytest.raises(SystemExit, match="no_filter: no filter; give some of noise, nl_means"):
        script.main()


@pytest.mark.thorough
@pytest.mark.parametrize("name", REFERENCES)
def test_stored_results_are_those_of_the_reference(name):
    stored, (by, *_) = np.load(self_test.STORED), REFERENCES[name]
    frames, stored = stored["video"].astype(np.float32), stored[name]
    settings = self_test.filters_for(name)[0]()
    pixels, axes = (frames[0], "YX") if stored.ndim == 2 else (frames, settings.joint + "YX")
    if name == "bm4d":
        settings = settings.prepare(Context(axes, frames.shape, image=frames))
    expected = by(pixels, settings, self_test.SIGMA, axes)
    error = np.abs(stored / self_test.SCALE - expected)
    if name == "swnlm":  # the reference leaves pixels as they are that are similar to few
        error = error[expected != pixels]
    # Of cubes that are as similar, rounding decides which are used.
    assert np.quantile(error, 0.95) < 0.05
    assert error.max() < (3.0 if name == "bm4d" else 0.05)


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
    assert only(untested, Patience(vectors=0.2)) == passes(widths[-1])
    assert asked(requests) == widths
    (tested,) = devices._tested([untested])
    assert (tested.float_lanes, tested.problem, tested.tested) == (widths[-1], "", True)


def test_a_gpu_is_tried_once(untested, child):
    requests = child("report(outcome=['it is wrong', True])")
    gpu = replace(untested, kind="discrete GPU", float_lanes=1)
    assert only(gpu) == Answer("it is wrong", 1) and asked(requests) == [1]


# Each filter before its first result


def test_a_filter_is_tested_before_its_first_result_and_a_fault_in_it_ends_the_device(
    device, child
):
    requests = child(FAILING.format(bad="'bm3d' in steps"))
    (used,) = devices.choose_devices(device.index)
    image = np.full((40, 48), 100.0, np.float32)
    for _ in range(2):
        gd.nl_means(image, 20, device=used)
    assert [steps for *_, steps in requests] == [[""], ["nl_means"]]
    gd.nl_means(image + np.arange(48), device=used)  # noise that is not told is measured
    assert requests.pop()[-1] == ["noise"]
    for call in (gd.bm3d, gd.bm3d, gd.nl_means):
        with pytest.raises(NoDeviceError, match=r"it is wrong.*Update its driver"):
            call(image, 20, device=used)
    assert requests[2][-1] == ["bm3d"]
    # Other processes know it.
    assert only(devices.find_untested(device.name, device.platform, device.index)).problem


def test_a_run_takes_the_best_device_that_passes_its_filter(untested_machine, child):
    untested_machine(cpu="CPU", gpu="discrete GPU")
    requests = child(FAILING.format(bad="name == 'gpu' and 'bm3d' in steps"))
    choose = devices.choose_devices
    assert [choose(None, name)[0].name for name in ("nl_means", "bm3d")] == ["gpu", "cpu"]
    # One process tests compiler and filter, and what is known is not tested again.
    steps = [steps for *_, steps in requests]
    assert steps[:2] == [["", "nl_means"], ["bm3d"]] and steps[-1] == ["", "bm3d"]
    assert choose(None, "bm3d")[0].name == "cpu" and len(requests) == len(steps)


def test_vectors_that_are_too_wide_for_a_filter_are_used_for_none(untested_machine, child):
    untested_machine(cpu="CPU")
    requests = child(FAILING.format(bad="lanes > 8 and 'bm3d' in steps"))
    (wide,) = devices.choose_devices(None, "nl_means")
    (narrow,) = devices.choose_devices(wide, "bm3d")
    assert (wide.float_lanes, narrow.float_lanes) == (16, 8)
    # Also not by those who have chosen it before.
    assert devices.choose_devices(wide, "nl_means") == (narrow,)
    asked = [(lanes, steps) for *_, lanes, steps in requests]
    assert asked[:2] == [(16, ["", "nl_means"]), (16, ["bm3d"])]
    assert asked[2:] == [(8, ["", "bm3d"]), (8, ["nl_means"])]


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
        assert len(processes) == 2
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
    ("name", "spoiled", "wrong"),
    [
        ("vectors of", "out", "its result is wrong by 1"),
        ("vectors of", "bits", "its result is wrong by 1"),
        ("vectors of", "sums", "its result is wrong by 1"),
        ("vectors of", "total", "its result is wrong by 1"),
        ("BM3D", "", "its result is wrong by 1"),
    ],
)
def test_a_wrong_result_is_named(device, monkeypatch, name, spoiled, wrong):
    plain, stored = self_test._run, np.load(self_test.STORED)

    def run(device, constants, values, made):
        plain(device, constants, values, made)
        if spoiled:
            made[spoiled][-1] += 1

    monkeypatch.setattr(self_test, "_run", run)
    monkeypatch.setattr(self_test, "result_of", lambda step, _: stored[step] / 200.0 - 1)
    request = device.platform, device.name, device.index, device.float_lanes, ["", "bm3d"]
    problem, lasting = outcome_of(self_test.run_steps(request), lambda step: None)
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
    uses = "noise", "nl_means"
    with pytest.warns(UserWarning, match="they are tested in this one") as said:
        assert devices.choose_devices(found, *uses) == (device,)
    assert len(said) == 1 and only(found, uses=uses) == passes(device.float_lanes, *uses)


def test_what_is_built_ahead_of_a_test_asks_for_none(device, monkeypatch):
    """Whoever asked for one would wait for the test that waits for what is built."""
    for module in (program, self_test):
        monkeypatch.setattr(module, "worth_it", lambda _: True)
    monkeypatch.setattr(program, "_sessions", {})
    found = devices.find_untested(device.name, device.platform, device.index)
    assert devices.choose_devices(found) == (device,)
    assert devices.choose_devices(found, "nl_means") == (device,)
    assert device in program._sessions  # the context that was opened to build ahead
    monkeypatch.setattr(devices, "answer_for", lambda *_: pytest.fail("it was tested again"))
    self_test.build_ahead(found, ["", "bm3d"])


def test_a_process_that_tests_asks_for_no_test(device, monkeypatch):
    monkeypatch.setattr(devices, "_tests", True)
    monkeypatch.setattr(devices, "answer_for", lambda *_: pytest.fail("it was tested"))
    monkeypatch.setenv("GPU_DENOISE_DEVICE", "")
    devices.test_only(device.index)
    assert devices.choose(None).index == device.index


def test_a_process_ends_with_the_one_that_started_it(device):
    request = [device.platform, device.name, device.index, device.float_lanes, [""]]
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
    assert only(untested) == passes(16)
    child("sys.exit(1)")
    assert only(untested) == passes(16)  # it was mended


def test_a_test_is_told_before_it_is_made_and_only_then(untested, child, caplog):
    caplog.set_level("INFO")
    child(PASSES)
    for _ in range(2):
        only(untested, uses=("noise",))
    assert [record.getMessage() for record in caplog.records] == [
        f"Testing {untested} with noise, once; this may take 5 s"
    ]


def test_answers_that_cannot_be_kept(untested, child, folder):
    folder.write_text("a file is in the place of the folder")
    requests = child(PASSES)
    for count in (1, 2):
        assert only(untested) == passes(16)
        assert len(requests) == count


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
        assert list(pool.map(only, [untested] * 3)) == [passes(16)] * 3
    assert len(requests) == 1


def test_answers_are_forgotten_on_request(untested, child, folder):
    device_test.forget_answers()  # there is no folder
    requests = child(PASSES)
    only(untested)
    device_test.forget_answers()
    only(untested)
    assert len(requests) == 2


# Which devices are tested


def test_of_several_the_best_that_passes_is_chosen(untested_machine, child):
    machine = untested_machine
    machine(cpu="CPU", gpu="discrete GPU", broken="discrete GPU")
    requests = child(FAILING.format(bad="name == 'broken'"))
    assert gd.choose().name == "gpu"
    # Whoever has a GPU does not wait for the test of the CPU.
    assert {name for _, name, *_ in requests} == {"gpu"}
    assert gd.choose("gpu").name == "gpu" and gd.choose(0).name == "cpu"
    with pytest.raises(NoDeviceError, match=r"broken .*it is wrong.*Update its driver"):
        gd.choose("broken")
    assert [each.problem for each in gd.devices()] == ["", "", "it is wrong"]
    assert len(requests) == 1 + 1 + 3
    machine(cpu="CPU", broken="discrete GPU")
    assert gd.choose().name == "cpu" and "only usable" in gd.why()
    machine(broken="discrete GPU")
    with pytest.raises(NoDeviceError, match=r"broken .*it is wrong.*pip install"):
        gd.choose()


def test_twins_are_tested_once(untested_machine, child):
    one, other = untested_machine(one="CPU", other="CPU")
    requests = child(FAILING.format(bad="name == 'one'"))
    answers = map(only, (one, other, replace(one, index=7)))
    assert [each.problem for each in answers] == ["it is wrong", "", "it is wrong"]
    assert list(dict.fromkeys(name for _, name, *_ in requests)) == ["one", "other"]
    assert requests[-1][1] == "other"


def test_a_device_that_poses_as_another_is_not_tested(device, child):
    requests, posing = child(PASSES), replace(device, kind="discrete GPU", float_lanes=1)
    assert gd.choose(posing) is posing and not requests
