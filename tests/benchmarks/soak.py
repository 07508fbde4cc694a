"""Print what a process holds while it makes thousands of calls, many of which fail.

    python tests/benchmarks/soak.py [--calls 2000] [--frames 20000] [--device N] [--seed 0]

Calls are of all filters and ways in, of many sizes and types. About a third fail: wrong sigma,
NaN, a memory limit that is too small, allocations that fail, files that cannot be filtered, streams
that are given up. Then small frames go through `stream`. Each row is printed after a tenth of the
calls or frames: resident memory once free memory is returned, open file descriptors, threads of
Python and of the system, bytes on the device and in how many buffers, programs built, and objects
of Python. The last lines say whether memory is flat: how far the mean of the last quarter lies
above that of the second. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import dask.array as da
import numpy as np
import pyopencl as cl
import tifffile
from tables import show

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl import program
from opencl.faults import opencl_error
from scenes import noisy, small

FILTERS = (
    small(gd.NLMeans),
    small(gd.NLMeans, frames_before=1),
    small(gd.BM3D),
    small(gd.VBM3D, frames_before=1, frames_after=1),
    small(gd.Isoline, segment_length=3, max_length=4, staircase=3),
)
TYPES = ("uint8", "int16", "uint16", "float32", "float64")
# Growth that counts as none, as a share of resident memory: a heap of buffers of many sizes gets
# gaps. A leak shows in buffers or objects, or in memory with more calls.
FLAT = 0.05

# Buffers that are alive, and after how many more one allocation fails.
alive: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
until_failure = [-1]


class Buffer(cl.Buffer):
    """A device buffer that is counted until it is released, and may fail to be allocated."""

    def __init__(self, *given, **options):
        until_failure[0] -= 1
        if until_failure[0] == -1:
            raise opencl_error("MEM_OBJECT_ALLOCATION_FAILURE", "create_buffer")
        super().__init__(*given, **options)
        alive[self] = self.size

    def release(self):
        alive.pop(self, None)
        super().release()


@dataclass(frozen=True)
class Held:
    """What the process holds; memory in MiB."""

    resident: float
    files: int
    threads: int
    system_threads: int
    device: float
    buffers: int
    programs: int
    objects: int

    @classmethod
    def now(cls) -> Held:
        """Return what is held after tidying up, as the allocator of C keeps what was freed."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        lines = Path("/proc/self/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        return cls(
            int(status["VmRSS"].split()[0]) / 2**10,
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            int(status["Threads"]),
            sum(alive.values()) / 2**20,
            len(alive),
            sum(len(held.programs) for held in program._sessions.values()),
            len(gc.get_objects()),
        )


def watched(work: Iterable, total: int, what: str) -> str:
    """Do some work; print a row after each tenth of it, and return whether memory is flat."""
    held: list[Held] = []

    def rows() -> Iterator[tuple]:
        for number, _ in enumerate(work, start=1):
            if number % max(total // 10, 1) == 0:
                held.append(Held.now())
                yield number, *astuple(held[-1])

    names = "RSS MiB", "files", "threads", "system", "device MiB", "buffers", "programs", "objects"
    show([what, *names], rows())
    return verdict(held)


def verdict(rows: list[Held]) -> str:
    """Return whether memory is flat."""
    quarter = max(1, len(rows) // 4)
    second, last = rows[quarter : 2 * quarter], rows[-quarter:]

    def growth(name: str) -> tuple[float, float]:
        means = [sum(getattr(row, name) for row in part) / len(part) for part in (second, last)]
        return means[1] - means[0], means[0]

    (more, held), (on_device, _) = growth("resident"), growth("device")
    others = {name: growth(name)[0] for name in ("files", "threads", "system_threads", "objects")}
    flat = more <= FLAT * held and all(others[name] <= 1 for name in list(others)[:3])
    return (
        f"{'Flat' if flat else 'NOT FLAT'}: from the second quarter to the last, resident memory "
        f"{more:+.1f} MiB ({more / held:+.1%}), device {on_device:+.2f} MiB, "
        + ", ".join(f"{name.replace('_', ' ')} {value:+.1f}" for name, value in others.items())
        + "."
    )


def call(rng, device, folder: Path) -> str:
    """Make one call; return how it ended."""
    settings = FILTERS[rng.integers(len(FILTERS))]
    dtype = TYPES[rng.integers(len(TYPES))]
    image = noisy(int(rng.integers(1, 5)), *map(int, rng.integers(12, 90, 2)), dtype=dtype)
    trouble = rng.choice(
        ["none", "sigma", "NaN", "limit", "allocation", "axes"], p=[0.6, *5 * [0.08]]
    )
    options = {"axes": "TYX", "device": device}
    sigma = [5, 20.0, None, np.linspace(5, 30, len(image))[:, None, None]][rng.integers(4)]
    if trouble == "sigma":
        sigma = [-1, np.nan, [1, 2, 3, 4, 5, 6], "much"][rng.integers(4)]
    elif trouble == "NaN":
        image = image.astype("float32")
        image[0, 3, 4] = np.nan
    elif trouble == "limit":
        options["memory_limit"] = int(rng.integers(1, 20_000))
    elif trouble == "axes":
        options["axes"] = "ZCYX"
    elif trouble == "allocation":
        until_failure[0] = int(rng.integers(20))
    way = ["array", "array", "stream", "stopped", "lazy", "file", "estimate"][rng.integers(7)]
    try:
        if way == "array":
            gd.denoise(image, settings, sigma, **options)
        elif way in ("stream", "stopped"):
            limit = {k: v for k, v in options.items() if k != "axes"}
            one = sigma if np.ndim(sigma) == 0 else 20.0
            for _ in gd.stream(settings, iter(image), one, **limit):
                if way == "stopped":
                    break
        elif way == "lazy":
            options.pop("memory_limit", None)
            pixels = da.from_array(image, chunks=(2, 40, 40))
            gd.denoise_lazy(pixels, settings, sigma, **options).compute(num_workers=2)
        elif way == "file":
            tifffile.imwrite(folder / "in.tif", image, metadata={"axes": "TYX"})
            given = {**options, "output": folder / "out.tif", "overwrite": True}
            [report] = gd.run_batch(folder / "in.tif", settings, sigma, **given).files
            if report.error is not None:
                raise report.error
        else:
            gd.estimate_noise(image, axes=options["axes"], device=device)
    except (gd.errors.DenoiseError, ValueError) as error:
        return type(error).__name__
    finally:
        until_failure[0] = -1
    return "done"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--device", default=None, help="number or name")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    device, rng = gd.choose(args.device), np.random.default_rng(args.seed)
    cl.Buffer = Buffer
    print(device)
    with tempfile.TemporaryDirectory() as folder:
        ends: Counter = Counter()
        calls = (ends.update([call(rng, device, Path(folder))]) for _ in range(args.calls))
        calls_say = watched(calls, args.calls, "calls")
    print(", ".join(f"{name} {count}" for name, count in ends.most_common()))
    gd.release_memory()
    print(f"Device memory once it is released: {Held.now().device} MiB.\n")
    frame = noisy(24, 28, dtype="uint8")
    frames = (np.roll(frame, k, axis=1) for k in range(args.frames))
    stream = gd.stream(FILTERS[1], frames, 20, device=device)
    print(f"\nCalls. {calls_say}\nFrames. {watched(stream, args.frames, 'frames')}")


if __name__ == "__main__":
    main()
