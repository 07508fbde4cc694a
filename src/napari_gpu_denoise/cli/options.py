"""The options that commands share; those of the filters come from their settings dataclasses."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from collections.abc import Callable
from typing import Any

from napari_gpu_denoise.cli.failures import on_command_line
from napari_gpu_denoise.files import FORMAT_NAMES
from napari_gpu_denoise.noise.models import choices
from napari_gpu_denoise.protocol.settings import checked_factor, number_of_bytes, setting_fields


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
        except ValueError as error:
            raise argparse.ArgumentTypeError(on_command_line(error)) from None

    return parse


#: What argparse is told of the options that commands share.
OPTIONS: dict[str, dict[str, Any]] = {
    "inputs": {
        "nargs": "+",
        "metavar": "IN",
        "help": f"{FORMAT_NAMES} files, patterns such as 'raw/*.tif', folders",
    },
    "--sigma": {
        "type": _sigma,
        "metavar": "auto|NUMBER[,NUMBER...]",
        "help": "noise standard deviation in grey levels of the input, one value or one for each "
        "channel (default: auto, which is --noise auto)",
    },
    "--sigma-map": {
        "metavar": "FILE",
        "help": "noise standard deviation at each pixel: a file with the height and width of the "
        "inputs",
    },
    "--noise": {
        "metavar": "MODEL|FILE",
        "help": f"noise model, measured in each file: {', '.join(choices())}; or a file written by "
        "'gpu-denoise estimate --json', whose first estimate is used for all (default: auto, "
        "which chooses the model; --sigma takes precedence)",
    },
    "--axes": {
        "metavar": "AXES",
        "help": "one letter per axis, such as TZYX, of T Z Y X C S; others are independent "
        "(default: as in the file)",
    },
    "--nonfinite": {
        "choices": ("raise", "keep"),
        "default": "raise",
        "help": "reject NaN and infinity, or keep them in place (default: raise)",
    },
    "--correct": {
        "choices": ("stripes", "outliers", "found"),
        "help": "structured noise to remove first, if found: stripes (offsets of rows and columns, "
        "hum), outliers (hot and dead pixels), or both (default: nothing)",
    },
    "--sigma-factor": {
        "type": _checked(lambda text: checked_factor(float(text))),
        "default": 1.0,
        "metavar": "NUMBER",
        "help": "strength: multiplies the given or measured sigma; values above 1 remove more "
        "(default: 1, best if sigma is right)",
    },
    "--device": {
        "metavar": "N|NAME",
        "help": "number or part of the name (see 'gpu-denoise devices'), gpu or cpu; several, such "
        "as 0,1; or all, for all devices of the best one's kind (default: the best)",
    },
    "--memory-limit": {
        "type": _checked(number_of_bytes),
        "metavar": "SIZE",
        "help": "maximum device memory, such as 512M or 2G (default: what the device allows)",
    },
    "--companions-anywhere": {
        "action": "store_true",
        "help": "read the other files of an OME-TIFF set, and what links in OME-Zarr, DICOM lead "
        "to, wherever they are, not only beside or in the input",
    },
    "--json": {"action": "store_true", "help": "print the report as JSON"},
    "--workers": {
        "type": whole_number,
        "metavar": "N",
        "help": "number of processes on this machine that share the parts of large files, and "
        "small files one each, if that is quicker; they take the devices in turn (default: none)",
    },
    "--scheduler": {
        "metavar": "ADDRESS",
        "help": "share the work among the workers of this dask scheduler, such as "
        "tcp://login1:8786",
    },
    "--memory-limit-host": {
        "type": _checked(number_of_bytes),
        "metavar": "SIZE",
        "help": "maximum main memory, including the program itself, such as 2G (default: the parts "
        "of large files take a quarter of the free memory)",
    },
}


def add(parser: Any, *names: str) -> None:
    """Add some of these options to a parser, or to a group of one."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name])


def add_settings(parser: argparse.ArgumentParser, settings: type) -> None:
    """Add the profiles and the settings of a filter."""
    _add_profiles(parser, settings)
    groups = {
        False: parser.add_argument_group("settings of the filter"),
        True: parser.add_argument_group("advanced settings of the filter"),
    }
    for spec in setting_fields(settings):
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
