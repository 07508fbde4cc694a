"""The request of a run, from the panel to the worker."""

from __future__ import annotations

from dataclasses import dataclass

from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise.run.job import Run


@dataclass(frozen=True)
class Request:
    """All that a run needs: the layer, what to do, the one frame along T, and whether maps too.

    It holds no napari or Qt objects. Without `frame` all frames are filtered. Axes are named
    in `run`.
    """

    source: Source
    run: Run
    frame: int | None = None
    maps: bool = False

    @property
    def time(self) -> int | None:
        """The axis of time, if it is longer than one frame."""
        axis = self.run.axes.find("T")
        return axis if axis >= 0 and self.source.data.shape[axis] > 1 else None
