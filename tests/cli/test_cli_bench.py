"""``gpu-denoise bench``: what it measures, stores and compares."""

from __future__ import annotations

import json
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from napari_gpu_denoise.cli import bench
from napari_gpu_denoise.cli.bench import shape_for, stack_for
from napari_gpu_denoise.errors import KernelError
from napari_gpu_denoise.filters import FILTERS

SMALL = ("bench", "--shape", "4x16x20", "--repeats", "2", "--frames", "2", "--filter", "bm4d")


@pytest.fixture
def no_device(monkeypatch):
    def choose(device):
        raise AssertionError("nothing is measured")

    monkeypatch.setattr(bench, "choose", choose)


@pytest.mark.parametrize("kind", FILTERS, ids=lambda kind: kind.name)
def test_inputs_have_the_axes_that_a_filter_needs(kind):
    for settings in (kind(), *(kind.of(profile=name) for name in kind.presets)):
        for (shape, axes), least in (
            (shape_for(settings, (20, 30)), 2),
            (shape_for(settings, (5, 20, 30)), 3),
            (stack_for(settings, (20, 30), 7), 3),
        ):
            assert len(shape) == len(axes) >= least and shape[-2:] == (20, 30)
            assert settings.for_array(axes, shape)
        assert shape[0] == 7


def test_a_run_is_printed_stored_and_compared(run, tmp_path):
    stored = tmp_path / "run.json"
    code, out, _ = run(*SMALL, "--save", stored)
    assert code == 0
    for part in ("device time", "shrink", "whole call", "host", "default call", "noise", "stack"):
        assert part in out
    held = json.loads(stored.read_text())
    (one,) = held["filters"]
    assert one["timing"]["shape"] == [4, 16, 20] and one["stack"]["shape"] == [2, 16, 16, 20]
    assert set(one["numbers"]) == {"device", "whole call", "default call", "planes/s"}
    assert min(one["numbers"].values()) > 0

    one["numbers"]["whole call"] = 1e9
    held["driver"] = "an older one"
    stored.write_text(json.dumps(held))
    code, out, _ = run(*SMALL, "--compare", stored)
    assert code == 0 and "another device or driver" in out
    assert "whole call" in out and "times as fast" in out

    code, _, err = run(*SMALL, "--save", stored)
    assert code == 5 and "exists" in err and json.loads(stored.read_text()) == held


def test_what_cannot_be_compared_or_timed_is_said_before_anything_is_measured(
    run, tmp_path, no_device
):
    other = tmp_path / "other.json"
    for text in ("", "[]", "{}", '{"gpu-denoise bench": 0}', '{"gpu-denoise bench": 1}'):
        other.write_text(text)
        code, _, err = run("bench", "--compare", other)
        assert code == 4 and "other.json is not a run" in err
    assert run("bench", "--compare", tmp_path / "none.json")[0] == 4
    assert run("bench", "--save", tmp_path / "none" / "run.json")[0] == 5
    for wrong in (("--shape", "a"), ("--shape", "0x4"), ("--repeats", "0"), ("--frames", "-1")):
        assert run("bench", *wrong)[0] == 2
    assert run("bench", "--filter", "nl-means", "--set", "step=x")[0] == 2


def test_a_first_call_is_timed_in_a_process_of_its_own(device, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    places = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    task = {"filter": "isoline", "settings": {}, "shape": (8, 9), "axes": "YX", "sigma": 5.0}
    task["device"] = [device.name, device.platform, device.index]
    found = bench.time_process(task, places)
    assert Path(cache_from_source(bench.__file__)).exists(), "with bytecode, as pip installs it"
    assert list(found) == ["python", "imports", "discovery", "context", "compiling", "call"]
    assert min(found[name] for name in ("python", "imports", "discovery", "call")) > 0


def test_a_process_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(KernelError, match="first call failed"):
        bench.time_process({}, {})
