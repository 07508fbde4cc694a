"""The panel "Filter": a filter, its settings, and runs of it on layers."""

from __future__ import annotations

import html
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import napari.viewer
from qtpy.QtCore import Qt
from qtpy.QtGui import QKeySequence, QShortcut

from napari_gpu_denoise._napari import docks, parts, preferences, resolve, snippets
from napari_gpu_denoise._napari.denoise.assess import AssessSection
from napari_gpu_denoise._napari.denoise.form import FilterChoice
from napari_gpu_denoise._napari.denoise.options import PlacesInput, RunOptions
from napari_gpu_denoise._napari.denoise.results import ResultOptions
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.inputs import REGIONS
from napari_gpu_denoise._napari.layers.provenance import first_origin, identity, record_of
from napari_gpu_denoise._napari.layers.source import voxel_of
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.model import AUTO, MEASURED, NoiseChoice, PanelModel, known_of
from napari_gpu_denoise._napari.noise.rows import as_html, titled
from napari_gpu_denoise._napari.panel import ImagePanel
from napari_gpu_denoise._napari.preview.live import LivePreview, PreviewBox
from napari_gpu_denoise._napari.resolve import NotLookedAt, Problem, Resolved
from napari_gpu_denoise._napari.run import Request, denoise_layer, report
from napari_gpu_denoise._napari.tasks import Outcome, Task, TimeLeft, words_of
from napari_gpu_denoise._napari.wording import duration
from napari_gpu_denoise.assessment.recommend import Advice
from napari_gpu_denoise.errors import DenoiseError, LayerError, Note, free_traceback
from napari_gpu_denoise.files.recommended import Recommended
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.opencl.device import choose, choose_devices
from napari_gpu_denoise.run.part import warm_up
from napari_gpu_denoise.run.progress import Step

_SETTLED = 150  # milliseconds without a change of the region, or of what is recommended for
_REGION_TIP = (
    "Part of the layer to filter, in all frames and slices. Its pixels are those of a full run; "
    "noise is measured on the whole layer. The result lies over this part. Current view: the "
    "visible part. Rectangle: click Draw, and drag one over the image."
)


