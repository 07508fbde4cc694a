"""Any OpenCL call may fail: a named error or the same result, nothing leaks, the next run is right.

Every way runs with one filter, and every filter in one way. Each kind of call fails at its first, a
middle and its last one, with each code that drivers give for it.
"""

from __future__ import annotations

import gc
import re
import threading
from contextlib import ExitStack
from itertools import count

import dask.array as da
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from filters.sessions import Plain
from frames_over_time import posing_as_gpu
from napari_gpu_denoise.errors import DenoiseError, DeviceMemoryError, KernelError, NoDeviceError
from napari_gpu_denoise.opencl import program
from napari_gpu_denoise.opencl.memory import borrow, device_errors, release_memory
from opencl.faults import Fault, Faults, opencl_error
from scenes import noisy, small

SHAPE = (24, 28)
FILTERS = {
    "nl_means": small(gd.NLMeans),
    "nl_means over time": small(gd.NLMeans, frames_before=1),
    "bm3d": small(gd.BM3D),
    "vbm3d": small(gd.VBM3D, frames_before=1, frames_after=1),
    "isoline": small(gd.Isoline, segment_length=3, max_length=4, staircase=3),
}

MEMORY, LOST, REFUSED = (
    (DeviceMemoryError, "too little free memory"),
    (KernelError, "stopped in the middle of the work"),
    (KernelError, "failed while running a kernel: update its driver"),
)
COMMON = {
    "OUT_OF_RESOURCES": MEMORY,
    "OUT_OF_HOST_MEMORY": MEMORY,
    "INVALID_COMMAND_QUEUE": LOST,
    "DEVICE_NOT_AVAILABLE": LOST,
}
MOVED = {"MEM_OBJECT_ALLOCATION_FAILURE": MEMORY, **COMMON, "INVALID_VALUE": REFUSED}
WAITED = {**COMMON, "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST": LOST, "DRIVER'S OWN": LOST}
CODES = {
    "context": {
        "OUT_OF_RESOURCES": (DeviceMemoryError, "cannot be opened, because it has too little free"),
        "DEVICE_NOT_AVAILABLE": (NoDeviceError, "another program uses it exclusively"),
        "INVALID_DEVICE": (NoDeviceError, "reinstall the driver or choose another device"),
    },
    "queue": {**COMMON, "INVALID_QUEUE_PROPERTIES": REFUSED},
    "buffer": {
        "MEM_OBJECT_ALLOCATION_FAILURE": MEMORY,
        "INVALID_BUFFER_SIZE": MEMORY,
        **COMMON,
        "INVALID_CONTEXT": LOST,
    },
    "build": {
        "BUILD_PROGRAM_FAILURE": (KernelError, "cannot build the kernel .*: update its driver"),
        "OUT_OF_HOST_MEMORY": MEMORY,
        "DEVICE_NOT_AVAILABLE": LOST,
    },
    "kernel": {"OUT_OF_RESOURCES": MEMORY, "INVALID_KERNEL_NAME": REFUSED},
    "launch": {**MOVED, "INVALID_WORK_GROUP_SIZE": REFUSED},
    "copy to device": MOVED,
    "copy from device": MOVED,
    "copy on device": MOVED,
    "fill": MOVED,
    "map": {"MAP_FAILURE": MEMORY, **COMMON},
    "barrier": COMMON,
    "flush": COMMON,
    "wait": WAITED,
    "finish": WAITED,
}


@pytest.fixture
def faults(monkeypatch):
    """Calls that can fail, of kernels that the compiler does not optimise."""
    monkeypatch.setattr(program, "Session", Plain)
    monkeypatch.setattr(program, "_sessions", {})
    release_memory()
    yield Faults(_kept=PROGRAMS).install(monkeypatch)
    release_memory()


PROGRAMS: dict = {}


def array(settings, device, _):
    stack = noisy(3, *SHAPE, dtype="uint8")
    if "T" in settings.joint:
        return gd.denoise(stack, settings, 20, axes="TYX", device=device).image
    return gd.denoise(stack[0], settings, 20, device=device).image


def stack(settings, device, _):
    noise = gd.PoissonGaussian(0.5, 3, 10) if not settings.sigma_unused else None
    return gd.denoise(noisy(6, *SHAPE), settings, noise=noise, axes="TYX", device=device).image


def stream(settings, device, _):
    frames = noisy(5, *SHAPE, dtype="uint16")
    return np.array(list(gd.stream(settings, frames, 20, device=device)))


def lazy(settings, device, _):
    pixels = da.from_array(noisy(4, *SHAPE), chunks=(2, *SHAPE))
    result = gd.denoise_lazy(pixels, settings, 20, axes="TYX", device=device)
    return result.compute(scheduler="synchronous")


def file(settings, device, folder):
    report = gd.run_batch(
        *(folder / "in.tif", settings, 20),
        **{"output": folder / "out.tif", "device": device, "overwrite": True},
    )
    [one] = report.files
    if one.error is not None:
        assert [path.name for path in folder.iterdir()] == ["in.tif"]
        raise one.error
    result = tifffile.imread(folder / "out.tif")
    (folder / "out.tif").unlink()
    return result


def estimate(settings, device, _):
    found = gd.estimate_noise(noisy(6, *SHAPE), axes="TYX", model="gaussian", device=device)
    return np.array(found.frames.sigma)


