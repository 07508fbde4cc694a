"""Variance stabilisation on the device, between the transfer of pixels and the filter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.models.base import Table
from napari_gpu_denoise.opencl.kernel import value_grid, values_per_item
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.frame_notes import FrameNote
from napari_gpu_denoise.run.plan import Launches
from napari_gpu_denoise.run.tiles import Tile


class Stabilisation:
    """Makes the noise of pixels the same everywhere, and converts results back to grey levels.

    Both happen in place, in float32 buffers, so that filters do not need to know about it. There is
    one model for all pixels, or one for each model number of frames. `signed` says whether results
    may be negative, as needed for the mean of a magnitude without signal. With `maps`, results are
    not grey levels, and are not converted back.
    """

    def __init__(self, models: Sequence[NoiseModel], arena: Arena, signed: bool, maps: bool):
        self._models, self._device, self._maps = models, arena.session.device, maps
        self._transforms = [_transforms(model, arena, signed) for model in models]

    def forward(self, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        """Stabilise consecutive frames of `pixels` pixels; `numbers` has the model of each."""
        return self._run("stabilise", queue, values, numbers, pixels)

    def forward_tile(self, queue, values, numbers: np.ndarray, tile: Tile) -> Launches:
        """Stabilise what a tile reads; `numbers` (channels, nt * nz) are of what it yields."""
        # The margins of a tile along t and z have the model of the frames next to them.
        places = [
            np.clip(np.arange(span.source_start, span.source_stop) - span.start, 0, span.size - 1)
            for span in (tile.t, tile.z)
        ]
        yielded = numbers.reshape(tile.channels, tile.t.size, tile.z.size)
        read = yielded[:, places[0]][:, :, places[1]].ravel()
        return self.forward(queue, values, read, math.prod(tile.source_shape[2:]))

    def inverse(self, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        """Convert filtered frames back to grey levels, without bias; arguments as in `forward`."""
        return [] if self._maps else self._run("inverse", queue, values, numbers, pixels)

    def note(self, note: FrameNote) -> FrameNote:
        """Return a note with the brightness of stabilised values."""
        if note.means is None:
            return note
        models = (self._models[k] for k in note.models)
        means = [model.stabilise(row) for model, row in zip(models, note.means, strict=True)]
        return replace(note, means=np.array(means, np.float64))

    def _run(self, way: str, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        launches = []
        for first, count, number in _runs(numbers):
            kernel, arguments = self._transforms[number][way]
            size = count * pixels
            event = kernel(
                *(queue, *value_grid(size, self._device)),
                *(values, np.uint64(first * pixels), np.uint64(size), *arguments),
            )
            launches.append((way, event))
        return launches


def _transforms(model: NoiseModel, arena: Arena, signed: bool) -> dict[str, tuple]:
    """Return kernel and arguments of both transforms of a model, by name."""
    transform = model.transform(signed)
    constants = {"VALUES": values_per_item(arena.session.device)}
    ways = {"stabilise": transform.forward, "inverse": transform.inverse}
    return {
        way: (
            arena.kernel(f"noise/{way}_{transform.law}", constants),
            [argument for given in arguments for argument in _kernel_arguments(given, arena)],
        )
        for way, arguments in ways.items()
    }


def _kernel_arguments(argument: Any, arena: Arena) -> tuple:
    """Return an argument for a kernel; a table as values, length, start and steps per unit."""
    if not isinstance(argument, Table):
        return (argument,)
    import pyopencl as cl

    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(arena.session.context, flags, hostbuf=argument.values)
    count = np.int32(len(argument.values))
    return buffer, count, np.float32(argument.start), np.float32(argument.steps)


def _runs(numbers: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield first, count and value of equal neighbours."""
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    first = 0
    for end in map(int, ends):
        yield first, end - first, int(numbers[first])
        first = end
