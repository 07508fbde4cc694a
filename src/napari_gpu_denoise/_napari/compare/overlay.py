"""What the panel "Compare" shows on the canvas: curtain, residual."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from napari.layers import Image, Layer
from napari.utils import Colormap
from napari.viewer import Viewer
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.compare.pair import Pair
from napari_gpu_denoise._napari.docks import camera_of, grid_of
from napari_gpu_denoise._napari.layers.provenance import temporary_metadata
from napari_gpu_denoise._napari.layers.source import finest, looks_of, place_of, set_changed
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
        self._made: dict[tuple[str, Pair], Image] = {}
        self._planes: dict[Image, np.ndarray] = {}  # what layers show at every place
        self._shown: dict[Pair, Image] = {}
        self._axes = 0, 1
        self._pairs: tuple[Pair, ...] = ()
        #: The pixel along the width before which the line stands; it begins in the middle.
        self.at = -1
        self._alone = False  # the image, without its result
        self._hidden: dict[Layer, bool] = {}
        self._redrawing = settling_timer(self, _REDRAWN, self.redraw)

    @property
    def layer(self) -> Image | None:
        """The layer of the first pair, while it is shown."""
        return next(iter(self._shown.values()), None)

    @property
    def width(self) -> int:
        """The number of pixels along the axis that the line moves on; 0 without a line."""
        return self._pairs[0].shape[self._axes[1]] if self.mode == CURTAIN else 0

    def start(self, pairs: tuple[Pair, ...], mode: str) -> None:
        """Show pairs; an overlay of the same pairs is hidden before, one of others removed."""
        pair, *_ = pairs
        axes = shown_axes(self._viewer, pair.after)
        same = set(pairs) == set(self._pairs) and axes in (self._axes, None) and self.is_whole()
        self.pause() if same else self.stop()
        if not mode or axes is None:
            return
        self.mode, self._pairs, self._axes = mode, pairs, axes
        length = pair.shape[axes[1]]
        self.at = length // 2 if self.at < 0 else min(self.at, length)
        for each in pairs if mode == CURTAIN else (pair,):
            self._shown[each] = self._layer(each)
        for each in (layer for both in pairs for layer in (both.before, both.after)):
            self._hidden.setdefault(each, each.visible)
            each.visible = False
        if mode == CURTAIN:
            self._viewer.mouse_drag_callbacks.append(self._drag)
        # Before napari takes it for a volume.
        self._viewer.dims.events.ndisplay.connect(self.pause, position="first")
        self.moved.emit(self.at)
        # Its controls then work on what stays: this layer follows.
        self._viewer.layers.selection.active = pair.after

    def _layer(self, pair: Pair) -> Image:
        """Return the layer that shows a pair, drawn; a new one is added."""
        known, after = self._made.get((self.mode, pair)), pair.after
        residual = self.mode == RESIDUAL
        shape = pair.shape[: after.ndim] if residual else pair.shape
        if known is None:
            kept = *self._axes, after.ndim  # and colours
            some = [n if axis in kept else 1 for axis, n in enumerate(shape)]
            plane = np.empty(some, np.float32 if residual else pair.dtype)
        else:
            plane = self._planes[known]
        self._draw(pair, plane)
        looks = looks_of(after)
        if residual:
            limit = _SIGMAS * spread(plane)
            looks = {"colormap": DIVERGING, "contrast_limits": (-limit, limit)}
        if known is not None:
            set_changed(known, looks | {"visible": True})
            return known
        place = place_of(after) | {"metadata": temporary_metadata(self.mode, pair.before)}
        place |= {"name": f"{self.mode}: {pair.before.name} | {after.name}"}
        place |= {"rgb": after.rgb and not residual, "multiscale": False}
        # With contrast, which napari would look for in all of the data.
        layer = Image(np.broadcast_to(plane, shape), **place, **looks)
        self._made[self.mode, pair], self._planes[layer] = layer, plane
        layers = self._viewer.layers
        layers.insert(max(layers.index(pair.before), layers.index(after)) + 1, layer)
        if not residual:
            layers.link_layers((after, layer), looks)
        return layer

    def pause(self) -> None:
        """Show the pairs as they were; the temporary layers stay, hidden.

        napari takes 0.2 seconds and more to remove a layer.
        """
        self._redrawing.stop()
        if self._drag in self._viewer.mouse_drag_callbacks:
            self._viewer.mouse_drag_callbacks.remove(self._drag)
        self._viewer.dims.events.ndisplay.disconnect(self.pause)
        hidden, self._hidden = self._hidden, {}
        self.mode, self._shown, self._alone = NOTHING, {}, False
        for each in self._pairs:
            each.forget()
        for each in self._made.values():
            each.visible = False
        for each, visible in hidden.items():
            if each in self._viewer.layers:
                each.visible |= visible

    def stop(self) -> None:
        """Remove the overlay; the pairs get their visibility back."""
        self.pause()
        # Before layers go, which others are told of.
        made, self._made, self._planes, self._pairs = list(self._made.values()), {}, {}, ()
        for each in made:
            if each in self._viewer.layers:
                self._viewer.layers.remove(each)

    def is_whole(self) -> bool:
        """Return whether all layers are there that this shows, and shows something of."""
        return all(each in self._viewer.layers for each in (*self._made.values(), *self._hidden))

    def move(self, at: int) -> None:
        """Move the line; the canvas is redrawn a moment later."""
        if self.mode == CURTAIN and at != self.at:
            self.at = at
            self._redrawing.start()
            self.moved.emit(at)

    def show_before(self, alone: bool) -> None:
        """Show the image alone, or beside its result again."""
        self._alone = alone
        self.redraw()

    def redraw(self, event: object = None) -> None:
        """Redraw the overlay."""
        self._redrawing.stop()
        for pair, layer in self._shown.items():
            self._draw(pair, self._planes[layer])
            layer.refresh()

    def _draw(self, pair: Pair, plane: np.ndarray) -> None:
        """Draw the slice of a pair that the viewer shows."""
        index = slice_shown(self._viewer, pair.after)
        out = plane[tuple(at if isinstance(at, slice) else 0 for at in index)]
        if self.mode == RESIDUAL:
            out[...] = pair.residual(index)
            return
        line = pair.after.contrast_limits[1]
        if pair.after.rgb:
            line = 1.0 if out.dtype.kind == "f" else 255
        (down, across), at = self._axes, self.width if self._alone else self.at
        pair.draw_curtain(index, out, int(across > down), at, line)

    def _drag(self, viewer: Viewer, event: Any) -> Generator[None, None, None]:
        """Move the line with the mouse, where it was pressed on it."""
        layer, camera = self._shown[self._pairs[0]], camera_of(self._viewer)
        across, ends = self._axes[1], np.zeros((2, layer.ndim))
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
        found = [(self._viewer.dims.events.current_step, self.redraw)]
        for pair in self._pairs:
            found += [(each.events.data, self._on_data) for each in (pair.before, pair.after)]
            # The line is as bright as can be.
            found.append((pair.after.events.contrast_limits, self.redraw))
        return found

    def _on_data(self, event: object = None) -> None:
        for each in self._pairs:
            each.forget()
            self._redrawing.start()


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
