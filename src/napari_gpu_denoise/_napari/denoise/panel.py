"""The panel of a filter: runs, progress, results, messages."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import napari.viewer
from napari.layers import Image
from napari.utils.notifications import show_error
from qtpy.QtCore import QTimer

from napari_gpu_denoise._napari import docks, preferences
from napari_gpu_denoise._napari.denoise import presets
from napari_gpu_denoise._napari.denoise.results import with_files
from napari_gpu_denoise._napari.denoise.run import Request, remembering
from napari_gpu_denoise._napari.denoise.snippets import command_with_remarks, python_call
from napari_gpu_denoise._napari.denoise.view import DenoiseView
from napari_gpu_denoise._napari.layers.layer_input import same_axes
from napari_gpu_denoise._napari.layers.source import Source, capture, voxel_of
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.panel import PYTHON_COPIED
from napari_gpu_denoise._napari.preview.live import LivePreview
from napari_gpu_denoise._napari.tasks import Outcome
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.part import warm_up
from napari_gpu_denoise.run.request import Run


class DenoisePanel(DenoiseView):
    """The panel of one filter: takes a layer, runs, and adds the result as a layer.

    A subclass with `filter` and `title` set serves each entry of FILTERS; nothing here is about a
    particular one.
    """

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(viewer)
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
        self.afterwards.wanted.connect(self.show_comparison)
        moved = viewer.dims.events
        events = (moved.current_step, moved.ndisplay, moved.order)
        self.follow("places shown", ((event, self._follow_places) for event in events))
        self.follow("preferences", ((each, self.device.explain) for each in preferences.changed()))
        self.form.changed.connect(self._check)
        self.run_button.clicked.connect(self.run)
        self.run_on_return(self.run)
        self.cancel_button.clicked.connect(self.cancel)
        self.reset_button.clicked.connect(self.reset)
        self.batch_button.clicked.connect(self.show_batch)
        self.python_button.clicked.connect(self.copy_python)
        self.command_button.clicked.connect(self.copy_command)
        self.live = LivePreview(viewer, self.title, self.preview, self._previewed, self)
        self._follow_for_preview()
        self._take_layer()
        self._follow_scale()
        if (known := presets.last(self.filter)) is not None:
            self.form.show_settings(known)
        # The drivers are loaded when the panel is on the screen, not while it is being built.
        QTimer.singleShot(0, self.device.fill)
        self.device.listed.connect(self._warm_up)

    def _warm_up(self) -> None:
        """Build kernels for a GPU while the user looks at the panel."""
        from napari_gpu_denoise.opencl.device import choose

        with suppress(DenoiseError):
            Loading(
                partial(warm_up, self.form.settings(), choose(self.device.device())), parent=self
            )

    def request(self, layer: Image | None = None) -> Request:
        """Return what the panel is set to, for the layer shown or another one.

        Raises `DenoiseError` if it does not fit the layer.
        """
        source, run = self._wanted(layer)
        layer = layer or self.layer.layer()
        frame, place = (self.places.chosen(layer, run.axes, a) for a in "TZ")
        return Request(source, run, frame, self.maps.isChecked(), place)

    def _wanted(self, layer: Image | None = None) -> tuple[Source, Run]:
        """Return a layer as it is now, and the run of all of it."""
        settings = self.form.settings()
        if layer in (None, self.layer.layer()):
            layer, source, axes = self.layer.layer(), self.captured(), self.axes.axes()
        else:
            source = capture(layer)
            axes = same_axes(self.axes.axes(), self.layer.layer(), layer, self._viewer)
        if "voxel" in self.form.controls and not settings.voxel:
            settings = replace(settings, voxel=voxel_of(layer, axes))
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
            sigma_factor=self.strength.value(),
        )
        return source, run

    def remembered(self) -> Request:
        """Return the request, with what is known of the noise of the layer."""
        return remembering(self.request(), self.layer.layer())

    def run(self) -> None:
        """Run for each of the layers chosen; errors are shown in the panel."""
        if self.runs.running:
            return
        layers = self.layer.layers() or (None,)
        try:
            requests = [remembering(self.request(each), each) for each in layers]
            requests = with_files(self, requests)
        except DenoiseError as error:
            self.show_error(error)
            return
        presets.remember(presets.without_image(requests[0].run.filter))
        self.show_running(True)
        self.start_all([(each, f"{self.title} of {each.source.name}") for each in requests])

    def stop(self) -> None:
        """Stop the run and the preview; the panel is being closed."""
        self.live.stop()
        self.runs.drop()
        self.assess.stop()
        self.show_running(False)

    def _follow_for_preview(self) -> None:
        """Preview again whatever changes."""
        boxes = self.dtype, self.nonfinite, self.correct, self.device.box
        signals = [each.currentIndexChanged for each in boxes]
        signals += [each.changed for each in (self.form, self.axes, self.noise, self.strength)]
        for signal in signals:
            signal.connect(lambda *_: self.live.changed())
        self.layer.chosen.connect(self._follow_view)
        self.preview.box.toggled.connect(self._follow_view)

    def _follow_view(self, _: object = None) -> None:
        """Preview again when the view or the layer change."""
        ticked = self.preview.box.isChecked()
        self.follow("preview", self.live.events(self.layer.layer()) if ticked else ())
        self.live.changed()

    def _previewed(self) -> tuple[Image, Source, Run, NoiseMemory | None]:
        """Return what `LivePreview` takes."""
        source, run = self._wanted()
        known = remembering(Request(source, run), self.layer.layer())
        return self.layer.layer(), source, run, known.memory

    def _take_layer(self) -> None:
        """Follow the choice of a layer; noise handed over for one is chosen again with it."""
        before, layer = self._last and self._last(), self.layer.layer()
        if before is not None:
            self._handed[before] = self.noise.handed()
        self._last = None if layer is None else ref(layer)
        self.afterwards.take(layer)
        self.follow("looks", self.afterwards.events())
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

    def show_comparison(self, result: Any) -> None:
        """Open the panel that compares a result with its source."""
        docks.open_panel(self._viewer, "Compare").choose(result)

    def show_batch(self) -> None:
        """Open the panel for many files, set as this one is."""
        panel = docks.open_panel(self._viewer, "Batch")
        try:
            panel.take_over(self)
        except DenoiseError as error:
            self.show_error(error)

    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        super().reset_choices(event)
        self.afterwards.refresh()

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
        text, remarks = command_with_remarks(self.request())
        return text, " ".join(["Command line copied.", *remarks])

    def show_error(self, error: Exception) -> str:
        """Show an error in the panel and as a notification of napari."""
        if sentence := super().show_error(error):
            show_error(sentence)
        return sentence

    def _follow_places(self, event: object = None) -> None:
        """Offer the frame and the slice in view."""
        chosen = self.places.show(self.layer.layer(), self.known_axes())
        count = len(self.layer.layers())
        several = f"{count} layers" if count > 1 else ""
        self.run_button.setText(" ".join(filter(None, ("Run", several, chosen))))

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

    def took(self, outcome: Outcome) -> None:
        """Show the noise that was used, and let an assessment note the result."""
        self.assess.note_results()
        record = outcome.value.result.record
        self.noise.show_used(record.sigma, record.noise)
