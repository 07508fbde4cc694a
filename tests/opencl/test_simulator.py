"""Every filter on Oclgrind: no race, no access out of bounds, no barrier that only a part of a
group reaches, and before a release (``--thorough``) no uninitialised value, which takes twice as
long. What results should be is tested elsewhere.

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

import pytest

from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.program import kernel_folder
from opencl.simulate import CASES, CHECKS, name_of
from scenes import STABILISED

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
# Folders whose kernels a filter uses, beside its own.
SHARED = {"nl_means": "search", "bm3d": "search", "vbm3d": "bm3d ridge search", "isoline": "bm3d"}
SHARED |= {"nl_means_pixelwise": "search", "swnlm": "search", "bm4d": "search"}
# A process takes a second to begin, and shares its programs.
TOGETHER = [
    *(("bm4d", "swnlm"), ("bm3d",), ("vbm3d",)),
    ("nl_means", "nl_means_pixelwise", "isoline"),
]
RACES = {name: value for name, value in CHECKS.items() if name != "OCLGRIND_UNINITIALIZED"}
RACE, UNREAD = "data race", "data race|uninitialized"
BARRIER, LOOP = "barrier(CLK_LOCAL_MEM_FENCE);", "#pragma unroll for (int i = 0; i < 8; ++i)"
# A case, a file of kernels, words of it (white space does not matter), and what is reported if the
# first word is left out.
BROKEN = [
    ("bm3d", "0", "team.h", f"TEAM_SYNC(); {LOOP} v[i * DEPTH", RACE),
    ("bm3d", "0", "join_slabs.cl", f"{BARRIER} if (x >= nx)", UNREAD),
]


def simulate(*arguments: str, checks=RACES, may_fail: bool = False) -> tuple[str, str]:
    """Run simulate.py on Oclgrind; return what it prints, and what Oclgrind found."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")} | checks
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "simulate.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert may_fail or done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_the_simulator_reports_each_kind_of_fault(simulator):
    _, found = simulate("kernels", str(HERE / "broken"), checks=CHECKS)
    told = dict(part.split("\n", 1) for part in found.split("== ")[1:])
    assert set(told) == {"none", *FAULTS}
    assert told.pop("none") == "", "a sound kernel is complained of"
    for fault, report in told.items():
        assert re.search(FAULTS[fault], report, re.IGNORECASE), (fault, report)


@pytest.mark.parametrize(("name", "case", "file", "words", "told"), BROKEN)
def test_a_missing_barrier_is_reported(simulator, tmp_path, name, case, file, words, told):
    broken = tmp_path / "kernels"
    shutil.copytree(kernel_folder(), broken)
    (path,) = broken.glob(f"*/{file}")
    first, *_ = parts = words.split()
    text = path.read_text()
    found = re.search(r"\s*".join(map(re.escape, parts)), text)
    path.write_text(text.replace(found[0], found[0].removeprefix(first), 1))
    assert re.search(told, simulate("case", name, case, str(broken), may_fail=True)[1])


def test_every_filter_is_simulated():
    assert sorted(name for names in TOGETHER for name in names) == sorted(k.name for k in FILTERS)


all_checks = pytest.mark.parametrize(
    "checks", [RACES, pytest.param(CHECKS, marks=pytest.mark.thorough)], ids=["races", "values too"]
)


@all_checks
@pytest.mark.parametrize("names", TOGETHER, ids=" ".join)
def test_filters(simulator, names, checks):
    told, found = simulate("filters", *names, checks=checks)
    cases = [(name, name_of(*each)) for name in names for each in enumerate(CASES[name])]
    assert found.splitlines() == [f"== {name} {case}" for name, case in cases], found[:5000]
    # Every kernel file was simulated; of the searches that filters share, NL-means runs all.
    for name, used in json.loads(told).items():
        own = "pixelwise" if name == "nl_means_pixelwise" else name
        folders = {own, *{"nl_means": ["search"], "vbm3d": ["ridge"]}.get(own, [])}
        files = {
            str(file.relative_to(kernel_folder()).with_suffix(""))
            for folder in folders
            for file in (kernel_folder() / folder).glob("*.cl")
        }
        assert files == {kernel for kernel in used if kernel.split("/")[0] in folders}
        assert {kernel.split("/")[0] for kernel in used} == {own, *SHARED.get(name, "").split()}


@all_checks
def test_transforms_of_noise_are_free_of_faults(simulator, checks):
    used, found = simulate("noise", checks=checks)
    assert found.splitlines() == [f"== {p} {m.name}" for p in ("CPU", "GPU") for m in STABILISED], (
        found
    )
    folder = kernel_folder() / "noise"
    files = [file for way in ("stabilise", "inverse") for file in folder.glob(f"{way}_*.cl")]
    assert json.loads(used) == sorted(f"noise/{file.stem}" for file in files)
