"""Every filter on Oclgrind: no race, no access out of bounds, no uninitialised value, no barrier
that only a part of a group reaches. What results should be is tested elsewhere.

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
RACE, UNREAD = "data race", "data race|uninitialized"
BARRIER, LOOP = "barrier(CLK_LOCAL_MEM_FENCE);", "#pragma unroll for (int i = 0; i < 8; ++i)"
# A case, a file of kernels, words of it (white space does not matter), and what is reported if the
# first word is left out.
BROKEN = [
    ("bm3d", "0", "team.h", f"TEAM_SYNC(); {LOOP} v[i * DEPTH", RACE),
    ("bm3d", "0", "join_slabs.cl", f"{BARRIER} if (x >= nx)", UNREAD),
]


def simulate(*arguments: str, may_fail: bool = False) -> tuple[str, str]:
    """Run simulate.py on Oclgrind; return what it prints, and what Oclgrind found."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")} | CHECKS
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "simulate.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert may_fail or done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_the_simulator_reports_each_kind_of_fault(simulator):
    _, found = simulate("kernels", str(HERE / "broken"))
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


@pytest.mark.parametrize("kind", FILTERS, ids=lambda one: one.name)
def test_a_filter(simulator, kind):
    used, found = simulate("filter", kind.name)
    names = [name_of(number, case) for number, case in enumerate(CASES[kind.name])]
    assert found.splitlines() == [f"== {name}" for name in names], found[:5000]
    # Every kernel file was simulated; of the searches that filters share, NL-means runs all.
    own = "pixelwise" if kind.name == "nl_means_pixelwise" else kind.name
    folders = {own, *{"nl_means": ["search"], "vbm3d": ["ridge"]}.get(own, [])}
    files = {
        str(file.relative_to(kernel_folder()).with_suffix(""))
        for folder in folders
        for file in (kernel_folder() / folder).glob("*.cl")
    }
    used = json.loads(used)
    assert files == {name for name in used if name.split("/")[0] in folders}
    assert {name.split("/")[0] for name in used} == {own, *SHARED.get(kind.name, "").split()}


def test_transforms_of_noise_are_free_of_faults(simulator):
    used, found = simulate("noise")
    assert found.splitlines() == [f"== {p} {m.name}" for p in ("CPU", "GPU") for m in STABILISED], (
        found
    )
    folder = kernel_folder() / "noise"
    files = [file for way in ("stabilise", "inverse") for file in folder.glob(f"{way}_*.cl")]
    assert json.loads(used) == sorted(f"noise/{file.stem}" for file in files)
