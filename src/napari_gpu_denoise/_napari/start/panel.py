"""The panel "Denoise": looks at layers, recommends, and runs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import napari.viewer
from napari.layers import Image
from napari.utils.notifications import show_error
from qtpy.QtCore import QTimer

from napari_gpu_denoise._napari import docks, preferences
from napari_gpu_denoise._napari.denoise.naming import with_files
from napari_gpu_denoise._napari.denoise.request import Request
from napari_gpu_denoise._napari.layers.groups import same_axes
from napari_gpu_denoise._napari.layers.source import voxel_of
from napari_gpu_denoise._napari.noise.measuring import Measuring
from napari_gpu_denoise._napari.stage import Stage
from napari_gpu_denoise._napari.start.looking import Looked, look_at, looking
from napari_gpu_denoise._napari.start.view import StartView
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters.advice.recommend import Advice
from napari_gpu_denoise.run.request import Run

_SETTLED = 150  # milliseconds without a change before a layer is looked at


class StartPanel(StartView):
    """Follows the layers that are selected, off the GUI thread, and filters all of them."""

    title = "Denoise"

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(viewer)
        self._layers: tuple[Image, ...] = ()
        self._looked: Looked | None = None
        self._run_when_looked = False
        self._looking = Measuring(self, looking, "Denoise")
        self._looking.staged.connect(self._on_looking)
        self._looking.done.connect(self._on_looked)
        self._settling = QTimer(self)
        self._settling.setSingleShot(True)
        self._settling.setInterval(_SETTLED)
        self._settling.timeout.connect(self._on_settled)
        self.layer.chosen.connect(self._take_layer)
        self.axes.changed.connect(self.look)
        self.effort.currentIndexChanged.connect(self._show)
        self.run_button.clicked.connect(self.run)
        self.run_on_return(self.run)
        self.cancel_button.clicked.connect(self.cancel)
        self.more_button.clicked.connect(self.show_more)
        self.afterwards.wanted.connect(self.show_comparison)
        selection = viewer.layers.selection.events
        self.follow("selection", [(selection.changed, self.layer.follow_selection)])
        self.follow("preferences", ((each, self.look) for each in preferences.changed()))
        self._take_layer()

    def look(self, event: object = None) -> None:
        """Look at the layers once nothing changes any more."""
        self._looking.drop()
        self._looked = None
        self.show_advice((), ())
        if not self._closed:
            self._settling.start()

    def advised(self) -> tuple[Advice, ...]:
        """Return the advice on each layer with the effort that is chosen."""
        found = () if self._looked is None else self._looked.advice
        effort, device = self.effort.currentData(), preferences.read().device
        return tuple(each.with_effort(effort, device) if effort else each for each in found)

    def run(self) -> None:
        """Run what is recommended, once that is known."""
        if self.runs.running:
            return
        self.show_running(True)
        if self._looked is None:
            self._run_when_looked = True
            if not self._settling.isActive():
                self._settling.start(0)
            return
        try:
            found = zip(self._layers, self._looked.looks, self.advised(), strict=True)
            requests = [_request(layer, look.axes, advice) for layer, look, advice in found]
            requests = with_files(self, requests)
        except DenoiseError as error:
            self._give_up(error)
            return
        named = [(each, f"{each.run.filter.title} of {each.source.name}") for each in requests]
        self.afterwards.begin()
        self.runs.start_all(named)

    def cancel(self) -> None:
        """Leave all runs at once; no more layers will be added."""
        if self.runs.running or self._run_when_looked:
            self.runs.stop()
            self._on_stopped()

    def stop(self) -> None:
        """Stop everything; the panel is being closed."""
        self._settling.stop()
        self._looking.drop()
        self.runs.stop()
        self._run_when_looked = False
        self.show_running(False)

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
        panel.form.show_settings(advised[0].filter)
        panel.nonfinite.setCurrentIndex(panel.nonfinite.findData(self._looked.looks[0].nonfinite))

    def show_comparison(self, result: Any) -> None:
        """Open the panel that compares a result with its source."""
        docks.open_panel(self._viewer, "Compare").choose(result)

    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        super().reset_choices(event)
        self.afterwards.refresh()

    def show_error(self, error: Exception) -> str:
        """Show an error in the panel and as a notification of napari."""
        if sentence := super().show_error(error):
            show_error(sentence)
        return sentence

    def _take_layer(self) -> None:
        layers = self.layer.layers()
        data = [each.events.data for each in layers]
        self.follow("data", [(event, self._on_data) for event in data])
        self._layers = layers
        self.afterwards.take(self.layer.layer())
        self.follow("looks", self.afterwards.events())
        several = f" {len(layers)} layers" if len(layers) > 1 else ""
        self.run_button.setText(f"Denoise{several}")
        self.offer_axes()
        self.look()

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
            looks = tuple(map(look_at, self._layers, axes))
        except DenoiseError as error:
            self._give_up(error, aloud=self._run_when_looked)
            return
        self._looking.ask(looks)

    def _on_looking(self, stage: Stage) -> None:
        if not self.runs.running:
            self.say(stage.words)

    def _on_looked(self, looked: Looked) -> None:
        if looked.error is not None:
            self._give_up(looked.error)
            return
        self._looked = looked
        self._show()
        if not self.runs.running:
            self.say("")
        if self._run_when_looked:
            self._run_when_looked = False
            self.run()

    def _give_up(self, error: Exception, aloud: bool = True) -> None:
        self._run_when_looked = False
        self.show_running(self.runs.running)
        self.show_error(error) if aloud else StartView.show_error(self, error)

    def _show(self) -> None:
        if self._looked is not None:
            names = [each.source.name for each in self._looked.looks]
            self.show_advice(names, self.advised())

    def _on_stopped(self) -> None:
        self._run_when_looked = False
        super()._on_stopped()


def _request(layer: Image, axes: str, advice: Advice) -> Request:
    """Return the run that follows the advice on a layer, as it is now."""
    look, settings = look_at(layer, axes), advice.filter
    if any(field.name == "voxel" for field in fields(settings)):
        settings = replace(settings, voxel=voxel_of(layer, look.axes))
    limit = preferences.read().memory_limit
    run = Run(
        settings,
        axes=look.axes,
        nonfinite=look.nonfinite,
        device=look.device,
        memory_limit=limit,
    )
    return Request(look.source, run, memory=look.memory)
