"""Print how fast whole calls of BM3D are in fresh processes.

    python tests/benchmarks/speed_bm3d.py [--shape 512x512] [--peer np]

Each method runs in processes of its own: the first with empty kernel caches, the second with what
that one left there. Kernels are timed by ``tools/bench.py --filter bm3d``. "fixed" are the fixed
parameters of Davy and Ehret 2020.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from functools import partial

import numpy as np
from peer_bm3d import OF_PACKAGE, PROFILES, run_package, settings_of
from tables import seconds_of, show

import napari_gpu_denoise as gd
from bench import SIGMA, synthetic


def run_task(method: str, profile: str, options: argparse.Namespace) -> list[float]:
    """Return the seconds of the first call in this process, and the median of the others."""
    image = synthetic(tuple(map(int, options.shape.split("x"))))
    if method == "package":
        importlib.import_module("bm3d")
        call = partial(run_package, image, SIGMA, profile)
    else:
        given = {"settings": settings_of(profile), "device": gd.choose(options.device)}
        call = partial(gd.bm3d, image, SIGMA, **given)
    return [*seconds_of(call, 1, warm=0), float(np.median(seconds_of(call, options.repeats, 0)))]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--shape", default="512x512", help="height x width")
    add("--profiles", nargs="*", choices=PROFILES, default=("fast", "normal", "fixed"))
    add("--device", help="number of the OpenCL device, or part of its name")
    add("--repeats", type=int, default=5)
    add("--peer", nargs="*", choices=OF_PACKAGE, default=(), help="the bm3d package as well")
    add("--task", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(run_task(*options.task, options)))
        return
    print(
        f"{gd.choose(options.device)}, {options.shape}, sigma {SIGMA:g}, {os.cpu_count()} cores\n"
    )
    methods = [("ours", profile) for profile in options.profiles]
    methods += [("package", profile) for profile in options.peer]
    body = []
    for method in methods:
        command = [sys.executable, __file__, *sys.argv[1:], "--task", *method]
        with tempfile.TemporaryDirectory() as folder:
            caches = dict.fromkeys(("XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"), folder)
            made = (subprocess.check_output(command, env=os.environ | caches) for _ in range(2))
            (ever, _), (first, warm) = (json.loads(each.splitlines()[-1]) for each in made)
        body.append([" ".join(method), *(f"{seconds:.3f}" for seconds in (ever, first, warm))])
    show(["method", "first ever, s", "first, s", "warm, s"], body)


if __name__ == "__main__":
    main()
