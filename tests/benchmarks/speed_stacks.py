"""Print how many frames a second whole calls and streams filter, uint16 of 1080 x 1920.

    python tests/benchmarks/speed_stacks.py [--device N] [--frames 1000] [--repeats 2]
        [--columns uint16 automatic float32 stream] [--only TEXT]

From an array in memory to a new one, with sigma given or measured. Printed is the best of the
repeats. A scene moves by three pixels a frame; its noise differs from frame to frame.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tables import show

import napari_gpu_denoise as gd

SIGMA = 20.0
CASES = (("VBM3D", "normal"), ("VBM3D", "fast"), ("NLMeans", "normal"), ("NLMeans", "video"))
COLUMNS = {
    "uint16": "to uint16",
    "automatic": "noise measured",
    "float32": "to float32",
    "stream": "stream, to uint16",
}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--shape", default="1080x1920")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--only", default="", help="cases whose name has this text in it")
    args = parser.parse_args()
    device, shape = gd.choose(args.device), tuple(map(int, args.shape.split("x")))
    movie = moving_scene(args.frames, *shape)
    print(f"{device}, {' x '.join(map(str, movie.shape))} uint16, frames a second\n", flush=True)
    rows = []
    for name, profile in CASES:
        if args.only.lower() not in f"{name} {profile}".lower():
            continue
        filter = getattr(gd, name).of(profile=profile)

        def run(column: str, frames: int, filter=filter) -> None:
            some = movie[:frames]
            if column == "stream":
                for _ in gd.stream(filter, iter(some), SIGMA, dtype="uint16", device=device):
                    pass
                return
            sigma = None if column == "automatic" else SIGMA
            dtype = "float32" if column == "float32" else "uint16"
            gd.denoise(some, filter, sigma, axes="TYX", dtype=dtype, device=device)

        rates = [
            args.frames / fastest(lambda frames, one=one, run=run: run(one, frames), args)
            for one in args.columns
        ]
        rows.append([f"{name}, `{profile}`", *(f"{rate:.0f}" for rate in rates)])
        print(" | ".join(rows[-1]), flush=True)
    print()
    show(["", *(COLUMNS[one] for one in args.columns)], rows)


def moving_scene(count: int, ny: int, nx: int) -> np.ndarray:
    """Return frames of a smooth scene that moves, with noise of standard deviation `SIGMA`."""
    rng = np.random.default_rng(0)
    coarse = rng.uniform(500, 2000, (ny // 24 + 2, nx // 24 + 2))
    wide = np.array([np.interp(np.arange(nx) / 24, range(coarse.shape[1]), row) for row in coarse])
    scene = np.array([np.interp(np.arange(ny) / 24, range(len(wide)), one) for one in wide.T]).T
    noise = rng.normal(0, SIGMA, (16, ny, nx)).astype(np.float32)
    movie = np.empty((count, ny, nx), np.uint16)

    def fill(t: int) -> None:
        clean = np.roll(scene.astype(np.float32), 3 * t, 1)
        movie[t] = clean + np.roll(noise[t % 16], 31 * t, 1) + 0.5

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fill, range(count)))
    return movie


def fastest(run: Callable[[int], None], args: argparse.Namespace) -> float:
    """Return the least seconds of some calls; one of few frames comes first, which compiles."""
    run(min(args.frames, 64))
    times = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        run(args.frames)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
