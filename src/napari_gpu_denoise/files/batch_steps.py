"""A batch as a generator, which the command line, Python and the panel of napari drive."""

from __future__ import annotations

import contextlib
import itertools
import os
import traceback
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import (
    Cancelled,
    FileError,
    ImageError,
    NoDeviceError,
    Note,
    OutputError,
)
from napari_gpu_denoise.files import formats, unfinished, zarr
from napari_gpu_denoise.files.batch_report import BatchReport, FileReport
from napari_gpu_denoise.files.inputs import check_target, identity
from napari_gpu_denoise.files.one_file import check_result, file_steps, read_whole
from napari_gpu_denoise.run.request import Run


@dataclass(frozen=True)
class Batch:
    """Files to denoise with the same settings.

    `targets` are the results of those among `found` that are meant to be images. The options are
    those of `run_batch`.
    """

    found: tuple[Path, ...]
    targets: dict[Path, Path]
    run: Run
    overwrite: bool = False
    resume: bool = False
    companions_anywhere: bool = False
    stop_on_error: bool = False
    client: Any = None


@dataclass(frozen=True)
class BatchProgress:
    """The progress of a batch."""

    path: Path  # of the current file
    index: int  # its number, from 0,
    count: int  # of how many
    done: int  # units of this file
    total: int  # 0, as `done`, while it is read, its noise measured, or kernels compiled
    unit: str = ""  # what is counted, as in `Progress`, or what is done before; empty for reading


def batch_steps(
    batch: Batch, only: Collection[Path] | None = None
) -> Generator[BatchProgress | FileReport, None, BatchReport]:
    """Denoise files one after another.

    Yields a `BatchProgress` before each file and after each of its steps, and its `FileReport` in
    the end. `Cancelled` thrown into the generator ends it: it returns what was done. `only` names
    the files to denoise now; the others are not touched either.
    """
    todo = [path for path in batch.found if only is None or path in only]
    files: list[FileReport] = []
    work = _Work(batch)
    if batch.client is not None and len(todo) > 1:
        try:
            todo = yield from _by_workers(batch, work, todo, files)
        except Cancelled:
            return BatchReport(tuple(files), cancelled=True)
        if batch.stop_on_error and any(file.error is not None for file in files):
            todo = []
    for index, path in enumerate(todo):

        def at(done: int = 0, total: int = 0, unit: str = "", path=path, index=index):
            return BatchProgress(path, index, len(todo), done, total, unit)

        target = batch.targets.get(path)
        try:
            yield at()
            report = work.left_out(path)
            if report is None:
                running = work.steps(path)
                with contextlib.closing(running):
                    while True:
                        try:
                            step = next(running)
                        except StopIteration as end:
                            report = end.value
                            break
                        yield at(step.done, step.total, step.unit)
        except Cancelled:
            return BatchReport(tuple(files), cancelled=True, notes=_left(target))
        except NoDeviceError:
            raise
        except Exception as error:
            # Whatever is wrong with one file, try the others.
            _let_go(error)
            report = FileReport(path, error=error, notes=_left(target, error))
        try:
            yield report
        except Cancelled:
            if report.error is not None:
                # Ctrl-C makes the compiler of PoCL fail, too.
                return BatchReport(tuple(files), cancelled=True, notes=report.notes)
            return BatchReport((*files, report), cancelled=index + 1 < len(todo))
        files.append(report)
        if report.error is not None and batch.stop_on_error:
            break
    report = BatchReport(tuple(map(_still_there, files)))
    return replace(report, notes=_plate(batch)) if not report.failed else report


def _by_workers(
    batch: Batch, work: _Work, todo: list[Path], files: list[FileReport]
) -> Generator[BatchProgress | FileReport, None, list[Path]]:
    """Have workers denoise small files, several at a time, and add to the reports on `files`.

    Returns what is left: large files, of which all workers filter parts.
    """
    from napari_gpu_denoise.files import by_workers

    rest: list[Path] = []
    left: list[FileReport] = []

    def small() -> Iterator[tuple[Path, Path, dict[str, Any]]]:
        for path in todo:
            try:
                if (report := work.left_out(path)) is not None:
                    left.append(report)
                elif work.is_small(path):
                    yield path, batch.targets[path], work.options(path)
                else:
                    rest.append(path)
            except Exception as error:
                _let_go(error)
                left.append(FileReport(path, error=error))

    count = len(todo)
    with contextlib.closing(by_workers.reports(batch.client, small(), batch.run)) as reports:
        yield BatchProgress(todo[0], 0, count, 0, count, "file")
        for found in itertools.chain(reports, [None]):
            for report in [*left, *([] if found is None else [found])]:
                if report.output is not None:
                    work.wrote(report.output)
                files.append(report)
                yield report
                if report.error is not None and batch.stop_on_error:
                    return rest
            left.clear()
            done = min(len(files), count - 1)
            yield BatchProgress(todo[done], done, count, len(files), count, "file")
    return rest