class FilterPanel(ImagePanel):
    """Takes layers and a filter, runs it, and adds the results as layers.

    Whatever is shown beside the controls follows from `resolved`, in `draw`. Where the filter is to
    be recommended, layers are looked at first.
    """

    title = "Filter"
    failed = "Not done."
    out_of_memory = (
        "There is not enough memory for this image: crop it, or filter the file with gpu-denoise."
    )
    aloud = True

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        tip = "Image layers to denoise. They are never changed."
        super().__init__(viewer, tip, REGIONS, _REGION_TIP, whole_files=True)
        viewer = self._viewer
        self.options = RunOptions(self, self.model)
        tip = "The filter, whose settings are below. Recommended: the one that suits the layer."
        self.filter = FilterChoice(tip, "")
        self.summary = parts.Caption(rich=True)
        self.preview = PreviewBox()
        self.places = PlacesInput(self.options)
        self.results = ResultOptions(viewer, self.repeat, self.show_batch, self._copy_repetition)
        self.progress = parts.progress_bar()
        run_tip = "Denoise the layers; the results are new layers."
        self.run_button = parts.button("Denoise", run_tip, lambda: self.run())
        self.cancel_button = parts.button("Cancel", "Stop; add no layer.", lambda: self.cancel())
        self.proof_button = parts.button(
            "Take it for noise",
            "Denoise again, and remove what may be noise or fine texture.",
            self._take_for_noise,
        )
        self.reset_button = parts.button("Reset to defaults", "Reset everything except the layer.")
        self.batch_button = parts.button(
            "Many files …", "Open the panel Batch with this filter, these settings and this noise."
        )
        self.add_code_button(
            "for the same run",
            lambda: snippets.python_call(self.request()),
            lambda: snippets.command_with_remarks(self.request()),
        )
        self.assess = AssessSection(viewer, self, self.request, self.options.strength.choose)
        strengths = self.options.strength.around
        self.live = LivePreview(viewer, self.preview, self.ready, strengths, self)
        self.runs = Task(self, denoise_layer)
        self._looking = Task(self, resolve.advise, self.title, alone=True)
        self._run_when_looked = False
        self._settled = parts.settling_timer(self, _SETTLED, self.draw)
        self._drawing = parts.settling_timer(self, 0, self.draw)
        self._looks_soon = parts.settling_timer(self, _SETTLED, self._look)
        self._said: Any = None  # the key of what the status line is about
        self._foretold = ""  # and the line, where it is about a run to come
        self._unproven: list[tuple[Request, str]] = []  # of the last run: the model not proven
        self._count = 0  # of the runs that were started together
        self._ended: list[str] = []  # names of their results, empty for those that failed
        self._seconds = 0.0
        self._left = TimeLeft()
        self._lay_out()
        self.proof_button.hide()
        self.show_running(False)
        self._take_filter()
        self._take_layers()
        self._connect()
        self._drawing.start()

    @property
    def form(self) -> Any:
        """The settings that are shown."""
        return self.filter.form

    def _lay_out(self) -> None:
        head = with_guide(self.summary, self._page)
        where = {"Filter": self.filter.box, "Image": self.layer, "Axes": self.axes}
        where["Region"] = self.region
        reset = parts.row_of(self.batch_button, self.reset_button)
        reset.insertStretch(0, 1)
        top = parts.form_layout({**where, **self.options.rows})
        section = self.options.section
        self.arrange(
            (head, top, parts.ruler(), self.filter, section, self.assess, reset),
            (
                # Above the buttons, which then stay where they are, however long the text.
                (self.progress,),
                (self.status,),
                (self.proof_button,),
                (self.preview,),
                *((box,) for box in self.places.boxes.values()),
                (self.results,),
                (self.run_button, self.cancel_button),
                (self.copy_button, self.results.repeat_button),
            ),
        )

    def _connect(self) -> None:
        self.layer.chosen.connect(self._take_layers)
        self.filter.box.currentIndexChanged.connect(self._take_filter)
        self.filter.changed.connect(self._take_settings)
        self.model.events.connect(self.draw)
        self.model.events.noise.connect(self._keep_noise)
        self.options.noise.button.clicked.connect(lambda: self.show_noise())
        self.options.device.listed.connect(self._on_listed)
        for box in (self.preview.box, self.preview.strip):
            box.toggled.connect(self._follow_view)
        self.live.chosen.connect(self.options.strength.choose)
        self.reset_button.clicked.connect(lambda: self.reset())
        self.batch_button.clicked.connect(lambda: self.show_batch())
        for key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            anywhere = Qt.ShortcutContext.WidgetWithChildrenShortcut
            QShortcut(QKeySequence(key), self, context=anywhere).activated.connect(self.run)
        self._looking.told.connect(self._on_looking)
        self._looking.ended.connect(self._on_looked)
        self.runs.told.connect(self._on_step)
        self.runs.ended.connect(self._on_outcome)
        self.runs.stopped.connect(self._on_stopped)
        moved, layers = self._viewer.dims.events, self._viewer.layers
        active = layers.selection.events.active
        events = (moved.current_step, moved.ndisplay, moved.order, active)
        self.follow("viewer", ((event, self._draw_soon) for event in events))
        self.follow("removed layers", [(layers.events.removed, self._on_removed)])
        changed, follow = preferences.changed(), (self.options.device.explain, self.draw)
        self.follow("preferences", [(event, act) for event in changed for act in follow])

    # --- what the panel is set to -----------------------------------------------------------------

    def _take_filter(self, _: int = 0) -> None:
        kind = self.filter.kind
        self.axes.set_kind(None if kind is Recommended else kind)
        self._take_settings()

    def _take_settings(self) -> None:
        try:
            self.model.settings = self.filter.settings()
        except DenoiseError as error:
            free_traceback(error, kept=False)
            self.model.settings = error

    def _take_axes(self) -> None:
        self.filter.set_axes(self.axes.letters())
        super()._take_axes()

    def _take_layers(self) -> None:
        """Follow the choice of layers; noise that was handed over belongs to its layer."""
        self.model.layers = layers = self.layer.layers()
        noise, first = self.model.noise, self.layer.layer()
        if first is not None and (known := known_of(first).noise) is not None:
            self.model.noise = known
        elif noise.kind == MEASURED:
            self.model.noise = replace(noise, kind=AUTO)
        self.offer_axes()
        names = "scale", "units", "data"
        moved = [getattr(each.events, name) for each in layers for name in names]
        self.follow("layers", [(event, self.draw) for event in moved])
        self._follow_view()

    def _keep_noise(self, noise: NoiseChoice) -> None:
        if (layer := self.layer.layer()) is not None:
            known_of(layer).noise = noise if noise.kind == MEASURED else None

    def _follow_region(self, event: object = None) -> None:
        super()._follow_region()
        self._settled.start()

    def _follow_view(self, _: object = None) -> None:
        """Preview again when the view or the layers change."""
        events = self.live.events(self.layer.layers()) if self.preview.ticked else ()
        self.follow("preview", events)
        self.live.changed()

    def _put_in(self) -> None:
        super()._put_in()
        self.options.device.fill()  # not before: loading the drivers takes long

    def _on_listed(self) -> None:
        """Build kernels for a GPU while the user looks at the panel."""
        if self.status.text() == self._foretold:
            self._said = None
        self.draw()
        with suppress(DenoiseError):
            device = choose(self.model.device)
            Loading(partial(warm_up, self.form.settings(), device), lambda _: None, self)

    # --- what follows from it ---------------------------------------------------------------------

    def resolved(self) -> Resolved | Problem:
        """Return what the panel would do as it is set."""
        return resolve.resolve(self.model, self._viewer.dims)

    def ready(self) -> Resolved:
        """Return what the panel would do; raises `DenoiseError` if something does not fit."""
        resolved = self.resolved()
        if isinstance(resolved, Problem):
            raise resolved.error
        return resolved

    def request(self) -> Request:
        """Return the run of the layer that is chosen; of several, the first."""
        return self.ready().requests[0]

    def _draw_soon(self, _: object = None) -> None:
        """Draw once for all that changes together, such as when a layer is added."""
        self._drawing.start()

    def draw(self, _: object = None) -> None:
        """Show what follows from the settings, in place of what was said of others."""
        resolved, layer, axes = self.resolved(), self.layer.layer(), ""
        with suppress(DenoiseError):  # raised where there is no layer, too
            axes = self.axes.axes()
        self._advise(resolved)
        settings = self.model.settings
        if isinstance(resolved, Resolved):
            settings = resolved.requests[0].run.filter
        if not isinstance(settings, DenoiseError | None):
            self.options.noise.set_unused(settings.sigma_unused)
        self.places.offer(layer, axes, self._viewer.dims)
        self.results.refresh()
        if "voxel" in self.form.controls:
            voxel = voxel_of(layer, axes) if layer is not None and axes else ""
            text = f"{voxel} (of the layer)" if voxel else ""
            self.form.controls["voxel"].native.setPlaceholderText(text)
        if isinstance(resolved, Resolved):
            memory = resolved.requests[0].memory
            self.options.noise.explain(memory and memory.known(resolved.requests[0].run.filter))
            self.run_button.setText(f"Denoise {resolved.what}".rstrip())
        if resolved.key != self._said and not self._busy:
            self._said = resolved.key
            self.proof_button.hide()
            self._say_what(resolved)
            self._foretold = self.status.text()
        self.live.changed()

    @property
    def _busy(self) -> bool:
        """Whether a run is in progress, or waits for a recommendation."""
        return self.runs.running or self._run_when_looked

    def _say_what(self, resolved: Resolved | Problem) -> None:
        """Say what stands in the way of a run, or how long it takes."""
        if isinstance(resolved, Problem):
            soon = not self.model.layers or isinstance(resolved.error, NotLookedAt)
            self.say(self.worded(resolved.error), "" if soon else "Not ready.")
            return
        words = ""
        if self.options.device.box.count() > 1:  # the devices are known
            with suppress(DenoiseError):
                words = resolved.expected(choose_devices(self.model.device))
        self.say(words)

    # --- recommendations --------------------------------------------------------------------------

    def _page(self) -> str:
        if self.filter.kind is Recommended:
            return "guide/choosing_settings.md#what-is-recommended"
        return f"methods/{self.filter.kind.name}.md"

    def advised(self) -> tuple[Advice, ...]:
        """Return what is recommended for each layer; nothing before it is known of all."""
        model, dims = self.model, self._viewer.dims
        try:
            return tuple(resolve.advice_on(model, each, dims) for each in model.layers)
        except DenoiseError as error:
            free_traceback(error, kept=False)
            return ()

    def _advise(self, resolved: Resolved | Problem) -> None:
        """Show what is recommended, where that is chosen, or begin to find out."""
        asked = self.filter.kind is Recommended
        advised = self.advised() if asked else ()
        words = html.escape(self.filter.kind.summary, quote=False)
        if asked:
            words = advice_as_html([each.name for each in self.model.layers], advised)
            self.filter.advise(advised[0].filter if advised else None)
        if words != self.summary.text():
            self.summary.setText(words)
        if isinstance(resolved, Problem) and isinstance(resolved.error, NotLookedAt):
            self._looks_soon.start()

    def _look(self) -> None:
        """Look at the layers of which nothing is known, one after another."""
        if self.filter.kind is not Recommended or self._closed:
            return
        model, dims = self.model, self._viewer.dims
        with suppress(DenoiseError):
            looks = [resolve.measurement(model, each, dims) for each in model.layers]
            looks = [each for each in looks if each.memory.advice is None]
            now = self._looking.request
            if now is None or now.memory not in [each.memory for each in looks]:
                self._looking.drop()
                self._looking.proceed([(each, self.title) for each in looks])

    def _on_looking(self, step: Step) -> None:
        if self.filter.kind is Recommended and not self.runs.running:
            self.say(words_of(step))

    def _on_looked(self, looked: Outcome) -> None:
        """Keep what was found; what is no error of the layer is reported once."""
        found, error = looked.value, looked.error
        if error is not None and not isinstance(error, DenoiseError):
            self.show_error(error)
            error = LayerError(f"{looked.request.source.name} could not be measured: {error!r}")
        looked.request.memory.advice = error if found is None else found
        if self._run_when_looked and not self._looking.running:
            self._run_when_looked = False
            self.run()
        else:
            if self.filter.kind is Recommended:
                self._said = None
            self.draw()

    # --- runs -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run for each of the layers chosen, one after another; errors are shown in the panel."""
        if self._busy:
            return
        try:
            requests = self.ready().requests
        except NotLookedAt:
            self._run_when_looked = True
            self.show_running(True)
            self._look()
            return
        except DenoiseError as error:
            self.show_running(False)
            self.show_error(error)
            return
        self._start(requests)

    def repeat(self, result: Any, layers: Sequence[Any]) -> None:
        """Run on layers what made a result; errors are shown in the panel."""
        if not self._busy:
            try:
                dims = self._viewer.dims
                self._start([resolve.repetition(result, each, dims) for each in layers])
            except DenoiseError as error:
                self.show_error(error)

    def _start(self, requests: Sequence[Request]) -> None:
        self.show_running(True)
        self._count, self._ended, self._seconds = len(requests), [], 0.0
        named = [(each, f"{each.run.filter.title} of {each.source.name}") for each in requests]
        self.runs.proceed(named)

    def show_running(self, running: bool) -> None:
        """Show that a run can be cancelled, or that the next one can be started."""
        self.run_button.setEnabled(not running)
        self.cancel_button.setEnabled(running)
        self.progress.setVisible(running)
        if running:
            self.progress.setRange(0, 0)
            self.say("Starting …")
            self.proof_button.hide()

    def cancel(self) -> None:
        """Leave all runs at once; no more layers will be added."""
        if self._busy:
            self.runs.drop()
            self._on_stopped()

    def stop(self) -> None:
        """Stop the run and the preview; the panel is being closed."""
        self.live.stop()
        self._looking.drop()
        self.runs.drop()
        self.assess.stop()
        self._run_when_looked = False
        self.show_running(False)

    def _on_step(self, step: Step) -> None:
        self.progress.setRange(0, step.total)
        self.progress.setValue(step.done)
        place = f"{len(self._ended) + 1} of {self._count}: " if self._count > 1 else ""
        self.say(place + self._left.words(step))

    def _on_outcome(self, outcome: Outcome) -> None:
        self._ended.append("" if outcome.error is not None else outcome.request.name)
        self._seconds += outcome.seconds
        self.show_running(self.runs.running)
        try:
            if outcome.error is not None:
                raise outcome.error
            self.preview.strip.setChecked(False)  # it would lie over the result
            with self.live.shown.below_shown():
                self.results.add(outcome)
        except Exception as error:
            self.show_error(error)
            return
        notes = [each for each in outcome.value.result.record.notes if isinstance(each, Note)]
        unproven = [each.values["model"] for each in notes if each.code == "unproven"]
        self._unproven = [(outcome.request, model) for model in unproven[:1]]
        self.proof_button.setVisible(bool(unproven))
        self.assess.note_results()
        self.draw()
        if not self.runs.running:
            text, details = (
                (summary, "") if (summary := self._summary()) else report(outcome, self.worded)
            )
            self.say(text, details=details)

    def _summary(self) -> str:
        """Summarise several runs; empty for a single one."""
        if self._count < 2:
            return ""
        done, time = [*filter(None, self._ended)], duration(self._seconds)
        names = ", ".join(done)
        if failed := self._count - len(done):
            return f"{len(done)} of {self._count} layers done, {failed} failed, in {time}: {names}."
        return f"Done in {time}: {names}."

    def _take_for_noise(self) -> None:
        """Denoise again with the model of noise that was not proven."""
        for request, model in self._unproven:
            if request.key in [each.key for each in getattr(self.resolved(), "requests", ())]:
                self.model.noise = NoiseChoice(model)
                self.run()
            else:  # what was repeated
                self._start([request.with_noise(model)])

    def _on_removed(self, event: Any) -> None:
        """Stop where the layer that is filtered is removed; a result that is gone is none."""
        self.results.refresh()
        request = self.runs.request
        if request is not None and identity(event.value) == request.source.identity:
            self.cancel()
            self.say(f"Cancelled, as {request.source.name} was removed: no layer was added.")

    def _on_stopped(self) -> None:
        self._run_when_looked = False
        self.show_running(False)
        if ended := len(self._ended):
            self.say(f"Cancelled after {ended} of {self._count} runs, whose results stay.")
        else:
            self.say("Cancelled: no layer was added.")

    # --- other panels, and code -------------------------------------------------------------------

    def reset(self) -> None:
        """Set everything but the layer to its default."""
        self.form.reset()
        self.options.reset()
        self.results.keep_both.setChecked(False)
        self.region.box.setCurrentIndex(0)
        if (layer := self.layer.layer()) is not None:
            known_of(layer).axes = None
        self.offer_axes()

    def show_noise(self) -> None:
        """Open the panel that measures noise for this layer."""
        panel = docks.open_panel(self._viewer, "Estimated noise")
        panel.choose(*self.layer.layers()[:1])

    def show_batch(self, result: Any = None) -> None:
        """Open the panel for many files, set as this one is, or as the run of a result was."""
        try:
            model = self.model if result is None else PanelModel.of_record(record_of(result))
            settings = self.filter.settings() if result is None else model.settings
            docks.open_panel(self._viewer, "Batch").form.take_over(settings, model)
        except DenoiseError as error:
            self.show_error(error)

    def _copy_repetition(self, result: Any) -> None:
        """Copy the Python that makes a result again of the image that it was made from."""
        origin, dims = first_origin(result, self._viewer.layers), self._viewer.dims
        self.copy(lambda: snippets.python_call(resolve.repetition(result, origin, dims)))

    def take_noise(self, layer: Any, axes: str, estimate: NoiseEstimate, origin: str) -> None:
        """Choose a layer and an estimate of its noise, measured in `origin`, in words."""
        if axes.upper() != self.axes.letters():
            known_of(layer).axes = axes.upper()
        self.choose(layer)
        self.options.noise.hand_over(estimate, origin)


def advice_as_html(names: Sequence[str], advice: Sequence[Advice]) -> str:
    """Return the advice on layers as tables; as one where it is the same for all."""
    if len({(each.choice, each.reason) for each in advice}) < 2:
        advice = advice[:1]
    else:
        both = zip(names, advice, strict=True)
        advice = [replace(each, image=f"{name}: {each.image}") for name, each in both]
    # The status line says how long it takes, by the devices that are chosen.
    lines = ([row for row in each.lines() if row[0] != "takes"] for each in advice)
    return "".join(as_html(titled(each)) for each in lines)
