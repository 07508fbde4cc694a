"""A pass of BM3D: filter groups of similar patches in a transform domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_kernels import GroupKernels, fixed_point, weight_units
from napari_gpu_denoise.filters.bm3d.group_settings import (
    PATCH,
    GroupSettings,
    choose_group_variant,
    float_atomics,
    slab_shape,
)
from napari_gpu_denoise.filters.pixels import Noisy, Pixels, spread
from napari_gpu_denoise.filters.search.patch_search import (
    Matches,
    PatchSearch,
    SearchLayout,
    Variant,
)
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, allocated
from napari_gpu_denoise.protocol.tiles import Span, Tile


class GroupFilter(GroupKernels):
    """Kernels and buffers of one pass; passes on the same arena share buffers."""

    def __init__(
        self,
        settings: GroupSettings,
        arena: Arena,
        variant: Variant | None = None,
        search_variant: Variant | None = None,
    ):
        search, device = settings.search, arena.session.device
        self.search = PatchSearch(search, arena, search_variant)
        variant = variant or choose_group_variant(settings, device)
        # A CPU adds floats no faster than integers, so its results are always reproducible.
        self._floats = not settings.reproducible and variant.kernel == "shrink_shared"
        super().__init__(
            settings,
            arena,
            variant,
            video=False,
            INDEX_BITS=self.search.constants["INDEX_BITS"],
            FLOAT_SUMS=int(self._floats),
            ATOMIC_FLOAT=float_atomics(device) if self._floats else 0,
        )
        self._pad = arena.kernel("search/pad_far", {"SPLIT": 1, "ALIKE": 0})
        references = variant.constants["GROUP_X"] * variant.constants["GROUP_Y"]
        self._added = references * search.neighbours
        self._scale = fixed_point(self._added)
        self._units = weight_units(((search.window - 1) // search.step + 2) ** 2)

    def search_tile(self, tile: Tile, held: Tile) -> Tile:
        """Return what is searched to yield a tile, in an image of which `held` is available."""
        wide = spread(tile, self.settings.search.window // 2)
        spans = {
            axis: Span(span.start, span.stop, part.start, part.stop, span.length)
            for axis, span, part in (("y", wide.y, held.y), ("x", wide.x, held.x))
        }
        return replace(wide, **spans)

    def buffers(self, tile: Tile, held: Tile, padded: Sequence[str] = ()) -> Sizes:
        """Return the buffers that a tile needs, those of the search included.

        `held` is what is available of the image that is searched; `padded` names the images,
        ``"noisy"`` or ``"basic"``, that are not the one that is searched.
        """
        searched = self.search_tile(tile, held)
        at, frames = self.search.layout(searched), tile.channels * tile.t.size * tile.z.size
        *_, pny, pitch = at.shape
        plane = 4 * frames * pny * pitch
        slabs = plane
        if not self._floats:
            groups = math.prod(self._groups(at))
            slabs = 4 * frames * groups * math.prod(slab_shape(self.settings.search, self.variant))
        copies = {f"padded {name}": plane for name in padded}
        return {**self.search.buffers(searched), "weights": plane, "slabs": slabs, **copies}

    def enqueue(
        self,
        queue,
        tile: Tile,
        matches: Matches,
        searched: Noisy,
        noisy: Noisy,
        basic: Pixels | None,
        out,
        held: Buffers | None = None,
    ) -> Launches:
        """Enqueue the filtering of the groups of a tile, in buffers `held` or else allocated.

        The channels of the tile share the matches that were found in `searched`; `basic` is their
        basic estimate, for a Wiener filter. `out` is float32 of shape (channels, nt, nz, ny, nx).
        """
        i32, f32 = np.int32, np.float32
        settings, image = self.settings, searched.pixels
        launches = list(matches.events)
        matched = tile.t.size * tile.z.size
        frames = tile.channels * matched

        given = {"noisy": noisy.pixels, **({"basic": basic} if settings.wiener else {})}
        others = [
            name
            for name, pixels in given.items()
            if pixels.buffer is not image.buffer or pixels.tile.channels != image.tile.channels
        ]
        held = held or allocated(self.arena, self.buffers(tile, image.tile, others))
        images = [matches.padded] * len(given)
        _, pny, pitch, *_, y0, x0, _ = map(int, matches.layout)
        for k, (name, pixels) in enumerate(given.items()):
            if name in others:
                images[k], part = held[f"padded {name}"], pixels.tile
                launch = self._pad(
                    queue,
                    *pixel_grid(self.arena.session.device, pitch, pny, frames),
                    *(pixels.buffer, *map(i32, (0, frames, frames, 1, part.y.size, part.x.size))),
                    *(images[k], *map(i32, (1, pny, pitch, 0, 0))),
                    i32(y0 + part.y.start - image.tile.y.start),
                    i32(x0 + part.x.start - image.tile.x.start),
                )
                launches.append(("pad", launch))
        down, across = self._groups(matches)
        layout = (*map(i32, (pny, pitch, y0, x0)),)

        def cleared(name: str, nbytes: int):
            import pyopencl as cl

            buffer = held[name]
            launches.append(("clear", cl.enqueue_fill_buffer(queue, buffer, i32(0), 0, nbytes)))
            return buffer

        weights = cleared("weights", 4 * frames * pny * pitch)
        slabs = cleared("slabs", 4 * frames * pny * pitch) if self._floats else held["slabs"]
        sigma_map = ()
        if noisy.variation is not None:
            part = noisy.variation.tile
            shift_y = image.tile.y.start - part.y.start - y0
            shift_x = image.tile.x.start - part.x.start - x0
            sigma_map = (noisy.variation.buffer, *map(i32, (part.x.size, shift_y, shift_x)))
        if self.variant.kernel == "shrink_lanes":
            grid, local = (across, down, frames), (1, 1, 1)
        else:
            teams = self.variant.constants["TEAMS"]
            team = 8 * settings.search.neighbours // self.variant.constants["DEPTH"]
            grid, local = (team, teams * across * down, frames), (team, teams, 1)
        shrink = self._shrink(bool(sigma_map))(
            queue,
            grid,
            local,
            *(*images, *layout, *matches.grid, i32(across)),
            *(matches.offsets, matches.keys, i32(matched)),
            *(noisy.levels, searched.levels, *sigma_map),
            *(f32(settings.similar * PATCH**2), *map(f32, settings.limits)),
            *(self._kaiser, self._correlation),
            *((i32(0), i32(frames // len(settings.spectra))) if settings.spectra else ()),
            *(f32(self._scale), f32(2.0**31 / self._added), f32(self._units)),
            *(slabs, weights),
        )
        launches.append(("shrink", shrink))
        top, left = tile.y.start - image.tile.y.start, tile.x.start - image.tile.x.start
        _, _, ny, nx = tile.shape
        join = self._join(
            queue,
            *self._join_grid(ny, nx, frames),
            *(images[0], *layout),
            *map(i32, (matches.rows.first, matches.rows.last)),
            *map(i32, (matches.columns.first, matches.columns.last, down, across)),
            *(slabs, weights, noisy.levels, self._kaiser, f32(self._scale), f32(self._units)),
            *(*map(i32, (top, left, ny, nx)), out),
        )
        launches.append(("join", join))
        return launches

    def _groups(self, at: SearchLayout | Matches) -> tuple[int, int]:
        """Return the number of work-groups for all references, down and across."""
        group_x, group_y = (self.variant.constants[name] for name in ("GROUP_X", "GROUP_Y"))
        return -(-at.rows.count // group_y), -(-at.columns.count // group_x)
