"""Batch processing: each file is read, denoised, written and freed before the next."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from napari_gpu_denoise.docstrings import documented
from napari_gpu_denoise.errors import (
    Cancelled,
    FileError,
    ImageError,
    NoDeviceError,
    Note,
    OutputError,
)
from napari_gpu_denoise.files import formats, unfinished
from napari_gpu_denoise.files.inputs import check_target, find_files, identity, pair
from napari_gpu_denoise.files.one_file import check_result, denoise_file
from napari_gpu_denoise.files.tiff.checks import free_memory
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.several import choose_devices
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.host_memory import HostMemory
from napari_gpu_denoise.run.job import Run
from napari_gpu_denoise.run.record import Record


@dataclass(frozen=True)
class FileReport:
    """The outcome for one file: exactly one of `output`, `error` and `skipped` is set.

    `skipped` says why the file was left out; `notes` are remarks on reading and writing it.
    """

    input: Path
    output: Path | None = None
    record: Record | None = None
    error: Exception | None = None
    skipped: str = ""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        error = self.error
        return {
            "input": str(self.input),
            "output": None if self.output is None else str(self.output),
            "record": None if self.record is None else self.record.as_dict(),
            "error": None if error is None else {"kind": type(error).__name__, "text": str(error)},
            "skipped": self.skipped,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class BatchReport:
    """The outcome for all files, in the order processed, up to a cancellation or a stop.

    `notes` say where the unfinished result of a file is kept at which the batch was cancelled.
    """

    files: tuple[FileReport, ...]
    cancelled: bool = False
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> tuple[FileReport, ...]:
        """The files that have a result."""
        return tuple(file for file in self.files if file.output is not None)

    @property
    def failed(self) -> tuple[FileReport, ...]:
        """The files that failed."""
        return tuple(file for file in self.files if file.error is not None)

    @property
    def skipped(self) -> tuple[FileReport, ...]:
        """The files that were left out: not an image, part of one already read, or done before."""
        return tuple(file for file in self.files if file.skipped)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {"files": [file.as_dict() for file in self.files], "cancelled": self.cancelled}


@dataclass(frozen=True)
class BatchProgress:
    """The progress of a batch."""

    path: Path  # of the current file
    index: int  # its number, from 0,
    count: int  # of how many
    done: int  # tiles or frames of this file
    total: int  # 0, as `done`, while the file is read


@documented
def run_batch(
    inputs: str | os.PathLike | Iterable[str | os.PathLike],
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: Any = None,
    output: str | os.PathLike,
    axes: str | None = None,
    dtype=None,
    nonfinite: str = "raise",
    correct: Any = None,
    sigma_factor: float = 1.0,
    device: Device | int | str | Sequence | None = None,
    memory_limit: int | str | None = None,
    memory_limit_host: int | str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    companions_anywhere: bool = False,
    stop_on_error: bool = False,
    progress: Callable[[BatchProgress], None] | None = None,
    cancel=None,
) -> BatchReport:
    """Denoise TIFF, NIfTI and OME-Zarr files with the same settings.

    Parameters
    ----------
    inputs : path-like or iterable of path-like
        Files, patterns such as ``"raw/*.tif"`` (``**`` includes subfolders), or folders, of which
        all TIFF, NIfTI and OME-Zarr files are taken.
    filter : Filter
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``.
    sigma : float, array_like or None, default None
        Noise standard deviation in grey levels: one value, one for each channel, one for each
        plane, or a map, as for `denoise`. None measures the noise of each file.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        Noise model, as for `denoise`; ``"auto"``, the default without `sigma`, and names of
        models measure it in each file.
    output : path-like
        A file for one input, of the same format; or a folder, created if necessary, in which
        each result has the name of its input.
    axes : str, optional
        Names of the axes of all files; by default those in each file.
    dtype : data type, "auto" or "same", optional
        Type of the results, as for `denoise`.
    {nonfinite}
    {correct}
    {sigma_factor}
    {device}
    {memory_limit}
    memory_limit_host : int or str, optional
        Largest memory of this machine to take, with Python and drivers: bytes, or text such as
        ``"2G"``. Large files are read and written in parts of a size that fits; what has to be in
        memory as a whole is refused if it does not. By default parts are chosen for a quarter of
        what is free.
    overwrite : bool, default False
        Replace existing results. By default files that have one are skipped. An input is never
        replaced.
    resume : bool, default False
        Continue a batch that was interrupted: results of the same filter, settings, noise and
        correction are kept, and any other file in their place is an error. A large file, or an
        OME-Zarr, is gone on with at the parts that are not written yet; if settings, input,
        device or version of this package are others, it is an error.
    companions_anywhere : bool, default False
        Read the other files of an OME-TIFF set wherever its XML says they are, not only in the
        folder of the input or below.
    stop_on_error : bool, default False
        Stop at the first file that fails, instead of continuing with the others.
    progress : callable, optional
        Called with a `BatchProgress` before each file and after each tile, in this thread.
    cancel : object with ``is_set()``, optional
        An event that stops the work at the next tile; the report then says so. Results that are
        complete are kept.

    Returns
    -------
    BatchReport
        Files that fail are listed there, each with its error.

    Raises
    ------
    FileError
        If there is no input.
    OutputError
        If `output` does not suit the inputs, or two results would have the same name.
    NoDeviceError
        If there is no device to run on.

    Examples
    --------
    >>> import napari_gpu_denoise as gd
    >>> report = gd.run_batch("raw/*.tif", gd.NLMeans(), output="denoised")  # doctest: +SKIP
    >>> for file in report.failed:  # doctest: +SKIP
    ...     print(file.input, file.error)
    """
    found = find_files(inputs)
    jobs = dict(pair(found, output))
    options = dtype, nonfinite, choose_devices(device), memory_limit, correct, sigma_factor
    host = HostMemory.of(memory_limit_host, free_memory())
    run = Run(filter, sigma, noise, axes, *options, host)
    files: list[FileReport] = []
    folders: set[Path] = set()  # those that hold results
    sources: set[Path] = set()  # files read as part of an earlier image
    written: set[tuple[int, int]] = set()
    for index, path in enumerate(found):
        if cancel is not None and cancel.is_set():
            return BatchReport(tuple(files), cancelled=True)

        def tell(done: int, total: int, path: Path = path, index: int = index) -> None:
            if progress is not None:
                progress(BatchProgress(path, index, len(found), done, total))

        tell(0, 0)
        if path not in jobs:
            reason = f"{path} is not a TIFF or NIfTI file and was skipped."
            files.append(FileReport(path, skipped=reason))
            continue
        if path.resolve() in sources:
            reason = f"{path} is part of an image that was read with an earlier file."
            files.append(FileReport(path, skipped=reason))
            continue
        target = jobs[path]
        try:
            check_target(target, found, written)
            if target.exists() and not overwrite:
                if resume:
                    check_result(target, run)
                    unfinished.remove(target)
                # The other files of a set are then not denoised as images of their own.
                opened = formats.open_stack(path, companions_anywhere=companions_anywhere)
                with contextlib.suppress(FileError, ImageError), opened as picture:
                    sources.update(file.resolve() for file in picture.files)
                files.append(FileReport(path, skipped=_kept(target, resume)))
                continue
            picture, record, notes = denoise_file(
                *(path, target, run),
                overwrite=overwrite,
                new_folder=target.parent not in folders,
                companions_anywhere=companions_anywhere,
                progress=tell,
                cancel=cancel,
                resume=resume,
            )
            folders.add(target.parent)
            sources.update(file.resolve() for file in picture.files)
            written.add(identity(target))
            files.append(FileReport(path, target, record, notes=(*picture.notes, *notes)))
        except Cancelled:
            return BatchReport(tuple(files), cancelled=True, notes=_left(target))
        except NoDeviceError:
            raise
        except Exception as error:
            # Ctrl-C makes the compiler of PoCL fail, too.
            if cancel is not None and cancel.is_set():
                return BatchReport(tuple(files), cancelled=True, notes=_left(target))
            # Whatever is wrong with one file, try the others.
            _let_go(error)
            files.append(FileReport(path, error=error, notes=_left(target)))
            if stop_on_error:
                break
        finally:
            picture = None  # before the next file is read
    return BatchReport(tuple(map(_still_there, files)))


def _let_go(error: BaseException | None) -> None:
    """Free the pixels that an error holds by its traceback: reports are kept to the end."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _left(target: Path) -> tuple[str, ...]:
    """Say where an unfinished result is kept, if there is one."""
    note = unfinished.kept_note(target)
    return (note,) if note else ()


def _kept(target: Path, resume: bool) -> str:
    if resume:
        return f"{target} is complete and was kept."
    return Note(
        f"{target} exists and was kept",
        "choose another name, pass overwrite=True to replace it, or resume=True to keep it as done",
        code="exists",
    )


def _still_there(file: FileReport) -> FileReport:
    """Report a result that somebody removed during the run."""
    if file.output is None or file.output.exists():
        return file
    lost = OutputError(f"{file.output} was written and is gone: repeat the run for this file.")
    return FileReport(file.input, error=lost)
