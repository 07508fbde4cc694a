"""The live preview of a panel: its tick box, its layer, and when it is made again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from napari.layers import Image, Layer
from napari.viewer import Viewer
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.docks import camera_of
from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.regions import region_shown
from napari_gpu_denoise._napari.layers.results import at_places, place_above
from napari_gpu_denoise._napari.layers.source import MOVES, PLACE, looks_of, set_changed
from napari_gpu_denoise._napari.model import memory_of
from napari_gpu_denoise._napari.parts import Caption, row_of, settling_timer, stack, told
from napari_gpu_denoise._napari.preview import compute
from napari_gpu_denoise._napari.resolve import Resolved, hidden_by
from napari_gpu_denoise._napari.tasks import Outcome, Task
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import DenoiseError, LayerError

_TIP = (
    "Filter the visible part of the slice whenever settings, view or sliders change. The preview "
    "is a layer above the source and its results, removed when this is unticked. Its pixels are "
    "those of a full run; while you drag, those of a faster profile."
)

_STRIP_TIP = (
    "Show the middle of the view three times, side by side: filtered with 0.71, 1 and 1.41 times "
    "the strength. A click on one sets Strength, and ends this."
)

_STILL = 3  # pixels of the screen that a click may move
REST = 250  # ms without a change after which the settings of the panel are used
_SOON = 15  # ms in which changes are taken together, and the view is drawn


class PreviewBox(QWidget):
    """Two tick boxes, and below them a caption, empty unless one is ticked."""

    def __init__(self):
        super().__init__()
        self.box = told(QCheckBox("Live preview"), _TIP)
        self.strip = told(QCheckBox("Three strengths"), _STRIP_TIP)
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
        self.caption.setText(text)
        self.caption.setVisible(bool(text))


class PreviewLayers:
    """Shows filtered regions of layers, each in a layer of its own.

    All versions of these layers that would be seen with them are hidden meanwhile. Of strips of
    several strengths, which lie above all layers, the lowest covers what is below.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer
        self._is_strip = False
        self._made: dict[Image, Image] = {}  # by their sources
        self._hidden: list[Layer] = []
        self._away: list[Image] = []  # hidden previews

    @property
    def layers(self) -> list[Image]:
        """The layers that are in the viewer."""
        return [each for each in self._made.values() if each in self._viewer.layers]

    @property
    def is_whole(self) -> bool:
        """Whether all layers are there that were made."""
        return len(self.layers) == len(self._made)

    def show(
        self,
        layers: Sequence[Image],
        requests: Sequence[compute.PreviewRequest],
        pixels: Sequence[np.ndarray],
        title: str,
    ) -> None:
        """Show the pixels of requests, which were made of layers; `title` is the filter's."""
        is_strip = bool(requests[0].strengths)
        if is_strip != self._is_strip or self._made.keys() != set(layers):
            self.remove()
        self._is_strip = is_strip
        for layer, request, made in zip(layers, requests, pixels, strict=True):
            region, starts = request.region, request.region.starts
            if self._is_strip:
                # The picture in the middle lies in its place.
                starts[region.across] -= region.shape[region.across] + region.gap
            placed = at_places(request.source, starts).attributes
            place = {name: placed[name] for name in PLACE if name in placed}
            shown = self._made.get(layer)
            if shown is None:
                what = "Strengths of" if self._is_strip else "Preview of"
                self._add(layer, made, f"{what} {request.source.name} ({title})", place)
            else:
                shown.data = made
                set_changed(shown, place)
        self.come_back()

    def go_away(self) -> None:
        """Hide the layers, where the sliders move to a place that they do not show.

        napari would hide them, too, but the software renderer of Mesa may crash on what is left.
        """
        for shown in self.layers:
            if shown.visible:
                shown.visible = False
                self._away.append(shown)

    def come_back(self) -> None:
        """Show the layers again, above results that are new, in place of what is below them."""
        layers = self._viewer.layers
        for source, shown in self._made.items():
            above = self._place(source)
            if layers.index(shown) < above - 1 and not self._is_strip:
                layers.move(layers.index(shown), above)
            if shown in self._away:
                shown.visible = True
        self._away = []
        for each in () if self._is_strip else hidden_by(self._made, layers):
            each.visible = False
            self._hidden.append(each)

    @contextmanager
    def below_shown(self) -> Iterator[None]:
        """Show what is hidden while layers are added and hidden by others."""
        self._unhide()
        yield
        self.come_back()

    def _unhide(self) -> None:
        hidden, self._hidden = self._hidden, []
        for each in hidden:
            each.visible = True

    def remove(self) -> None:
        """Remove the layers, and show again what was hidden."""
        gone, self._made, self._away = self._made, {}, []
        self._unhide()
        for each in gone.values():
            if each in self._viewer.layers:
                self._viewer.layers.remove(each)

    def _place(self, layer: Image) -> int:
        """Return the place above a layer, if it is still there, and all that was made from it."""
        if self._is_strip:
            return len(self._viewer.layers)
        return place_above(provenance.identity(layer), self._viewer)

    def _add(self, layer: Image, pixels: np.ndarray, name: str, place: dict[str, Any]) -> None:
        # multiscale=False: napari would otherwise guess from the shape.
        metadata = provenance.temporary_metadata("preview", layer)
        kind = {"rgb": layer.rgb, "multiscale": False, "metadata": metadata}
        looks, own = looks_of(layer), {}
        if self._is_strip and not self._made:
            own = {"blending": "translucent_no_depth", "opacity": 1.0}
        made = Image(pixels, name=name, **kind, **place, **(looks | own))
        layers, selection = self._viewer.layers, self._viewer.layers.selection
        chosen, active = set(selection), selection.active
        self._made[layer] = made
        layers.insert(self._place(layer), made)
        layers.link_layers((layer, made), looks.keys() - own.keys())
        # napari selects new layers.
        layers.selection = chosen
        selection.active = active


