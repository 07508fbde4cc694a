"""The list of the files of a batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from qtpy import QtGui, QtWidgets
from qtpy.QtCore import Qt, Signal

from napari_gpu_denoise._napari.batch.rows import Row
from napari_gpu_denoise.errors import DenoiseError, FileError
from napari_gpu_denoise.files import FORMAT_NAMES, formats, zarr

_LINES = 9  # in view
_WIDTHS = 0.25, 0.26  # of the first columns, as shares; the state takes the rest


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
    whole = [each for each in (given, *given.parents) if zarr.has_suffix(each)]
    return str((whole[-1] if whole else given).parent / "denoised")


class FileList(QtWidgets.QTreeWidget):
    """Shows the files and their states; takes those that are dropped, and the key Delete."""

    #: Names of files and folders were dropped.
    dropped = Signal(list)
    #: Selected rows are to be removed.
    unwanted = Signal()

    def __init__(self) -> None:
        super().__init__(accessibleName="Files", rootIsDecorated=False, uniformRowHeights=True)
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

    def row_of(self, path: Path) -> Row | None:
        """Return the row of a file, if it is in the list."""
        return next((row for row in self.rows if row.path == path), None)

    def resizeEvent(self, event: QtGui.QResizeEvent) -> None:
        """Share the width among the columns."""
        super().resizeEvent(event)
        for column, share in enumerate(_WIDTHS):
            self.setColumnWidth(column, round(share * self.viewport().width()))

    def dragEnterEvent(self, event: QtGui.QDragEnterEvent) -> None:
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
