"""The panel "Filter": a filter, its settings, and runs of it on layers."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import napari.viewer
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QCheckBox

from napari_gpu_denoise._napari import docks, preferences, snippets
from napari_gpu_denoise._napari.denoise import remembered
from napari_gpu_denoise._napari.denoise.assess import AssessSection
from napari_gpu_denoise._napari.denoise.form import FilterChoice
from napari_gpu_denoise._napari.denoise.options import NoiseInput, PlacesInput, RunOptions
from napari_gpu_denoise._napari.denoise.run_panel import RunPanel
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.layers.source import voxel_of
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.model import AUTO, MEASURED, NoiseChoice, known_of
from napari_gpu_denoise._napari.parts import Caption, button, form_layout, row_of, ruler, wrapped
from napari_gpu_denoise._napari.preview.live import LivePreview, PreviewBox
from napari_gpu_denoise._napari.resolve import Problem, Resolved, resolve
from napari_gpu_denoise._napari.run import Request, offer_of
from napari_gpu_denoise._napari.tasks import Outcome
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.run.part import warm_up

_LONGEST = 24  # letters of a name on the button


class FilterPanel(RunPanel):
    """Takes layers and a filter, runs it, and adds the results as layers.

    Whatever is shown beside the controls follows from `resolved`, in `draw`.
    """

    title = "Filter"

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        tip = "Image layers to denoise. They are never changed."
        super().__init__(viewer, tip, "Denoise the layers; the results are new layers.")
        self.options = RunOptions(self, NoiseInput(), model=self.model)
        self.filter = FilterChoice(FILTERS, "The filter, whose settings are below.", "")
        self.summary, self.maps = Caption(), QCheckBox()
        self.preview = PreviewBox()
        self.places = PlacesInput(self.model, self)
        self.reset_button = button("Reset to defaults", "Reset everything except the layer.")
        self.batch_button = button(
            "Many files …", "Open the panel Batch with this filter, these settings and this noise."
        )
        self.add_code_button("for the same run")
        self.assess = AssessSection(self._viewer, self, self.options.strength.choose)
        strengths = self.options.strength.around
        self.live = LivePreview(self._viewer, self.preview, self.ready, strengths, self)
        self._said: Any = None  # the key of what the status line is about
        self._lay_out()
        self._take_filter()
        self._take_layers()
        self._connect()
        self.draw()
        # The drivers are loaded when the panel is on the screen, not while it is being built.
        QTimer.singleShot(0, self.options.device.fill)

    @property
    def form(self) -> Any:
        """The settings of the filter that is chosen."""
        return self.filter.form

    def _lay_out(self) -> None:
        head = with_guide(self.summary, lambda: f"methods/{self.filter.kind.name}.md")
        where = {"Filter": self.filter.box, "Image": self.layer, "Axes": self.axes}
        where["Region"] = self.region
        reset = row_of(self.batch_button, self.reset_button, before=True)
        top = form_layout({**where, **self.options.rows})
        section = self.options.section
        self.arrange(
            (head, top, ruler(), self.filter, section, self.assess, reset),
            (
                # Above the buttons, which then stay where they are, however long the text.
                (self.progress,),
                (self.status,),
                (self.proof_button,),
                (self.preview,),
                (self.maps,),
                *((box,) for box in self.places.boxes.values()),
                (self.results,),
                (self.run_button, self.cancel_button),
                (self.copy_button,),
            ),
        )

    def _connect(self) -> None:
        self.layer.chosen.connect(self._take_layers)
        self.axes.changed.connect(self._take_axes)
        self.filter.box.currentIndexChanged.connect(self._take_filter)
        self.filter.changed.connect(self._take_settings)
        self.maps.toggled.connect(self._take_maps)
        self.model.events.connect(self.draw)
        self.model.events.noise.connect(self._keep_noise)
        self.options.noise.wanted.connect(self.show_noise)
        self.options.device.listed.connect(self._warm_up)
        self.options.device.listed.connect(self._on_listed)
        for box in (self.preview.box, self.preview.strip):
            box.toggled.connect(self._follow_view)
        self.live.chosen.connect(self.options.strength.choose)
        self.reset_button.clicked.connect(lambda: self.reset())
        self.batch_button.clicked.connect(lambda: self.show_batch())
        moved = self._viewer.dims.events
        active = self._viewer.layers.selection.events.active
        events = (moved.current_step, moved.ndisplay, moved.order, active)
        self.follow("viewer", ((event, self.draw) for event in events))
        explain = self.options.device.explain
        self.follow("preferences", ((event, explain) for event in preferences.changed()))

    def _take_filter(self, _: int = 0) -> None:
        kind = self.filter.kind
        self.summary.setText(kind.summary)
        self.axes.set_kind(kind)
        offer = offer_of(kind)
        self.maps.setChecked(False)
        self.maps.setHidden(offer is None)
        self.maps.setText("" if offer is None else offer.label)
        self.maps.setToolTip("" if offer is None else wrapped(offer.tip))
        self._take_settings()

    def _take_settings(self) -> None:
        try:
            self.model.settings = self.form.settings()
        except DenoiseError as error:
            self.model.settings = error

    def _take_axes(self) -> None:
        self.filter.set_axes(self.axes.letters())
        self.model.axes = self.axes.letters()

    def _take_maps(self, ticked: bool) -> None:
        self.model.options = replace(self.model.options, maps=ticked)

    def _take_layers(self) -> None:
        """Follow the choice of layers; noise that was handed over belongs to its layer."""
        self.model.layers = layers = self.layer.layers()
        noise, first = self.model.noise, self.layer.layer()
        if first is not None and (known := known_of(first).noise) is not None:
            self.model.noise = known
        elif noise.kind == MEASURED:
            self.model.noise = replace(noise, kind=AUTO)
        self._follow_looks()
        self.offer_axes()
        self._take_axes()
        moved = [e for layer in layers for e in (layer.events.scale, layer.events.units)]
        self.follow("scale", [(event, self.draw) for event in moved])
        self._follow_view()

    def _keep_noise(self, noise: NoiseChoice) -> None:
        if (layer := self.layer.layer()) is not None:
            known_of(layer).noise = noise if noise.kind == MEASURED else None

    def _on_listed(self) -> None:
        self._said = None
        self.draw()

    def _warm_up(self) -> None:
        """Build kernels for a GPU while the user looks at the panel."""
        from napari_gpu_denoise.opencl.device import choose

        with suppress(DenoiseError):
            device = choose(self.options.device.device())
            Loading(partial(warm_up, self.form.settings(), device), lambda _: None, self)

    def resolved(self) -> Resolved | Problem:
        """Return what the panel would do as it is set."""
        if self.layer.layers():
            self.captured()  # its axes may have changed
        return resolve(self.model, self._viewer.layers, self._viewer.dims)

    def ready(self) -> Resolved:
        """Return what the panel would do; raises `DenoiseError` if something does not fit."""
        resolved = self.resolved()
        if isinstance(resolved, Problem):
            raise resolved.error
        return resolved

    def request(self) -> Request:
        """Return the run of the layer that is chosen; of several, the first."""
        return self.ready().requests[0]

    def requests(self) -> list[Request]:
        """Return a run for each of the layers chosen."""
        return list(self.ready().requests)

    def draw(self, _: object = None) -> None:
        """Show what follows from the settings, in place of what was said of others."""
        resolved, layer, axes = self.resolved(), self.layer.layer(), self.known_axes()
        settings = self.model.settings
        if not isinstance(settings, DenoiseError):
            self.options.noise.set_unused(settings.sigma_unused)
        self.places.offer(layer, axes, self._viewer.dims)
        if "voxel" in self.form.controls:
            voxel = voxel_of(layer, axes) if layer is not None and axes else ""
            text = f"{voxel} (of the layer)" if voxel else ""
            self.form.controls["voxel"].native.setPlaceholderText(text)
        if isinstance(resolved, Resolved):
            memory = resolved.requests[0].memory
            self.options.noise.explain(memory and memory.known(settings))
            self._name_button(resolved.what)
        if resolved.key != self._said and not self.runs.running:
            self._said = resolved.key
            self.proof_button.hide()
            self._say_what(resolved)
        self.live.changed()

    def _name_button(self, what: str) -> None:
        layer, active = self.layer.layer(), self._viewer.layers.selection.active
        name = "" if active in (None, *self.model.layers) or what else layer.name
        short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        self.run_button.setText(f"Denoise {what or short}".rstrip())

    def _say_what(self, resolved: Resolved | Problem) -> None:
        """Say what stands in the way of a run, or how long it takes."""
        if isinstance(resolved, Problem):
            self.say(self.worded(resolved.error), "Not ready." if self.model.layers else "")
        elif self.options.device.box.count() > 1:
            with suppress(DenoiseError):
                self.say(resolved.expected(choose_devices(self.options.device.device())))

    def reset(self) -> None:
        """Set everything but the layer to its default."""
        self.form.reset()
        self.options.reset()
        self.results.reset()
        self.region.box.setCurrentIndex(0)
        self.maps.setChecked(False)
        if (layer := self.layer.layer()) is not None:
            known_of(layer).axes = None
        self.offer_axes()

    def stop(self) -> None:
        """Stop the run and the preview; the panel is being closed."""
        self.live.stop()
        self.runs.drop()
        self.assess.stop()
        self.show_running(False)

    def adding(self) -> AbstractContextManager[None]:
        """Return a context in which a result is added, below the preview."""
        self.preview.strip.setChecked(False)  # it would lie over the result
        return self.live.shown.below_shown()

    def took(self, outcome: Outcome) -> None:
        """Note the result, and keep the settings for next time."""
        remembered.remember(outcome.request.run.filter)
        self.assess.note_results()
        self.draw()

    def _follow_view(self, _: object = None) -> None:
        """Preview again when the view or the layers change."""
        events = self.live.events(self.layer.layers()) if self.preview.ticked else ()
        self.follow("preview", events)
        self.live.changed()

    def show_noise(self) -> None:
        """Open the panel that measures noise for this layer."""
        panel = docks.open_panel(self._viewer, "Estimated noise")
        panel.choose(*self.layer.layers()[:1])

    def show_batch(self) -> None:
        """Open the panel for many files, set as this one is."""
        panel = docks.open_panel(self._viewer, "Batch")
        try:
            panel.form.take_over(self.form.settings(), self.options)
        except DenoiseError as error:
            self.show_error(error)

    def take_noise(self, layer: Any, axes: str, estimate: NoiseEstimate, origin: str) -> None:
        """Choose a layer and an estimate of its noise, measured in `origin`, in words."""
        if axes.upper() != self.axes.letters():
            known_of(layer).axes = axes.upper()
        self.choose(layer)
        self.options.noise.hand_over(estimate, origin)

    def python_code(self) -> str:
        """Return equivalent Python code."""
        return snippets.python_call(self.request())

    def command_line(self) -> tuple[str, list[str]]:
        """Return an equivalent command line, and remarks on its differences."""
        return snippets.command_with_remarks(self.request())
