"""Exact pixelwise NL-means on one device: blocks of pixels, kernels and buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, TilePlan, TileSigma
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
    def of(cls, settings: Filter, device: Device, rows: int, planes: int, nvidia: bool):
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
    def of(cls, settings: Filter, device: Device, channels: int) -> Blocks:
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


_WEIGHTS = ("exp", "plain", "bisquare")


class Plan(TilePlan):
    """Kernels and buffers of pixelwise NL-means on one device; belongs to one thread.

    `mixing` is what channels are multiplied by before they are compared.
    """

    def __init__(self, settings: Filter, arena: Arena, mixing: Any = None):
        self.arena, self.settings, self._mixing = arena, settings, None
        if mixing is not None:
            values = np.asarray(mixing, np.float32)
            self._mixing = constant_buffer(arena.session, values)
        device = arena.session.device
        self._taps = constant_buffer(arena.session, taps(settings))
        self._constants = {
            "RADIUS": settings.patch // 2,
            "RADIUS_Z": settings.patch_slices,
            "WINDOW": settings.window // 2,
            "WINDOW_Z": settings.slices,
            "BEFORE": settings.frames_before,
            "AFTER": settings.frames_after,
            "GAUSSIAN": int(settings.patch_shape == "gaussian"),
            "WEIGHTS": _WEIGHTS.index(settings.weights),
            "OWN_MAX": int(settings.own_weight == "max"),
            "COUNTS": int(settings.yields_map),
            "NVIDIA": int(device.float_lanes == 1 and "nvidia" in device.vendor.lower()),
        }

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: its frames with room around them, also whitened."""
        frames = tile.channels * tile.source_shape[0] * tile.source_shape[1]
        nbytes = 4 * frames * math.prod(self._blocks(tile).shape(tile))
        names = ("spread",) if self._mixing is None else ("spread", "whitened")
        return dict.fromkeys(names, nbytes)

    def _blocks(self, tile: Tile) -> Blocks:
        """Return how the pixels of a tile are shared out."""
        return Blocks.of(self.settings, self.arena.session.device, tile.channels)

    def enqueue(
        self,
        queue,
        tile: Tile,
        source,
        out,
        sigma: TileSigma,
        ring: tuple[int, int] | None = None,
        alike: Any = None,
        place: tuple[int, int] | None = None,
        held: Buffers | None = None,
    ) -> Launches:
        """Enqueue the filter for one tile, in buffers `held` or else allocated for it.

        `ring`, `alike` and `place` are those of `RingPlan`.
        """
        held = held or self.hold(tile)
        i32, settings = np.int32, self.settings
        nt, nz, ny, nx = tile.shape
        snt, snz, sny, snx = tile.source_shape
        blocks = self._blocks(tile)
        pny, pitch = blocks.shape(tile)
        skip_y, skip_x = blocks.skipped(tile)
        radius = settings.patch // 2
        constants = {"RADIUS": radius, "SPLIT": blocks.split, "ALIKE": int(alike is not None)}
        spread = self.arena.kernel("pixelwise/spread_pixels", constants)(
            queue,
            *pixel_grid(self.arena.session.device, pitch, pny, tile.channels * snt * snz),
            *(source, *map(i32, (*(ring or (0, snt)), snt, snz, sny, snx))),
            *(i32(tile.y.source_start), i32(tile.x.source_start)),
            *(i32(tile.y.length), i32(tile.x.length), held["spread"], i32(pny), i32(pitch)),
            *(*map(i32, blocks.corner(tile)), *(() if alike is None else (alike,))),
        )
        launches = [("spread", spread)]
        guided = tile.channels > 1 and settings.guide >= 0
        compared, first = held["spread"], settings.guide if guided else 0
        if self._mixing is not None:
            compared, first = held["whitened"], -1
            event = self.arena.kernel("pixelwise/whiten_channels", {"CHANNELS": tile.channels})(
                queue,
                *pixel_grid(self.arena.session.device, pitch, pny, snt * snz),
                *(held["spread"], i32(snt * snz), i32(pny), i32(pitch), self._mixing, compared),
            )
            launches.append(("whiten", event))
        constants = {
            **self._constants,
            "CHANNELS": tile.channels,
            "COMPARED": 1 if guided else tile.channels,
            "SIGMA_MAP": int(sigma.variation is not None),
        }
        margins = tile.t.margin, tile.z.margin, tile.z.source_start, tile.z.length, skip_y
        constants["ROWS"] = blocks.rows
        if blocks.group:
            name, margins, group = "columns", (*margins, skip_x), blocks.group
            constants |= {"GROUP_Y": group.group_y, "CHUNK": group.chunk, "PAIR": group.pair}
            even = constants["COMPARED"] == 1 or self._mixing is not None or sigma.even
            constants["EVEN"] = int(even and not constants["GAUSSIAN"])
            constants |= {"HELD": int(group.held), "COLUMNS": group.columns}
            constants["APART"] = int(compared is not held["spread"] or guided)
        else:
            name = "rows"
            constants |= {"WIDTH": blocks.width, "LANES": blocks.lanes}
        average = self.arena.kernel(f"pixelwise/average_{name}", constants)(
            queue,
            *blocks.grid(tile),
            *(held["spread"], compared, i32(first)),
            *map(i32, (snt, snz, pny, pitch, *margins, nt, nz, ny, nx)),
            *(sigma.levels, sigma.variation, i32(tile.y.margin), i32(tile.x.margin), i32(snx)),
            *(np.float32(settings.strength), self._taps, *map(i32, place or (0, nt * nz)), out),
        )
        return [*launches, ("average", average)]


def taps(settings: Filter) -> np.ndarray:
    """Return the weights of a patch along y and x, then along z; each sums to 1, or all are 1."""
    made = []
    for width in (settings.patch, 2 * settings.patch_slices + 1):
        weights = np.ones(width)
        if settings.patch_shape == "gaussian":
            places = np.arange(width) - width // 2
            weights = np.exp(-(places**2) / (2 * settings.deviation**2))
            weights /= weights.sum()
        made.append(weights)
    return np.concatenate(made).astype(np.float32)
