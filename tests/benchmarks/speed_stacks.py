"""Print how many frames a second whole calls, streams and lazy arrays filter, of 1080 x 1920.

    python tests/benchmarks/speed_stacks.py [--device N] [--frames 1000] [--repeats 2]
        [--dtype uint16] [--chunk 16] [--columns array float32 ...] [--only TEXT]

From an array in memory to a new one, or one that is there (`lazy`, by `dask.array.store`), with
sigma given or measured. Printed is the best of the repeats. Photographs move by three pixels a
frame; the noise differs from frame to frame.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask.array as da
import numpy as np
from tables import show

import napari_gpu_denoise as gd

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import photograph

SIGMA = 20.0
CASES = (
    *(("VBM3D", "normal"), ("VBM3D", "fast"), ("BM3D", "fast")),
    *(("NLMeans", "normal"), ("NLMeans", "video")),
)
COLUMNS = {
    "array": "array",
    "automatic": "noise measured",
    "float32": "to float32",
    "stream": "stream",
    "stream_automatic": "stream, noise measured",
    "lazy": "lazy, stored",
    "computed": "lazy, computed",
}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--shape", default="1080x1920")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dtype", choices=("uint8", "uint16"), default="uint16")
    parser.add_argument("--chunk", type=int, default=16, help="frames in a chunk of a lazy array")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--only", default="", help="cases whose name has this text in it")
    args = parser.parse_args()
    device, shape = gd.choose(args.device), tuple(map(int, args.shape.split("x")))
    movie = moving_scene(args.frames, *shape, np.dtype(args.dtype))
    made = np.zeros_like(movie)
    chunked = da.from_array(movie, chunks=(args.chunk, *shape), name=False)  # copies it
    shown = f"{' x '.join(map(str, movie.shape))} {args.dtype}"
    print(f"{device}, {shown}, frames a second\n", flush=True)
    rows = []
    for name, profile in CASES:
        if args.only.lower() not in f"{name} {profile}".lower():
            continue
        filter = getattr(gd, name).of(profile=profile)

        def run(column: str, frames: int, filter=filter) -> None:
            some, sigma = movie[:frames], None if "automatic" in column else SIGMA
            options = {"dtype": args.dtype, "device": device}
            if column.startswith("stream"):
                for _ in gd.stream(filter, iter(some), sigma, **options):
                    pass
            elif column in ("lazy", "computed"):
                lazy = gd.denoise_lazy(chunked[:frames], filter, sigma, axes="TYX", **options)
                lazy.compute() if column == "computed" else lazy.store(made[:frames], lock=False)
            else:
                options |= {"dtype": "float32"} if column == "float32" else {}
                gd.denoise(some, filter, sigma, axes="TYX", **options)

        rates = [
            args.frames / fastest(lambda frames, one=one, run=run: run(one, frames), args)
            for one in args.columns
        ]
        rows.append([f"{name}, `{profile}`", *(f"{rate:.0f}" for rate in rates)])
        print(" | ".join(rows[-1]), flush=True)
    print()
    show(["", *(COLUMNS[one] for one in args.columns)], rows)


def moving_scene(count: int, ny: int, nx: int, dtype: np.dtype) -> np.ndarray:
    """Return frames of photographs that move, with noise of standard deviation `SIGMA`."""
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    scene = photograph(ny, nx) if limits.max == 255 else 200 + 8 * photograph(ny, nx)
    noise = rng.normal(0, SIGMA, (16, ny, nx)).astype(np.float32)
    movie = np.empty((count, ny, nx), dtype)

    def fill(t: int) -> None:
        frame = np.roll(scene, 3 * t, 1) + np.roll(noise[t % 16], 31 * t, 1) + 0.5
        movie[t] = frame.clip(limits.min, limits.max)

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
