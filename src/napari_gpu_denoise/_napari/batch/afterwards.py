"""What the panel "Batch" does with results: opens them, and reports on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from napari.viewer import Viewer
from qtpy.QtCore import QModelIndex

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.batch.report import ReportWindow
from napari_gpu_denoise._napari.batch.rows import ENDED, Row
from napari_gpu_denoise._napari.batch.wanted import BatchWanted
from napari_gpu_denoise.files.batch import BatchReport


class BatchAfterwards(BatchWanted):
    """Opens results as layers, and the report."""

    def __init__(self, viewer: Viewer):
        super().__init__(viewer)
        # Of the last run.
        self._targets: dict[Path, Path] = {}
        self._settings: Any = None
        self._cancelled = False
        self.files.doubleClicked.connect(self._open_row)
        self.open_button.clicked.connect(lambda: self.open_results())
        self.report_button.clicked.connect(lambda: self.show_report())

    def open_results(self) -> None:
        """Open the results of the selected files as layers."""
        found = [target for row in self._chosen() if (target := self._result(row)) is not None]
        for target in found:
            self._open(target)
        if not found:
            self.say("None of the selected files has a result.")

    def report(self) -> BatchReport:
        """Return what became of the files so far."""
        reports = tuple(row.report for row in self.table.rows if row.report is not None)
        return BatchReport(reports, cancelled=self._cancelled)

    def show_report(self) -> ReportWindow:
        """Open the report in a window of its own."""
        window = ReportWindow(self.window(), self.report(), self._settings)
        window.show()
        return window

    def _chosen(self) -> list[Row]:
        return [self.table.rows[number] for number in self.files.chosen()]

    def _result(self, row: Row) -> Path | None:
        """Return the result of a file, if there is one."""
        target = self._targets.get(row.path) if row.state in ENDED else None
        return target if target is not None and target.exists() else None

    def _open_row(self, index: QModelIndex) -> None:
        row = self.table.rows[index.row()]
        self._open(self._result(row) or row.path)

    def _open(self, path: Path) -> None:
        try:
            self._viewer.open(str(path), plugin=preferences.PLUGIN)
        except Exception as error:
            self.show_error(error)
