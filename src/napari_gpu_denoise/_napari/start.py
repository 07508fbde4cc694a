"""The panel "Denoise": looks at layers, recommends a filter, and runs it."""

from __future__ import annotations

import html
from collections.abc import Sequence

import napari.viewer
import numpy as np
from napari.layers import Image
from qtpy.QtWidgets import QFrame, QVBoxLayout

from napari_gpu_denoise._napari import docks, parts, preferences
from napari_gpu_denoise._napari.denoise import remembered
from napari_gpu_denoise._napari.denoise.assess import AssessSection
from napari_gpu_denoise._napari.denoise.run_panel import RunPanel
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.layers.source import finest, no_layer
from napari_gpu_denoise._napari.model import NoiseChoice, Options, PanelModel, RegionChoice
from napari_gpu_denoise._napari.resolve import expected, request_of
from napari_gpu_denoise._napari.run import Request
from napari_gpu_denoise._napari.tasks import Outcome, Task, words_of
from napari_gpu_denoise._napari.wording import REMEDIES_IN_DENOISE
from napari_gpu_denoise.assessment.recommend import Advice, recommend, time_in_words
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters import BM3D
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.progress import Progress, Step

_TIP = (
    "Image layers to denoise: one layer, the selected layers, or all layers of a file, such as its "
    "channels. They are never changed."
)

_EFFORTS = {"As recommended": None, "Faster": "fast", "Best quality": "best"}
_SETTLED = 150  # milliseconds without a change before a layer is looked at


