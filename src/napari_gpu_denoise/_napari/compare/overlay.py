"""What the panel "Compare" shows on the canvas: curtain, residual."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
from napari.layers import Image, Layer
from napari.utils import Colormap
from napari.viewer import Viewer
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.compare.pair import Curtain, Pair, Residual
from napari_gpu_denoise._napari.docks import camera_of, grid_of
from napari_gpu_denoise._napari.layers.provenance import temporary_metadata
from napari_gpu_denoise._napari.layers.source import LOOKS, finest, looks_of, place_of, set_changed
from napari_gpu_denoise._napari.parts import settling_timer
from napari_gpu_denoise.noise.robust import deviation

_REACH = 12.0  # pixels of the screen within which the line is grabbed

CURTAIN, RESIDUAL, NOTHING = "curtain", "residual", ""

_REDRAWN = 15  # milliseconds that changes are collected for
_SAMPLED = 1 << 16  # pixels whose spread gives the contrast of a residual
_SIGMAS = 3.0
_BLUE, _GREY, _RED = (0.1, 0.35, 0.85, 1), (0.93, 0.93, 0.93, 1), (0.8, 0.15, 0.1, 1)
DIVERGING = Colormap([_BLUE, _GREY, _RED], name="blue to red")


def shown_axes(viewer: Viewer, layer: Image) -> tuple[int, int] | None:
    """Return the axes of a layer that go down and across the screen; None in 3D, and in a grid."""
    if grid_of(viewer).enabled:
        return None  # a temporary layer would have a cell of its own
    first = viewer.dims.ndim - layer.ndim
    axes = tuple(axis - first for axis in viewer.dims.displayed)
    return axes if len(axes) == 2 and min(axes) >= 0 else None


class CompareOverlay(QObject):
    """Temporary layers in place of pairs, which are hidden meanwhile.

    The pairs are channels of one image. The first is the one whose residual is shown.
    """

    #: The line stands before this pixel.
    moved = Signal(int)

    def __init__(self, viewer: Viewer, parent: QObject):
        super().__init__(parent)
        self._viewer = viewer
        self.mode = NOTHING
        self.layer: Image | None = None
        self._made: dict[tuple[str, Pair | None], Image] = {}
        self._shown: dict[Pair, Image] = {}
        self._axes: tuple[int, int] | None = None
        self._pairs: tuple[Pair, ...] = ()
        self._at: int | None = None
        self._alone = False  # the image, without its result
        self._hidden: dict[Layer, bool] = {}
        self._hiding = False
        self._redrawing = settling_timer(self, _REDRAWN, self.redraw)

    @property
    def at(self) -> int:
        """The pixel along the width before which the line stands."""
        return 0 if self._at is None else self._at

    @property
    def width(self) -> int:
        """The number of pixels along the axis that the line moves on; 0 without a line."""
        shown = self.layer if self.mode == CURTAIN else None
        return 0 if shown is None else shown.data.shape[shown.data.axis]

    def start(self, pairs: tuple[Pair, ...], mode: str) -> None:
        """Show pairs; an overlay of the same pairs is hidden before, one of others removed."""
        pair, *_ = pairs
        axes = shown_axes(self._viewer, pair.after)
        same = set(pairs) == set(self._pairs) and axes in (self._axes, None) and self.is_whole()
        self.pause() if same else self.stop()
        if not mode or axes is None:
            return
        self.mode, self._pairs, self._axes = mode, pairs, axes
        if self._at is None:
            self._at = pair.shape[axes[1]] // 2
        self._at = min(self._at, pair.shape[axes[1]])
        for each in pairs if mode == CURTAIN else (pair,):
            self._shown[each] = self._layer(each, mode, axes)
        self.layer = self._shown[pair]
        for each in (layer for both in pairs for layer in (both.before, both.after)):
            self._hidden.setdefault(each, each.visible)
            each.visible = False
        if mode == CURTAIN:
            self._viewer.mouse_drag_callbacks.append(self._drag)
        self.redraw()
        self.moved.emit(self.at)
        # Its controls then work on what stays: this layer follows.
        self._viewer.layers.selection.active = pair.after

    def _layer(self, pair: Pair, kind: str, axes: tuple[int, int]) -> Image:
        """Return the layer that shows a pair, as it is drawn now; a new one is added."""
        residual = kind == RESIDUAL
        key = kind, None if residual else pair
        known = self._made.get(key)
        if known is None:
            known = self._made[key] = self._add(pair, kind, axes)
            return known
        if known.data.pair is not pair:  # faster than another layer
            known.data, known.name = Residual(pair), _name(kind, pair)
            known.metadata = temporary_metadata(kind, pair.before)
        set_changed(known, self._looks_of_residual(pair) if residual else looks_of(pair.after))
        known.visible = True
        return known

    def _add(self, pair: Pair, kind: str, axes: tuple[int, int]) -> Image:
        if kind == RESIDUAL:
            data, looks = Residual(pair), self._looks_of_residual(pair) | {"rgb": False}
        else:
            data = Curtain(pair, axes[1], self.at)
            looks = looks_of(pair.after) | {"rgb": pair.after.rgb}
        place = place_of(pair.after) | {"metadata": temporary_metadata(kind, pair.before)}
        place["name"] = _name(kind, pair)
        # With contrast, which napari would look for in all of the data.
        layer, layers = Image(data, multiscale=False, **place, **looks), self._viewer.layers
        layers.insert(max(layers.index(pair.before), layers.index(pair.after)) + 1, layer)
        return layer

    def pause(self) -> None:
        """Show the pairs as they were; the temporary layers stay, hidden.

        napari takes 0.2 seconds and more to remove a layer.
        """
        self._redrawing.stop()
        if self._drag in self._viewer.mouse_drag_callbacks:
            self._viewer.mouse_drag_callbacks.remove(self._drag)
        hidden, self._hidden = self._hidden, {}
        self.layer, self.mode, self._shown, self._alone = None, NOTHING, {}, False
        for each in self._pairs:
            each.forget()
        for each in self._made.values():
            each.visible = False
        for each, visible in hidden.items():
            if each in self._viewer.layers:
                each.visible = visible

    def stop(self) -> None:
        """Remove the overlay; the pairs get their visibility back."""
        self.pause()
        # Before layers go, which others are told of.
        made, self._made, self._pairs = list(self._made.values()), {}, ()
        for each in made:
            if each in self._viewer.layers:
                self._viewer.layers.remove(each)

    def is_whole(self) -> bool:
        """Return whether all layers are there that this shows, and shows something of."""
        return all(each in self._viewer.layers for each in (*self._made.values(), *self._hidden))

    def move(self, at: int) -> None:
        """Move the line; the canvas is redrawn a moment later."""
        if self.mode == CURTAIN and at != self._at:
            self._at = at
            self._redrawing.start()
            self.moved.emit(at)

    def show_before(self, alone: bool) -> None:
        """Show the image alone, or beside its result again."""
        self._alone = alone
        self.redraw()

    def redraw(self) -> None:
        """Redraw the overlay."""
        self._redrawing.stop()
        if self.layer is None:
            return
        at = self.width if self._alone else self.at
        for layer in self._shown.values():
            if isinstance(layer.data, Curtain):
                layer.data.at = at
                colour = 255 if layer.data.dtype.kind in "iu" else 1.0
                layer.data.line = colour if layer.rgb else layer.contrast_limits[1]
            layer.refresh()

    def _drag(self, viewer: Viewer, event: Any) -> Generator[None, None, None]:
        """Move the line with the mouse, where it was pressed on it."""
        layer, camera = self._shown[self._pairs[0]], camera_of(self._viewer)
        across, ends = layer.data.axis, np.zeros((2, layer.ndim))
        ends[1, across] = 1
        pixel = camera.zoom * np.linalg.norm(
            np.diff([layer.data_to_world(e) for e in ends], axis=0)
        )

        def place() -> float:
            return float(layer.world_to_data(event.position)[across]) + 0.5

        if event.button != 1 or abs(place() - self.at) * pixel > _REACH:
            return
        # Else the picture would move with the line.
        panning, camera.mouse_pan = camera.mouse_pan, False
        try:
            yield
            while event.type == "mouse_move":
                self.move(min(max(round(place()), 0), self.width))
                yield
        finally:
            camera.mouse_pan = panning

    def follow(self) -> list[tuple[Any, Any]]:
        """Return events of the pairs and the viewer, and what follows them."""
        found = []
        for pair in self._pairs:
            after = pair.after.events
            for each in (pair.before.events, after):
                found += [(each.data, self._on_data), (each.visible, self._on_visible)]
            found += [(getattr(after, name), self._on_looks) for name in LOOKS]
        return found

    def _on_data(self, event: object = None) -> None:
        for each in self._pairs:
            each.forget()
            self._redrawing.start()

    def _on_visible(self, event: Any) -> None:
        """Remember what others make of a hidden layer; it stays hidden while this is shown."""
        for layer in () if self._hiding else self._hidden:
            if layer is event.source:
                self._hidden[layer] = layer.visible
                self._hiding = True
                layer.visible = False
                self._hiding = False

    def _on_looks(self, event: object = None) -> None:
        for pair, layer in self._shown.items():
            if isinstance(layer.data, Curtain):
                set_changed(layer, looks_of(pair.after))
        self._redrawing.start()

    def _looks_of_residual(self, pair: Pair) -> dict[str, Any]:
        """Return how a residual looks: contrast of three sigmas of the slice shown around 0."""
        index, residual = slice_shown(self._viewer, pair.after), Residual(pair)
        sizes = [n for i, n in zip(index, residual.shape, strict=True) if isinstance(i, slice)]
        # Of what is not in memory the plane is read that is then shown.
        step = 1 if pair.is_lazy else max(1, int(np.sqrt(math.prod(sizes) / _SAMPLED)))
        sampled = tuple(slice(None, None, step) if isinstance(i, slice) else i for i in index)
        limit = _SIGMAS * spread(residual[sampled])
        return {"colormap": DIVERGING, "contrast_limits": (-limit, limit)}


def _name(kind: str, pair: Pair) -> str:
    return f"{kind}: {pair.before.name} | {pair.after.name}"


def slice_shown(viewer: Viewer, layer: Image) -> tuple[int | slice, ...]:
    """Return the index of the slice of a layer that the viewer shows, or the nearest one."""
    axes = shown_axes(viewer, layer) or (layer.ndim - 2, layer.ndim - 1)
    point = np.round(layer.world_to_data(viewer.dims.point)).astype(int)
    return tuple(
        slice(None) if axis in axes else int(np.clip(point[axis], 0, finest(layer).shape[axis] - 1))
        for axis in range(layer.ndim)
    )


def spread(residual: np.ndarray) -> float:
    """Return the standard deviation of a residual, whatever of an object is in it; 1 for none."""
    step = max(1, int(np.sqrt(residual.size / _SAMPLED)))
    values = residual[..., ::step, ::step]
    values = values[np.isfinite(values)]
    return deviation(values) or (float(values.std()) if values.size else 0.0) or 1.0
