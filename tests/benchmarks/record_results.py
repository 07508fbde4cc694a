"""Record a hash of what every filter, front end and estimate yields; compare it with another time.

Run it before and after a change that must not change any result:

    python tests/benchmarks/record_results.py --output before.json --keep before
    python tests/benchmarks/record_results.py --output after.json --keep after --compare before.json
    python tests/benchmarks/record_results.py --read after.json --compare before.json --words

Hashes hold for one kind of device and processor, so the files do not belong into the repository.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from recorded import (
    array_cases,
    fault_cases,
    file_cases,
    frame_cases,
    napari_cases,
    noise_cases,
    setting_cases,
)
from recorded.adapters import of_error
from recorded.answers import Case, described
from recorded.comparing import compare, file_name

import napari_gpu_denoise as gd

_GROUPS = (
    array_cases,
    setting_cases,
    noise_cases,
    frame_cases,
    file_cases,
    fault_cases,
    napari_cases,
)
_PROGRESS = 10  # seconds between two lines


def all_cases() -> Iterator[Case]:
    """Yield every case; no two of one name."""
    names = set()
    for group in _GROUPS:
        for case in group.cases():
            if case.name in names:
                raise ValueError(f"Two cases are called {case.name!r}.")
            names.add(case.name)
            yield case


def record(cases: list[Case], keep: Path | None) -> dict[str, Any]:
    """Run the cases and return their hashes, by name."""
    found, spent = {}, {}
    started = told = time.perf_counter()
    worked = time.process_time()
    for number, case in enumerate(cases):
        before = time.perf_counter()
        try:
            answer = case.run()
        except gd.errors.DenoiseError as error:
            answer = of_error(error)
        except Exception as error:
            print(f"A FAULT in {case.name}:", file=sys.stderr)
            traceback.print_exc(limit=-3)
            answer = of_error(error)
        found[case.name] = described(answer)
        if keep is not None:
            np.savez(keep / file_name(case.name), **answer.arrays)
        now = time.perf_counter()
        spent[case.name] = now - before
        if now - told > _PROGRESS:
            told = now
            print(
                f"{number + 1:5} of {len(cases)}  {now - started:4.0f} s  {case.name}", flush=True
            )
    took, worked = time.perf_counter() - started, time.process_time() - worked
    print(f"{len(cases)} cases in {took:.0f} s, {worked:.0f} s of processors. The slowest:")
    for name in sorted(spent, key=spent.__getitem__)[:-6:-1]:
        print(f"{spent[name]:7.1f} s  {name}")
    return found


def chosen(cases: dict[str, Any] | list[Case], pattern: str | None) -> Any:
    """Return the cases whose name fits a pattern, or holds it."""
    if pattern is None:
        return cases
    wild = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    if isinstance(cases, dict):
        return {name: each for name, each in cases.items() if fnmatch.fnmatchcase(name, wild)}
    return [case for case in cases if fnmatch.fnmatchcase(case.name, wild)]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="JSON", help="write the results here")
    parser.add_argument("--read", type=Path, metavar="JSON", help="results to compare; run nothing")
    parser.add_argument("--compare", type=Path, metavar="JSON", help="earlier results; exit code 1 "
                        "if a result differs or is missing")  # fmt: skip
    parser.add_argument("--only", metavar="PATTERN", help="cases whose name holds this, or fits it")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the arrays, so that "
                        "--compare says how far they differ")  # fmt: skip
    parser.add_argument("--words", action="store_true", help="print texts that differ as well")
    parser.add_argument("--list", action="store_true", help="list the cases; run nothing")
    args = parser.parse_args()

    if args.list:
        print(*(case.name for case in chosen(list(all_cases()), args.only)), sep="\n")
        return 0
    if args.read is not None:
        new = json.loads(args.read.read_text())
    else:
        warnings.simplefilter("ignore")
        if args.keep is not None:
            args.keep.mkdir(parents=True, exist_ok=True)
        about = {
            "device": str(gd.choose()),
            "cpu": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "arrays": None if args.keep is None else str(args.keep.resolve()),
        }
        new = {"about": about, "cases": record(chosen(list(all_cases()), args.only), args.keep)}
        if args.output is not None:
            args.output.write_text(json.dumps(new, indent=1))
    if args.compare is None:
        return 0
    old = json.loads(args.compare.read_text())
    for each in (old, new):
        each["cases"] = chosen(each["cases"], args.only)
    return 0 if compare(old, new, words=args.words) else 1


if __name__ == "__main__":
    sys.exit(main())
