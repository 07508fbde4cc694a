"""The options of every command; those of the filters come from their settings dataclasses."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from napari_gpu_denoise.cli import commands
from napari_gpu_denoise.cli.failures import EXIT_TEXTS
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.protocol.settings import checked_factor, number_of_bytes
from napari_gpu_denoise.version import package_version

if TYPE_CHECKING:
    from napari_gpu_denoise.protocol.filter import Filter


def add_noise(parser: argparse.ArgumentParser) -> None:
    """Add the options for the noise."""
    from napari_gpu_denoise.noise.models import choices

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
        help=(
            "noise standard deviation at each pixel: a file with the height and width of the inputs"
        ),
    )
    parser.add_argument(
        "--noise",
        metavar="MODEL|FILE",
        help=f"noise model, measured in each file: {', '.join(choices())}; or a file written by "
        "'gpu-denoise estimate --json', whose first estimate is used for all (default: auto, "
        "which chooses the model; --sigma takes precedence)",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options for pixels, devices and memory."""
    parser.add_argument(
        "--nonfinite",
        choices=("raise", "keep"),
        default="raise",
        help="reject NaN and infinity, or keep them in place (default: raise)",
    )
    parser.add_argument(
        "--correct",
        choices=("stripes", "outliers", "found"),
        help="structured noise to remove first, if found: stripes (offsets of rows and columns, "
        "hum), outliers (hot and dead pixels), or both (default: nothing)",
    )
    parser.add_argument(
        "--sigma-factor",
        type=_checked(checked_factor),
        default=1.0,
        metavar="NUMBER",
        help="strength: multiplies the given or measured sigma; values above 1 remove more "
        "(default: 1, best if sigma is right)",
    )
    add_device(parser)
    parser.add_argument(
        "--memory-limit",
        type=_checked(number_of_bytes),
        metavar="SIZE",
        help="maximum device memory, such as 512M or 2G (default: what the device allows)",
    )
    parser.add_argument(
        "--companions-anywhere",
        action="store_true",
        help="read the other files of an OME-TIFF set, and what links in an OME-Zarr lead to, "
        "wherever they are, not only beside or in the input",
    )


def add_host_memory(parser: argparse.ArgumentParser) -> None:
    """Add the option for the memory of the machine."""
    parser.add_argument(
        "--memory-limit-host",
        type=_checked(number_of_bytes),
        metavar="SIZE",
        help="maximum main memory, including the program itself, such as 2G (default: the parts of "
        "large files take a quarter of the free memory)",
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the option for the device."""
    parser.add_argument(
        "--device",
        metavar="N|NAME",
        help="number or part of the name (see 'gpu-denoise devices'), gpu or cpu; several, such as "
        "0,1; or all, for all devices of the best one's kind (default: the best)",
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options for dask workers."""
    workers = parser.add_mutually_exclusive_group()
    workers.add_argument(
        "--workers",
        type=whole_number,
        metavar="N",
        help="number of processes on this machine that share the parts of large files, and small "
        "files one each; they take the devices in turn (default: none)",
    )
    workers.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="share the work among the workers of this dask scheduler, such as tcp://login1:8786",
    )


def add_settings(parser: argparse.ArgumentParser, settings: type) -> None:
    """Add the profiles and the settings of a filter."""
    _add_profiles(parser, settings)
    groups = {
        False: parser.add_argument_group("settings of the filter"),
        True: parser.add_argument_group("advanced settings of the filter"),
    }
    for spec in dataclasses.fields(settings):
        _add_setting(groups[spec.metadata["advanced"]], spec)


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


