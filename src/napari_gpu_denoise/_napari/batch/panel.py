"""The panel "Batch": files in, a folder of results out, with stop and going on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import napari.viewer
from napari.layers import Layer
from qtpy.QtWidgets import QFileDialog

from napari_gpu_denoise._napari import docks, preferences
from napari_gpu_denoise._napari.batch import rows as listed
from napari_gpu_denoise._napari.batch.form import BatchForm, command_with_remarks, python_call
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.layers.source import file_of
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.panel import Panel
from napari_gpu_denoise._napari.parts import Caption, button, progress_bar, row_of
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

_PARTS = 1000  # of a file, in the bar of all files
_INTERVAL = 0.1  # seconds between two updates of a line


@dataclass(frozen=True)
class BatchRequest:
    """Files to denoise, those of `only`; `stopping` is set from the GUI thread."""

    batch: Batch
    only: frozenset[Path]
    stopping: Event = field(default_factory=Event)


def denoise_batch(request: BatchRequest, progress: Progress) -> BatchReport:
    """Denoise files until that is to be stopped."""

    def stopped() -> bool:
        return request.stopping.is_set() or progress.stopped()

    run = replace(request.batch.run, device=choose_devices(request.batch.run.device))
    batch = replace(request.batch, run=run)
    return denoise_files(batch, Progress(progress.report, stopped), request.only)


class BatchPanel(Panel):
    """Lists files, and denoises them off the GUI thread by the engine of the command line."""

    title = "Batch"
    failed = "Not done."
    out_of_memory = "There is not enough memory: close other programs and run again."
    aloud = True
    remedies = listed.REMEDIES
    least_width = 480  # in which a line of the list can be read

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(viewer)
        self.files, self.form, self.progress = listed.FileList(), BatchForm(), progress_bar()
        self.selected = Caption()
        self.runs = Task(self, denoise_batch)
        self._headers = Task(self, listed.read_headers, self.title, alone=True)
        self.add_button = button(
            "Add files …", f"Add {FORMAT_NAMES} files.", lambda: self.add(self.ask_files())
        )
        self.folder_button = button(
            "Add folder …",
            "Add all images of a folder, an OME-Zarr, or the fields of a plate.",
            self._add_folder,
        )
        self.remove_button = button(
            "Remove",
            "Remove the selected files from the list (Delete). The files are kept.",
            self.remove,
        )
        self.run_button = button(
            "Denoise", "Denoise the files. The files themselves are not changed.", self.run
        )
        self.stop_button = button(
            "Stop",
            "Stop after the current step. What is done is kept, and can be continued later.",
            self.cancel,
        )
        self.open_button = button(
            "Open result",
            "Open the selected files and their results in Compare, or double-click a row.",
            lambda: self._open_rows([row for row in self.files.chosen() if self._result(row)]),
        )
        self.add_code_button(
            "for the same batch",
            lambda: python_call(self._batch(), self.files.rows, self.form.folder()),
            lambda: command_with_remarks(self._batch(), self.files.rows, self.form.folder()),
        )
        self._suggested = ""  # folder of the results
        # Of the last run.
        self._key: Any = None
        self._targets: dict[Path, Path] = {}
        # Of the run in progress.
        self._todo: list[listed.Row] = []
        self._left = TimeLeft()
        self._shown = 0.0
        self._lay_out()
        self._connect()
        self.show_running(False)

    def _put_in(self) -> None:
        super()._put_in()
        self.form.options.device.fill()

    def _lay_out(self) -> None:
        summary = Caption()
        summary.setText("Filters many files: drop files or folders onto the list.")
        adding = row_of(self.add_button, self.folder_button, self.remove_button)
        head = with_guide(summary, lambda: "guide/napari.md#many-files-batch")
        self.arrange(
            (head, self.files, self.selected, adding, self.form),
            (
                (self.progress,),
                (self.status,),
                (self.run_button, self.stop_button),
                (self.open_button,),
                (self.copy_button,),
            ),
        )

    def _connect(self) -> None:
        self._headers.told.connect(self._on_described)
        self.runs.told.connect(self._on_step)
        self.runs.ended.connect(self._on_ended)
        self.runs.stopped.connect(self._on_stopped)
        self.files.dropped.connect(self.add)
        self.files.unwanted.connect(self.remove)
        self.files.itemSelectionChanged.connect(self._offer)
        self.files.itemDoubleClicked.connect(lambda row, _: self._open_rows([row]))
        self.form.axes.textChanged.connect(lambda _: self._follow_axes())
        self.form.changed.connect(self._check)
        explain = self.form.options.device.explain
        self.follow("preferences", ((event, explain) for event in preferences.changed()))

    def add(self, names: list[str]) -> None:
        """Add files, and the images of folders."""
        # Off the GUI thread; an error there is no file found.
        Loading(partial(listed.found_in, names), self._on_found, self)

    def remove(self) -> None:
        """Take the selected files out of the list."""
        if not self.runs.running:
            self.files.remove_chosen()
            self._follow_axes()
            self._offer()

    def waiting(self) -> tuple[list[listed.Row], bool]:
        """Return the files that a run would denoise, and whether it continues the last run."""
        left = [row for row in self.files.rows if row.state not in listed.ENDED]
        with suppress(DenoiseError):
            if left and self._key == self.form.key():
                return left, True
        return list(self.files.rows), False

    def run(self) -> None:
        """Denoise the files that wait; errors are shown in the panel."""
        self._todo, on = self.waiting()
        try:
            batch = self._batch(resume=on)
        except DenoiseError as error:
            self.show_error(error)
            return
        self._key, self._targets = self.form.key(), batch.targets
        for row in self._todo:
            row.wait()
        self._left = TimeLeft()
        name = f"{batch.run.filter.title}: {_files(len(self._todo))}"
        self.runs.start(BatchRequest(batch, frozenset(row.path for row in self._todo)), name)
        self.show_running(True)

    def cancel(self) -> None:
        """Stop at the next step; files that are complete stay."""
        self.runs.request.stopping.set()
        self.stop_button.setEnabled(False)
        self.say("Stopping …")

    def stop(self) -> None:
        """Stop; the panel is being closed. What is done is kept on the disk."""
        if self.runs.running:
            self.runs.drop()
            self._on_stopped()
        self._headers.drop()

    def show_running(self, running: bool) -> None:
        """Show what can be done now."""
        self.run_button.setEnabled(not running)
        self.stop_button.setEnabled(running)
        self.progress.setVisible(running)
        if running:
            self.progress.setRange(0, 0)
            self.say("Starting …")
        self._offer()

    def _on_found(self, result: tuple[list[Any], list[Exception]] | None) -> None:
        found, errors = result or ([], [])
        new = self.files.add(found)
        if new and self.form.output.text() == self._suggested:
            self._suggested = listed.folder_for(new[0].given)
            self.form.output.setText(self._suggested)
        self._headers.start(tuple(row.path for row in self.files.rows if row.header is None))
        if errors:
            self.show_error(errors[0])
        elif not self.runs.running:
            self.say("")
        self._offer()

    def _on_described(self, header: listed.Header) -> None:
        if (row := self.files.row_of(header.path)) is not None:
            row.describe(header)
            self._follow_axes()
            self._offer()

    def _on_step(self, step: BatchProgress | FileReport) -> None:
        if isinstance(step, FileReport):
            self._on_filed(step)
        else:
            self._on_moved(step)

    def _on_moved(self, progress: BatchProgress) -> None:
        now, row = time.monotonic(), self.files.row_of(progress.path)
        if row.state != listed.RUNNING:
            self.files.scrollToItem(row)
        elif now < self._shown + _INTERVAL or self.runs.request.stopping.is_set():
            return
        self._shown = now
        row.run(progress)
        self._show_all()

    def _on_filed(self, report: FileReport) -> None:
        row = self.files.row_of(report.input)
        row.end(report)
        if row.state != listed.DONE:
            self._left = TimeLeft()  # its pace is not that of the others
        self._show_all()
        self._offer()

    def _on_ended(self, outcome: Outcome) -> None:
        report = outcome.value or BatchReport(())
        for file in report.files:
            row = self.files.row_of(file.input)
            if row.report is None:
                row.end(file)  # it was complete when the batch was stopped
        self._settle(report.notes)
        if outcome.error is not None:
            self.show_error(outcome.error)
            return
        told = self.report()
        lead = "Stopped." if report.cancelled else "Done." if not told.failed else "Not all done."
        self.say(told.summary, lead)

    def _on_stopped(self) -> None:
        """Show that a run was left, by napari or because the panel is being closed."""
        self._settle(())
        self.say(self.report().summary, "Stopped.")

    def _settle(self, notes: tuple[str, ...]) -> None:
        """Show which file a run was stopped at."""
        for row in self._todo:
            if row.state == listed.RUNNING:
                row.stop(notes)
        self._headers.start(tuple(row.path for row in self._todo if row.broken))
        self._todo = []
        self.show_running(False)

    def _show_all(self) -> None:
        """Show how much of all files is done."""
        expected = [row for row in self._todo if not row.broken] or self._todo
        ended = sum(row.report is not None for row in expected)
        done, total = _PARTS * (ended + sum(row.share for row in expected)), len(expected)
        self.progress.setRange(0, _PARTS * total)
        self.progress.setValue(round(done))
        if not self.runs.request.stopping.is_set():
            left = self._left.left(Step(round(done), _PARTS * total, "files"))
            words = f" {left.capitalize()}." if left else ""
            self.say(f"{ended} of {_files(total)} done.{words}")
        self._show_selected()

    def _offer(self) -> None:
        """Enable what can be done, and say how many files would be denoised."""
        rows, on = self.waiting()
        running = self.runs.running
        # Those that cannot be read are no promise, unless they are tried again.
        files = _files(sum(row.state == listed.FAILED or not row.broken for row in rows))
        what = f"Denoise {files}" if rows else "Denoise"
        if running:
            what = "Denoising …"
        elif on and all(row.state == listed.FAILED for row in rows):
            what = f"Try {files} again"
        elif on and any(row.state != listed.WAITING for row in self.files.rows):
            what = f"Continue with {files}"
        self.run_button.setText(what)
        chosen = self.files.chosen()
        self.remove_button.setEnabled(bool(chosen) and not running)
        self.open_button.setEnabled(any(self._result(row) is not None for row in chosen))
        self._show_selected()

    def _show_selected(self) -> None:
        """Show all of a row that is selected alone, of which the list has one line."""
        chosen = self.files.chosen()
        self.selected.setText(chosen[0].details if len(chosen) == 1 else "")

    def _check(self) -> None:
        """Follow the settings; what was said of others holds no more."""
        self._offer()
        message = "", ""
        try:
            self.form.options.noise.set_unused(self.form.filter.settings().sigma_unused)
        except DenoiseError as error:
            message = self.worded(error), "Not ready."
        if not self.runs.running:
            self.say(*message)

    def _follow_axes(self) -> None:
        """Offer the settings that the axes of any file allow."""
        axes = {axis for row in self.files.rows if row.header for axis in row.header.axes}
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

    def report(self) -> BatchReport:
        """Return the report on the files that have ended so far."""
        return BatchReport(tuple(row.report for row in self.files.rows if row.report is not None))

    def _open_rows(self, rows: Sequence[listed.Row]) -> None:
        """Open files and their results, and compare the last one."""
        made: list[Layer] = []
        opened = partial(self._viewer.open, plugin=preferences.PLUGIN)
        try:
            for row in rows:
                if not any(file_of(each) == str(row.path) for each in self._viewer.layers):
                    opened(str(row.path))
                if (result := self._result(row)) is not None:
                    made = opened(str(result))
            if made:
                docks.open_panel(self._viewer, "Compare").layer.choose(made[0])
                self._viewer.reset_view()  # which may be far from it
        except Exception as error:
            self.show_error(error)

    def _batch(self, resume: bool = False) -> Batch:
        return self.form.batch([row.path for row in self.files.rows], resume)

    def _result(self, row: listed.Row) -> Path | None:
        """Return the result of a file, if there is one."""
        target = self._targets.get(row.path) if row.state in listed.ENDED else None
        return target if target is not None and target.exists() else None


def _files(count: int) -> str:
    return counted(count, "file", "files")
