"""Many files, one filter: each is read, denoised, written and let go before the next."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from napari_gpu_denoise import io
from napari_gpu_denoise.axes import check_numbers, output_dtype
from napari_gpu_denoise.errors import Cancelled, FileError, NoDeviceError, OutputError
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.pipeline import Filter
from napari_gpu_denoise.prepare import put_together
from napari_gpu_denoise.run import Record, denoise
from napari_gpu_denoise.stacks import denoise_stack, make_folder


@dataclass(frozen=True)
class FileReport:
    """What became of one file.

    Attributes
    ----------
    input : Path
        The file.
    output : Path or None
        Its result; None if there is none.
    record : Record or None
        How the result was made.
    error : Exception or None
        Why it failed.
    skipped : str
        Why it was left out; empty if it was not.
    notes : tuple of str
        What the user should know about how it was read and written, one sentence each.
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
    """What became of all files.

    Attributes
    ----------
    files : tuple of FileReport
        In the order they were worked on. Files after a cancel or a stop are not in it.
    cancelled : bool
        Whether the caller asked for a stop.
    """

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
        """The files that were left out because they are no images."""
        return tuple(file for file in self.files if file.skipped)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {"files": [file.as_dict() for file in self.files], "cancelled": self.cancelled}


@dataclass(frozen=True)
class BatchProgress:
    """Where a batch stands.

    Attributes
    ----------
    path : Path
        The file at work.
    index, count : int
        Its number, from 0, of how many.
    done, total : int
        Tiles or frames of this file; both 0 while it is read.
    """

    path: Path
    index: int
    count: int
    done: int
    total: int


