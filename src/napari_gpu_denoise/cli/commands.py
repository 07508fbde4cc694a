"""The commands. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari_gpu_denoise import errors
from napari_gpu_denoise.cli.failures import complain, exit_code, lost, on_command_line, sentence
from napari_gpu_denoise.files import FORMAT_NAMES
from napari_gpu_denoise.protocol.settings import setting_fields, size_in_words

if TYPE_CHECKING:
    from napari_gpu_denoise.assessment.recommend import Advice
    from napari_gpu_denoise.files.batch import BatchReport
    from napari_gpu_denoise.files.image_file import ImageFile

HELD = 24  # planes of a channel up to which a file is read whole: an estimate may hold as many


def _report_each(
    args: argparse.Namespace,
    report: Callable[[Path, ImageFile], dict[str, Any]],
    **opening: Any,
) -> int:
    """Report on each input, and its notes; print what `report` returns as JSON, if wanted."""
    from napari_gpu_denoise.files import formats

    codes, records = [], []
    for path in formats.find_files(args.inputs):
        sys.stdout.flush()
        if lost():  # nobody reads on
            break
        try:
            with formats.open_stack(path, **opening) as picture:
                found = report(path, picture)
                if not args.json:
                    for note in picture.notes:
                        print(f"  note        {note}")
                notes = list(map(str, picture.notes))
            records.append({"input": str(path), **found, "file_notes": notes})
        except errors.DenoiseError as error:
            codes.append(exit_code(error))  # not the error: its traceback holds the pixels
            complain(sentence(error, path))
    if args.json:
        print(json.dumps(records, indent=2))
    return codes[0] if codes else 0


def _say(args: argparse.Namespace, title: Any, text: str) -> None:
    """Print a text below its title, unless JSON is wanted."""
    if not args.json:
        print(title, *(f"  {line}" for line in text.splitlines()), sep="\n")


def estimate(args: argparse.Namespace) -> int:
    """Measure the noise of each input."""
    from napari_gpu_denoise.assessment.recommend import recommend as advise
    from napari_gpu_denoise.noise.estimate import estimate_noise

    def report(path: Path, picture: ImageFile) -> dict[str, Any]:
        loaded, names, planes = to_measure(picture, args.axes)
        measured = estimate_noise(loaded.pixels, names, args.model)
        axes = picture.filter_axes if args.axes is None else args.axes
        said = dataclasses.replace(measured, notes=tuple(map(on_command_line, measured.notes)))
        text = f"read        {measured.planes} of {planes} plane{'s' * (planes != 1)}\n"
        text += said.summary()
        if any(measured.sigma) and not args.json:
            with contextlib.suppress(errors.NoDeviceError):
                advice = advise(loaded.pixels, names, noise=measured)
                text += f"\nrecommended {advice.choice}, because {advice.reason}"
        shape = " x ".join(map(str, picture.data.shape))
        _say(args, f"{path} ({axes}, {shape}, {picture.data.dtype})", text)
        return {"axes": axes, **measured.as_dict(), "total_planes": planes}

    return _report_each(args, report)


def to_measure(picture: ImageFile, axes: str | None) -> tuple[ImageFile, str, int]:
    """Return a picture to measure its noise, its axes, and its number of planes.

    Of a large file only the planes are read that an estimate needs. What counts as large does not
    depend on the machine, so that results do not either.
    """
    from napari_gpu_denoise.image.axes import channel_axis, check_axes
    from napari_gpu_denoise.run import request

    shape = picture.pixels.shape
    names = check_axes(picture.filter_axes if axes is None else axes, shape)
    planes = math.prod(n for n, a in zip(shape, names, strict=True) if a not in "YX")
    channel = channel_axis(names)
    many = planes // (1 if channel is None else shape[channel]) > HELD
    large = many and picture.data.nbytes >= request.USUAL_LIMITS.streamed_bytes
    # If the planes are not those of the file, reading one means reading all of it.
    return picture if large and picture.reads_by_plane(names) else picture.loaded(), names, planes


def sigma_map(path: str) -> Any:
    """Read a map of sigma, (y, x)."""
    from napari_gpu_denoise.files import formats
    from napari_gpu_denoise.files.input_checks import read_files

    picture = formats.read(path)
    read_files.update(os.path.abspath(each) for each in (path, *picture.files))
    shape = zip(picture.axes, picture.data.shape, strict=True)
    values = picture.data[tuple(0 if a not in "YX" and n == 1 else slice(None) for a, n in shape)]
    if values.ndim != 2:
        raise errors.SigmaError(
            f"{path} holds {values.shape} pixels ({picture.axes}): give one image with the height "
            "and width of the inputs."
        )
    return values


def named_noise(named: str) -> Any:
    """Return the noise that ``--noise`` names: a model's name, or the first estimate in a file."""
    from napari_gpu_denoise.noise.models import choices

    if named in choices():
        return named
    from napari_gpu_denoise.files.input_checks import read_json
    from napari_gpu_denoise.noise.record import NoiseEstimate

    try:
        content = read_json(named)
        first = content[0] if isinstance(content, list) and content else content
        if not isinstance(first, dict):
            raise ValueError("it holds something else")
    except OSError as error:
        raise errors.FileError(
            f"--noise {named} is neither {', '.join(choices())} nor a file that can be read: "
            f"{error.strerror or error}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise errors.FileError(
            f"{named} is not JSON, or contains no estimate: give the output of 'gpu-denoise "
            "estimate --json'."
        ) from error
    estimate = NoiseEstimate.from_dict(first)
    # How its planes and places differ says nothing of those of other files.
    return dataclasses.replace(estimate, frames=None, slices=None, others=None, places=None)


