"""Time the first call of a process, with nothing cached and with kernels in the cache.

Each is a process of its own: it runs this file, with what to do as JSON in its argument, and prints
times as JSON. So nothing of the package is imported here before it is timed.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

# Where drivers, pyopencl and this package keep what was compiled.
CACHES = (
    *("XDG_CACHE_HOME", "CUDA_CACHE_PATH", "POCL_CACHE_DIR", "NEO_CACHE_DIR"),
    *("AMD_COMGR_CACHE_DIR", "MESA_SHADER_CACHE_DIR"),
)


@dataclass(frozen=True)
class FirstCall:
    """Parts of the first call of a process, in seconds."""

    python: float  # start of the interpreter, and its end
    imports: float
    discovery: float  # of devices
    context: float
    compiling: float  # or what is read from the cache, and other work that is done once
    call: float  # what any later call takes

    @property
    def whole(self) -> float:
        """Seconds of the process."""
        return sum(vars(self).values())


def first_calls(
    settings: Any, shape: tuple[int, ...], axes: str, sigma: float, device: Any
) -> dict[str, FirstCall]:
    """Return the first call ever on a machine, and that of a second process."""
    task = {
        "filter": settings.name,
        "settings": settings.as_dict(),
        "shape": shape,
        "axes": axes,
        "sigma": sigma,
        "device": [device.name, device.platform, device.index],
    }
    with tempfile.TemporaryDirectory(prefix="gpu-denoise-bench-") as folder:
        places = {name: os.path.join(folder, name) for name in CACHES}
        for place in places.values():
            os.mkdir(place)
        return {name: timed(task, places) for name in ("nothing cached", "kernels cached")}


def timed(task: dict[str, Any], places: dict[str, str]) -> FirstCall:
    """Return the first call of a new process, with its caches in `places`."""
    from napari_gpu_denoise.errors import KernelError

    command = [sys.executable, "-P", __file__, json.dumps(task)]
    start = time.perf_counter()
    done = subprocess.run(command, env=os.environ | places, capture_output=True, text=True)
    whole = time.perf_counter() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise KernelError(f"The process that times a first call failed ({last}).")
    parts = json.loads(done.stdout.splitlines()[-1])
    return FirstCall(python=whole - sum(parts.values()), **parts)


def run_task(task: dict[str, Any]) -> dict[str, float]:
    """Run a task in this process, which should be a fresh one; return its parts in seconds."""
    times = [time.perf_counter()]

    def mark() -> None:
        times.append(time.perf_counter())

    import numpy as np

    from napari_gpu_denoise.filters import filters_for
    from napari_gpu_denoise.opencl.device import find
    from napari_gpu_denoise.opencl.program import session
    from napari_gpu_denoise.run.denoise import denoise

    (kind,) = filters_for(task["filter"])  # without the others, as a user imports it
    settings = kind.of(**task["settings"])
    mark()
    device = find(*task["device"])
    mark()
    session(device)
    mark()
    rng, sigma = np.random.default_rng(0), task["sigma"]
    image = rng.normal(100, sigma, task["shape"]).astype(np.float32)
    for _ in range(2):
        start = time.perf_counter()
        denoise(image, settings, sigma, axes=task["axes"], device=device)
        times.append(times[-1] + time.perf_counter() - start)
    imports, discovery, context, first, again = (
        after - before for before, after in itertools.pairwise(times)
    )
    return {
        "imports": imports,
        "discovery": discovery,
        "context": context,
        "compiling": max(first - again, 0.0),
        "call": again,
    }


if __name__ == "__main__":
    print(json.dumps(run_task(json.loads(sys.argv[1]))))
