"""Base of the panels that work on a layer: the layer, and its axes."""

from __future__ import annotations

from typing import Any, ClassVar

from napari.layers import Layer
from napari.viewer import Viewer

from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.layers.axes_input import AxesInput
from napari_gpu_denoise._napari.layers.layer_input import LayerInput
from napari_gpu_denoise._napari.layers.source import Source, capture, finest, suggest_axes
from napari_gpu_denoise._napari.panel import Panel
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.noise.record import NoiseEstimate


class LayerPanel(Panel):
    """A panel that works on one image layer; `kind` is the entry of FILTERS that it is for."""

    #: List of the layers to choose from.
    layer_input: ClassVar[type[LayerInput]] = LayerInput

    def __init__(self, viewer: Viewer, tip: str, kind: Any = None, *, whole_files: bool = False):
        super().__init__(viewer)
        self.layer = self.layer_input(viewer, tip, whole_files=whole_files)
        self.axes = AxesInput(kind)
        selection = viewer.layers.selection.events.changed
        self.follow("selection", [(selection, self.layer.refresh)])

    # napari calls this whenever layers come, go, move or are renamed
    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        self.layer.refresh()

    def choose(self, layer: Layer, axes: str) -> None:
        """Choose a layer, and set its axes as another panel has them."""
        self.layer.choose(layer)
        if self.layer.layer() == layer:
            self.choose_axes(axes)

    def choose_axes(self, axes: str) -> None:
        """Set the axes of the layer chosen as another panel has them."""
        if self.axes.letters() != axes.upper():
            self.axes.edit.setText(axes)

    def captured(self) -> Source:
        """Return the layer as it is now; raises `LayerError` if there is no usable one."""
        taken = capture(self.layer.layer())
        if tuple(taken.data.shape) != self.axes.shape:
            self.offer_axes()
        return taken

    def offer_axes(self) -> None:
        """Suggest the axes of the layer, or those that were typed for it; follow its labels."""
        layer, shown = self.layer.layer(), self._viewer.dims
        self.follow("labels of the viewer", [(shown.events.axis_labels, self._follow_labels)])
        own = [] if layer is None else [(layer.events.axis_labels, self._take_labels)]
        self.follow("labels of the layer", own)
        if layer is None:
            self.axes.offer("", ())
        else:
            self.axes.offer(suggest_axes(layer, shown.axis_labels), finest(layer).shape, layer)

    def _take_labels(self, event: object = None) -> None:
        """Follow new labels of the layer, which say more than what was typed before."""
        self.axes.forget()
        self._follow_labels()

    def _follow_labels(self, event: object = None) -> None:
        before = self.axes.letters()
        labels = self._viewer.dims.axis_labels
        if (layer := self.layer.layer()) is None:
            return
        if self.axes.typed() is None and suggest_axes(layer, labels) != before:
            self.offer_axes()

    def known_axes(self) -> str:
        """Return the axes typed; empty where they do not fit or there is no layer."""
        try:
            return self.axes.axes() if self.axes.shape else ""
        except DenoiseError:
            return ""

    def others(self) -> list[LayerPanel]:
        """Return the other panels of this kind that are open."""
        return [each for each in docks.docked(self._viewer, LayerPanel) if each is not self]

    def estimate(self) -> NoiseEstimate | None:
        """Return the noise of the layer as this panel has measured it; None by default."""
        return None

    def receive_estimate(self, layer: Any, estimate: NoiseEstimate) -> None:
        """Receive another panel's estimate of the noise of a layer; ignored by default."""
