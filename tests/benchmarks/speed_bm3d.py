"""Print how fast BM3D is: each kernel beside its floor, and whole calls in fresh processes.

    python tests/benchmarks/speed_bm3d.py --shape 3456x4608 [--device N]
    python tests/benchmarks/speed_bm3d.py --calls [--shape 512x512] [--peer]

Kernel times are device times from profiling events, medians of the repeats. The floor of a kernel
is the longest of three times: its bytes, instructions and additions, counted as if every group
were full, each at the pace the device was measured to keep; it is printed for devices whose pace is
known. "fixed" are the fixed parameters of Davy and Ehret 2020.

With --calls, each method runs in processes of its own: the first with empty kernel caches, the
second with what that one left there. Memory is the most that process held, on Linux, and what it
held before the first call, with everything imported and the picture made.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from floor_bm3d import CEILINGS, count, work_of
from peer_bm3d import PROFILES as PEER_PROFILES
from profiles_bm3d import PROFILES, settings_of
from quality_bm3d import row

from napari_gpu_denoise.cli.bench import SIGMA, Timing, measure, synthetic
from napari_gpu_denoise.filters.bm3d.filter import BM3D
from napari_gpu_denoise.opencl.device import Device, choose


def show_kernels(title: str, timing: Timing, settings: BM3D, device: Device) -> None:
    """Print one row per kernel: time, work, and how near to the floor it is."""
    work = count(settings, timing.shape)
    pace = next((found for name, found in CEILINGS.items() if name in device.name), None)
    print(f"\n{title}\n")
    print(row("kernel", "ms", "MB", "G instructions", "G additions", "floor, ms", "share of it"))
    print(row(":---", *["---:"] * 6))
    total = 0.0
    for name, seconds in timing.kernels.items():
        cells, found = ["", "", ""], work_of(name, work)
        if found:
            numbers = (1e-6 * found.bytes, 1e-9 * found.instructions, 1e-9 * found.additions)
            cells = [f"{number:.3g}" if number else "" for number in numbers]
        floor = ("", "")
        if found and pace:
            least, bound = found.least(pace)
            total += least
            floor = (f"{1e3 * least:.2f} ({bound})", f"{100 * least / seconds:.0f} %")
        print(row(name, f"{1e3 * seconds:.2f}", *cells, *floor))
    floor = (
        (f"{1e3 * total:.2f}", f"{100 * total / timing.device_time:.0f} %") if pace else ("", "")
    )
    print(row("**device time**", f"**{1e3 * timing.device_time:.2f}**", "", "", "", *floor))
    transfers = f"{1e3 * timing.upload:.1f} / {1e3 * timing.download:.1f}"
    print(row("upload / download", transfers, *[""] * 5))
    print(row("whole call", f"{1e3 * timing.whole_call:.1f}", *[""] * 5))
    memory = f"{timing.memory / 2**20:.0f} MiB, {timing.images_of_memory:.1f} images"
    print(row("device memory", memory, *[""] * 5))
    print(row("tiles", timing.tiles, *[""] * 5), flush=True)


def show_device(options: argparse.Namespace, shape: tuple[int, int]) -> list[dict]:
    """Print the kernels of every profile."""
    device = choose(options.device)
    print(f"{device}, {'x'.join(map(str, shape))} float32, sigma {SIGMA:g}")
    found = []
    for profile in options.profiles:
        settings = settings_of(profile)
        timing = measure(settings, shape, device, options.repeats)
        show_kernels(profile, timing, settings, device)
        found.append(asdict(timing))
    return found


def fresh(method: str, profile: str, options: argparse.Namespace, folder: Path) -> dict:
    """Time calls in a new process that keeps compiled kernels in a folder."""
    command = [sys.executable, str(Path(__file__).with_name("call_bm3d.py")), method, profile]
    command += [str(folder / "image.npy"), f"--sigma={SIGMA}", f"--repeats={options.repeats}"]
    command += [f"--device={options.device}"] if options.device else []
    caches = dict.fromkeys(("XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"), str(folder))
    done = subprocess.run(
        command, env={**os.environ, **caches}, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def show_calls(options: argparse.Namespace, shape: tuple[int, int]) -> list[dict]:
    """Print the times and the memory of calls, one row per method."""
    methods = [("ours", profile) for profile in options.profiles]
    methods += [("package", profile) for profile in options.peer or ()]
    if options.profiles:
        print(f"Ours runs on {choose(options.device)}.")
    print(f"\n{options.shape} float32, sigma {SIGMA:g}, {os.cpu_count()} cores\n")
    columns = ("first ever, s", "first, s", "warm, s", "most memory, MB", "before, MB")
    print(row("method", *columns, "most memory while compiling, MB"))
    print(row(":---", *["---:"] * 6), flush=True)
    found = []
    for method, profile in methods:
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder, "image.npy"), synthetic(shape))
            cold, cached = (fresh(method, profile, options, Path(folder)) for _ in range(2))
        seconds = [cold["first"], cached["first"], cached["warm"]]
        memory = [cached["memory"], cached["memory before"], cold["memory"]]
        cells = [f"{s:.3f}" for s in seconds] + [f"{n / 1e6:.0f}" for n in memory]
        name = {"ours": "ours", "package": "bm3d package,"}[method]
        print(row(f"{name} {profile}", *cells), flush=True)
        found.append({"method": method, "profile": profile, "cold": cold, "cached": cached})
    return found


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--shape", default="512x512", help="height x width")
    add("--profiles", nargs="*", choices=PROFILES, default=("fast", "normal", "fixed"))
    add("--device", help="number of the OpenCL device, or part of its name")
    add("--repeats", type=int, default=5)
    add("--calls", action="store_true", help="time whole calls in fresh processes instead")
    add("--peer", nargs="*", choices=PEER_PROFILES, help="with --calls, the package as well")
    add("--json", type=Path, help="also write what was measured to this file")
    options = parser.parse_args()
    if options.peer is not None and not options.peer:
        options.peer = list(PEER_PROFILES)
    shape = tuple(int(n) for n in options.shape.split("x"))
    if len(shape) != 2 or math.prod(shape) == 0:
        parser.error("--shape wants two lengths, such as 512x512")
    show = show_calls if options.calls else show_device
    found = show(options, shape)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
