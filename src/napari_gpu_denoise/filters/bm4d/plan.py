"""BM4D on one device: search, motion, filtering of groups, and its passes over volumes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d.groups import STACK_TRANSFORMS, TRANSFORMS
from napari_gpu_denoise.filters.bm3d.plan import (
    fixed_point,
    made_passes,
    weight_units,
    yields_of_passes,
)
from napari_gpu_denoise.filters.bm4d.cubes import (
    CUBE,
    CubePass,
    choose_search,
    choose_shrinkage,
    share_sides,
    shared_noise,
)
from napari_gpu_denoise.filters.pixels import including_margins, restrict_to, send_table, spread
from napari_gpu_denoise.filters.search.frame_links import FrameLinks
from napari_gpu_denoise.filters.search.patch_search import Grid, Variant
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.plan import (
    Buffers,
    FrameNote,
    FramePlan,
    Launches,
    Sizes,
    TilePlan,
    TileSigma,
    together,
)
from napari_gpu_denoise.protocol.tiles import Span, Tile


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


# So many cubes cover a voxel only if all cubes around match it: a smaller range suffices.
_LARGEST_SIGMAS = 12
_SHARE = "SHARE_Z", "SHARE_Y", "SHARE_X"


class CubeFilter:
    """Kernels of one pass on one device; belongs to one thread."""

    def __init__(
        self,
        one: CubePass,
        arena: Arena,
        search_variant: Variant | None = None,
        variant: Variant | None = None,
    ):
        self.settings, self.arena = one, arena
        self.search = CubeSearch(one, arena, search_variant)
        self.motion = CubeMotion(one, arena) if any(one.frames) else None
        self.variant = variant or choose_shrinkage(one, arena.session.device)
        self._constants = {
            **one.constants,
            "NEIGHBOURS": one.neighbours,
            **self.search.index_bits,
            "TRANSFORM": TRANSFORMS.index(one.transform),
            "STACK": STACK_TRANSFORMS.index(one.stack),
            "WIENER": int(one.wiener),
            "SHARED_NOISE": int(one.shared_noise),
            "SPECTRUM": int(bool(one.spectra)),
            **dict(zip(_SHARE, share_sides(one.cube, one.spectra), strict=True)),
            "BEFORE": one.frames[0],
            "AFTER": one.frames[1],
            **self.variant.constants,
        }
        self._join = arena.kernel("bm4d/join_cubes", one.constants)
        window = np.ones(1)
        for length in one.cube:
            window = np.kron(window, np.kaiser(length, one.kaiser))
        tables = window, shared_noise(one.transform, one.cube, one.spectra)
        self._kaiser, self._correlation = (
            constant_buffer(arena.session, table.astype(np.float32)) for table in tables
        )
        lengths = list(zip(one.windows, one.cube, one.steps, strict=True))
        around = np.prod([(width - 1 + side - 1) // step + 1 for width, side, step in lengths])
        self._added = int(around) * one.neighbours
        self._scale = fixed_point(self._added, _LARGEST_SIGMAS)
        self._units = weight_units(int(np.prod([(w - 1) // step + 2 for w, _, step in lengths])))

    def searched(self, made: Tile, held: Tile) -> Tile:
        """Return what is searched to yield a tile, in an image of which `held` is available."""
        reach = tuple(width // 2 for width in self.settings.windows)
        return restrict_to(spread(made, reach), held)

    def buffers(self, made: Tile, held: Tile) -> Sizes:
        """Return the buffers needed to yield a tile from an image of which `held` is available."""
        tile = self.searched(made, held)
        sizes = self.search.buffers(tile)
        sums = 4 * tile.channels * tile.t.size * self.search.layout(tile).voxels
        more = {"sums": sums, "weights": sums}
        if self.settings.guided:
            more["padded noisy"] = sizes["padded"]
        if self.motion is not None:
            more |= self.motion.buffers(tile)
        return {**sizes, **more}

    def enqueue(
        self,
        queue,
        made: Tile,
        noisy: Volumes,
        basic: Volumes | None,
        sigma: TileSigma,
        out,
        buffers: Buffers,
        place: int = 0,
        level: float = 0.0,
    ) -> Launches:
        """Enqueue the pass.

        Parameters
        ----------
        made : Tile
            What is yielded; along time it reads all volumes that there may be, given or not.
        noisy, basic : Volumes
            The noisy volumes, and an estimate, which is searched and guides a Wiener filter, or
            None.
        sigma : TileSigma
            Of the slices of all that is read.
        out
            float32 of the shape of `made`, or several such: this is number `place`.
        level : float
            Sigma of the whole volume, to decide what moves over time.
        """
        import pyopencl as cl

        i32, f32, one = np.int32, np.float32, self.settings
        searched, whole = basic or noisy, noisy.tile
        tile = self.searched(made, searched.tile)
        at, volumes = self.search.layout(tile), made.channels * made.t.size
        launches = self.search.enqueue(queue, tile, searched, buffers)
        images = (buffers["padded"],)
        if basic is not None:
            launches.append(self.search.pad(queue, noisy, tile, buffers["padded noisy"]))
            images = (buffers["padded noisy"], *((buffers["padded"],) if one.wiener else ()))
        for name in ("sums", "weights"):
            nbytes = 4 * volumes * at.voxels
            clear = cl.enqueue_fill_buffer(queue, buffers[name], i32(0), 0, nbytes)
            launches.append(("clear", clear))
        first_slice = tile.z.source_start - whole.z.start
        slices = (sigma.read_levels, i32(whole.z.size), i32(first_slice))
        sigma_map = ()
        if sigma.variation is not None:
            shifts = (
                getattr(tile, axis).source_start - getattr(whole, axis).start for axis in "yx"
            )
            sigma_map = (sigma.variation, i32(whole.x.size), *map(i32, shifts))
        over_time = ()
        if self.motion is not None:
            there = searched.tile.t
            times = range(there.start - tile.t.start, there.stop - tile.t.start)
            still = one.still * level**2
            launches += self.motion.enqueue(queue, tile, at, still, times, slices, buffers)
            over_time = (
                *(buffers["motion"], *self.motion.arguments(tile)),
                *(i32(times[0]), i32(times[-1]), f32(one.similar_next * CUBE)),
            )
        shrink = self.arena.kernel(
            f"bm4d/{self.variant.kernel}", {**self._constants, "SIGMA_MAP": int(bool(sigma_map))}
        )
        arguments = (
            *(*images, *at.arguments, self.search.offsets, buffers["keys"], *slices, *sigma_map),
            *over_time,
            *((i32(volumes // len(one.spectra)),) if one.spectra else ()),
            *(f32(one.similar * CUBE), f32(one.threshold**2), self._kaiser, self._correlation),
            *(f32(self._scale), f32(2.0**31 / self._added), f32(self._units)),
            *(buffers["sums"], buffers["weights"]),
        )
        layers, rows, columns = (grid.count for grid in at.grids)
        if self.variant.kernel == "shrink_cubes":
            team = self.variant.constants["TEAM"]
            grid = (team, rows * columns, volumes * layers)
            launches.append(("shrink", shrink(queue, grid, (team, 1, 1), *arguments)))
        else:
            launches += self._in_turns(queue, shrink, (layers, rows, columns), volumes, arguments)
        spans = [(getattr(made, axis), getattr(tile, axis)) for axis in "zyx"]
        places = (span.start - other.source_start for span, other in spans)
        _, nz, ny, nx = made.shape
        join = self._join(
            queue,
            *pixel_grid(self.arena.session.device, nx, ny, volumes * nz),
            *(images[0], *at.arguments[:7], buffers["sums"], buffers["weights"], *slices),
            *(self._kaiser, f32(self._scale), f32(self._units)),
            *(*map(i32, (*places, nz, ny, nx, place * volumes)), out),
        )
        return [*launches, ("join", join)]

    def _in_turns(self, queue, shrink, counts, volumes: int, arguments: tuple) -> Launches:
        """Enqueue every second block along each axis after the others: they share voxels."""
        launches = []
        sizes = [self.variant.constants[f"BLOCK_{axis}"] for axis in "ZYX"]
        blocks = [-(-count // size) for count, size in zip(counts, sizes, strict=True)]
        for turn in np.ndindex(*(min(2, count) for count in blocks)):
            deep, down, across = (
                (count - first + 1) // 2 for count, first in zip(blocks, turn, strict=True)
            )
            grid = (across, down, deep * volumes)
            turns = map(np.int32, (*turn, deep))
            launches.append(("shrink", shrink(queue, grid, (1, 1, 1), *arguments, *turns)))
        return launches


class Plan(TilePlan):
    """Kernels and buffers of BM4D on one device; belongs to one thread.

    `variants` holds arguments of `CubeFilter` by pass, for kernels other than those chosen.
    """

    def __init__(
        self,
        passes: dict[str, CubePass],
        arena: Arena,
        variants: dict[str, dict] | None = None,
    ):
        self.arena = arena
        self.passes = made_passes(CubeFilter, passes, arena, variants)

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile; the second pass reuses those of the first one."""
        whole, made = including_margins(tile), yields_of_passes(self.passes, tile)
        sizes, held = [], whole
        for name, one in self.passes.items():
            sizes.append(one.buffers(made[name], held))
            held = made[name]
        for name in list(self.passes)[:-1]:
            one = made[name]
            sizes.append({f"{name} estimate": 4 * one.channels * math.prod(one.shape)})
        return together(*sizes)

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue the passes for one tile."""
        launches: Launches = []
        buffers, whole, made = (
            self.hold(tile),
            including_margins(tile),
            yields_of_passes(self.passes, tile),
        )
        noisy, estimate = Volumes(source, whole), None
        for name, one in self.passes.items():
            last = name == list(self.passes)[-1]
            result = out if last else buffers[f"{name} estimate"]
            steps = one.enqueue(queue, made[name], noisy, estimate, sigma, result, buffers)
            launches += [(f"{name} {step}", event) for step, event in steps]
            estimate = Volumes(result, made[name])
        return launches


@dataclass(frozen=True)
class _Ring:
    """Volumes that are still needed: that of time t is in slot t modulo `length`."""

    buffer: Any
    length: int
    tile: Tile  # what there is of each volume

    def between(self, first: int, stop: int, links: Any) -> Volumes:
        """Return the volumes from one time to another."""
        time = Span(first, stop, first, stop, stop)
        place = first % self.length
        return Volumes(self.buffer, replace(self.tile, t=time), place, self.length, links)


class SeriesPlan(FramePlan):
    """Runs BM4D over volumes that come in order and stay in rings while they are needed.

    Groups take cubes of other times to filter those of their own volume. For each volume the others
    are brought to its grey levels. Passes and `variants` are as in `Plan`.
    """

    def __init__(
        self,
        passes: dict[str, CubePass],
        arena: Arena,
        variants: dict[str, dict] | None = None,
    ):
        self.arena = arena
        self.passes = made_passes(CubeFilter, passes, arena, variants)
        self._before, self._after = next(iter(passes.values())).frames
        self.ahead = len(passes) * self._after

    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the rings, the tables of a volume, and what the passes need for one volume."""
        span, made = self._before + 1 + self._after, yields_of_passes(self.passes, tile)
        searched, sizes = including_margins(tile), []
        for name, one in self.passes.items():
            sizes.append(one.buffers(_at(made[name], 0, self._before, self._after), searched))
            searched = made[name]
        rings = {
            f"{name} ring": 4 * length * math.prod(held.shape[1:])
            for name, (length, held) in self._rings(tile, batch).items()
        }
        tables = {"volume links": 12 * span, "volume sigma": 4 * span * tile.z.source_size}
        return {**together(*sizes), **rings, **tables}

    def _rings(self, tile: Tile, batch: int) -> dict[str, tuple[int, Tile]]:
        """Return the length of each ring, and what there is of each volume in it."""
        rings = {"noisy": (self._before + batch + self.ahead, including_margins(tile))}
        if len(self.passes) > 1:
            made = yields_of_passes(self.passes, tile)["basic"]
            rings["basic"] = self._before + batch + self._after, made
        return rings

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the volumes of a series; see `FramePlan.begin`."""
        self._tile, self._variation = tile, variation
        self._held = self.hold(tile, batch, variation is not None)
        self._made = yields_of_passes(self.passes, tile)
        self._images = {
            name: _Ring(self._held[f"{name} ring"], length, held)
            for name, (length, held) in self._rings(tile, batch).items()
        }
        self._first = self._known = first
        # The next volume that a basic estimate is made of: those before are not needed.
        self._filtered = max(start - self._before, first)
        self._sigma: dict[int, np.ndarray] = {}
        self._links = FrameLinks((self._before, self._after), [[1.0]], [1.0])

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Enqueue the storing of the next volumes, and the first pass where it can be made."""
        import pyopencl as cl

        ring, launches = self._images["noisy"], []
        nbytes = 4 * math.prod(ring.tile.shape[1:])
        for k, note in enumerate(notes):
            copy = cl.enqueue_copy(
                queue,
                ring.buffer,
                frames,
                byte_count=nbytes,
                src_offset=k * nbytes,
                dst_offset=self._known % ring.length * nbytes,
            )
            launches.append(("store", copy))
            begin = self._tile.z.source_start - note.first_slice
            self._sigma[self._known] = note.sigma[begin : begin + self._tile.z.source_size]
            # One number says how noisy a volume is: its slices may differ.
            sigma = np.sqrt(np.mean(note.sigma**2, keepdims=True))
            self._links.add(self._known, replace(note, sigma=sigma))
            self._known += 1
        self._make_basic(queue, self._known - self._after, launches)
        return launches

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        """Enqueue the filtering of the next volumes; see `FramePlan.enqueue_frames`."""
        launches: Launches = []
        if ended:
            self._make_basic(queue, min(start + count + self._after, self._known), launches)
        last = list(self.passes)[-1]
        for k in range(count):
            self._filter(queue, last, start + k, out, k, launches)
        oldest = start + count - self._before
        for t in [t for t in self._sigma if t < oldest - self._before]:
            del self._sigma[t]
        self._links.forget(oldest - self._before - 1)
        return launches

    def _make_basic(self, queue, stop: int, launches: list) -> None:
        """Make the basic estimates of the volumes before `stop`."""
        if "basic" not in self._images:
            return
        ring = self._images["basic"]
        for t in range(self._filtered, stop):
            self._filter(queue, "basic", t, ring.buffer, t % ring.length, launches)
        self._filtered = max(self._filtered, stop)

    def _filter(self, queue, name: str, t: int, out, place: int, launches: list) -> None:
        """Run a pass on a volume; its result is number `place` in `out`."""
        lowest = max(t - self._before, self._first)
        highest = min(t + self._after + 1, self._known)
        device, held = self.arena.session.device, self._held
        links = self._links.links(t, 1)[0][0, 0].copy()
        level = float(links[self._before, 2])
        if level == 0:  # a volume without noise is returned unchanged
            links[self._before] = 1, 0, 1
        sigma = np.zeros((len(links), self._tile.z.source_size))
        for other in range(lowest, highest):
            k = other - t + self._before
            sigma[k] = self._sigma[other] * links[k, 0]
        levels = send_table(queue, device, sigma, held["volume sigma"], launches)
        first = lowest - t + self._before
        links = links[first : first + highest - lowest]
        alike = send_table(queue, device, links, held["volume links"], launches)
        images = [self._images["noisy"], self._images.get("basic") if name == "final" else None]
        noisy, basic = (ring and ring.between(lowest, highest, alike) for ring in images)
        tile = _at(self._made[name], t, self._before, self._after)
        noise = TileSigma(None, self._variation, read_levels=levels)
        steps = self.passes[name].enqueue(queue, tile, noisy, basic, noise, out, held, place, level)
        launches += [(f"{name} {step}", event) for step, event in steps]


def _at(tile: Tile, t: int, before: int, after: int) -> Tile:
    """Return a tile of one volume, which reads those around it, be they there or not."""
    return replace(tile, t=Span(t, t + 1, t - before, t + after + 1, t + after + 1))
