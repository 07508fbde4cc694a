"""The command ``gpu-denoise bench``."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path

from napari_gpu_denoise.cli.bench import report
from napari_gpu_denoise.cli.bench.record import Speed, as_dict, measure_all, read
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.files.output import check_output, new_file
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.device import choose
from napari_gpu_denoise.protocol.filter import Filter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gpu-denoise bench`` to a parser."""
    names = [cls.name.replace("_", "-") for cls in FILTERS]
    parser.add_argument(
        "--filter",
        choices=names,
        action="append",
        help="filter to time in detail; can be repeated (default: one line for every filter)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="change a setting of the filter, such as patch=5; can be repeated",
    )
    parser.add_argument(
        "--shape",
        default="512x512",
        help="shape of the input, YxX, PLANESxYxX or TxZxYxX (default 512x512)",
    )
    parser.add_argument(
        "--frames", type=int, help="frames of the stack (default: about half a second of work)"
    )
    parser.add_argument(
        "--first",
        action="store_true",
        help="also time first calls in new processes: with an empty cache, and with kernels cached",
    )
    parser.add_argument("--device", default=None, help="number or name of the device")
    parser.add_argument(
        "--repeats", type=int, default=5, help="maximum number of runs for a median"
    )
    parser.add_argument("--save", metavar="FILE", type=Path, help="store the run, as JSON")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    parser.add_argument("--compare", metavar="FILE", type=Path, help="compare with a stored run")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run ``gpu-denoise bench``."""
    shape = _shape(args)
    changes = dict(item.split("=", 1) if "=" in item else (item, "") for item in args.set)
    kinds = [k for k in FILTERS if args.filter is None or k.name.replace("_", "-") in args.filter]
    chosen = [_settings(kind, changes) for kind in kinds]
    stored = read(args.compare) if args.compare else None
    if args.save:
        check_output(args.save, overwrite=args.overwrite, keep=())
    device = choose(args.device)
    if not args.json:
        print(report.heading(device, args.repeats))
        if args.filter is None:
            print(report.summary_head(args.first))
    speeds: list[Speed] = []
    for settings in chosen:
        speeds.append(
            measure_all(settings, shape, device, args.repeats, frames=args.frames, first=args.first)
        )
        if not args.json:
            words = report.summary_row if args.filter is None else report.details
            print(words(speeds[-1]), flush=True)
    text = json.dumps(as_dict(device, speeds), indent=2)
    if args.json:
        print(text)
    elif stored:
        print(report.compared(speeds, stored, device))
    if args.save:
        with new_file(args.save, overwrite=args.overwrite) as file:
            file.write(text.encode("utf-8"))
    return 0


def _shape(args: argparse.Namespace) -> tuple[int, ...]:
    try:
        shape = tuple(int(n) for n in args.shape.lower().split("x"))
    except ValueError:
        shape = ()
    wrong = len(shape) not in (2, 3, 4) or min(shape, default=0) < 1
    if wrong or min(args.repeats, args.frames or 1) < 1:
        raise SettingsError(
            f"--shape {args.shape} --repeats {args.repeats} cannot be timed: give a shape such as "
            "512x512 or 20x512x512, and at least one repeat and frame."
        )
    return shape


def _settings(cls: type[Filter], changes: dict[str, str]) -> Filter:
    """Return settings with changes given as text."""
    kinds = {spec.name: type(spec.default) for spec in fields(cls)}
    typed = {}
    for name, text in changes.items():
        kind = kinds.get(name, str)
        try:
            typed[name] = text.lower() in ("1", "true", "yes") if kind is bool else kind(text)
        except ValueError as error:
            raise SettingsError(f"{name}={text} is not {kind.__name__}: give a number.") from error
    return cls.of(**typed)
