"""Find the most similar patches of every reference patch, on one device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.patches import Grid, offset_table
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Tile

# Local memory to count on: more would lower how many groups a compute unit holds at once.
_LOCAL_MEMORY = 48 * 1024


@dataclass(frozen=True)
class SearchSettings:
    """What is searched: widths in pixels, counts of frames and slices.

    With `roots` distances are those of twice the square roots of the values.
    """

    patch: int
    step: int
    window: int
    neighbours: int
    frames: tuple[int, int] = (0, 0)
    slices: int = 0
    roots: bool = False


@dataclass(frozen=True)
class Variant:
    """A search kernel and the build constants that fit it to a device."""

    kernel: str
    constants: dict[str, int]

    @property
    def split(self) -> int:
        """Phases that the rows of the padded image are split into."""
        return self.constants.get("SPLIT", 1)


def choose_variant(settings: SearchSettings, device: Device) -> Variant:
    """Choose the search kernel for a device.

    A CPU compares a vector of reference patches at once; a GPU shares partial distances in local
    memory, by squares where the patch is made of them and the step is 2 to 4, by columns
    otherwise. Where neither fits, the plain search with one list a work-item does.
    """
    if device.float_lanes >= 4:
        lanes = max(width for width in (4, 8, 16) if width <= device.float_lanes)
        return Variant("search_lanes", {"LANES": lanes, "SPLIT": settings.step})
    return next(
        iter(fitting_variants(settings, device)), Variant("search_lanes", {"LANES": 1, "SPLIT": 1})
    )


def fitting_variants(settings: SearchSettings, device: Device) -> list[Variant]:
    """Return the kernels that share distances in local memory and fit a device, best first."""
    limit = min(device.local_memory, _LOCAL_MEMORY)
    return [
        variant
        for variant, nbytes in (*_squares(settings), *_columns(settings))
        if nbytes <= limit
        and variant.constants["GROUP_X"] * variant.constants["GROUP_Y"] <= device.max_group
    ]


def _squares(settings: SearchSettings):
    patch, step, window = settings.patch, settings.step, settings.window
    if patch % step or step not in (2, 3, 4) or patch // step > 4:
        return
    chunk = 8
    for group_x, group_y in ((16, 8), (8, 8)):
        tile_x = group_x * step + -(-window // chunk) * chunk
        tile_y = group_y * step + window - 1
        nbytes = 4 * (tile_x * tile_y + (2 * chunk + 8) * group_x * group_y)
        constants = {"WINDOW": window, "CHUNK": chunk, "GROUP_X": group_x, "GROUP_Y": group_y}
        yield Variant("search_square", constants), nbytes


def _columns(settings: SearchSettings):
    patch, step, window = settings.patch, settings.step, settings.window
    shapes = ((32, 8), (16, 8), (32, 4), (16, 4), (8, 8))
    # Long lists fill the registers: a large work-group then leaves none for a second one.
    for group_x, group_y in shapes if settings.neighbours <= 16 else shapes[1:]:
        columns, height = (group_x - 1) * step + patch, (group_y - 1) * step + patch
        items = group_x * group_y
        if columns > items or height > 40:
            continue
        chunk = min(items // columns, 8, window)
        tile_x = columns + -(-window // chunk) * chunk
        tile_y = height + window - 1
        nbytes = 4 * (tile_x * tile_y + chunk * group_y * columns + (chunk + 8) * items)
        constants = {"WINDOW": window, "CHUNK": chunk, "GROUP_X": group_x, "GROUP_Y": group_y}
        yield Variant("search_column", constants), nbytes


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

    def enqueue(
        self, queue, tile: Tile, source, ring: tuple[int, int] | None = None, alike: Any = None
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

        Returns
        -------
        Matches
        """
        settings, i32 = self.settings, np.int32
        rows = Grid.of(tile.y, settings.patch, settings.step)
        columns = Grid.of(tile.x, settings.patch, settings.step)
        before, after = settings.frames
        far_t, more_t = _far(tile.t, before, after)
        far_z, more_z = _far(tile.z, settings.slices, settings.slices)
        radius = settings.window // 2
        snt, snz, sny, snx = tile.source_shape
        left, pitch, groups = self._width(snx, columns)
        pnt, pnz, pny = snt + far_t + more_t, snz + far_z + more_z, sny + 2 * radius
        events = []

        def padded(split, name, roots=False):
            kernel = self._padding(split, alike is not None, roots)
            buffer = self.arena.buffer(name, 4 * pnt * pnz * pny * pitch)
            launch = kernel(
                queue,
                (pitch, pny, pnt * pnz),
                None,
                *(source, *map(i32, (*(ring or (0, snt)), snt, snz, sny, snx))),
                *(buffer, i32(pnz), i32(pny), i32(pitch)),
                *(i32(far_t), i32(far_z), i32(radius), i32(left)),
                *(() if alike is None else (alike,)),
            )
            events.append(("pad", launch))
            return buffer

        plain = padded(1, "padded")
        split = self.variant.split
        searched = padded(split, "split", settings.roots) if split > 1 or settings.roots else plain
        nt, nz, _, _ = tile.shape
        keys = self.arena.buffer(
            "keys", 4 * nt * nz * rows.count * columns.count * settings.neighbours
        )
        origin = (tile.t.margin + far_t, tile.z.margin + far_z, radius, left)
        layout = tuple(map(i32, (pnz, pny, pitch, *origin, nz)))
        matches = Matches(plain, keys, self._offsets, rows, columns, layout, events)
        if self.variant.kernel == "search_lanes":
            launch = self._search(
                queue,
                (groups, rows.count, nt * nz),
                # PoCL keeps the lists of a whole group on the stack of a thread, and overflows
                # it with the large groups that it would choose.
                (1, 1, 1) if self.variant.constants["LANES"] > 1 else None,
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
