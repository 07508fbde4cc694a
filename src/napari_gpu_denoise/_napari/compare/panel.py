"""The panel "Compare": a result and its source, on the canvas and along a line."""

from __future__ import annotations

from typing import Any

import napari.viewer
import numpy as np
from napari.layers import Layer, Shapes
from qtpy.QtCore import QSignalBlocker, Qt, QTimer
from qtpy.QtWidgets import QSlider

from napari_gpu_denoise._napari import docks, parts
from napari_gpu_denoise._napari.compare import overlay
from napari_gpu_denoise._napari.compare import pair as pairing
from napari_gpu_denoise._napari.inputs import LayerChoice, LayerInput
from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.source import shapes_on
from napari_gpu_denoise._napari.noise.plots import Plot
from napari_gpu_denoise._napari.panel import LayerPanel
from napari_gpu_denoise._napari.resolve import channels_in_words

MODES = {
    "Curtain: before | after": overlay.CURTAIN,
    "Residual: before - after": overlay.RESIDUAL,
    "The layers as they are": overlay.NOTHING,
}

_SETTLED = 30  # milliseconds for which changes of a line are collected
# Milliseconds in which napari draws the canvas: where layers that it has drawn are replaced at once
# by others, drivers such as Mesa's may crash in the next screenshot.
_DRAWN = 50


class ResultInput(LayerInput):
    """The viewer's results that can be compared with something; at first the selected ones.

    Those of all channels of a file, by one filter, can be compared at once.
    """

    def listed(self) -> list[Layer]:
        """Return the results, topmost first."""
        return pairing.results_in(self._viewer.layers)

    def choose(self, *layers: Layer) -> None:
        """Choose a result, with those of the other channels of its file."""
        groups = self.groups(())
        super().choose(*next((each for each in groups if set(layers) <= set(each)), layers))

    def wanted(self) -> tuple[Layer, ...]:
        """Return the topmost result of the selection, or of a selected layer, in all channels."""
        found, selected = self.listed(), self._viewer.layers.selection
        sources = set(map(provenance.identity, selected))
        made = [e for e in found if provenance.record_of(e).get(provenance.SOURCE_ID) in sources]
        alone = tuple([each for each in found if each in selected] or made)[:1]
        return next((each for each in self.groups(()) if alone and alone[0] in each), alone)

    def groups(self, chosen: tuple[Layer, ...]) -> dict[tuple[Layer, ...], str]:
        """Return the results of all channels of each file by each filter, and their text."""
        groups = {}
        for each in self.listed():
            found = pairing.channels_with(each, self._viewer.layers)
            title = provenance.filter_title(provenance.record_of(each))
            if len(found) > 1:
                groups[found] = f"{channels_in_words(found)}, {title}"
        return groups