class _Work:
    """The files of a batch, and what those that were denoised tell of the others."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._folders: set[Path] = set()  # those that hold results
        self._sources: set[Path] = set()  # files read as part of an earlier image
        self._written: set[tuple[int, int]] = set()
        self._first: dict[str, Path] = {}  # by the name of its result
        for path, target in batch.targets.items():
            self._first.setdefault(_folded(target), path)

    def left_out(self, path: Path) -> FileReport | None:
        """Return the report on a file that is no image of its own, or has a result."""
        batch = self._batch
        if path not in batch.targets:
            reason = f"{path} is not a TIFF or NIfTI file and was skipped."
            return FileReport(path, skipped=reason)
        if _real(path) in self._sources:
            reason = f"{path} is part of an image that was read with an earlier file."
            return FileReport(path, skipped=reason)
        target = batch.targets[path]
        if (twin := self._first[_folded(target)]) != path:
            raise OutputError(
                f"{twin} and {path} would have the same name in {target.parent}: write them to two "
                "folders."
            )
        check_target(target, list(batch.found), self._written)
        if not unfinished.is_there(target) or batch.overwrite:
            return None
        if batch.resume:
            check_result(target, batch.run)
            unfinished.remove(target)
        # The other files of a set are then not denoised as images of their own.
        opened = formats.open_stack(path, companions_anywhere=batch.companions_anywhere)
        with contextlib.suppress(FileError, ImageError), opened as picture:
            self._sources.update(map(_real, picture.files))
        return FileReport(path, skipped=_kept(target, batch.resume))

    def is_small(self, path: Path) -> bool:
        """Return whether one worker is to denoise a file."""
        files = read_whole(path, self._batch.run, self._batch.companions_anywhere)
        self._sources.update(_real(file) for file in files if file != path)
        return bool(files)

    def options(self, path: Path) -> dict[str, Any]:
        """Return the options of `file_steps`."""
        batch = self._batch
        return {
            "overwrite": batch.overwrite,
            "new_folder": batch.targets[path].parent not in self._folders,
            "companions_anywhere": batch.companions_anywhere,
            "resume": batch.resume,
        }

    def wrote(self, target: Path) -> None:
        """Note a result."""
        self._folders.add(target.parent)
        self._written.add(identity(target))

    def steps(self, path: Path) -> Generator[Any, None, FileReport]:
        """Denoise a file."""
        batch, target = self._batch, self._batch.targets[path]
        options = {**self.options(path), "client": batch.client}
        picture, record, notes = yield from file_steps(path, target, batch.run, **options)
        self._sources.update(map(_real, picture.files))
        self.wrote(target)
        return FileReport(path, target, record, notes=(*picture.notes, *notes))


def _folded(target: Path) -> str:
    """Return a name as file systems take it that do not tell A.tif from a.tif."""
    return str(target).casefold()


def _real(path: Path) -> Path:
    """Return the one name of a file that has several, by links; those may lead in circles."""
    return path if isinstance(path, zarr.Address) else Path(os.path.realpath(path))


def _plate(batch: Batch) -> tuple[str, ...]:
    """Describe the plate of which the results are images, once all are there."""
    images, targets = list(batch.targets), list(batch.targets.values())
    if not images or zarr.has_suffix(targets[0]) or not zarr.is_named(targets[0]):
        return ()
    plate = zarr.plate_of(images)
    if plate is None or not all(map(unfinished.is_there, targets)):
        return ()
    place, inside = targets[0], zarr.within(plate, images[0])
    for _ in inside.split("/"):
        place = place.parent
    return zarr.describe_plate(place, plate)


def _let_go(error: BaseException | None) -> None:
    """Free the pixels that an error holds by its traceback: reports are kept to the end."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _left(target: Path | None, error: Exception | None = None) -> tuple[str, ...]:
    """Say where an unfinished result is kept, if there is one."""
    note = unfinished.kept_note(target, error) if target is not None else ""
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
    lost = OutputError(
        f"{file.output} was written but no longer exists: repeat the run for this file."
    )
    return FileReport(file.input, error=lost)
