"""Channels of arrays with named axes."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.image.axes import channel_axis


class Channels:
    """Channels of arrays with named axes, as planes (…, y, x)."""

    def __init__(self, names: str, shape: tuple[int, ...]):
        self._axis = channel_axis(names)
        self._planes = names.index("Y"), names.index("X")
        self.count = 1 if self._axis is None else shape[self._axis]
        self.plane = tuple(shape[k] for k in self._planes)

    def of(self, values: np.ndarray, k: int) -> np.ndarray:
        """Return one channel."""
        planes = np.moveaxis(values, self._planes, (-2, -1))
        if self._axis is None:
            return planes
        before = sum(axis < self._axis for axis in self._planes)
        return planes.take(k, axis=self._axis - before)

    def together(self, channels: list[np.ndarray]) -> np.ndarray:
        """Return an array of which these are the channels."""
        whole = channels[0]
        if self._axis is not None:
            before = sum(axis < self._axis for axis in self._planes)
            whole = np.stack(channels, self._axis - before)
        return np.moveaxis(whole, (-2, -1), self._planes)
