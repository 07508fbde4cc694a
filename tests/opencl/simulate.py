"""Run filters, or single kernel files, on Oclgrind with all its checks; called by test_simulator.

    python simulate.py filter NAME FOLDER     every case of a filter; results go to FOLDER
    python simulate.py kernel FILE            one kernel: (global const float *, global float *)

Oclgrind writes what it finds to the standard error, where a line ``== case`` goes before each case.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from napari_gpu_denoise.axes import Levels, arrange
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.device import devices
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.pipeline import Pipeline
from napari_gpu_denoise.prepare import settings_for
from napari_gpu_denoise.sigma import FrameSigma
from napari_gpu_denoise.tiles import split
from scenes import joining, noisy

# Oclgrind's checks for uninitialised values do not know an instruction of optimised code.
CHECKS = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_UNINITIALIZED": "1",
    "OCLGRIND_MAX_ERRORS": "20",
    "PYOPENCL_BUILD_OPTIONS": "-cl-opt-disable",
    "PYOPENCL_NO_CACHE": "1",
}

# What filters look at when they choose their kernels.
PROFILES = {
    "plain": {"float_lanes": 1, "local_memory": 1, "max_group": 64},
    "CPU": {"float_lanes": 4, "local_memory": 1 << 15, "max_group": 256},
    "GPU": {"float_lanes": 1, "local_memory": 1 << 15, "max_group": 64},
}
SETTINGS = (
    {"patch": 4, "step": 2, "window": 5},
    {"patch": 5, "step": 1, "window": 3, "neighbours": 6},
    {"patch": 3, "step": 3, "window": 5, "neighbours": 1},
)
# Shape, and pixels of a tile: images are cut in three, sequences are filtered whole.
SHAPES = {"YX": ((22, 27), 500), "TYX": ((2, 11, 14), 1000), "ZYX": ((2, 11, 14), 1000)}
CASES = ((0, "YX"), (0, "TYX"), (0, "ZYX"), (1, "YX"), (1, "TYX"), (2, "YX"))
MAPPED = {(0, "YX")}  # cases that are run with a map of sigma as well


def cases(filter_class) -> Iterator[tuple[str, str, object, np.ndarray, str, float | np.ndarray]]:
    """Yield (name, profile, settings, image, axes, sigma) of all cases of a filter."""
    for number, axes in CASES:
        image = noisy(*SHAPES[axes][0], seed=number)
        settings = joining(filter_class, axes, **SETTINGS[number])
        settings = settings_for(settings, axes, image.shape)
        for profile in PROFILES:
            yield f"{profile} {number} {axes}", profile, settings, image, axes, 20.0
            if (number, axes) in MAPPED:
                sigma = np.broadcast_to(np.linspace(0, 30, image.shape[-1]), image.shape[-2:])
                yield f"{profile} {number} {axes} map", profile, settings, image, axes, sigma


def simulator():
    return next(device for device in devices() if device.kind == "simulator")


def keep_all_buffers() -> None:
    """Let no buffer take the place of a released one: Oclgrind would take it for that one."""
    import pyopencl as cl

    make, held = cl.Buffer, []

    def buffer(*arguments, **options):
        held.append(make(*arguments, **options))
        return held[-1]

    make.release = lambda self: None
    cl.Buffer = buffer


def run_filter(name: str, folder: Path) -> None:
    import pyopencl as cl

    keep_all_buffers()
    (filter_class,) = (one for one in FILTERS if one.name == name)
    results, kernels = {}, set()
    for case, profile, settings, image, axes, sigma in cases(filter_class):
        print(f"== {case}", file=sys.stderr, flush=True)
        device = dataclasses.replace(simulator(), **PROFILES[profile])
        session = Session(device, cl.Context([device.handle]))
        out = np.empty_like(image)
        source, target = (arrange(a, axes, settings.joint) for a in (image, out))
        pipeline = Pipeline(session, Arena(session), settings)
        most = source.joined * SHAPES[axes][1]
        tiles = split(source.shape, settings.reach, most, channels=source.joined)
        spread = FrameSigma.of(sigma, image.shape, axes, settings.joint)
        for _ in pipeline.run(tiles, source, target, Levels.of(image), spread):
            pass
        pipeline.drain()
        results[case] = out
        kernels |= {name for name, _ in session.programs}
    np.savez(folder / "results.npz", **results)
    (folder / "kernels.json").write_text(json.dumps(sorted(kernels)))


def run_kernel(file: str) -> None:
    import pyopencl as cl

    device = simulator()
    context = cl.Context([device.handle])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, Path(file).read_text()).build()
    flags = cl.mem_flags
    source = cl.Buffer(
        context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=np.ones(16, np.float32)
    )
    out = cl.Buffer(context, flags.READ_WRITE, 4 * 16)
    (kernel,) = program.all_kernels()
    kernel(queue, (16,), (8,), source, out)
    queue.finish()


if __name__ == "__main__":
    if sys.argv[1] == "filter":
        run_filter(sys.argv[2], Path(sys.argv[3]))
    else:
        run_kernel(sys.argv[2])
