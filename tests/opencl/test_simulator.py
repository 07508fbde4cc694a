"""Every filter on Oclgrind: no race, no access out of bounds, no uninitialised value, no barrier
that only a part of a group reaches. With ``--thorough`` every setting runs in every profile.

The kernels in ``broken/`` each hold one fault, so that the checks themselves are known to work.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.one_pass import Plain
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl import program
from napari_gpu_denoise.opencl.source import kernel_folder
from opencl.simulate import BRIEF, CHECKS, FIRST, LEVELS, MODELS, OTHERS, SMALLER, cases, spoilt

HERE = Path(__file__).parent
FAULTS = {
    "read_out_of_bounds": "Invalid read",
    "write_out_of_bounds": "Invalid write",
    "local_out_of_bounds": "Invalid (read|write)",
    "global_race": "data race",
    "local_race": "data race",
    "divergent_barrier": "divergence",
    "uninitialised_global": "uninitialized",
    "uninitialised_local": "uninitialized",
    "uninitialised_private": "uninitialized",
}
# Grey levels that results may differ by: the whole numbers that BM3D adds up are finer in some
# kernels than in others.
ROUNDING = {"nl_means": 1e-3, "bm3d": 0.1, "vbm3d": 0.1, "isoline": 1e-3}
ROUNDING |= {"nl_means_pixelwise": 1e-3, "swnlm": 1e-3, "bm4d": 0.1}
# Folders whose kernels a filter uses, beside its own.
SHARED = {"nl_means": "search", "bm3d": "search", "vbm3d": "bm3d ridge", "isoline": "bm3d"}
SHARED |= {"nl_means_pixelwise": "pixelwise", "swnlm": "pixelwise", "bm4d": "search"}
BM3D = "simulate.py", "case", "bm3d", "GPU 0 YX map"
RIDGE = "simulate.py", "case", "vbm3d", "GPU 3 TYX"
SEARCH, GROUPS = ("../filters/test_vbm3d_search.py",), ("../filters/test_vbm3d_groups.py",)
RACE, UNREAD = "data race", "data race|uninitialized"
BARRIER, LOOP = "barrier(CLK_LOCAL_MEM_FENCE);", "#pragma unroll for (int i = 0; i < 8; ++i)"
# What is run, a file of kernels, words of it (white space does not matter), and what is reported if
# the first word is left out, or others are in their place. The first are tried in every run.
BROKEN = [
    (BM3D, "team.h", f"TEAM_SYNC(); {LOOP} v[i * DEPTH", "", RACE),
    (BM3D, "join_slabs.cl", f"{BARRIER} if (x >= nx)", "", UNREAD),
    (BM3D, "team_stacks.h", f"TEAM_SYNC(); {LOOP} moved[i]", "", RACE),
    (BM3D, "shrink_shared.cl", f"{BARRIER} __global int *slab", "", RACE),
    ((*GROUPS, "teams"), "shrink_shared.cl", "TEAM_SYNC(); const int size", "", UNREAD),
    ((*GROUPS, "vectors"), "join_slabs.cl", f"{BARRIER} if (x >= nx)", "", UNREAD),
    (
        (*GROUPS, "vectors"),
        "shrink_lanes.cl",
        "(2 * get_global_id(0) +",
        "(get_global_id(0) +",
        RACE,
    ),
    (RIDGE, "search_many.cl", f"{BARRIER} CANDIDATE nearest", "", UNREAD),
    (RIDGE, "combine_groups.cl", f"{BARRIER} for (int k = lane;", "", RACE),
    ((*SEARCH, "tracks"), "search_tracks.cl", f"{BARRIER} if (backward)", "", UNREAD),
    (
        *((*SEARCH, "tracks"), "search_tracks.cl"),
        *("NEIGHBOURS * columns +", "NEIGHBOURS * columns + columns +", "Invalid write"),
    ),
]


def simulate(script: str, *arguments: str, may_fail: bool = False) -> str:
    """Run a script of these tests on Oclgrind; return what that found."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")} | CHECKS
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert may_fail or done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def which(pytestconfig) -> str:
    """Return which cases are run."""
    return "thorough" if pytestconfig.getoption("thorough") else "brief"


def test_the_simulator_reports_each_kind_of_fault(simulator):
    found = simulate("simulate.py", "kernels", str(HERE / "broken"))
    told = dict(part.split("\n", 1) for part in found.split("== ")[1:])
    assert set(told) == {"none", *FAULTS}
    assert told.pop("none") == "", "a sound kernel is complained of"
    for fault, report in told.items():
        assert re.search(FAULTS[fault], report, re.IGNORECASE), (fault, report)


