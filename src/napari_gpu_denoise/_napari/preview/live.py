"""The live preview of a panel: its tick box, its layer, and when it is made again."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from napari.components import LayerList
from napari.layers import Image, Layer
from napari.viewer import Viewer
from qtpy.QtCore import QObject, QTimer, Signal
from qtpy.QtWidgets import QCheckBox, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.docks import camera_of
from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.regions import region_shown
from napari_gpu_denoise._napari.layers.results import at_places
from napari_gpu_denoise._napari.layers.source import (
    LOOKS,
    MOVES,
    PLACE,
    Source,
    looks_of,
    set_changed,
)
from napari_gpu_denoise._napari.noise.measuring import memory_of
from napari_gpu_denoise._napari.parts import Caption, row_of, settling_timer, stack, wrapped
from napari_gpu_denoise._napari.preview import compute
from napari_gpu_denoise._napari.tasks import Outcome, Task
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.request import Run

_TIP = (
    "Filter the visible part of the slice whenever settings, view or sliders change. The preview "
    "is a layer above the source and its results, removed when this is unticked or another panel "
    "shows one. Its pixels are those of a full run; while you drag, those of a faster profile."
)

_STRIP_TIP = (
    "Show the middle of the view three times, side by side: filtered with 0.71, 1 and 1.41 times "
    "the strength. A click on one sets Strength, and ends this."
)

# Drawn over its source, a preview would be added to it, or hidden by it.
_MIXED = ("additive", "minimum", "multiplicative")

_STILL = 3  # pixels of the screen that a click may move
_KIND = "preview"  # of a temporary layer
REST = 250  # ms without a change after which the settings of the panel are used
_SOON = 15  # ms in which changes are taken together, and the view is drawn


class PreviewBox(QWidget):
    """Two tick boxes, and below them a caption, empty unless one is ticked."""

    def __init__(self):
        super().__init__()
        self.box = QCheckBox("Live preview", toolTip=wrapped(_TIP))
        self.strip = QCheckBox("Three strengths", toolTip=wrapped(_STRIP_TIP))
        self.caption = Caption()
        boxes = row_of(self.box, self.strip)
        stack(QVBoxLayout(self), (boxes, self.caption), spacing=2)
        self.say("")

    @property
    def ticked(self) -> bool:
        """Whether something is to be shown."""
        return self.box.isChecked() or self.strip.isChecked()

    def say(self, text: str) -> None:
        """Show the size of the preview, or why there is none."""
        if text != self.caption.text() or self.caption.isHidden() == bool(text):
            self.caption.setText(text)
            self.caption.setVisible(bool(text))


class PreviewLayer:
    """Shows filtered regions of one source; `title` is that of the filter.

    Where the colours of the source are mixed with those of what lies above it, it is hidden
    meanwhile. A strip of several strengths lies above all layers.
    """

    def __init__(self, viewer: Viewer, title: str):
        self._viewer, self._title = viewer, title
        self._is_strip = False
        self._layer: Image | None = None
        self._source: Image | None = None
        self._hidden = False  # the source
        self._away = False  # the preview

    @property
    def layer(self) -> Image | None:
        """The layer, while there is one in the viewer."""
        return self._layer if self._layer in self._viewer.layers else None

    def show(self, layer: Image, request: compute.PreviewRequest, pixels: np.ndarray) -> None:
        """Show the pixels of a request, which was made of a layer."""
        source, region, strengths = request.source, request.region, request.strengths
        starts = region.starts
        if strengths:
            # The picture in the middle lies in its place.
            starts[region.across] -= region.shape[region.across] + region.gap
        placed = at_places(source, starts).attributes
        place = {name: placed[name] for name in PLACE if name in placed}
        shown = self.layer
        if shown is not None and (layer is not self._source or shown.ndim != layer.ndim):
            self.remove()
            shown = None
        self._is_strip = bool(strengths)
        if shown is None:
            self._add(layer, source, pixels, place)
            return
        shown.data = pixels
        set_changed(shown, place)
        self.come_back()

    def go_away(self) -> None:
        """Hide the layer, where the sliders move to a place that it does not show.

        napari would hide it, too, but the software renderer of Mesa may crash on what is left.
        """
        if (shown := self.layer) is not None and shown.visible:
            shown.visible, self._away = False, True

    def come_back(self) -> None:
        """Show the layer again, above results that are new."""
        if (shown := self.layer) is not None:
            layers, above = self._viewer.layers, self._place(self._source)
            if layers.index(shown) < above - 1 and not self._is_strip:
                layers.move(layers.index(shown), above)
            if self._away:
                shown.visible = True
        self._away = False

    def remove(self) -> None:
        """Remove the layer, and show its source again."""
        shown, self._layer = self.layer, None
        if self._source is not None:
            for event in _events(self._source):
                event.disconnect(self._follow)
            if self._hidden:
                self._source.visible = True
        self._source, self._hidden, self._away = None, False, False
        if shown is not None:
            self._viewer.layers.remove(shown)

    def _place(self, layer: Image) -> int:
        """Return the place above a layer, if it is still there, and all that was made from it."""
        layers = self._viewer.layers
        if self._is_strip:
            return len(layers)
        family = [layer, *provenance.made_from(layer, layers)]
        return 1 + max((layers.index(each) for each in family if each in layers), default=-1)

    def _add(self, layer: Image, source: Source, pixels: np.ndarray, place: dict[str, Any]) -> None:
        what = "Strengths of" if self._is_strip else "Preview of"
        # multiscale=False: napari would otherwise guess from the shape.
        self._layer = Image(
            pixels,
            name=f"{what} {source.name} ({self._title})",
            rgb=layer.rgb,
            multiscale=False,
            metadata=provenance.temporary_metadata(_KIND),
            **place,
        )
        self._source = layer
        self._follow()
        layers, chosen = self._viewer.layers, set(self._viewer.layers.selection)
        active = layers.selection.active
        for other in list(layers):
            if provenance.record_of(other).get(provenance.TEMPORARY) == _KIND:
                other.visible = False
                # Its panel notices. napari takes long: not in one go with the new layer.
                QTimer.singleShot(0, partial(_remove, layers, other))
        layers.insert(self._place(layer), self._layer)
        # napari selects new layers.
        layers.selection = chosen
        layers.selection.active = active
        for event in _events(layer):
            event.connect(self._follow)
        if layer.visible and str(layer.blending) in _MIXED and not self._is_strip:
            layer.visible, self._hidden = False, True

    def _follow(self, event: object = None) -> None:
        """Look like the source."""
        looks = looks_of(self._source)
        if self._is_strip:
            looks |= {"blending": "translucent_no_depth", "opacity": 1.0}
        set_changed(self._layer, looks)


def _remove(layers: LayerList, layer: Layer) -> None:
    if layer in layers:
        layers.remove(layer)


def _events(layer: Image) -> list[Any]:
    return [getattr(layer.events, name) for name in LOOKS]


class LivePreview(QObject):
    """Keeps the preview of a panel up to date while one of its boxes is ticked.

    `wanted` returns the layer, also as it is now, the run that the panel is set to, and what is
    known of noise that it would measure, else None; it raises `DenoiseError` if the settings do not
    fit. `strengths` returns those to show side by side, for the other box. Of requests only the
    latest counts. Quick ones are finished, so that something is seen while a hand moves; others are
    stopped by newer ones.
    """

    #: A strength was clicked.
    chosen = Signal(float)

    def __init__(
        self,
        viewer: Viewer,
        title: str,
        box: PreviewBox,
        wanted: Callable[[], tuple[Image, Source, Run, NoiseMemory | None]],
        strengths: Callable[[], tuple[float, ...]],
        parent: QObject,
    ):
        super().__init__(parent)
        self._viewer, self._box, self._wanted = viewer, box, wanted
        self._strengths = strengths
        self._preview = PreviewLayer(viewer, title)
        self._filtering = Task(self, compute.filter_region, f"Preview: {title}")
        self._measuring = Task(self, compute.measure_noise, "Noise for the preview")
        self._shown: compute.PreviewRequest | None = None
        self._failed: compute.PreviewRequest | None = None  # as measuring its noise did
        self._due = ""  # "quick" or "final"
        self._layer: Image | None = None  # that is previewed
        self._is_strip = False  # with several strengths
        self._soon = settling_timer(self, _SOON, lambda: self._make("quick"))
        self._rest = settling_timer(self, REST, lambda: self._make("final"))
        self._filtering.ended.connect(self._show)
        self._filtering.free.connect(self._go)
        self._measuring.ended.connect(self._know)
        self._measuring.free.connect(self._go)
        for each in (box.box, box.strip):
            each.toggled.connect(self._switch)

    @property
    def layer(self) -> Image | None:
        """The layer of the preview, if there is one."""
        return self._preview.layer

    @property
    def settled(self) -> bool:
        """Whether nothing is going to change unless something else does."""
        waiting = self._soon.isActive() or self._rest.isActive() or self._due
        return not (waiting or self._filtering.busy or self._measuring.busy)

    def events(self, layer: Image | None) -> list[tuple[Any, Callable]]:
        """Return the events of the viewer and of a layer that the preview follows."""
        camera, dims = camera_of(self._viewer).events, self._viewer.dims.events
        layers = self._viewer.layers.events
        followed = [camera.center, camera.zoom, dims.ndisplay, dims.order, layers.inserted]
        if layer is not None:
            followed += [getattr(layer.events, name) for name in MOVES]
        others = [(dims.current_step, self._moved), (layers.removed, self._removed)]
        return [*((event, self.changed) for event in followed), *others]

    def changed(self, event: object = None) -> None:
        """Make the preview again: quickly now, and as it is to be when nothing changes any more."""
        if not self._box.ticked:
            return
        if not self._soon.isActive():
            self._soon.start()
        self._rest.start()

    def stop(self) -> None:
        """End, and remove the layer."""
        for each in (self._box.box, self._box.strip):
            each.setChecked(False)
        self._end()

    def _switch(self, _: bool) -> None:
        clicks = self._viewer.mouse_drag_callbacks
        if self._press in clicks:
            clicks.remove(self._press)
        if self._box.strip.isChecked():
            clicks.append(self._press)
        if self._box.ticked:
            self.changed()
        else:
            self._end()

    def _press(self, viewer: Viewer, event: Any) -> Generator[None, None, None]:
        """Choose the strength that is clicked; a drag moves the view as ever."""
        start, zoom, moved = np.array(event.position), camera_of(viewer).zoom, event.button != 1
        yield
        while event.type == "mouse_move":
            moved |= bool(zoom * np.abs(np.array(event.position) - start).max() > _STILL)
            yield
        shown = self._preview.layer
        if not moved and shown is not None and shown.visible:
            strength = self._shown.strength_at(shown.world_to_data(event.position))
            if strength is not None:
                self._box.strip.setChecked(False)
                self.chosen.emit(strength)

    def _end(self) -> None:
        self._soon.stop()
        self._rest.stop()
        self._due = ""
        self._filtering.drop()
        self._measuring.drop()
        self._failed = None
        self._clear()
        self._box.say("")

    def _moved(self, event: object = None) -> None:
        self._preview.go_away()
        self.changed()

    def _removed(self, event: Any) -> None:
        # By the user: the box goes with the layer.
        if self._shown is not None and self._preview.layer is None:
            self.stop()

    def _make(self, due: str) -> None:
        self._due = due
        self._go()

    def _go(self) -> None:
        """Begin the request that is due, as soon as the last one has ended."""
        if not self._due:
            return
        try:
            request, layer = self._request(self._due)
        except DenoiseError as error:
            self._due = ""
            self._give_up(error)
            return
        running = self._filtering.request
        if request.same(running):
            self._due = ""
        elif self._filtering.busy:
            if running is not None and running.stoppable:
                self._filtering.drop()
        else:
            self._due = ""
            self._begin(request, layer)

    def _begin(self, request: compute.PreviewRequest, layer: Image) -> None:
        if layer is not self._layer or bool(request.strengths) != self._is_strip:
            self._clear()
        self._layer, self._is_strip = layer, bool(request.strengths)
        if request.measures:
            self._measure(request)
        elif request.same(self._shown):
            self._preview.come_back()
        else:
            self._filtering.start(request)

    def _request(self, due: str) -> tuple[compute.PreviewRequest, Image]:
        """Return the request that is due; the final one if it is shown or in progress."""
        layer, source, run, memory = self._wanted()
        if memory is None:
            # The noise is given; what is known of the pixels is kept all the same.
            memory = memory_of(layer, "given", run.axes, run.correct, run.nonfinite)
        else:
            run = replace(run, noise=memory)
        quick = compute.quick_settings(run.filter, run.axes)
        region, strengths = region_shown(layer, self._viewer.dims), ()
        if self._box.strip.isChecked():
            region, strengths = region.third(), self._strengths()
        stoppable = quick != run.filter
        final = compute.PreviewRequest(source, run, memory, region, True, stoppable, strengths)
        known = final.same(self._shown) or final.same(self._filtering.request)
        if due == "final" or known or quick == run.filter:
            return final, layer
        return replace(final, run=replace(run, filter=quick), final=False, stoppable=False), layer

    def _measure(self, request: compute.PreviewRequest) -> None:
        if self._failed is not None and self._failed.memory is request.memory:
            return
        running = self._measuring.request
        if running is not None and running.memory is request.memory:
            return
        self._box.say("Measuring the noise …")
        if self._measuring.busy:
            self._measuring.drop()
            self._due = "quick"
            return
        self._measuring.start(request)

    def _know(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._failed = outcome.request
            self._give_up(outcome.error)
        else:
            self.changed()

    def _show(self, outcome: Outcome) -> None:
        request = outcome.request
        if outcome.error is not None:
            self._give_up(outcome.error)
            return
        if self._layer not in self._viewer.layers:
            return
        self._preview.show(self._layer, request, outcome.value)
        self._shown = request
        how = "" if request.final else ", quick profile"
        click = "Click the best: " if request.strengths else ""
        words = f"{click}{request.region.words()}{how}, {outcome.seconds:.2g} s"
        self._box.say(words[:1].upper() + words[1:])

    def _give_up(self, error: Exception) -> None:
        self._clear()
        if isinstance(error, DenoiseError):
            self._box.say(in_panel(error))
        else:
            self._box.say(f"No preview: {error!r}")

    def _clear(self) -> None:
        self._shown = None
        self._preview.remove()
