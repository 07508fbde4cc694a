"""Time filters on a device, on synthetic input: ``gpu-denoise bench``."""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.cli.options import add_filters, chosen_filters, whole_number
from napari_gpu_denoise.errors import FileError, KernelError
from napari_gpu_denoise.files.input_checks import read_json
from napari_gpu_denoise.files.output import check_output, new_file
from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import size_in_words
from napari_gpu_denoise.run.denoise import denoise
from napari_gpu_denoise.run.flow.frame_flow import ArrayFrameFlow
from napari_gpu_denoise.run.flow.tile_flow import TileFlow
from napari_gpu_denoise.run.flow.work import FrameSigma, Work
from napari_gpu_denoise.version import package_version

SIGMA = 20.0
_FORMAT = 1  # of stored runs
_ENOUGH = 1.0  # seconds, after which no call is repeated once more
# Stacks have as many frames as are filtered in about this time, in seconds, within these bounds.
_STACK_SECONDS, _FEWEST_FRAMES, _MOST_FRAMES = 0.5, 4, 64
# Where drivers, pyopencl and this package keep what was compiled.
_CACHES = (
    *("XDG_CACHE_HOME", "CUDA_CACHE_PATH", "POCL_CACHE_DIR", "NEO_CACHE_DIR"),
    *("AMD_COMGR_CACHE_DIR", "MESA_SHADER_CACHE_DIR"),
)


