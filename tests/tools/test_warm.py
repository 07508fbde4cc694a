"""``tools/warm.py``: what it builds, on a CPU and for a GPU."""

from __future__ import annotations

import dataclasses

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.opencl import program
from tools.conftest import load

warm = load("warm")


def test_warm_runs_every_profile_of_a_filter(run, monkeypatch):
    code, out, _ = run("warm", "--filter", "nl-means")
    assert code == 0
    for profile in gd.NLMeans.presets:
        assert f"nl_means, {profile}" in out
    assert "noise rician" in out and "All are ready" in out

    def fails(*_):
        raise errors.NoDeviceError("It is gone.")

    monkeypatch.setattr(warm, "build", fails)
    code, out, err = run("warm", "--quiet")
    assert code and "It is gone" in err and not out


def test_warm_finds_the_programs_of_a_gpu_without_running_them(device, monkeypatch):
    def build_all(session, keys, builders):
        yield from keys

    monkeypatch.setattr(program.Session, "build_all", build_all)
    # Other tests may have opened a device of this name that has lanes.
    monkeypatch.setattr(program, "_sessions", {})
    posing = dataclasses.replace(device, kind="discrete GPU", float_lanes=1, max_group=1024)
    said = list(warm.build(gd.FILTERS, posing))
    assert len(set(said)) == len(said)
    for kind in gd.FILTERS:
        assert any(words.startswith(f"{kind.name}, ") for words in said)
    for kernel in ("bm3d/shrink_shared", "bm4d/shrink_cubes", "noise/inverse_photons"):
        assert any(kernel in words for words in said)
