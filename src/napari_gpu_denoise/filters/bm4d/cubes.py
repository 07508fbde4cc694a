"""Cubes of BM4D: settings of passes, noise that cubes share, and their search and motion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d import groups
from napari_gpu_denoise.filters.pixels import Launcher, Pixels
from napari_gpu_denoise.filters.search.patch_search import (
    Grid,
    SearchOffsets,
    Variant,
    box_offsets,
    grid_arguments,
)
from napari_gpu_denoise.filters.sums import block_constants
from napari_gpu_denoise.noise.correlation import LAGS
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Sizes
from napari_gpu_denoise.protocol.tiles import Tile

CUBE = 64  # voxels
_SIDE = 4  # of the cube that steps and windows are given for

# Local memory of a work-group: more would let fewer groups run on a compute unit at once.
_LOCAL_MEMORY = 48 * 1024
# Displacements along x that a work-item compares at once: more would fill its registers.
_CHUNK = 13


@dataclass(frozen=True)
class CubeSpectrum:
    """Autocorrelation of noise: in a plane for displacements along y and x, and along z."""

    plane: tuple[tuple[float, ...], ...]
    along_z: tuple[float, ...]

    @property
    def neighbours(self) -> float:
        """Correlation of neighbours along the axis that has most."""
        return max(self.plane[0][1], self.plane[1][0], self.along_z[1])

    @classmethod
    def mean(cls, spectra: Sequence[CubeSpectrum], sigmas: Sequence[float]) -> CubeSpectrum:
        """Return the mean of several, weighted by variance."""
        total = sum(sigma**2 for sigma in sigmas)
        weights = [sigma**2 / total if total else 1 / len(sigmas) for sigma in sigmas]
        plane = np.tensordot(weights, [one.plane for one in spectra], axes=1)
        along_z = np.tensordot(weights, [one.along_z for one in spectra], axes=1)
        return cls(tuple(map(tuple, plane.tolist())), tuple(along_z.tolist()))


@dataclass(frozen=True)
class CubePass:
    """One pass: cubes are compared, and groups of them filtered.

    `step` and `window` are in voxels along each axis of a cube of 4 x 4 x 4. Those of other cubes
    are scaled with their sides. Groups take cubes of `frames` volumes before and after, which are
    followed in a window `next_window` as long as their mean squared difference, and that of their
    block, is at most `similar_next`, in sigma squared; by `still` of it no motion is preferred.
    `threshold` is in sigma: the hard threshold of coefficients, or the noise level assumed by a
    Wiener filter. `spectra` are those of correlated noise, one for all volumes or one a channel;
    there are none of white noise. What is searched are not the noisy volumes themselves if the pass
    is `guided`.
    """

    cube: tuple[int, int, int]
    step: int
    window: int
    neighbours: int
    transform: str
    stack: str
    similar: float
    threshold: float
    wiener: bool
    guided: bool
    kaiser: float
    shared_noise: bool
    spectra: tuple[CubeSpectrum, ...] = ()
    frames: tuple[int, int] = (0, 0)
    next_window: int = 1
    similar_next: float = 0.0
    still: float = 0.0

    @property
    def steps(self) -> tuple[int, ...]:
        """Spacing of the reference cubes along z, y, x."""
        return tuple(max(1, math.ceil(self.step * side / _SIDE)) for side in self.cube)

    @property
    def windows(self) -> tuple[int, ...]:
        """Widths of the search window along z, y, x, all odd."""
        return self._scaled(self.window)

    @property
    def next_windows(self) -> tuple[int, ...]:
        """Widths of the window in which the motion of a block is searched."""
        return self._scaled(self.next_window)

    def _scaled(self, window: int) -> tuple[int, ...]:
        return tuple(2 * round(window // 2 * side / _SIDE) + 1 for side in self.cube)

    @property
    def reach(self) -> tuple[int, ...]:
        """Reach along z, y, x: to a reference, and from there to its matches, or its motion."""
        return tuple(
            window // 2 + side - 1 + max(window // 2, over_time)
            for window, side, over_time in zip(
                self.windows, self.cube, self.reach_over_time, strict=True
            )
        )

    @property
    def reach_over_time(self) -> tuple[int, ...]:
        """Reach of a reference along z, y, x to what its motion, or its matches, depend on."""
        if not any(self.frames):
            return 0, 0, 0
        pairs = zip(self.next_windows, self.windows, self.cube, strict=True)
        return tuple(
            max(self.frames) * (following // 2) + max(3 * side - 1, window // 2 + side - 1)
            for following, window, side in pairs
        )

    @property
    def constants(self) -> dict[str, int]:
        """Build constants of kernels/bm4d/cubes.h."""
        named = {"C{}": self.cube, "STEP_{}": self.steps, "WINDOW_{}": self.windows}
        return {
            name.format(axis): value
            for name, values in named.items()
            for axis, value in zip("ZYX", values, strict=True)
        }

    @property
    def operations_per_pixel(self) -> tuple[float, float]:
        """Operations of the search, and of the filtering of groups."""
        references = 1 / math.prod(self.steps)
        images = 3 if self.wiener else 2
        images *= 1 + any(self.frames)
        compared = 2.0 * CUBE * math.prod(self.windows)
        return compared * references, 25.0 * CUBE * images * self.neighbours * references


def chunks(window: int) -> tuple[int, int]:
    """Return how many displacements along x are compared at once, and how many times."""
    times = -(-window // _CHUNK)
    return -(-window // times), times


def choose_search(one: CubePass, device: Device) -> Variant:
    """Choose the kernel that compares cubes.

    A CPU compares a vector of references at once; a GPU shares what it searches in local memory.
    """
    chunk, times = chunks(one.windows[2])
    constants = {"CHUNK": chunk, "CHUNKS": times}
    if device.float_lanes >= 4:
        more = {"LANES": device.lanes, "SPLIT": one.steps[2]}
        return Variant("search_cube_lanes", constants | more)
    limit = min(device.local_memory, _LOCAL_MEMORY)
    for group in ((8, 8), (8, 4)):
        variant = shared_search(one, group)
        if local_bytes(one, variant) <= limit and math.prod(group) <= device.max_group:
            return variant
    return Variant("search_cube_lanes", constants | {"LANES": 1, "SPLIT": 1})


def shared_search(one: CubePass, group: tuple[int, int]) -> Variant:
    """Return the kernel for GPUs whose work-groups serve `group` references along x and y."""
    chunk, times = chunks(one.windows[2])
    _, step_y, step_x = one.steps
    width = (group[0] - 1) * step_x + one.cube[2] + chunk * times - 1
    # Eight references of a row and four rows make a warp; they should meet 32 different banks: the
    # rows begin eight steps apart, or one bank if that is where they began.
    wanted = 8 * step_x % 32 or 1
    pitch, skew = min(
        ((pitch, skew) for pitch in range(width, width + 32) for skew in (0, 1)),
        key=lambda chosen: ((step_y * chosen[0] + chosen[1]) % 32 != wanted, chosen),
    )
    constants = {"GROUP_X": group[0], "GROUP_Y": group[1], "PITCH": pitch, "SKEW": skew}
    return Variant("search_cubes", constants | {"CHUNK": chunk, "CHUNKS": times})


def local_bytes(one: CubePass, variant: Variant) -> int:
    """Return the local memory that a work-group of `search_cubes` needs."""
    constants = variant.constants
    _, step_y, _ = one.steps
    rows = (constants["GROUP_Y"] - 1) * step_y + one.cube[1] + one.windows[1] - 1
    plane = rows * constants["PITCH"] + rows // step_y * constants["SKEW"]
    items = constants["GROUP_X"] * constants["GROUP_Y"]
    return 4 * (one.cube[0] * plane + items * (constants["CHUNK"] + 8))


def choose_shrinkage(one: CubePass, device: Device) -> Variant:
    """Choose the kernel that filters groups: a CPU takes blocks of them, a GPU a team for each."""
    if device.float_lanes >= 4:
        return Variant("shrink_cube_lanes", block_constants(one.windows, one.cube, one.steps))
    team = 64 if one.neighbours >= 16 and device.max_group >= 64 else 32
    return Variant("shrink_cubes", {"TEAM": team, "LINE": CUBE + 9})


def share_sides(cube: tuple[int, int, int], spectra: tuple[CubeSpectrum, ...]) -> tuple[int, ...]:
    """Return the displacements along z, y, x at which two cubes share noise, 0 included."""
    z, y, x = cube
    if not spectra:
        return cube
    deep = any(any(one.along_z[1:]) for one in spectra)
    return z + LAGS * deep, y + LAGS, x + LAGS


def shared_noise(
    name: str, cube: tuple[int, int, int], spectra: tuple[CubeSpectrum, ...] = ()
) -> np.ndarray:
    """Return the covariance of noise in each coefficient of two cubes, in sigma squared.

    The shape is (spectra, displacements + 1, 64), white noise being one spectrum; displacements, as
    many as the product of `share_sides`, and coefficients are in the order (z, y, x). The last row,
    for cubes that share no noise, is 0.
    """
    sides = share_sides(cube, spectra)
    if spectra:
        tables = [_correlated(name, cube, sides, one) for one in spectra]
    else:
        table = np.ones((1, 1))
        for length in cube:
            table = np.kron(table, groups.correlations(name, length)[:-1])
        tables = [table]
    return np.stack([np.vstack([table, np.zeros(CUBE)]) for table in tables])


@lru_cache(maxsize=32)
def _correlated(
    name: str, cube: tuple[int, int, int], sides: tuple[int, ...], spectrum: CubeSpectrum
) -> np.ndarray:
    """Return the table of one spectrum. The array is cached: do not modify it."""
    each = zip(cube, sides, strict=True)
    deep, down, across = (groups.products_at_distances(name, *lengths) for lengths in each)
    column = groups.extended_autocorrelation(np.reshape(spectrum.along_z, (-1, 1)))[:, 0]
    plane = groups.extended_autocorrelation(spectrum.plane)
    found = np.einsum("cfj,j,dgk,kl,ehl->cdefgh", deep, column, down, plane, across, optimize=True)
    return found.reshape(-1, CUBE)


@dataclass(frozen=True)
class Volumes(Pixels):
    """float32 volumes on the device: those that `tile` yields.

    If they are some of the slots of a `ring`, the first one is in slot `first`. `links`, of the
    shape (volumes, 3), bring each to the grey levels of one of them, see `FrameLinks`.
    """

    first: int = 0
    ring: int | None = None
    links: Any = None


@dataclass(frozen=True)
class CubeLayout:
    """How volumes lie in a padded copy, and where their reference cubes are."""

    grids: tuple[Grid, ...]  # along z, y, x
    shape: tuple[int, int, int]  # of a padded volume: pnz, pny, pitch
    origin: tuple[int, ...]  # of the tile in it: the volume, and its first voxel
    vectors: int  # of references in a row, for kernels that compare a vector at once

    @property
    def place(self) -> dict[str, int]:
        """Kernel arguments: how the volumes are padded."""
        (pnz, pny, pitch), (v0, z0, y0, x0) = self.shape, self.origin
        return {"pnz": pnz, "pny": pny, "pitch": pitch, "v0": v0, "z0": z0, "y0": y0, "x0": x0}

    @property
    def arguments(self) -> dict[str, int]:
        """PLACE_ARGUMENTS of the kernels."""
        layers, rows, columns = self.grids
        return self.place | grid_arguments(rows, columns, layers)

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

    def __init__(self, one: CubePass, arena: Arena):
        self.one, self.arena = one, arena
        self.variant = choose_search(one, arena.device)
        reaches = [(width // 2, width // 2) for width in one.windows]
        self.offsets = SearchOffsets(box_offsets((0, 0), *reaches), arena)
        self._search = arena.kernel(
            f"bm4d/{self.variant.kernel}",
            {
                **one.constants,
                "NEIGHBOURS": one.neighbours,
                **self.offsets.index_bits,
                **self.variant.constants,
            },
        )

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
        at, read = self.layout(tile), tile.channels * tile.t.source_size
        references = tile.channels * tile.t.size * at.references
        sizes = {
            "padded": 4 * read * at.voxels,
            "keys": 4 * references * self.one.neighbours,
        }
        return {**sizes, "split": sizes["padded"]} if self.variant.split > 1 else sizes

    def pad(self, run: Launcher, given: Volumes, into: Tile, buffer, split: int = 1) -> None:
        """Enqueue a padded copy of volumes, in the layout of a tile."""
        at, part = self.layout(into), given.tile
        count, read = part.channels * part.t.size, into.channels * into.t.source_size
        spans = zip((part.z, part.y, part.x), (into.z, into.y, into.x), at.origin[1:], strict=True)
        corner = (first + one.start - other.source_start for one, other, first in spans)
        place = part.t.start - into.t.source_start, *corner
        shapes = (count, *part.shape[1:]), buffer, (read, *at.shape)
        ring = given.first, given.ring or count
        run.pad(given.buffer, *shapes, place, split=split, ring=ring, alike=given.links)

    def find(self, run: Launcher, tile: Tile, image: Pixels) -> tuple[tuple[Grid, ...], int, Any]:
        """Enqueue the search for the references of a tile; see `PatchSearch.find`."""
        self.enqueue(run, tile, Volumes(image.buffer, image.tile))
        return self.layout(tile).grids, tile.channels * tile.t.size, run.held["keys"]

    def enqueue(self, run: Launcher, tile: Tile, searched: Volumes) -> None:
        """Enqueue the search; fills padded and keys."""
        split, at, buffer = self.variant.split, self.layout(tile), run.held["padded"]
        self.pad(run, searched, tile, buffer)
        if split > 1:
            buffer = run.held["split"]
            self.pad(run, searched, tile, buffer, split)
        columns, rows, volumes = at.grids[2], at.grids[1], tile.channels * tile.t.size
        layers, constants = at.grids[0].count * volumes, self.variant.constants
        if self.variant.kernel == "search_cube_lanes":
            more = {"regular_groups": -(-columns.regular // constants["LANES"])}
            grid, group = (at.vectors, rows.count, layers), (1, 1, 1)
            if not run.device.shares_cores:
                group = None
        else:
            wide, high = (constants[f"GROUP_{axis}"] for axis in "XY")
            across, down = -(-columns.count // wide), -(-rows.count // high)
            grid, group = (across * wide, down * high, layers), (wide, high, 1)
            more = {}
        run.run(
            *("search", self._search, grid, group),
            **{"padded": buffer, **at.arguments, **more},
            **{"ranks": self.offsets.ranks, "keys": run.held["keys"]},
        )


_TEAM = 64  # work-items that try the displacements of a block


class CubeMotion:
    """Kernel of a search for the motion of blocks; belongs to one thread.

    Blocks have twice the sides of a cube, and lie alike in all tiles of a volume.
    """

    def __init__(self, one: CubePass, arena: Arena):
        self.one = one
        team = min(_TEAM, arena.device.max_group)
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

    def arguments(self, tile: Tile) -> dict[str, int]:
        """Kernel arguments: size of what is read, and MOTION_ARGUMENTS."""
        blocks, shifts = self._blocks(tile)
        each = zip("zyx", tile.source_shape[1:], blocks, shifts, strict=True)
        found = {}
        for axis, size, count, shift in each:
            found |= {f"n{axis}": size, f"blocks_{axis}": count, f"shift_{axis}": shift}
        return found

    def buffers(self, tile: Tile) -> Sizes:
        blocks, _ = self._blocks(tile)
        return {"motion": 16 * tile.t.source_size * math.prod(blocks)}

    def enqueue(
        self,
        run: Launcher,
        tile: Tile,
        at: CubeLayout,
        still: float,
        times: range,
        slices: dict[str, Any],
    ) -> None:
        """Enqueue the search in padded volumes, outwards from that of the references.

        `still` is in squared grey levels; `times` are those there, relative to the references;
        `slices` are kernel arguments: sigma of the slices, how many there are, and the first.
        """
        blocks, _ = self._blocks(tile)
        bz, by, bx = blocks
        for time in sorted(times, key=abs):
            if time == 0:
                continue
            nearer = time - int(math.copysign(1, time))
            run.run(
                *("follow", self._follow, (self._team, bx, by * bz), (self._team, 1, 1)),
                **{"padded": run.held["padded"], **at.place, **self.arguments(tile)},
                **{"other": time, "nearer": nearer, "still": still, **slices},
                **{"limit": self.one.similar_next, "motion": run.held["motion"]},
            )