@pytest.mark.parametrize(
    ("run", "file", "words", "others", "told"),
    [
        pytest.param(*given, marks=pytest.mark.thorough if number > 1 else (), id=given[1])
        for number, given in enumerate(BROKEN)
    ],
)
def test_a_fault_of_a_kernel_is_reported(simulator, tmp_path, run, file, words, others, told):
    broken = tmp_path / "kernels"
    shutil.copytree(kernel_folder(), broken)
    (path,) = broken.glob(f"*/{file}")
    first, *_ = parts = words.split()
    text = path.read_text()
    found = re.search(r"\s*".join(map(re.escape, parts)), text)
    path.write_text(text.replace(found[0], others or found[0].removeprefix(first), 1))
    assert re.search(told, simulate(*run, str(broken), may_fail=True))


@pytest.mark.parametrize("kind", FILTERS, ids=lambda one: one.name)
def test_a_filter(simulator, device, kind, which, tmp_path, monkeypatch):
    """One test for all that is asked of a filter, since the simulation takes long.

    Runs refuse images with values that are no numbers, but an index must not depend on that.
    """
    found = simulate("simulate.py", "filter", kind.name, which, str(tmp_path))
    chosen = list(cases(kind, which))
    names = [case for case, *_ in chosen] + [f"NaN {case}" for case, *_ in spoilt(kind, which)]
    assert found.splitlines() == [f"== {name}" for name in names], found[:5000]
    check_kernels(kind, json.loads((tmp_path / "kernels.json").read_text()))
    monkeypatch.setattr(program, "Session", Plain)
    monkeypatch.setattr(program, "_sessions", {})
    for name, value in SMALLER.items():
        monkeypatch.setattr(f"napari_gpu_denoise.{name}", value)
    check_results(chosen, np.load(tmp_path / "results.npz"), device, ROUNDING[kind.name])


@pytest.mark.parametrize("kind", FILTERS, ids=lambda one: one.name)
def test_a_few_cases_have_all_settings(kind):
    every = {case for case, *_ in cases(kind)}
    assert set(BRIEF[kind.name]) <= every
    if kind.name != "isoline":  # it has most settings, and the same kernels for all
        assert {case.split()[1] for case in BRIEF[kind.name]} == {c.split()[1] for c in every}


def check_results(chosen, results, device, rounding: float) -> None:
    """Compare the results with those of a real device, by programs that are built quickly."""
    for case, _, settings, image, axes, sigma in chosen:
        expected = gd.denoise(image, settings, sigma, axes=axes, device=device).image
        seen = np.broadcast_to(sigma, image.shape) > 0  # the others are put back after the run
        error = np.abs(results[case] - expected)[seen]
        assert error.max() <= rounding, case


def check_kernels(kind, used: list[str]) -> None:
    """Check that every kernel file was simulated."""
    own = "pixelwise" if kind.name == "nl_means_pixelwise" else kind.name
    # Of the searches that filters share, NL-means runs all.
    folders = {own, "search"} if own == "nl_means" else {own}
    if own == "vbm3d":  # which combines patches as others do
        folders.add("ridge")
    files = {
        str(file.relative_to(kernel_folder()).with_suffix(""))
        for folder in folders
        for file in (kernel_folder() / folder).glob("*.cl")
    }
    assert files == {name for name in used if name.split("/")[0] in folders}
    assert {name.split("/")[0] for name in used} == {own, *SHARED[kind.name].split()}


def test_transforms_of_noise_are_free_of_faults(simulator, tmp_path):
    found = simulate("simulate.py", "noise", str(tmp_path))
    profiles = ("CPU", "GPU")
    assert found.splitlines() == [f"== {p} {m.name}" for p in profiles for m in MODELS], found
    results = np.load(tmp_path / "results.npz")
    for profile in profiles:
        for other, model in zip(OTHERS, MODELS, strict=True):
            there = results[f"{profile} {model.name} stabilise"]
            back = results[f"{profile} {model.name} inverse"]
            for one, part in ((other, slice(FIRST)), (model, slice(FIRST, None))):
                expected = one.stabilise(LEVELS[part])
                np.testing.assert_allclose(there[part], expected, rtol=1e-4, atol=2e-3)
                expected = one.inverse(there[part])
                np.testing.assert_allclose(back[part], expected, rtol=1e-4, atol=0.03)
    used = json.loads((tmp_path / "kernels.json").read_text())
    folder = kernel_folder() / "noise"
    files = [file for way in ("stabilise", "inverse") for file in folder.glob(f"{way}_*.cl")]
    assert used == sorted(f"noise/{file.stem}" for file in files)
