"""Batch processing: each file is read, denoised, written and freed before the next."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import Cancelled, FileError, NoDeviceError, OutputError
from napari_gpu_denoise.files import tiff
from napari_gpu_denoise.files.one_file import denoise_file
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.job import Run
from napari_gpu_denoise.run.public import documented
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
    """The outcome for all files, in the order processed, up to a cancellation or a stop."""

    files: tuple[FileReport, ...]
    cancelled: bool = False

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
        """The files that were left out: not an image, or part of one already read."""
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
    device: Device | int | str | None = None,
    memory_limit: int | str | None = None,
    overwrite: bool = False,
    stop_on_error: bool = False,
    progress: Callable[[BatchProgress], None] | None = None,
    cancel=None,
) -> BatchReport:
    """Denoise TIFF files with the same settings.

    Parameters
    ----------
    inputs : path-like or iterable of path-like
        Files, patterns such as ``"raw/*.tif"`` (``**`` includes subfolders), or folders, of which
        all TIFF files are taken.
    filter : Filter
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``.
    sigma : float, array_like or None, default None
        Noise standard deviation in grey levels: one value, one for each channel, one for each
        plane, or a map, as for `denoise`. None measures the noise of each file.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        Noise model, as for `denoise`; ``"auto"``, the default without `sigma`, and names of
        models measure it in each file.
    output : path-like
        A TIFF file for one input; or a folder, created if necessary, in which each result has
        the name of its input.
    axes : str, optional
        Names of the axes of all files; by default those in each file.
    dtype : data type, optional
        Type of the results; by default that of each input.
    {nonfinite}
    {device}
    {memory_limit}
    overwrite : bool, default False
        Replace existing results. An input is never replaced.
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
    jobs = dict(_paired(found, output))
    run = Run(filter, sigma, noise, axes, dtype, nonfinite, choose(device), memory_limit)
    files: list[FileReport] = []
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
            files.append(FileReport(path, skipped=f"{path} is not a TIFF file and was skipped."))
            continue
        if path.resolve() in sources:
            reason = f"{path} is part of an image that was read with an earlier file."
            files.append(FileReport(path, skipped=reason))
            continue
        target = jobs[path]
        try:
            _check_target(target, found, written, overwrite=overwrite)
            picture, record, notes = denoise_file(
                path, target, run, overwrite=overwrite, progress=tell, cancel=cancel
            )
            sources.update(file.resolve() for file in picture.files)
            written.add(_identity(target))
            files.append(FileReport(path, target, record, notes=(*picture.notes, *notes)))
        except Cancelled:
            return BatchReport(tuple(files), cancelled=True)
        except NoDeviceError:
            raise
        except Exception as error:
            # Whatever is wrong with one file, try the others.
            files.append(FileReport(path, error=error))
            if stop_on_error:
                break
        finally:
            picture = None  # before the next file is read
    return BatchReport(tuple(files))


def find_files(inputs: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    """List the files that names, patterns and folders stand for, each once.

    They keep the order given, those of a pattern or folder are sorted. A name that matches nothing
    stays in the list.
    """
    if isinstance(inputs, (str, os.PathLike)):
        inputs = [inputs]
    found: dict[str, Path] = {}
    for name in map(os.fspath, inputs):
        if os.path.isdir(name):
            members = [p for p in sorted(Path(name).iterdir()) if p.suffix.lower() in tiff.SUFFIXES]
            if not members:
                raise FileError(f"The folder {name} contains no TIFF file: choose another.")
        elif not os.path.exists(name) and glob.has_magic(name):
            matches = sorted(glob.glob(name, recursive=True))
            members = [Path(match) for match in matches if not os.path.isdir(match)]
            if not members:
                raise FileError(f"No file matches the pattern {name}: check folder and spelling.")
        else:
            members = [Path(name)]
        for path in members:
            found.setdefault(os.path.realpath(path), path)
    if not found:
        raise FileError("No input is given: give TIFF files, patterns or folders.")
    return list(found.values())


def _paired(found: list[Path], output: str | os.PathLike) -> list[tuple[Path, Path]]:
    """Pair each input that is meant to be an image with its output."""
    images = found
    if len(found) > 1:
        # A pattern may match text files as well; a broken file that is named .tif is an error.
        images = [
            path
            for path in found
            if path.suffix.lower() in tiff.SUFFIXES or not path.is_file() or tiff.is_tiff(path)
        ]
    name = os.fspath(output)
    folder = Path(name)
    if folder.suffix and not folder.is_dir() and not name.endswith(("/", os.sep)):
        if folder.suffix.lower() not in tiff.SUFFIXES:
            raise OutputError(
                f"{name} is neither the name of a TIFF file nor an existing folder: end it with "
                ".tif, or with / for a new folder."
            )
        if len(images) > 1:
            raise OutputError(f"{name} is one file, for {len(images)} inputs: give a folder.")
        return [(path, folder) for path in images]
    names: dict[str, Path] = {}
    jobs = []
    for path in images:
        # A TIFF in the format of a vendor is written as a plain TIFF, so its suffix changes.
        known = path.suffix.lower() in tiff.SUFFIXES
        target = folder / (path.name if known else f"{path.stem}.tif")
        # For many file systems A.tif and a.tif are one file.
        twin = names.setdefault(target.name.casefold(), path)
        if twin is not path:
            raise OutputError(
                f"{twin} and {path} would have the same name in {name}: write them to two folders."
            )
        jobs.append((path, target))
    return jobs


def _check_target(
    target: Path, inputs: list[Path], written: set[tuple[int, int]], *, overwrite: bool
) -> None:
    """Check before the work starts that its result can be written."""
    if target.parent.is_dir():
        tiff.check_output(target, overwrite=overwrite, keep=inputs)
        if target.exists() and _identity(target) in written:
            raise OutputError(
                f"{target} is the result of an earlier file of this run under another name: "
                "write the results to two folders."
            )


def _identity(path: Path) -> tuple[int, int]:
    """Return the device and inode of a file, the same for all its names."""
    status = os.stat(path)
    return status.st_dev, status.st_ino
