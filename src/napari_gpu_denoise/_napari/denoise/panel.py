"""The panel of a filter."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, ref

import napari.viewer
from napari.layers import Image
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QCheckBox

from napari_gpu_denoise._napari import docks, preferences
from napari_gpu_denoise._napari.denoise import remembered
from napari_gpu_denoise._napari.denoise.assess import AssessSection
from napari_gpu_denoise._napari.denoise.form import SettingsForm
from napari_gpu_denoise._napari.denoise.options import NoiseInput, PlacesInput, RunOptions
from napari_gpu_denoise._napari.denoise.run import Request, offer_of, remembering
from napari_gpu_denoise._napari.denoise.run_panel import RunPanel
from napari_gpu_denoise._napari.denoise.snippets import command_with_remarks, python_call
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.layers.layer_input import same_axes
from napari_gpu_denoise._napari.layers.source import Source, capture, voxel_of
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.parts import Caption, button, form_layout, row_of, ruler, wrapped
from napari_gpu_denoise._napari.preview.live import LivePreview, PreviewBox
from napari_gpu_denoise._napari.tasks import Outcome
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.assessment.recommend import seconds_on, time_in_words
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.part import warm_up
from napari_gpu_denoise.run.request import Run

_LONGEST = 24  # letters of a name on the button


class DenoisePanel(RunPanel):
    """The panel of one filter: takes a layer, runs, and adds the result as a layer.

    A subclass with `filter` and `title` set serves each entry of FILTERS; nothing here is about a
    particular one.
    """

    #: An entry of FILTERS.
    filter: ClassVar[Any]

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        tip = "Image layer to denoise. The layer itself is never changed."
        run_tip = "Denoise the layer; the result is a new layer."
        super().__init__(viewer, tip, run_tip, kind=self.filter)
        self.options = RunOptions(self, NoiseInput())
        self.form = SettingsForm(self.filter)
        offer = offer_of(self.filter)
        label, tip = ("", "") if offer is None else (offer.label, wrapped(offer.tip))
        self.maps = QCheckBox(label, toolTip=tip)
        self.maps.setHidden(offer is None)
        self.preview = PreviewBox()
        self.places = PlacesInput(viewer, self)
        self.reset_button = button("Reset to defaults", "Reset everything except the layer.")
        self.batch_button = button(
            "Many files …", "Open the panel Batch with this filter, these settings and this noise."
        )
        self.add_code_buttons("for the same run")
        self.assess = AssessSection(viewer, self, self.options.strength.choose)
        strengths = self.options.strength.around
        self.live = LivePreview(viewer, self.title, self.preview, self._previewed, strengths, self)
        # Estimates handed over, by the layer that they were last used for.
        self._handed: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._last: ref | None = None
        self._lay_out()
        self._connect()
        self._take_layer()
        self._follow_scale()
        if (known := remembered.last(self.filter)) is not None:
            self.form.show_settings(known)
        # The drivers are loaded when the panel is on the screen, not while it is being built.
        QTimer.singleShot(0, self.options.device.fill)

    def _lay_out(self) -> None:
        summary = Caption()
        summary.setText(self.filter.summary)
        head = with_guide(summary, f"methods/{self.filter.name}.md")
        top = form_layout(
            {"Image": self.layer, "Axes": self.axes, "Region": self.region, **self.options.rows}
        )
        reset = row_of(self.batch_button, self.reset_button, before=True)
        self.arrange(
            (head, top, ruler(), self.form, self.options.section, self.assess, reset),
            (
                # Above the buttons, which then stay where they are, however long the text.
                (self.progress,),
                (self.status,),
                (self.preview,),
                (self.maps,),
                *((box,) for box in self.places.boxes.values()),
                (self.results,),
                (self.run_button, self.cancel_button),
                (self.python_button, self.command_button),
            ),
        )

    def _connect(self) -> None:
        self.layer.chosen.connect(self._take_layer)
        self.layer.chosen.connect(self._follow_scale)
        self.layer.chosen.connect(self._follow_view)
        self.axes.changed.connect(lambda: self.form.set_axes(self.axes.letters()))
        self.axes.changed.connect(self._follow_places)
        self.axes.changed.connect(self._offer_voxel)
        self.axes.changed.connect(self._count_channels)
        self.options.noise.wanted.connect(self.show_noise)
        self.options.device.listed.connect(self._warm_up)
        self.options.device.listed.connect(self._check)
        self.places.changed.connect(self._follow_places)
        for part in (self.form, self.axes, self.options, self.places):
            part.changed.connect(self.live.changed)
            part.changed.connect(self._check)
        for box in (self.preview.box, self.preview.strip):
            box.toggled.connect(self._follow_view)
        self.live.chosen.connect(self.options.strength.choose)
        self.reset_button.clicked.connect(lambda: self.reset())
        self.batch_button.clicked.connect(lambda: self.show_batch())
        moved = self._viewer.dims.events
        active = self._viewer.layers.selection.events.active
        events = (moved.current_step, moved.ndisplay, moved.order, active)
        self.follow("places shown", ((event, self._follow_places) for event in events))
        explain = self.options.device.explain
        self.follow("preferences", ((event, explain) for event in preferences.changed()))

    def _warm_up(self) -> None:
        """Build kernels for a GPU while the user looks at the panel."""
        from napari_gpu_denoise.opencl.device import choose

        with suppress(DenoiseError):
            device = choose(self.options.device.device())
            Loading(partial(warm_up, self.form.settings(), device), lambda _: None, self)

    def request(self, layer: Image | None = None) -> Request:
        """Return the request of the panel, for the layer shown or another one.

        Raises `DenoiseError` if it does not fit the layer.
        """
        source, run = self._wanted(layer)
        layer = layer or self.layer.layer()
        frame, place = (self.places.chosen(layer, run.axes, a) for a in "TZ")
        cut = self.cut(layer, run.axes)
        return Request(source, run, frame, self.maps.isChecked(), place, **cut)

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
        return source, self.options.run(settings, axes)

    def remembered(self) -> Request:
        """Return the request, with the memory of the noise of the layer."""
        return remembering(self.request(), self.layer.layer())

    def requests(self) -> list[Request]:
        """Return a run for each of the layers chosen."""
        layers = self.layer.layers() or (None,)
        return [remembering(self.request(each), each) for each in layers]

    def reset(self) -> None:
        """Set everything but the layer to its default."""
        for part in (self.form, self.options, self.places, self.results, self.region):
            part.reset()
        self.maps.setChecked(False)
        self.axes.forget()
        self.offer_axes()

    def stop(self) -> None:
        """Stop the run and the preview; the panel is being closed."""
        self.live.stop()
        self.runs.drop()
        self.assess.stop()
        self.show_running(False)

    def _follow_view(self, _: object = None) -> None:
        """Preview again when the view or the layer change."""
        events = self.live.events(self.layer.layer()) if self.preview.ticked else ()
        self.follow("preview", events)
        self.live.changed()

    def _previewed(self) -> tuple[Image, Source, Run, NoiseMemory | None]:
        """Return the arguments of `LivePreview`."""
        source, run = self._wanted()
        known = remembering(Request(source, run), self.layer.layer())
        return self.layer.layer(), source, run, known.memory

    def _take_layer(self) -> None:
        """Follow the choice of a layer; noise handed over for one is chosen again with it."""
        before, layer = self._last and self._last(), self.layer.layer()
        if before is not None:
            self._handed[before] = self.options.noise.handed()
        self._last = None if layer is None else ref(layer)
        self._follow_looks()
        self.offer_axes()
        if layer is not None and (known := self._handed.get(layer)) is not None:
            self.options.noise.hand_over(*known)

    def offer_axes(self) -> None:
        """Suggest the axes of a layer, whose noise is not that of another one."""
        self.options.noise.drop_estimates()
        super().offer_axes()

    def show_noise(self) -> None:
        """Open the panel that measures noise for this layer."""
        panel = docks.open_panel(self._viewer, "Estimated noise")
        if (layer := self.layer.layer()) is not None:
            panel.choose(layer, self.axes.letters())

    def show_batch(self) -> None:
        """Open the panel for many files, set as this one is."""
        panel = docks.open_panel(self._viewer, "Batch")
        try:
            panel.form.take_over(self.form.settings(), self.options)
        except DenoiseError as error:
            self.show_error(error)

    def take_noise(self, layer: Any, axes: str, estimate: NoiseEstimate, origin: str) -> None:
        """Choose a layer and an estimate of its noise, measured in `origin`, in words."""
        self.choose(layer, axes)
        self.options.noise.hand_over(estimate, origin)

    def python_code(self) -> str:
        """Return equivalent Python code."""
        return python_call(self.request())

    def command_line(self) -> tuple[str, list[str]]:
        """Return an equivalent command line, and remarks on its differences."""
        return command_with_remarks(self.request())

    def _follow_places(self, event: object = None) -> None:
        """Offer the frame and the slice in view."""
        chosen = self.places.show(self.layer.layer(), self.known_axes())
        layers = self.layer.layers()
        what = f"{len(layers)} layers" if len(layers) > 1 else ""
        meant = self.layer.meant()
        if len(layers) == 1 and isinstance(meant, Image) and meant not in layers:
            name = layers[0].name  # and another one is selected
            what = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        words = ", ".join(filter(None, (what, chosen, self.region.word())))
        self.run_button.setText(f"Denoise {words}".rstrip())

    def show_region(self) -> None:
        """Show what is filtered, and how long that takes."""
        self._follow_places()
        if not self.details:  # those of a result, which is looked at
            self._check()

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
        self.options.noise.channels = 1 if channel is None else self.axes.shape[channel]

    def _check(self) -> None:
        """Say whether the request fits, and how long it takes, in place of what was said before."""
        message = "", ""
        try:
            settings = self.form.settings()
            self.options.noise.set_unused(settings.sigma_unused)
            if axes := self.known_axes():
                settings.prepare(Context(axes, self.axes.shape))
                self.cut(self.layer.layer(), axes)
        except DenoiseError as error:
            message = in_panel(error), "Not ready."
        if not self.runs.running:
            self.say(*message if message[0] else (self._expected(),))

    def _expected(self) -> str:
        """Return how long a run takes; empty where that is not known yet."""
        if not (self.options.device.box.count() > 1 and self.layer.layers()):
            return ""
        pixels = round(self.share() * math.prod(self.axes.shape) * len(self.layer.layers()))
        try:
            devices = choose_devices(self.options.device.device())
            seconds = seconds_on(self.form.settings(), pixels, devices)
        except DenoiseError:
            return ""
        return f"Takes {time_in_words(seconds)}."

    def took(self, outcome: Outcome) -> None:
        """Show the noise that was used, note the result, and keep the settings for next time."""
        remembered.remember(outcome.request.run.filter)
        self.assess.note_results()
        self.preview.strip.setChecked(False)  # it would lie over the result
        record = outcome.value.result.record
        self.options.noise.show_used(record.sigma, record.noise)
