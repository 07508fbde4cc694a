"""What the panel "Batch" is set to."""

from __future__ import annotations

import os
from typing import Any

from napari.utils.notifications import show_error

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.batch.rows import command_with_remarks, python_call
from napari_gpu_denoise._napari.batch.view import REPLACE, SAME, BatchView
from napari_gpu_denoise._napari.denoise import presets
from napari_gpu_denoise._napari.panel import PYTHON_COPIED
from napari_gpu_denoise.errors import DenoiseError, FileError, OutputError
from napari_gpu_denoise.files.batch import Batch
from napari_gpu_denoise.files.inputs import pair
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.run.request import Run


class BatchWanted(BatchView):
    """The request that the controls make, for the engine and as code."""

    def take_over(self, panel: Any) -> None:
        """Take filter, settings and noise from the panel of a filter."""
        self.filter.show_settings(presets.without_image(panel.form.settings()))
        for name in ("correct", "dtype", "nonfinite"):
            getattr(self, name).setCurrentIndex(getattr(panel, name).currentIndex())
        self.device.choose(panel.device)
        self.strength.slider.setValue(panel.strength.slider.value())
        self.noise.take_over(panel.noise)

    def take_noise(self, layer: Any, axes: str, estimate: NoiseEstimate, origin: str) -> None:
        """Take an estimate of noise for all files, measured in `origin`, in words."""
        self.noise.hand_over(estimate, origin)

    def wanted(self) -> Run:
        """Return the run of each file; raises `DenoiseError` if it does not fit together."""
        return Run(
            filter=self.filter.form.settings(),
            sigma=self.noise.sigma(),
            noise=self.noise.noise(),
            axes=self.axes.text().strip() or None,
            dtype=self.dtype.currentData(),
            nonfinite=self.nonfinite.currentData(),
            device=self.device.device(),
            memory_limit=preferences.read().memory_limit,
            correct=self.correct.currentData(),
            sigma_factor=self.strength.value(),
        )

    def batch(self, going_on: bool = False) -> Batch:
        """Return what the panel is set to; raises `DenoiseError` if it does not fit together."""
        found = [row.path for row in self.table.rows]
        if not found:
            raise FileError("There are no files in the list: add some, or drop them onto it.")
        existing = self.existing.currentData()
        targets = dict(pair(found, self.folder()))
        resume = going_on or existing == SAME
        options = {"overwrite": existing == REPLACE, "resume": resume}
        return Batch(tuple(found), targets, self.wanted(), **options)

    def folder(self) -> str:
        """Return the folder of the results; raises `OutputError` if there is none."""
        typed = os.path.expanduser(self.output.text().strip())
        if not typed:
            raise OutputError("There is no folder for the results: choose one at Results in.")
        folder = os.path.abspath(typed)
        # A name with a dot is that of a folder, too.
        return os.path.join(folder, "") if os.path.splitext(folder)[1] else folder

    def asked(self) -> Any:
        """Return what tells two requests apart; None if it does not fit together."""
        try:
            run, folder = self.wanted(), self.folder()
        except DenoiseError:
            return None
        # An estimate is the same as long as none is handed over.
        noise = run.noise if isinstance(run.noise, str) else id(run.noise)
        plain = run.filter, run.sigma, run.axes, run.dtype, run.nonfinite, run.device, run.correct
        return (*plain, run.sigma_factor, noise, folder, self.existing.currentData())

    def copy_python(self) -> None:
        """Put Python code that does the same on the clipboard."""
        rows = self.table.rows
        self.copy(lambda: (python_call(self.batch(), rows, self.folder()), PYTHON_COPIED))

    def copy_command(self) -> None:
        """Put the command line that does the same on the clipboard."""
        self.copy(self._command)

    def _command(self) -> tuple[str, str]:
        text, remarks = command_with_remarks(self.batch(), self.table.rows, self.folder())
        return text, " ".join(["Command line copied.", *remarks])

    def show_error(self, error: Exception) -> str:
        """Show an error in the panel and as a notification of napari."""
        if sentence := super().show_error(error):
            show_error(sentence)
        return sentence
