"""Failures of the command line: one sentence, and an exit code for each class."""

from __future__ import annotations

import sys

from napari_gpu_denoise import errors
from napari_gpu_denoise.cli.wording import on_command_line

# Numbers a script can rely on. A failure has the code of the first line that it fits.
EXIT_CODES: tuple[tuple[int, tuple[type[BaseException], ...], str], ...] = (
    (0, (), "everything was done"),
    (
        2,
        (errors.SettingsError, errors.AxesError, errors.SigmaError),
        "wrong arguments, settings, axes or sigma",
    ),
    (3, (errors.NoDeviceError,), "no OpenCL device, or none that was asked for"),
    (4, (errors.FileError,), "an input cannot be read"),
    (5, (errors.OutputError,), "a result cannot be written, or would replace a file"),
    (6, (errors.ImageError,), "pixels that cannot be filtered: NaN, infinity, none at all"),
    (7, (MemoryError,), "too little memory on the device or the machine"),
    (8, (errors.KernelError,), "the device failed to build or to run a kernel"),
    (
        130,
        (errors.Cancelled, KeyboardInterrupt),
        "stopped by Ctrl-C; no file was left half written",
    ),
    (1, (BaseException,), "anything else: please report it"),
)
EXIT_TEXTS = sorted((code, text) for code, _, text in EXIT_CODES)


def exit_code(error: BaseException) -> int:
    """Return the exit code of a failure."""
    return next(code for code, classes, _ in EXIT_CODES if isinstance(error, classes))


def complain(problem: BaseException | str) -> None:
    """Print one sentence to stderr."""
    print(f"gpu-denoise: {sentence(problem)}", file=sys.stderr)


def sentence(problem: BaseException | str) -> str:
    """Return a failure as one sentence, in terms of options."""
    return on_command_line(problem) or "There is not enough memory."  # Python's own says nothing