def _run_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a run that are the same for every command that filters."""
    names = ("nonfinite", "correct", "sigma_factor", "device", "memory_limit")
    return {
        "sigma": args.sigma if args.sigma_map is None else sigma_map(args.sigma_map),
        "noise": args.noise if args.noise is None else named_noise(args.noise),
        **{name: getattr(args, name) for name in names},
    }


def denoise(args: argparse.Namespace) -> int:
    """Run one filter over all inputs."""
    settings = chosen_settings(args)
    from napari_gpu_denoise.files.batch import Batch, denoise_files
    from napari_gpu_denoise.run.progress import Progress
    from napari_gpu_denoise.run.request import HostMemory, Run

    run = Run(
        settings,
        **_run_options(args),
        axes=args.axes,
        dtype=args.dtype,
        host_memory=HostMemory.of(args.memory_limit_host),
    )
    with (
        _interruptible() as cancel,
        _workers(args) as workers,
        contextlib.closing(_Bar(args.quiet)) as bar,
    ):
        names = ("overwrite", "resume", "companions_anywhere", "stop_on_error")
        options = {name: getattr(args, name) for name in names}
        batch = Batch.of(args.inputs, args.output, run, **options, **workers)
        report = denoise_files(batch, Progress(bar, cancel.is_set))
    return _report_on_batch(report, settings, args)


def _report_on_batch(report: BatchReport, settings: Any, args: argparse.Namespace) -> int:
    """Print what became of the files; return the exit code."""
    from napari_gpu_denoise.files.batch import lines_on

    if args.json:
        print(json.dumps({"profile": settings.profile_name(), **report.as_dict()}, indent=2))
    elif not args.quiet:
        for file in report.done:
            print(*lines_on(file, settings, on_command_line), sep="\n")
    for problem in _complaints(report, args.quiet):
        complain(problem)
    if (len(report.files) > 1 or report.workers) and not args.quiet and not args.json:
        print(report.summary)
    return _status(report, args.resume)


def _complaints(report: BatchReport, quiet: bool) -> Iterator[BaseException | str]:
    """Yield what there is to say of files without a result, and where one was not completed."""
    from napari_gpu_denoise.files.batch import is_expected

    for file in () if quiet else report.skipped:
        yield f"{on_command_line(file.skipped).rstrip('.')}."
    failed = [(file, file.error) for file in report.failed if file.error]
    unexpected = [error for _, error in failed if not is_expected(error)]
    for file, error in failed:
        named = f"{type(error).__name__}: {error}"
        yield sentence(named if error in unexpected else error, file.input)
        yield from map(on_command_line, file.notes)
    yield from map(on_command_line, report.notes)
    yield from unexpected[:1]


def _status(report: BatchReport, resume: bool) -> int:
    """Return the exit code of a batch."""
    if report.cancelled:
        raise KeyboardInterrupt
    if failed := [file.error for file in report.failed if file.error]:
        return exit_code(failed[0])
    if any(getattr(file.skipped, "code", "") == "exists" for file in report.skipped):
        return exit_code(errors.OutputError())
    if not report.done and not resume:
        raise errors.FileError(
            f"None of the inputs is a {FORMAT_NAMES} file: nothing was denoised."
        )
    return 0


@contextlib.contextmanager
def _workers(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield workers of dask, if they are asked for, as options of a `Batch`."""
    if args.scheduler is None and args.workers is None:
        yield {}
        return
    from napari_gpu_denoise.files.cluster import NewWorkers, connected

    def said(link: str) -> None:
        if link and not args.quiet:
            print(f"gpu-denoise: dask dashboard: {link}", file=sys.stderr)

    if args.scheduler is None:
        yield {"workers": NewWorkers(args.workers, args.device, said)}
        return
    with connected(args.scheduler) as client:
        said(client.dashboard_link)
        yield {"client": client}


def chosen_settings(args: argparse.Namespace) -> Any:
    """Return the settings of a filter command: those of the profile, overridden by those given."""
    known = {spec.name for spec in setting_fields(args.settings)}
    given = {name: value for name, value in vars(args).items() if name in known}
    return args.settings.of(profile=args.profile, **given)


