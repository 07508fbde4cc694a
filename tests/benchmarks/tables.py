"""What benchmarks share that print several tables: options, and tables as Markdown."""

from __future__ import annotations

import argparse
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli.bench import Timing, measure
from napari_gpu_denoise.protocol.filter import Filter

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import REASON, data_folder


def print_tables(
    description: str,
    tables: Sequence[Callable[[argparse.Namespace], None]],
    more: Callable[[argparse.ArgumentParser], None] | None = None,
) -> None:
    """Print the tables that the command line asks for, each below its docstring.

    `more` adds options that only these tables have.
    """
    named = {table.__name__: table for table in tables}
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    add = parser.add_argument
    add("--tables", nargs="+", choices=named, default=tuple(named))
    add("--seeds", type=int, default=3, help="draws of each picture, or of six scenes")
    add("--stride", type=int, default=1, help="take every so-manieth picture")
    add("--quick", action="store_true", help="every eighth picture, one draw")
    add("--device", help="number of the OpenCL device, or part of its name")
    if more is not None:
        more(parser)
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.stride = 1, 8
    if data_folder() is None:
        parser.error(REASON)
    print(f"On {gd.choose(options.device)}.")
    for name in options.tables:
        print(f"\n{inspect.cleandoc(named[name].__doc__)}\n")
        named[name](options)


def kernel_times(timing: Timing) -> str:
    """Return the times of the kernels of a filter as text."""
    lines = [
        f"{timing.filter} ({', '.join(f'{k}={v}' for k, v in timing.settings.items())})",
        f"on {timing.device}",
        f"{'x'.join(map(str, timing.shape))} float32, {math.prod(timing.shape) / 1e6:.2f} "
        f"megapixels, {timing.tiles} tile{'s' * (timing.tiles > 1)}",
    ]
    rows = [
        *((f"  {name}", value) for name, value in timing.kernels.items()),
        ("device time", timing.device_time),
        ("upload", timing.upload),
        ("download", timing.download),
        ("whole call", timing.whole_call),
    ]
    lines += [f"{name:<14}{1e3 * value:10.3f} ms" for name, value in rows]
    memory, images = timing.memory / 2**20, timing.images_of_memory
    return "\n".join([*lines, f"{'device memory':<14}{memory:10.1f} MiB ({images:.1f} images)"])


def show(head: list[str], body: list[list[str]]) -> None:
    """Print a table as Markdown."""
    for cells in (head, [":---", *("---:" for _ in head[1:])], *body):
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()


def speed_parser(
    description: str, shape: str, cases: Mapping[str, Filter]
) -> argparse.ArgumentParser:
    """Return the options of `print_speeds`."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--shape", default=shape)
    parser.add_argument("--device")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=list(cases))
    return parser


def print_speeds(
    args: argparse.Namespace, cases: Mapping[str, Filter], floor: Callable[[Any, int], float]
) -> None:
    """Print a row for each case; `floor` returns the least seconds for so many pixels."""
    shape, device = tuple(map(int, args.shape.split("x"))), gd.choose(args.device)
    print(f"{device}, {args.shape} float32")
    print("| | device ms | floor on an H200, ms | whole call, ms | tiles | images of memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in args.cases:
        timing = measure(cases[name], shape, device, args.repeats)
        least = floor(cases[name], math.prod(shape))
        kernels = ", ".join(f"{key} {1e3 * value:.3f}" for key, value in timing.kernels.items())
        print(
            f"| {name} | {1e3 * timing.device_time:.3f} ({kernels}) | {1e3 * least:.2f} "
            f"| {1e3 * timing.whole_call:.1f} | {timing.tiles} | {timing.images_of_memory:.1f} |",
            flush=True,
        )
