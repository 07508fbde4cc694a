"""Print how long whole calls take on one device and on several, and that the pixels are equal.

    python tests/benchmarks/speed_devices.py [--devices all] [--repeats 3] [--only TEXT] [--small]

Images are uint16 and in memory. Printed is the least of the repeats.
"""

from __future__ import annotations

import argparse

import numpy as np
from tables import seconds_of, show

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl.device import choose_devices, names_of

SIGMA = 20.0
CASES = (
    ("BM3D", "normal", "TYX", (64, 1080, 1920)),
    ("BM3D", "fast", "TYX", (64, 1080, 1920)),
    ("BM3D", "normal", "YX", (6912, 4608)),
    ("VBM3D", "normal", "TYX", (800, 1080, 1920)),
    ("NLMeans", "normal", "TYX", (800, 1080, 1920)),
    ("NLMeans", "normal", "YX", (13824, 9216)),
    ("NLMeans", "fine", "YX", (13824, 9216)),
    ("BM4D", "normal", "ZYX", (512, 512, 512)),
)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name has this text in it")
    parser.add_argument("--small", action="store_true", help="an eighth of each side, for CPUs")
    args = parser.parse_args()
    devices = choose_devices(args.devices)
    print(f"{names_of(devices)}, uint16, whole calls in seconds\n", flush=True)
    rows = []
    for name, profile, axes, shape in CASES:
        if args.only.lower() not in f"{name} {profile}".lower():
            continue
        if args.small:
            shape = tuple(max(n // 8, 1) for n in shape)
        filter, image, made, least = getattr(gd, name).of(profile=profile), noise(shape), [], []
        for used in (devices[:1], devices):

            def call(used=used, image=image, filter=filter, axes=axes) -> np.ndarray:
                return gd.denoise(image, filter, SIGMA, axes=axes, device=used).image

            made.append(call())  # which compiles
            least.append(seconds_of(call, args.repeats, warm=0)[0])
        equal = "yes" if np.array_equal(*made) else "no"
        size = f"{name} `{profile}`, {' x '.join(map(str, shape))}"
        rows.append([size, *(f"{each:.3f}" for each in least), least[0] / least[1], equal])
    show(["", "one", f"{len(devices)} devices", "times as fast", "same bits"], rows)


def noise(shape: tuple[int, ...]) -> np.ndarray:
    """Return noise around 1000, uint16; planes are those of eight, moved."""
    planes = np.random.default_rng(0).normal(1000, SIGMA, (8, *shape[-2:])).astype(np.uint16)
    image = np.empty(shape, np.uint16)
    for k, plane in enumerate(image.reshape(-1, *shape[-2:])):
        plane[...] = np.roll(planes[k % 8], 3 * k, 1)
    return image


if __name__ == "__main__":
    main()
