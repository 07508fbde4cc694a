"""Every filter on Oclgrind: no race, no access out of bounds, no uninitialised value, no split group.

The kernels in ``broken/`` each hold one fault, so that the checks themselves are known to work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.source import kernel_folder
from opencl.simulate import CHECKS, cases

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


def simulate(folder: Path, *arguments: str) -> str:
    """Run the script beside this file; return what Oclgrind found."""
    log = folder / "oclgrind.txt"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")}
    environment |= CHECKS | {"OCLGRIND_LOG": str(log)}
    done = subprocess.run(
        [sys.executable, str(HERE / "simulate.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_reports_each_kind_of_fault(simulator, tmp_path, fault):
    import re

    found = simulate(tmp_path, "kernel", str(HERE / "broken" / f"{fault}.cl"))
    assert re.search(FAULTS[fault], found, re.IGNORECASE), found or "nothing was reported"


def test_a_sound_kernel_is_not_complained_of(simulator, tmp_path):
    assert simulate(tmp_path, "kernel", str(HERE / "broken" / "none.cl")) == ""


@pytest.fixture(scope="module", params=FILTERS, ids=lambda one: one.name)
def simulated(request, simulator, tmp_path_factory):
    """Results and report of all cases of one filter."""
    folder = tmp_path_factory.mktemp(request.param.name)
    simulate(folder, "filter", request.param.name, str(folder))
    report = json.loads((folder / "report.json").read_text())
    return request.param, np.load(folder / "results.npz"), report


def test_kernels_are_free_of_faults(simulated):
    _, _, report = simulated
    assert report["cases"] >= 9
    assert not report["faults"], "\n".join(
        f"--- {case}\n{text[:2000]}" for case, text in report["faults"].items()
    )


def test_simulated_results_are_those_of_a_device(simulated, device):
    kind, results, _ = simulated
    for case, _, settings, image, axes in cases(kind):
        expected = gd.denoise(image, settings, 20, axes=axes, device=device).image
        np.testing.assert_allclose(results[case], expected, rtol=0, atol=1e-3, err_msg=case)


def test_every_kernel_file_is_simulated(simulated):
    _, _, report = simulated
    used = set(report["kernels"])
    folders = {name.split("/")[0] for name in used}
    files = {
        str(file.relative_to(kernel_folder()).with_suffix(""))
        for folder in folders
        for file in (kernel_folder() / folder).glob("*.cl")
    }
    assert files == used
