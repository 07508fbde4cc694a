"""Time calls of BM3D in this process and print JSON; `speed_bm3d.py --calls` starts it.

It imports no more than the method needs, so that the memory it reports is the method's.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def ours(image: np.ndarray, sigma: float, profile: str, device: str | None) -> Callable:
    """Return a call of our filter."""
    from profiles_bm3d import settings_of

    import napari_gpu_denoise as gd

    settings, chosen = settings_of(profile), gd.choose(device)
    return lambda: gd.bm3d(image, sigma, settings=settings, device=chosen)


def package(image: np.ndarray, sigma: float, profile: str, _: str | None) -> Callable:
    """Return a call of the `bm3d` package."""
    import bm3d  # noqa: F401  (memory is read before the first call)
    from peer_bm3d import run

    return lambda: run(image, sigma, profile)


METHODS = {"ours": ours, "package": package}


def held(most: bool) -> int:
    """Return the bytes of memory this process holds, or the most it has held."""
    try:
        # Unlike getrusage, this leaves out what the process held before it became this program.
        status = Path("/proc/self/status").read_text()
        name = "VmHWM:" if most else "VmRSS:"
        line = next(line for line in status.splitlines() if line.startswith(name))
        return 1024 * int(line.split()[1])
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Time the calls, the first one by itself."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("profile")
    parser.add_argument("image", type=Path, help="file that numpy.save has written")
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--device")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    image = np.load(options.image)
    call = METHODS[options.method](image, options.sigma, options.profile, options.device)
    before, seconds = held(most=False), []
    for _ in range(1 + options.repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    found = {"first": seconds[0], "warm": statistics.median(seconds[1:])}
    print(json.dumps({**found, "memory": held(most=True), "memory before": before}))


if __name__ == "__main__":
    main()
