"""Programs: each is built once, different ones at the same time."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from napari_gpu_denoise.opencl.program import Session, session


@pytest.fixture
def building(device, monkeypatch):
    """Return a function that makes a session of another kind of device, which builds nothing."""
    program = session(device).kernel("search/pad_far", {"SPLIT": 1, "ALIKE": 0, "ROOTS": 0}).program
    meeting, built = threading.Barrier(2), []

    def build(self, key):
        built.append(dict(key[1]))
        if not self.device.shares_cores:
            meeting.wait(120)  # for the other one
        return program

    monkeypatch.setattr(Session, "_build", build)

    def made(kind):
        chosen = session(device)
        return Session(dataclasses.replace(chosen.device, kind=kind), chosen.context), built

    return made


def test_different_programs_are_built_at_the_same_time(building):
    opened, built = building("discrete GPU")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda k: opened.kernel("search/pad_far", {"K": k % 2}), range(6)))
    assert sorted(each["K"] for each in built) == [0, 1]


def test_a_cpu_builds_one_after_another(building):
    opened, built = building("CPU")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda k: opened.kernel("search/pad_far", {"K": k % 3}), range(6)))
    assert sorted(each["K"] for each in built) == [0, 1, 2] and len(opened.building) == 1
