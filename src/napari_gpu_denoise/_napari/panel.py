"""What the panel of a filter does: run, watch, cancel, tell; what it looks like is in `view`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from napari.utils.notifications import notification_manager, show_error
from qtpy.QtCore import QEvent, QTimer
from qtpy.QtWidgets import QApplication

from napari_gpu_denoise._napari import docks, layers, preferences
from napari_gpu_denoise._napari.maps import offer_of
from napari_gpu_denoise._napari.reading import Stage
from napari_gpu_denoise._napari.snippets import Choices, command_line, python_call
from napari_gpu_denoise._napari.steps import Outcome, Request
from napari_gpu_denoise._napari.storage import gigabytes
from napari_gpu_denoise._napari.view import PanelView
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise._napari.worker import Job
from napari_gpu_denoise.errors import DenoiseError, LayerError
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate
from napari_gpu_denoise.sigma import own_noise

if TYPE_CHECKING:
    import napari.viewer


class DenoisePanel(PanelView):
    """The panel of one filter: takes a layer, runs, adds the result, tells what went on.

    A subclass with `filter` set serves each entry of FILTERS; nothing here is about a particular
    one.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
        Where layers are taken from and results go.
    """

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer)
        self._viewer = viewer
        self._source: layers.Source | None = None
        self._frame: int | None = None
        # At most one; a list of its own, so that it can be reached when the panel is gone.
        self._jobs: list[Job] = []
        self.destroyed.connect(lambda _=None, jobs=self._jobs: _abandon(jobs))
        self._gathering = docks.gathering(viewer, self)

        self._connect()
        self._take_layer()
        # The drivers are loaded when the panel is on the screen, not while it is being built.
        QTimer.singleShot(0, self.device.fill)

    def _connect(self) -> None:
        self.layer.chosen.connect(self._take_layer)
        self.axes.changed.connect(lambda: self.form.set_axes(self.axes.letters()))
        self.axes.changed.connect(self._follow_frame)
        self.noise.wanted.connect(self.show_noise)
        self.one_frame.toggled.connect(lambda _: self._follow_frame())
        self._follow_slider()
        self.form.changed.connect(self._check)
        self.run_button.clicked.connect(lambda: self.run())
        self.cancel_button.clicked.connect(lambda: self.cancel())
        self.reset_button.clicked.connect(lambda: self.reset())
        self.python_button.clicked.connect(lambda: self.copy_python())
        self.command_button.clicked.connect(lambda: self.copy_command())

    def _follow_slider(self) -> None:
        dims, follow = self._viewer.dims, self._follow_frame
        events = [getattr(dims.events, name) for name in ("current_step", "ndisplay", "order")]
        for event in events:
            event.connect(follow)

        def leave(_: object = None) -> None:
            for event in events:
                event.disconnect(follow)

        self.destroyed.connect(leave)

    def _follow_frame(self, event: object = None) -> None:
        """Offer the frame that the viewer shows."""
        layer = self.layer.layer()
        try:
            axes = self.axes.axes() if layer is not None else ""
        except DenoiseError:
            axes = ""
        if "T" not in axes:
            self.show_frame(None, "Name an axis T above to use it.")
        else:
            self.show_frame(layers.frame_shown(layer, axes, self._viewer.dims))

    def _chosen_frame(self, layer: Any, axes: str) -> int | None:
        if layer is None or not (self.one_frame.isEnabled() and self.one_frame.isChecked()):
            return None
        frame = layers.frame_shown(layer, axes, self._viewer.dims)
        if frame is None:
            raise LayerError(
                f"The viewer shows no single frame of {layer.name!r}: move the slider of T to one, "
                "or untick Only the frame shown."
            )
        return frame

    # napari calls this whenever layers come, go, move or are renamed
    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        self.layer.refresh()

    def choices(self) -> Choices:
        """Return what the panel is set to.

        Raises
        ------
        DenoiseError
            If something typed does not fit.
        """
        layer, axes = self.layer.layer(), self.axes.axes()
        return Choices(
            settings=self.form.settings(),
            sigma=self.noise.sigma(),
            noise=self.noise.noise(),
            axes=axes,
            dtype=self.dtype.currentData(),
            nonfinite=self.nonfinite.currentData(),
            device=self.device.device(),
            alpha=layer is not None and layers.has_alpha(layer),
            frame=self._chosen_frame(layer, axes),
            maps=self.maps.isChecked(),
        )

    def run(self) -> None:
        """Start a run with what the panel is set to; errors are told in the panel."""
        if self._jobs:
            return
        try:
            source = layers.capture(self.layer.layer())
            if tuple(source.data.shape) != self.axes.shape:
                self._take_layer()
            choices = self.choices()
        except DenoiseError as error:
            self._refuse(error)
            return
        request = Request(
            data=source.data,
            settings=choices.settings,
            sigma=choices.sigma,
            noise=choices.noise,
            axes=choices.axes,
            dtype=choices.dtype,
            nonfinite=choices.nonfinite,
            device=choices.device,
            memory_limit=preferences.read().memory_limit,
            alpha=choices.alpha,
            frame=choices.frame,
            maps=choices.maps,
        )
        if choices.frame is not None:
            source = layers.at_frame(source, choices.axes.index("T"), choices.frame)
        job = Job(request, f"{self.filter.title} of {source.name}")
        self._source, self._frame = source, choices.frame
        self._jobs.append(job)
        job.worker.yielded.connect(self._on_stage)
        job.worker.returned.connect(self._on_outcome)
        job.worker.finished.connect(self._on_finished)
        self.show_running()
        job.start()

    def cancel(self) -> None:
        """Ask a run in progress to stop; no layer will be added."""
        for job in self._jobs:
            job.stop()
            self.cancel_button.setEnabled(False)
            self.say("Stopping …")

    def reset(self) -> None:
        """Set everything but the layer to its default."""
        self.form.reset()
        self.noise.reset()
        self.device.reset()
        self.dtype.setCurrentIndex(0)
        self.nonfinite.setCurrentIndex(0)
        self.one_frame.setChecked(False)
        self.maps.setChecked(False)
        self._take_layer()

    def show_noise(self) -> None:
        """Open the panel that measures noise, for this layer."""
        panel = docks.open_panel(self._viewer)
        if (layer := self.layer.layer()) is not None:
            panel.choose(layer, self.axes.letters())

    def take_noise(self, layer: Any, axes: str, estimate: NoiseEstimate, origin: str) -> None:
        """Filter a layer with an estimate of noise.

        Parameters
        ----------
        layer : napari.layers.Image
        axes : str
            Its axes.
        estimate : NoiseEstimate
        origin : str
            Where it was measured, in words.
        """
        self.layer.choose(layer)
        if self.axes.letters() != axes:
            self.axes.edit.setText(axes)
        self.noise.hand_over(estimate, origin)

    def know_noise(self, layer: Any, estimate: NoiseEstimate) -> None:
        """Take an estimate to show beside a sigma that is typed, if it is of this layer."""
        if layer == self.layer.layer():
            self.noise.know(estimate)

    def copy_python(self) -> None:
        """Put the Python lines that do the same on the clipboard."""
        layer = self.layer.layer()
        try:
            layers.capture(layer)
            text = python_call(self.choices(), layer.name, layer.multiscale)
        except DenoiseError as error:
            self._refuse(error)
            return
        QApplication.clipboard().setText(text)
        self.say("Python call copied: paste it into napari's console.")

    def copy_command(self) -> None:
        """Put the command line that does the same on the clipboard."""
        layer = self.layer.layer()
        try:
            layers.capture(layer)
            path, choices = layers.file_of(layer), self.choices()
            text = command_line(choices, path)
        except DenoiseError as error:
            self._refuse(error)
            return
        QApplication.clipboard().setText(text)
        hint = "." if path else ": put the name of the image's file for INPUT.tif."
        every = "" if choices.frame is None else " It filters all frames."
        other = ""
        if choices.maps:
            other = f" What the filter saw takes another run: --{offer_of(self.filter).setting}."
        anew = ""
        if "--noise" in text and not isinstance(choices.noise, str):
            anew = " It measures the noise anew, of the whole file."
        self.say(f"Command line copied{hint}{every}{other}{anew}")

    def changeEvent(self, event: QEvent) -> None:
        """Stop the run when the panel is taken out of its dock, which is how napari closes it."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange:
            if self.parent() is None:
                _abandon(self._jobs)
            else:
                self._gathering.start()

    def _take_layer(self) -> None:
        layer = self.layer.layer()
        self.noise.forget()
        if layer is None:
            self.axes.offer("", ())
            return
        labels = self._viewer.dims.axis_labels
        self.axes.offer(layers.suggest_axes(layer, labels), layers.finest(layer).shape)
        for panel in docks.noise_panels(self._viewer):
            if panel.layer.layer() == layer and (estimate := panel.estimate()) is not None:
                self.noise.know(estimate)

    def _check(self) -> None:
        try:
            settings = self.form.settings()
        except DenoiseError as error:
            told, stressed = in_panel(str(error)), "Not ready."
        else:
            told, stressed = "", ""
            self.noise.ask(own_noise(settings))
        if not self._jobs:
            self.say(told, stressed)

    def _on_stage(self, stage: Stage) -> None:
        if not self._jobs:
            return
        self.progress.setRange(0, stage.total)
        self.progress.setValue(stage.done)
        if self.cancel_button.isEnabled():
            part = f"{stage.done} of {stage.total}" if stage.total else "…"
            self.say(f"{stage.text} {part}")
        self._jobs[0].show(stage)

    def _on_outcome(self, outcome: Outcome) -> None:
        # Cancel may be heard when the result is already on its way here.
        if not self._jobs or self._jobs[0].worker.abort_requested:
            return
        if outcome.result is None:
            self._refuse(outcome.error)
            return
        record, title, which = outcome.result.record, self.filter.title, ""
        provenance = record.as_dict()
        if self._frame is not None:
            which, provenance["frame"] = f", frame {self._frame}", self._frame
        to = (self._viewer, self._source)
        try:
            layers.add_result(*to, outcome.result.image, title + which, provenance)
            for shown in outcome.seen:
                layers.add_map(*to, shown, f"{title} {shown.title}{which}", provenance)
        except Exception as error:
            self._refuse(error)
            return
        self.noise.show_used(record.sigma, record.noise)
        text = told(record, outcome.seconds)
        if outcome.folder is not None:
            text += (
                f" The result, {gigabytes(outcome.result.image.nbytes)}, is kept in a temporary "
                f"file in {outcome.folder} until its layer is removed or napari ends: save it to "
                "keep it."
            )
        if outcome.unseen:
            text += f" {outcome.unseen}."
        self.say(text)

    def _on_finished(self) -> None:
        stopped = any(job.worker.abort_requested for job in self._jobs)
        _abandon(self._jobs)
        self._source = None
        self.show_idle()
        if stopped:
            self.say("Cancelled: no layer was added.")

    def _refuse(self, error: Exception) -> None:
        """Tell of an error: expected ones in a sentence, a fault of ours with its traceback too."""
        if isinstance(error, DenoiseError):
            sentence = in_panel(str(error))
            self.say(sentence, "Not done.")
            show_error(sentence)
        elif isinstance(error, MemoryError):
            text = "There is not enough memory for this image: crop it, or filter the file with "
            self.say(f"{text}gpu-denoise.", "Not done.")
            show_error(f"{text}gpu-denoise.")
        else:
            self.say(f"A fault in the program: {error!r}. Please report it.", "Not done.")
            notification_manager.receive_error(type(error), error, error.__traceback__)


