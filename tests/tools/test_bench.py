"""``tools/bench.py``: what it measures and compares."""

from __future__ import annotations

import json

import pytest

from napari_gpu_denoise.filters import FILTERS
from scenes import SMALL as SMALL_SETTINGS
from scenes import prepared
from tools.conftest import load

bench = load("bench")
SMALL = ("bench", "--shape", "4x16x20", "--repeats", "2", "--filter", "nl-means")
SET = tuple(f"--set={name}={value}" for name, value in SMALL_SETTINGS["nl_means"].items())


@pytest.mark.parametrize("kind", FILTERS, ids=lambda kind: kind.name)
def test_inputs_have_the_axes_that_a_filter_needs(kind):
    for settings in (kind(), *(kind.of(profile=name) for name in kind.presets)):
        for given in ((20, 30), (5, 20, 30)):
            shape, axes = bench.shape_for(settings, given)
            assert len(shape) == len(axes) == max(len(given), len(axes.strip(".")))
            assert shape[-len(given) :] == given
            assert prepared(settings, axes, shape)


def test_a_run_is_printed_and_compared(run, tmp_path):
    stored = tmp_path / "run.json"
    code, out, _ = run(*SMALL, *SET, "--json")
    held = json.loads(out)
    ((title, one),) = held["filters"].items()
    assert code == 0 and one["shape"] == [4, 16, 20] and one["settings"]["window"] == 7
    assert one["times"].keys() == {"device", "call"} and min(one["times"].values()) > 0
    assert title.startswith("nl_means, ") and title.endswith(", 4x16x20")

    one["times"]["call"] = 1e9
    stored.write_text(json.dumps(held | {"driver": "an older one"}))
    code, out, _ = run(*SMALL, *SET, "--compare", stored)
    assert code == 0 and "another device or driver" in out
    (call,) = (line for line in out.splitlines() if "call " in line and "times as fast" in line)
    assert float(call.split("before:")[1].split()[0]) > 1e3
    for part in ("device ", "search", "upload", "download"):
        assert part in out
    code, out, _ = run(*SMALL, "--compare", stored)
    assert code == 0 and "times as fast" not in out, "these settings are not in it"


def test_what_cannot_be_compared_or_timed_is_said_before_anything_is_measured(
    run, tmp_path, monkeypatch
):
    def choose(device):
        raise AssertionError("nothing is measured")

    monkeypatch.setattr(bench, "choose", choose)
    other = tmp_path / "other.json"
    for text in ("", "[]", "{}", '{"bench.py": 0}', '{"bench.py": 2}'):
        other.write_text(text)
        code, _, err = run("bench", "--compare", other)
        assert code == 4 and "other.json is not a run" in err
    assert run("bench", "--compare", tmp_path / "none.json")[0] == 4
    for wrong in (("--shape", "a"), ("--shape", "0x4"), ("--repeats", "0")):
        assert run("bench", *wrong)[0] == 2
    assert run("bench", "--filter", "nl-means", "--set", "step=x")[0] == 2
