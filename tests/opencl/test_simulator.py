"""Every filter on Oclgrind: no race, no access out of bounds, no uninitialised value, no barrier
that only a part of a group reaches.

The kernels in ``broken/`` each hold one fault, so that the checks themselves are known to work.
"""

from __future__ import annotations

import json
import os
import re
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


def simulate(*arguments: str) -> str:
    """Run the script beside this file; return what Oclgrind found."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")} | CHECKS
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "simulate.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_reports_each_kind_of_fault(simulator, fault):
    found = simulate("kernel", str(HERE / "broken" / f"{fault}.cl"))
    assert re.search(FAULTS[fault], found, re.IGNORECASE), found or "nothing was reported"


def test_a_sound_kernel_is_not_complained_of(simulator):
    assert simulate("kernel", str(HERE / "broken" / "none.cl")) == ""


@pytest.fixture(scope="module", params=FILTERS, ids=lambda one: one.name)
def simulated(request, simulator, tmp_path_factory):
    """All cases of one filter: its settings class, what was found, results, kernels used."""
    folder = tmp_path_factory.mktemp(request.param.name)
    found = simulate("filter", request.param.name, str(folder))
    kernels = json.loads((folder / "kernels.json").read_text())
    return request.param, found, np.load(folder / "results.npz"), kernels


def test_kernels_are_free_of_faults(simulated):
    kind, found, _, _ = simulated
    expected = [f"== {case}" for case, *_ in cases(kind)]
    assert len(expected) >= 9
    assert found.splitlines() == expected, found[:5000]


def test_simulated_results_are_those_of_a_device(simulated, device):
    kind, _, results, _ = simulated
    for case, _, settings, image, axes, sigma in cases(kind):
        expected = gd.denoise(image, settings, sigma, axes=axes, device=device).image
        seen = np.broadcast_to(sigma, image.shape) > 0  # the others are put back after the run
        error = np.abs(results[case] - expected)[seen]
        assert error.max() <= 1e-3, case


def test_every_kernel_file_is_simulated(simulated):
    used = set(simulated[-1])
    folders = {name.split("/")[0] for name in used}
    files = {
        str(file.relative_to(kernel_folder()).with_suffix(""))
        for folder in folders
        for file in (kernel_folder() / folder).glob("*.cl")
    }
    assert files == used