def advise(requests: tuple[Request, ...], progress: Progress) -> tuple[Advice, ...]:
    """Find advice on the layers of requests, one after another, whatever filter these name."""
    found = []
    for number, request in enumerate(requests):
        place = (number + 1, len(requests)) if len(requests) > 1 else (0, 0)
        progress.tell(*place, f"Measuring the noise of {request.source.name}")
        data, run = request.source.pixels(progress), request.run
        first, *_ = choose_devices(run.device)
        noise = request.memory.measured(data, run.axes, first)
        found.append(recommend(data, run.axes, noise=noise, device=run.device))
    return tuple(found)


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
        self.assess = AssessSection(self._viewer, self)
        self.assess.hide()  # until there is a result
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
        effort = with_guide(self.effort, lambda: "guide/choosing_settings.md#what-is-recommended")
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
                (self.proof_button,),
                (self.results,),
                (self.run_button, self.cancel_button),
                (self.more_button, self.batch_button),
            ),
        )

    def _connect(self) -> None:
        self._looking.told.connect(self._on_looking)
        self._looking.ended.connect(self._on_looked)
        self.layer.chosen.connect(self._take_layer)
        self.axes.changed.connect(self._take_axes)
        self.effort.currentIndexChanged.connect(self.draw)
        self.more_button.clicked.connect(lambda: self.show_more())
        self.batch_button.clicked.connect(lambda: self.show_batch())
        selection = self._viewer.layers.selection.events
        self.follow("selection", [(selection.changed, self.layer.follow_selection)])
        self.follow("preferences", ((event, self.look) for event in preferences.changed()))

    def look(self, event: object = None) -> None:
        """Look at the layers once nothing changes any more."""
        self._looking.drop()
        self._looked, self.model.noise = None, NoiseChoice()
        self.proof_button.hide()
        self.assess.stop()
        self.assess.hide()
        self.show_advice(())
        if not self._closed:
            self._settling.start(_SETTLED)

    def advised(self) -> tuple[Advice, ...]:
        """Return the advice on each layer with the effort that is chosen."""
        found = () if self._looked is None else self._looked.value
        effort, device = self.effort.currentData(), preferences.read().device
        return tuple(each.with_effort(effort, device) if effort else each for each in found)

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
        found = zip(self.model.layers, self.advised(), strict=True)
        region = self.model.region
        return [self._request(layer, advice.filter, region) for layer, advice in found]

    def request(self) -> Request:
        """Return the run of the layer that is chosen; of several, the first."""
        return self.requests()[0]

    def _request(self, layer: Image, settings: Filter, region: RegionChoice) -> Request:
        kind = np.dtype(finest(layer).dtype).kind
        options = Options(nonfinite="keep" if kind == "f" else "raise")
        here = self.model.layers, self.model.axes, region, self.model.noise
        model = PanelModel(*here, options=options)
        return request_of(model, layer, settings, self._viewer.dims)

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
        """Open the panel Filter with the filter that is recommended, and layers as they are."""
        advised = self.advised()
        if not advised:
            return
        pairs = zip(self.model.layers, advised, strict=True)
        alike = [layer for layer, each in pairs if each.filter == advised[0].filter]
        options = self.requests()[0].run
        panel = docks.open_panel(self._viewer, "Filter")
        panel.choose(*alike)
        panel.region.show_region(self.model.region)
        panel.filter.show_settings(advised[0].filter)
        panel.model.options = Options(nonfinite=options.nonfinite)

    def _take_layer(self) -> None:
        self.model.layers = self.layer.layers()
        data = [each.events.data for each in self.model.layers]
        self.follow("data", [(event, self._on_data) for event in data])
        self._follow_looks()
        self.offer_axes()
        self.draw()

    def _take_axes(self) -> None:
        self.model.axes = self.axes.letters()
        self.look()

    def draw(self, event: object = None) -> None:
        """Show the advice, what is filtered, and how long that takes."""
        layers, region = self.model.layers, self.model.region
        words = (
            f"{len(layers)} layers" if len(layers) > 1 else "",
            "" if region.whole else region.kind,
        )
        self.run_button.setText(f"Denoise {', '.join(filter(None, words))}".rstrip())
        if self._looked is not None:
            self.show_advice(self.advised())
            if not self.runs.running and not self.details:
                self.say("")

    def _on_data(self, event: object = None) -> None:
        self.offer_axes()

    def _on_settled(self) -> None:
        if not self.model.layers:
            # No mistake as long as nobody wants a run.
            self._give_up(no_layer(), aloud=self._run_when_looked)
            return
        try:
            self.captured()
            # BM3D stands for the filter to be found, and all of the layer is looked at.
            whole = RegionChoice()
            requests = tuple(self._request(each, BM3D(), whole) for each in self.model.layers)
        except DenoiseError as error:
            self._give_up(error, aloud=self._run_when_looked)
            return
        self._looking.start(requests)

    def _on_looking(self, step: Step) -> None:
        if not self.runs.running:
            self.say(words_of(step))

    def _on_looked(self, looked: Outcome) -> None:
        if looked.error is not None:
            self._give_up(looked.error)
            return
        self._looked = looked
        self.details = ""
        self.draw()
        if self._run_when_looked:
            self._run_when_looked = False
            self.run()

    def _give_up(self, error: Exception, aloud: bool = True) -> None:
        self._run_when_looked = False
        self.show_running(self.runs.running)
        self.show_error(error, quiet=not aloud)

    def show_advice(self, advice: Sequence[Advice]) -> None:
        """Show the advice on layers, and enable what follows it."""
        names = [each.name for each in self.model.layers]
        device, share = preferences.read().device, self._share()
        self.advice.setText(_words(names, advice, share, device))
        self.more_button.setEnabled(bool(advice))
        self.batch_button.setEnabled(bool(advice))
        found = () if self._looked is None else self._looked.value
        for index, (title, effort) in enumerate(_EFFORTS.items()):
            times = [each.with_effort(effort, device).seconds for each in found]
            time = f": {time_in_words(share * sum(times))}" if times else ""
            self.effort.setItemText(index, title + time)

    def _share(self) -> float:
        """Return the share of the first layer that is filtered; 1 where no region is found."""
        try:
            return self.request().share if self._looked is not None else 1.0
        except DenoiseError:
            return 1.0

    def _on_stopped(self) -> None:
        self._run_when_looked = False
        super()._on_stopped()


def _words(
    names: Sequence[str], advice: Sequence[Advice], share: float, device: int | str | None
) -> str:
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
    filters = {each.filter.name for each in advice}
    seconds = share * sum(each.seconds for each in advice)
    parts.append(expected(filters, choose_devices(device), seconds))
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
