"""The list of files of the panel "Batch": header, state and report of each, in words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qtpy import QtGui, QtWidgets
from qtpy.QtCore import Qt, Signal

from napari_gpu_denoise._napari import wording
from napari_gpu_denoise._napari.parts import wrapped
from napari_gpu_denoise._napari.tasks import words_of
from napari_gpu_denoise.errors import DenoiseError, FileError
from napari_gpu_denoise.files import FORMAT_NAMES, formats, zarr
from napari_gpu_denoise.files.batch import BatchProgress, FileReport, is_expected
from napari_gpu_denoise.run.progress import Progress, Step

FILE, IMAGE, STATE = range(3)  # columns
_LINES = 9  # in view
_WIDTHS = 0.29, 0.28  # of the first columns, as shares; the state takes the rest

# States of a file.
WAITING, RUNNING, STOPPED = "waiting", "running", "stopped"
DONE, SKIPPED, FAILED = "done", "skipped", "failed"
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


class Header(NamedTuple):
    """A file, its axes and their lengths in words, more in a tooltip; no axes if it is broken."""

    path: Path
    details: str
    axes: str = ""
    words: str = "cannot be read"


class Row(QtWidgets.QTreeWidgetItem):
    """A file of the list; `given` is what the user added, the file itself or its folder."""

    def __init__(self, path: Path, given: str):
        self.path, self.given = path, given
        self.header: Header | None = None
        # A field of a plate has no name of its own.
        field = zarr.places.is_zarr(path) and not zarr.places.has_suffix(path)
        super().__init__([zarr.metadata.name_of(path) if field else path.name])
        self.setToolTip(FILE, wrapped(str(path)))
        self.wait()

    @property
    def broken(self) -> bool:
        """Whether its header cannot be read."""
        return self.header is not None and not self.header.axes

    @property
    def details(self) -> str:
        """Name and state, completely; of a file that waits its header."""
        header = self.header if self.state == WAITING else None
        return f"{self.text(FILE)}: {self.text(STATE) if header is None else header.details}"

    def describe(self, header: Header) -> None:
        """Show the header."""
        self.header = header
        self.setText(IMAGE, header.words)
        self.setToolTip(IMAGE, wrapped(header.details))
        self._warn(IMAGE, self.broken)

    def wait(self) -> None:
        """Wait for a run."""
        self.report: FileReport | None = None
        self._show(WAITING, "Waiting")

    def run(self, progress: BatchProgress) -> None:
        """Show how far a run is."""
        words = words_of(Step(progress.done, progress.total, progress.unit or "reading"))
        self._show(RUNNING, words, progress.done / max(progress.total, 1))

    def stop(self, notes: Sequence[str] = ()) -> None:
        """Show that a run was stopped at this file; `notes` say what is kept of its result."""
        kept = "what is done is kept" if notes else "it will start from the beginning"
        self._show(STOPPED, f"Stopped; {kept}")

    def end(self, report: FileReport) -> None:
        """Take the report on the file."""
        self.report = report
        if report.error is not None:
            # The name is in the first column.
            words = error_words(report.error, self.path).removeprefix(f"{self.path.name} is ")
            self._show(FAILED, words[:1].upper() + words[1:])
        elif report.skipped:
            words = wording.in_panel(report.skipped, REMEDIES)
            self._show(SKIPPED, words.replace(str(self.path), self.path.name))
        else:
            record: Any = report.record
            clipped = record.saturated
            told = f"; {wording.counted(clipped, 'value', 'values')} clipped" if clipped else ""
            chosen, because, _ = record.recommended.partition(", because")
            by = f" by {chosen.replace(', profile normal', '')}" if because else ""
            self._show(DONE, f"Done{by} in {wording.duration(report.seconds)}{told}")

    def _show(self, state: str, words: str, share: float = 0.0) -> None:
        self.state, self.share = state, share
        self.setText(STATE, words)
        self.setToolTip(STATE, wrapped(words))
        self._warn(STATE, state == FAILED)
        font = self.font(FILE)
        font.setBold(state == RUNNING)
        self.setFont(FILE, font)

    def _warn(self, column: int, wrong: bool) -> None:
        sign = QtWidgets.QStyle.StandardPixmap.SP_MessageBoxWarning
        self.setData(
            column,
            Qt.ItemDataRole.DecorationRole,
            QtWidgets.QApplication.style().standardIcon(sign) if wrong else None,
        )


def error_words(error: Any, path: Path) -> str:
    """Return an error as a sentence for the line of a file."""
    if isinstance(error, MemoryError) and not isinstance(error, DenoiseError):
        return "There is not enough memory for this file."
    if not is_expected(error):
        return f"Internal error: {error!r}. Please report it."
    return wording.in_panel(error, REMEDIES).replace(str(path), path.name)


def read_headers(paths: Sequence[Path], progress: Progress) -> None:
    """Report the header of each of the files."""
    for path in paths:
        progress.check()
        progress.report(read_header(path))


def read_header(path: Path) -> Header:
    """Read the header of a file."""
    try:
        with formats.open_stack(path) as picture:
            axes, shape = picture.filter_axes, picture.data.shape
            words = " ".join(f"{axis}{n}" for axis, n in zip(axes, shape, strict=True))
            return Header(path, f"{words} {picture.data.dtype}", axes, words)
    except Exception as error:
        return Header(path, error_words(error, path))


def found_in(names: Sequence[str]) -> tuple[list[tuple[Path, str]], list[DenoiseError]]:
    """Return the files that names of files and folders stand for, each with that name; errors."""
    found: list[tuple[Path, str]] = []
    errors: list[DenoiseError] = []
    for name in map(os.path.abspath, names):
        try:
            for path in formats.find_files(name):
                if not (formats.has_suffix(path) or formats.is_image(path)):
                    raise FileError(f"{path} is not a {FORMAT_NAMES} file: choose another.")
                found.append((path, name))
        except DenoiseError as error:
            errors.append(error)
    return found, errors


def folder_for(name: str) -> str:
    """Return a folder for results: in the folder that was added, or beside the file."""
    given = Path(name)
    if given.is_dir() and not formats.is_image(given):
        return str(given / "denoised")
    # Not in an OME-Zarr that a field is part of.
    whole = [each for each in (given, *given.parents) if zarr.places.has_suffix(each)]
    return str((whole[-1] if whole else given).parent / "denoised")


class FileList(QtWidgets.QTreeWidget):
    """Shows the files and their states; takes those that are dropped, and the key Delete."""

    #: Names of files and folders were dropped.
    dropped = Signal(list)
    #: Selected rows are to be removed.
    unwanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Files")
        self.setRootIsDecorated(False)
        self.setUniformRowHeights(True)
        self.rows: list[Row] = []
        self.setHeaderLabels(("File", "Image", "State"))
        self.setSelectionMode(QtWidgets.QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setAcceptDrops(True)
        self.setTabKeyNavigation(False)
        self.setFixedHeight((_LINES + 1) * (self.fontMetrics().height() + 6))

    def add(self, found: Iterable[tuple[Path, str]]) -> list[Row]:
        """Add rows of files that are not there yet; return them."""
        known = {row.path for row in self.rows}
        new = [Row(*each) for each in found if each[0] not in known]
        self.rows += new
        self.addTopLevelItems(new)
        return new

    def chosen(self) -> list[Row]:
        """Return the rows that are selected."""
        return [row for row in self.rows if row.isSelected()]

    def remove_chosen(self) -> None:
        """Remove the rows that are selected."""
        for row in self.chosen():
            self.takeTopLevelItem(self.indexOfTopLevelItem(row))
        self.rows = [row for row in self.rows if row.treeWidget() is not None]

    def row_of(self, path: Path) -> Any:
        """Return the row of a file, if it is in the list."""
        return next((row for row in self.rows if row.path == path), None)

    def resizeEvent(self, event: QtGui.QResizeEvent) -> None:
        """Share the width among the columns."""
        super().resizeEvent(event)
        for column, share in enumerate(_WIDTHS):
            self.setColumnWidth(column, round(share * self.viewport().width()))

    def dragEnterEvent(self, event: QtGui.QDragMoveEvent) -> None:
        """Accept local files."""
        event.setAccepted(bool(_local(event)))

    dragMoveEvent = dragEnterEvent  # anywhere in the list

    def dropEvent(self, event: QtGui.QDropEvent) -> None:
        """Take the files."""
        self.dropped.emit(_local(event))
        event.acceptProposedAction()

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        """Remove rows by the key Delete."""
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.unwanted.emit()
        else:
            super().keyPressEvent(event)


def _local(event: QtGui.QDropEvent) -> list[str]:
    """Return the names of the local files that are dragged."""
    return [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
