"""Files of the list: what is known of each, and what became of it; no Qt."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napari_gpu_denoise._napari.denoise.snippets import (
    common_arguments,
    noise_argument,
    noise_option,
    shell_line,
)
from napari_gpu_denoise._napari.noise import snippets as code
from napari_gpu_denoise._napari.tasks import Stage
from napari_gpu_denoise._napari.wording import REMEDIES, in_panel
from napari_gpu_denoise.errors import DenoiseError, FileError, Note
from napari_gpu_denoise.files import formats, zarr
from napari_gpu_denoise.files.batch import Batch, BatchProgress, FileReport, is_expected
from napari_gpu_denoise.files.inputs import find_files
from napari_gpu_denoise.protocol.settings import as_options

# States of a file.
WAITING, RUNNING, STOPPED, DONE, SKIPPED, FAILED = (
    *("waiting", "running", "stopped"),
    *("done", "skipped", "failed"),
)
ENDED = (DONE, SKIPPED)  # not tried again

_REMEDIES = {
    **REMEDIES,
    "exists": "choose Replace them at Existing results, or another folder",
    "file-dtype": "choose float32 at Result and device > Result type",
    "kept": "run it again to continue",
    "unfinished": "use its earlier settings, or choose Replace them at Existing results",
    "unfinished-damaged": "choose Replace them at Existing results",
}


@dataclass(frozen=True)
class Look:
    """What a file says of itself, or why it cannot be read."""

    path: Path
    axes: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    size: int = 0  # bytes of its pixels
    error: str = ""

    @property
    def words(self) -> str:
        """Lengths of the axes, and the type, such as ``"T16 192x208 uint16"``."""
        if self.error:
            return "cannot be read"
        known = dict(zip(self.axes, self.shape, strict=True))
        words = [f"{axis}{n}" for axis, n in zip(self.axes, self.shape, strict=True)]
        text = " ".join([*words, self.dtype])
        for long, short in (
            (f"Y{known.get('Y')} X{known.get('X')}", f"{known.get('Y')}x{known.get('X')}"),
            (" S3 ", " RGB "),
            (" S4 ", " RGBA "),
        ):
            text = text.replace(long, short)
        return text


@dataclass
class Row:
    """A file of the list; `given` is what the user added, the file itself or its folder."""

    path: Path
    given: str
    look: Look | None = None
    state: str = WAITING
    words: str = "Waiting"
    report: FileReport | None = None
    share: float = 0.0  # done

    @property
    def name(self) -> str:
        """The name of the file; of a field of a plate, with its places in it."""
        field = zarr.is_zarr(self.path) and not zarr.has_suffix(self.path)
        return zarr.name_of(self.path) if field else self.path.name

    @property
    def size(self) -> int:
        """Bytes of its pixels; 0 where they are not known."""
        return 0 if self.look is None else self.look.size

    def wait(self) -> None:
        """Wait for a run."""
        self.state, self.words, self.report, self.share = WAITING, "Waiting", None, 0.0

    def run(self, progress: BatchProgress, words: str) -> None:
        """Show how far a run is."""
        self.state, self.words = RUNNING, words
        self.share = progress.done / progress.total if progress.total else 0.0

    def stop(self, notes: Sequence[str] = ()) -> None:
        """Show that a run was stopped at this file; `notes` say what is kept of its result."""
        self.share = 0.0
        kept = "what is done is kept" if notes else "it will start from the beginning"
        self.state, self.words = STOPPED, f"Stopped; {kept}"

    def end(self, report: FileReport, seconds: float) -> None:
        """Take the report on the file."""
        self.report = report
        if report.error is not None:
            self.state, self.words = FAILED, error_words(report.error, self.path)
        elif report.skipped:
            self.state, self.words = SKIPPED, without_path(in_batch(report.skipped), self.path)
        else:
            self.state = DONE
            clipped = report.record.saturated
            told = f"; {clipped} values clipped" if clipped else ""
            self.words = f"Done in {_time(seconds)}{told}"


def _time(seconds: float) -> str:
    if seconds < 9.5:
        return f"{seconds:.2g} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def stage_of(progress: BatchProgress) -> Stage:
    """Return the step of a file in the words of the list."""
    if not progress.total:
        return Stage((progress.unit or "reading").capitalize())
    return Stage(progress.unit.capitalize(), progress.done, progress.total)


def in_batch(message: DenoiseError | Note | str) -> str:
    """Return an error or a note in terms of the controls of this panel."""
    return in_panel(message, _REMEDIES)


def error_words(error: Exception, path: Path | None = None) -> str:
    """Return an error as a sentence for the line of a file."""
    if isinstance(error, MemoryError) and not isinstance(error, DenoiseError):
        return "There is not enough memory for this file."
    if not is_expected(error):
        return f"Internal error: {error!r}. Please report it."
    text = in_batch(error)
    return text if path is None else without_path(text, path)


def without_path(text: str, path: Path) -> str:
    """Return a sentence that names a file by its name alone."""
    return text.replace(str(path), path.name)


def looking(
    paths: Sequence[Path], stopped: Callable[[], bool] = lambda: False
) -> Generator[Look, None, None]:
    """Look at files, one after another."""
    for path in paths:
        if stopped():
            return
        yield look_at(path)


def look_at(path: Path) -> Look:
    """Read the head of a file."""
    try:
        with formats.open_stack(path) as picture:
            data = picture.data
            axes, shape = picture.filter_axes, tuple(data.shape)
            return Look(path, axes, shape, str(data.dtype), int(data.nbytes))
    except Exception as error:
        return Look(path, error=error_words(error, path))


def command_with_remarks(batch: Batch, rows: Sequence[Row], folder: str) -> tuple[str, list[str]]:
    """Return the command for a shell, and sentences on what it does otherwise than the panel."""
    run = batch.run
    words = ["gpu-denoise", run.filter.name.replace("_", "-"), *inputs_of(rows), "-o", folder]
    words += noise_option(run)
    words += ["--axes", run.axes] if run.axes else []
    words += as_options(run.filter.as_arguments() | common_arguments(run))
    words += [f"--{name}" for name in _existing(batch)]
    remarks = []
    if "--noise" in words and not isinstance(run.noise, str):
        remarks.append("It measures the noise again, in each file.")
    return shell_line(words), remarks


def python_call(batch: Batch, rows: Sequence[Row], folder: str) -> str:
    """Return Python code that does the same."""
    run = batch.run
    given: dict[str, Any] = {**noise_argument(run), "output": folder}
    given |= {"axes": run.axes} if run.axes else {}
    given |= common_arguments(run) | dict.fromkeys(_existing(batch), True)
    chosen = run.filter.as_arguments()
    made = ".of" if "profile" in chosen else ""
    words = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
    listed = "".join(f"    {name!r},\n" for name in inputs_of(rows))
    return (
        f"{code.IMPORT}\nfiles = [\n{listed}]\n"
        f"report = gd.run_batch(files, gd.{type(run.filter).__name__}{made}({words})"
        f"{code.arguments(given)})\n"
        "for file in report.failed:\n    print(file.input, file.error)\n"
    )


def inputs_of(rows: Sequence[Row]) -> list[str]:
    """Return what names the files: the folders that were added, where they are still complete."""
    held = {row.path for row in rows}
    whole = {given: _is_all_of(given, held) for given in {row.given for row in rows}}
    names = (row.given if whole[row.given] else str(row.path) for row in rows)
    return list(dict.fromkeys(names))


def _is_all_of(given: str, held: set[Path]) -> bool:
    if not os.path.isdir(given):
        return True
    try:
        return held.issuperset(find_files(given))
    except FileError:
        return False


def _existing(batch: Batch) -> list[str]:
    """Return the arguments that say what becomes of existing results."""
    return [name for name in ("overwrite", "resume") if getattr(batch, name)]
