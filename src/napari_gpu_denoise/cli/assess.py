"""How good a result is, on the command line: ``gpu-denoise assess``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari_gpu_denoise import errors
from napari_gpu_denoise.cli.arguments import (
    add_axes,
    add_inputs,
    add_json,
    add_noise,
    add_run,
    add_settings,
)
from napari_gpu_denoise.cli.commands import chosen_settings, named_noise, sigma_map
from napari_gpu_denoise.cli.failures import complain, exit_code, on_command_line, sentence

if TYPE_CHECKING:
    from napari_gpu_denoise.assessment.record import Assessment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a command for each filter."""
    from napari_gpu_denoise.filters import FILTERS

    added = parser.add_subparsers(title="filters", metavar="FILTER", required=True)
    for settings in FILTERS:
        each = added.add_parser(
            settings.name.replace("_", "-"),
            help=settings.summary,
            description=f"Estimate the quality of a result, without writing it: {settings.summary}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_inputs(each)
        add_noise(each)
        add_axes(each)
        add_run(each)
        each.add_argument(
            "--region",
            type=_region,
            metavar="PLACES",
            help="region to assess: a range or a number for each axis, or ranges of Y and X, such "
            "as 0:512,100:612 (default: the middle)",
        )
        each.add_argument(
            "--pixel-size",
            type=float,
            metavar="NUMBER",
            help="pixel size (default: the voxel size in the file)",
        )
        each.add_argument("--unit", default="", help="unit of --pixel-size, such as um")
        each.add_argument(
            "--report",
            metavar="FILE",
            help="also write a report: .html with pictures, .json, or .txt; for one input only",
        )
        each.add_argument("--overwrite", action="store_true", help="replace an existing report")
        add_json(each)
        add_settings(each, settings)
        each.set_defaults(run=assess, settings=settings)


def assess(args: argparse.Namespace) -> int:
    """Assess the result for each input."""
    from napari_gpu_denoise.assessment.report import check_report_name, report_text
    from napari_gpu_denoise.files.inputs import find_files
    from napari_gpu_denoise.files.output import check_output, new_file

    settings, paths = chosen_settings(args), find_files(args.inputs)
    sigma = args.sigma if args.sigma_map is None else sigma_map(args.sigma_map)
    noise = args.noise if args.noise is None else named_noise(args.noise)
    if args.report is not None:
        if len(paths) > 1:
            raise errors.OutputError(
                f"--report {args.report} is a single file, but there are {len(paths)} "
                "inputs: give one input."
            )
        check_report_name(args.report)
        check_output(args.report, overwrite=args.overwrite, keep=())
    codes, found = [], []
    for path in paths:
        try:
            made = _assessed(path, settings, sigma, noise, args)
        except errors.DenoiseError as error:
            codes.append(exit_code(error))  # not the error: its traceback holds the pixels
            complain(sentence(error, path))
            continue
        found.append({"input": str(path), **made.as_dict()})
        if not args.json:
            print(path)
            print("\n".join(f"  {line}" for line in made.summary(_said).splitlines()))
        if args.report is not None:
            with new_file(args.report, overwrite=args.overwrite) as file:
                file.write(report_text(args.report, made, str(path), _said).encode())
    if args.json:
        print(json.dumps(found, indent=2))
    return codes[0] if codes else 0


def _said(note: Any) -> str:
    return on_command_line(note)


def _assessed(path: Path, settings: Any, sigma: Any, noise: Any, args: Any) -> Assessment:
    from napari_gpu_denoise.assessment.assess import assess as judge
    from napari_gpu_denoise.files import formats
    from napari_gpu_denoise.files.one_file import with_voxel
    from napari_gpu_denoise.image.levels import check_numbers

    with formats.open_stack(path, companions_anywhere=args.companions_anywhere) as picture:
        check_numbers(picture.data)
        axes = args.axes or picture.filter_axes
        spacing, unit = args.pixel_size, args.unit
        if spacing is None and picture.voxel is not None:
            spacing, unit = picture.voxel[1:], picture.voxel_unit
        # Of a file that is not read by plane, one plane is all of it.
        data = picture.data
        by_plane = data.reads_by_plane(axes.upper().index("Y"), axes.upper().index("X"))
        pixels = picture.pixels if by_plane else picture.loaded().pixels
        return judge(
            pixels,
            with_voxel(settings, picture),
            sigma,
            noise=noise,
            axes=axes,
            region=args.region,
            spacing=spacing,
            unit=unit,
            nonfinite=args.nonfinite,
            correct=args.correct,
            sigma_factor=args.sigma_factor,
            device=args.device,
            memory_limit=args.memory_limit,
        )


def _region(text: str) -> tuple[Any, ...]:
    try:
        return tuple(_place(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a region: give ranges and numbers, such as 0:512,100:612"
        ) from None


def _place(text: str) -> Any:
    ends = [int(part) if part.strip() else None for part in text.split(":")]
    if len(ends) > 2 or (len(ends) == 1 and ends[0] is None):
        raise ValueError(text)
    return slice(*ends) if len(ends) == 2 else ends[0]
