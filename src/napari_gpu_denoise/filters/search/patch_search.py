"""Find the most similar patches of every reference patch, on one device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.search.patches import Grid, grid_arguments, offset_table
from napari_gpu_denoise.filters.search.variants import SearchSettings, Variant, choose_variant
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.opencl.work_items import pixel_grid
from napari_gpu_denoise.run.plan import Buffers, Launches, Sizes, allocated
from napari_gpu_denoise.run.tiles import Tile


@dataclass(frozen=True)
class SearchLayout:
    """How a tile lies in its padded copy, and where its reference patches are."""

    rows: Grid
    columns: Grid
    shape: tuple[int, int, int, int]  # of the padded tile: pnt, pnz, pny, pitch
    far: tuple[int, int]  # frames and slices of FAR before the first one
    margin: int  # rows of FAR before the first one
    left: int  # columns of FAR before the first one


@dataclass(frozen=True)
class Matches:
    """The result of a search, in buffers on the device."""

    padded: Any  # the tile with a margin of FAR
    keys: Any  # uint32 of shape (frames, rows, neighbours, columns)
    offsets: Any  # int32 of shape (offsets, 4): what the low bits of a key point to
    rows: Grid
    columns: Grid
    layout: tuple  # kernel arguments: pnz, pny, pitch, t0, z0, y0, x0, nz
    events: Launches

    @property
    def grid(self) -> tuple:
        """Kernel arguments: where the reference patches are."""
        return grid_arguments(self.rows, self.columns)


class PatchSearch:
    """Kernels and buffers of a patch search; belongs to one thread."""

    def __init__(self, settings: SearchSettings, arena: Arena, variant: Variant | None = None):
        self.settings = settings
        self.arena = arena
        self.variant = variant or choose_variant(settings, arena.session.device)
        offsets = offset_table(settings.window, settings.frames, settings.slices)
        self.constants = {
            "PATCH": settings.patch,
            "STEP": settings.step,
            "NEIGHBOURS": settings.neighbours,
            "INDEX_BITS": max(1, (len(offsets) - 1).bit_length()),
        }
        # Whether the search needs a copy of its own, in another layout or of roots.
        self._copied = self.variant.split > 1 or settings.roots
        self._search = arena.kernel(
            f"search/{self.variant.kernel}", {**self.constants, **self.variant.constants}
        )
        # Kernels that walk the window row by row need each offset's place in the table.
        ranks = np.lexsort(offsets.T[::-1]).astype(np.int32)
        self._offsets = constant_buffer(arena.session, offsets)
        self._ranks = constant_buffer(arena.session, ranks)
        self._count = len(offsets)

    def layout(self, tile: Tile) -> SearchLayout:
        """Return how a tile is laid out."""
        settings = self.settings
        rows = Grid.of(tile.y, settings.patch, settings.step)
        columns = Grid.of(tile.x, settings.patch, settings.step)
        far_t, more_t = _far(tile.t, *settings.frames)
        far_z, more_z = _far(tile.z, settings.slices, settings.slices)
        radius = settings.window // 2
        snt, snz, sny, snx = tile.source_shape
        lanes, step = self.variant.constants.get("LANES", 1), settings.step
        # The vector that ends with an irregular last reference may begin before the image; the last
        # regular vector, and the squares compared beyond it, may end after it. Both read from the
        # margin.
        irregular = columns.count > columns.regular
        left = radius + (max((lanes - 1) * step - columns.last, 0) if irregular else 0)
        squares = -(-settings.patch // step)
        beyond = -(-(squares - 1) // lanes) * lanes * step if lanes > 1 else 0
        vectors = -(-columns.regular // lanes)
        reached = max(columns.first + (vectors * lanes - 1) * step, columns.last) + beyond
        width = left + max(snx, reached + settings.patch + step) + radius
        quantum = 16 * self.variant.split
        pitch = -(-width // quantum) * quantum
        height = sny + 2 * radius + -settings.patch % step
        shape = (snt + far_t + more_t, snz + far_z + more_z, height, pitch)
        far = (far_t, far_z)
        return SearchLayout(rows, columns, shape, far, radius, left)

    def buffers(self, tile: Tile) -> Sizes:
        """Return the buffers that a tile needs."""
        at = self.layout(tile)
        references = tile.t.size * tile.z.size * at.rows.count * at.columns.count
        padded = 4 * math.prod(at.shape)
        sizes = {"padded": padded, "keys": 4 * references * self.settings.neighbours}
        return {**sizes, "split": padded} if self._copied else sizes

    def enqueue(
        self,
        queue,
        tile: Tile,
        source,
        ring: tuple[int, int] | None = None,
        alike: Any = None,
        held: Buffers | None = None,
    ) -> Matches:
        """Enqueue the search for one tile, in buffers `held` or else allocated for it.

        `source` is float32 of shape ``tile.source_shape``, or a `ring` of such frames: the slot of
        the first one, and the number of slots. With `alike`, float32 of shape (source nt, 3), grey
        levels of each frame are brought to those of the one reference frame, see `FrameLinks`.
        """
        settings, i32 = self.settings, np.int32
        held = held or allocated(self.arena, self.buffers(tile))
        at = self.layout(tile)
        rows, columns, radius, left = at.rows, at.columns, at.margin, at.left
        (pnt, pnz, pny, pitch), (far_t, far_z) = at.shape, at.far
        before, after = settings.frames
        snt, snz, sny, snx = tile.source_shape
        events = []

        # The image itself and, if the kernel needs rows in phases or roots, a copy for the search.
        padded = {"padded": (1, False)}
        if self._copied:
            padded["split"] = self.variant.split, settings.roots
        for name, (split, roots) in padded.items():
            constants = {"SPLIT": split, "ALIKE": int(alike is not None)}
            pad = self.arena.kernel("search/pad_far", constants | ({"ROOTS": 1} if roots else {}))
            launch = pad(
                queue,
                *pixel_grid(self.arena.session.device, pitch, pny, pnt * pnz),
                *(source, *map(i32, (*(ring or (0, snt)), snt, snz, sny, snx))),
                *(held[name], i32(pnz), i32(pny), i32(pitch)),
                *(i32(far_t), i32(far_z), i32(radius), i32(left)),
                *(() if alike is None else (alike,)),
            )
            events.append(("pad", launch))
        plain, searched = held["padded"], held["split" if self._copied else "padded"]
        nt, nz, _, _ = tile.shape
        keys = held["keys"]
        origin = (tile.t.margin + far_t, tile.z.margin + far_z, radius, left)
        layout = tuple(map(i32, (pnz, pny, pitch, *origin, nz)))
        matches = Matches(plain, keys, self._offsets, rows, columns, layout, events)
        constants = self.variant.constants
        # PoCL keeps the lists of a whole group on the stack of a thread, and overflows it with the
        # large groups that it would choose.
        alone = (1, 1, 1) if self.arena.session.device.shares_cores else None
        places = (searched, *layout, *matches.grid)
        regular = (i32(rows.regular), i32(columns.regular))
        offsets = (self._offsets, i32(self._count))
        if self.variant.kernel == "search_plain":
            size = (columns.count, rows.count, nt * nz)
            launch = self._search(queue, size, alone, *places, *offsets, keys)
        elif self.variant.kernel == "search_vectors":
            across = columns.groups(constants["LANES"] * constants["VECTORS"])
            size = (across, rows.groups(constants["ROWS"]), nt * nz)
            launch = self._search(queue, size, alone, *places, *regular, *offsets, keys)
        else:
            group = (constants["GROUP_X"], constants["GROUP_Y"], 1)
            served_x, served_y = self.variant.served(settings)
            across, down = columns.groups(served_x), rows.groups(served_y)
            launch = self._search(
                queue,
                (across * group[0], down * group[1], nt * nz),
                group,
                *(*places, *regular),
                *(i32(before), i32(after), i32(settings.slices), self._ranks, keys),
            )
        events.append(("search", launch))
        return matches


def _far(span, before: int, after: int) -> tuple[int, int]:
    """Return the frames or slices of FAR needed at either end, where a window passes the axis."""
    return max(before - span.margin, 0), max(after - (span.source_stop - span.stop), 0)
