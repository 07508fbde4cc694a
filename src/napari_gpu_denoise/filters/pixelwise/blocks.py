"""The blocks of pixels that work-items filter, and the arrays around them."""

from __future__ import annotations

from dataclasses import dataclass

from napari_gpu_denoise.filters.pixelwise.settings import PixelwiseSettings
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.tiles import Tile

# Vectors of a block on a CPU; work-items beside each other and below each other on a GPU.
_VECTORS = 8
_ITEMS, _GROUP_Y = 32, 2
_MOST_ROWS = 10


@dataclass(frozen=True)
class Blocks:
    """How the pixels of a tile are shared out.

    A block has `rows` x `width` pixels and begins at multiples of `rows` and of `split` of the
    image. `lanes` is the length of a vector; `group` the shape of a work-group on a GPU, None for
    the kernel of CPUs. `around` is how far the search and a patch reach, `halo` the work-items at
    either end of a row of a group that are only there for the others.
    """

    rows: int
    width: int
    lanes: int
    around: int
    window: int
    group: tuple[int, int] | None = None
    halo: int = 0

    @classmethod
    def of(cls, settings: PixelwiseSettings, device: Device) -> Blocks:
        """Return the blocks that suit a device."""
        radius, window = settings.patch // 2, settings.window // 2
        # Whole runs of patches, see column_sums.h.
        rows = settings.patch * max(_MOST_ROWS // settings.patch, 1)
        rows = rows if rows <= _MOST_ROWS else 8
        lanes = max((n for n in (4, 8, 16) if n <= device.float_lanes), default=1)
        around = radius + window
        if lanes > 1 or device.max_group < _ITEMS * _GROUP_Y:
            return cls(rows, lanes * _VECTORS, lanes, around, window)
        rows = settings.patch if settings.patch in (5, 7) else min(rows, 8)
        halo = -(-radius // 4)
        width = 4 * (_ITEMS - 2 * halo)
        found = cls(rows, width, 1, around, window, (_ITEMS, _GROUP_Y), halo)
        if device.local_memory < 2 * 4 * 4 * _ITEMS * _GROUP_Y * rows:
            return cls(rows, _VECTORS, 1, around, window)
        return found

    @property
    def split(self) -> int:
        """Parts that rows are split into, see spread_pixels.cl."""
        return 4 if self.group else 1

    @property
    def left(self) -> int:
        """Pixels of a row before the first one that is compared, on a GPU."""
        return -(-self.window // 4) * 4

    def skipped(self, tile: Tile) -> tuple[int, int]:
        """Return the rows and columns that the first block has before a tile."""
        return tile.y.start % self.rows, tile.x.start % self.split

    def counts(self, tile: Tile) -> tuple[int, int]:
        """Return the blocks along y and x; on a GPU whole groups of them."""
        skip_y, skip_x = self.skipped(tile)
        down = -(-(skip_y + tile.y.size) // self.rows)
        if self.group:
            down = -(-down // self.group[1]) * self.group[1]
        return down, -(-(skip_x + tile.x.size) // self.width)

    def shape(self, tile: Tile) -> tuple[int, int]:
        """Return the shape of a frame with room around it."""
        down, across = self.counts(tile)
        room = 2 * self.left + 8 * self.halo if self.group else 2 * self.around + self.lanes
        return down * self.rows + 2 * self.around, -(-(across * self.width + room) // 4) * 4

    def corner(self, tile: Tile) -> tuple[int, int]:
        """Return the place (y, x) of the first pixel of such a frame in the image."""
        skip_y, skip_x = self.skipped(tile)
        room = self.left + 4 * self.halo if self.group else self.around
        return tile.y.start - skip_y - self.around, tile.x.start - skip_x - room

    def grid(self, tile: Tile) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return global and local size of the launch that filters a tile."""
        down, across = self.counts(tile)
        frames = tile.t.size * tile.z.size
        if not self.group:
            return (across, down, frames), (1, 1, 1)
        return (across * self.group[0], down, frames), (*self.group, 1)
