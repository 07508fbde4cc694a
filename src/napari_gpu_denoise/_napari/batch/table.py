"""What the panel shows of a batch: a table of its files, and a report in a window."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from qtpy import QtGui, QtWidgets
from qtpy.QtCore import QAbstractTableModel, QItemSelection, QModelIndex, Qt, Signal
from qtpy.QtGui import QFontDatabase

from napari_gpu_denoise._napari.batch.rows import FAILED, RUNNING, Row, error_words, in_batch
from napari_gpu_denoise._napari.parts import Caption, button, row_of, wrapped
from napari_gpu_denoise.errors import DenoiseError, FileError
from napari_gpu_denoise.files import FORMAT_NAMES, formats, zarr
from napari_gpu_denoise.files.batch import BatchReport, lines_on
from napari_gpu_denoise.files.formats import find_files
from napari_gpu_denoise.files.output import new_file

FILE, IMAGE, STATE = range(3)
_TITLES = ("File", "Image", "State")
_EMPTY = "Drop files or folders here, or add them below."
_LINES = 5, 14  # least and most in view, in the height of the table
_WIDTHS = 0.31, 0.35  # of the first columns, as shares
_FAILED_COLOURS = QtGui.QColor("#b3261e"), QtGui.QColor("#ff8a80")  # on light and on dark themes


def found_in(names: Sequence[str]) -> tuple[list[Row], list[DenoiseError]]:
    """Return the files that names of files and folders stand for, and errors of others."""
    rows: list[Row] = []
    errors: list[DenoiseError] = []
    for name in map(os.path.abspath, names):
        try:
            for path in find_files(name):
                if not (formats.has_suffix(path) or formats.is_image(path)):
                    raise FileError(f"{path} is not a {FORMAT_NAMES} file: choose another.")
                rows.append(Row(path, name))
        except DenoiseError as error:
            errors.append(error)
    return rows, errors


def folder_for(row: Row) -> str:
    """Return a folder for results: in the folder that was added, or beside the file."""
    given = Path(row.given)
    if given.is_dir() and not formats.is_image(given):
        return str(given / "denoised")
    # Not in an OME-Zarr that a field is part of.
    whole = [each for each in (given, *given.parents) if zarr.has_suffix(each)]
    return str((whole[-1] if whole else given).parent / "denoised")


class RowTable(QAbstractTableModel):
    """Rows as a table; whoever changes a row calls `refresh_row`."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.failed_colour = _FAILED_COLOURS[0]

    def rowCount(self, parent: QModelIndex | None = None) -> int:
        """Return the number of files."""
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: QModelIndex | None = None) -> int:
        """Return the number of columns."""
        return 0 if parent is not None and parent.isValid() else len(_TITLES)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        """Return the title of a column."""
        if role == Qt.ItemDataRole.DisplayRole and orientation == Qt.Orientation.Horizontal:
            return _TITLES[section]
        return None

    def data(self, index: QModelIndex, role: int = 0) -> Any:
        """Return the text of a cell, and how it looks."""
        row, column = self.rows[index.row()], index.column()
        info = row.info
        if role == Qt.ItemDataRole.DisplayRole:
            image = "" if info is None else info.words
            return (row.name, image, row.words)[column]
        if role == Qt.ItemDataRole.ToolTipRole:
            image = "" if info is None else info.error or info.words
            return wrapped((str(row.path), image, row.words)[column])
        wrong = {STATE: row.state == FAILED, IMAGE: row.broken}
        if role == Qt.ItemDataRole.ForegroundRole and wrong.get(column):
            return QtGui.QBrush(self.failed_colour)
        if role == Qt.ItemDataRole.FontRole and row.state == RUNNING and column != IMAGE:
            font = QtGui.QFont()
            font.setBold(True)
            return font
        return None

    def add(self, rows: Iterable[Row]) -> list[Row]:
        """Add rows of files that are not there yet; return them."""
        known = {each.path for each in self.rows}
        new = [each for each in rows if each.path not in known]
        if new:
            first = len(self.rows)
            self.beginInsertRows(QModelIndex(), first, first + len(new) - 1)
            self.rows += new
            self.endInsertRows()
        return new

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove rows."""
        for number in sorted(set(numbers), reverse=True):
            self.beginRemoveRows(QModelIndex(), number, number)
            del self.rows[number]
            self.endRemoveRows()

    def number_of(self, path: Path) -> int | None:
        """Return where a file is in the list."""
        return next((n for n, row in enumerate(self.rows) if row.path == path), None)

    def refresh_all(self) -> None:
        """Redraw all rows."""
        if self.rows:
            last = self.index(len(self.rows) - 1, len(_TITLES) - 1)
            self.dataChanged.emit(self.index(0, 0), last)

    def refresh_row(self, number: int) -> None:
        """Redraw a row."""
        self.dataChanged.emit(self.index(number, 0), self.index(number, len(_TITLES) - 1))


class _FromTheBeginning(QtWidgets.QStyledItemDelegate):
    """Draws the beginning of a text that does not fit; of names the end is shown, too."""

    def initStyleOption(self, option: Any, index: QModelIndex) -> None:
        super().initStyleOption(option, index)
        option.textElideMode = Qt.TextElideMode.ElideRight


class FileList(QtWidgets.QTableView):
    """Shows the files; takes those that are dropped, and the key Delete.

    A row has one line, and all of its text while it is selected.
    """

    #: Names of files and folders were dropped.
    dropped = Signal(list)
    #: Selected rows are to be removed.
    unwanted = Signal()

    def __init__(self, model: RowTable):
        super().__init__()
        self.setModel(model)
        self.setAccessibleName("Files")
        self.setAcceptDrops(True)
        self.setSelectionBehavior(QtWidgets.QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QtWidgets.QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QtWidgets.QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setItemDelegateForColumn(STATE, _FromTheBeginning(self))
        self.setTabKeyNavigation(False)
        self.setSizePolicy(
            QtWidgets.QSizePolicy.Policy.Expanding, QtWidgets.QSizePolicy.Policy.Fixed
        )
        self.verticalHeader().hide()
        heads = self.horizontalHeader()
        heads.setHighlightSections(False)
        heads.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        heads.setSectionResizeMode(FILE, QtWidgets.QHeaderView.ResizeMode.Interactive)
        heads.setSectionResizeMode(IMAGE, QtWidgets.QHeaderView.ResizeMode.Interactive)
        heads.setSectionResizeMode(STATE, QtWidgets.QHeaderView.ResizeMode.Stretch)
        # New rows wait, in one line; there may be thousands.
        self.verticalHeader().setDefaultSectionSize(self._line())
        model.rowsInserted.connect(self._fit_height)
        model.rowsRemoved.connect(self._fit_height)
        model.dataChanged.connect(self._fit_rows)
        heads.sectionResized.connect(self._fit)
        self.selectionModel().selectionChanged.connect(self._fit_selected)
        self._fit()

    def chosen(self) -> list[int]:
        """Return the numbers of the rows that are selected."""
        return sorted(index.row() for index in self.selectionModel().selectedRows())

    def show_row(self, number: int) -> None:
        """Scroll to a row."""
        self.scrollTo(self.model().index(number, FILE))

    def dragEnterEvent(self, event: QtGui.QDragEnterEvent) -> None:
        """Accept local files."""
        self._accept(event)

    def dragMoveEvent(self, event: QtGui.QDragMoveEvent) -> None:
        """Accept local files anywhere."""
        self._accept(event)

    def dropEvent(self, event: QtGui.QDropEvent) -> None:
        """Take the files."""
        if names := _local(event):
            event.acceptProposedAction()
            self.dropped.emit(names)

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        """Remove rows by the key Delete."""
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.unwanted.emit()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QtGui.QPaintEvent) -> None:
        """Paint in the colours of the theme; say what to do where there are no files."""
        dark = self.palette().text().color().lightness() > 127
        self.model().failed_colour = _FAILED_COLOURS[dark]
        super().paintEvent(event)
        if not self.model().rowCount():
            painter = QtGui.QPainter(self.viewport())
            painter.setPen(self.palette().placeholderText().color())
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(self.viewport().rect().adjusted(8, 8, -8, -8), flags, _EMPTY)

    def _accept(self, event: QtGui.QDragMoveEvent) -> None:
        if _local(event):
            event.acceptProposedAction()
        else:
            event.ignore()

    def _fit(self, *_: object) -> None:
        """Adapt the heights of the open rows, and of the list."""
        for number in self.chosen():
            self.resizeRowToContents(number)
        self._fit_height()

    def _line(self) -> int:
        return self.fontMetrics().height() + 8

    def _fit_height(self, *_: object) -> None:
        least, most = (self._line() * lines for lines in _LINES)
        rows = min(max(self.verticalHeader().length(), least), most)
        self.setFixedHeight(rows + self.horizontalHeader().sizeHint().height() + 4)

    def resizeEvent(self, event: Any) -> None:
        """Share the width among the columns."""
        super().resizeEvent(event)
        width = self.viewport().width()
        for column, share in zip((FILE, IMAGE), _WIDTHS, strict=True):
            self.setColumnWidth(column, round(share * width))

    def _fit_rows(self, first: QModelIndex, last: QModelIndex) -> None:
        for number in range(first.row(), last.row() + 1):
            self._fit_row(number)
        self._fit_height()

    def _fit_selected(self, *changed: QItemSelection) -> None:
        for number in {index.row() for each in changed for index in each.indexes()}:
            self._fit_row(number)
        self._fit_height()

    def _fit_row(self, number: int) -> None:
        """Open a row that is selected; close another."""
        if self.selectionModel().isRowSelected(number, QModelIndex()):
            self.resizeRowToContents(number)
        else:
            self.setRowHeight(number, self._line())


def _local(event: QtGui.QDropEvent) -> list[str]:
    """Return the names of the local files that are dragged."""
    return [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]


_SIZE = (820, 560)  # pixels


def as_text(report: BatchReport, settings: Any) -> str:
    """Return the outcome of each file, and the numbers of files."""
    lines: list[str] = []
    for file in report.files:
        if file.output is not None:
            lines += lines_on(file, settings, in_batch)
        elif file.skipped:
            lines.append(in_batch(file.skipped))
        else:
            text = error_words(file.error)
            lines.append(text if str(file.input) in text else f"{file.input}: {text}")
            lines += (f"  note        {in_batch(note)}" for note in file.notes)
    return "\n".join([*lines, report.summary, ""])


def as_json(report: BatchReport, settings: Any) -> str:
    """Return the report as ``gpu-denoise … --json`` prints it."""
    return json.dumps({"profile": settings.profile_name(), **report.as_dict()}, indent=2) + "\n"


class ReportWindow(QtWidgets.QDialog):
    """Shows the report on a batch."""

    def __init__(self, parent: QtWidgets.QWidget, report: BatchReport, settings: Any):
        super().__init__(parent)
        self._report, self._settings = report, settings
        self.setWindowTitle("GPU Denoise: report on the batch")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(*_SIZE)
        self.text = QtWidgets.QPlainTextEdit(as_text(report, settings))
        self.text.setReadOnly(True)
        self.text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.status = Caption()
        tip = "Save as text (.txt), or with all values (.json)."
        self.save_button = button("Save …", tip, self.ask)
        layout = QtWidgets.QVBoxLayout(self)
        layout.addWidget(self.text)
        layout.addWidget(self.status)
        layout.addLayout(row_of(self.save_button, before=True))

    def ask(self) -> None:
        """Ask for a name, and save."""
        kinds = "Text (*.txt);;All values (*.json)"
        name, kind = QtWidgets.QFileDialog.getSaveFileName(
            self, "Save the report", "report.txt", kinds
        )
        if name:
            self.save(name, as_data="json" in kind)

    def save(self, name: str, as_data: bool = False) -> None:
        """Save under a name that the user agreed to replace, but of no input."""
        told = as_json if as_data or name.lower().endswith(".json") else as_text
        inputs = [file.input for file in self._report.files]
        try:
            with new_file(name, overwrite=True, keep=inputs) as file:
                file.write(told(self._report, self._settings).encode())
        except DenoiseError as error:
            self.status.setText(in_batch(error))
        else:
            self.status.setText(f"Saved as {name}.")
