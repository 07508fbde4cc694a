"""Time filters on a device, on synthetic input: the kernels alone, and whole calls.

python tools/bench.py [--filter NAME] [--set NAME=VALUE] [--shape YxX] [--device N|NAME]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise import cli
from napari_gpu_denoise.cli.options import whole_number
from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.input_checks import read_json
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.denoise import denoise
from napari_gpu_denoise.run.flow.frame_flow import ArrayFrameFlow
from napari_gpu_denoise.run.flow.tile_flow import TileFlow
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import Part, arrange_part
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version

SIGMA = 20.0
_FORMAT = 2  # of stored runs
_ENOUGH = 1.0  # seconds


def synthetic(shape: tuple[int, ...]) -> np.ndarray:
    """Return a noisy test image: smooth shading, edges and texture, levels 0 to 255, float32."""
    ny, nx = shape[-2:]
    y, x = np.mgrid[:ny, :nx].astype(np.float32)
    clean = 110 + 50 * np.sin(x / 97) * np.cos(y / 71)
    clean += 40 * (((x // 64) + (y // 48)) % 2)
    clean += 15 * np.sin(x * 0.7 + y * 0.3) * (np.sin(x / 200) > 0)
    noise = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return (clean + SIGMA * noise).astype(np.float32)


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


@dataclass(frozen=True)
class Timing:
    """Times of one filter on one device: medians over repeats, in seconds."""

    shape: tuple[int, ...]  # of the float32 input
    kernels: dict[str, float]  # device time of each, summed over tiles, and of copies
    device_time: float  # of all kernels
    whole_call: float  # wall time of `denoise`, from NumPy array to NumPy array


def measure(
    settings: Filter,
    shape: tuple[int, ...],
    device: Device,
    repeats: int = 5,
    enough: float = math.inf,
) -> Timing:
    """Time a filter on an input of a shape that `shape_for` completes; the first run only warms.

    Runs are repeated until they have taken `enough` seconds.
    """
    shape, axes = shape_for(settings, shape)
    image, calls = synthetic(shape), []
    while len(calls) <= repeats and sum(calls[1:]) < enough:
        begun = time.perf_counter()
        denoise(image, settings, SIGMA, axes=axes, device=device)
        calls.append(time.perf_counter() - begun)
    job = start(Run(settings, SIGMA, axes=axes, device=device), image)
    work = arrange_part(job, Part.of(job), image, np.empty_like(image))
    kind, runs = ArrayFrameFlow if settings.over_time else TileFlow, []
    with device_errors(work.session), borrow(work.session) as arena:
        for _ in calls:
            with closing(kind(work, arena, profiling=True)) as flow:
                flow.run()
            spent: dict[str, float] = defaultdict(float)
            for name, event in flow.events:
                spent[name] += (event.profile.end - event.profile.start) * 1e-9
            runs.append(spent)
    kernels = {name: statistics.median(run[name] for run in runs[1:]) for name in runs[0]}
    computing = sum(kernels[name] for name in kernels if name not in ("upload", "download"))
    return Timing(shape, kernels, computing, statistics.median(calls[1:]))


def read_run(path: Path) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Return the device, its driver and the package of a stored run, and its times by title."""
    try:
        run = read_json(path)
        if run["bench.py"] != _FORMAT:
            raise ValueError("another version")
        times = {
            str(title): {str(name): float(value) for name, value in each["times"].items()}
            for title, each in run["filters"].items()
        }
        return [str(run[name]) for name in ("device", "driver", "package")], times
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} is not a run of this version: make one with bench.py --json > FILE."
        ) from error


def add_filters(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the options for the filters that a script works on, and for its device."""
    names = [kind.name.replace("_", "-") for kind in FILTERS]
    parser.add_argument("--filter", choices=names, action="append", help=about)
    parser.add_argument("--device", help="number or name of the device")


def chosen_filters(args: argparse.Namespace) -> list[type[Filter]]:
    """Return the filters that are named, by default all."""
    wanted = args.filter
    return [k for k in FILTERS if wanted is None or k.name.replace("_", "-") in wanted]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script as the command line is run: with its exit codes, and errors in a sentence."""
    return cli.main(argv, build_parser)


def build_parser(argv: object = ()) -> argparse.ArgumentParser:
    """Return the parser; the namespace it makes holds ``run``. It is the same for any `argv`."""
    parser = argparse.ArgumentParser("bench.py", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add_filters(parser, "filter to time; can be repeated (default: all)")
    about = "change a setting of the filter, such as patch=5; can be repeated"
    add("--set", metavar="NAME=VALUE", action="append", default=[], help=about)
    about = "shape of the input, YxX, PLANESxYxX or TxZxYxX (default 512x512)"
    add("--shape", type=_shape, default="512x512", help=about)
    add("--repeats", type=whole_number, default=5, help="maximum number of runs for a median")
    add("--compare", metavar="FILE", type=Path, help="compare with a run that --json printed")
    add("--json", action="store_true", help="print JSON, to be stored and compared with")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Time the filters chosen."""
    changes = {name: _value(text) for name, _, text in (item.partition("=") for item in args.set)}
    chosen = [kind.of(**changes) for kind in chosen_filters(args)]
    before, stored = read_run(args.compare) if args.compare else (None, {})
    device = choose(args.device)
    head = {"device": str(device), "driver": device.driver, "package": package_version()}
    say = partial(print, flush=True) if not args.json else lambda *_, **__: None
    say(f"{device}, driver {device.driver}; medians of up to {args.repeats} calls")
    if before is not None:
        other = "" if before[:2] == [str(device), device.driver] else ", another device or driver"
        say("Compared with version {2} on {0}, driver {1}{3}".format(*before, other))
    made = {}
    for settings in chosen:
        timing = measure(settings, args.shape, device, args.repeats, _ENOUGH)
        shape = "x".join(map(str, timing.shape))
        title = f"{settings.name}, {settings.profile_name()}, {shape}"
        times = {"device": 1e3 * timing.device_time, "call": 1e3 * timing.whole_call}
        made[title] = {"times": times, "settings": asdict(settings), **asdict(timing)}
        say(title)
        for name, now in times.items():
            then = stored.get(title, {}).get(name, 0.0)
            faster = f"{then:12.4g} before: {then / now:.2f} times as fast" if then and now else ""
            say(f"  {name:<26}{now:12.4g} ms{faster}")
        for name, seconds in timing.kernels.items() if args.filter else ():
            say(f"    {name:<24}{1e3 * seconds:12.4g} ms")
    if args.json:
        print(json.dumps({"bench.py": _FORMAT, **head, "filters": made}, indent=2))
    return 0


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,3}", text.lower()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape: give one such as 512x512 or 20x512x512"
        )
    return tuple(map(int, text.lower().split("x")))


def _value(text: str) -> Any:
    """Return the number or truth value that a text is, or the text."""
    with suppress(ValueError):
        return json.loads(text.lower())
    return text


if __name__ == "__main__":
    sys.exit(main())
