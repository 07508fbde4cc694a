"""What benchmarks share that print several tables: options, and tables as Markdown."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import napari_gpu_denoise as gd

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import REASON, data_folder


def print_tables(description: str, tables: Sequence[Callable[[argparse.Namespace], None]]) -> None:
    """Print the tables that the command line asks for, each below its docstring."""
    named = {table.__name__: table for table in tables}
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    add = parser.add_argument
    add("--tables", nargs="+", choices=named, default=tuple(named))
    add("--seeds", type=int, default=3, help="draws of each picture, or of six scenes")
    add("--stride", type=int, default=1, help="take every so-manieth picture")
    add("--quick", action="store_true", help="every eighth picture, one draw")
    add("--device", help="number of the OpenCL device, or part of its name")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.stride = 1, 8
    if data_folder() is None:
        parser.error(REASON)
    print(f"On {gd.choose(options.device)}.")
    for name in options.tables:
        print(f"\n{inspect.cleandoc(named[name].__doc__)}\n")
        named[name](options)


def show(head: list[str], body: list[list[str]]) -> None:
    """Print a table as Markdown."""
    for cells in (head, [":---", *("---:" for _ in head[1:])], *body):
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()
