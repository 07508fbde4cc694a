"""Print how many frames a second whole calls and streams filter, uint16 of 1080 x 1920.

    python tests/benchmarks/speed_stacks.py [--device N] [--frames 200] [--repeats 3]

From an array in memory to a new one, with sigma given. Printed is the best of the repeats.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from tables import show

import napari_gpu_denoise as gd

SIGMA = 20.0
CASES = (("VBM3D", "normal"), ("VBM3D", "fast"), ("NLMeans", "video"))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    device = gd.choose(args.device)
    one = np.random.default_rng(0).normal(1000, SIGMA, (1080, 1920)).astype(np.uint16)
    movie = np.stack([np.roll(one, 3 * t, 1) for t in range(args.frames)])
    print(f"{device}, {' x '.join(map(str, movie.shape))} uint16, frames a second\n")
    rows = []
    for name, profile in CASES:
        filter = getattr(gd, name).of(profile=profile)

        def whole(dtype: str, filter=filter) -> None:
            gd.denoise(movie, filter, SIGMA, axes="TYX", dtype=dtype, device=device)

        def streamed(dtype: str, filter=filter) -> None:
            for _ in gd.stream(filter, iter(movie), SIGMA, dtype=dtype, device=device):
                pass

        rates = [
            args.frames / fastest(lambda run=run, dtype=dtype: run(dtype), args.repeats)
            for run in (whole, streamed)
            for dtype in ("uint16", "float32")
        ]
        rows.append([f"{name}, `{profile}`", *(f"{rate:.0f}" for rate in rates)])
    show(["", "to uint16", "to float32", "stream, to uint16", "stream, to float32"], rows)


def fastest(run: Callable[[], None], repeats: int) -> float:
    """Return the least seconds of some calls; one more comes first, which compiles."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times[1:])


if __name__ == "__main__":
    main()
