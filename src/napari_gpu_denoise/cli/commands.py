"""The commands. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from napari_gpu_denoise import errors
from napari_gpu_denoise.cli.failures import complain, exit_code, on_command_line, sentence
from napari_gpu_denoise.cli.noise import named_noise, sigma_map


def denoise(args: argparse.Namespace) -> int:
    """Run one filter over all inputs."""
    settings = chosen_settings(args)
    from napari_gpu_denoise.files.batch import is_expected, lines_on, run_batch

    sigma = args.sigma if args.sigma_map is None else sigma_map(args.sigma_map)
    noise = args.noise if args.noise is None else named_noise(args.noise)

    with (
        _interruptible() as cancel,
        _workers(args) as client,
        contextlib.closing(_Bar(args.quiet)) as bar,
    ):
        report = run_batch(
            args.inputs,
            settings,
            sigma,
            noise=noise,
            output=args.output,
            axes=args.axes,
            dtype=args.dtype,
            nonfinite=args.nonfinite,
            correct=args.correct,
            sigma_factor=args.sigma_factor,
            device=args.device,
            memory_limit=args.memory_limit,
            memory_limit_host=args.memory_limit_host,
            overwrite=args.overwrite,
            resume=args.resume,
            companions_anywhere=args.companions_anywhere,
            stop_on_error=args.stop_on_error,
            client=client,
            progress=bar,
            cancel=cancel,
        )
    if args.json:
        print(json.dumps({"profile": settings.profile_name(), **report.as_dict()}, indent=2))
    elif not args.quiet:
        for file in report.done:
            print(*lines_on(file, settings, on_command_line), sep="\n")
    for file in () if args.quiet else report.skipped:
        complain(f"{on_command_line(file.skipped).rstrip('.')}.")
    unexpected = [file.error for file in report.failed if not is_expected(file.error)]
    for file in report.failed:
        named = f"{type(file.error).__name__}: {file.error}"
        complain(sentence(named if file.error in unexpected else file.error, file.input))
        for note in file.notes:
            complain(on_command_line(note))
    for note in report.notes:
        complain(on_command_line(note))
    if unexpected:
        traceback.print_exception(unexpected[0])
        complain("This should not happen: please report it with the lines above.")
    if len(report.files) > 1 and not args.quiet and not args.json:
        print(report.summary)
    if report.cancelled:
        raise KeyboardInterrupt
    if report.failed:
        return exit_code(report.failed[0].error)
    if any(getattr(file.skipped, "code", "") == "exists" for file in report.skipped):
        return exit_code(errors.OutputError())
    if not report.done and not args.resume:
        raise errors.FileError(
            "None of the inputs is a TIFF, NIfTI or OME-Zarr file: nothing was denoised."
        )
    return 0


@contextlib.contextmanager
def _workers(args: argparse.Namespace) -> Iterator[Any]:
    """Yield a client of dask, if its workers are asked for."""
    if args.scheduler is None and args.workers is None:
        yield None
        return
    from napari_gpu_denoise.files.cluster import connected

    with connected(args.scheduler, args.workers or 0, args.device) as client:
        if not args.quiet and client.dashboard_link:
            print(f"gpu-denoise: dask dashboard: {client.dashboard_link}", file=sys.stderr)
        yield client


def chosen_settings(args: argparse.Namespace) -> Any:
    """Return the settings of a filter command: those of the profile, overridden by those given."""
    known = {spec.name for spec in dataclasses.fields(args.settings)}
    given = {name: value for name, value in vars(args).items() if name in known}
    return args.settings.of(profile=args.profile, **given)


def devices(args: argparse.Namespace) -> int:
    """List the OpenCL devices and say which one is used."""
    from napari_gpu_denoise.opencl import device as opencl
    from napari_gpu_denoise.opencl.device_test import forget_answers

    if args.again:
        forget_answers()
    found = opencl.devices()
    chosen, problem = None, None
    try:
        chosen, reason = opencl.choose(), opencl.why()
    except errors.NoDeviceError as error:
        problem, reason = error, str(error)
    if args.json:
        plain = [
            {f.name: getattr(d, f.name) for f in dataclasses.fields(d) if f.name != "handle"}
            for d in found
        ]
        drivers = [
            {"name": p.name, "version": p.version, "devices": [d.index for d in p.devices]}
            for p in opencl.platforms()
        ]
        used = None if chosen is None else chosen.index
        report = {"platforms": drivers, "devices": plain, "used": used, "why": reason}
        print(json.dumps({**report, "advice": opencl.ADVICE}, indent=2))
    else:
        for platform in opencl.platforms():
            print(f"{platform.name} ({platform.version})")
            for device in platform.devices:
                memory, largest = device.memory / 2**30, device.max_alloc / 2**30
                print(f"{'*' if device == chosen else ' '} {device.index:2}  {device.name}")
                print(
                    f"      {device.kind}, {memory:.1f} GiB (largest buffer {largest:.1f} GiB), "
                    f"{device.compute_units} compute units, {device.version}"
                )
                if device.problem:
                    print(f"      not usable: {device.problem}")
            if not platform.devices:
                print("      no usable device")
        if problem is None:
            print(f"* {reason}")
    if problem is not None:
        complain(problem)
        return exit_code(problem)
    return 0


def sample(args: argparse.Namespace) -> int:
    """Write a sample stack, or list them."""
    from napari_gpu_denoise.files import samples
    from napari_gpu_denoise.files.output import new_file

    if args.name is None:
        for name in samples.names():
            print(f"{name:14}  {samples.title(name)}")
        return 0
    source = samples.path(args.name)
    target = args.output or source.name
    if os.path.isdir(target):
        target = os.path.join(target, source.name)
    with (
        open(source, "rb") as original,
        new_file(target, overwrite=args.overwrite, keep=[source]) as file,
    ):
        shutil.copyfileobj(original, file)
    print(f"{target}: {samples.title(args.name)}")
    return 0


class _Bar:
    """A progress bar, shown on a terminal only."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = None

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, state: Any) -> None:
        if not self._shown or not state.total:
            return
        if self._bar is None:
            from tqdm import tqdm

            options = {"unit": "part", "leave": False, "dynamic_ncols": True, "mininterval": 0}
            self._bar = tqdm(total=state.total, **options)
        if state.done == 0:
            number = f" ({state.index + 1}/{state.count})" if state.count > 1 else ""
            name = "files" if state.unit == "file" else f"{state.path.name}{number}"
            self._bar.set_description(name, refresh=False)
            self._bar.reset(total=state.total)
        self._bar.update(state.done - self._bar.n)


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; the second stops at once."""
    cancel = threading.Event()

    def stop(number: int, _: object) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    if threading.current_thread() is not threading.main_thread():
        yield cancel  # signals belong to the main thread
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancel
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
