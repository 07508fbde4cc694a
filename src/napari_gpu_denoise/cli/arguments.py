"""The options of every command; those of the filters come from their settings dataclasses."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from napari_gpu_denoise.cli import commands, noise
from napari_gpu_denoise.cli.failures import EXIT_TEXTS
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.run.settings import number_of_bytes


def package_version() -> str:
    """Return the version of this package, without importing NumPy or any of its modules."""
    try:
        return version("napari-gpu-denoise")
    except PackageNotFoundError:
        return "unknown"


def build_parser(argv: list[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands; the namespace it makes holds ``run``, the command.

    A command that is not in `argv` may be listed without its options.
    """
    from napari_gpu_denoise.filters import FILTERS
    from napari_gpu_denoise.noise.models import choices

    codes = "\n".join(f"  {code:3}  {text}" for code, text in EXIT_TEXTS)
    parser = argparse.ArgumentParser(
        prog="gpu-denoise",
        description="Denoise TIFF and NIfTI images, volumes and time-lapses on any OpenCL device.",
        epilog=f"exit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpu-denoise {package_version()}")
    added = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for settings in FILTERS:
        _add_filter(added, settings)

    devices = added.add_parser("devices", help="list the OpenCL devices and say which is used")
    _add_json(devices)
    devices.set_defaults(run=commands.devices)

    estimate = added.add_parser("estimate", help="measure the noise of images")
    _add_inputs(estimate)
    _add_axes(estimate)
    estimate.add_argument(
        "--model",
        choices=choices(),
        default="auto",
        help="kind of noise; default: auto, which chooses and says why",
    )
    _add_json(estimate)
    estimate.set_defaults(run=noise.estimate)

    sample = added.add_parser("sample", help="write a noisy sample stack as TIFF")
    sample.add_argument("name", nargs="?", help="sample to write; without a name, list the samples")
    sample.add_argument(
        "-o", "--output", metavar="OUT", help="file or folder to write; default: this folder"
    )
    sample.add_argument("--overwrite", action="store_true", help="replace a file of that name")
    sample.set_defaults(run=commands.sample)

    bench = added.add_parser("bench", help="time the filters on a device")
    if "bench" in argv:
        from napari_gpu_denoise.cli import bench as benchmark

        benchmark.add_arguments(bench)
        bench.set_defaults(run=benchmark.run)
    return parser


def _add_filter(added: Any, settings: type) -> None:
    from napari_gpu_denoise.noise.models import choices

    parser = added.add_parser(
        settings.name.replace("_", "-"),
        help=settings.summary,
        description=settings.summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit codes: see gpu-denoise --help.",
    )
    _add_inputs(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        help="file for one input, of its format; folder for several (created if necessary)",
    )
    sigma = parser.add_mutually_exclusive_group()
    sigma.add_argument(
        "--sigma",
        type=_sigma,
        default=None,
        metavar="auto|NUMBER[,NUMBER...]",
        help="noise standard deviation in grey levels of the input, one value or one for each "
        "channel (default: auto, which is --noise auto)",
    )
    sigma.add_argument(
        "--sigma-map",
        metavar="FILE",
        help="the same for each pixel: a file of the height and width of the inputs",
    )
    parser.add_argument(
        "--noise",
        metavar="MODEL|FILE",
        help=f"noise model, measured in each file: {', '.join(choices())}; or a file that "
        "'gpu-denoise estimate --json' wrote, whose first estimate is used for all (default: "
        "auto, which chooses the model; --sigma takes precedence)",
    )
    _add_axes(parser)
    parser.add_argument(
        "--dtype",
        default="auto",
        metavar="TYPE",
        help="type of the results: same (that of the input), float32 (keeps fractions), uint16, "
        "...; auto is same, or float32 where rounding would cost quality (default: auto)",
    )
    parser.add_argument(
        "--nonfinite",
        choices=("raise", "keep"),
        default="raise",
        help="refuse NaN and infinity, or keep them in place (default: raise)",
    )
    parser.add_argument(
        "--correct",
        choices=("stripes", "outliers", "found"),
        help="structured noise to remove first, where it is found: stripes (rows and columns with "
        "offsets of their own, hum), outliers (hot and dead pixels), or both (default: nothing)",
    )
    parser.add_argument(
        "--device",
        metavar="N|NAME",
        help="number or part of the name (see 'gpu-denoise devices'), gpu or cpu; several, as 0,1; "
        "or all of the best kind (default: the best)",
    )
    parser.add_argument(
        "--memory-limit",
        type=_bytes,
        metavar="SIZE",
        help="largest device memory to use, such as 512M or 2G (default: what the device allows)",
    )
    parser.add_argument(
        "--companions-anywhere",
        action="store_true",
        help="read the other files of an OME-TIFF set wherever they are, not only beside the input",
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument(
        "--overwrite",
        action="store_true",
        help="replace existing results (default: skip these files)",
    )
    existing.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted batch: keep results made with the same settings",
    )
    parser.add_argument("--stop-on-error", action="store_true", help="stop at the first failure")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    _add_json(parser)
    _add_profiles(parser, settings)
    groups = {
        False: parser.add_argument_group("settings of the filter"),
        True: parser.add_argument_group("advanced settings of the filter"),
    }
    for spec in dataclasses.fields(settings):
        _add_setting(groups[spec.metadata["advanced"]], spec)
    parser.set_defaults(run=commands.denoise, settings=settings)


