"""Find the most similar patches of every reference patch: settings, kernels, and launches."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.pixels import Launcher, Pixels
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.plan import Sizes
from napari_gpu_denoise.protocol.tiles import Span, Tile


def offset_table(window: int, frames: tuple[int, int] = (0, 0), slices: int = 0) -> np.ndarray:
    """Return the offsets of a search window, see `box_offsets`.

    `window` is the full width in Y and X, odd; `frames` are those before and after.
    """
    return box_offsets(frames, (slices, slices), *((window // 2, window // 2),) * 2)


def box_offsets(*reaches: tuple[int, int]) -> np.ndarray:
    """Return the offsets in a box as int32 rows (dt, dz, dy, dx), nearest first.

    `reaches` are those before and after along each axis. Offsets of the same length are sorted by
    their components.
    """
    axes = (range(-before, after + 1) for before, after in reaches)
    table = np.array(list(itertools.product(*axes)), dtype=np.int32)
    return table[np.lexsort((*table.T[::-1], (table**2).sum(axis=1)))]


class SearchOffsets:
    """The offsets of a search on a device, and each one's place in the table, row by row.

    Kernels that walk the window row by row need the place. `index_bits` hold the number of one.
    """

    def __init__(self, table: np.ndarray, arena: Arena):
        self.count = len(table)
        self.index_bits = {"INDEX_BITS": max(1, (len(table) - 1).bit_length())}
        self.table = constant_buffer(arena.session, table)
        ranks = np.lexsort(table.T[::-1]).astype(np.int32)
        self.ranks = constant_buffer(arena.session, ranks)


@dataclass(frozen=True)
class Grid:
    """Reference patches of a tile along one axis, in pixels of the tile."""

    first: int
    last: int
    count: int
    regular: int
    index: int  # of the first one on the whole axis

    @classmethod
    def of(cls, span: Span, patch: int, step: int) -> Grid:
        """Return the patches that cover the pixels a tile yields.

        They lie at every `step` pixels of the whole axis, and where the last one fits, so that the
        result does not depend on the tiles.
        """
        end = span.length - patch
        lowest = -(-max(span.start - patch + 1, 0) // step) * step
        lowest = min(lowest, end)
        highest = min(span.stop - 1, end)
        regular = (highest - lowest) // step + 1
        covered = lowest + (regular - 1) * step
        last = end if highest == end else covered
        shift = span.source_start
        count = regular + (last > covered)
        return cls(lowest - shift, last - shift, count, regular, lowest // step)

    def groups(self, size: int, skipped: int = 0) -> int:
        """Return the number of groups of `size`, the first short of some, and an irregular one."""
        return -(-(self.regular + skipped) // size) + (self.count > self.regular)


def grid_arguments(rows: Grid, columns: Grid, layers: Grid | None = None) -> dict[str, int]:
    """Return the kernel arguments that say where the references are along each axis."""
    down = {"first_y": rows.first, "last_y": rows.last, "rows": rows.count}
    across = {"first_x": columns.first, "last_x": columns.last, "columns": columns.count}
    if layers is None:
        return down | across
    return down | across | {"first_z": layers.first, "last_z": layers.last, "layers": layers.count}


# Local memory of a work-group: more would let fewer groups run on a compute unit at once.
_LOCAL_MEMORY = 48 * 1024
# Rows and vectors of references that a work-item serves on a CPU. More share more, but their lists
# no longer fit the cache, and small images keep fewer cores busy.
_ROWS, _VECTORS = 4, 8
# Most pixels of the reference patches that a work-item holds; of a strip where `search_sliding`
# exchanges sums within warps, and most keys of its lists.
_REGISTERS, _STRIP, _LISTED = 64, 42, 96
_ACROSS = 32  # items of a row of `search_sliding`: those of a warp


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search: widths in pixels, numbers of frames and slices."""

    patch: int
    step: int
    window: int
    neighbours: int
    frames: tuple[int, int] = (0, 0)
    slices: int = 0
    beyond = 0  # how much further than its matches the pixels lie that a reference depends on

    @property
    def candidates(self) -> int:
        """Number of patches that a reference is compared with."""
        return self.window**2 * (1 + sum(self.frames)) * (1 + 2 * self.slices)


