"""Launch the kernels of the isoline filter for one tile, over padded images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.isoline.margins import Padded
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Buffers, Launches


@dataclass(frozen=True)
class PaddedImages:
    """Padded images on the device, and their noise."""

    buffer: Any  # float32, (count, padded height, pitch)
    along: tuple  # the same, averaged across lines that run along x, and along y
    count: int
    noise: tuple  # kernel arguments: levels, variation, relative noise
    speckle: bool  # whether the noise is relative to the mean

    @property
    def noise_constants(self) -> dict[str, int]:
        """Build constants for the kind of noise."""
        return {"SPECKLE": int(self.speckle), "SIGMA_MAP": int(self.noise[1] is not None)}

    @property
    def looks(self) -> np.float32:
        """Number of looks as a kernel argument; 0 for additive noise."""
        return np.float32(self.noise[2] ** -2 if self.speckle else 0)


class TileLaunches:
    """Launches kernels for one tile, in the buffers `held` for it, and lists the events."""

    def __init__(self, arena: Arena, queue, padded: Padded, held: Buffers):
        self.arena = arena
        self.queue = queue
        self.padded = padded
        self.held = held
        self.launches: Launches = []
        # Kernel arguments: height and pitch of padded images.
        self.layout = (np.int32(padded.shape[0]), np.int32(padded.pitch))

    def launch(self, name: str, constants: dict, region: tuple, count: int, *before, after=()):
        """Launch a kernel over a region of some images."""
        _, _, ny, nx = region
        arguments = (*before, *map(np.int32, region), *after)
        self._launch(name, name, constants, (nx, ny, count), arguments)

    def levels(self, level: float, count: int):
        """Return a buffer of noise levels with the same value for every frame."""
        import pyopencl as cl

        levels = self.held["isoline levels"]
        event = cl.enqueue_fill_buffer(self.queue, levels, np.float32(level), 0, 4 * count)
        self.launches.append(("levels", event))
        return levels

    def logarithm(self, source, count: int):
        """Return the logarithm of the images of the tile."""
        y, x = self.padded.tile.y, self.padded.tile.x
        lengths = (y.source_size, x.source_size, y.source_start, x.source_start, y.length, x.length)
        out = self.held["isoline logarithm"]
        sizes = (x.source_size, y.source_size, count)
        arguments = (source, *map(np.int32, lengths), out)
        self._launch("logarithm", "take_logarithm", {}, sizes, arguments)
        return out

    def mirrored(self, name: str, source, count: int, share: float = 0.0) -> tuple[Any, tuple]:
        """Pad images of the tile by mirroring; return `buffer` and `along` of `PaddedImages`.

        `share` is the weight of the pixels on either side of a line; with 0 all three are the same.
        """
        tile, (ny, nx) = self.padded.tile, self.padded.shape
        padded = self.held[f"isoline {name}"]
        along, more = (padded, padded), ()
        if share > 0:
            along = tuple(self.held[f"isoline {name} along {axis}"] for axis in "xy")
            more = (np.float32(share), *along)
        lengths = (
            *(tile.y.source_size, tile.x.source_size, tile.y.source_start, tile.x.source_start),
            *(tile.y.length, tile.x.length, *self.padded.origin, ny, nx, self.padded.pitch),
        )
        constants = {"THICKEN": int(share > 0)}
        arguments = (source, *map(np.int32, lengths), padded, *more)
        sizes = (self.padded.pitch, ny, count)
        self._launch("mirror", "mirror_tile", constants, sizes, arguments)
        return padded, along

    def _launch(self, name: str, file: str, constants: dict, sizes: tuple, arguments: tuple):
        kernel = self.arena.kernel(f"isoline/{file}", constants)
        grid = pixel_grid(self.arena.session.device, *sizes)
        self.launches.append((name, kernel(self.queue, *grid, *arguments)))
