"""The panel "Batch": files in, a folder of results out, with pause, stop and going on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import napari.viewer
from qtpy.QtCore import QModelIndex, QSize, QTimer
from qtpy.QtWidgets import QFileDialog

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.batch import table
from napari_gpu_denoise._napari.batch.form import BatchForm, command_with_remarks, python_call
from napari_gpu_denoise._napari.batch.rows import (
    DONE,
    ENDED,
    FAILED,
    REMEDIES,
    RUNNING,
    WAITING,
    FileInfo,
    Row,
    read_infos,
    step_of,
)
from napari_gpu_denoise._napari.denoise import remembered
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.panel import Panel
from napari_gpu_denoise._napari.parts import Caption, button, holding, progress_bar, row_of
from napari_gpu_denoise._napari.tasks import Outcome, Task, TimeLeft
from napari_gpu_denoise._napari.wording import counted
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files import FORMAT_NAMES, formats
from napari_gpu_denoise.files.batch import (
    Batch,
    BatchProgress,
    BatchReport,
    FileReport,
    denoise_files,
)
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.run.progress import Progress, Step

_WIDTH = 480  # pixels in which a line of the list can be read
_PARTS = 1000  # of the bar of all files
_INTERVAL = 0.1  # seconds between two updates of a line
_PAUSE = 0.05  # seconds between two looks whether a pause is over


@dataclass(frozen=True)
class BatchRequest:
    """Files to denoise, those of `only`; `paused` and `stopping` are set from the GUI thread."""

    batch: Batch
    only: frozenset[Path]
    paused: Event = field(default_factory=Event)
    stopping: Event = field(default_factory=Event)


def denoise_batch(request: BatchRequest, progress: Progress) -> BatchReport:
    """Denoise files, with pauses between two steps."""
    batch = request.batch

    def stopped() -> bool:
        return request.stopping.is_set() or progress.stopped()

    def report(step: BatchProgress | FileReport) -> None:
        progress.report(step)
        while request.paused.is_set() and not stopped():
            time.sleep(_PAUSE)

    run = replace(batch.run, device=choose_devices(batch.run.device))
    return denoise_files(replace(batch, run=run), Progress(report, stopped), request.only)


class BatchPanel(Panel):
    """Lists files, and denoises them off the GUI thread by the engine of the command line."""

    title = "Batch"
    failed = "Not done."
    out_of_memory = "There is not enough memory: close other programs and run again."
    aloud = True
    remedies = REMEDIES

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(viewer)
        self.table, self.form = table.RowTable(), BatchForm()
        self.files, self.progress = table.FileList(self.table), progress_bar()
        self.runs = Task(self, denoise_batch, bar=True, cancel=self.cancel)
        self._headers = Task(self, read_infos, self.title, alone=True)
        self.add_button = button("Add files …", f"Add {FORMAT_NAMES} files.")
        self.folder_button = button(
            "Add folder …", "Add all images of a folder, an OME-Zarr, or the fields of a plate."
        )
        self.remove_button = button(
            "Remove", "Remove the selected files from the list (Delete). The files are kept."
        )
        self.run_button = button(
            "Denoise", "Denoise the files. The files themselves are not changed."
        )
        self.pause_button = button("Pause", "Pause after the current step.")
        self.stop_button = button(
            "Stop", "Stop after the current step. What is done is kept, and can be continued later."
        )
        self.open_button = button(
            "Open result", "Open the results of the selected files, or double-click a row."
        )
        self.report_button = button("Report …", "What was done, as gpu-denoise reports it.")
        self.add_code_buttons("for the same batch")
        self._suggested = ""  # folder of the results
        # Of the last run.
        self._key: Any = None
        self._batch: Batch | None = None
        self._cancelled = False
        # Of the run in progress.
        self._todo: list[Row] = []
        self._file_left, self._all_left = TimeLeft(), TimeLeft()
        self._shown = 0.0
        self._lay_out()
        self._connect()
        self.show_running(False)
        QTimer.singleShot(0, self.form.options.device.fill)

    def sizeHint(self) -> QSize:
        """Return a width at which the list can be read."""
        hint = super().sizeHint()
        return QSize(max(hint.width(), _WIDTH), hint.height())

    def _lay_out(self) -> None:
        summary = Caption()
        summary.setText("Filters many files.")
        adding = row_of(self.add_button, self.folder_button, self.remove_button)
        doing = holding(row_of(self.run_button, self.pause_button, self.stop_button))
        head = with_guide(summary, "guide/napari.md#many-files-batch")
        self.arrange(
            (head, self.files, adding, self.form),
            (
                (self.progress,),
                (self.status,),
                (doing,),
                (self.open_button, self.report_button),
                (self.python_button, self.command_button),
            ),
        )

    def _connect(self) -> None:
        self._headers.told.connect(self._on_described)
        self.runs.told.connect(self._on_step)
        self.runs.ended.connect(self._on_ended)
        self.runs.stopped.connect(self._on_stopped)
        self.files.dropped.connect(self.add)
        self.files.unwanted.connect(self.remove)
        self.files.selectionModel().selectionChanged.connect(lambda *_: self._offer())
        self.files.doubleClicked.connect(self._open_row)
        self.form.axes.textChanged.connect(self._follow_axes)
        self.form.changed.connect(self._check)
        for each, act in (
            (self.add_button, lambda: self.add(self.ask_files())),
            (self.folder_button, self._add_folder),
            (self.remove_button, self.remove),
            (self.run_button, self.run),
            (self.pause_button, self.pause),
            (self.stop_button, self.cancel),
            (self.open_button, self.open_results),
            (self.report_button, self.show_report),
        ):
            each.clicked.connect(lambda _=False, act=act: act())
        explain = self.form.options.device.explain
        self.follow("preferences", ((event, explain) for event in preferences.changed()))

    def add(self, names: list[str]) -> None:
        """Add files, and the images of folders."""
        # Off the GUI thread; an error there is no file found.
        Loading(
            partial(table.found_in, names), lambda found: self._on_found(*(found or ([], []))), self
        )

    def remove(self) -> None:
        """Take the selected files out of the list."""
        if not self.runs.running:
            self.table.remove(self.files.chosen())
            self._follow_axes()
            self._offer()

    def waiting(self) -> tuple[list[Row], bool]:
        """Return the files that a run would denoise, and whether it continues the last run."""
        left = [row for row in self.table.rows if row.state not in ENDED]
        on = bool(left) and self._key is not None and self._key == self.form.key()
        return (left, True) if on else (list(self.table.rows), False)

    def run(self) -> None:
        """Denoise the files that wait; errors are shown in the panel."""
        if self.runs.running:
            return
        self._todo, on = self.waiting()
        try:
            batch = self.form.batch(self._paths(), resume=on)
        except DenoiseError as error:
            self.show_error(error)
            return
        remembered.remember(batch.run.filter)
        self._key, self._batch, self._cancelled = self.form.key(), batch, False
        for row in self._todo:
            row.wait()
        self.table.refresh_all()
        self._file_left, self._all_left = TimeLeft(), TimeLeft()
        name = f"{batch.run.filter.title}: {_files(len(self._todo))}"
        self.runs.start(BatchRequest(batch, frozenset(row.path for row in self._todo)), name)
        self.show_running(True)

    @property
    def _paused(self) -> bool:
        return self.runs.running and self.runs.request.paused.is_set()

    @property
    def _stopping(self) -> bool:
        return self.runs.running and self.runs.request.stopping.is_set()

    def pause(self) -> None:
        """Pause, or resume after a pause."""
        if not self.runs.running:
            return
        paused, event = not self._paused, self.runs.request.paused
        event.set() if paused else event.clear()
        # Neither counts the pause.
        self._file_left, self._all_left = TimeLeft(), TimeLeft()
        self.pause_button.setText("Resume" if paused else "Pause")
        self.say(f"Paused. {self._place()}" if paused else self._place())

    def cancel(self) -> None:
        """Stop at the next step; files that are complete stay."""
        if self.runs.running:
            self.runs.request.stopping.set()
            self.stop_button.setEnabled(False)
            self.pause_button.setEnabled(False)
            self.say("Stopping …")

    def stop(self) -> None:
        """Stop; the panel is being closed. What is done is kept on the disk."""
        self._headers.drop()
        if self.runs.running:
            self.runs.drop()
            self._on_stopped()

    def show_running(self, running: bool) -> None:
        """Show what can be done now."""
        self.run_button.setEnabled(not running)
        self.pause_button.setEnabled(running)
        self.pause_button.setText("Pause")
        self.stop_button.setEnabled(running)
        self.progress.setVisible(running)
        if running:
            self.progress.setRange(0, 0)
            self.say("Starting …")
        self._offer()

    def _on_found(self, rows: list[Row], errors: list[Exception]) -> None:
        new = self.table.add(rows)
        if new and self.form.output.text() == self._suggested:
            self._suggested = table.folder_for(new[0])
            self.form.output.setText(self._suggested)
        self._headers.start(tuple(row.path for row in self.table.rows if row.info is None))
        if errors:
            self.show_error(errors[0])
        elif not self.runs.running:
            self.say("")
        self._offer()

    def _on_described(self, info: FileInfo) -> None:
        if (number := self.table.number_of(info.path)) is not None:
            self.table.rows[number].info = info
            self.table.refresh_row(number)
            self._follow_axes()
            self._offer()

    def _on_step(self, step: BatchProgress | FileReport) -> None:
        if isinstance(step, FileReport):
            self._on_filed(step)
        else:
            self.runs.show(Step(step.index + 1, step.count, step.path.name))
            self._on_moved(step)

    def _on_moved(self, progress: BatchProgress) -> None:
        now, number = time.monotonic(), self.table.number_of(progress.path)
        if number is None:
            return  # of a run that was left
        row = self.table.rows[number]
        begins = row.state != RUNNING
        if begins:
            self._file_left = TimeLeft()
            self.files.show_row(number)
        words = self._file_left.words(step_of(progress))  # which sees every step
        if not begins and (now < self._shown + _INTERVAL or self._stopping):
            return
        self._shown = now
        row.run(progress, words)
        self.table.refresh_row(number)
        self._show_all()

    def _on_filed(self, report: FileReport) -> None:
        number = self.table.number_of(report.input)
        if number is None:
            return
        row = self.table.rows[number]
        row.end(report)
        if row.state != DONE:
            self._all_left = TimeLeft()  # its pace is not that of the others
        self.table.refresh_row(number)
        self._show_all()
        self._offer()

    def _on_ended(self, outcome: Outcome) -> None:
        report = outcome.value or BatchReport(())
        self._cancelled = report.cancelled
        for file in report.files:
            row = self.table.rows[self.table.number_of(file.input)]
            if row.report is not None and row.report.error is not file.error:
                row.end(file)  # its result is gone
        self._settle(report.notes)
        self.show_running(False)
        if outcome.error is not None:
            self.show_error(outcome.error)
            return
        told = self.report()
        lead = "Stopped." if report.cancelled else "Done." if not told.failed else "Not all done."
        self.say(told.summary, lead)

    def _on_stopped(self) -> None:
        """Show that a run was left, by napari or because the panel is being closed."""
        self._cancelled = True
        self._settle(())
        self.show_running(False)
        self.say(self.report().summary, "Stopped.")

    def _settle(self, notes: tuple[str, ...]) -> None:
        """Show which file a run was stopped at."""
        for row in self._todo:
            if row.state == RUNNING:
                row.stop(notes)
        self._todo = []
        self.table.refresh_all()

    def _show_all(self) -> None:
        """Show how much of all files is done."""
        done, total = self._amounts()
        if total:
            self.progress.setRange(0, _PARTS)
            self.progress.setValue(round(_PARTS * done / total))
        if self.runs.running and not (self._paused or self._stopping):
            left = self._all_left.left(Step(round(done), round(total), "files"))
            self.say(f"{self._place()} {left.capitalize()}." if left else self._place())

    def _amounts(self) -> tuple[float, float]:
        """Return how many bytes of pixels are done, and of how many, in the files of the run."""
        counted = [row for row in self._todo if row.report is None or row.state == DONE]
        known = [row.size for row in self._todo if row.size]
        usual = sum(known) / len(known) if known else 1e6
        sizes = [row.size or usual for row in counted]
        shares = [1.0 if row.state == DONE else row.share for row in counted]
        return sum(n * share for n, share in zip(sizes, shares, strict=True)), sum(sizes)

    def _place(self) -> str:
        ended = sum(row.report is not None for row in self._todo)
        return f"{ended} of {_files(len(self._todo))} done."

    def _offer(self, _: object = None) -> None:
        """Enable what can be done, and say how many files would be denoised."""
        rows, on = self.waiting()
        running = self.runs.running
        begun = any(row.state != WAITING for row in self.table.rows)
        # Those that cannot be read are no promise, unless they are tried again.
        files = _files(sum(row.state == FAILED or not row.broken for row in rows))
        what = f"Denoise {files}" if rows else "Denoise"
        if running:
            what = "Denoising …"
        elif on and all(row.state == FAILED for row in rows):
            what = f"Try {files} again"
        elif on and begun:
            what = f"Continue with {files}"
        self.run_button.setText(what)
        chosen = self._chosen()
        self.remove_button.setEnabled(bool(chosen) and not running)
        self.open_button.setEnabled(any(self._result(row) is not None for row in chosen))
        self.report_button.setEnabled(any(row.report is not None for row in self.table.rows))

    def _check(self) -> None:
        """Follow the settings; what was said of others holds no more."""
        self._offer()
        message = "", ""
        try:
            self.form.options.noise.set_unused(self.form.filter.form.settings().sigma_unused)
        except DenoiseError as error:
            message = self.worded(error), "Not ready."
        if not self.runs.running:
            self.say(*message)

    def _follow_axes(self, _: object = None) -> None:
        """Offer the settings that the axes of any file allow."""
        axes = {axis for row in self.table.rows if row.info is not None for axis in row.info.axes}
        self.form.filter.set_axes(self.form.axes.text().upper() or "".join(sorted(axes)))

    def _add_folder(self) -> None:
        if name := self.form.ask_folder("Folder of images to denoise"):
            self.add([name])

    def ask_files(self) -> list[str]:
        """Ask for files."""
        names = " ".join(f"*{suffix}" for suffix in (*formats.SUFFIXES, ".lsm", ".stk"))
        kinds = f"Images ({names});;All files (*)"
        names, _ = QFileDialog.getOpenFileNames(self, "Files to denoise", "", kinds)
        return names

    def take_noise(self, layer: Any, axes: str, estimate: NoiseEstimate, origin: str) -> None:
        """Take an estimate of noise for all files, measured in `origin`, in words."""
        self.form.options.noise.hand_over(estimate, origin)

    def python_code(self) -> str:
        """Return equivalent Python code."""
        return python_call(self.form.batch(self._paths()), self.table.rows, self.form.folder())

    def command_line(self) -> tuple[str, list[str]]:
        """Return an equivalent command line, and remarks on its differences."""
        batch = self.form.batch(self._paths())
        return command_with_remarks(batch, self.table.rows, self.form.folder())

    def open_results(self) -> None:
        """Open the results of the selected files as layers."""
        targets = [path for row in self._chosen() if (path := self._result(row)) is not None]
        for target in targets:
            self._open(target)
        if not targets:
            self.say("None of the selected files has a result.")

    def report(self) -> BatchReport:
        """Return the report on the files that have ended so far."""
        reports = tuple(row.report for row in self.table.rows if row.report is not None)
        return BatchReport(reports, cancelled=self._cancelled)

    def show_report(self) -> table.ReportWindow:
        """Open the report in a window of its own."""
        window = table.ReportWindow(self.window(), self.report(), self._batch.run.filter)
        window.show()
        return window

    def _paths(self) -> list[Path]:
        return [row.path for row in self.table.rows]

    def _chosen(self) -> list[Row]:
        return [self.table.rows[number] for number in self.files.chosen()]

    def _result(self, row: Row) -> Path | None:
        """Return the result of a file, if there is one."""
        if self._batch is None or row.state not in ENDED:
            return None
        target = self._batch.targets.get(row.path)
        return target if target is not None and target.exists() else None

    def _open_row(self, index: QModelIndex) -> None:
        row = self.table.rows[index.row()]
        self._open(self._result(row) or row.path)

    def _open(self, path: Path) -> None:
        try:
            self._viewer.open(str(path), plugin=preferences.PLUGIN)
        except Exception as error:
            self.show_error(error)


def _files(count: int) -> str:
    return counted(count, "file", "files")
