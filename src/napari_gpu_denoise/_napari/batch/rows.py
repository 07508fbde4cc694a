"""Files of the list: header, state and report of each, in words; no Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from napari_gpu_denoise._napari import wording
from napari_gpu_denoise._napari.wording import counted, duration, in_panel
from napari_gpu_denoise.errors import DenoiseError, Note
from napari_gpu_denoise.files import formats, zarr
from napari_gpu_denoise.files.batch import BatchProgress, FileReport, is_expected
from napari_gpu_denoise.run.progress import Progress, Step

# States of a file.
WAITING, RUNNING, STOPPED, DONE, SKIPPED, FAILED = (
    *("waiting", "running", "stopped"),
    *("done", "skipped", "failed"),
)
ENDED = (DONE, SKIPPED)  # not tried again

REMEDIES = {
    **wording.REMEDIES,
    "another-result": "choose Replace them at Existing results, or another folder",
    "exists": "choose Replace them at Existing results, or another folder",
    "file-dtype": "choose float32 at Result and device > Result type",
    "kept": "run it again to continue",
    "unfinished": "use its earlier settings, or choose Replace them at Existing results",
    "unfinished-damaged": "choose Replace them at Existing results",
}


@dataclass(frozen=True)
class FileInfo:
    """The header of a file, or why it cannot be read."""

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
    info: FileInfo | None = None
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
        return 0 if self.info is None else self.info.size

    @property
    def broken(self) -> bool:
        """Whether its header cannot be read."""
        return self.info is not None and bool(self.info.error)

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

    def end(self, report: FileReport) -> None:
        """Take the report on the file."""
        self.report = report
        if report.error is not None:
            # The name is in the first column.
            name, found, rest = error_words(report.error, self.path).partition(" is ")
            own = name == self.path.name
            words = f"{rest[:1].upper()}{rest[1:]}" if own else f"{name}{found}{rest}"
            self.state, self.words = FAILED, words
        elif report.skipped:
            self.state, self.words = SKIPPED, without_path(in_batch(report.skipped), self.path)
        else:
            self.state = DONE
            clipped = report.record.saturated
            told = f"; {counted(clipped, 'value', 'values')} clipped" if clipped else ""
            chosen, because, _ = report.record.recommended.partition(", because")
            by = f" by {chosen.replace(', profile normal', '')}" if because else ""
            self.words = f"Done{by} in {duration(report.seconds)}{told}"


def step_of(progress: BatchProgress) -> Step:
    """Return the step of a file."""
    return Step(progress.done, progress.total, progress.unit or "reading")


def in_batch(message: DenoiseError | Note | str) -> str:
    """Return an error or a note in terms of the controls of this panel."""
    return in_panel(message, REMEDIES)


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


def read_infos(paths: Sequence[Path], progress: Progress) -> None:
    """Report the header of each of the files."""
    for path in paths:
        progress.check()
        progress.report(read_info(path))


def read_info(path: Path) -> FileInfo:
    """Read the header of a file."""
    try:
        with formats.open_stack(path) as picture:
            data = picture.data
            axes, shape = picture.filter_axes, tuple(data.shape)
            return FileInfo(path, axes, shape, str(data.dtype), int(data.nbytes))
    except Exception as error:
        return FileInfo(path, error=error_words(error, path))