# A chunk of dask looks its device up, and so gets it as it is.
RUNS = [
    *(("nl_means", stack, "as it is"), ("nl_means over time", stream, "as it is")),
    *(("bm3d", lazy, "as it is"), ("vbm3d", array, "as a GPU"), ("isoline", stack, "as a GPU")),
    *(("nl_means", stream, "as a GPU"), ("nl_means over time", file, "as a GPU")),
    ("nl_means", estimate, "as it is"),
]
# What may end in smaller tiles instead of an error, and the kinds that do if the last call fails.
CUT = {array, stack, lazy, file}
TRIED_AGAIN = {"launch", "copy to device", "copy from device", "wait", "flush", "finish"}


def outcome(way, *given):
    """Return the result, or the error without its hold on memory."""
    try:
        return way(*given)
    except DenoiseError as error:
        return error.with_traceback(None)


def faults_of(counts, first: int):
    """Yield faults of each kind of call at its first, a middle and its last call, in all codes."""
    turn = count(first)
    for kind, calls in sorted(counts.items()):
        for number in sorted({0, calls // 2, calls - 1}):
            yield Fault(kind, number, list(CODES[kind])[next(turn) % len(CODES[kind])])
        if kind in ("buffer", "launch", "wait"):
            yield Fault(kind, calls // 2, "OUT_OF_RESOURCES", lasting=True)
            yield Fault(kind, calls // 2, "INVALID_COMMAND_QUEUE", lost=True)


def problem(found, expected, fault, last: bool, way) -> str:
    """Return what is wrong with a result or an error; empty if nothing is."""
    error, text = CODES[fault.kind][fault.code]
    cut = error is DeviceMemoryError and way in CUT and not fault.lasting
    if isinstance(found, np.ndarray):
        return "" if cut and np.array_equal(found, expected) else "a result, or another one"
    if fault.lasting and fault.kind == "launch" and way in (array, stack):
        text = "too little free memory even for (tiles|parts) of"
    sentence = str(found)
    if type(found) is not error or not re.search(text, sentence):
        return f"{type(found).__name__}: {found}"
    if not (sentence.endswith(".") or "The compiler says: " in sentence):
        return f"not a sentence: {found}"
    again = cut and last and way in (stack, lazy) and fault.kind in TRIED_AGAIN
    return f"not tried again: {found}" if again else ""


@pytest.mark.parametrize(
    "name, way, posing",
    RUNS,
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_call_that_fails_is_an_error_or_tried_again(
    faults, device, name, way, posing, tmp_path, limits
):
    if posing == "as a GPU":  # with its queues, threads and pinned memory
        device = posing_as_gpu(device).device
    limits(streamed_bytes=0)
    tifffile.imwrite(
        tmp_path / "in.tif", noisy(4, *SHAPE, dtype="uint16"), metadata={"axes": "TYX"}
    )
    given = FILTERS[name], device, tmp_path
    faults.begin()
    expected, problems = way(*given), []
    counts = dict(faults.counts)
    assert counts["launch"], "nothing ran here that could fail"
    for fault in faults_of(counts, RUNS.index((name, way, posing))):
        threads = set(threading.enumerate())
        faults.begin(fault)
        found = outcome(way, *given)
        fired, last = faults.fired, fault.number == counts[fault.kind] - 1
        faults.end()
        wrong = problem(found, expected, fault, last, way) if fired else "never reached"
        new = {thread.name for thread in set(threading.enumerate()) - threads}
        # Those of `shared_executor` are kept for later runs.
        left = faults.left() + [one for one in new if not one.startswith("gpu-denoise-")]
        wrong = wrong or (left and f"left over: {left}")
        if last or fault.lost:  # once for each kind of call, as it takes as long again
            again = outcome(way, *given)
            if not np.array_equal(again, expected):
                wrong = wrong or f"the next result is another one: {again}"
            elif fault.lost and faults.counts["context"] != 2:
                wrong = wrong or "the device was not opened anew"
        problems += [f"{fault}: {wrong}"] * bool(wrong)
        del found
    release_memory()
    program._sessions.clear()
    gc.collect()
    assert not problems, "\n".join(problems)
    assert not faults.buffers and not faults.arenas


def test_noise_is_not_measured_on_a_device_that_fails(faults):
    image = noisy(6, *SHAPE)
    expected = gd.estimate_noise(image, axes="TYX").frames.sigma
    for kind, code in ("buffer", "OUT_OF_RESOURCES"), ("launch", "INVALID_CONTEXT"):
        faults.begin(Fault(kind, 0, code))
        with pytest.raises((DeviceMemoryError, KernelError)):
            gd.estimate_noise(image, axes="TYX")
        assert faults.fired
        assert gd.estimate_noise(image, axes="TYX").frames.sigma == expected


def test_what_failed_first_is_the_cause(device):
    with (
        pytest.raises(KernelError, match=r"stopped in the middle.*launch failed: INVALID_CONTEXT"),
        device_errors(Plain.of(device)),
        ExitStack() as stack,
    ):
        stack.callback(raised, "OUT_OF_RESOURCES", "finish")
        raised("INVALID_CONTEXT", "launch")


def test_memory_kept_for_later_is_released_when_memory_is_missing(device):
    held = Plain.of(device)
    with borrow(held) as arena:
        arena.buffer("one", 1000)
    assert arena.nbytes == 1000
    with pytest.raises(DeviceMemoryError), device_errors(held):
        raised("MEM_OBJECT_ALLOCATION_FAILURE", "buffer")
    assert arena.nbytes == 0


def raised(code: str, routine: str) -> None:
    raise opencl_error(code, routine)
