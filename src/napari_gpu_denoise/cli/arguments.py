"""The options of every command; those of the filters come from their settings dataclasses."""

from __future__ import annotations

import argparse
from typing import Any

from napari_gpu_denoise.cli import commands, noise, recommend
from napari_gpu_denoise.cli.failures import EXIT_TEXTS
from napari_gpu_denoise.cli.options import (
    add_axes,
    add_cluster,
    add_device,
    add_host_memory,
    add_inputs,
    add_json,
    add_noise,
    add_run,
    add_settings,
)
from napari_gpu_denoise.version import package_version


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
    estimate.set_defaults(run=noise.estimate)

    advice = added.add_parser("recommend", help="recommend a filter for images, with the reason")
    add_inputs(advice)
    add_axes(advice)
    add_device(advice)
    add_json(advice)
    recommend.add_arguments(advice)

    sample = added.add_parser("sample", help="write a noisy sample stack as TIFF")
    sample.add_argument("name", nargs="?", help="sample to write; without a name, list the samples")
    sample.add_argument(
        "-o", "--output", metavar="OUT", help="file or folder to write; default: this folder"
    )
    sample.add_argument("--overwrite", action="store_true", help="replace an existing file")
    sample.set_defaults(run=commands.sample)

    judge = added.add_parser("assess", help="estimate the quality of a filter's result")
    if "assess" in argv:
        from napari_gpu_denoise.cli import assess

        assess.add_arguments(judge)

    bench = added.add_parser("bench", help="time the filters on a device")
    if "bench" in argv:
        from napari_gpu_denoise.cli import bench as benchmark

        benchmark.add_arguments(bench)
        bench.set_defaults(run=benchmark.run)

    warm = added.add_parser(
        "warm", help="compile all kernels in advance, so that first calls do not wait"
    )
    if "warm" in argv:
        from napari_gpu_denoise.cli import warm as warming

        warming.add_arguments(warm)
        warm.set_defaults(run=warming.run)
    return parser


def _add_filter(added: Any, settings: type) -> None:
    parser = added.add_parser(
        settings.name.replace("_", "-"),
        help=settings.summary,
        description=settings.summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit codes: see gpu-denoise --help.",
    )
    add_inputs(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        help="file for one input, in its format; folder for several inputs (created if necessary)",
    )
    add_noise(parser)
    add_axes(parser)
    parser.add_argument(
        "--dtype",
        default="auto",
        metavar="TYPE",
        help="data type of the results: same (as the input), float32 (keeps fractions), uint16, "
        "...; auto is same, or float32 where rounding would cost quality (default: auto)",
    )
    add_run(parser)
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
    add_json(parser)
    add_settings(parser, settings)
    parser.set_defaults(run=commands.denoise, settings=settings)