class LivePreview(QObject):
    """Keeps the preview of a panel up to date while one of its boxes is ticked.

    `wanted` returns what the panel would do; it raises `DenoiseError` if the settings do not fit.
    `strengths` returns those to show side by side, for the other box. Of requests, one for each
    layer, only the latest count. Quick ones are finished, so that something is seen while a hand
    moves; others are stopped by newer ones.
    """

    #: A strength was clicked.
    chosen = Signal(float)

    def __init__(
        self,
        viewer: Viewer,
        box: PreviewBox,
        wanted: Callable[[], Resolved],
        strengths: Callable[[], tuple[float, ...]],
        parent: QObject,
    ):
        super().__init__(parent)
        self._viewer, self._box, self._wanted = viewer, box, wanted
        self._strengths = strengths
        self.shown = PreviewLayers(viewer)
        self._filtering = Task(self, compute.filter_regions, "Preview")
        self._last: _Requests = ()  # what is shown
        self._failed: _Requests = ()  # whose noise could not be measured
        self._due = ""  # "quick" or "final"
        self._kept: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._soon = settling_timer(self, _SOON, lambda: self._make("quick"))
        self._rest = settling_timer(self, REST, lambda: self._make("final"))
        self._filtering.ended.connect(self._show)
        self._filtering.free.connect(self._start_due)
        for each in (box.box, box.strip):
            each.toggled.connect(self._switch)

    @property
    def layer(self) -> Image | None:
        """The layer of the preview, the first of several, if there is one."""
        return next(iter(self.shown.layers), None)

    @property
    def settled(self) -> bool:
        """Whether nothing is going to change unless something else does."""
        waiting = self._soon.isActive() or self._rest.isActive() or self._due
        return not (waiting or self._filtering.busy)

    def events(self, layers: Sequence[Image]) -> list[tuple[Any, Callable]]:
        """Return the events of the viewer and of layers that the preview follows."""
        camera, dims = camera_of(self._viewer).events, self._viewer.dims.events
        inserted = self._viewer.layers.events.inserted
        followed = [camera.center, camera.zoom, dims.ndisplay, dims.order, inserted]
        followed += [getattr(layer.events, name) for layer in layers for name in MOVES]
        found: list[tuple[Any, Callable]] = [(event, self.changed) for event in followed]
        removed = self._viewer.layers.events.removed
        return [*found, (dims.current_step, self._on_moved), (removed, self._on_removed)]

    def changed(self, event: object = None) -> None:
        """Make the preview again: quickly now, and as it is to be when nothing changes any more."""
        if not self._box.ticked:
            return
        if not self._soon.isActive():
            self._soon.start()
        self._rest.start()

    def stop(self) -> None:
        """End, and remove the layers."""
        for each in (self._box.box, self._box.strip):
            each.setChecked(False)

    def _switch(self, _: bool) -> None:
        clicks = self._viewer.mouse_drag_callbacks
        if self._on_click in clicks:
            clicks.remove(self._on_click)
        if self._box.strip.isChecked():
            clicks.append(self._on_click)
        if self._box.ticked:
            self.changed()
        else:
            self._end()

    def _on_click(self, viewer: Viewer, event: Any) -> Generator[None, None, None]:
        """Choose the strength that is clicked; a drag moves the view as ever."""
        start, zoom, moved = np.array(event.position), camera_of(viewer).zoom, event.button != 1
        yield
        while event.type == "mouse_move":
            moved |= bool(zoom * np.abs(np.array(event.position) - start).max() > _STILL)
            yield
        shown = self.layer
        if not moved and shown is not None and shown.visible:
            strength = self._last[0].strength_at(shown.world_to_data(event.position))
            if strength is not None:
                self._box.strip.setChecked(False)
                self.chosen.emit(strength)

    def _end(self) -> None:
        self._soon.stop()
        self._rest.stop()
        self._due = ""
        self._filtering.drop()
        self._failed = ()
        self._clear()
        self._kept.clear()
        self._box.say("")

    def _on_moved(self, event: object = None) -> None:
        self.shown.go_away()
        self.changed()

    def _on_removed(self, event: Any) -> None:
        # By the user: the box goes with the layer.
        if self._last and not self.shown.is_whole:
            self.stop()

    def _make(self, due: str) -> None:
        self._due = due
        self._start_due()

    def _start_due(self) -> None:
        """Begin the requests that are due, as soon as the last ones have ended."""
        if not self._due:
            return
        try:
            requests = self._requests(self._due)
        except DenoiseError as error:
            self._due = ""
            self._give_up(error)
            return
        running = self._filtering.request
        if not _same(requests, running) and self._filtering.busy:
            # What has been measured would be lost.
            if running is not None and running[0].stoppable and not _measure(running):
                self._filtering.drop()
            return
        self._due = ""
        if _same(requests, self._last):
            self.shown.come_back()
        elif [each.memory for each in self._failed] == [each.memory for each in requests]:
            self._clear()
        elif not _same(requests, running):
            if _measure(requests):
                self._box.say("Measuring the noise …")
            self._filtering.start(requests)

    def _requests(self, due: str) -> _Requests:
        """Return the requests that are due; final ones if these are shown or in progress."""
        resolved = self._wanted()
        final = tuple(map(self._final, resolved.layers, resolved.requests))
        known = _same(final, self._last) or _same(final, self._filtering.request)
        if due == "final" or known or not final[0].stoppable:
            return final
        return tuple(each.quick() for each in final)

    def _final(self, layer: Image, request: Any) -> compute.PreviewRequest:
        """Return the preview of a layer with the settings of the panel."""
        run, memory = request.run, request.memory
        if run.filter.yields_map:
            raise LayerError("A map is shown after a run, not in a preview.")
        if memory is None:
            # The noise is given; what is known of the pixels is kept all the same.
            memory = memory_of(layer, "given", run.axes, run.correct, run.nonfinite)
        else:
            run = replace(run, noise=memory)
        slow = compute.quick_settings(run.filter, run.axes) != run.filter
        region, strengths = region_shown(layer, self._viewer.dims), ()
        if self._box.strip.isChecked():
            region, strengths = region.third(), self._strengths()
        return compute.PreviewRequest(
            request.source, run, memory, region, True, slow, strengths, self._kept
        )

    def _show(self, outcome: Outcome) -> None:
        requests = outcome.request
        if outcome.error is not None:
            self._failed = requests if _measure(requests) else ()
            self._give_up(outcome.error)
            return
        found = {provenance.identity(each): each for each in self._viewer.layers}
        layers = [found[each.source.identity] for each in requests if each.source.identity in found]
        if len(layers) < len(requests):
            return
        first = requests[0]
        self.shown.show(layers, requests, outcome.value, first.run.filter.title)
        self._last = requests
        how = "" if first.final else ", quick profile"
        strengths = ", ".join(f"{each:.2f}" for each in first.strengths)
        click = f"Click the best of {strengths}: " if strengths else ""
        words = f"{click}{first.region.words()}{how}, {outcome.seconds:.2g} s"
        self._box.say(words[:1].upper() + words[1:])

    def _give_up(self, error: Exception) -> None:
        self._clear()
        known = isinstance(error, DenoiseError)
        self._box.say(in_panel(error) if known else f"No preview: {error!r}")

    def _clear(self) -> None:
        self._last = ()
        self.shown.remove()


_Requests = tuple[compute.PreviewRequest, ...]


def _measure(requests: _Requests) -> bool:
    """Return whether requests measure noise first."""
    return any(each.run.measures_noise for each in requests)


def _same(requests: _Requests, others: _Requests | None) -> bool:
    """Return whether other requests have the same results."""
    return [each.key for each in requests] == [each.key for each in others or ()]