def add_filters(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the options for the filters of a command that works on several, and for its device."""
    from napari_gpu_denoise.filters import FILTERS

    names = [kind.name.replace("_", "-") for kind in FILTERS]
    parser.add_argument("--filter", choices=names, action="append", help=about)
    parser.add_argument("--device", help="number or name of the device")


def chosen_filters(args: argparse.Namespace) -> list[type[Filter]]:
    """Return the filters that are named, by default all."""
    from napari_gpu_denoise.filters import FILTERS

    wanted = args.filter
    return [k for k in FILTERS if wanted is None or k.name.replace("_", "-") in wanted]


def add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="IN",
        help="TIFF, NIfTI or OME-Zarr files, patterns such as 'raw/*.tif', folders",
    )


def add_axes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--axes",
        metavar="AXES",
        help="one letter per axis, such as TZYX, of T Z Y X C S; others are independent "
        "(default: as in the file)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
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


def whole_number(text: str) -> int:
    """Return the number of at least 1 that a text is; a type of argparse."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _checked(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a check of a setting as a type of argparse."""

    def parse(text: str) -> Any:
        try:
            return check(text)
        except SettingsError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def build_parser(argv: list[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands; the namespace it makes holds ``run``, the command.

    A command that is not in `argv` may be left out, or be without its options.
    """
    from napari_gpu_denoise.filters import filters_for
    from napari_gpu_denoise.noise.models import choices

    codes = "\n".join(f"  {code:3}  {text}" for code, text in EXIT_TEXTS)
    parser = argparse.ArgumentParser(
        prog="gpu-denoise",
        description="Denoise TIFF, NIfTI and OME-Zarr images, volumes and time-lapses on any "
        "OpenCL device.",
        epilog=f"exit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpu-denoise {package_version()}")
    added = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    # Of filters, one that is named is the only one needed.
    for settings in filters_for("".join(argv[:1]).replace("-", "_")):
        _add_filter(added, settings)

    devices = added.add_parser("devices", help="list the OpenCL devices and show which one is used")
    devices.add_argument(
        "--again", action="store_true", help="test all devices, even those tested before"
    )
    add_json(devices)
    devices.set_defaults(run=commands.devices)

    estimate = added.add_parser("estimate", help="measure the noise of images")
    add_inputs(estimate)
    add_axes(estimate)
    estimate.add_argument(
        "--model",
        choices=choices(),
        default="auto",
        help="noise model; default: auto, which chooses one and gives the reason",
    )
    add_json(estimate)
    estimate.set_defaults(run=commands.estimate)

    advice = added.add_parser("recommend", help="recommend a filter for images, with the reason")
    add_inputs(advice)
    add_axes(advice)
    add_device(advice)
    add_json(advice)
    advice.add_argument(
        "--effort",
        choices=("fast", "normal", "high"),
        help="profile to recommend; default: normal, or fast if that would take too long",
    )
    advice.set_defaults(run=commands.recommend)

    sample = added.add_parser("sample", help="write a noisy sample stack as TIFF")
    sample.add_argument("name", nargs="?", help="sample to write; without a name, list the samples")
    sample.add_argument(
        "-o", "--output", metavar="OUT", help="file or folder to write; default: this folder"
    )
    sample.add_argument("--overwrite", action="store_true", help="replace an existing file")
    sample.set_defaults(run=commands.sample)

    judge = added.add_parser("assess", help="estimate the quality of a filter's result")
    if "assess" in argv:
        _add_assess(judge)

    bench = added.add_parser("bench", help="time the filters on a device")
    if "bench" in argv:
        from napari_gpu_denoise.cli import bench as benchmark

        benchmark.add_arguments(bench)

    warm = added.add_parser(
        "warm", help="compile all kernels in advance, so that first calls do not wait"
    )
    if "warm" in argv:
        from napari_gpu_denoise.cli import warm as warming

        warming.add_arguments(warm)
    return parser


def _add_assess(parser: argparse.ArgumentParser) -> None:
    """Add a command for each filter to ``gpu-denoise assess``."""
    from napari_gpu_denoise.filters import FILTERS

    added = parser.add_subparsers(title="filters", metavar="FILTER", required=True)
    for settings in FILTERS:
        about = f"Estimate the quality of a result, without writing it: {settings.summary}"
        each = _add_run_parser(added, settings, about)
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
        add_settings(each, settings)
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
    add_inputs(parser)
    add_noise(parser)
    add_axes(parser)
    add_run(parser)
    add_json(parser)
    return parser


def _add_filter(added: Any, settings: type) -> None:
    parser = _add_run_parser(added, settings, settings.summary)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        help="file for one input, in its format; folder for several inputs (created if necessary)",
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        metavar="TYPE",
        help="data type of the results: same (as the input), float32 (keeps fractions), uint16, "
        "...; auto is same, or float32 where rounding would cost quality (default: auto)",
    )
    add_cluster(parser)
    add_host_memory(parser)
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
    add_settings(parser, settings)
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
