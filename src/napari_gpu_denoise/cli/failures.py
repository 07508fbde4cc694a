"""Errors and notes on the command line: their wording, and exit codes."""

from __future__ import annotations

import sys
import traceback

from napari_gpu_denoise import errors

# Remedies by code; names in braces are values of the error or note. Others are as in Python.
REMEDIES = {
    "assess-check": "give {factor} times this --sigma, or leave --sigma out to have it measured",
    "assess-correlated": "--noise correlated takes it into account",
    "assess-empty": "choose another --region",
    "assess-sigma": "leave --sigma out to have it measured",
    "assess-small": "give a --region of at least {least} x {least}",
    "volume-needed": "use gpu-denoise bm3d or, over time, vbm3d, or name slices, as --axes ZYX",
    "axis-needed": "name the axes, such as --axes {axis}YX",
    "channels": "use --channels joint or --channels separate",
    "another-result": "choose another name, or use --overwrite in place of --resume",
    "events": "--keep-events filters these in each measurement alone",
    "exists": "choose another name, or add --overwrite to replace it, or --resume",
    "biased": "give another --noise, or --dtype float32",
    "range": "give --sigma in the units of the pixels, or leave it out",
    "float-result": "--dtype same rounds anyway",
    "file-dtype": "add --dtype float32",
    "kept": "repeat the command with --resume",
    "link-outside": "copy what it leads to into the folder, or add --companions-anywhere",
    "measurements": "name the axis of the measurements D, such as --axes DZYX, or give --along",
    "memory-limit": "allow at least --memory-limit {needed}",
    "memory-limit-host": "allow at least --memory-limit-host {needed}",
    "odd-measurement": "look at it, and leave it out of the file if it is",
    "no-scheduler": "start it again, and repeat the run with --resume",
    "no-workers": "start some, and repeat the run with --resume",
    "noise-estimate": "give the output of 'gpu-denoise estimate --json'",
    "nonfinite": "add --nonfinite keep to leave them unchanged and filter the others",
    "nonfinite-integer": "add --dtype float32",
    "removed-filter": "use gpu-denoise bm4d --profile fast, which is better",
    "own-noise": "leave out --noise, or the setting",
    "sigma-shape": "give one number{channels}, or one image of their size as --sigma-map",
    "sigma-value": "give 0 or a positive number in grey levels, or leave --sigma out",
    "structured": "--correct found removes it first",
    "unchanged": "--noise correlated, or give --sigma",
    "unfinished": "repeat the run with the same settings, or leave out --resume to start again",
    "unfinished-damaged": "leave out --resume to start again",
    "uneven": "--noise auto",
    "unproven": "--noise {model} takes it for noise",
}

# Numbers that scripts can rely on. An error has the code of the first line that it matches.
EXIT_CODES: tuple[tuple[int, tuple[type[BaseException], ...], str], ...] = (
    (0, (), "everything was done"),
    (
        2,
        (errors.SettingsError, errors.AxesError, errors.SigmaError),
        "wrong arguments, settings, axes or sigma",
    ),
    (3, (errors.NoDeviceError,), "no OpenCL device, or not the one requested"),
    (4, (errors.FileError,), "an input cannot be read"),
    (5, (errors.OutputError,), "a result cannot be written, or exists and was kept"),
    (6, (errors.ImageError,), "pixels that cannot be filtered: NaN, infinity, or no pixels"),
    (7, (MemoryError,), "too little memory on the device or the machine"),
    (8, (errors.KernelError,), "the device failed to build or to run a kernel"),
    (9, (errors.ClusterError,), "dask workers cannot be started or reached, or were lost"),
    (
        130,
        (errors.Cancelled, KeyboardInterrupt),
        "interrupted by Ctrl-C; no partial output is left",
    ),
    (1, (BaseException,), "anything else: please report it"),
)
EXIT_TEXTS = sorted((code, text) for code, _, text in EXIT_CODES)


def lost() -> OSError | None:
    """Return why something that was printed could not be written; None if all was."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return getattr(raw, "lost", None)


def on_command_line(message: BaseException | str) -> str:
    """Return an error or a note with its remedy in terms of options."""
    return errors.worded(message, REMEDIES)


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    return next(code for code, classes, _ in EXIT_CODES if isinstance(error, classes))


def complain(problem: BaseException | str) -> None:
    """Print one sentence to stderr, behind the traceback of an error that is none of ours."""
    if not isinstance(problem, (str, errors.DenoiseError, MemoryError)):
        from napari_gpu_denoise.files.input_checks import printable

        print(printable("".join(traceback.format_exception(problem))), file=sys.stderr, end="")
        problem = "This should not happen: please report it with the lines above."
    print(f"gpu-denoise: {sentence(problem)}", file=sys.stderr)


def sentence(problem: BaseException | str, path: object = "") -> str:
    """Return an error as one sentence in terms of options, which names the file it is about."""
    text = on_command_line(problem) or "There is not enough memory."  # Python's message is empty
    return text if str(path) in text else f"{path}: {text}"
