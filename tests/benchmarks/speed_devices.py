"""Print how long whole calls take on one device and on several, and that the pixels are equal.

    python tests/benchmarks/speed_devices.py [--devices all] [--repeats 3] [--small]

Images are uint16 and in memory. Printed is the least of the repeats, of calls that take turns.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from tables import show

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl.several import choose_devices, names_of

SIGMA = 20.0
CASES = (
    ("NLMeans", "normal", "YX", (13824, 9216)),
    ("BM3D", "normal", "YX", (6912, 4608)),
    ("BM3D", "normal", "TYX", (64, 1080, 1920)),
    ("BM4D", "normal", "ZYX", (512, 512, 512)),
    ("VBM3D", "normal", "TYX", (400, 1080, 1920)),
)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a quarter of each side, for CPUs")
    args = parser.parse_args()
    devices = choose_devices(args.devices)
    print(f"{names_of(devices)}, uint16, whole calls in seconds")
    rows = []
    for name, profile, axes, shape in CASES:
        if args.small:
            shape = tuple(max(n // 4, 1) for n in shape)
        filter = getattr(gd, name).of(profile=profile)
        noise = np.random.default_rng(0).normal(1000, SIGMA, shape[-2:]).astype(np.uint16)
        image = np.ascontiguousarray(np.broadcast_to(noise, shape))
        chosen = {"one": devices[:1], "all": devices}
        times = {key: [] for key in chosen}
        made = {}
        for turn in range(args.repeats + 1):
            for key, used in chosen.items():
                start = time.perf_counter()
                made[key] = gd.denoise(image, filter, SIGMA, axes=axes, device=used).image
                if turn:  # the first compiles
                    times[key].append(time.perf_counter() - start)
        one, all_ = (min(times[key]) for key in chosen)
        equal = "yes" if np.array_equal(made["one"], made["all"]) else "no"
        size = " x ".join(map(str, shape))
        rows.append([f"{name} {size}", f"{one:.2f}", f"{all_:.2f}", f"{one / all_:.2f}", equal])
    show(["", "one", f"{len(devices)} devices", "times as fast", "same bits"], rows)


if __name__ == "__main__":
    main()
