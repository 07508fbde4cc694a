"""A pass of BM4D: filter groups of similar cubes in a transform domain."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_kernels import fixed_point, weight_units
from napari_gpu_denoise.filters.bm3d.group_settings import STACK_TRANSFORMS, TRANSFORMS
from napari_gpu_denoise.filters.bm4d.block_motion import CubeMotion
from napari_gpu_denoise.filters.bm4d.cube_noise import share_sides, shared_noise
from napari_gpu_denoise.filters.bm4d.cube_search import CubeSearch, Volumes
from napari_gpu_denoise.filters.bm4d.cube_settings import CUBE, CubePass, choose_shrinkage
from napari_gpu_denoise.filters.pixels import restrict_to, spread
from napari_gpu_denoise.filters.search.patch_search import Variant
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, TileSigma
from napari_gpu_denoise.protocol.tiles import Tile

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