class ComparePanel(LayerPanel):
    """Compares the selected result with its source until the panel is closed.

    Of several channels, the one that is selected has its residual and its curves shown.
    """

    title = "Compare"
    layer_input = ResultInput
    failed = "Not shown."
    out_of_memory = "There is not enough memory to show this."

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(viewer, "Result of a filter; at first the selected layer.")
        self.layer.setPlaceholderText("No result of a filter")
        tip = "The source of the result, or another result of the same source."
        self.before = LayerChoice(tip, "No image")
        self.mode = parts.choice(
            MODES,
            "Curtain: drag the line in the picture. Residual: what was removed, in blue and red "
            "around 0, up to three standard deviations. It is a temporary layer, removed when this "
            "panel is closed.",
        )
        parts.narrow(self.mode)
        self.hold_button = parts.button(
            "Hold for before", "Show the source while this is held, by the mouse or the space bar."
        )
        tip = "Position of the line; you can also drag it in the picture."
        self.slider = parts.told(QSlider(Qt.Orientation.Horizontal), tip, "Position of the line")
        self.caption = parts.Caption()
        self.draw_button = parts.button(
            "Draw a line", "Draw a line on the picture to see grey levels along it."
        )
        self._plot = Plot("Along the line", "", "Grey level", fills=True)
        self.overlay = overlay.CompareOverlay(self._viewer, self)
        self._pairs: tuple[pairing.Pair, ...] = ()
        self._drawn: Shapes | None = None
        self._settling = parts.settling_timer(self, _SETTLED, self._draw_profile)
        self._starting = parts.settling_timer(self, _DRAWN, self._start)
        self._lay_out()
        self._connect()
        # The canvas is left alone until the panel is in the window.
        QTimer.singleShot(0, self._take_result)

    def _lay_out(self) -> None:
        chosen = {"Result": self.layer, "Before": self.before, "Show": self.mode}
        form = parts.form_layout(chosen)
        rows = (form, self.slider, self.hold_button, self.caption, parts.ruler(), self.draw_button)
        plot = parts.holding(parts.row_of(self._plot))  # keeps its height free
        self.arrange((*rows, plot), ((self.status,),), filled=True)

    def offer_partners(self, keep: bool) -> None:
        """List the layers that the result can be compared with."""
        after = self.layer.layer()
        found = [] if after is None else pairing.partners(after, self._viewer.layers)
        selection, names = self._viewer.layers.selection, {}
        for each in sorted(found, key=lambda each: each not in selection):
            if len(self.layer.layers()) == 1:
                names[each] = each.name
            elif provenance.place_in_file(each) == provenance.place_in_file(after):
                title = provenance.filter_title(provenance.record_of(each))
                names[each] = f"Their results of {title}" if title else "Their sources"
        self.before.offer(names, keep)

    def _connect(self) -> None:
        self.overlay.moved.connect(self._on_moved)
        self.layer.chosen.connect(self._take_result)
        self.before.chosen.connect(self._take_pair)
        self.mode.currentIndexChanged.connect(self._show)
        self.slider.valueChanged.connect(self.overlay.move)
        self.hold_button.pressed.connect(lambda: self._hold(True))
        self.hold_button.released.connect(lambda: self._hold(False))
        self.draw_button.clicked.connect(self.draw)
        dims, active = self._viewer.dims.events, self._viewer.layers.selection.events.active
        seen = dims.ndisplay, dims.order, docks.grid_of(self._viewer).events.enabled
        views = [(active, self._on_active), (dims.current_step, self._on_drawn)]
        self.follow("viewer", [*views, *((each, self._show) for each in seen)])

    def take(self, result: Layer | None) -> None:
        """Compare what is selected, as on opening, or else a result."""
        self.layer.choose(*(self.layer.wanted() or (result,)))

    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers; with a layer of the comparison that ends."""
        layers = self._viewer.layers
        if self._drawn is not None and self._drawn not in layers:
            self._drop_profile()
        shown = {layer for each in self._pairs for layer in (each.before, each.after)}
        gone = not shown <= set(layers)
        if gone:
            self._leave()
        elif self.overlay.mode and not self.overlay.is_whole():
            # The user has removed what was shown.
            self.overlay.stop()
            self.mode.setCurrentIndex(self.mode.findData(overlay.NOTHING))
        super().reset_choices(event)
        self.offer_partners(keep=True)
        if gone:
            self._take_pair()

    def stop(self) -> None:
        """Leave the layers as they were; the panel is being closed."""
        self._starting.stop()
        self._leave()
        self._drop_profile()

    def draw(self) -> None:
        """Let the user draw a line; it replaces the one before."""
        if self._pair is None:
            return
        self._drop_profile()
        after = self._pair.after
        metadata = provenance.temporary_metadata("line", after)
        drawn = shapes_on(after, f"line on {after.name}", 1 / 250, metadata=metadata)
        self._drawn = drawn
        self._viewer.layers.append(drawn)
        drawn.mode = "add_line"
        drawn.events.data.connect(self._on_drawn)
        self.say("Drag a line over the picture.")

    def _take_result(self) -> None:
        self.offer_partners(keep=False)
        self._take_pair()

    @property
    def _pair(self) -> pairing.Pair | None:
        """The pair shown; of several, that of the selected channel."""
        return next(iter(self._pairs), None)

    def _take_pair(self) -> None:
        before, results, layers = self.before.layer(), self.layer.layers(), self._viewer.layers
        known = {(each.before, each.after): each for each in self._pairs}
        found = (
            [] if before is None else [(pairing.counterpart(before, e, layers), e) for e in results]
        )
        found = [each for each in found if each[0] is not None]
        if set(found) == known.keys():
            return
        self._leave()
        first = results[0] if results else None
        if self._drawn is not None and (first is None or self._drawn.ndim != first.ndim):
            self._drop_profile()
        self._pairs = tuple(pairing.Pair(*each) for each in found)
        self._sort_pairs()
        self._show()

    def _sort_pairs(self) -> None:
        """Put the pair of the selected channel first."""
        active = self._viewer.layers.selection.active
        self._pairs = tuple(
            sorted(self._pairs, key=lambda each: active not in (each.after, each.before))
        )

    def _show(self, _: object = None) -> None:
        """Show the pair as chosen, once the canvas is redrawn without the previous overlay."""
        if self._closed:
            return
        pair = self._pair
        self.follow("pair", ())
        self.overlay.pause()
        for each in (self.slider, self.hold_button):
            each.setVisible(bool(pair) and self.mode.currentData() == overlay.CURTAIN)
        self.draw_button.setEnabled(pair is not None)
        self.caption.setText("")
        self.say("Denoise a layer first: there is no result with its source." if not pair else "")
        self._starting.start()

    def _start(self) -> None:
        mode, pair = self.mode.currentData(), self._pair
        if pair is None or self._closed:
            return
        try:
            self.overlay.start(self._pairs, mode)
        except Exception as error:
            self.overlay.stop()
            self.show_error(error)
            return
        self.follow("pair", self.overlay.follow())
        if mode and not self.overlay.mode:
            self.say("Switch to 2D, and leave the grid, to compare.")
        elif mode == overlay.RESIDUAL and (shown := self.overlay.layer) is not None:
            limit = shown.contrast_limits[1]
            of = "luminance" if pair.after.rgb else "grey levels"
            of = "standard deviations of the noise" if pair.in_sigmas else of
            of += f" of {pair.after.name}" if len(self._pairs) > 1 else ""
            self.caption.setText(f"Colours from {-limit:.3g} to {limit:.3g} in {of}.")
        self._settling.start()

    def _leave(self) -> None:
        """Let go of the pair, and of the pixels that are read of it."""
        self.follow("pair", ())
        self.overlay.stop()
        self._pairs = ()

    def _on_active(self, event: object = None) -> None:
        active = self._viewer.layers.selection.active
        if active in self.layer.layers():
            if self._pair is not None and active != self._pair.after:
                self._sort_pairs()
                self._show()
        elif active is not None:
            self.layer.follow_selection()

    def _on_moved(self, at: int) -> None:
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, self.overlay.width)
            self.slider.setValue(at)

    def _hold(self, held: bool) -> None:
        """Show the image alone while the button is held."""
        if self.overlay.mode == overlay.CURTAIN:
            self.overlay.show_before(held)
            names = ", ".join(each.before.name for each in self._pairs)
            self.caption.setText(f"Before: {names}" if held else "")

    def _on_drawn(self, event: Any = None) -> None:
        self._settling.start()

    def _draw_profile(self) -> None:
        """Plot grey levels along the last line drawn, on the slice shown."""
        pair, drawn = self._pair, self._drawn
        if pair is None or drawn is None or not len(drawn.data):
            return
        axes = overlay.shown_axes(self._viewer, pair.after)
        ends = np.asarray(drawn.data[-1], float)[[0, -1]]
        if axes is None or not np.ptp(ends, axis=0).any():
            return
        shown = overlay.slice_shown(self._viewer, pair.after)
        curves, distance = pairing.profile(pair, ends, shown, axes)
        self._plot.y_label = "Luminance" if pair.after.rgb else "Grey level"
        self._plot.show_series(curves, distance)
        self.say("")

    def _drop_profile(self) -> None:
        """Remove the line and its plot."""
        drawn, self._drawn = self._drawn, None
        if drawn is not None:
            drawn.events.data.disconnect(self._on_drawn)
            if drawn in self._viewer.layers:
                self._viewer.layers.remove(drawn)
        self._plot.show_series(())
