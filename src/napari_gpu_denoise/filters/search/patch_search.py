"""Find the most similar patches of every reference patch, on one device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.search.patches import Grid, offset_table
from napari_gpu_denoise.filters.search.variants import SearchSettings, Variant, choose_variant
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.work_items import pixel_grid
from napari_gpu_denoise.run.plan import Buffers, Sizes, allocated
from napari_gpu_denoise.run.tiles import Tile


@dataclass(frozen=True)
class SearchLayout:
    """How a tile lies in its padded copy, and where its reference patches are.

    Attributes
    ----------
    rows, columns : Grid
        Reference patches of the tile.
    shape : tuple of int
        Of the padded tile: pnt, pnz, pny, pitch.
    far : tuple of int
        Frames and slices of FAR before the first one.
    margin, left : int
        Rows and columns of FAR before the first one.
    groups : int
        Vectors of references in a row, for kernels that compare as many at once.
    """

    rows: Grid
    columns: Grid
    shape: tuple[int, int, int, int]
    far: tuple[int, int]
    margin: int
    left: int
    groups: int


@dataclass(frozen=True)
class Matches:
    """The result of a search, on the device.

    Attributes
    ----------
    padded : pyopencl.Buffer
        The tile with a margin of FAR.
    keys : pyopencl.Buffer
        uint32 of shape (frames, rows, neighbours, columns).
    offsets : pyopencl.Buffer
        int32 of shape (offsets, 4): what the low bits of a key point to.
    rows, columns : Grid
        Reference patches of the tile.
    layout : tuple
        The arguments that tell a kernel where things lie: pnz, pny, pitch, t0, z0, y0, x0, nz.
    events : list
        Launches by name.
    """

    padded: Any
    keys: Any
    offsets: Any
    rows: Grid
    columns: Grid
    layout: tuple
    events: list[tuple[str, Any]]

    @property
    def grid(self) -> tuple:
        """The arguments that tell a kernel where the reference patches are."""
        values = (
            *(self.rows.first, self.rows.last, self.rows.count),
            *(self.columns.first, self.columns.last, self.columns.count),
        )
        return tuple(map(np.int32, values))


class PatchSearch:
    """Kernels and buffers of a patch search; belongs to one thread.

    Parameters
    ----------
    settings : SearchSettings
        What is searched.
    arena : Arena
        Keeps the buffers.
    variant : Variant, optional
        The kernel to use, by default what `choose_variant` gives for the device.
    """

    def __init__(self, settings: SearchSettings, arena: Arena, variant: Variant | None = None):
        import pyopencl as cl

        self.settings = settings
        self.arena = arena
        session = arena.session
        self.variant = variant or choose_variant(settings, session.device)
        offsets = offset_table(settings.window, settings.frames, settings.slices)
        self.constants = {
            "PATCH": settings.patch,
            "STEP": settings.step,
            "NEIGHBOURS": settings.neighbours,
            "INDEX_BITS": max(1, (len(offsets) - 1).bit_length()),
        }
        # Whether what is searched is another copy than what is averaged.
        self._copied = self.variant.split > 1 or settings.roots
        # By their SPLIT, with and without links, with and without roots.
        self._pads: dict[tuple[int, bool, bool], Any] = {}
        self._search = arena.kernel(
            f"search/{self.variant.kernel}", {**self.constants, **self.variant.constants}
        )
        # Kernels that walk the window row by row need each offset's place in the table.
        ranks = np.lexsort(offsets.T[::-1]).astype(np.int32)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        self._offsets = cl.Buffer(session.context, flags, hostbuf=offsets)
        self._ranks = cl.Buffer(session.context, flags, hostbuf=ranks)
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
        left, pitch, groups = self._width(snx, columns)
        shape = (snt + far_t + more_t, snz + far_z + more_z, sny + 2 * radius, pitch)
        return SearchLayout(rows, columns, shape, (far_t, far_z), radius, left, groups)

    def buffers(self, tile: Tile) -> Sizes:
        """Return the buffers that the search for a tile needs."""
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
        """Enqueue the search for one tile.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        tile : Tile
            What is read and what is yielded.
        source : pyopencl.Buffer
            float32 of shape ``tile.source_shape``.
        ring : tuple of int, optional
            Where `source` holds frames in a ring: the slot of the first one, and how many slots.
        alike : pyopencl.Buffer, optional
            Links that bring the grey levels of each frame of the source to those of the one frame
            that is searched for, float32 of shape (source nt, 3).
        held : Buffers, optional
            What `buffers` declares; by default it is allocated.

        Returns
        -------
        Matches
        """
        settings, i32 = self.settings, np.int32
        held = held or allocated(self.arena, self.buffers(tile))
        at = self.layout(tile)
        rows, columns, radius, left = at.rows, at.columns, at.margin, at.left
        (pnt, pnz, pny, pitch), (far_t, far_z) = at.shape, at.far
        before, after = settings.frames
        snt, snz, sny, snx = tile.source_shape
        events = []

        # The image itself, and where the kernel wants its rows in phases, or roots, a copy for it.
        padded = {"padded": (1, False)}
        if self._copied:
            padded["split"] = self.variant.split, settings.roots
        for name, (split, roots) in padded.items():
            launch = self._padding(split, alike is not None, roots)(
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
        if self.variant.kernel == "search_lanes":
            launch = self._search(
                queue,
                (at.groups, rows.count, nt * nz),
                # PoCL keeps the lists of a whole group on the stack of a thread, and overflows
                # it with the large groups that it would choose.
                (1, 1, 1) if self.arena.session.device.shares_cores else None,
                *(searched, *layout, *matches.grid),
                i32(-(-columns.regular // self.variant.constants["LANES"])),
                *(self._offsets, i32(self._count), keys),
            )
        else:
            constants = self.variant.constants
            group = (constants["GROUP_X"], constants["GROUP_Y"], 1)
            squares = 1
            if self.variant.kernel == "search_square":
                squares = settings.patch // settings.step
            across = columns.groups(group[0] - squares + 1)
            down = rows.groups(group[1] - squares + 1)
            launch = self._search(
                queue,
                (across * group[0], down * group[1], nt * nz),
                group,
                *(searched, *layout, *matches.grid, i32(rows.regular), i32(columns.regular)),
                *(i32(before), i32(after), i32(settings.slices), self._ranks, keys),
            )
        events.append(("search", launch))
        return matches

    def _padding(self, split: int, alike: bool, roots: bool):
        """Return the padding kernel, made when it is first needed."""
        wanted = split, alike, roots
        if wanted not in self._pads:
            constants = {"SPLIT": split, "ALIKE": int(alike), **({"ROOTS": 1} if roots else {})}
            self._pads[wanted] = self.arena.kernel("search/pad_far", constants)
        return self._pads[wanted]

    def _width(self, snx: int, columns: Grid) -> tuple[int, int, int]:
        """Return the left margin and the row length of the padded image, and groups of lanes."""
        radius = self.settings.window // 2
        lanes = self.variant.constants.get("LANES", 1)
        split, step = self.variant.split, self.settings.step
        groups = -(-columns.regular // lanes)
        irregular = columns.count > columns.regular
        # A vector of references that ends with the last one may begin before the image, and the
        # last regular vector may end beyond it: both need margin to read from.
        left = radius + (max((lanes - 1) * step - columns.last, 0) if irregular else 0)
        reached = columns.first + (groups - 1) * lanes * step + (lanes - 1) * step
        width = left + max(snx, reached + self.settings.patch + step) + radius
        quantum = 16 * split
        return left, -(-width // quantum) * quantum, groups + irregular


def _far(span, before: int, after: int) -> tuple[int, int]:
    """Frames of FAR needed at either end: what a window may reach beyond an axis."""
    return (
        max(before - span.margin, 0),
        max(after - (span.source_stop - span.stop), 0),
    )
