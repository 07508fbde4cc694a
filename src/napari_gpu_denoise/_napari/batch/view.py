"""Controls of the panel "Batch", and their layout."""

from __future__ import annotations

from typing import Any

from napari.viewer import Viewer
from qtpy.QtCore import QSize, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from napari_gpu_denoise._napari.batch.rows import in_batch
from napari_gpu_denoise._napari.batch.table import FileList, RowTable
from napari_gpu_denoise._napari.denoise import presets
from napari_gpu_denoise._napari.denoise.form import SettingsForm
from napari_gpu_denoise._napari.denoise.noise_input import NoiseInput
from napari_gpu_denoise._napari.denoise.options import (
    DeviceInput,
    StrengthInput,
    correction_input,
    nonfinite_input,
    type_input,
)
from napari_gpu_denoise._napari.denoise.run import offer_of
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.panel import Panel
from napari_gpu_denoise._napari.parts import (
    Caption,
    Section,
    button,
    choice,
    form_layout,
    narrow,
    progress_bar,
    ruler,
    stack,
    wrapped,
)
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters import FILTERS

SAME, REPLACE, KEEP = "same", "replace", "keep"
_EXISTING = {
    "Keep those of these settings": SAME,
    "Keep all": KEEP,
    "Replace them": REPLACE,
}
_EXISTING_TIP = (
    "What happens to results that already exist. Keep those of these settings: they count as done, "
    "large files that are unfinished are continued, and any other file with the name of a result "
    "is an error. Keep all: however they were made. Replace them: everything is computed again. An "
    "input is never replaced."
)
_WIDTH = 480  # pixels in which a line of the list can be read
_ALL_AXES = "TZCYXS"


class FilterChoice(QWidget):
    """The list of filters, and below it the settings of the one that is chosen."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.box = narrow(QComboBox())
        self.box.setAccessibleName("Filter")
        self.box.setToolTip(wrapped("The filter for all files."))
        for kind in FILTERS:
            self.box.addItem(kind.title, kind)
        self._forms: dict[type, SettingsForm] = {}
        self._axes = _ALL_AXES
        self._layout = QVBoxLayout(self)
        stack(self._layout, (form_layout({"Filter": self.box}),), spacing=8)
        self.box.currentIndexChanged.connect(self._show)
        self._show()

    @property
    def form(self) -> SettingsForm:
        """The settings of the filter that is chosen."""
        return self._forms[self.box.currentData()]

    def show_settings(self, settings: Any) -> None:
        """Choose the filter of settings, and show these."""
        self.box.setCurrentIndex(self.box.findData(type(settings)))
        self.form.show_settings(settings)

    def set_axes(self, axes: str) -> None:
        """Enable the settings that some axes allow; all where the axes are not known."""
        axes = axes or _ALL_AXES
        if axes != self._axes:
            self._axes = axes
            self.form.set_axes(axes)

    def _show(self, _: int = 0) -> None:
        kind = self.box.currentData()
        if kind not in self._forms:
            offer = offer_of(kind)
            form = SettingsForm(kind, without=() if offer is None else (offer.setting,))
            if (known := presets.last(kind)) is not None:
                form.show_settings(known)
            form.changed.connect(self.changed)
            self._forms[kind] = form
            self._layout.addWidget(form)
        for each, form in self._forms.items():
            form.setVisible(each is kind)
        self.form.set_axes(self._axes)
        self.changed.emit()


class BatchView(Panel):
    """Files, folder of results, filter and settings, and what is done about them."""

    failed = "Not done."
    out_of_memory = "There is not enough memory: close other programs and run again."

    def __init__(self, viewer: Viewer):
        super().__init__(viewer)
        self.table = RowTable()
        self.files = FileList(self.table)
        self.add_button = button("Add files …", "Add TIFF, OME-TIFF, NIfTI or OME-Zarr files.")
        self.folder_button = button(
            "Add folder …", "Add all images of a folder, an OME-Zarr, or the fields of a plate."
        )
        self.remove_button = button(
            "Remove", "Remove the selected files from the list (Delete). The files are kept."
        )
        self.output = QLineEdit()
        self.output.setAccessibleName("Results in")
        self.output.setToolTip(
            wrapped("Folder for the results, created if necessary. Each has the name of its file.")
        )
        self.output.setPlaceholderText("folder for the results")
        self.output_button = QToolButton()
        self.output_button.setText("…")
        self.output_button.setToolTip(wrapped("Choose the folder."))
        self.output_button.setAccessibleName("Choose the folder for the results")
        self.existing = choice(_EXISTING, _EXISTING_TIP)
        self.existing.setAccessibleName("Existing results")
        self.filter = FilterChoice()
        self.axes = QLineEdit()
        self.axes.setAccessibleName("Axes")
        self.axes.setPlaceholderText("read from each file")
        self.axes.setToolTip(
            wrapped(
                "Axes of all files, such as TZYX; a dot is an independent axis. Needed only where "
                "the files do not name their axes, or name them wrongly."
            )
        )
        self.noise = NoiseInput("The noise of each file is measured before it is filtered.")
        self.noise.button.hide()  # measures a layer
        self.strength = StrengthInput()
        self.dtype, self.nonfinite = type_input("file"), nonfinite_input()
        self.correct, self.device = correction_input(), DeviceInput()
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
        self.python_button = button("Copy Python call", "Copy Python code for the same batch.")
        self.command_button = button(
            "Copy command line", "Copy a shell command for the same batch."
        )
        self.progress = progress_bar()
        self._lay_out()

    def sizeHint(self) -> QSize:
        """Return a width at which the list can be read."""
        hint = super().sizeHint()
        return QSize(max(hint.width(), _WIDTH), hint.height())

    def _lay_out(self) -> None:
        summary = Caption()
        summary.setText("Filters many files with the same settings, one after another.")
        adding = QHBoxLayout()
        for each in (self.add_button, self.folder_button, self.remove_button):
            adding.addWidget(each)
        folder = QWidget()
        row = QHBoxLayout(folder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        row.addWidget(self.output, 1)
        row.addWidget(self.output_button)
        where = form_layout({"Results in": folder, "Existing results": self.existing})
        top = {"Axes": self.axes, "Correct first": self.correct}
        noise = form_layout({**top, "Noise": self.noise, "Strength": self.strength})
        output = {"Result type": self.dtype, "NaN, infinity": self.nonfinite, "Device": self.device}
        results = Section("Result and device", form_layout(output))
        doing = QHBoxLayout()
        for each in (self.run_button, self.pause_button, self.stop_button):
            doing.addWidget(each)
        buttons = QWidget()
        buttons.setLayout(doing)
        doing.setContentsMargins(0, 0, 0, 0)
        self.arrange(
            (
                with_guide(summary, "guide/napari.md#many-files-batch"),
                self.files,
                adding,
                where,
                ruler(),
                self.filter,
                ruler(),
                noise,
                results,
            ),
            (
                (self.progress,),
                (self.status,),
                (buttons,),
                (self.open_button, self.report_button),
                (self.python_button, self.command_button),
            ),
        )

    def worded(self, error: DenoiseError) -> str:
        """Return an error in terms of the controls of this panel."""
        return in_batch(error)

    def ask_files(self) -> list[str]:
        """Ask for files."""
        kinds = "Images (*.tif *.tiff *.btf *.tf8 *.nii *.nii.gz *.lsm *.stk);;All files (*)"
        names, _ = QFileDialog.getOpenFileNames(self, "Files to denoise", "", kinds)
        return names

    def ask_folder(self, title: str) -> str:
        """Ask for a folder."""
        return QFileDialog.getExistingDirectory(self, title, self.output.text())
