"""What the panel "Batch" is set to, as a request and as code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qtpy import QtWidgets
from qtpy.QtCore import Signal

from napari_gpu_denoise._napari import parts, snippets
from napari_gpu_denoise._napari.batch.rows import Row
from napari_gpu_denoise._napari.denoise.form import FilterChoice, without_image
from napari_gpu_denoise._napari.denoise.options import RunOptions
from napari_gpu_denoise._napari.model import PanelModel
from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files.batch import Batch
from napari_gpu_denoise.files.formats import find_files, pair
from napari_gpu_denoise.files.one_file import Options
from napari_gpu_denoise.run.request import Run

_EXISTING = {
    "Keep those of these settings": {"resume": True},
    "Keep all": {},
    "Replace them": {"overwrite": True},
}
_EXISTING_TIP = (
    "What happens to results that already exist. Keep those of these settings: they count as done, "
    "large files that are unfinished are continued, and any other file with the name of a result "
    "is an error. Keep all: however they were made. Replace them: everything is computed again. An "
    "input is never replaced."
)
_AXES_TIP = (
    "Axes of all files, such as TZYX; a dot is an independent axis. Needed only where the files do "
    "not name their axes, or name them wrongly."
)
_FILTER_TIP = (
    "The filter for all files. Recommended: each file is measured and filtered by the filter that "
    "suits it, which its row names."
)
_ALL_AXES = "TZCDYXS"


class BatchForm(QtWidgets.QWidget):
    """Folder of the results, filter and settings: the request that they make."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        tip = "Folder for the results, created if necessary. Each has the name of its file."
        self.output = parts.told(QtWidgets.QLineEdit(), tip, "Results in")
        self.output.setPlaceholderText("folder for the results")
        self.existing = parts.choice(_EXISTING, _EXISTING_TIP, "Existing results")
        self.filter = FilterChoice(_FILTER_TIP, _ALL_AXES)
        self.axes = parts.told(QtWidgets.QLineEdit(), _AXES_TIP, "Axes")
        self.axes.setPlaceholderText("read from each file")
        automatic = "The noise of each file is measured before it is filtered."
        self.options = RunOptions(self, PanelModel(), "file", automatic)
        self.options.noise.button.hide()  # measures a layer
        self._lay_out()
        boxes = self.existing.currentIndexChanged, self.output.textChanged
        for changed in (*boxes, self.filter.changed, self.options.changed):
            changed.connect(self.changed)

    def _lay_out(self) -> None:
        name = "Choose the folder for the results"
        ask = parts.told(QtWidgets.QToolButton(), f"{name}.", name)
        ask.setText("…")
        ask.clicked.connect(lambda: self._choose_output())
        folder = parts.holding(parts.row_of(self.output, ask, spacing=4, shares=(1,)))
        rows = (
            parts.form_layout({"Results in": folder, "Existing results": self.existing}),
            parts.ruler(),
            parts.form_layout({"Filter": self.filter.box}),
            self.filter,
            parts.ruler(),
            parts.form_layout({"Axes": self.axes, **self.options.rows}),
            self.options.section,
        )
        parts.stack(QtWidgets.QVBoxLayout(self), rows, spacing=8)

    def take_over(self, settings: Any, model: PanelModel) -> None:
        """Take settings of a filter, and noise and options, as another panel has them."""
        self.filter.show_settings(without_image(settings))
        self.options.model.noise, self.options.model.options = model.noise, model.options

    def run(self) -> Run:
        """Return the run of each file; raises `DenoiseError` if it does not fit together."""
        return self.options.model.run(self.filter.settings(), self.axes.text().strip() or None)

    def batch(self, paths: Sequence[Path], resume: bool = False) -> Batch:
        """Return the batch of files; raises `DenoiseError` if it does not fit together."""
        if not paths:
            raise FileError("There are no files in the list: add some, or drop them onto it.")
        options = Options(**self.existing.currentData() | ({"resume": True} if resume else {}))
        return Batch(tuple(paths), dict(pair(list(paths), self.folder())), self.run(), options)

    def folder(self) -> str:
        """Return the folder of the results; raises `OutputError` if there is none."""
        typed = os.path.expanduser(self.output.text().strip())
        if not typed:
            raise OutputError("There is no folder for the results: choose one at Results in.")
        folder = os.path.abspath(typed)
        # A name with a dot is that of a folder, too.
        return os.path.join(folder, "") if os.path.splitext(folder)[1] else folder

    def key(self) -> Any:
        """Return a key of the request; raises `DenoiseError` if it does not fit together."""
        return self.run(), self.folder(), self.existing.currentData()

    def _choose_output(self) -> None:
        if name := self.ask_folder("Folder of the results"):
            self.output.setText(name)

    def ask_folder(self, title: str) -> str:
        """Ask for a folder."""
        return QtWidgets.QFileDialog.getExistingDirectory(self, title, self.output.text())


def command_with_remarks(batch: Batch, rows: Sequence[Row], folder: str) -> tuple[str, list[str]]:
    """Return the command for a shell, and remarks on its differences from the panel."""
    run = batch.run
    words = snippets.filter_words(run, inputs_of(rows), folder, run.axes)
    words += [f"--{name}" for name in _existing(batch)]
    remarks = []
    if "--noise" in words and not isinstance(run.noise, str):
        remarks.append("It measures the noise again, in each file.")
    return snippets.shell_line(words), remarks


def python_call(batch: Batch, rows: Sequence[Row], folder: str) -> str:
    """Return equivalent Python code."""
    run = batch.run
    given: dict[str, Any] = {**snippets.noise_argument(run), "output": folder}
    given |= {"axes": run.axes} if run.axes else {}
    given |= snippets.common_arguments(run) | dict.fromkeys(_existing(batch), True)
    listed = "".join(f"    {name!r},\n" for name in inputs_of(rows))
    return (
        f"{snippets.IMPORT}\nfiles = [\n{listed}]\n"
        f"report = gd.run_batch(files, {snippets.constructor(run.filter)}"
        f"{snippets.arguments(given)})\n"
        "for file in report.failed:\n    print(file.input, file.error)\n"
    )


def inputs_of(rows: Sequence[Row]) -> list[str]:
    """Return names for the files: the folders that were added, where they are still complete."""
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
    """Return the arguments for existing results."""
    return [name for name in ("overwrite", "resume") if getattr(batch.options, name)]
