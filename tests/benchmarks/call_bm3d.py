"""Time calls of BM3D in this process and print JSON; `speed_bm3d.py` starts it.

It imports no more than the method needs, so that the memory it reports is the method's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def ours(image: np.ndarray, options: argparse.Namespace) -> Callable:
    """Return a call of our filter."""
    from peer_bm3d import settings_of

    import napari_gpu_denoise as gd

    settings, device = settings_of(options.profile), gd.choose(options.device)
    return lambda: gd.bm3d(image, options.sigma, settings=settings, device=device)


def package(image: np.ndarray, options: argparse.Namespace) -> Callable:
    """Return a call of the `bm3d` package."""
    import bm3d  # noqa: F401  (memory is read before the first call)
    from peer_bm3d import run_package

    return lambda: run_package(image, options.sigma, options.profile)


METHODS = {"ours": ours, "package": package}


def bytes_held(name: str) -> int:
    """Return the bytes of memory this process holds (VmRSS), or the most it has held (VmHWM)."""
    # Unlike getrusage, this leaves out what the process held before it became this program.
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


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
    call = METHODS[options.method](np.load(options.image), options)
    before, seconds = bytes_held("VmRSS"), []
    for _ in range(1 + options.repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    found = {"first": seconds[0], "warm": statistics.median(seconds[1:])}
    print(json.dumps({**found, "memory": bytes_held("VmHWM"), "memory before": before}))


if __name__ == "__main__":
    main()
