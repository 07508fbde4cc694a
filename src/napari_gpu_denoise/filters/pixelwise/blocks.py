"""The blocks of pixels that work-items filter, and the arrays around them."""

from __future__ import annotations

from dataclasses import dataclass

from napari_gpu_denoise.filters.pixelwise.settings import PixelwiseSettings
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.protocol.tiles import Tile

# Vectors of a block on a CPU; work-items of a row of a group on a GPU, and most rows of them.
_VECTORS = 8
_ITEMS = 32
_MOST_GROUP_Y = 2
# Most rows of a block, and most pixels to compare that an item of a GPU can keep in registers.
_MOST_ROWS = {"CPU": 10, "GPU": 8}
_HELD = 104
# Bytes of local memory of a group, and offsets along y for which it should hold pixels.
_LOCAL_BYTES = 49152
_CHUNK = 8


@dataclass(frozen=True)
class Group:
    """How a work-group of a GPU shares its work; see average_columns.cl for the names."""

    group_y: int
    columns: int
    chunk: int
    pair: int
    held: bool

    @classmethod
    def of(cls, settings: PixelwiseSettings, device: Device, rows: int, planes: int, nvidia: bool):
        """Return the group for so many planes compared; None if they do not fit local memory."""
        offsets, reached = settings.window, rows + settings.patch - 1
        columns = 4 if planes == 1 else 2
        held = reached * columns * planes <= _HELD
        # Offsets that share what they read; with more planes there are too few registers.
        pair = 3 if planes <= 2 else 1
        if not held:
            pair = 2
        elif 8 * (-offsets % pair) > offsets:  # wasted, where the last ones are fewer
            pair = 1
        across = columns * (_ITEMS + 2 * -(-(settings.window // 2) // columns))
        limit = min(device.local_memory, _LOCAL_BYTES)
        most = -(-offsets // pair) * pair
        # As many offsets at a time as fit, but rather fewer items than very few offsets.
        for least in (min(_CHUNK, most), pair):
            for group_y in range(_MOST_GROUP_Y, 0, -1):
                if _ITEMS * group_y > device.max_group:
                    continue
                high = group_y * rows + settings.patch - 1
                taken = 0 if held else 4 * columns * _ITEMS * planes * high
                taken += 0 if nvidia else 8 * columns * _ITEMS * group_y * rows
                chunk = (limit - taken) // (4 * planes * across) - high + 1
                chunk = min(chunk, most) // pair * pair
                if chunk >= least:
                    return cls(group_y, columns, chunk, pair, held)
        return None


@dataclass(frozen=True)
class Blocks:
    """How the pixels of a tile are shared out.

    A block has `rows` x `width` pixels and begins at multiples of `rows` and of `split` of the
    image. `lanes` is the length of a vector; `group` the work-groups on a GPU, None for the kernel
    of CPUs. `around` is how far the search and a patch reach, `left` how many pixels of a row lie
    before the first that a group compares on a GPU; the first group yields `early` columns too
    many, before the first pixel.
    """

    rows: int
    width: int
    lanes: int
    around: int
    group: Group | None = None
    left: int = 0
    halo: int = 0
    early: int = 0

    @classmethod
    def of(cls, settings: PixelwiseSettings, device: Device, channels: int) -> Blocks:
        """Return the blocks that suit a device, for channels that are filtered together."""
        radius, window = settings.patch // 2, settings.window // 2
        lanes = max((n for n in (4, 8, 16) if n <= device.float_lanes), default=1)
        most = _MOST_ROWS["CPU" if lanes > 1 else "GPU"]
        # Whole runs of patches, see column_sums.h.
        rows = settings.patch * (most // settings.patch) or 8
        around = radius + window
        if lanes == 1:
            compared = 1 if channels > 1 and settings.guide >= 0 else channels
            planes = compared * (2 * settings.patch_slices + 1)
            nvidia = "nvidia" in device.vendor.lower()
            group = Group.of(settings, device, rows, planes, nvidia)
            if group is not None:
                columns = group.columns
                halo = -(-radius // columns)
                left = -(-window // columns) * columns
                # In whole items, those columns whose patches a row of items knows.
                width = (columns * _ITEMS - 2 * radius) // columns * columns
                early = columns * halo - radius
                return cls(rows, width, 1, around, group, left, halo, early)
        return cls(rows, lanes * _VECTORS, lanes, around)

    @property
    def split(self) -> int:
        """Parts that rows are split into, see spread_pixels.cl."""
        return self.group.columns if self.group else 1

    def skipped(self, tile: Tile) -> tuple[int, int]:
        """Return the rows and columns that the first block has before a tile."""
        return tile.y.start % self.rows, tile.x.start % self.split

    def counts(self, tile: Tile) -> tuple[int, int]:
        """Return the blocks along y and x; on a GPU whole groups of them."""
        skip_y, skip_x = self.skipped(tile)
        down = -(-(skip_y + tile.y.size) // self.rows)
        if self.group:
            down = -(-down // self.group.group_y) * self.group.group_y
        return down, -(-(self.early + skip_x + tile.x.size) // self.width)

    def shape(self, tile: Tile) -> tuple[int, int]:
        """Return the shape of a frame with room around it."""
        down, across = self.counts(tile)
        room = 2 * self.around + self.lanes
        if self.group:
            room = 2 * self.left + 2 * self.group.columns * self.halo
        return down * self.rows + 2 * self.around, -(-(across * self.width + room) // 4) * 4

    def corner(self, tile: Tile) -> tuple[int, int]:
        """Return the place (y, x) of the first pixel of such a frame in the image."""
        skip_y, skip_x = self.skipped(tile)
        room = self.left + self.group.columns * self.halo if self.group else self.around
        return tile.y.start - skip_y - self.around, tile.x.start - skip_x - room

    def grid(self, tile: Tile) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return global and local size of the launch that filters a tile."""
        down, across = self.counts(tile)
        frames = tile.t.size * tile.z.size
        if not self.group:
            return (across, down, frames), (1, 1, 1)
        return (across * _ITEMS, down, frames), (_ITEMS, self.group.group_y, 1)
