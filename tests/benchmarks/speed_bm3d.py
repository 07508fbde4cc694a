"""Print how fast whole calls of BM3D are in fresh processes, and how much memory they take.

    python tests/benchmarks/speed_bm3d.py [--shape 512x512] [--peer np]

Each method runs in processes of its own: the first with empty kernel caches, the second with what
that one left there. Memory is the most that process held, on Linux, and what it held before the
first call, with everything imported and the picture made. Kernels are timed by ``tools/bench.py
--filter bm3d``. "fixed" are the fixed parameters of Davy and Ehret 2020.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from peer_bm3d import OF_PACKAGE, PROFILES
from tables import show

import napari_gpu_denoise as gd
from bench import SIGMA, synthetic


def fresh(method: str, profile: str, options: argparse.Namespace, folder: Path) -> dict:
    """Time calls in a new process that keeps compiled kernels in a folder."""
    command = [sys.executable, str(Path(__file__).with_name("call_bm3d.py")), method, profile]
    command += [str(folder / "image.npy"), f"--sigma={SIGMA}", f"--repeats={options.repeats}"]
    command += [f"--device={options.device}"] if options.device else []
    caches = dict.fromkeys(("XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"), str(folder))
    return json.loads(subprocess.check_output(command, env={**os.environ, **caches}, text=True))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--shape", default="512x512", help="height x width")
    add("--profiles", nargs="*", choices=PROFILES, default=("fast", "normal", "fixed"))
    add("--device", help="number of the OpenCL device, or part of its name")
    add("--repeats", type=int, default=5)
    add("--peer", nargs="*", choices=OF_PACKAGE, default=(), help="the bm3d package as well")
    options = parser.parse_args()
    shape = tuple(int(n) for n in options.shape.split("x"))
    methods = [("ours", profile) for profile in options.profiles]
    methods += [("package", profile) for profile in options.peer]
    print(
        f"{gd.choose(options.device)}, {options.shape}, sigma {SIGMA:g}, {os.cpu_count()} cores\n"
    )
    body = []
    for method, profile in methods:
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder, "image.npy"), synthetic(shape))
            cold, cached = (fresh(method, profile, options, Path(folder)) for _ in range(2))
        seconds = (cold["first"], cached["first"], cached["warm"])
        memory = (cached["memory"], cached["memory before"], cold["memory"])
        cells = [f"{s:.3f}" for s in seconds] + [f"{n / 1e6:.0f}" for n in memory]
        body.append([f"{method} {profile}", *cells])
    columns = ("first ever, s", "first, s", "warm, s", "most memory, MB", "before, MB")
    show(["method", *columns, "most memory while compiling, MB"], body)


if __name__ == "__main__":
    main()