def run_batch(
    inputs: str | os.PathLike | Iterable[str | os.PathLike],
    settings: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: Any = None,
    output: str | os.PathLike,
    axes: str | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device: Device | int | str | None = None,
    memory_limit: int | None = None,
    overwrite: bool = False,
    stop_on_error: bool = False,
    progress: Callable[[BatchProgress], None] | None = None,
    cancel=None,
) -> BatchReport:
    """Denoise TIFF files with the same settings.

    Parameters
    ----------
    inputs : path-like or iterable of path-like
        Files, patterns such as ``"raw/*.tif"`` (``**`` goes into folders), or folders, of which
        all TIFF files are taken.
    settings : filter settings
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``.
    sigma : float, array_like or None, default None
        Noise standard deviation in grey levels: one value, one a channel, one a plane, or a map,
        as `denoise` takes them. None measures the noise, for each file.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, as `denoise` takes it; ``"auto"``, the default without `sigma`, and
        names measure it in each file.
    output : path-like
        A TIFF file, when there is one input; or a folder, made if need be, in which each result
        gets the name of its input.
    axes : str, optional
        Names of the axes of every file; by default those each file states.
    dtype : data type, optional
        Type of the results; by default that of each input.
    nonfinite : {"raise", "keep"}, default "raise"
        Refuse NaN and infinity, or leave them in place.
    device : Device, int, str or None, optional
        See `napari_gpu_denoise.choose`.
    memory_limit : int, optional
        Largest number of bytes of device memory to use.
    overwrite : bool, default False
        Replace results that exist. An input is never replaced.
    stop_on_error : bool, default False
        Stop at the first file that fails, instead of going on with the others.
    progress : callable, optional
        Called with a `BatchProgress` before each file and after each tile, in this thread.
    cancel : object with ``is_set()``, optional
        An event; once it is set the work stops at the next tile and the report says so. Results
        that were complete stay.

    Returns
    -------
    BatchReport
        A file that fails is told there, with its error.

    Raises
    ------
    FileError
        If no input is named.
    OutputError
        If `output` is not fit for these inputs, or two of them would get the same name.
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
    jobs = dict(_jobs(found, output))
    chosen = choose(device)
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
            reason = f"{path} belongs to an image that was read with an earlier file."
            files.append(FileReport(path, skipped=reason))
            continue
        target = jobs[path]
        try:
            _check_target(target, found, written, overwrite=overwrite)
            streamed = denoise_stack(
                path,
                target,
                settings,
                sigma,
                noise=noise,
                axes=axes,
                dtype=dtype,
                nonfinite=nonfinite,
                device=chosen,
                memory_limit=memory_limit,
                overwrite=overwrite,
                progress=tell,
                cancel=cancel,
            )
            if streamed is not None:
                picture, record, notes = streamed
                sources.update(file.resolve() for file in picture.files)
                written.add(_identity(target))
                files.append(FileReport(path, target, record, notes=(*picture.notes, *notes)))
                continue
            picture = io.read(path)
            sources.update(file.resolve() for file in picture.files)
            check_numbers(picture.data)
            io.check_dtype(picture, output_dtype(dtype, picture.data.dtype))
            result = denoise(
                picture.pixels,
                settings,
                sigma,
                noise=noise,
                axes=picture.filter_axes if axes is None else axes,
                dtype=dtype,
                nonfinite=nonfinite,
                device=chosen,
                memory_limit=memory_limit,
                progress=tell,
                cancel=cancel,
            )
            make_folder(target)
            image = result.image
            if picture.alpha is not None:
                image = put_together(image, picture.colours, picture.data, picture.alpha)
            notes = io.write(target, image, picture, result.record, overwrite=overwrite)
            written.add(_identity(target))
            files.append(FileReport(path, target, result.record, notes=(*picture.notes, *notes)))
        except Cancelled:
            return BatchReport(tuple(files), cancelled=True)
        except NoDeviceError:
            raise
        except Exception as error:
            # Whatever is wrong with one file, the others are worth trying.
            files.append(FileReport(path, error=error))
            if stop_on_error:
                break
        finally:
            picture = result = image = streamed = None  # before the next file is read
    return BatchReport(tuple(files))


def find_files(inputs: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    """List the files that names, patterns and folders stand for.

    Parameters
    ----------
    inputs : path-like or iterable of path-like
        As `run_batch` takes them.

    Returns
    -------
    list of Path
        In the order given, those of a pattern or folder sorted, each file once. A name that fits
        nothing stays in the list.

    Raises
    ------
    FileError
        If nothing is named, or a folder holds no TIFF file.
    """
    if isinstance(inputs, (str, os.PathLike)):
        inputs = [inputs]
    found: dict[str, Path] = {}
    for name in map(os.fspath, inputs):
        if os.path.isdir(name):
            members = [p for p in sorted(Path(name).iterdir()) if p.suffix.lower() in io.SUFFIXES]
            if not members:
                raise FileError(f"The folder {name} holds no TIFF file: name another.")
        elif not os.path.exists(name) and glob.has_magic(name):
            matches = sorted(glob.glob(name, recursive=True))
            members = [Path(match) for match in matches if not os.path.isdir(match)]
            if not members:
                raise FileError(f"No file fits the pattern {name}: check folder and spelling.")
        else:
            members = [Path(name)]
        for path in members:
            found.setdefault(os.path.realpath(path), path)
    if not found:
        raise FileError("No input is named: give TIFF files, patterns or folders.")
    return list(found.values())


def _jobs(found: list[Path], output: str | os.PathLike) -> list[tuple[Path, Path]]:
    """Pair each file that claims to be an image with its result."""
    images = found
    if len(found) > 1:
        # A text file among many was swept up by a pattern; a bad file that is called .tif was not.
        images = [
            path
            for path in found
            if path.suffix.lower() in io.SUFFIXES or not path.is_file() or io.is_tiff(path)
        ]
    name = os.fspath(output)
    folder = Path(name)
    into_folder = folder.is_dir() or name.endswith(("/", os.sep)) or not folder.suffix
    if not into_folder:
        if folder.suffix.lower() not in io.SUFFIXES:
            raise OutputError(
                f"{name} is neither a TIFF file by its name nor a folder that exists: end it with "
                ".tif, or with / for a new folder."
            )
        if len(images) > 1:
            raise OutputError(f"{name} is one file, for {len(images)} inputs: name a folder.")
        return [(path, folder) for path in images]
    names: dict[str, Path] = {}
    jobs = []
    for path in images:
        # A vendor's file becomes a TIFF; its ending would promise something else.
        known = path.suffix.lower() in io.SUFFIXES
        target = folder / (path.name if known else f"{path.stem}.tif")
        # Many file systems take A.tif and a.tif for one file.
        twin = names.setdefault(target.name.casefold(), path)
        if twin is not path:
            raise OutputError(
                f"{twin} and {path} would get the same name in {name}: denoise them into two "
                "folders."
            )
        jobs.append((path, target))
    return jobs


def _check_target(
    target: Path, inputs: list[Path], written: set[tuple[int, int]], *, overwrite: bool
) -> None:
    """Find out before the work whether its result can be written."""
    if target.parent.is_dir():
        io.check_output(target, overwrite=overwrite, keep=inputs)
        if target.exists() and _identity(target) in written:
            raise OutputError(
                f"{target} is the result of an earlier file of this run, under another name: "
                "denoise the files into two folders."
            )


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
