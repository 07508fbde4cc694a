"""The panel of a filter: runs, progress, results, messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary, ref

import napari.viewer
from napari.utils.notifications import show_error
from qtpy.QtCore import QTimer

from napari_gpu_denoise._napari import docks, preferences
from napari_gpu_denoise._napari.denoise.adding import add_layers
from napari_gpu_denoise._napari.denoise.maps import offer_of
from napari_gpu_denoise._napari.denoise.request import Request, remembering
from napari_gpu_denoise._napari.denoise.run import Outcome, report
from napari_gpu_denoise._napari.denoise.runs import Runs
from napari_gpu_denoise._napari.denoise.snippets import command_line, python_call
from napari_gpu_denoise._napari.denoise.view import DenoiseView
from napari_gpu_denoise._napari.layers.source import voxel_of
from napari_gpu_denoise._napari.panel import PYTHON_COPIED
from napari_gpu_denoise._napari.stage import Stage
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.run.job import Run


class DenoisePanel(DenoiseView):
    """The panel of one filter: takes a layer, runs, and adds the result as a layer.

    A subclass with `filter` and `title` set serves each entry of FILTERS; nothing here is about a
    particular one.
    """

    failed = "Not done."
    out_of_memory = (
        "There is not enough memory for this image: crop it, or filter the file with gpu-denoise."
    )

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(viewer)
        self.runs = Runs(self)
        self.runs.staged.connect(self._on_stage)
        self.runs.ended.connect(self._on_outcome)
        self.runs.stopped.connect(self._on_stopped)
        # Estimates handed over, by the layer that they were last used for.
        self._handed: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._last: ref | None = None
        self.layer.chosen.connect(self._take_layer)
        self.layer.chosen.connect(self._follow_scale)
        self.axes.changed.connect(lambda: self.form.set_axes(self.axes.letters()))
        self.axes.changed.connect(self._follow_places)
        self.axes.changed.connect(self._offer_voxel)
        self.axes.changed.connect(self._count_channels)
        self.axes.wanted.connect(self.show_other)
        self.noise.wanted.connect(self.show_noise)
        self.places.changed.connect(self._follow_places)
        moved = viewer.dims.events
        events = (moved.current_step, moved.ndisplay, moved.order)
        self.follow("places shown", ((event, self._follow_places) for event in events))
        self.follow("preferences", ((each, self.device.explain) for each in preferences.changed()))
        self.form.changed.connect(self._check)
        self.run_button.clicked.connect(self.run)
        self.cancel_button.clicked.connect(self.cancel)
        self.reset_button.clicked.connect(self.reset)
        self.python_button.clicked.connect(self.copy_python)
        self.command_button.clicked.connect(self.copy_command)
        self._take_layer()
        self._follow_scale()
        # The drivers are loaded when the panel is on the screen, not while it is being built.
        QTimer.singleShot(0, self.device.fill)

    def request(self) -> Request:
        """Return what the panel is set to; raises `DenoiseError` if it does not fit the layer."""
        source, axes, settings = self.captured(), self.axes.axes(), self.form.settings()
        if "voxel" in self.form.controls and not settings.voxel:
            settings = replace(settings, voxel=voxel_of(self.layer.layer(), axes))
        run = Run(
            filter=settings,
            sigma=self.noise.sigma(),
            noise=self.noise.noise(),
            axes=axes,
            dtype=self.dtype.currentData(),
            nonfinite=self.nonfinite.currentData(),
            device=self.device.device(),
            memory_limit=preferences.read().memory_limit,
            correct=self.correct.currentData(),
        )
        frame, place = (self.places.chosen(self.layer.layer(), axes, a) for a in "TZ")
        return Request(source, run, frame, self.maps.isChecked(), place)

    def run(self) -> None:
        """Start a run; errors are shown in the panel."""
        if self.runs.running:
            return
        try:
            request = remembering(self.request(), self.layer.layer())
        except DenoiseError as error:
            self.show_error(error)
            return
        self.show_running(True)
        self.runs.start(request, f"{self.title} of {request.source.name}")

    def cancel(self) -> None:
        """Leave a run in progress at once; no layer will be added."""
        if self.runs.running:
            self.runs.stop()
            self._on_stopped()

    def stop(self) -> None:
        """Stop the run; the panel is being closed."""
        self.runs.stop()
        self.show_running(False)

    def _take_layer(self) -> None:
        """Follow the choice of a layer; noise handed over for one is chosen again with it."""
        before, layer = self._last and self._last(), self.layer.layer()
        if before is not None:
            self._handed[before] = self.noise.handed()
        self._last = None if layer is None else ref(layer)
        self.offer_axes()
        if layer is not None and (known := self._handed.get(layer)) is not None:
            self.noise.hand_over(*known)

    def offer_axes(self) -> None:
        """Suggest the axes of a layer, and show an estimate of its noise if there is one."""
        self.noise.drop_estimates()
        super().offer_axes()
        layer = self.layer.layer()
        for panel in self.others() if layer is not None else ():
            if panel.layer.layer() == layer and (estimate := panel.estimate()) is not None:
                self.noise.show_estimate(estimate)

    def show_noise(self) -> None:
        """Open the panel that measures noise, for this layer."""
        self.show_other("Estimated noise")

    def show_other(self, title: str) -> None:
        """Open another panel of the plugin for this layer."""
        panel = docks.open_panel(self._viewer, title)
        if (layer := self.layer.layer()) is not None:
            panel.choose(layer, self.axes.letters())

    def take_noise(self, layer: Any, axes: str, estimate: NoiseEstimate, origin: str) -> None:
        """Choose a layer and an estimate of its noise, measured in `origin`, in words."""
        self.choose(layer, axes)
        self.noise.hand_over(estimate, origin)

    def receive_estimate(self, layer: Any, estimate: NoiseEstimate) -> None:
        """Show an estimate of this layer beside a typed sigma."""
        if layer == self.layer.layer():
            self.noise.show_estimate(estimate)

    def copy_python(self) -> None:
        """Put Python code that does the same on the clipboard."""
        self.copy(lambda: (python_call(self.request()), PYTHON_COPIED))

    def copy_command(self) -> None:
        """Put the command line that does the same on the clipboard."""
        self.copy(self._command)

    def _command(self) -> tuple[str, str]:
        request = self.request()
        text = command_line(request)
        hint = "." if request.source.path else ": replace INPUT.tif by the name of the file."
        parts = [f"Command line copied{hint}"]
        if request.places:
            words = {"frames": request.frame, "slices": request.slice}
            named = [word for word, place in words.items() if place is not None]
            parts.append(f"It filters all {' and '.join(named)}.")
        if request.maps:
            parts.append(f"Maps need a separate run with --{offer_of(self.filter).setting}.")
        if "--noise" in text and not isinstance(request.run.noise, str):
            parts.append("It measures the noise again, in the whole file.")
        return text, " ".join(parts)

    def show_error(self, error: Exception) -> str:
        """Show an error in the panel and as a notification of napari."""
        if sentence := super().show_error(error):
            show_error(sentence)
        return sentence

    def _follow_places(self, event: object = None) -> None:
        """Offer the frame and the slice in view."""
        chosen = self.places.show(self.layer.layer(), self.known_axes())
        self.run_button.setText(f"Run {chosen}".strip())

    def _follow_scale(self) -> None:
        """Follow the voxel size of the chosen layer."""
        layer = self.layer.layer()
        events = () if layer is None else (layer.events.scale, layer.events.units)
        self.follow("scale", [(event, self._offer_voxel) for event in events])
        self._offer_voxel()

    def _offer_voxel(self, event: object = None) -> None:
        axes = self.known_axes()
        if "voxel" in self.form.controls:
            voxel = voxel_of(self.layer.layer(), axes) if axes else ""
            text = f"{voxel} (of the layer)" if voxel else ""
            self.form.controls["voxel"].native.setPlaceholderText(text)

    def _count_channels(self) -> None:
        axes = self.known_axes()
        channel = channel_axis(axes) if axes else None
        self.noise.channels = 1 if channel is None else self.axes.shape[channel]

    def _check(self) -> None:
        message = "", ""
        try:
            self.noise.set_unused(self.form.settings().sigma_unused)
        except DenoiseError as error:
            message = in_panel(error), "Not ready."
        if not self.runs.running:
            self.say(*message)

    def _on_stage(self, stage: Stage) -> None:
        self.progress.setRange(0, stage.total)
        self.progress.setValue(stage.done)
        self.say(stage.words)

    def _on_outcome(self, outcome: Outcome) -> None:
        self.show_running(False)
        try:
            if outcome.result is None:
                raise outcome.error
            add_layers(self._viewer, outcome, self.title)
        except Exception as error:
            self.show_error(error)
            return
        record = outcome.result.record
        self.noise.show_used(record.sigma, record.noise)
        self.say(report(outcome))

    def _on_stopped(self) -> None:
        self.show_running(False)
        self.say("Cancelled: no layer was added.")
