"""Test a device with kernels and filters whose results are known, as runs use them.

`opencl/device_test.py` starts this module as a process. A video and the results of filters are in
``self_test.npz``, which `scripts/store_self_test.py` makes.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import KernelError
from napari_gpu_denoise.filters import MODULES, filters_for
from napari_gpu_denoise.opencl.device import Device, find_untested, test_only
from napari_gpu_denoise.opencl.device_test import outcome_of
from napari_gpu_denoise.opencl.memory import constant_buffer, device_errors, release_memory
from napari_gpu_denoise.opencl.program import forget, session, share, worth_it
from napari_gpu_denoise.run.denoise import denoise_image
from napari_gpu_denoise.run.noise import measured_noise
from napari_gpu_denoise.run.part import programs_for
from napari_gpu_denoise.run.request import Run

STORED = Path(__file__).with_name("self_test.npz")
_PATIENCE = 10.0  # seconds for which a test waits for programs that others build for it
SCALE = 200.0  # stored whole numbers per grey level
SIGMA = 20.0
# Grey levels. Rounding decides which of two patches that are equally similar is used: that is
# worth 0.1 at most, and 0.006 root mean square, on the six drivers that were compared.
_RMS, _MOST = 0.1, 4.0
_LOOSE = {"bm4d": 3.0}  # times as much: of its many cubes more are equally similar


def run_steps(request: Sequence[Any], ready: Callable[[], Any] = lambda: None) -> Iterator[str]:
    """Test the device of a request; yield the name of each step before it.

    A request has platform, name and index of the device, floats of vectors, and steps: names of
    filters, ``"noise"`` to measure it, or an empty one for the short test of the compiler. That
    comes first: compilers that fail at vectors may take minutes to fail at filters. `ready` is
    called before a filter.

    Raises
    ------
    KernelError
        If a result is wrong, or the device fails.
    """
    platform, name, index, lanes, steps = request
    device = replace(under_test(find_untested(name, platform, index)), float_lanes=lanes)
    try:
        for step in steps:
            if not step:
                yield f"vectors of {lanes} floats, barriers and loops"
                _try_compiler(device)
            elif step in (stored := np.load(STORED)):
                yield filters_for(step)[0].title if step in MODULES else step
                if step in MODULES:
                    ready()
                loose = _LOOSE.get(step, 1.0)
                found, expected = result_of(step, device), stored[step] / SCALE
                _compare(found, expected, loose * _RMS, loose * _MOST)
    finally:
        release_memory()
        forget(session(device))


def under_test(device: Device) -> Device:
    """Return a device as none is listed: nobody has it tested, and it has a session of its own."""
    return replace(device, index=-1, tested=True)


def build_ahead(device: Device, steps: Sequence[str]) -> None:
    """Have other processes build what the filters of a test need, where that helps.

    Only the context is opened here, which runs take as well. So the programs are ready when the
    process that tests is, and for these runs, too.
    """
    names = MODULES.keys() & steps
    held = session(under_test(device)) if names and worth_it(device) else None
    if held is not None and held.ahead is not None:
        for name in names:
            held.ahead.add(map(held.task, programs_for(*run_of(name, held.device))))
        held.ahead.finish()
        share(held, replace(device, tested=True))


def run_of(name: str, device: Device) -> tuple[Run, np.ndarray]:
    """Return the run of a filter as it is called by default, and an image or video."""
    settings = filters_for(name)[0]()
    axis = "T" if settings.over_time else settings.joint
    run = Run(settings, SIGMA, axes=f"{axis}YX", dtype="float32", device=device)
    frames = np.load(STORED)["video"]
    return run, frames if axis else frames[0]


def result_of(name: str, device: Device) -> np.ndarray:
    """Return the result of a filter as it is called by default, or sigma as it is measured."""
    if name not in MODULES:
        return np.array(measured_noise(np.load(STORED)["video"][0], "YX", "auto", device).sigma)
    run, frames = run_of(name, device)
    return denoise_image(frames, run).image


def _compare(found: np.ndarray, expected: np.ndarray, rms: float, most: float) -> None:
    error = np.abs(found.astype(np.float64) - expected)
    # "not": also if there are values that are no numbers.
    if not (np.sqrt(np.mean(error**2)) <= rms and error.max() <= most):
        raise KernelError(
            f"its result is wrong by {error.max():.3g} at most, {np.sqrt(np.mean(error**2)):.3g} "
            "root mean square"
        )


def _try_compiler(device: Device) -> None:
    """Check vectors as wide as those of the filters, local memory and barriers, and long loops."""
    lanes, group, turns = device.lanes, min(64, 1 << device.max_group.bit_length() - 1), 1 << 17
    items = 8 * group
    x = (np.arange(items * lanes) % 960 / 80).astype(np.float32)
    y = np.clip(np.sqrt(x.astype(np.float64) ** 2 + 2), 1.5, 12).reshape(-1, lanes)
    y = np.where((y > 10).any(axis=1, keepdims=True), np.exp(-y), y).ravel()
    bits = np.clip(x, 1, 5).view(np.uint32) >> np.uint32(3)
    sums = np.arange(items, dtype=np.int32).reshape(8, group).cumsum(axis=1, dtype=np.int32).ravel()
    powers = np.cumprod(np.full(turns - 1, 3, np.uint32), dtype=np.uint32)[::-1]
    each = np.tile(x[:64].view(np.uint32), turns // 64)
    total = np.sum(each[:-1] * powers, dtype=np.uint32) + each[-1:]
    expected = {"out": y.astype(np.float32), "bits": bits, "sums": sums, "total": total}
    found = {name: np.empty_like(values) for name, values in expected.items()}
    _run(device, {"LANES": lanes, "GROUP": group, "TURNS": turns}, x, found)
    for name, values in expected.items():
        limit = 1e-5 if name == "out" else 0
        _compare(found[name], values, limit, limit)


def _run(
    device: Device, constants: dict[str, int], values: np.ndarray, made: dict[str, np.ndarray]
) -> None:
    """Run the kernel that tries the compiler; it makes the arrays."""
    import pyopencl as cl

    held = session(device)
    with held.exclusive(), device_errors(held):
        kernel = held.kernel("self_test/try_compiler", constants)
        queue, buffers = held.queue(), {}
        for name, each in made.items():
            buffers[name] = cl.Buffer(held.context, cl.mem_flags.WRITE_ONLY, each.nbytes)
        size, group = made["sums"].shape, (constants["GROUP"],)
        kernel(queue, size, group, values=constant_buffer(held, values), **buffers)
        for name, buffer in buffers.items():
            cl.enqueue_copy(queue, made[name], buffer)
        queue.finish()


def _main() -> None:
    """Run a test for the process that has started this one."""
    # Whatever drivers write to the standard output is not for that process.
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    go = threading.Event()
    # It may be killed while a driver hangs here.
    threading.Thread(target=_follow_parent, args=(go,), daemon=True).start()

    def report(**message) -> None:
        print(json.dumps(message), file=reports, flush=True)

    class Builds(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            report()

    report()
    builds = logging.getLogger("napari_gpu_denoise.opencl.program")
    builds.setLevel(logging.DEBUG)
    builds.addHandler(Builds())
    request = json.loads(sys.argv[1])
    test_only(request[2])
    steps = run_steps(request, lambda: go.wait(_PATIENCE))
    report(outcome=outcome_of(steps, lambda step: report(step=step)))
    os._exit(0)  # contexts and drivers take 0.2 s to end in good order


def _follow_parent(go: threading.Event) -> None:
    while os.read(0, 1):
        go.set()
    os._exit(1)


if __name__ == "__main__":
    _main()