def assess(args: argparse.Namespace) -> int:
    """Assess the result for each input."""
    from napari_gpu_denoise.assessment.assess import assess as judge
    from napari_gpu_denoise.files.one_file import with_voxel

    settings, options = chosen_settings(args), _run_options(args)

    def report(path: Path, picture: ImageFile) -> dict[str, Any]:
        axes = args.axes or picture.filter_axes
        spacing = None if picture.voxel is None else picture.voxel[1:]
        # Of a file that is not read by plane, one plane is all of it.
        pixels = picture.pixels if picture.reads_by_plane(axes) else picture.loaded().pixels
        kept = {"axes": axes, "region": args.region}
        kept |= {"spacing": spacing, "unit": picture.voxel_unit}
        made = judge(pixels, with_voxel(settings, picture), **kept, **options)
        _say(args, path, made.summary(on_command_line))
        return made.as_dict()

    return _report_each(args, report, companions_anywhere=args.companions_anywhere)


def devices(args: argparse.Namespace) -> int:
    """List the OpenCL devices and say which one is used."""
    from napari_gpu_denoise.opencl import device as opencl
    from napari_gpu_denoise.opencl.device_test import forget_answers
    from napari_gpu_denoise.opencl.isolation import list_drivers

    if args.again:
        forget_answers()
    listed = opencl.devices()
    chosen, problem = None, None
    try:
        chosen, reason = opencl.choose(), opencl.why()
    except errors.NoDeviceError as error:
        problem, reason = error, str(error)
    if args.json:
        plain = [
            {f.name: getattr(d, f.name) for f in dataclasses.fields(d) if f.name != "handle"}
            for d in listed
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
            _print_platform(platform, chosen)
        for library in list_drivers():
            print(f"{library} is used, though no file in /etc/OpenCL/vendors names it.")
        if problem is None:
            print(f"* {reason}")
    if problem is not None:
        complain(problem)
        return exit_code(problem)
    return 0


def _print_platform(platform: Any, chosen: Any) -> None:
    print(f"{platform.name} ({platform.version})")
    for device in platform.devices:
        memory, largest = map(size_in_words, (device.memory, device.max_alloc))
        print(f"{'*' if device == chosen else ' '} {device.index:2}  {device.name}")
        print(
            f"      {device.kind}, {memory} (largest buffer {largest}), "
            f"{device.compute_units} compute units, {device.version}"
        )
        if device.problem:
            print(f"      not usable: {device.problem}")
    if not platform.devices:
        print("      no usable device")


def sample(args: argparse.Namespace) -> int:
    """Write a sample stack, or list them."""
    from napari_gpu_denoise.files import nifti, output, samples

    if args.name is None:
        for name in samples.names():
            print(f"{name:14}  {samples.info(name).title}")
        return 0
    source = samples.path(args.name)
    target = args.output or source.name
    if os.path.isdir(target):
        target = os.path.join(target, source.name)
    for one, copy in {**nifti.tables(source, Path(target)), source: target}.items():
        with (
            open(one, "rb") as given,
            output.new_file(copy, overwrite=args.overwrite, keep=[one]) as file,
        ):
            shutil.copyfileobj(given, file)
    print(f"{target}: {samples.info(args.name).title}")
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
        if not self._shown or not hasattr(state, "unit"):  # or the report on a file
            return
        if self._bar is None:
            from tqdm import tqdm

            options = {"unit": "part", "leave": False, "dynamic_ncols": True, "mininterval": 0}
            self._bar = tqdm(total=state.total, bar_format="{desc}", **options)
        number = f" ({state.index + 1}/{state.count})" if state.count > 1 else ""
        name = "files" if state.unit == "file" else f"{state.path.name}{number}"
        # What is done before parts can be counted is told in words.
        self._bar.bar_format = None if state.total else "{desc}"
        if state.total == 0:
            self._bar.set_description_str(f"{name}: {state.unit}" if state.unit else name)
            return
        if state.done == 0:
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


def recommend(args: argparse.Namespace) -> int:
    """Recommend a filter for each input."""
    from napari_gpu_denoise.assessment.recommend import recommend as advise

    def report(path: Path, picture: ImageFile) -> dict[str, Any]:
        loaded, names, _ = to_measure(picture, args.axes)
        advice = advise(loaded.pixels, names, effort=args.effort, device=args.device)
        line = command(path, advice, args.axes)
        _say(args, path, f"{advice.summary()}\n{'command':<11} {line}")
        return {**advice.as_dict(), "command": line}

    return _report_each(args, report)


def command(path: Path, advice: Advice, axes: str | None = None) -> str:
    """Return the command line that follows the advice; its result lies beside the file."""
    from napari_gpu_denoise.files.formats import beside
    from napari_gpu_denoise.protocol.settings import as_options

    name = advice.filter.name.replace("_", "-")
    words = ["gpu-denoise", name, str(path), "-o", beside(path, name)]
    words += [] if axes is None else ["--axes", axes]
    words += as_options(advice.filter.as_arguments())
    return shlex.join(words)
