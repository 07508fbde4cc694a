"""Find the most similar cubes of every reference cube, on one device."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm4d.cube_settings import CubePass, choose_search
from napari_gpu_denoise.filters.search.patch_search import Grid, Variant
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes
from napari_gpu_denoise.protocol.tiles import Tile


def box_offsets(windows: tuple[int, int, int]) -> np.ndarray:
    """Return the displacements of a search window as int32 rows (0, dz, dy, dx), nearest first."""
    axes = (range(-(width // 2), width // 2 + 1) for width in windows)
    table = np.array(list(itertools.product([0], *axes)), dtype=np.int32)
    _, dz, dy, dx = table.T
    return table[np.lexsort((dx, dy, dz, (table**2).sum(axis=1)))]


@dataclass(frozen=True)
class Volumes:
    """float32 volumes on the device: those that `tile` yields.

    If they are some of the slots of a `ring`, the first one is in slot `first`. `links`, of the
    shape (volumes, 3), bring each to the grey levels of one of them, see `FrameLinks`.
    """

    buffer: Any
    tile: Tile
    first: int = 0
    ring: int | None = None
    links: Any = None


@dataclass(frozen=True)
class CubeLayout:
    """How volumes lie in a padded copy, and where their reference cubes are."""

    grids: tuple[Grid, Grid, Grid]  # along z, y, x
    shape: tuple[int, int, int]  # of a padded volume: pnz, pny, pitch
    origin: tuple[int, int, int, int]  # of the tile in it: the volume, and its first voxel
    vectors: int  # of references in a row, for kernels that compare a vector at once

    @property
    def arguments(self) -> tuple:
        """PLACE_ARGUMENTS of the kernels."""
        grids = (value for grid in self.grids for value in (grid.first, grid.last, grid.count))
        return tuple(map(np.int32, (*self.shape, *self.origin, *grids)))

    @property
    def voxels(self) -> int:
        """Number of voxels of a padded volume."""
        return math.prod(self.shape)

    @property
    def references(self) -> int:
        """Number of reference cubes of a volume."""
        return math.prod(grid.count for grid in self.grids)


class CubeSearch:
    """Kernels of a search for similar cubes; belongs to one thread.

    Where volumes are filtered, `tile` has the spans that reference cubes must cover, and reads what
    is available of the image that is searched. Volumes are those of all channels and times; if
    groups take cubes of other times, the tile yields one and reads those around it.
    """

    def __init__(self, one: CubePass, arena: Arena, variant: Variant | None = None):
        self.one, self.arena = one, arena
        self.variant = variant or choose_search(one, arena.session.device)
        offsets = box_offsets(one.windows)
        self.index_bits = {"INDEX_BITS": max(1, (len(offsets) - 1).bit_length())}
        self._search = arena.kernel(
            f"bm4d/{self.variant.kernel}",
            {
                **one.constants,
                "NEIGHBOURS": one.neighbours,
                **self.index_bits,
                **self.variant.constants,
            },
        )
        ranks = np.lexsort(offsets.T[::-1]).astype(np.int32)
        self.offsets = constant_buffer(arena.session, offsets)
        self._ranks = constant_buffer(arena.session, ranks)

    def layout(self, tile: Tile) -> CubeLayout:
        """Return how the volumes of a tile are laid out."""
        one, constants = self.one, self.variant.constants
        axes = zip((tile.z, tile.y, tile.x), one.cube, one.steps, strict=True)
        grids = tuple(Grid.of(*axis) for axis in axes)
        # Cubes begin up to a side before the voxels that they cover: sums are read there.
        pairs = zip(one.windows, one.cube, strict=True)
        before = [max(window // 2, side - 1) for window, side in pairs]
        after = [window // 2 for window in one.windows]
        lanes, step, columns = constants.get("LANES", 1), one.steps[2], grids[2]
        vectors = -(-columns.regular // lanes)
        irregular = columns.count > columns.regular
        # The vector that ends with the last reference may begin before the image, and the last
        # regular vector may end beyond it: both read from the margin.
        if irregular:
            before[2] += max((lanes - 1) * step - columns.last, 0)
        reached = columns.first + (vectors * lanes - 1) * step + one.cube[2]
        beyond = constants["CHUNK"] * constants["CHUNKS"] - one.windows[2]
        _, snz, sny, snx = tile.source_shape
        width = before[2] + max(snx, reached) + after[2] + beyond
        quantum = 16 * self.variant.split
        shape = (before[0] + snz + after[0], before[1] + sny + after[1])
        pitch = -(-width // quantum) * quantum
        origin = (tile.t.margin, *before)
        return CubeLayout(grids, (*shape, pitch), origin, vectors + irregular)

    def buffers(self, tile: Tile) -> Sizes:
        """Return the buffers that a tile needs."""
        at, read = self.layout(tile), tile.channels * tile.t.source_size
        references = tile.channels * tile.t.size * at.references
        sizes = {
            "padded": 4 * read * at.voxels,
            "keys": 4 * references * self.one.neighbours,
        }
        return {**sizes, "split": sizes["padded"]} if self.variant.split > 1 else sizes

    def pad(self, queue, given: Volumes, into: Tile, buffer, split: int = 1) -> tuple[str, Any]:
        """Enqueue a padded copy of volumes, in the layout of a tile; return the launch."""
        i32, at, part = np.int32, self.layout(into), given.tile
        pnz, pny, pitch = at.shape
        count, read = part.channels * part.t.size, into.channels * into.t.source_size
        spans = zip((part.z, part.y, part.x), (into.z, into.y, into.x), at.origin[1:], strict=True)
        places = (first + one.start - other.source_start for one, other, first in spans)
        missing = part.t.start - into.t.source_start
        alike = int(given.links is not None)
        pad = self.arena.kernel("search/pad_far", {"SPLIT": split, "ALIKE": alike})
        launch = pad(
            queue,
            *pixel_grid(self.arena.session.device, pitch, pny, read * pnz),
            *(given.buffer, *map(i32, (given.first, given.ring or count, count, *part.shape[1:]))),
            *(buffer, *map(i32, (pnz, pny, pitch, missing, *places))),
            *((given.links,) if alike else ()),
        )
        return "pad", launch

    def enqueue(self, queue, tile: Tile, searched: Volumes, held: Buffers) -> Launches:
        """Enqueue the search; fills padded and keys."""
        split, at, buffer = self.variant.split, self.layout(tile), held["padded"]
        launches = [self.pad(queue, searched, tile, buffer)]
        if split > 1:
            buffer = held["split"]
            launches.append(self.pad(queue, searched, tile, buffer, split))
        columns, rows, volumes = at.grids[2], at.grids[1], tile.channels * tile.t.size
        layers, constants = at.grids[0].count * volumes, self.variant.constants
        if self.variant.kernel == "search_cube_lanes":
            regular = -(-columns.regular // constants["LANES"])
            grid, group = (at.vectors, rows.count, layers), (1, 1, 1)
            more = (np.int32(regular),)
            if not self.arena.session.device.shares_cores:
                group = None
        else:
            wide, high = (constants[f"GROUP_{axis}"] for axis in "XY")
            across, down = -(-columns.count // wide), -(-rows.count // high)
            grid, group = (across * wide, down * high, layers), (wide, high, 1)
            more = ()
        search = self._search(
            queue, grid, group, buffer, *at.arguments, *more, self._ranks, held["keys"]
        )
        return [*launches, ("search", search)]
