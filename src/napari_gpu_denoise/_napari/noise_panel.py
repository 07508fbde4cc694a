"""The panel "Estimated noise": measures a layer, shows how, and hands it to a filter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import notification_manager
from qtpy.QtCore import QEvent, QSignalBlocker, QTimer
from qtpy.QtWidgets import QApplication

from napari_gpu_denoise._napari import docks, layers, preferences, regions
from napari_gpu_denoise._napari.measuring import Measuring, Outcome, Request
from napari_gpu_denoise._napari.noise_view import FLAT, RECTANGLE, VIEW, NoiseView
from napari_gpu_denoise._napari.snippets import noise_call
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.axes import channel_axis
from napari_gpu_denoise.errors import DenoiseError, LayerError
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate

if TYPE_CHECKING:
    import napari.layers
    import napari.viewer

_NO_LAYER = (
    "There is no image layer to measure: open an image first, or one of File > Open Sample > GPU "
    "Denoise."
)
_SETTLED = 250  # milliseconds without a change before measuring begins
# What a drawn rectangle depends on besides itself.
_MOVES = ("data", "scale", "translate", "rotate", "shear", "affine")


class NoisePanel(NoiseView):
    """Measures noise of the layer that is selected, off the GUI thread, whenever it changes.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
        Where layers are taken from.
    """

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer)
        self._viewer = viewer
        self._outcome: Outcome | None = None
        self._followed: list[tuple[Any, Any]] = []
        self._drawn_on: napari.layers.Shapes | None = None
        self._target_chosen = False
        self._closed = False
        self._measuring = Measuring(self)
        self._gathering = docks.gathering(viewer, self)
        self._settling = QTimer(self)
        self._settling.setSingleShot(True)
        self._settling.setInterval(_SETTLED)
        self._connect()
        self._take_layer()

    def _connect(self) -> None:
        viewer = self._viewer
        self._settling.timeout.connect(self._on_settled)
        self._measuring.done.connect(self._on_done)
        self.layer.chosen.connect(self._take_layer)
        self.axes.changed.connect(self._take_axes)
        self.channel.currentIndexChanged.connect(lambda _: self.measure())
        self.model.currentIndexChanged.connect(lambda _: self.measure())
        self.region.currentIndexChanged.connect(lambda _: self._take_region())
        self.shapes.currentIndexChanged.connect(lambda _: self._take_shapes())
        self.draw_button.clicked.connect(lambda: self.draw())
        self.use_button.clicked.connect(lambda: self.use())
        self.target.activated.connect(lambda _: self._take_target())
        self.python_button.clicked.connect(lambda: self.copy_python())
        # napari 0.9 moved it; older ones have it on the viewer.
        camera = viewer.scene.camera if hasattr(viewer, "scene") else viewer.camera
        lasting = [
            (viewer.layers.selection.events.active, self._on_active),
            (viewer.dims.events.current_step, self._on_view),
            (viewer.dims.events.ndisplay, self._on_view),
            (viewer.dims.events.order, self._on_view),
            (camera.events.center, self._on_view),
            (camera.events.zoom, self._on_view),
        ]
        for event, act in lasting:
            event.connect(act)
        followed = self._followed

        def leave(_: object = None) -> None:
            for event, act in (*lasting, *followed):
                event.disconnect(act)

        self.destroyed.connect(leave)

    # napari calls this whenever layers come, go, move or are renamed
    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        self.layer.refresh()
        self._offer_shapes()

    def estimate(self) -> NoiseEstimate | None:
        """Return what is shown; None while there is nothing that holds."""
        return None if self._outcome is None else self._outcome.estimate

    def choose(self, layer: Any, axes: str) -> None:
        """Take a layer, its axes as a filter's panel has them."""
        self.layer.choose(layer)
        if self.layer.layer() == layer and self.axes.letters() != axes.upper():
            self.axes.edit.setText(axes)

    def measure(self) -> None:
        """Measure anew, when choices have settled; what is shown stays till then."""
        self._measuring.drop()
        self._outcome = None
        self.show_usable(False)
        if self._closed:
            return
        if self.layer.layer() is None:
            self._refuse(_NO_LAYER)
            return
        self.say("Measuring …")
        self._settling.start()

    def draw(self) -> None:
        """Draw on a Shapes layer of this panel's own, made where there is none."""
        layer = self.layer.layer()
        if layer is None:
            return
        name = f"noise region of {layer.name}"
        shapes = next((each for each in self._shapes_layers() if each.name == name), None)
        if shapes is None:
            place = {name: getattr(layer, name) for name in layers.PLACE if hasattr(layer, name)}
            shapes = self._viewer.add_shapes(
                ndim=layer.ndim,
                name=name,
                edge_color="yellow",
                face_color="transparent",
                edge_width=max(finest_width(layer) / 200, 1.0),
                **place,
            )
        self.shapes.setCurrentIndex(self._shapes_layers().index(shapes))
        self._viewer.layers.selection.active = shapes
        shapes.mode = "add_rectangle"

    def use(self) -> None:
        """Hand the estimate to the filter chosen, in its panel."""
        estimate, layer = self.estimate(), self.layer.layer()
        if estimate is None or layer is None:
            return
        panel = docks.open_panel(self._viewer, self.target.currentData())
        panel.take_noise(layer, self.axes.axes(), estimate, self._origin())
        self.say(f"{self.target.currentText()} will run with it.")

    def copy_python(self) -> None:
        """Put the Python lines that do the same on the clipboard."""
        layer, kind = self.layer.layer(), self.target.currentText()
        try:
            request = self._request()
            text = noise_call(
                request, layer.name, self.axes.axes(), kind, self.estimate(), layer.multiscale
            )
        except DenoiseError as error:
            self.say(str(error), "Not copied.")
            return
        QApplication.clipboard().setText(text)
        self.say("Python call copied: paste it into napari's console.")

    def changeEvent(self, event: QEvent) -> None:
        """Stop when the panel is taken out of its dock, which is how napari closes it."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange:
            self._closed = self.parent() is None
            if self._closed:
                self._settling.stop()
                self._measuring.drop()
            else:
                self._gathering.start()

    def _request(self) -> Request:
        layer = self.layer.layer()
        if layer is None:
            raise LayerError(_NO_LAYER)
        if tuple(layers.finest(layer).shape) != self.axes.shape:
            self._offer_axes()
        axes, channel, region = self.axes.axes(), self.channel.currentData(), self._region()
        data, dims = layers.finest(layer), self._viewer.dims
        if region == VIEW:
            part = regions.in_view(layer, axes, dims, channel)
        elif region in (RECTANGLE, FLAT):
            part = regions.in_rectangle(
                layer, axes, dims, channel, self._shapes_layer(), one_plane=region == FLAT
            )
        else:
            part = regions.part_of(axes, data.shape, channel)
        alpha = layers.has_alpha(layer)
        return Request(
            data=data,
            part=regions.without_alpha(part, data.shape) if alpha else part,
            model=self.model.currentData(),
            flat=region == FLAT,
            device=preferences.read().device,
            alpha=alpha,
        )

    def _region(self) -> str:
        return self.region.currentData()

    def _take_layer(self) -> None:
        self._target_chosen = False
        self.clear()
        self._follow()
        self._offer_axes()

    def _offer_axes(self) -> None:
        layer = self.layer.layer()
        if layer is None:
            self.axes.offer("", ())
            return
        labels = self._viewer.dims.axis_labels
        self.axes.offer(layers.suggest_axes(layer, labels), layers.finest(layer).shape)

    def _take_axes(self) -> None:
        try:
            axes = self.axes.axes() if self.axes.shape else ""
        except DenoiseError:
            axes = ""
        channel = channel_axis(axes) if axes else None
        count = 0 if channel is None else self.axes.shape[channel]
        layer = self.layer.layer()
        if layer is not None and channel is not None and layers.has_alpha(layer):
            count = min(count, 3)
        self.offer_channels(count)
        self.measure()

    def _take_region(self) -> None:
        self._offer_shapes()
        self.show_region(self._region() in (RECTANGLE, FLAT))
        self.measure()

    def _take_shapes(self) -> None:
        self._follow()
        if self._region() in (RECTANGLE, FLAT):
            self.measure()

    def _take_target(self) -> None:
        self._target_chosen = True

    def _shapes_layers(self) -> list[napari.layers.Shapes]:
        from napari.layers import Shapes

        return [each for each in list(self._viewer.layers)[::-1] if isinstance(each, Shapes)]

    def _shapes_layer(self) -> napari.layers.Shapes | None:
        found, index = self._shapes_layers(), self.shapes.currentIndex()
        return found[index] if 0 <= index < len(found) else None

    def _offer_shapes(self) -> None:
        found, before = self._shapes_layers(), self._drawn_on
        with QSignalBlocker(self.shapes):
            self.shapes.clear()
            self.shapes.addItems([each.name for each in found])
            index = found.index(before) if before in found else 0
            self.shapes.setCurrentIndex(index if found else -1)
        if self._shapes_layer() != before:
            self._take_shapes()

    def _follow(self) -> None:
        """Watch the layer and the Shapes layer that are chosen, and no others."""
        for event, act in self._followed:
            event.disconnect(act)
        self._followed.clear()
        layer, shapes = self.layer.layer(), self._shapes_layer()
        self._drawn_on = shapes
        if layer is not None:
            self._followed += [(getattr(layer.events, name), self._on_moved) for name in _MOVES]
        if shapes is not None:
            self._followed += [(getattr(shapes.events, name), self._on_drawn) for name in _MOVES]
            self._followed.append((shapes.selected_data.events.items_changed, self._on_drawn))
        for event, act in self._followed:
            event.connect(act)

    def _on_active(self, event: object = None) -> None:
        active = self._viewer.layers.selection.active
        if active is not None:
            self.layer.choose(active)

    def _on_view(self, event: object = None) -> None:
        if self._region() == VIEW:
            self.measure()

    def _on_moved(self, event: Any = None) -> None:
        if event is not None and event.type == "data":
            self._offer_axes()
        elif self._region() != "whole":
            self.measure()

    def _on_drawn(self, event: object = None) -> None:
        if self._region() in (RECTANGLE, FLAT):
            self.measure()

    def _on_settled(self) -> None:
        # Not before: what the camera shows is known when it was drawn.
        try:
            self._measuring.ask(self._request())
        except DenoiseError as error:
            self._refuse(in_panel(str(error)))

    def _on_done(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._tell(outcome.error)
            return
        self._outcome, estimate = outcome, outcome.estimate
        self.show_estimate(estimate, self._read(outcome))
        self.say("")
        if not self._target_chosen:
            self._suggest(estimate)
        for panel in docks.filter_panels(self._viewer):
            panel.know_noise(self.layer.layer(), estimate)

    def _suggest(self, estimate: NoiseEstimate) -> None:
        suggested = estimate.verdict().rpartition("suggested: ")[2].lower()
        for row in range(self.target.count()):
            if suggested.startswith(self.target.itemText(row).lower()):
                self.target.setCurrentIndex(row)

    def _read(self, outcome: Outcome) -> str:
        part = outcome.request.part
        spans = [at for at in part.index if isinstance(at, slice)]
        total = math.prod(
            at.stop - at.start
            for at, letter in zip(spans, part.axes, strict=True)
            if letter not in "YX"
        )
        read = f"{outcome.estimate.planes} of {total} plane{'s' * (total != 1)}"
        return f"{read}; {part.said}" if part.said else read

    def _origin(self) -> str:
        said = self._outcome.request.part.said if self._outcome else ""
        name = self.layer.layer().name
        return f"{name}, {said}" if said else name

    def _tell(self, error: Exception) -> None:
        """Tell of an error: expected ones in a sentence, a fault of ours with its traceback too."""
        if isinstance(error, DenoiseError):
            self._refuse(in_panel(str(error)))
        elif isinstance(error, MemoryError):
            self._refuse("There is not enough memory to measure in: choose a region.")
        else:
            self._refuse(f"A fault in the program: {error!r}. Please report it.")
            notification_manager.receive_error(type(error), error, error.__traceback__)

    def _refuse(self, sentence: str) -> None:
        self._settling.stop()
        self._measuring.drop()
        self._outcome = None
        self.clear()
        self.say(sentence, "Not measured.")


def finest_width(layer: napari.layers.Image) -> float:
    """Return the length of a layer's rows, in pixels."""
    shape = layers.finest(layer).shape
    return float(shape[layer.ndim - 1])
