"""Print how fast a stack goes through a device when the filter itself takes next to no time.

    python tests/benchmarks/transfer.py --shape 1080x1920 --frames 1000 --dtypes uint8 uint8:float32

The filter copies each tile (`--passes N`: N times, to stand for one that takes longer). Whole calls
of `denoise` are timed, NumPy array to NumPy array: the first one, which also builds kernels and
gets memory, and the median of the repeats. "host" is a copy of the stack into a new array by as
many threads as the package uses. Device times, in ms a frame, are from profiling events.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.image.threads import in_bands
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors, release_memory
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import TilePlan
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Tile
from napari_gpu_denoise.run.denoise import denoise
from napari_gpu_denoise.run.flow.tile_flow import TileFlow
from napari_gpu_denoise.run.flow.work import FrameSigma, Work


@dataclass(frozen=True)
class Copy(Filter):
    """A filter that changes nothing."""

    name: ClassVar[str] = "copy"
    title: ClassVar[str] = "Copy"
    summary: ClassVar[str] = "Copies what it is given"

    passes: int = setting(1, "How often it is copied", bounds=(1, 10_000))

    @property
    def operations_per_pixel(self) -> float:
        return float(self.passes)

    operations_per_launch: ClassVar[float] = 1.0

    def plan(self, arena: Arena) -> CopyPlan:
        return CopyPlan(self.passes)


class CopyPlan(TilePlan):
    """Runs it."""

    def __init__(self, passes: int):
        self.passes = passes

    def enqueue(self, queue, tile: Tile, source, out, sigma: Any) -> list[tuple[str, Any]]:
        import pyopencl as cl

        nbytes = 4 * tile.channels * int(np.prod(tile.shape))
        return [
            ("filter", cl.enqueue_copy(queue, out, source, byte_count=nbytes))
            for _ in range(self.passes)
        ]


def calls(stack, settings: Copy, dtype, device: Device, repeats: int) -> list[float]:
    """Return how long calls take, in seconds."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = denoise(stack, settings, 1.0, dtype=dtype, device=device)
        times.append(time.perf_counter() - start)
        del result
    return times


def host_copy(stack) -> float:
    """Return the least time of a copy of the stack into a new array, in seconds."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        out = np.empty_like(stack)
        in_bands(lambda a, b: np.copyto(b, a), stack, out)
        times.append(time.perf_counter() - start)
        del out
    return min(times)


def device_times(stack, settings: Copy, dtype, device: Device) -> dict[str, float]:
    """Return device times by name, in seconds, and the number of tiles."""
    chosen = session(device)
    out = np.empty(stack.shape, dtype)
    levels, sigma = Levels.of(stack), FrameSigma.of(1.0, stack.shape, ".YX")
    work = Work(settings, arrange(stack, ".YX"), arrange(out, ".YX"), levels, sigma, chosen)
    sums: dict[str, float] = defaultdict(float)
    with device_errors(chosen), borrow(chosen) as arena:
        flow = TileFlow(work, arena, profiling=True)
        with closing(flow):
            for _ in flow.run():
                pass
        for name, event in flow.events:
            sums[name] += (event.profile.end - event.profile.start) * 1e-9
        arena.trim()
        sums["memory"] = arena.nbytes
    sums["tiles"] = len(flow.tiles)
    return sums


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="1080x1920", help="of a frame, YxX")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument(
        "--dtypes", nargs="+", default=["uint8", "uint16", "uint8:float32", "float32"],
        help="types of the stack, and after a colon of the result where it is another",
    )  # fmt: skip
    parser.add_argument("--device", default=None, help="number or name")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    device, settings = choose(args.device), Copy(passes=args.passes)
    shape = (args.frames, *(int(n) for n in args.shape.split("x")))
    parts = ("upload", "to float", "filter", "to levels", "download")
    print(f"{device}\n{'x'.join(map(str, shape))}, {args.passes} passes")
    print(f"{'types':<16}{'tiles':>6}{'MiB':>7}{'first/s':>9}{'frames/s':>9}{'GB/s':>7}", end="")
    print(f"{'host/s':>9}   ms a frame: {', '.join(parts)}")
    for types in args.dtypes:
        given, _, wanted = types.partition(":")
        # Pages of its own for every frame, and values in range of all types.
        frame = np.random.default_rng(0).integers(0, 127, shape[1:]).astype(given)
        stack = np.empty(shape, given)
        stack[:] = frame
        dtype = np.dtype(wanted or given)
        release_memory()
        first, *others = calls(stack, settings, dtype, device, args.repeats)
        each = statistics.median(others) / args.frames
        moved = frame.size * (frame.itemsize + dtype.itemsize)
        sums = device_times(stack, settings, dtype, device)
        times = ", ".join(f"{1e3 * sums[name] / args.frames:.3f}" for name in parts)
        print(
            f"{types:<16}{sums['tiles']:>6.0f}{sums['memory'] / 2**20:>7.0f}"
            f"{args.frames / first:>9.0f}{1 / each:>9.0f}{moved / each / 1e9:>7.2f}"
            f"{args.frames / host_copy(stack):>9.0f}   {times}",
            flush=True,
        )


if __name__ == "__main__":
    main()
