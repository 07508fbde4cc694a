"""Print how long whole calls take on one device and on several, and that the pixels are equal.

    python tests/benchmarks/speed_devices.py [--devices all] [--repeats 3] [--only TEXT] [--small]

Images are uint16 and in memory. Printed is the least of the repeats, of calls that take turns.
"Busy" is the share of such a call on one device in which a kernel runs, by profiling events.
"""

from __future__ import annotations

import argparse
import time
from unittest import mock

import numpy as np
from tables import show

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl.device import choose_devices, names_of
from napari_gpu_denoise.run import part
from napari_gpu_denoise.run.flow import frame_flow
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow
from napari_gpu_denoise.run.flow.tile_flow import TileFlow

SIGMA = 20.0
CASES = (
    ("BM3D", "normal", "TYX", (64, 1080, 1920)),
    ("VBM3D", "normal", "TYX", (800, 1080, 1920)),
    ("NLMeans", "normal", "TYX", (800, 1080, 1920)),
    ("NLMeans", "normal", "YX", (13824, 9216)),
    ("NLMeans", "fine", "YX", (13824, 9216)),
    ("VBM3D", "fast", "TYX", (800, 1080, 1920)),
    ("BM3D", "normal", "YX", (6912, 4608)),
    ("BM4D", "normal", "ZYX", (512, 512, 512)),
)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name has this text in it")
    parser.add_argument("--small", action="store_true", help="a quarter of each side, for CPUs")
    args = parser.parse_args()
    devices = choose_devices(args.devices)
    print(f"{names_of(devices)}, uint16, whole calls in seconds", flush=True)
    head = ["", "one", "busy", f"{len(devices)} devices", "times as fast", "same bits"]
    rows = []
    for name, profile, axes, shape in CASES:
        if args.only.lower() not in f"{name} {profile}".lower():
            continue
        if args.small:
            shape = tuple(max(n // 4, 1) for n in shape)
        filter, image = getattr(gd, name).of(profile=profile), noise(shape)
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
        row = [
            f"{name} `{profile}`, {size}",
            f"{one:.3f}",
            f"{100 * busy(filter, image, axes, devices[0]):.0f} %",
        ]
        rows.append([*row, f"{all_:.3f}", f"{one / all_:.2f}", equal])
        print(" | ".join(rows[-1]), flush=True)
    print()
    show(head, rows)


def noise(shape: tuple[int, ...]) -> np.ndarray:
    """Return noise around 1000, uint16; planes are those of eight, moved."""
    planes = np.random.default_rng(0).normal(1000, SIGMA, (8, *shape[-2:])).astype(np.uint16)
    image = np.empty(shape, np.uint16)
    for k, plane in enumerate(image.reshape(-1, *shape[-2:])):
        plane[...] = np.roll(planes[k % 8], 3 * k, 1)
    return image


def busy(filter, image: np.ndarray, axes: str, device) -> float:
    """Return the share of a call in which the device runs a kernel."""
    flows = []

    def recording(kind):
        def made(*args):
            flows.append(kind(*args, profiling=True))
            return flows[-1]

        return made

    with (
        mock.patch.object(part, "TileFlow", recording(TileFlow)),
        mock.patch.object(frame_flow, "FrameFlow", recording(FrameFlow)),
    ):
        start = time.perf_counter()
        gd.denoise(image, filter, SIGMA, axes=axes, device=device)
        seconds = time.perf_counter() - start
    events = [event for flow in flows for name, event in flow.events if "load" not in name]
    spans = sorted((event.profile.start, event.profile.end) for event in events)
    working, last = 0, 0
    for begin, end in spans:
        working += max(0, end - max(begin, last))
        last = max(last, end)
    return 1e-9 * working / seconds


if __name__ == "__main__":
    main()
