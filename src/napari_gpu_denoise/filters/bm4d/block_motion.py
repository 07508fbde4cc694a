"""Follow blocks of a volume through the volumes before and after it, on one device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm4d.cube_search import CubeLayout
from napari_gpu_denoise.filters.bm4d.cube_settings import CubePass
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes
from napari_gpu_denoise.protocol.tiles import Tile

_TEAM = 64  # work-items that try the displacements of a block


class CubeMotion:
    """Kernel of a search for the motion of blocks; belongs to one thread.

    Blocks have twice the sides of a cube, and lie alike in all tiles of a volume.
    """

    def __init__(self, one: CubePass, arena: Arena):
        self.one = one
        team = min(_TEAM, arena.session.device.max_group)
        windows = zip("ZYX", one.next_windows, strict=True)
        constants = {**one.constants, **{f"WINDOW_{axis}": width for axis, width in windows}}
        self._team = team
        self._follow = arena.kernel("bm4d/follow_blocks", {**constants, "TEAM": team})

    def _blocks(self, tile: Tile) -> tuple[list[int], list[int]]:
        """Return the blocks of what a tile reads along z, y, x, and voxels of the first before."""
        sides = [2 * side for side in self.one.cube]
        spans = (tile.z, tile.y, tile.x)
        shifts = [span.source_start % side for span, side in zip(spans, sides, strict=True)]
        each = zip(spans, shifts, sides, strict=True)
        return [-(-(span.source_size + shift) // side) for span, shift, side in each], shifts

    def arguments(self, tile: Tile) -> tuple:
        """Kernel arguments: size of what is read, and MOTION_ARGUMENTS."""
        blocks, shifts = self._blocks(tile)
        return tuple(map(np.int32, (*tile.source_shape[1:], *blocks, *shifts)))

    def buffers(self, tile: Tile) -> Sizes:
        """Return the buffer for the motion of all blocks of a tile."""
        blocks, _ = self._blocks(tile)
        return {"motion": 16 * tile.t.source_size * math.prod(blocks)}

    def enqueue(
        self,
        queue,
        tile: Tile,
        at: CubeLayout,
        still: float,
        times: range,
        slices: tuple,
        held: Buffers,
    ) -> Launches:
        """Enqueue the search in padded volumes, outwards from that of the references.

        `still` is in squared grey levels; `times` are those there, relative to the references;
        `slices` are kernel arguments: sigma of the slices, how many there are, and the first.
        """
        blocks, _ = self._blocks(tile)
        bz, by, bx = blocks
        launches: list[tuple[str, Any]] = []
        for time in sorted(times, key=abs):
            if time == 0:
                continue
            nearer = time - int(math.copysign(1, time))
            launch = self._follow(
                queue,
                (self._team, bx, by * bz),
                (self._team, 1, 1),
                *(held["padded"], *at.arguments[:7], *self.arguments(tile)),
                *(np.int32(time), np.int32(nearer), np.float32(still)),
                *(*slices, np.float32(self.one.similar_block), held["motion"]),
            )
            launches.append(("follow", launch))
        return launches