def _add_profiles(parser: argparse.ArgumentParser, settings: type) -> None:
    """Add ``--profile`` and a list of the profiles, where there is more than one."""
    default = next(iter(settings.presets))
    if len(settings.presets) == 1:
        parser.set_defaults(profile=default)
        return
    width = max(map(len, settings.presets))
    lines = []
    for name, changes in settings.presets.items():
        changed = " ".join(f"{_option(field)}={value}" for field, value in changes.items())
        lines += textwrap.wrap(
            f"{name:{width}}  {changed or 'the defaults below'}",
            76,
            subsequent_indent=" " * (width + 2),
            break_on_hyphens=False,
        )
    group = parser.add_argument_group("profiles", "\n".join(lines))
    group.add_argument(
        "--profile",
        choices=tuple(settings.presets),
        default=default,
        help=f"settings to start from; other options override them (default: {default})",
    )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add_setting(group: Any, spec: dataclasses.Field) -> None:
    """Add a field of a settings dataclass as an option; the dataclass checks its bounds.

    An option not given stays out of the namespace, since a profile may have another default.
    """
    option = _option(spec.name)
    kind, about = type(spec.default), spec.metadata
    parts = [f"default {spec.default}"]
    if about["bounds"] is not None:
        parts.insert(0, "{:g} to {:g}".format(*about["bounds"]))
    if about["unit"]:
        parts.insert(0, about["unit"])
    text = f"{about['help']} [{', '.join(parts)}]".replace("%", "%%")
    if kind is bool:
        action = argparse.BooleanOptionalAction
        group.add_argument(option, action=action, default=argparse.SUPPRESS, help=text)
    else:
        shown = "|".join(map(str, about["choices"])) if about["choices"] else kind.__name__.upper()
        group.add_argument(option, type=kind, default=argparse.SUPPRESS, metavar=shown, help=text)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="IN",
        help="TIFF or NIfTI files, patterns such as 'raw/*.tif', folders",
    )


def _add_axes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--axes",
        metavar="AXES",
        help="one letter per axis, such as TZYX, of T Z Y X C S; others are independent "
        "(default: as in the file)",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _sigma(text: str) -> list[float] | None:
    if text.strip().lower() == "auto":
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not auto, a number, or numbers separated by commas"
        ) from None


def _bytes(text: str) -> int:
    try:
        return number_of_bytes(text)
    except SettingsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
