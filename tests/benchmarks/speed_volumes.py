"""Time of the filters of volumes, and their floors: operations and bytes over the peaks of a GPU.

python tests/benchmarks/speed_volumes.py
python tests/benchmarks/speed_volumes.py --shape 32x128x128 --device 1
"""

from __future__ import annotations

import math

from tables import print_speeds, speed_parser

import napari_gpu_denoise as gd

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
    parser = speed_parser(__doc__, "256x256x256", CASES)
    args = parser.parse_args()
    print_speeds(args, CASES, floor)


if __name__ == "__main__":
    main()
