"""The line of a curtain at the canvas, and its dragging."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from napari.layers import Image
from napari.utils.transforms import Affine
from napari.viewer import Viewer

_WIDTH = 2.0  # pixels of the screen
_REACH = 12.0  # pixels of the screen within which the line is grabbed


class Line:
    """A line over the whole height of a layer, at a place along its last axis shown.

    Pressing the mouse on it and moving calls `moved` with the new place. It is an image of one
    stretched pixel a slice, which is moved without being drawn anew.
    """

    def __init__(
        self,
        viewer: Viewer,
        layer: Image,
        attributes: dict[str, Any],
        moved: Callable[[int], None],
    ):
        self._viewer, self._under, self._moved = viewer, layer, moved
        # napari 0.9 moved it; older ones have it on the viewer.
        self.camera = viewer.scene.camera if hasattr(viewer, "scene") else viewer.camera
        self.at = 0
        axes = self.axes() or (layer.ndim - 2, layer.ndim - 1)
        shape = [
            1 if axis in axes else length
            for axis, length in enumerate(layer.data.shape[: layer.ndim])
        ]
        bright = np.broadcast_to(np.uint8(255), shape)
        looks = {"rgb": False, "colormap": "yellow", "contrast_limits": (0, 255)}
        looks["blending"] = "translucent_no_depth"
        self.layer = Image(bright, multiscale=False, **looks, **attributes)
        viewer.layers.append(self.layer)
        viewer.mouse_drag_callbacks.append(self._drag)

    def remove(self) -> None:
        """Leave the canvas as it was."""
        if self._drag in self._viewer.mouse_drag_callbacks:
            self._viewer.mouse_drag_callbacks.remove(self._drag)
        if self.layer in self._viewer.layers:
            self._viewer.layers.remove(self.layer)

    def axes(self) -> tuple[int, int] | None:
        """Return the layer's axes down and across the screen; None where it is not so shown."""
        return shown_axes(self._viewer, self._under)

    def show(self, at: int) -> None:
        """Draw the line before pixel `at`, on the slice shown."""
        self.at = at
        self.layer.visible = (axes := self.axes()) is not None
        if axes is None:
            return
        down, across = axes
        height, under = self._under.data.shape[down], self._under
        scale, middle = np.array(under.scale, float), np.zeros(under.ndim)
        middle[down], middle[across] = (height - 1) / 2, at - 0.5
        place = {name: getattr(under, name) for name in ("scale", "translate", "rotate", "shear")}
        self.layer.translate = Affine(**place)(middle)
        scale[down] *= height
        scale[across] *= max(_WIDTH / self._pixel(across), 1e-3)
        if not np.allclose(scale, self.layer.scale, rtol=1e-3, atol=0):
            self.layer.scale = scale

    def _pixel(self, axis: int) -> float:
        """Return the pixels of the screen that a pixel of the layer takes along an axis."""
        ends = np.zeros((2, self._under.ndim))
        ends[1, axis] = 1
        first, second = (np.asarray(self._under.data_to_world(each)) for each in ends)
        return max(float(np.linalg.norm(second - first)) * self.camera.zoom, 1e-6)

    def _drag(self, viewer: Viewer, event: Any) -> Generator[None, None, None]:
        axes = self.axes()
        if axes is None or event.button != 1:
            return
        across = axes[1]
        distance = abs(self._place(event, across) - (self.at - 0.5))
        if distance * self._pixel(across) > _REACH:
            return
        # Else the picture would move with the line.
        panning, self.camera.mouse_pan = self.camera.mouse_pan, False
        try:
            yield
            while event.type == "mouse_move":
                place = round(self._place(event, across) + 0.5)
                self._moved(min(max(place, 0), self._under.data.shape[across]))
                yield
        finally:
            self.camera.mouse_pan = panning

    def _place(self, event: Any, axis: int) -> float:
        return float(self._under.world_to_data(event.position)[axis])


def shown_axes(viewer: Viewer, layer: Image) -> tuple[int, int] | None:
    """Return the axes of a layer that go down and across the screen; None in 3D."""
    first = viewer.dims.ndim - layer.ndim
    axes = tuple(axis - first for axis in viewer.dims.displayed)
    return axes if len(axes) == 2 and min(axes) >= 0 else None
