"""Time the first call of a process: with empty caches, and with kernels cached.

    python tests/benchmarks/first_calls.py [--filters bm3d …] [--profile P] [--shape 512x512]

Printed are seconds of a whole process of its own, and of what is done once in it. Nothing of the
package is imported there before it is timed.
"""

from __future__ import annotations

import argparse
import compileall
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Where drivers, pyopencl and this package keep what was compiled.
_CACHES = (
    *("XDG_CACHE_HOME", "CUDA_CACHE_PATH", "POCL_CACHE_DIR", "NEO_CACHE_DIR"),
    *("AMD_COMGR_CACHE_DIR", "MESA_SHADER_CACHE_DIR"),
)
SIGMA = 20.0


def run_task(name: str, profile: str | None, shape: list[int]) -> dict[str, float]:
    """Return the parts of a first call in this process, in seconds."""
    times = [time.perf_counter()]
    import numpy as np

    from napari_gpu_denoise.filters import filters_for
    from napari_gpu_denoise.opencl.device import choose_devices, listed
    from napari_gpu_denoise.opencl.program import session
    from napari_gpu_denoise.run.denoise import denoise

    (kind,) = filters_for(name)  # without the others, as a user imports it
    times.append(time.perf_counter())
    listed()
    times.append(time.perf_counter())
    (device,) = choose_devices(None, name)
    times.append(time.perf_counter())
    session(device)
    times.append(time.perf_counter())
    settings = kind.of(profile=profile)
    axes = ("T" if settings.over_time else settings.joint) + "YX"
    shape = [8] * (len(axes) - 2) + shape
    image = np.random.default_rng(0).normal(100, SIGMA, shape).astype(np.float32)
    for _ in range(2):
        denoise(image, settings, SIGMA, axes=axes, device=device)
        times.append(time.perf_counter())
    imports, discovery, test, context, first, again = (b - a for a, b in itertools.pairwise(times))
    # Compiling: or what is read from the cache, and other work that is done once. The test has
    # compiled most, and may have opened the context.
    found = {"imports": imports, "discovery": discovery, "test": test, "context": context}
    return found | {"compiling": max(first - again, 0.0), "call": again}


def main() -> None:
    """Print a row for each filter and each state of the caches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filters", nargs="+", default=["nl_means", "bm3d", "vbm3d", "bm4d"])
    parser.add_argument("--profile")
    parser.add_argument("--shape", default="512x512")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        shape = list(map(int, options.shape.split("x")))
        print(json.dumps(run_task(options.task, options.profile, shape)))
        return
    # As pip leaves the package; where Python stores no bytecode, every process would compile it.
    compileall.compile_dir(Path(__file__).parents[2] / "src", quiet=2)
    for name in options.filters:
        command = [sys.executable, "-P", __file__, *sys.argv[1:], "--task", name]
        with tempfile.TemporaryDirectory() as folder:
            places = {each: os.path.join(folder, each) for each in _CACHES}
            for place in places.values():
                os.mkdir(place)
            for state in ("nothing cached", "kernels cached"):
                start = time.perf_counter()
                made = subprocess.check_output(command, env=os.environ | places, text=True)
                whole, parts = time.perf_counter() - start, json.loads(made.splitlines()[-1])
                cells = ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())
                print(f"{name}, {state}: {whole:.2f} s ({cells})", flush=True)


if __name__ == "__main__":
    main()
