"""The panel "Denoise": looks at layers, recommends a filter, and runs it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import napari.viewer
import numpy as np
from napari.layers import Image
from qtpy.QtWidgets import QFrame, QVBoxLayout

from napari_gpu_denoise._napari import docks, parts, preferences
from napari_gpu_denoise._napari.denoise import remembered
from napari_gpu_denoise._napari.denoise.assess import AssessSection
from napari_gpu_denoise._napari.denoise.run import Request
from napari_gpu_denoise._napari.denoise.run_panel import RunPanel
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.layers.layer_input import same_axes
from napari_gpu_denoise._napari.layers.source import Source, capture, voxel_of
from napari_gpu_denoise._napari.noise.measuring import memory_of
from napari_gpu_denoise._napari.tasks import Outcome, Task, words_of
from napari_gpu_denoise._napari.wording import REMEDIES_IN_DENOISE
from napari_gpu_denoise.assessment.recommend import Advice, recommend, time_in_words
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.progress import Progress, Step
from napari_gpu_denoise.run.request import Run

_TIP = (
    "Image layers to denoise: one layer, the selected layers, or all layers of a file, such as its "
    "channels. They are never changed."
)

_EFFORTS = {"As recommended": None, "Faster": "fast", "Best quality": "best"}
_SETTLED = 150  # milliseconds without a change before a layer is looked at


@dataclass(frozen=True)
class LayerInfo:
    """A layer to advise on, and the memory of its noise. It holds no napari objects."""

    source: Source
    axes: str
    nonfinite: str
    memory: NoiseMemory
    device: int | str | None


def info_of(layer: Image, axes: str) -> LayerInfo:
    """Describe a layer as it is now; raises `LayerError` if it cannot be used."""
    source, device = capture(layer), preferences.read().device
    nonfinite = "keep" if np.dtype(source.data.dtype).kind == "f" else "raise"
    memory = memory_of(layer, axes, None, nonfinite, device)
    return LayerInfo(source, axes, nonfinite, memory, device)


def advise(layers: tuple[LayerInfo, ...], progress: Progress) -> tuple[Advice, ...]:
    """Find advice on layers, one after another."""
    found = []
    for number, info in enumerate(layers):
        place = (number + 1, len(layers)) if len(layers) > 1 else (0, 0)
        progress.tell(*place, f"Looking at {info.source.name}")
        found.append(_advice(info, progress))
    return tuple(found)


def _advice(info: LayerInfo, progress: Progress) -> Advice:
    data = info.source.pixels(progress)
    first, *_ = choose_devices(info.device)
    noise = info.memory.measured(data, info.axes, first)
    return recommend(data, info.axes, noise=noise, device=info.device)


class StartPanel(RunPanel):
    """Follows the layers that are selected, advises on them, and filters all of them."""

    title = "Denoise"
    remedies = REMEDIES_IN_DENOISE

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        run_tip = "Denoise as recommended. Results are new layers."
        super().__init__(viewer, _TIP, run_tip, whole_files=True)
        self.advice = parts.Caption(rich=True)
        self.effort = parts.choice(
            _EFFORTS, "Profile of the filter. Best quality takes much longer."
        )
        self.effort.setAccessibleName("Effort")
        self.more_button = parts.button(
            "More settings …", "Open the panel of this filter, with the layer and these settings."
        )
        self.batch_button = parts.button(
            "Many files …", "Open the panel Batch with this filter and these settings."
        )
        self.assess = AssessSection(viewer, self)
        self.assess.hide()  # until there is a result
        self._layers: tuple[Image, ...] = ()
        self._looked: Outcome | None = None
        self._run_when_looked = False
        self._looking = Task(self, advise, self.title, alone=True)
        self._settling = parts.settling_timer(self, _SETTLED, self._on_settled)
        self._lay_out()
        self._connect()
        self._take_layer()

    def _lay_out(self) -> None:
        frame = QFrame()
        frame.setFrameShape(QFrame.Shape.StyledPanel)
        parts.stack(inside := QVBoxLayout(frame), (self.advice,), spacing=0)
        inside.setContentsMargins(8, 8, 8, 8)
        effort = with_guide(self.effort, "guide/choosing_settings.md#what-is-recommended")
        self.arrange(
            (
                parts.form_layout({"Image": self.layer, "Axes": self.axes, "Region": self.region}),
                frame,
                parts.form_layout({"Effort": effort}),
                self.assess,
            ),
            (
                (self.progress,),
                (self.status,),
                (self.results,),
                (self.run_button, self.cancel_button),
                (self.more_button, self.batch_button),
            ),
        )

    def _connect(self) -> None:
        self._looking.told.connect(self._on_looking)
        self._looking.ended.connect(self._on_looked)
        self.layer.chosen.connect(self._take_layer)
        self.axes.changed.connect(self.look)
        self.effort.currentIndexChanged.connect(self._show)
        self.more_button.clicked.connect(lambda: self.show_more())
        self.batch_button.clicked.connect(lambda: self.show_batch())
        selection = self._viewer.layers.selection.events
        self.follow("selection", [(selection.changed, self.layer.follow_selection)])
        self.follow("preferences", ((event, self.look) for event in preferences.changed()))

    def look(self, event: object = None) -> None:
        """Look at the layers once nothing changes any more."""
        self._looking.drop()
        self._looked = None
        self.assess.stop()
        self.assess.hide()
        self.show_advice((), ())
        if not self._closed:
            self._settling.start(_SETTLED)

    def advised(self) -> tuple[Advice, ...]:
        """Return the advice on each layer with the effort that is chosen."""
        found = () if self._looked is None else self._looked.value
        effort, device = self.effort.currentData(), preferences.read().device
        chosen = (each.with_effort(effort, device) if effort else each for each in found)
        return tuple(replace(each, seconds=self.share() * each.seconds) for each in chosen)

    def run(self) -> None:
        """Run the recommended filter, as soon as there is advice."""
        if self._looked is not None or self.runs.running:
            super().run()
            return
        self.show_running(True)
        self._run_when_looked = True
        if not self._settling.isActive():
            self._settling.start(0)

    def requests(self) -> list[Request]:
        """Return a run of the recommended filter for each layer."""
        found = zip(self._layers, self._looked.request, self.advised(), strict=True)
        return [
            replace(_request(layer, info.axes, advice), **self.cut(layer, info.axes))
            for layer, info, advice in found
        ]

    def remembered(self) -> Request:
        """Return the run of the layer that is chosen; of several, the first."""
        return self.requests()[0]

    def took(self, outcome: Outcome) -> None:
        """Offer to judge the result; nothing that was judged before is shown beside it."""
        self.assess.show_assessment(None)
        self.assess.show()

    def cancel(self) -> None:
        """Leave all runs at once; no more layers will be added."""
        if self.runs.running or self._run_when_looked:
            self.runs.drop()
            self._on_stopped()

    def stop(self) -> None:
        """Stop everything; the panel is being closed."""
        self._settling.stop()
        self._looking.drop()
        self.runs.drop()
        self.assess.stop()
        self._run_when_looked = False
        self.show_running(False)

    def show_batch(self) -> None:
        """Open the panel for many files, with the filter that is recommended."""
        panel = docks.open_panel(self._viewer, "Batch")
        panel.form.filter.show_settings(remembered.without_image(self.advised()[0].filter))

    def show_more(self) -> None:
        """Open the panel of the filter that is recommended, with layers, axes and settings."""
        advised = self.advised()
        if not advised:
            return
        pairs = zip(self._layers, advised, strict=True)
        alike = [layer for layer, each in pairs if each.filter == advised[0].filter]
        panel = docks.open_panel(self._viewer, advised[0].filter.title)
        panel.layer.choose_all(alike)
        panel.choose_axes(self.axes.letters())
        panel.region.take_over(self.region)
        panel.form.show_settings(advised[0].filter)
        panel.options.nonfinite.setCurrentIndex(
            panel.options.nonfinite.findData(self._looked.request[0].nonfinite)
        )

    def _take_layer(self) -> None:
        layers = self.layer.layers()
        data = [each.events.data for each in layers]
        self.follow("data", [(event, self._on_data) for event in data])
        self._layers = layers
        self._follow_looks()
        self._name_button()
        self.offer_axes()
        self.look()

    def show_region(self) -> None:
        """Show what is filtered, and how long that takes."""
        self._name_button()
        self._show()

    def _name_button(self) -> None:
        several = f"{len(self._layers)} layers" if len(self._layers) > 1 else ""
        words = ", ".join(filter(None, (several, self.region.word())))
        self.run_button.setText(f"Denoise {words}".rstrip())

    def _on_data(self, event: object = None) -> None:
        self.offer_axes()
        self.look()

    def _on_settled(self) -> None:
        try:
            source_axes = self.axes.axes() if self._layers else ""
            self.captured()
            axes = [
                same_axes(source_axes, self._layers[0], each, self._viewer) for each in self._layers
            ]
            infos = tuple(map(info_of, self._layers, axes))
        except DenoiseError as error:
            self._give_up(error, aloud=self._run_when_looked)
            return
        self._looking.start(infos)

    def _on_looking(self, step: Step) -> None:
        if not self.runs.running:
            self.say(words_of(step))

    def _on_looked(self, looked: Outcome) -> None:
        if looked.error is not None:
            self._give_up(looked.error)
            return
        self._looked = looked
        self._show()
        if self._run_when_looked:
            self._run_when_looked = False
            self.run()

    def _give_up(self, error: Exception, aloud: bool = True) -> None:
        self._run_when_looked = False
        self.show_running(self.runs.running)
        self.show_error(error, quiet=not aloud)

    def _show(self) -> None:
        if self._looked is not None:
            names = [each.source.name for each in self._looked.request]
            self.show_advice(names, self.advised())
            if not self.runs.running:
                self.say("")

    def show_advice(self, names: Sequence[str], advice: Sequence[Advice]) -> None:
        """Show the advice on layers, and enable what follows it."""
        self.advice.setText(_words(names, advice))
        self.more_button.setEnabled(bool(advice))
        self.batch_button.setEnabled(bool(advice))
        found = () if self._looked is None else self._looked.value
        device = preferences.read().device
        for index, (title, effort) in enumerate(_EFFORTS.items()):
            times = [each.with_effort(effort, device).seconds for each in found]
            time = f": {time_in_words(self.share() * sum(times))}" if times else ""
            self.effort.setItemText(index, title + time)

    def _on_stopped(self) -> None:
        self._run_when_looked = False
        super()._on_stopped()


def _request(layer: Image, axes: str, advice: Advice) -> Request:
    """Return the run that follows the advice on a layer, as it is now."""
    info, settings = info_of(layer, axes), advice.filter
    if any(field.name == "voxel" for field in fields(settings)):
        settings = replace(settings, voxel=voxel_of(layer, info.axes))
    limit = preferences.read().memory_limit
    run = Run(
        settings,
        axes=info.axes,
        nonfinite=info.nonfinite,
        device=info.device,
        memory_limit=limit,
    )
    return Request(info.source, run, memory=info.memory)


def _words(names: Sequence[str], advice: Sequence[Advice]) -> str:
    """Return the advice on layers as rich text; once where it is the same for all."""
    if not advice:
        return ""
    if len({(each.choice, each.reason) for each in advice}) == 1:
        noise = " / ".join(dict.fromkeys(each.noise for each in advice))
        parts = [_of_one(advice[0], noise)]
    else:
        parts = [
            f"<b>{html.escape(name)}</b><br>{_of_one(each, each.noise)}"
            for name, each in zip(names, advice, strict=True)
        ]
    parts += map(html.escape, dict.fromkeys(hint for each in advice for hint in each.hints))
    parts.append(f"Takes {time_in_words(sum(each.seconds for each in advice))}.")
    return "".join(f"<p style='margin: 0 0 6px 0'>{each}</p>" for each in parts)


def _of_one(advice: Advice, noise: str) -> str:
    image, reason, chosen = map(html.escape, (advice.image, advice.reason, advice.choice))
    if not any(advice.estimate.sigma):
        return f"{image}. {reason[:1].upper()}{reason[1:]}."
    name, _, rest = chosen.partition(", ")
    return (
        f"{image}; {html.escape(noise)}.</p><p style='margin: 0 0 6px 0'>"
        f"<b>{name}</b>{', ' + rest if rest else ''}, because {reason}."
    )