def synthetic(shape: tuple[int, ...], sigma: float = SIGMA, seed: int = 0) -> np.ndarray:
    """Return a noisy test image: smooth shading, edges and texture, levels 0 to 255, float32."""
    ny, nx = shape[-2:]
    y, x = np.mgrid[:ny, :nx].astype(np.float32)
    clean = 110 + 50 * np.sin(x / 97) * np.cos(y / 71)
    clean += 40 * (((x // 64) + (y // 48)) % 2)
    clean += 15 * np.sin(x * 0.7 + y * 0.3) * (np.sin(x / 200) > 0)
    noise = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return (clean + sigma * noise).astype(np.float32)


def shape_for(settings: Filter, shape: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """Return the shape of an input, with the axes that a filter needs, and their names.

    `shape` is (y, x) or (planes, y, x). A filter over time takes planes as frames, one of volumes
    as slices; both make 16 of (y, x). A filter of volumes over time takes (t, z, y, x), and makes
    four volumes of one. One of joint channels takes them as channels, and makes three.
    """
    axes = "T" * settings.over_time + "Z" * ("Z" in settings.joint)
    axes = axes or "C" * ("C" in settings.joint)
    while len(shape) < len(axes) + 2:
        shape = (3 if axes == "C" else 4 if len(shape) == 3 else 16, *shape)
    return tuple(shape), "." * (len(shape) - 2 - len(axes)) + axes + "YX"


def stack_for(settings: Filter, shape: tuple[int, ...], frames: int) -> tuple[tuple[int, ...], str]:
    """Return the shape of a stack of frames, or volumes, and the names of its axes."""
    shape, axes = shape_for(settings, shape[-2:])
    if settings.over_time:
        return (frames, *shape[1:]), axes
    return (frames, *shape), "T" + axes


@dataclass(frozen=True)
class Timing:
    """Times of one filter on one device: medians over repeats, in seconds."""

    filter: str
    settings: dict
    device: str
    shape: tuple[int, ...]  # of the float32 input
    tiles: int
    kernels: dict[str, float]  # device time of each, summed over tiles
    device_time: float  # of all kernels
    upload: float  # device time
    download: float
    whole_call: float  # wall time of `denoise`, from NumPy array to NumPy array
    memory: int  # held on the device, in bytes
    images_of_memory: float  # the same in units of the input's size


@dataclass(frozen=True)
class Stack:
    """Throughput of a stack, from uint16 in memory to uint16 in memory, sigma given."""

    shape: tuple[int, ...]
    planes_per_second: float
    device_share: float  # of the time in which the device computes


@dataclass(frozen=True)
class Speed:
    """All measurements of one filter; `first` has the parts of first calls, in seconds."""

    name: str  # filter and profile
    timing: Timing
    default_call: float  # seconds
    stack: Stack
    first: dict[str, dict[str, float]]

    def times(self) -> list[tuple[str, float, dict[str, float]]]:
        """Return the name of each time, its seconds, and those of its parts."""
        timing, default = self.timing, self.default_call
        call, device = timing.whole_call, timing.device_time
        copies = timing.upload + timing.download
        host, noise = max(call - device - copies, 0.0), max(default - call, 0.0)
        return [
            ("device", device, timing.kernels),
            ("whole call", call, {"kernels": device, "copies": copies, "host": host}),
            ("default call", default, {"whole call": call, "noise": noise}),
            *((f"first, {name}", sum(parts.values()), parts) for name, parts in self.first.items()),
        ]

    def numbers(self) -> dict[str, float]:
        """Return what can be compared with another run, in milliseconds, and planes a second."""
        times = {name: 1e3 * seconds for name, seconds, _ in self.times()}
        return times | {"planes/s": self.stack.planes_per_second}


def measure(settings: Filter, shape: tuple[int, ...], device: Device, repeats: int = 5) -> Timing:
    """Time a filter on an input of a shape that `shape_for` completes."""
    shape, axes = shape_for(settings, shape)
    image = synthetic(shape)
    kernels, tiles, memory = _profile(settings, image, axes, device, repeats)
    upload, download = kernels.pop("upload"), kernels.pop("download")
    return Timing(
        *(settings.name, asdict(settings), str(device), shape, tiles, kernels),
        device_time=sum(kernels.values()),
        upload=upload,
        download=download,
        whole_call=_call(image, settings, SIGMA, axes, device, repeats),
        memory=memory,
        images_of_memory=memory / image.nbytes,
    )


def _speed(settings: Filter, device: Device, args: argparse.Namespace) -> Speed:
    """Measure all of one filter."""
    shape, axes = shape_for(settings, args.shape)
    timing = measure(settings, shape, device, 1)
    repeats = min(args.repeats, max(1, round(_ENOUGH / timing.whole_call)))
    if repeats > 1:
        timing = measure(settings, shape, device, repeats)
    # Filters over time take many frames in one call.
    one = timing.whole_call / (shape[0] if settings.over_time else 1)
    frames = min(max(int(_STACK_SECONDS / one), _FEWEST_FRAMES), _MOST_FRAMES)
    return Speed(
        f"{settings.name}, {settings.profile_name()}",
        timing,
        _call(synthetic(shape), settings, None, axes, device, repeats),
        _stack(settings, shape, device, args.frames or frames),
        _first_calls(settings, shape, axes, device) if args.first else {},
    )


def _call(
    image: np.ndarray, settings: Filter, sigma: float | None, axes: str, device: Device, count: int
) -> float:
    """Return the median seconds of some calls; one more comes first, which may compile."""
    times = []
    for _ in range(count + 1):
        start = time.perf_counter()
        denoise(image, settings, sigma, axes=axes, device=device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _profile(
    settings: Filter, image: np.ndarray, axes: str, device: Device, repeats: int
) -> tuple[dict[str, float], int, int]:
    """Return the device time of each kernel and copy, the number of tiles, and bytes of memory.

    The first run does not count.
    """
    chosen = session(device)
    applied, _ = settings.for_array(axes, image.shape).for_pixels(image, axes)
    source, out = (arrange(a, axes, applied.joint) for a in (image, np.empty_like(image)))
    sigma = FrameSigma.of(SIGMA, image.shape, axes, applied.joint)
    work = Work(applied, source, out, Levels.of(image), sigma, chosen)
    kind, runs = ArrayFrameFlow if settings.over_time else TileFlow, []
    with device_errors(chosen), borrow(chosen) as arena:
        for _ in range(repeats + 1):
            flow = kind(work, arena, profiling=True)
            with closing(flow):
                deque(flow.run(), maxlen=0)
            sums: dict[str, float] = defaultdict(float)
            for name, event in flow.events:
                sums[name] += (event.profile.end - event.profile.start) * 1e-9
            runs.append(dict(sums))
        arena.trim()
        memory = arena.nbytes
    medians = {name: statistics.median(run[name] for run in runs[1:]) for name in runs[0]}
    return medians, len(flow.tiles), memory


def _stack(settings: Filter, shape: tuple[int, ...], device: Device, frames: int) -> Stack:
    """Time a stack of frames, or volumes."""
    whole, axes = stack_for(settings, shape, frames)
    image = synthetic(whole)
    pixels = np.clip(image, 0, None).astype(np.uint16)
    call = _call(pixels, settings, SIGMA, axes, device, 2)
    kernels, *_ = _profile(settings, image, axes, device, 1)
    busy = sum(kernels.values()) - kernels["upload"] - kernels["download"]
    return Stack(whole, math.prod(whole[:-2]) / call, busy / call)


def _first_calls(
    settings: Filter, shape: tuple[int, ...], axes: str, device: Device
) -> dict[str, dict[str, float]]:
    """Return the parts of the first call ever on a machine, and of that of a second process."""
    task = {"filter": settings.name, "settings": settings.as_dict(), "shape": shape, "axes": axes}
    task |= {"sigma": SIGMA, "device": [device.name, device.platform, device.index]}
    with tempfile.TemporaryDirectory(prefix="gpu-denoise-bench-") as folder:
        places = {name: os.path.join(folder, name) for name in _CACHES}
        for place in places.values():
            os.mkdir(place)
        return {name: time_process(task, places) for name in ("nothing cached", "kernels cached")}


def time_process(task: dict[str, Any], places: dict[str, str]) -> dict[str, float]:
    """Return the parts of the first call of a new process, with its caches in `places`."""
    script = str(Path(__file__).with_name("first_call.py"))
    # As pip leaves the package; where Python stores no bytecode, every process would compile it.
    compileall.compile_dir(Path(__file__).parents[1], quiet=2)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", script, json.dumps(task)],
        env=os.environ | places,
        capture_output=True,
        text=True,
    )
    whole = time.perf_counter() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise KernelError(f"The process that times a first call failed ({last}).")
    parts = json.loads(done.stdout.splitlines()[-1])
    return {"python": whole - sum(parts.values()), **parts}  # start of the interpreter, and its end


def read_run(path: Path) -> tuple[str, str, str, dict[str, dict[str, float]]]:
    """Return device, driver, version of this package, and the numbers of each filter of a run.

    These are by the title of the filter. Raises `FileError` if it is not a stored run.
    """
    try:
        run = read_json(path)
        if run["gpu-denoise bench"] != _FORMAT:
            raise ValueError("another version")
        numbers = {
            _title(str(speed["name"]), map(int, speed["timing"]["shape"])): {
                str(name): float(value) for name, value in speed["numbers"].items()
            }
            for speed in run["filters"]
        }
        return str(run["device"]), str(run["driver"]), str(run["package"]), numbers
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} is not a run stored by this version: make one with gpu-denoise bench --save."
        ) from error


def _by(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _title(name: str, shape: Iterable[int]) -> str:
    return f"{name}, {_by(shape)}"


def _details(speed: Speed) -> str:
    """Return all parts of all times of a filter."""
    timing, stack = speed.timing, speed.stack
    lines = [
        speed.name,
        "  " + ", ".join(f"{name}={value}" for name, value in timing.settings.items()),
        f"  {_by(timing.shape)} float32, {timing.tiles} tile{'s' * (timing.tiles > 1)}, "
        f"{size_in_words(timing.memory)} on the device ({timing.images_of_memory:.1f} images)",
    ]
    for name, whole, parts in speed.times():
        title = {"device": "device time"}.get(name, name.replace("first,", "first call,"))
        lines.append(f"  {title:<30}{1e3 * whole:10.3f} ms")
        for part, value in parts.items():
            lines.append(f"    {part:<28}{1e3 * value:10.3f}    {value / whole:5.0%}")
    lines.append(f"  {'stack of ' + _by(stack.shape):<30}{stack.planes_per_second:10.1f} planes/s")
    lines.append(f"    {'device busy':<28}{'':10}{stack.device_share:5.0%}")
    return "\n".join(lines)


def _summary(speed: Speed) -> str:
    """Return the row of a filter in the table of all."""
    stack = speed.stack
    (_, device, _), (_, call, _), (_, default, parts), *first = speed.times()
    return _row(
        speed.name,
        _by(speed.timing.shape),
        _ms(device),
        f"{_ms(call)} (device {device / call:.0%})",
        f"{_ms(default)} (noise {parts['noise'] / default:.0%})",
        f"{stack.planes_per_second:.1f} (device {stack.device_share:.0%})",
        *(_ms(seconds) for _, seconds, _ in first),
    )


def _row(first: str, *cells: str) -> str:
    widths = zip(cells, (14, 9, 21, 21, 21, 11, 13), strict=False)
    return (f"{first:<28}" + "".join(f"{cell:>{width}}" for cell, width in widths)).rstrip()


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def _compared(speed: Speed, numbers: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield stored and new numbers of a filter side by side."""
    title = _title(speed.name, speed.timing.shape)
    before = numbers.get(title, {})
    yield title if before else f"{title}: not in the stored run"
    for name, now in speed.numbers().items():
        then = before.get(name, 0.0)
        if min(then, now) > 0:
            faster, unit = (now / then, "") if name == "planes/s" else (then / now, " ms")
            yield f"  {name:<24}{then:12.4g} ->{now:12.4g}{unit:<3}  {faster:5.2f} times as fast"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gpu-denoise bench`` to a parser."""
    add = parser.add_argument
    add_filters(parser, "filter to time in detail; can be repeated (default: one line for each)")
    about = "change a setting of the filter, such as patch=5; can be repeated"
    add("--set", metavar="NAME=VALUE", action="append", default=[], help=about)
    about = "shape of the input, YxX, PLANESxYxX or TxZxYxX (default 512x512)"
    add("--shape", type=_shape, default="512x512", help=about)
    about = "frames of the stack (default: about half a second of work)"
    add("--frames", type=whole_number, help=about)
    about = "also time first calls in new processes: with an empty cache, and with kernels cached"
    add("--first", action="store_true", help=about)
    add("--repeats", type=whole_number, default=5, help="maximum number of runs for a median")
    add("--save", metavar="FILE", type=Path, help="store the run, as JSON")
    add("--overwrite", action="store_true", help="replace an existing file")
    add("--compare", metavar="FILE", type=Path, help="compare with a stored run")
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run ``gpu-denoise bench``."""
    changes = dict(item.split("=", 1) if "=" in item else (item, "") for item in args.set)
    chosen = [_settings(kind, changes) for kind in chosen_filters(args)]
    stored = read_run(args.compare) if args.compare else None
    if args.save:
        check_output(args.save, overwrite=args.overwrite, keep=())
    device = choose(args.device)
    say = partial(print, flush=True) if not args.json else lambda *_, **__: None
    say(f"{device}, driver {device.driver}")
    say(f"Times in ms, medians of up to {args.repeats} calls; in brackets, shares of that time.")
    if args.filter is None:
        columns = ("filter", "shape", "device", "whole call", "default call", "planes/s")
        say(_row(*columns, *(("first ever", "first cached") if args.first else ())))
    speeds: list[Speed] = []
    for settings in chosen:
        speeds.append(_speed(settings, device, args))
        say((_summary if args.filter is None else _details)(speeds[-1]))
    if stored:
        name, driver, package, numbers = stored
        same = (name, driver) == (str(device), device.driver)
        end = "; now:" if same else ": another device or driver than now."
        say(f"Stored by version {package} on {name}, driver {driver}{end}")
        for speed in speeds:
            say(*_compared(speed, numbers), sep="\n")
    record = {
        "gpu-denoise bench": _FORMAT,
        "package": package_version(),
        "device": str(device),
        "driver": device.driver,
        "filters": [{**asdict(speed), "numbers": speed.numbers()} for speed in speeds],
    }
    text = json.dumps(record, indent=2)
    if args.json:
        print(text)
    if args.save:
        with new_file(args.save, overwrite=args.overwrite) as file:
            file.write(text.encode("utf-8"))
    return 0


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(map(whole_number, text.lower().split("x")))
    except argparse.ArgumentTypeError:
        shape = ()
    if len(shape) not in (2, 3, 4):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape: give one such as 512x512 or 20x512x512"
        )
    return shape


def _settings(kind: type[Filter], changes: Mapping[str, str]) -> Filter:
    """Return settings with changes given as text."""
    types = {spec.name: type(spec.default) for spec in fields(kind)}
    typed: dict[str, Any] = {}
    for name, text in changes.items():
        typed[name] = text
        if types.get(name) is bool:
            typed[name] = text.lower() in ("1", "true", "yes")
        elif types.get(name) in (int, float):
            with suppress(ValueError):  # what is no number is refused with the others
                typed[name] = types[name](text)
    return kind.of(**typed)
