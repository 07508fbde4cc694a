"""Print how fast the isoline filter is on a device: whole runs, kernel by kernel, and stacks.

    python tests/benchmarks/speed_isoline.py [--shape 512x512 1080x1920] [--stack 1000] [--device N]

Device times are from profiling events, medians over the repeats. With `--stack N` a stack of N
frames of uint8, 1080 x 1920, is filtered from host memory to host memory by ``denoise``; the first
call also builds kernels and gets memory.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from tables import kernel_times

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli.bench import measure, synthetic
from napari_gpu_denoise.filters.isoline import Isoline
from napari_gpu_denoise.opencl.device import Device, choose

SETTINGS = {
    "normal": Isoline(),
    "fine": Isoline.of(profile="fine"),
    "normal without staircase correction": Isoline(staircase=0),
    "paper: hybrid to the letter": Isoline.of(profile="paper"),
    "paper: PI-PD": Isoline.of(profile="paper", method="pi-pd"),
    "paper: PI-LD": Isoline.of(profile="paper", method="pi-ld"),
}


def stack_times(settings: Isoline, frames: int, device: Device, repeats: int) -> list[float]:
    """Return the seconds of the first call and of some more."""
    frame = np.clip(synthetic((1080, 1920)), 0, 255).astype(np.uint8)
    stack = np.broadcast_to(frame, (frames, *frame.shape)).copy()
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        gd.denoise(stack, settings, 20.0, axes="TYX", device=device)
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", nargs="+", default=["512x512", "1080x1920"])
    parser.add_argument("--stack", type=int, default=0, help="frames of a stack to time as well")
    parser.add_argument("--device", default=None)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=None, help="first words of settings")
    args = parser.parse_args()
    device = choose(args.device)
    wanted = {
        name: settings
        for name, settings in SETTINGS.items()
        if args.only is None or any(name.startswith(word) for word in args.only)
    }
    for shape in args.shape:
        lengths = tuple(int(n) for n in shape.split("x"))
        for name, settings in wanted.items():
            print(f"== {name}, {shape}")
            print(
                kernel_times(measure(settings, lengths, device, args.repeats)),
                end="\n\n",
                flush=True,
            )
    if args.stack:
        for name in ("normal", "paper: hybrid to the letter"):
            first, *more = stack_times(SETTINGS[name], args.stack, device, 4)
            rates = ", ".join(f"{args.stack / seconds:.0f}" for seconds in more)
            print(
                f"== {name}, {args.stack} frames 1080x1920 uint8 from host memory: "
                f"{rates} frames/s (first call {args.stack / first:.0f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
