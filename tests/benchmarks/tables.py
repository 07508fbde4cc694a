"""What benchmarks share: options, times, and tables as Markdown."""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import napari_gpu_denoise as gd

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
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


def show(head: Iterable[str], body: Iterable[Iterable[Any]]) -> None:
    """Print a table as Markdown, row by row as they come; of numbers two decimals."""
    head = list(head)
    for cells in (head, [":---", *("---:" for _ in head[1:])]):
        print(f"| {' | '.join(cells)} |")
    for row in body:
        print(f"| {' | '.join(map(_cell, row))} |", flush=True)


def show_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a table of rows that name their columns."""
    found = list(rows)
    show(found[0], (row.values() for row in found))


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "" if value != value else f"{value:.2f}"


def seconds_of(call: Callable[[], object], repeats: int = 5, warm: int = 1) -> list[float]:
    """Return the seconds of some calls, in order from the shortest, after some that only warm."""
    taken = []
    for _ in range(warm + repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return sorted(taken[warm:])