@dataclass(frozen=True)
class Variant:
    """A kernel and the build constants that fit it to a device."""

    kernel: str
    constants: dict[str, int]

    @property
    def split(self) -> int:
        """Number of phases into which rows of the padded image are split."""
        return self.constants.get("SPLIT", 1)

    def served(self, settings: SearchSettings) -> tuple[int, int]:
        """Return how many references a work-group serves along x and y.

        Some items compare only squares or strips that patches of their neighbours reach.
        """
        across, down = self.constants["GROUP_X"], self.constants["GROUP_Y"]
        beside = -(-settings.patch // settings.step) - 1
        if self.kernel == "search_square":
            return across - beside, down - beside
        if self.kernel == "search_sliding":
            each = self.constants["COLUMNS"]
            return (across - -(-beside // each)) * each, down * self.constants["ROWS"]
        return across, down


def choose_variant(settings: SearchSettings, device: Device) -> Variant:
    """Choose the search kernel for a device.

    A CPU compares vectors of squares, whose distances neighbouring patches share. A GPU shares them
    in local memory, if the step is 2 to 4 and divides the patch. If patches overlap by half at
    most, there is little to share, and the pixels are all that is in local memory. Otherwise, items
    slide down the window and exchange sums of strips: within warps of an NVIDIA GPU, which is then
    the fastest of all for patches to 12 pixels. Where nothing fits, each work-item searches for one
    reference.
    """
    if device.float_lanes >= 4:
        lanes = device.lanes
        sizes = {"LANES": lanes, "SPLIT": settings.step, "ROWS": _ROWS, "VECTORS": _VECTORS}
        return Variant("search_vectors", sizes)
    plain = Variant("search_plain", {})
    return next(iter(fitting_variants(settings, device)), plain)


def fitting_variants(settings: SearchSettings, device: Device) -> list[Variant]:
    """Return the kernels that keep what they share in local memory and fit a device, best first."""
    patch, step = settings.patch, settings.step
    found = (*_squares(settings, device), *_wholes(settings), *_sliding(settings, warp=False))
    if device.is_nvidia and patch <= 12 and (step == 1 or patch % step):
        found = (*_sliding(settings, warp=True), *found)
    limit = min(device.local_memory, _LOCAL_MEMORY)
    return [
        variant
        for variant, nbytes in found
        if nbytes <= limit
        and variant.constants["GROUP_X"] * variant.constants["GROUP_Y"] <= device.max_group
    ]


def _sliding(settings: SearchSettings, warp: bool):
    """Yield searches that slide down the window, see kernels/search/search_sliding.cl.

    With `warp`, rows of items are warps, which exchange sums among themselves; otherwise, they
    exchange sums in local memory.
    """
    patch, step, window = settings.patch, settings.step, settings.window
    for columns, rows, group_y in _served_by_items(settings, warp):
        height, width = (rows - 1) * step + patch, columns * step
        lists, strip = columns * rows * settings.neighbours, step * height * (step > 1)
        if rows > patch or lists > _LISTED or strip > (_STRIP if warp else _REGISTERS):
            continue
        if patch // step >= _ACROSS * columns:
            continue  # no item of a row has all that it needs to its right
        # More code than that of half a turn of the registers takes long to fetch.
        period = height // 2 if rows == 3 and not height % 2 else height
        while period > 16 or height % period:
            period -= 1
        tile_y = (group_y * rows - 1) * step + patch + window - 1
        pending = columns * rows * (period + 8 + (0 if warp else 2))
        more = {"COLUMNS": columns, "ROWS": rows, "PERIOD": period, "WARP_ROWS": warp}
        for most in (window, 8) if warp and step == 1 else (8,):
            band = min(most, window)
            line = -(-(_ACROSS * width + band - 1) // width) * width
            shared = line * tile_y + pending * _ACROSS * group_y
            group = _ACROSS, group_y
            yield _sharing("search_sliding", settings, group, shared, {"BAND": band, **more})


def _served_by_items(settings: SearchSettings, warp: bool) -> tuple[tuple[int, int, int], ...]:
    """Return columns and rows of references that an item serves, and rows of items, best first."""
    step, few = settings.step, settings.neighbours <= 16
    small = step == 1 and settings.patch <= 6 and few  # these share more along x
    if warp and step > 1:
        return ((1, 2, 4),) if few else ((1, 3, 2), (1, 2, 4))
    if warp:
        return (*(((2, 2, 3),) if small else ()), (1, 2, 4), (1, 1, 4))
    fewest = (1, 1, 4), (1, 1, 2), (1, 1, 1)
    if step > 1:
        return fewest
    # With one column, most items of a row would serve none of the largest patches.
    return ((1, 3, 2) if small else (2, 1, 2) if settings.patch > 12 else (1, 2, 2), *fewest)


def _sharing(
    kernel: str, settings: SearchSettings, group: tuple[int, int], shared: int, more: dict[str, int]
) -> tuple[Variant, int]:
    """Return a kernel whose groups share floats in local memory, and the bytes of these."""
    shape = {"WINDOW": settings.window, "GROUP_X": group[0], "GROUP_Y": group[1]}
    return Variant(kernel, shape | more), 4 * shared


def _squares(settings: SearchSettings, device: Device):
    patch, step, window = settings.patch, settings.step, settings.window
    if patch % step or step not in (2, 3, 4) or patch // step > 4:
        return
    chunk = 8
    for group_x, group_y in ((16, 8), (8, 8)):
        across = -(-window // chunk) * chunk
        tile_y = group_y * step + window - 1
        shared = (group_x * step + across) * tile_y + (3 * chunk + 8) * group_x * group_y
        shared += across * window
        more = {"CHUNK": chunk, "WARP_ROWS": device.is_nvidia and patch // step in (2, 4)}
        yield _sharing("search_square", settings, (group_x, group_y), shared, more)


def _wholes(settings: SearchSettings):
    patch, step, window = settings.patch, settings.step, settings.window
    if patch**2 > _REGISTERS or 2 * step < patch:
        return
    for group_x, group_y in ((16, 4), (8, 4)):
        reached = group_x * step + patch + -(-window // step) * step
        line = -(-reached // step) * step
        if group_x == 16:
            # Two rows of references read from different halves of 32 banks.
            while step * line % 32 != 16:
                line += 1
        tile_y = (group_y - 1) * step + patch + window - 1
        shared = line * tile_y + (step + 8) * group_x * group_y
        yield _sharing("search_whole", settings, (group_x, group_y), shared, {"LINE": line})


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
    layout: dict[str, int]  # kernel arguments: pnz, pny, pitch, t0, z0, y0, x0, nz

    @property
    def grid(self) -> dict[str, int]:
        """Kernel arguments: where the reference patches are."""
        return grid_arguments(self.rows, self.columns)


class PatchSearch:
    """Kernels and buffers of a patch search; belongs to one thread."""

    def __init__(self, settings: SearchSettings, arena: Arena):
        self.settings = settings
        self.arena = arena
        self.variant = choose_variant(settings, arena.device)
        table = offset_table(settings.window, settings.frames, settings.slices)
        self.offsets = SearchOffsets(table, arena)
        self.constants = {
            "PATCH": settings.patch,
            "STEP": settings.step,
            "NEIGHBOURS": settings.neighbours,
            **self.offsets.index_bits,
        }
        self._search = arena.kernel(
            f"search/{self.variant.kernel}", {**self.constants, **self.variant.constants}
        )

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
        at = self.layout(tile)
        references = tile.frames * at.rows.count * at.columns.count
        padded = 4 * math.prod(at.shape)
        sizes = {"padded": padded, "keys": 4 * references * self.settings.neighbours}
        return {**sizes, "split": padded} if self.variant.split > 1 else sizes

    def find(self, run: Launcher, tile: Tile, image: Pixels) -> tuple[tuple[Grid, ...], int, Any]:
        """Enqueue the search for the references of a tile of one slice.

        Returned are where these lie along z, y and x, of how many images or volumes they are, and
        the keys of their matches.
        """
        found = self.enqueue(run, tile, image.buffer)
        return (Grid(0, 0, 1, 1, 0), found.rows, found.columns), tile.frames, found.keys

    def enqueue(
        self,
        run: Launcher,
        tile: Tile,
        source,
        ring: tuple[int, int] | None = None,
        alike: Any = None,
    ) -> Matches:
        """Enqueue the search for one tile, in the buffers held.

        `source` is float32 of shape ``tile.source_shape``, or a `ring` of such frames: the slot of
        the first one, and the number of slots. With `alike`, float32 of shape (source nt, 3), grey
        levels of each frame are brought to those of the one reference frame, see `FrameLinks`.
        """
        settings, held, at = self.settings, run.held, self.layout(tile)
        rows, columns, radius, left = at.rows, at.columns, at.margin, at.left
        (_, pnz, pny, pitch), (far_t, far_z) = at.shape, at.far
        # The image itself and, if the kernel needs rows in phases, a copy for the search.
        searched = "split" if self.variant.split > 1 else "padded"
        place = far_t, far_z, radius, left
        for name, split in {"padded": 1, searched: self.variant.split}.items():
            more = {"split": split, "ring": ring, "alike": alike}
            run.pad(source, tile.source_shape, held[name], at.shape, place, **more)
        searched, keys = held[searched], held["keys"]
        layout = {"pnz": pnz, "pny": pny, "pitch": pitch, "y0": radius, "x0": left}
        layout["nz"] = tile.z.size
        layout |= {"t0": tile.t.margin + far_t, "z0": tile.z.margin + far_z}
        matches = Matches(held["padded"], keys, self.offsets.table, rows, columns, layout)
        constants = self.variant.constants
        # PoCL keeps the lists of a whole group on the stack of a thread, and overflows it with the
        # large groups that it would choose, another for every number of frames.
        group = (1, 1, 1) if run.device.shares_cores or run.device.float_lanes > 1 else None
        more = {"offsets": self.offsets.table, "n_offsets": self.offsets.count}
        if self.variant.kernel == "search_plain":
            across, down = columns.count, rows.count
        elif self.variant.kernel == "search_vectors":
            more |= {"regular_rows": rows.regular, "regular_columns": columns.regular}
            across = columns.groups(constants["LANES"] * constants["VECTORS"])
            down = rows.groups(constants["ROWS"])
        else:
            group = (constants["GROUP_X"], constants["GROUP_Y"], 1)
            # An item serves the same references together in every tile: what these share is added
            # up in another order for each.
            down_by, across_by = (constants.get(name, 1) for name in ("ROWS", "COLUMNS"))
            skipped_y, skipped_x = rows.index % down_by, columns.index % across_by
            more = {"regular_y": rows.regular, "regular_x": columns.regular}
            if self.variant.kernel == "search_sliding":
                more |= {"skipped_y": skipped_y, "skipped_x": skipped_x}
            served_x, served_y = self.variant.served(settings)
            across = columns.groups(served_x, skipped_x) * group[0]
            down = rows.groups(served_y, skipped_y) * group[1]
            before, after = settings.frames
            more |= {"frames_before": before, "frames_after": after, "slices": settings.slices}
            more["ranks"] = self.offsets.ranks
        run.run(
            *("search", self._search, (across, down, tile.frames), group),
            **{"padded": searched, "keys": keys, **layout, **matches.grid, **more},
        )
        return matches


def _far(span, before: int, after: int) -> tuple[int, int]:
    """Return the frames or slices of FAR needed at either end, where a window passes the axis."""
    return max(before - span.margin, 0), max(after - (span.source_stop - span.stop), 0)
