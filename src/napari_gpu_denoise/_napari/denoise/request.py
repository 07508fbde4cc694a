"""The request of a run, from the panel to the worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from napari.layers import Image

from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.noise.memory import memory_of
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.request import Run

ONE_SIGMA = "gaussian"  # the noise that is one sigma for each channel


@dataclass(frozen=True)
class Request:
    """All that a run needs: the layer, what to do, one frame or slice alone, and whether maps too.

    It holds no napari or Qt objects. Without `frame` and `slice`, places along T and Z, everything
    is filtered. Axes are named in `run`. `memory` is what is known of noise that is found
    automatically. `target` is a file that takes the result.
    """

    source: Source
    run: Run
    frame: int | None = None
    maps: bool = False
    slice: int | None = None
    memory: NoiseMemory | None = None
    target: Path | None = None

    @property
    def time(self) -> int | None:
        """The axis of time, if it is longer than one frame."""
        axis = self.run.axes.find("T")
        return axis if axis >= 0 and self.source.data.shape[axis] > 1 else None

    @property
    def places(self) -> dict[int, int]:
        """The frame and the slice that are filtered alone, by axis."""
        chosen = {"T": self.frame, "Z": self.slice}
        axes = self.run.axes.upper()
        return {axes.index(a): place for a, place in chosen.items() if place is not None}


def remembering(request: Request, layer: Image) -> Request:
    """Return a request for a layer that measures its noise only if no other run has."""
    run = request.run
    if run.sigma is not None or run.noise not in (None, ONE_SIGMA):
        return request
    key = run.axes, run.correct, run.nonfinite, run.device
    return replace(request, memory=memory_of(layer, run.noise or "auto", *key))
