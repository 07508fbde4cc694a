"""Run filters, or single kernel files, on Oclgrind with all its checks; called by test_simulator.

    python simulate.py filter NAME WHICH FOLDER   cases of a filter; results go to FOLDER
    python simulate.py case NAME CASE KERNELS     one case of it, with the kernels of another folder
    python simulate.py noise FOLDER              the transforms of every model of noise
    python simulate.py kernels FOLDER             kernels of (global const float *, global float *)

WHICH is "thorough" for all cases, or "brief" for some that use every kernel, and all settings once.
Oclgrind writes what it finds to the standard error, where a line ``== case`` goes before each case.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from flows import tiled, work_of
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.noise.models import (
    Correlated,
    PoissonGaussian,
    Rician,
    SignalDependent,
    Speckle,
)
from napari_gpu_denoise.opencl import source
from napari_gpu_denoise.opencl.device import listed
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.run.flow.frame_flow import ArrayFrameFlow
from napari_gpu_denoise.run.flow.work import Stabilisation
from scenes import joining, noisy, prepared

# Oclgrind's checks for uninitialised values do not know an instruction of optimised code.
CHECKS = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_UNINITIALIZED": "1",
    "OCLGRIND_MAX_ERRORS": "1000",
    "PYOPENCL_BUILD_OPTIONS": "-cl-opt-disable",
    "PYOPENCL_NO_CACHE": "1",
}

# What filters look at when they choose their kernels. BM3D works on whole groups of references, be
# they there or not: with less local memory it makes small ones, and is done in seconds.
PROFILES = {
    "plain": {"float_lanes": 1, "local_memory": 1, "max_group": 64},
    "CPU": {"float_lanes": 4, "local_memory": 1 << 15, "max_group": 256},
    "GPU": {"float_lanes": 1, "local_memory": 1 << 15, "max_group": 64},
}
LOCAL_MEMORY = {("bm3d", number): 5 << 10 for number in range(6)}
LOCAL_MEMORY |= {("vbm3d", number): 8 << 10 for number in (1, 2)}
# Work-items of a group that compare for nothing take long, too: here half as many do, or fewer.
MAX_GROUP = dict.fromkeys(
    [("nl_means_pixelwise", axes) for axes in ("YX", "TYX", "CYX", "ZYX")]
    + [("bm4d", axes) for axes in ("ZYX", "CZYX", "TZYX")],
    32,
)
MAX_GROUP |= dict.fromkeys([("vbm3d", number) for number in range(3)], 16) | {("vbm3d", 3): 32}
# So do those of ridge combinations, each with a patch of the group: here half as many patches
# are combined, from windows that still take two turns of the search.
SMALLER = {
    "filters.vbm3d.NEIGHBOURS": 32,
    "filters.vbm3d._RIDGE_WINDOW": 7,
    "filters.vbm3d._RIDGE_NEXT": 3,
    "filters.search.video_search._MANY": 32,
}
# The isoline filter has the same kernels everywhere, VBM3D the same on all GPUs. Of the searches
# that filters share, NL-means runs all.
PROFILES_OF = {"isoline": ("GPU",), "vbm3d": ("CPU", "GPU")}
OTHERWISE = ("plain", "CPU", "GPU")
SETTINGS = {
    "nl_means": (
        {"patch": 4, "step": 2, "window": 5},
        {"patch": 5, "step": 1, "window": 3, "neighbours": 6},
        {"patch": 5, "step": 5, "window": 5, "neighbours": 1},
        {"patch": 5, "step": 2, "window": 3, "neighbours": 4, "rician": True},
        {"patch": 4, "step": 2, "window": 3, "neighbours": 4, "distance": "pearson"},
    ),
    # Groups that one row of work-items holds on a GPU, and that two do; groups that are too large
    # for their window.
    "bm3d": (
        {
            **{"step_basic": 4, "window_basic": 3, "neighbours_basic": 4},
            **{"step_final": 5, "window_final": 3, "neighbours_final": 8},
        },
        {
            **{"step_basic": 5, "window_basic": 3, "neighbours_basic": 2},
            **{"step_final": 8, "window_final": 5, "neighbours_final": 8},
            **{"stack_basic": "hadamard", "stack_final": "hadamard", "channels": "opponent"},
        },
        {
            **{"step_basic": 7, "window_basic": 3, "neighbours_basic": 4, "channels": "joint"},
            **{"stages": "basic", "prefilter": "on"},
        },
        {
            **{"step_basic": 4, "window_basic": 3, "neighbours_basic": 4},
            **{"step_final": 5, "window_final": 3, "neighbours_final": 8},
        },
        {
            **{"step_basic": 5, "window_basic": 3, "neighbours_basic": 2, "stages": "basic"},
            **{"stack_basic": "hadamard", "channels": "separate"},
        },
        {
            **{"step_basic": 7, "window_basic": 3, "neighbours_basic": 1, "stages": "basic"},
            **{"stack_basic": "hadamard", "prefilter": "off"},
        },
    ),
}
SETTINGS["vbm3d"] = tuple(
    {
        **{"window_nearest": 5, "step_basic": 5, "step_final": 4},
        **{"neighbours_basic": 4, "neighbours_final": 8, **changes},
    }
    for changes in (
        {},
        {"frames_before": 1, "channels": "joint"},
        {"frames_after": 0},
        {"refine": "once", "frames_before": 1, "frames_after": 1, "window_nearest": 3},
    )
)
# Both choices, all methods and noises; joint channels, with planes of the guide and without.
_SHORT = {"segment_length": 2, "max_length": 6, "staircase": 3}
SETTINGS["isoline"] = (
    {**_SHORT, "max_length": 2},
    {**_SHORT, "channels": "joint", "thickness": 1},
    {**_SHORT, "channels": "joint", "staircase": 0, "criterion": "multiplicative", "guide": 1},
    {**_SHORT, "method": "pi-pd", "criterion": "multiplicative"},
    {**_SHORT, "show": "classes"},
    {**_SHORT, "choice": "hard", "thickness": 3},
    {**_SHORT, "choice": "hard", "channels": "joint", "staircase": 0},
    {**_SHORT, "choice": "hard", "method": "pi-pd", "criterion": "multiplicative"},
    {**_SHORT, "method": "pi-ld"},
    {**_SHORT, "method": "pi-ld", "channels": "joint", "staircase": 0, "max_length": 4},
    {**_SHORT, "channels": "opponent", "max_length": 4},
)
# Box and Gaussian patches, slices of a patch, channels, and what is yielded; wide patches last.
SETTINGS["nl_means_pixelwise"] = (
    {"patch": 3, "window": 3},
    {"patch": 3, "window": 3, "channels": "joint", "patch_shape": "gaussian", "whiten": True},
    {"patch": 9, "window": 3, "weights": "bisquare", "own_weight": "max"},
    {"patch": 1, "window": 3, "channels": "joint", "guide": 1, "show": "pixels"},
    {"patch": 1, "window": 1},
)
SETTINGS["bm4d"] = (
    {
        **{"cube": "4x4x4", "window_basic": 3, "neighbours_basic": 4},
        **{"step_final": 4, "window_final": 3, "neighbours_final": 8},
    },
    {
        **{"cube": "1x8x8", "step_basic": 4, "window_basic": 3, "neighbours_basic": 2},
        **{"stages": "basic"},
    },
    {
        **{"cube": "1x8x8", "step_basic": 4, "window_basic": 3, "neighbours_basic": 2},
        **{"step_final": 4, "window_final": 3, "neighbours_final": 2},
    },
    {
        **{"cube": "1x8x8", "step_basic": 4, "window_basic": 3, "neighbours_basic": 4},
        **{"stages": "basic"},
    },
)
# What lonely pixels fall back to is simulated as a filter of its own.
SETTINGS["swnlm"] = tuple(
    {"patch": 3, "window": 3, "widen": 3.0, "fewest": 3, "fallback": "keep", **changes}
    for changes in ({}, {"patch": 5}, {"window": 5, "show": "pixels"})
)
# The noise of those that are told a model of it: the same for all channels, or one each.
_LAG = np.arange(5)
_BLURRED, _STREAKS = (
    Correlated(20.0, np.exp(-np.add.outer(down * _LAG**2, _LAG**2) / 6)) for down in (1, 9)
)
NOISE = {("bm3d", 3): (_BLURRED,), ("bm3d", 4): (_STREAKS, _BLURRED, _STREAKS)}
NOISE["bm3d", 5] = (_BLURRED,)
NOISE["bm4d", 3] = (_STREAKS, _BLURRED)
SCALES = {("bm3d", 5): 2}  # on which those are filtered, though their images are small
CASES = {
    "nl_means": (
        *((0, "YX"), (0, "TYX"), (0, "ZYX"), (1, "YX"), (1, "TYX"), (2, "YX")),
        *((3, "YX"), (4, "YX")),
    ),
    "bm3d": ((0, "YX"), (0, "TYX"), (1, "CYX"), (2, "CYX"), (3, "YX"), (4, "CYX"), (5, "ZYX")),
    "vbm3d": ((0, "TYX"), (1, "TCYX"), (2, "TYX"), (3, "TYX")),
    "isoline": (
        *((0, "YX"), (1, "CYX"), (2, "CYX"), (3, "ZYX"), (4, "TYX")),
        *((5, "YX"), (6, "CYX"), (7, "TYX"), (8, "ZYX"), (9, "CYX")),
        (10, "SYX"),
    ),
    "nl_means_pixelwise": (
        *((0, "YX"), (0, "ZYX"), (1, "CYX"), (2, "YX"), (3, "CYX"), (4, "TYX")),
    ),
    "bm4d": ((0, "ZYX"), (1, "CZYX"), (2, "TZYX"), (3, "CZYX")),
    "swnlm": ((0, "YX"), (1, "TYX"), (2, "ZYX")),
}
# Cases that are enough day by day: each kernel and each of the settings in one profile.
BRIEF = {
    "nl_means": (
        *("plain 0 ZYX", "CPU 0 YX map", "GPU 0 TYX"),
        *("GPU 1 YX", "GPU 2 YX", "GPU 3 YX", "CPU 4 YX"),
    ),
    "bm3d": (
        *("CPU 0 YX map", "plain 0 TYX", "CPU 1 CYX", "GPU 2 CYX", "CPU 3 YX", "CPU 4 CYX"),
        "CPU 5 ZYX",
    ),
    "vbm3d": ("GPU 0 TYX", "GPU 1 TCYX", "CPU 2 TYX", "CPU 3 TYX", "GPU 3 TYX"),
    "isoline": ("GPU 0 YX map", "GPU 3 ZYX", "GPU 4 TYX", "GPU 6 CYX", "GPU 9 CYX", "GPU 10 SYX"),
    "nl_means_pixelwise": (
        *("plain 0 ZYX", "CPU 0 YX map", "GPU 1 CYX", "CPU 2 YX", "GPU 3 CYX", "GPU 4 TYX"),
    ),
    "bm4d": ("CPU 0 ZYX", "GPU 1 CZYX", "CPU 2 TZYX", "CPU 3 CZYX"),
    "swnlm": ("CPU 0 YX map", "GPU 1 TYX", "CPU 2 ZYX map"),
}
# Models of noise, grey levels from no light on, and how many of them have another model.
MODELS = (
    PoissonGaussian(2.0, 3.0, 10.0),
    Rician(8.0),
    SignalDependent((20, 60, 100, 150, 190), (2.2, 3.0, 9.0, 6.0, 7.4)),
    Speckle(4.0, least=0.5),
)
OTHERS = (MODELS[-1], *MODELS[:-1])
LEVELS = np.concatenate([[-5.0, 0.0], np.geomspace(0.1, 5000, 130)]).astype(np.float32)
FIRST = 1
# What runs leave behind is kept by the identity of their session: no two may have the same.
SESSIONS: list[Session] = []
MAPPED = {(0, "YX"), (2, "ZYX")}  # cases that have a map of sigma, but in the plain profile
# Shape, and pixels of a tile, of all cases with these axes or of one. The first images of NL-means
# are cut in nine tiles, of the isoline filter in four, as tiles have margins; all others are whole.
SHAPES = {
    "nl_means": {
        **{"YX": ((11, 13), 1000), (0, "YX"): ((13, 18), 220)},
        **{"TYX": ((2, 9, 12), 1000), "ZYX": ((2, 9, 12), 1000)},
    },
    "bm3d": {"YX": ((9, 12), 1000), "TYX": ((2, 8, 9), 1000), "CYX": ((3, 8, 9), 1000)}
    | {"ZYX": ((1, 17, 16), 1000)},
    "vbm3d": {
        **{"TYX": ((3, 8, 10), 1000), "TCYX": ((2, 2, 8, 9), 1000)},
        (3, "TYX"): ((2, 8, 9), 1000),
    },
    # In isolines of 6 pixels images of 3 are mirrored several times.
    "isoline": {
        **{"YX": ((31, 7), 210), (5, "YX"): ((16, 5), 1000), "CYX": ((2, 7, 6), 1000)},
        **{"ZYX": ((2, 3, 1), 1000), "TYX": ((2, 5, 6), 1000), "SYX": ((3, 5, 4), 1000)},
    },
    "nl_means_pixelwise": {
        **{"YX": ((9, 11), 1000), (0, "YX"): ((5, 36), 110), "CYX": ((2, 5, 7), 1000)},
        **{"TYX": ((2, 5, 7), 1000), "ZYX": ((2, 5, 7), 1000)},
    },
    "bm4d": {"ZYX": ((5, 8, 8), 2000)} | dict.fromkeys(("CZYX", "TZYX"), ((2, 1, 8, 9), 2000)),
    "swnlm": {
        **{"YX": ((5, 18), 1000), "TYX": ((2, 3, 4), 1000), "ZYX": ((1, 4, 6), 1000)},
    },
}
# What is enough of an image with NaN and infinity: two frames to compare, one cube, or one tile.
SPOILT = {"vbm3d": np.s_[:2], "bm4d": np.s_[:4], "isoline": np.s_[:16]}
SPOILT["nl_means_pixelwise"] = np.s_[:, :19]


def shape_of(name: str, number: int, axes: str) -> tuple[tuple[int, ...], int]:
    """Return the shape of a case, and the pixels of a tile."""
    shapes = SHAPES[name]
    return shapes.get((number, axes)) or shapes[axes]


Case = tuple[str, str, object, np.ndarray, str, float | np.ndarray]


def cases(filter_class, which: str = "thorough") -> Iterator[Case]:
    """Yield (name, profile, settings, image, axes, sigma) of the cases of a filter."""
    for case in every_case(filter_class):
        if which == "thorough" or case[0] in BRIEF[filter_class.name]:
            yield case


def every_case(filter_class) -> Iterator[Case]:
    filter_name = filter_class.name
    for number, axes in CASES[filter_name]:
        image = noisy(*shape_of(filter_name, number, axes)[0], seed=number)
        settings = joining(filter_class, axes, **SETTINGS[filter_name][number])
        whiten, noise = getattr(settings, "whiten", False), NOISE.get((filter_name, number), ())
        # Smaller planes do not tell the noise.
        seen = noisy(*image.shape[:-2], 16, 16) if whiten else None
        settings = prepared(settings, axes, image.shape, noise, seen)
        if (filter_name, number) in SCALES:
            settings = dataclasses.replace(settings, scales=SCALES[filter_name, number])
        for profile in PROFILES_OF.get(filter_name, OTHERWISE):
            # Its kernels are those of a CPU with one lane: other settings change nothing in that.
            if profile == "plain" and number:
                continue
            if (number, axes) in MAPPED and profile != "plain":
                sigma = np.broadcast_to(np.linspace(0, 30, image.shape[-1]), image.shape[-2:])
                yield f"{profile} {number} {axes} map", profile, settings, image, axes, sigma
            else:
                yield f"{profile} {number} {axes}", profile, settings, image, axes, 20.0


def spoilt(filter_class, which: str) -> Iterator[Case]:
    """Yield the first cases with NaN and infinity in their images, as never gets there."""
    name = filter_class.name
    for case, profile, settings, image, axes, _ in every_case(filter_class):
        if which == "brief" and profile != "GPU":
            continue
        if case.split()[1:3] == ["0", CASES[name][0][1]]:
            image = image[SPOILT.get(name, ...)].copy()
            image[..., 3:5, :] = np.nan
            image[..., 4] = np.inf
            yield case, profile, settings, image, axes, np.inf


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


def run_case(
    case, profile, settings, image, axes, sigma, levels=None
) -> tuple[np.ndarray, set[str]]:
    """Run one case; return its result and the kernels it used."""
    import pyopencl as cl

    device = dataclasses.replace(simulator(), **PROFILES[profile])
    number = int(case.split()[1])
    if profile == "GPU":
        limit = LOCAL_MEMORY.get((settings.name, number), device.local_memory)
        items = MAX_GROUP.get((settings.name, number), device.max_group)
        items = MAX_GROUP.get((settings.name, axes), items)
        device = dataclasses.replace(device, local_memory=limit, max_group=items)
    session = Session(device, cl.Context([device.handle]))
    SESSIONS.append(session)
    out = np.empty_like(image)
    work = work_of(image, out, settings, session, sigma, axes, levels)
    if settings.over_time:
        ArrayFrameFlow(work, Arena(session)).run()
        return out, {key[0] for key in session.programs}
    _, pixels = shape_of(settings.name, number, axes)
    flow = tiled(work, Arena(session), work.source.joined * pixels)
    flow.run()
    flow.close()
    return out, {key[0] for key in session.programs}


def combine_fewer() -> None:
    """Let ridge combinations be of `SMALLER` groups in this process."""
    for name, value in SMALLER.items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(f"napari_gpu_denoise.{module}"), attribute, value)


def chosen(name: str):
    """Return the settings class of a filter."""
    return next(one for one in FILTERS if one.name == name)


def run_filter(name: str, which: str, folder: Path) -> None:
    suit_oclgrind()
    combine_fewer()
    results, kernels = {}, set()
    for case in cases(chosen(name), which):
        begin(case[0])
        results[case[0]], used = run_case(*case)
        kernels |= used
    for case in spoilt(chosen(name), which):
        begin(f"NaN {case[0]}")
        run_case(*case, Levels(0, 1.0))
    np.savez(folder / "results.npz", **results)
    (folder / "kernels.json").write_text(json.dumps(sorted(kernels)))


def run_one(name: str, which: str, kernels: Path) -> None:
    suit_oclgrind()
    combine_fewer()
    source.kernel_folder = lambda: kernels
    run_case(*next(case for case in cases(chosen(name)) if case[0] == which))


def run_noise(folder: Path) -> None:
    """Change a part of a buffer by every model, there and back, and the rest by another one."""
    import pyopencl as cl

    suit_oclgrind()
    results, kernels = {}, set()
    numbers = (np.arange(len(LEVELS)) >= FIRST).astype(int)
    for profile in ("CPU", "GPU"):
        device = dataclasses.replace(simulator(), **PROFILES[profile])
        session = Session(device, cl.Context([device.handle]))
        SESSIONS.append(session)
        for other, model in zip(OTHERS, MODELS, strict=True):
            begin(f"{profile} {model.name}")
            queue, out = session.queue(), np.empty_like(LEVELS)
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            buffer = cl.Buffer(session.context, flags, hostbuf=LEVELS)
            around = Stabilisation((other, model), Arena(session), signed=True, maps=False)
            for way, change in (("stabilise", around.forward), ("inverse", around.inverse)):
                change(queue, buffer, numbers, 1)
                cl.enqueue_copy(queue, out, buffer)
                results[f"{profile} {model.name} {way}"] = out.copy()
        kernels |= {key[0] for key in session.programs}
    np.savez(folder / "results.npz", **results)
    (folder / "kernels.json").write_text(json.dumps(sorted(kernels)))


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
    if sys.argv[1] == "filter":
        run_filter(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    elif sys.argv[1] == "noise":
        run_noise(Path(sys.argv[2]))
    elif sys.argv[1] == "case":
        run_one(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        run_kernels(Path(sys.argv[2]))
