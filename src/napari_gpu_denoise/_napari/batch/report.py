"""The report on a batch in a window: text as the command line prints it, or JSON, to be saved."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from qtpy import QtWidgets
from qtpy.QtCore import Qt
from qtpy.QtGui import QFontDatabase

from napari_gpu_denoise._napari.batch.rows import error_words, in_batch
from napari_gpu_denoise._napari.parts import Caption, button, row_of, save_text
from napari_gpu_denoise.files.batch import BatchReport, lines_on

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
        self.copy_button = button("Copy", "Copy the text.", self._copy)
        tip = "Save as text (.txt), or with all values (.json)."
        self.save_button = button("Save …", tip, self.ask)
        self.close_button = button("Close", "Close this window.", self.close)
        layout = QtWidgets.QVBoxLayout(self)
        layout.addWidget(self.text)
        layout.addWidget(self.status)
        buttons = self.copy_button, self.save_button, self.close_button
        layout.addLayout(row_of(*buttons, before=True))

    def ask(self) -> None:
        """Ask for a name, and save."""
        kinds = "Text (*.txt);;All values (*.json)"
        name, kind = QtWidgets.QFileDialog.getSaveFileName(
            self, "Save the report", "report.txt", kinds
        )
        if name:
            self.save(name, as_data="json" in kind)

    def save(self, name: str, as_data: bool = False) -> None:
        """Save under a name that the user agreed to replace."""
        told = as_json if as_data or name.lower().endswith(".json") else as_text
        text = partial(told, self._report, self._settings)
        inputs = [file.input for file in self._report.files]
        self.status.setText(save_text(name, text, in_batch, inputs))

    def _copy(self) -> None:
        QtWidgets.QApplication.clipboard().setText(self.text.toPlainText())
        self.status.setText("Copied.")
