"""Programs that other processes build, so that this one finds them in the cache of its driver."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from napari_gpu_denoise.filters import self_test
from napari_gpu_denoise.opencl import builder, program
from napari_gpu_denoise.opencl.isolation import loader
from napari_gpu_denoise.opencl.program import BuildQueue, Task, program_key
from napari_gpu_denoise.run.part import programs_for

SOURCE = "__kernel void fill(__global float *out) { out[get_global_id(0)] = VALUE; }"
# One that is quick to build, and its constants.
KERNEL, PLAIN = "search/pad_far", {"SPLIT": 1, "ALIKE": 0}
WRONG = "__kernel void fill(__global float *out) { out[0] = nowhere; }"


# So that nothing counts as built.
pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def built_in_steps(monkeypatch):
    """Stand in for builders: each builds when told to, and notes what."""
    begun, go = [], threading.Semaphore(0)

    class Pipe(io.StringIO):
        def readline(self):
            go.acquire(timeout=60)
            return "1\n"

        def write(self, line):
            if line.strip():
                begun.append(json.loads(line)["source"])

    process = SimpleNamespace(stdout=Pipe(), stdin=Pipe())
    monkeypatch.setattr(program, "_started", lambda device: nullcontext(process))
    return begun, go


def tasks(*sources: str) -> list[Task]:
    return [Task(source, source, "") for source in sources]


def test_a_builder_builds_on_the_device_that_it_is_told(device):
    number = device.handle.platform.get_devices().index(device.handle)
    made = builder.Builder(loader(), device.platform, number)
    assert made.build(SOURCE, "-cl-std=CL1.2 -DVALUE=3")
    assert not made.build(WRONG, "-cl-std=CL1.2")


def test_a_builder_is_a_script_that_needs_no_package(device):
    number = device.handle.platform.get_devices().index(device.handle)
    lines = [[loader(), device.platform, number]]
    lines += [{"source": SOURCE, "options": f"-DVALUE={k}"} for k in range(2)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", builder.__file__],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["ready", "1", "1"], done.stderr


def test_whoever_is_free_builds_the_longest_and_others_wait_for_it(device, built_in_steps):
    begun, go = built_in_steps
    held = BuildQueue(device)
    held.wait("first")  # nobody has begun it
    held.add(tasks("a", "ccc", "bb", "dddd", "eeee"), 1)
    with held.next() as task:
        assert task.key == "eeee" and not begun
        go.release()  # the builder is ready, and begins
        for _ in range(6000):
            if begun:
                break
            time.sleep(0.01)
    held.wait("eeee")
    assert begun == ["dddd"]
    waiting = threading.Thread(target=held.wait, args=("dddd",))
    waiting.start()
    mine = []
    for _ in range(4):
        with held.next() as task:
            mine.append(task and task.key)
    assert mine == ["ccc", "bb", "a", None]
    assert waiting.is_alive()
    go.release()
    waiting.join(60)
    assert not waiting.is_alive() and begun == ["dddd"]


def test_what_was_built_on_this_machine_is_not_built_ahead(device, built_in_steps):
    begun, go = built_in_steps
    go.release(10)
    for task in tasks("a", "bb"):
        BuildQueue(device).built.add(task)
        BuildQueue(device).built.add(task)
    held = BuildQueue(device)
    assert all(task in held.built for task in tasks("a", "bb"))
    held.add(tasks("a", "bb"))
    with held.next() as task:
        assert task is None and not begun
    other = BuildQueue(dataclasses.replace(device, driver="a newer one"))
    assert not any(task in other.built for task in tasks("a", "bb"))


def test_builders_that_do_not_start_are_done_without(device, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere")
    held = BuildQueue(device)
    held.add(tasks("a", "bb", "ccc"))
    for key in ("ccc", "bb", "a"):
        with held.next() as task:
            assert task.key == key


@pytest.fixture
def with_builders(device):
    """A session of the device that builds ahead."""
    kept = program.session(device)
    return program.Session(kept.device, kept.context, ahead=BuildQueue(device))


def test_all_programs_are_built_once(with_builders):
    keys = [program_key(KERNEL, {**PLAIN, "SPLIT": n}) for n in (2, 4)]
    done = list(with_builders.build_all(keys, 1))
    assert sorted(with_builders.programs) == sorted(keys) == sorted(done)
    assert all(with_builders.task(key) in with_builders.ahead.built for key in keys)
    assert not list(with_builders.build_all(keys, 1))


def test_what_the_test_of_a_filter_needs_is_built_by_other_processes(device, monkeypatch):
    for module in (program, self_test):
        monkeypatch.setattr(module, "worth_it", lambda _: True)
    monkeypatch.setattr(program, "_sessions", {})
    monkeypatch.setattr(program.os, "cpu_count", lambda: 8)
    self_test.build_ahead(device, ["", "nl_means"])
    held = program.session(device)
    needed = programs_for(*self_test.run_of("nl_means", device))
    assert len(needed) > 3 and all(held.task(key) in held.ahead.built for key in needed)
    assert not held.programs
    monkeypatch.setattr(sys, "executable", "/nowhere")  # nobody builds: nobody is waited for
    self_test.build_ahead(device, ["vbm3d"])


def test_what_is_coming_is_built_with_the_first_program(with_builders):
    keys = [program_key(KERNEL, {**PLAIN, "SPLIT": n}) for n in (1, 2)]
    assert with_builders.kernel(KERNEL, PLAIN, coming=lambda: keys)
    assert sorted(with_builders.programs) == sorted(keys)


def test_a_rehearsal_that_fails_stops_nothing(with_builders):
    def coming():
        raise RuntimeError("it failed")

    assert with_builders.kernel(KERNEL, PLAIN, coming=coming)
