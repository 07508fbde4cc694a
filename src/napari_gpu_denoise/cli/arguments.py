"""The parser of the command line, with the commands."""

from __future__ import annotations

import argparse
from typing import Any

from napari_gpu_denoise.cli import commands, options
from napari_gpu_denoise.cli.failures import EXIT_TEXTS
from napari_gpu_denoise.files import FORMAT_NAMES
from napari_gpu_denoise.noise.models import choices
from napari_gpu_denoise.version import package_version


def build_parser(argv: list[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands; the namespace it makes holds ``run``, the command.

    A command that is not in `argv` may be left out, or be without its options.
    """
    from napari_gpu_denoise.files.recommended import Recommended
    from napari_gpu_denoise.filters import filters_for
    from napari_gpu_denoise.measurements.subspace import Subspace

    codes = "\n".join(f"  {code:3}  {text}" for code, text in EXIT_TEXTS)
    parser = argparse.ArgumentParser(
        prog="gpu-denoise",
        description=f"Denoise {FORMAT_NAMES} images, volumes and time-lapses on any OpenCL device.",
        epilog=f"exit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpu-denoise {package_version()}")
    added = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    # Of filters, one that is named is the only one needed.
    named = "".join(argv[:1]).replace("-", "_")
    made_of_filters = {kind.name: kind for kind in (Recommended, Subspace)}
    kinds = (made_of_filters[named],) if named in made_of_filters else filters_for(named)
    for settings in kinds if len(kinds) == 1 else (*made_of_filters.values(), *kinds):
        _add_filter(added, settings)

    devices = added.add_parser("devices", help="list the OpenCL devices and show which one is used")
    devices.add_argument(
        "--again", action="store_true", help="test all devices, even those tested before"
    )
    options.add(devices, "--json")
    devices.set_defaults(run=commands.devices)

    estimate = added.add_parser("estimate", help="measure the noise of images")
    options.add(estimate, "inputs", "--axes", "--json")
    estimate.add_argument(
        "--model",
        choices=choices(),
        default="auto",
        help="noise model; default: auto, which chooses one and gives the reason",
    )
    estimate.set_defaults(run=commands.estimate)

    advice = added.add_parser("recommend", help="recommend a filter for images, with the reason")
    options.add(advice, "inputs", "--axes", "--device", "--json")
    advice.add_argument(
        "--effort",
        choices=("fast", "normal", "high", "best"),
        help="profile to recommend; default: normal, or fast if that would take too long",
    )
    advice.set_defaults(run=commands.recommend)

    sample = added.add_parser("sample", help="write a noisy sample stack")
    sample.add_argument("name", nargs="?", help="sample to write; without a name, list the samples")
    sample.add_argument(
        "-o", "--output", metavar="OUT", help="file or folder to write; default: this folder"
    )
    sample.add_argument("--overwrite", action="store_true", help="replace an existing file")
    sample.set_defaults(run=commands.sample)

    judge = added.add_parser("assess", help="estimate the quality of a filter's result")
    if "assess" in argv:
        _add_assess(judge, "".join(argv[1:2]) if argv[0] == "assess" else "")
    return parser


def _add_assess(parser: argparse.ArgumentParser, named: str) -> None:
    """Add a command for each filter, or the one that is named, to ``gpu-denoise assess``."""
    from napari_gpu_denoise.filters import filters_for

    added = parser.add_subparsers(title="filters", metavar="FILTER", required=True)
    for settings in filters_for(named.replace("-", "_")):
        about = f"Estimate the quality of a result, without writing it: {settings.summary}"
        each = _add_run_parser(added, settings, about)
        each.add_argument(
            "--region",
            type=_region,
            metavar="PLACES",
            help="region to assess: a range or a number for each axis, or ranges of Y and X, such "
            "as 0:512,100:612 (default: the middle)",
        )
        options.add_settings(each, settings)
        each.set_defaults(run=commands.assess)


def _add_run_parser(added: Any, settings: type, about: str) -> argparse.ArgumentParser:
    """Add a command that runs a filter on inputs, with the options that all of these have."""
    parser = added.add_parser(
        settings.name.replace("_", "-"),
        help=settings.summary,
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit codes: see gpu-denoise --help.",
    )
    parser.set_defaults(settings=settings)
    options.add(parser, "inputs")
    options.add(parser.add_mutually_exclusive_group(), "--sigma", "--sigma-map")
    options.add(parser, "--noise", "--axes", "--nonfinite", "--correct", "--sigma-factor")
    options.add(parser, "--device", "--memory-limit", "--companions-anywhere", "--json")
    return parser


def _add_filter(added: Any, settings: type) -> None:
    parser = _add_run_parser(added, settings, settings.summary)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        help="file for one input, named by its format; folder for several (created if necessary)",
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        metavar="TYPE",
        help="data type of the results: same (as the input), float32 (keeps fractions), uint16, "
        "...; auto is same, or float32 where rounding would cost quality (default: auto)",
    )
    options.add(parser.add_mutually_exclusive_group(), "--workers", "--scheduler")
    options.add(parser, "--memory-limit-host")
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument(
        "--overwrite",
        action="store_true",
        help="replace existing results (default: skip these files)",
    )
    existing.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted run: keep results made with the same settings, and the "
        "finished parts of large ones",
    )
    parser.add_argument("--stop-on-error", action="store_true", help="stop at the first failure")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    options.add_settings(parser, settings)
    parser.set_defaults(run=commands.denoise)


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
