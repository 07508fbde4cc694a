"""Build kernels ahead of the first call: ``gpu-denoise warm``.

Each filter runs once on a tiny input with every profile. Compiling is what takes the time of a
first call; drivers, or pyopencl where they do not, keep the binaries on disk. For a GPU several
processes do that: NVIDIA's compiler takes one program at a time in each, whatever the threads.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context

import numpy as np

from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.filters.nl_means.filter import NLMeans
from napari_gpu_denoise.noise.models import PoissonGaussian, Rician, Speckle
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.run.denoise import denoise
from napari_gpu_denoise.run.filter import Filter

LENGTHS = {"T": 5, "Z": 9, "Y": 40, "X": 48}
SIGMA = 10.0
PROCESSES = 4  # each has a context, which takes some 0.5 GB of the device
MODELS = (PoissonGaussian(2.0, 3.0), Rician(10.0), Speckle(4.0))
TYPES = ("uint8", "int16", "uint16")  # that devices convert


def jobs(filters: tuple[type[Filter], ...], device: Device) -> Iterator[tuple[str, Callable]]:
    """Yield what to run, in words, and the run."""
    rng = np.random.default_rng(0)
    for kind in filters:
        for profile in kind.presets:
            settings = kind.of(profile=profile)
            axes = "T" * settings.over_time + "Z" * ("Z" in settings.joint) + "YX"
            image = rng.normal(100, SIGMA, [LENGTHS[axis] for axis in axes]).astype(np.float32)
            yield (
                f"{kind.name}, {profile}",
                partial(denoise, image, settings, SIGMA, axes=axes, device=device),
            )
    plain = NLMeans()
    image = np.clip(rng.normal(100, SIGMA, (LENGTHS["Y"], LENGTHS["X"])), 1, 200).astype("float32")
    for dtype in TYPES:
        yield dtype, partial(denoise, image.astype(dtype), plain, SIGMA, device=device)
    for model in MODELS:
        yield f"noise {model.name}", partial(denoise, image, plain, noise=model, device=device)
    for dtype in ("float32", *TYPES):
        yield f"noise of {dtype}", partial(denoise, image.astype(dtype), plain, device=device)


def workers(device: Device) -> Executor:
    """Return what runs the jobs: this process on a CPU, whose cores compiling takes anyway."""
    if device.shares_cores:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(min(PROCESSES, os.cpu_count() or 1), get_context("spawn"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gpu-denoise warm`` to a parser."""
    names = [kind.name.replace("_", "-") for kind in FILTERS]
    parser.add_argument(
        "--filter", choices=names, action="append", help="filter to build (default: all)"
    )
    parser.add_argument("--device", default=None, help="number or name of the device")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def run(args: argparse.Namespace) -> int:
    """Run ``gpu-denoise warm``."""
    start = time.perf_counter()
    device = choose(args.device)
    wanted = [
        kind
        for kind in FILTERS
        if args.filter is None or kind.name.replace("_", "-") in args.filter
    ]
    with workers(device) as pool:
        running = {pool.submit(job): words for words, job in jobs(tuple(wanted), device)}
        try:
            for done in as_completed(running):
                done.result()
                if not args.quiet:
                    print(f"{time.perf_counter() - start:6.1f} s  {running[done]}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if not args.quiet:
        print(f"All are ready after {time.perf_counter() - start:.1f} s on {device}.")
    return 0
