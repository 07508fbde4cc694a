"""Print how many frames a second whole calls, streams and lazy arrays filter.

    python tests/benchmarks/speed_stacks.py [--device N] [--frames 1000] [--shape 1080x1920]
        [--dtype uint16] [--chunk 16] [--columns array automatic ...] [--only TEXT]

From an array in memory to a new one, or one that is there (`lazy`, by `dask.array.store`), with
sigma given or measured. Printed is the best of the repeats. Photographs move by three pixels a
frame; the noise differs from frame to frame.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import dask.array as da
import numpy as np
from tables import seconds_of, show

import napari_gpu_denoise as gd
from reference.data import photograph

SIGMA = 20.0
CASES = (
    *(("VBM3D", profile) for profile in ("normal", "fast", "live")),
    *(("NLMeans", "normal"), ("NLMeans", "video"), ("BM3D", "fast"), ("Isoline", "normal")),
)
COLUMNS = {
    "array": "sigma given",
    "automatic": "noise measured",
    "stream": "stream",
    "lazy": "lazy, stored",
}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--shape", default="1080x1920")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dtype", choices=("uint8", "uint16", "float32"), default="uint16")
    parser.add_argument("--chunk", type=int, default=16, help="frames in a chunk of a lazy array")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--only", default="", help="cases whose name has this text in it")
    args = parser.parse_args()
    device, shape = gd.choose(args.device), tuple(map(int, args.shape.split("x")))
    movie = moving_scene(args.frames, *shape, np.dtype(args.dtype))
    print(f"{device}, {' x '.join(map(str, movie.shape))} {args.dtype}, frames a second\n")
    rows = []
    for name, profile in CASES:
        if args.only.lower() not in f"{name} {profile}".lower():
            continue
        calls = calls_of(movie, getattr(gd, name).of(profile=profile), device, args.chunk)
        row = [f"{name}, `{profile}`"]
        for column in args.columns:
            calls[column](min(args.frames, 64))  # which compiles
            call, count = calls[column], args.frames
            least = seconds_of(lambda call=call, n=count: call(n), args.repeats, warm=0)[0]
            row.append(f"{args.frames / least:.0f}")
        rows.append(row)
    show(["", *(COLUMNS[one] for one in args.columns)], rows)


def calls_of(
    movie: np.ndarray, filter: object, device: object, chunk: int
) -> dict[str, Callable[[int], object]]:
    """Return what filters so many frames, by column."""
    made = np.zeros_like(movie)
    chunked = da.from_array(movie, chunks=(chunk, *movie.shape[1:]), name=False)  # copies it
    options = {"dtype": str(movie.dtype), "device": device}

    def array(count: int, sigma: float | None = SIGMA) -> None:
        gd.denoise(movie[:count], filter, sigma, axes="TYX", **options)

    def stream(count: int) -> None:
        for _ in gd.stream(filter, iter(movie[:count]), SIGMA, **options):
            pass

    def lazy(count: int) -> None:
        lazily = gd.denoise_lazy(chunked[:count], filter, SIGMA, axes="TYX", **options)
        lazily.store(made[:count], lock=False)

    def automatic(count: int) -> None:
        array(count, None)

    return {"array": array, "automatic": automatic, "stream": stream, "lazy": lazy}


def moving_scene(count: int, ny: int, nx: int, dtype: np.dtype) -> np.ndarray:
    """Return frames of photographs that move, with noise of standard deviation `SIGMA`."""
    rng, most = np.random.default_rng(0), 65535 if dtype == np.uint16 else 255
    scene = photograph(ny, nx) if most == 255 else 200 + 8 * photograph(ny, nx)
    noise = rng.normal(0, SIGMA, (16, ny, nx)).astype(np.float32)
    movie = np.empty((count, ny, nx), dtype)

    def fill(t: int) -> None:
        frame = np.roll(scene, 3 * t, 1) + np.roll(noise[t % 16], 31 * t, 1)
        movie[t] = frame if dtype.kind == "f" else (frame + 0.5).clip(0, most)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fill, range(count)))
    return movie


if __name__ == "__main__":
    main()
