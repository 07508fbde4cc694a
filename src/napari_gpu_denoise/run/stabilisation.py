"""Variance stabilisation on the device: a stage between the transfer of pixels and the filter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.models.curves import Table
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.work_items import value_grid, values_together
from napari_gpu_denoise.run.frame_notes import FrameNote
from napari_gpu_denoise.run.plan import Launches
from napari_gpu_denoise.run.tiles import Tile


class Stabilisation:
    """Makes the noise of pixels the same everywhere, and turns results back into grey levels.

    Both happen in place, in float32 buffers, so that filters need not know of it.

    Parameters
    ----------
    models : sequence of NoiseModel
        One for all pixels, or one for each number that frames carry.
    arena : Arena
        Keeps the kernels.
    signed : bool
        Whether results may be negative, as the mean of a magnitude without signal must.
    maps : bool
        Whether results are not grey levels: they are then left as they are.
    """

    def __init__(self, models: Sequence[NoiseModel], arena: Arena, signed: bool, maps: bool):
        self._models, self._device, self._maps = models, arena.session.device, maps
        self._ways = [_ways(model, arena, signed) for model in models]

    def forward(self, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        """Stabilise frames of so many pixels that lie one after another.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        values : pyopencl.Buffer
            float32.
        numbers : ndarray of int, shape (frames,)
            Which model each frame has.
        pixels : int
            Of one frame.
        """
        return self._change("stabilise", queue, values, numbers, pixels)

    def forward_tile(self, queue, values, numbers: np.ndarray, tile: Tile) -> Launches:
        """Stabilise what a tile reads; `numbers` (channels, nt * nz) are of what it yields."""
        # Along axes on which a tile reads more than it yields there is one model.
        places = [
            np.clip(np.arange(span.source_start, span.source_stop) - span.start, 0, span.size - 1)
            for span in (tile.t, tile.z)
        ]
        yielded = numbers.reshape(tile.channels, tile.t.size, tile.z.size)
        read = yielded[:, places[0]][:, :, places[1]].ravel()
        return self.forward(queue, values, read, math.prod(tile.source_shape[2:]))

    def inverse(self, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        """Turn filtered frames back into grey levels, without bias; as `forward` otherwise."""
        return [] if self._maps else self._change("inverse", queue, values, numbers, pixels)

    def note(self, note: FrameNote) -> FrameNote:
        """Return a note in which brightness is that of stabilised values."""
        if note.means is None:
            return note
        models = (self._models[k] for k in note.models)
        means = [model.stabilise(row) for model, row in zip(models, note.means, strict=True)]
        return replace(note, means=np.array(means, np.float64))

    def _change(self, way: str, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        launches = []
        for first, count, number in _runs(numbers):
            kernel, arguments = self._ways[number][way]
            size = count * pixels
            event = kernel(
                *(queue, *value_grid(size, self._device)),
                *(values, np.uint64(first * pixels), np.uint64(size), *arguments),
            )
            launches.append((way, event))
        return launches


def _ways(model: NoiseModel, arena: Arena, signed: bool) -> dict[str, tuple]:
    """Return kernel and arguments of both ways of a model."""
    transform = model.transform(signed)
    constants = {"VALUES": values_together(arena.session.device)}
    ways = {"stabilise": transform.forward, "inverse": transform.inverse}
    return {
        way: (
            arena.kernel(f"noise/{way}_{transform.law}", constants),
            [argument for given in arguments for argument in _sent(given, arena)],
        )
        for way, arguments in ways.items()
    }


def _sent(argument: Any, arena: Arena) -> tuple:
    """Return an argument as kernels take it; a table as values, length, start and steps in 1."""
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
