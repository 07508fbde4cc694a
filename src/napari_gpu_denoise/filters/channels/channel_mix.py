"""Channels that are filtered together: as opponent colours, or matched by one image of them all."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.pixels import Noisy, Pixels
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.work_items import pixel_grid
from napari_gpu_denoise.run.plan import Buffers, Sizes
from napari_gpu_denoise.run.tiles import Tile

# Orthonormal luminance and chrominance of red, green and blue.
OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


class ChannelMix:
    """Mixes channels on one device; belongs to one thread.

    Parameters
    ----------
    opponent : bool
        Whether three channels are filtered as luminance and chrominance, and matched by luminance;
        otherwise they stay as they are and are matched by the guide.
    guide : int
        Which channel is matched; -1 for the mean of all, each divided by its noise.
    arena : Arena
        Keeps the buffers.
    weighted : bool, optional
        Whether channels are divided by their noise for that mean.
    """

    def __init__(self, opponent: bool, guide: int, arena: Arena, weighted: bool = True):
        self.opponent = opponent
        self.weighted = weighted
        self.guide_channel = guide
        self.arena = arena
        self._mix = arena.kernel("bm3d/mix_channels", {})
        self._mix_levels = arena.kernel("bm3d/mix_levels", {})
        self._matrices: dict[bytes, Any] = {}

    def buffers(self, tile: Tile) -> Sizes:
        """Return the buffers of what is filtered in place of the channels of a tile."""
        return _mixture("opponent", tile, len(OPPONENT)) if self.opponent else {}

    def guide_buffers(self, tile: Tile, name: str) -> Sizes:
        """Return the buffers of the one channel that is searched in an image of that name."""
        return {} if self.opponent else _mixture(f"{name} guide", tile, 1)

    def begin(self, queue, noisy: Noisy, held: Buffers, launches: list) -> Noisy:
        """Return what is filtered in place of the channels given."""
        if not self.opponent:
            return noisy
        return self._mixed(queue, noisy, OPPONENT, False, "opponent", held, launches)

    def guide(self, queue, image: Noisy, name: str, held: Buffers, launches: list) -> Noisy:
        """Return the one channel that is searched."""
        channels = image.pixels.tile.channels
        if self.opponent:
            # Luminance comes first: the same buffers, of which less is read.
            return replace(image, pixels=replace_channels(image.pixels, 1))
        weighted = self.guide_channel < 0 and self.weighted
        row = np.full((1, channels), 1 / channels)
        if self.guide_channel >= 0:
            row = np.eye(channels)[self.guide_channel : self.guide_channel + 1]
        return self._mixed(queue, image, row, weighted, f"{name} guide", held, launches)

    def end(self, queue, image: Noisy, out, launches: list) -> None:
        """Write the channels as they were given."""
        self._enqueue(queue, image, OPPONENT.T, False, out, launches)

    def _mixed(self, queue, image: Noisy, matrix, weighted, name: str, held, launches) -> Noisy:
        tile = replace(image.pixels.tile, channels=len(matrix))
        frames = tile.t.size * tile.z.size
        made, levels = held[name], held[f"{name} levels"]
        self._enqueue(queue, image, matrix, weighted, made, launches)
        launch = self._mix_levels(
            queue,
            (frames, len(matrix)),
            (1, 1),
            *(image.levels, np.int32(matrix.shape[1]), self._matrix(matrix)),
            *(np.int32(weighted), levels),
        )
        launches.append(("mix levels", launch))
        return Noisy(Pixels(made, tile), levels, image.variation)

    def _enqueue(self, queue, image: Noisy, matrix, weighted: bool, out, launches) -> None:
        nt, nz, ny, nx = image.pixels.tile.shape
        launch = self._mix(
            queue,
            *pixel_grid(self.arena.session.device, nx, ny, len(matrix) * nt * nz),
            *(image.pixels.buffer, *map(np.int32, (matrix.shape[1], nt * nz, ny, nx))),
            *(self._matrix(matrix), image.levels, np.int32(weighted), out),
        )
        launches.append(("mix channels", launch))

    def _matrix(self, matrix: np.ndarray):
        import pyopencl as cl

        values = np.ascontiguousarray(matrix, np.float32)
        key = values.tobytes()
        if key not in self._matrices:
            flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
            context = self.arena.session.context
            self._matrices[key] = cl.Buffer(context, flags, hostbuf=values)
        return self._matrices[key]


def _mixture(name: str, tile: Tile, channels: int) -> Sizes:
    """Return the buffers of some mixtures of channels, and of their noise."""
    nt, nz, *_ = tile.shape
    return {name: 4 * channels * math.prod(tile.shape), f"{name} levels": 4 * channels * nt * nz}


def replace_channels(pixels: Pixels, channels: int) -> Pixels:
    """Return the first channels of some pixels."""
    return replace(pixels, tile=replace(pixels.tile, channels=channels))
