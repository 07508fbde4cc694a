"""Print what models of noise cost on a device, and how long the estimate of a stack takes.

    python tests/benchmarks/speed_noise.py [--shape 1080x1920] [--stack 100x2048x2048] [--device N]

Times of the transforms are from profiling events; each reads and writes every pixel once. Whole
calls are from host memory to host memory. All are medians over the repeats.
The stack is uint16 with photon and read noise; its first estimate also builds kernels.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli.bench import synthetic
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.device import choose
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.run.flow.work import Stabilisation

MODELS = (gd.PoissonGaussian(2.0, 4.0, 10.0), gd.Rician(10.0), gd.Speckle(4.0, least=0.2))


def lengths(shape: str) -> tuple[int, ...]:
    """Return the numbers of ``"1080x1920"``."""
    return tuple(int(n) for n in shape.split("x"))


def whole_call(repeats: int, image, settings, **options) -> float:
    """Return the median seconds of a call after the first."""
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        gd.denoise(image, settings, **options)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def transforms(pixels: int, device, repeats: int) -> None:
    """Print the device times of both transforms, and bytes moved a second."""
    import pyopencl as cl

    here = session(device)
    queue = here.queue(profiling=True)
    values = np.linspace(0, 1000, pixels, dtype=np.float32)
    buffer = cl.Buffer(here.context, cl.mem_flags.READ_WRITE, values.nbytes)
    print(f"== transforms of {pixels} pixels, us (GB/s)")
    print("| model | there | back |")
    print("| --- | ---: | ---: |")
    for model in MODELS:
        around = Stabilisation([model], Arena(here), signed=True, maps=False)
        cells = []
        for way in (around.forward, around.inverse):
            times = []
            for _ in range(1 + repeats):
                cl.enqueue_copy(queue, buffer, values)
                ((_, event),) = way(queue, buffer, np.zeros(1, int), pixels)
                event.wait()
                times.append(event.profile.end - event.profile.start)
            taken = statistics.median(times[1:])
            cells.append(f"{taken / 1e3:.1f} ({8 * pixels / taken:.0f})")
        print(f"| {model.name} | " + " | ".join(cells) + " |", flush=True)


def filters(shape: tuple[int, ...], device, repeats: int) -> None:
    """Print the times of whole calls for single images."""
    image = np.clip(synthetic(shape), 0, 255).astype(np.uint16)
    print(f"== whole calls, {'x'.join(map(str, shape))} uint16, ms")
    print("| filter | one sigma | " + " | ".join(model.name for model in MODELS) + " |")
    print("| --- |" + " ---: |" * (1 + len(MODELS)))
    for settings in (kind() for kind in FILTERS if not set("TZ") & set(kind().joint)):
        cells = []
        for options in ({"sigma": 20.0}, *({"noise": model} for model in MODELS)):
            whole = 1e3 * whole_call(repeats, image, settings, device=device, **options)
            cells.append(f"{whole:.3g}")
        print(f"| {settings.title} | " + " | ".join(cells) + " |", flush=True)


def stack(shape: tuple[int, ...], device, repeats: int) -> None:
    """Print how long a stack takes to be estimated."""
    rng = np.random.default_rng(0)
    scene = np.clip(synthetic(shape[1:]), 0, 255)
    frames = np.empty(shape, np.uint16)
    for frame in frames:
        light = scene + rng.normal(0, 1, scene.shape) * np.sqrt(2 * scene + 16)
        frame[...] = np.clip(np.rint(100 + light), 0, 65535)
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        found = gd.estimate_noise(frames, "TYX", device=device)
        times.append(time.perf_counter() - start)
    print(f"== estimate of {'x'.join(map(str, shape))} uint16")
    print(f"first {times[0]:.2f} s, then {statistics.median(times[1:]):.2f} s: {found.verdict()}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", nargs="+", default=["1080x1920"])
    parser.add_argument("--stack", default="100x2048x2048", help="none to leave it out")
    parser.add_argument("--device", default=None)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    device = choose(args.device)
    print(device)
    for shape in args.shape:
        transforms(int(np.prod(lengths(shape))), device, args.repeats)
        filters(lengths(shape), device, args.repeats)
    if args.stack != "none":
        stack(lengths(args.stack), device, args.repeats)


if __name__ == "__main__":
    main()
