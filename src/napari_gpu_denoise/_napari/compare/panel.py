"""The panel "Compare": a result and its source, on the canvas and along a line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

import napari.viewer
import numpy as np
from napari.layers import Layer, Shapes
from qtpy.QtCore import QSignalBlocker, QTimer

from napari_gpu_denoise._napari.compare.overlay import (
    NOTHING,
    RESIDUAL,
    Showing,
    shown_axes,
    slice_shown,
)
from napari_gpu_denoise._napari.compare.pair import Pair, profile
from napari_gpu_denoise._napari.compare.view import KEY, CompareView
from napari_gpu_denoise._napari.layers.provenance import (
    METADATA_KEY,
    SOURCE,
    SOURCE_ID,
    TEMPORARY,
    identity,
)
from napari_gpu_denoise._napari.layers.source import PLACE, finest

_SETTLED = 30  # milliseconds for which changes of a line are collected
# Milliseconds in which napari draws the canvas: where layers that it has drawn are replaced at once
# by others, drivers such as Mesa's may crash in the next screenshot.
_DRAWN = 50


class ComparePanel(CompareView):
    """Compares the selected result with its source until the panel is closed."""

    def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
        super().__init__(viewer)
        self._pair: Pair | None = None
        self._drawn: Shapes | None = None
        self._bound = False
        self._plot: Any = None
        self.showing = Showing(viewer, self)
        self.showing.moved.connect(self._on_moved)
        self.showing.turned.connect(self._on_turned)
        self._settling = QTimer(self)
        self._settling.setSingleShot(True)
        self._settling.setInterval(_SETTLED)
        self._settling.timeout.connect(self._draw_profile)
        self._starting = QTimer(self)
        self._starting.setSingleShot(True)
        self._starting.setInterval(_DRAWN)
        self._starting.timeout.connect(self._start)
        self.layer.chosen.connect(self._take_result)
        self.before.chosen.connect(self._take_pair)
        self.mode.currentIndexChanged.connect(self._show)
        self.slider.valueChanged.connect(self.showing.move)
        self.hold_button.pressed.connect(lambda: self.showing.show_alone("before"))
        self.hold_button.released.connect(lambda: self.showing.show_alone(""))
        self.hide_source.clicked.connect(self._hide_source)
        self.draw_button.clicked.connect(self.draw)
        dims, active = viewer.dims.events, viewer.layers.selection.events.active
        views = [(each, self._show) for each in (dims.ndisplay, dims.order)]
        views.append((dims.current_step, self._on_slice))
        self.follow("viewer", [(active, self._on_active), *views])
        # The canvas is left alone until the panel is in the window.
        QTimer.singleShot(0, self._take_result)

    def choose(self, layer: Layer | None, axes: str = "") -> None:
        """Choose the result to compare."""
        self.layer.choose(layer)

    def offer_axes(self) -> None:
        """Axes need no names here."""

    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers; with a layer of the comparison that ends."""
        layers = self._viewer.layers
        if self._drawn is not None and self._drawn not in layers:
            self._drop_profile()
        gone = self._pair is not None and not {self._pair.before, self._pair.after} <= set(layers)
        if gone:
            self._leave()
        elif self.showing.mode and not self.showing.is_whole():
            # The user has removed what was shown.
            self.showing.stop()
            self.mode.setCurrentIndex(self.mode.findData(NOTHING))
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
        place = {name: getattr(after, name) for name in PLACE if hasattr(after, name)}
        about = {SOURCE: after.name, SOURCE_ID: identity(after), TEMPORARY: "line"}
        self._drawn = Shapes(
            ndim=after.ndim,
            name=f"line on {after.name}",
            edge_color="yellow",
            edge_width=max(finest(after).shape[after.ndim - 1] / 250, 1.0),
            metadata={METADATA_KEY: about},
            **place,
        )
        self._viewer.layers.append(self._drawn)
        self._drawn.mode = "add_line"
        self._drawn.events.data.connect(self._on_drawn)
        self.say("Drag a line over the picture.")

    def _take_result(self) -> None:
        self.offer_partners(keep=False)
        self._take_pair()

    def _take_pair(self) -> None:
        before, after = self.before.layer(), self.layer.layer()
        known = self._pair
        if known is not None and (known.before, known.after) == (before, after):
            return
        self._leave()
        if self._drawn is not None and (after is None or self._drawn.ndim != after.ndim):
            self._drop_profile()
        if before is not None and after is not None:
            self._pair = Pair(before, after)
        self._show()

    def _show(self, _: object = None) -> None:
        """Show the pair as chosen, once the canvas is drawn without what it showed before."""
        if self._closed:
            return
        pair = self._pair
        self._unbind()
        self.follow("pair", ())
        self.showing.pause()
        self.show_mode("" if pair is None else self.mode.currentData())
        for each in (self.hide_source, self.draw_button):
            each.setEnabled(pair is not None)
        self.caption.setText("")
        self.say("Denoise a layer first: there is no result with its source." if not pair else "")
        self._starting.start()

    def _start(self) -> None:
        mode, pair = self.mode.currentData(), self._pair
        if pair is None or self._closed:
            return
        try:
            self.showing.start(pair, mode)
        except Exception as error:
            self.showing.stop()
            self.show_error(error)
            return
        self.follow("pair", self.showing.follow())
        self.hide_source.setChecked(self.showing.hides(pair.before))
        if mode and not self.showing.mode:
            self.say("Switch to 2D to compare.")
        elif mode == RESIDUAL:
            limit = self.showing.layer.contrast_limits[1]
            of = "luminance" if pair.after.rgb else "grey levels"
            self.caption.setText(f"Colours from {-limit:.3g} to {limit:.3g} in {of}.")
        elif self.showing.mode:
            self._bind()
        self._settling.start()

    def _leave(self) -> None:
        """Let go of the pair, and of the pixels that are read of it."""
        self._unbind()
        self.follow("pair", ())
        self.showing.stop()
        self._pair = None

    def _bind(self) -> None:
        def hold(viewer: Any) -> Generator[None, None, None]:
            self.showing.show_alone("before")
            yield
            self.showing.show_alone("")

        # A key that the user has given another task keeps it.
        with suppress(ValueError):
            self._viewer.bind_key(KEY, hold)
            self._bound = True

    def _unbind(self) -> None:
        if self._bound:
            self._bound = False
            self._viewer.bind_key(KEY, None)

    def _on_active(self, event: object = None) -> None:
        active = self._viewer.layers.selection.active
        if active is not None and active is not self.layer.layer():
            self.layer.choose(active)

    def _on_moved(self, at: int) -> None:
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, self.showing.width)
            self.slider.setValue(at)

    def _on_turned(self, which: str) -> None:
        if self._pair is not None:
            name = {"before": self._pair.before.name, "after": self._pair.after.name}.get(which, "")
            self.caption.setText(f"{which.capitalize()}: {name}" if name else "")

    def _hide_source(self, hidden: bool) -> None:
        if self._pair is not None:
            self.showing.hide(self._pair.before, hidden)

    def _on_drawn(self, event: Any = None) -> None:
        self._settling.start()

    def _on_slice(self, event: object = None) -> None:
        if self._drawn is not None:
            self._settling.start()

    def _draw_profile(self) -> None:
        """Plot grey levels along the last line drawn, on the slice shown."""
        pair, drawn = self._pair, self._drawn
        if pair is None or drawn is None or not len(drawn.data):
            return
        axes, corners = shown_axes(self._viewer, pair.after), np.asarray(drawn.data[-1], float)
        if axes is None or len(corners) < 2 or not np.ptp(corners, axis=0).any():
            return
        curves, distance = profile(pair, corners, slice_shown(self._viewer, pair.after), axes)
        if self._plot is None:
            from napari_gpu_denoise._napari.noise.plots import Plot

            kind = "Luminance" if pair.after.rgb else "Grey level"
            self._plot = Plot("Along the line", distance, kind)
            self._plot_place.addWidget(self._plot)
        self._plot.show_series(curves, distance)
        self.say("")

    def _drop_profile(self) -> None:
        """Remove the line and its plot."""
        drawn, self._drawn = self._drawn, None
        if drawn is not None:
            drawn.events.data.disconnect(self._on_drawn)
            if drawn in self._viewer.layers:
                self._viewer.layers.remove(drawn)
        if self._plot is not None:
            self._plot.show_series(())
