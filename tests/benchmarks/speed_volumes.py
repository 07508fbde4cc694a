"""Time of the filters of volumes, and their floors: operations and bytes over the peaks of a GPU.

python tests/benchmarks/speed_volumes.py
python tests/benchmarks/speed_volumes.py --shape 32x128x128 --device 1
"""

from __future__ import annotations

import argparse
import math

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli.bench import measure
from napari_gpu_denoise.opencl.device import choose

# Of an NVIDIA H200: instructions and exponentials a second, and bytes.
INSTRUCTIONS, EXPONENTIALS, BYTES = 31.8e12, 4.0e12, 4.2e12
# A cube a voxel; of PRI-NLM a pair, and its exponential, which other instructions overlap.
CUBE, PAIR = 1000, 9

CASES = {
    "dct3d": gd.DCT3D(),
    "dct3d, step=2": gd.DCT3D(step=2),
    "dct3d, cube=2x4x8": gd.DCT3D(cube="2x4x8"),
    "dct3d, cube=1x8x8": gd.DCT3D(cube="1x8x8"),
    "pri_nlm": gd.PRINLM(),
    "pri_nlm, window_z=5": gd.PRINLM(window_z=5),
    "pri_nlm, window=7, window_z=7": gd.PRINLM(window=7, window_z=7),
}


def floor(settings, voxels: int) -> float:
    """Return the shortest time in seconds that the arithmetic and the memory of an H200 allow."""
    cubes = voxels / math.prod(min(settings.step, n) for n in settings.cube_shape)
    instructions, exponentials, moved = CUBE * cubes, 0.0, 8 * voxels
    if isinstance(settings, gd.PRINLM):
        pairs = settings.window**2 * settings.window_z * voxels
        instructions, exponentials = instructions + PAIR * pairs, pairs
        moved += 32 * voxels
    times = instructions / INSTRUCTIONS, exponentials / EXPONENTIALS, moved / BYTES
    return max(times)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="256x256x256")
    parser.add_argument("--device")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    args = parser.parse_args()
    shape, device = tuple(map(int, args.shape.split("x"))), choose(args.device)
    print(f"{device}, {args.shape} float32")
    print("| | device ms | floor on an H200, ms | whole call, ms | tiles | images of memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in args.cases:
        settings = CASES[name]
        timing = measure(settings, shape, device, args.repeats)
        least = floor(settings, math.prod(shape))
        kernels = ", ".join(f"{key} {1e3 * value:.2f}" for key, value in timing.kernels.items())
        print(
            f"| {name} | {1e3 * timing.device_time:.2f} ({kernels}) | {1e3 * least:.2f} "
            f"| {1e3 * timing.whole_call:.1f} | {timing.tiles} | {timing.images_of_memory:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