def told(record: Any, seconds: float) -> str:
    """Say what a run did, in words.

    Parameters
    ----------
    record : run.Record
    seconds : float
        How long it took.

    Returns
    -------
    str
    """
    how = "given" if record.sigma_source.startswith("given") else "estimated"
    sentences = [
        f"Done in {seconds:.2g} s." if seconds < 9.5 else f"Done in {seconds:.0f} s.",
        _told_noise(record, how),
        f"Device: {record.device}.",
    ]
    if record.saturated:
        sentences.append(f"{record.saturated} values were clipped to {record.output_dtype}.")
    if record.nonfinite:
        sentences.append(f"{record.nonfinite} NaN or infinite pixels were left in place.")
    # Notes stand alone elsewhere; here they become sentences.
    notes = map(in_panel, record.notes)
    sentences += [note[:1].upper() + note[1:].rstrip(".") + "." for note in notes]
    return " ".join(sentences)


def _told_noise(record: Any, how: str) -> str:
    models = dict.fromkeys(NoiseModel.from_dict(each).summary() for each in record.noise)
    sigma = ", ".join(f"{value:.4g}" for value in record.sigma)
    if models:
        said = "; ".join(models)
        return f"{said[:1].upper()}{said[1:]} ({how})."
    return f"Noise {sigma} grey levels ({how})." if sigma else f"Sigma {record.sigma_source}."


def _abandon(jobs: list[Job]) -> None:
    while jobs:
        jobs.pop().abandon()
