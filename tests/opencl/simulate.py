"""Run filters, or single kernel files, on Oclgrind with all its checks; called by test_simulator.

    python simulate.py filters NAME...           the cases of filters; prints the kernels of each
    python simulate.py case NAME NUMBER KERNELS  one case of it, with the kernels of another folder
    python simulate.py noise                     the transforms of every model; prints their kernels
    python simulate.py kernels FOLDER            kernels of (global const float *, global float *)

Oclgrind writes what it finds to the standard error, where a line ``== case`` goes before each case.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from flows import tiled, work_of
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.opencl import program as source
from napari_gpu_denoise.opencl.device import listed
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.run.flow.frame_flow import ArrayFrameFlow
from napari_gpu_denoise.run.flow.work import Stabilisation
from scenes import STABILISED, first_pass, joining, noisy, prepared

# Oclgrind's checks for uninitialised values do not know an instruction of optimised code.
CHECKS = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_UNINITIALIZED": "1",
    "OCLGRIND_MAX_ERRORS": "1000",
    "PYOPENCL_BUILD_OPTIONS": "-cl-opt-disable",
    "PYOPENCL_NO_CACHE": "1",
    "OCLGRIND_NUM_THREADS": "1",  # the other core has tests of its own
}

# What filters look at when they choose their kernels.
PROFILES = {
    "plain": {"float_lanes": 1, "local_memory": 1, "max_group": 64},
    "CPU": {"float_lanes": 4, "local_memory": 1 << 15, "max_group": 64},
    "GPU": {"float_lanes": 1, "local_memory": 1 << 15, "max_group": 64},
}
# Ridge combinations take long, with a work-item for each patch of the group: here half as many
# patches are combined, from windows that still take two turns of the search.
SMALLER = {
    "filters.vbm3d.NEIGHBOURS": 32,
    "filters.vbm3d._RIDGE_WINDOW": 7,
    "filters.vbm3d._RIDGE_NEXT": 3,
    "filters.search.video_search._MANY": 32,
}
# Noise that neighbours share.
_LAG = np.arange(5)
BLURRED, STREAKS = (
    Correlated(20.0, np.exp(-np.add.outer(down * _LAG**2, _LAG**2) / 6)) for down in (1, 9)
)


@dataclass(frozen=True)
class Case:
    """A run of a filter on an image that is as small as its branches allow.

    Work-items that compare for nothing take long: `limits` of a device make work-groups small.
    `models` are those of correlated noise; with `mapped`, sigma is a map; with `spoilt`, values
    are no numbers, which never get there; `once` is for a filter that ends after its first pass.
    """

    profile: str
    axes: str
    shape: tuple[int, ...]
    settings: dict
    pixels: int = 1000  # of a tile
    limits: dict = field(default_factory=dict)
    models: tuple[Correlated, ...] = ()
    mapped: bool = False
    spoilt: bool = False
    scales: int = 1
    once: bool = False


_FEW = {"max_group": 32}
_NL_MEANS = {"patch": 4, "step": 2, "window": 5}
_SINGLE = {"patch": 5, "step": 2, "window": 3, "neighbours": 4}
# Groups that one row of work-items holds on a GPU, and that two do.
_BM3D = {
    **{"step_basic": 4, "window_basic": 3, "neighbours_basic": 4},
    **{"step_final": 5, "window_final": 3, "neighbours_final": 8},
}
# Groups that are too large for their window.
_LARGE = {"step_basic": 5, "window_basic": 3, "neighbours_basic": 2, "stack_basic": "hadamard"}
_LARGE |= {"step_final": 8, "window_final": 5, "neighbours_final": 8, "stack_final": "hadamard"}
_WIDE = {"step_basic": 7, "window_basic": 3}
_VBM3D = {"window_nearest": 3, "step_basic": 5, "step_final": 4}
_VBM3D |= {"neighbours_basic": 4, "neighbours_final": 8}
_REFINED = {"refine": "once", "frames_before": 1, "frames_after": 1}
_LINES = {"segment_length": 2, "max_length": 4, "staircase": 3}
_LITERAL = {**_LINES, "staircase": 0, "channels": "joint"}
_PIXELS = {"patch": 3, "window": 3}
_CUBES = {"cube": "4x4x4", "window_basic": 3, "neighbours_basic": 4}
_CUBES |= {"step_final": 4, "window_final": 3, "neighbours_final": 8}
_FLAT = {"cube": "1x8x8", "step_basic": 4, "window_basic": 3, "neighbours_basic": 2}
_FLAT |= {"step_final": 4, "window_final": 3, "neighbours_final": 2}
# What lonely pixels fall back to is simulated as a filter of its own.
_SWNLM = {"patch": 3, "window": 3, "widen": 3.0, "fewest": 3, "fallback": "keep"}
# Every kernel, and each of its branches once. The isoline filter has the same kernels everywhere;
# of the searches that filters share, NL-means runs all.
CASES = {
    "nl_means": (
        Case("plain", "ZYX", (2, 9, 12), _NL_MEANS),
        Case("CPU", "YX", (13, 18), _NL_MEANS, pixels=220, mapped=True),
        Case("GPU", "TYX", (2, 9, 12), {**_NL_MEANS, "frames_after": 0}),
        Case("GPU", "YX", (11, 13), {"patch": 5, "step": 1, "window": 3, "neighbours": 6}),
        Case("GPU", "YX", (11, 13), {"patch": 5, "step": 5, "window": 5, "neighbours": 1}),
        Case("GPU", "YX", (11, 13), {**_SINGLE, "rician": True}),
        Case("GPU", "YX", (9, 12), _NL_MEANS, spoilt=True),
    ),
    "bm3d": (
        Case("GPU", "YX", (9, 10), _BM3D, limits={"local_memory": 5 << 10}, mapped=True),
        Case("CPU", "YX", (9, 10), _BM3D, mapped=True),
        Case("plain", "TYX", (2, 8, 9), _BM3D),
        Case("CPU", "CYX", (3, 8, 9), {**_LARGE, "channels": "opponent"}),
        Case(
            *("GPU", "CYX", (2, 8, 9)),
            {**_WIDE, "neighbours_basic": 4, "channels": "joint", "prefiltered": True},
            limits={"local_memory": 5 << 10},
            once=True,
        ),
        Case("CPU", "YX", (9, 10), _BM3D, models=(BLURRED,)),
        Case(
            *("CPU", "ZYX", (1, 17, 16)),
            {**_WIDE, "neighbours_basic": 1, "stack_basic": "hadamard"},
            models=(BLURRED,),
            scales=2,
            once=True,
        ),
        Case("GPU", "YX", (8, 9), _BM3D, limits={"local_memory": 5 << 10}, spoilt=True),
    ),
    "vbm3d": (
        Case(
            *("GPU", "TCYX", (2, 2, 8, 9), {**_VBM3D, "frames_before": 1, "channels": "joint"}),
            limits={"max_group": 16, "local_memory": 8 << 10},
            models=(BLURRED, STREAKS),
        ),
        Case("CPU", "TYX", (3, 8, 10), {**_VBM3D, "window_nearest": 5, "frames_after": 0}),
        Case("CPU", "TYX", (2, 8, 9), {**_VBM3D, **_REFINED}),
        Case("GPU", "TYX", (2, 8, 8), {**_VBM3D, **_REFINED}, limits=_FEW),
        Case("GPU", "TYX", (2, 8, 8), _VBM3D, limits={"max_group": 16}, spoilt=True),
    ),
    "isoline": (
        Case("GPU", "YX", (23, 6), {**_LINES, "max_length": 2}, pixels=132, mapped=True),
        # In isolines of 6 pixels images of 3 are mirrored several times.
        Case(
            *("GPU", "YX", (3, 1)),
            {**_LINES, "max_length": 6, "method": "pi-pd", "criterion": "multiplicative"},
        ),
        Case("GPU", "YX", (5, 6), {**_LINES, "show": "classes"}),
        Case("GPU", "CYX", (2, 5, 4), {**_LITERAL, "choice": "hard"}),
        Case("GPU", "CYX", (2, 5, 4), {**_LITERAL, "method": "pi-ld"}),
        Case("GPU", "SYX", (3, 5, 4), {**_LINES, "channels": "opponent"}),
        Case("GPU", "YX", (7, 7), {**_LINES, "max_length": 2}, spoilt=True),
    ),
    "nl_means_pixelwise": (
        Case("plain", "ZYX", (2, 5, 7), _PIXELS),
        Case("CPU", "YX", (5, 36), _PIXELS, pixels=110, mapped=True),
        Case(
            *("GPU", "CYX", (2, 5, 7)),
            {**_PIXELS, "channels": "joint", "patch_shape": "gaussian"},
            limits=_FEW,
        ),
        Case("CPU", "YX", (9, 11), {**_PIXELS, "patch": 9, "weights": "bisquare"}),
        Case(
            *("GPU", "CYX", (2, 5, 7)),
            {"patch": 1, "window": 3, "channels": "joint", "show": "pixels"},
            limits=_FEW,
        ),
        Case("GPU", "TYX", (2, 5, 7), {"patch": 1, "window": 1}, limits=_FEW),
        Case("GPU", "YX", (5, 19), _PIXELS, limits=_FEW, spoilt=True),
    ),
    "bm4d": (
        Case("CPU", "ZYX", (5, 8, 8), _CUBES),
        Case("GPU", "CZYX", (2, 1, 8, 9), _FLAT, limits=_FEW, once=True),
        Case("CPU", "TZYX", (2, 1, 8, 9), _FLAT, once=True),
        Case("GPU", "TZYX", (2, 1, 8, 9), _FLAT, limits=_FEW, once=True),
        Case(
            *("CPU", "CZYX", (2, 1, 8, 9)),
            {**_FLAT, "neighbours_basic": 4},
            models=(STREAKS, BLURRED),
            once=True,
        ),
        Case("GPU", "ZYX", (4, 5, 5), _CUBES, limits=_FEW, spoilt=True),
    ),
    "swnlm": (
        Case("CPU", "YX", (5, 18), _SWNLM, mapped=True),
        Case("GPU", "TYX", (2, 3, 4), {**_SWNLM, "patch": 5}),
        Case("CPU", "ZYX", (1, 4, 6), {**_SWNLM, "window": 5, "show": "pixels"}, mapped=True),
        Case("GPU", "YX", (5, 18), _SWNLM, spoilt=True),
    ),
}
# Grey levels from no light on.
LEVELS = np.concatenate([[-5.0, 0.0], np.geomspace(0.1, 5000, 130)]).astype(np.float32)
# What runs leave behind is kept by the identity of their session: no two may have the same.
SESSIONS: list[Session] = []


def name_of(number: int, case: Case) -> str:
    """Return the name of a case."""
    return f"{number} {case.profile} {case.axes}"


def begin(name: str) -> None:
    print(f"== {name}", file=sys.stderr, flush=True)


def simulator():
    return next(device for device in listed() if device.kind == "simulator")


def suit_oclgrind() -> None:
    """Work around what Oclgrind takes for faults of a kernel."""
    import pyopencl as cl

    make, copy, held = cl.Buffer, cl.enqueue_copy, []

    # A buffer in the place of a released one would be taken for that one.
    def buffer(*arguments, **options):
        held.append(make(*arguments, **options))
        return held[-1]

    # What a fill, or a copy between buffers, has written would be taken for uninitialised; and a
    # write from the host makes Oclgrind forget what else the buffer holds, even read and write
    # beyond its own records where it does not begin at 0. So all writes are of whole buffers.
    def written(queue, out, values, offset):
        whole = np.empty(out.size, np.uint8)
        copy(queue, whole, out)
        whole[offset : offset + values.nbytes] = np.ascontiguousarray(values).reshape(-1).view("u1")
        return copy(queue, out, whole)

    def fill(queue, out, pattern, offset, size):
        return written(queue, out, np.full(size // pattern.nbytes, pattern), offset)

    def copied(queue, out, source, **options):
        if not isinstance(out, make):
            return copy(queue, out, source, **options)
        if isinstance(source, make):
            values = np.empty(options.get("byte_count", source.size), np.uint8)
            copy(queue, values, source, src_offset=options.get("src_offset", 0))
            source = values
        return written(queue, out, source, options.get("dst_offset", 0))

    make.release = lambda self: None
    cl.Buffer = buffer
    cl.enqueue_fill_buffer = fill
    cl.enqueue_copy = copied


def opened(profile: str, **limits: int) -> Session:
    """Return a session of the simulator as a kind of device; all have the same programs."""
    import pyopencl as cl

    device = dataclasses.replace(simulator(), **{**PROFILES[profile], **limits})
    first = SESSIONS[0] if SESSIONS else Session(device, cl.Context([device.handle]))
    SESSIONS.append(dataclasses.replace(first, device=device))
    return SESSIONS[-1]


def settings_of(kind, case: Case, image: np.ndarray) -> Any:
    """Return the settings of a case, as a run prepares them."""
    settings = joining(kind, case.axes, **case.settings)
    if case.once:
        settings = first_pass(settings)
    settings = prepared(settings, case.axes, image.shape, case.models)
    if case.scales == 1:
        return settings
    return dataclasses.replace(settings, scales=case.scales, prefiltered=False)


def run_case(kind, case: Case) -> set[str]:
    """Run one case; return the kernels it used."""
    arena, image = Arena(opened(case.profile, **case.limits)), noisy(*case.shape)
    settings, out = settings_of(kind, case, image), np.empty_like(image)
    sigma, levels = 20.0, None
    if case.mapped:
        sigma = np.broadcast_to(np.linspace(0, 30, image.shape[-1]), image.shape[-2:])
    if case.spoilt:
        sigma, levels = np.inf, Levels(0, 1.0)
        image[..., 3:5, :] = np.nan
        image[..., 4] = np.inf
    work = work_of(image, out, settings, arena.session, sigma, case.axes, levels)
    if settings.over_time:
        ArrayFrameFlow(work, arena).run()
    else:
        with closing(tiled(work, arena, work.source.joined * case.pixels)) as flow:
            flow.run()
    return {name for name, _ in arena._kernels}


def chosen(name: str):
    """Return the settings class of a filter."""
    return next(one for one in FILTERS if one.name == name)


def prepare_process() -> None:
    """Suit Oclgrind, and let ridge combinations be of `SMALLER` groups in this process."""
    suit_oclgrind()
    for name, value in SMALLER.items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(f"napari_gpu_denoise.{module}"), attribute, value)


def run_filters(names: list[str]) -> None:
    prepare_process()
    kernels: dict[str, set[str]] = {name: set() for name in names}
    for name, used in kernels.items():
        for number, case in enumerate(CASES[name]):
            begin(f"{name} {name_of(number, case)}")
            used |= run_case(chosen(name), case)
    print(json.dumps({name: sorted(used) for name, used in kernels.items()}))


def run_one(name: str, number: str, kernels: Path) -> None:
    prepare_process()
    source.kernel_folder = lambda: kernels
    run_case(chosen(name), CASES[name][int(number)])


def run_noise() -> None:
    """Change a part of a buffer by every model, there and back, and the rest by another one."""
    import pyopencl as cl

    suit_oclgrind()
    numbers = np.minimum(np.arange(len(LEVELS)), 1)
    for profile in ("CPU", "GPU"):
        session = opened(profile)
        for other, model in zip((STABILISED[-1], *STABILISED[:-1]), STABILISED, strict=True):
            begin(f"{profile} {model.name}")
            queue = session.queue()
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            buffer = cl.Buffer(session.context, flags, hostbuf=LEVELS)
            around = Stabilisation((other, model), Arena(session), signed=True, maps=False)
            for change in (around.forward, around.inverse):
                change(queue, buffer, numbers, 1)
            queue.finish()
    print(json.dumps(sorted({name for name, _ in session.programs})))


def run_kernels(folder: Path) -> None:
    import pyopencl as cl

    flags, held = cl.mem_flags, []
    for file in sorted(folder.glob("*.cl")):
        begin(file.stem)
        context = cl.Context([simulator().handle])
        queue = cl.CommandQueue(context)
        (kernel,) = cl.Program(context, file.read_text()).build().all_kernels()
        ones = np.ones(16, np.float32)
        source = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=ones)
        out = cl.Buffer(context, flags.READ_WRITE, 4 * 16)
        kernel(queue, (16,), (8,), source, out)
        queue.finish()
        held += [kernel, queue, context, source, out]


if __name__ == "__main__":
    if sys.argv[1] == "filters":
        run_filters(sys.argv[2:])
    elif sys.argv[1] == "noise":
        run_noise()
    elif sys.argv[1] == "case":
        run_one(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        run_kernels(Path(sys.argv[2]))
