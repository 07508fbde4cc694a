"""A pass of VBM3D: filter groups of similar patches of a video."""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_kernels import GroupKernels, fixed_point, weight_units
from napari_gpu_denoise.filters.bm3d.group_settings import PATCH, GroupSettings, team_variant
from napari_gpu_denoise.filters.pixels import spread
from napari_gpu_denoise.filters.search.patch_search import Grid, Variant, grid_arguments
from napari_gpu_denoise.filters.vbm3d.frame_rings import RingShape
from napari_gpu_denoise.filters.vbm3d.predictive_search import PredictiveSearch, VideoMatches
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Launches
from napari_gpu_denoise.protocol.tiles import Tile


def choose_video_group_variant(settings: GroupSettings, device: Device) -> Variant:
    """Choose the kernel: whole groups as vectors on a CPU, a team of work-items a group on a GPU.

    On a CPU work-groups are so wide that every second one shares no pixel with the next.
    """
    search = settings.search
    if device.float_lanes >= 4:
        side = -(-(2 * search.furthest + PATCH) // search.step)
        return Variant("shrink_lanes", {"GROUP_X": side, "GROUP_Y": side})
    neighbours = search.neighbours
    # A Wiener filter holds two spectra: fewer patches per item leave registers for more items, of
    # which each holds at least a quarter of a group.
    depth = max(2, min(neighbours, 8) // (4 if settings.wiener else 2), neighbours // 4)
    if neighbours == 1 or (neighbours <= 8 and (settings.kalman or not settings.wiener)):
        depth = neighbours
    teams = max(1, min(128, device.max_group) * depth // (8 * neighbours))
    # Nothing else is in local memory: there is room for whole stacks.
    fits = 256 * teams * (neighbours + 4) <= min(device.local_memory, 32768)
    wide = fits and depth in (2, 4) and neighbours > depth
    return team_variant(device, (min(teams, 4), max(1, teams // 4)), depth, teams, wide=wide)


class VideoPass(GroupKernels):
    """Kernels of one pass, whose search is a `VideoSearch`."""

    def __init__(
        self,
        settings: GroupSettings,
        arena: Arena,
        variant: Variant | None = None,
        search_variant: Variant | None = None,
    ):
        variant = variant or choose_video_group_variant(settings, arena.session.device)
        super().__init__(
            settings, arena, variant, video=True, INDEX_BITS=0, FLOAT_SUMS=0, ATOMIC_FLOAT=0
        )
        search = settings.search
        self.search = PredictiveSearch(search, arena, search_variant)
        added = search.covering(PATCH)
        # So many cover a pixel only if all patches around match it: a smaller range suffices.
        self._scale, self._largest = fixed_point(added, 12), np.float32(2.0**31 / added)
        self._units = weight_units(search.covering(1))

    def grid(self, tile: Tile) -> tuple[Grid, Grid]:
        """Return the references along Y and X that the output of a tile depends on."""
        search = self.settings.search
        wide = spread(tile, search.furthest)
        return tuple(Grid.of(span, PATCH, search.step) for span in (wide.y, wide.x))

    def shrink(
        self,
        queue,
        found: VideoMatches,
        images: tuple,
        shape: RingShape,
        channels: int,
        first: int,
        count: int,
        grid,
        links: tuple,
        sums,
        variation: Any = None,
        first_spectrum: int = 0,
    ) -> Launches:
        """Enqueue the filtering of the groups of some frames, which adds to the ring `sums`.

        `images` are the rings of the noisy frames and, for a Wiener filter, of the basic estimate.
        `first`, `count` and `grid` are those of the search; `links` are the tables of the channels
        and of the guide. `variation` is a map of the shape of a frame that multiplies the noise;
        `first_spectrum` is the index of that of the first channel.
        """
        i32, f32, settings = np.int32, np.float32, self.settings
        search, constants = settings.search, self.variant.constants
        rows, columns = grid
        across = -(-columns.count // constants["GROUP_X"])
        down = -(-rows.count // constants["GROUP_Y"])
        ring = (shape.images, first % shape.images, shape.sums, first % shape.sums)
        maps = spectra = ()
        if settings.spectra:
            each = count if len(settings.spectra) > 1 else channels * count
            spectra = i32(first_spectrum), i32(each)
        if variation is not None:
            maps = (variation, i32(shape.nx), i32(-shape.margin), i32(-shape.margin))
        before = (
            *(*images, *shape.layout, *grid_arguments(rows, columns), i32(across)),
            *map(i32, (*ring, *search.frames, -search.late)),
        )
        after = (
            *(found.places, found.keys, i32(count), *links, *maps),
            *(f32(settings.similar * PATCH**2), *map(f32, settings.limits)),
            *(self._kaiser, self._correlation),
            *spectra,
            *(f32(self._scale), self._largest, f32(self._units), sums),
        )
        kernel = self._shrink(bool(maps))
        if self.variant.kernel == "shrink_shared":
            teams = constants["TEAMS"]
            team = 8 * search.neighbours // constants["DEPTH"]
            over = (team, teams * across * down, channels * count)
            return [("shrink", kernel(queue, over, (team, teams, 1), *before, *after))]
        launches = []
        for frame in range(count):
            for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
                over = ((across - x + 1) // 2, (down - y + 1) // 2, channels)
                if min(over) > 0:
                    turn = map(i32, (frame, y, x))
                    launch = kernel(queue, over, (1, 1, 1), *before, *turn, *after)
                    launches.append(("shrink", launch))
        return launches

    def join(
        self,
        queue,
        noisy,
        shape: RingShape,
        channels: int,
        first: int,
        count: int,
        sums,
        levels,
        region,
        out,
    ) -> Launches:
        """Enqueue the estimate of a region (top, left, ny, nx) of some frames from their sums.

        `levels`, the noise of these frames, is float32 of shape (channels, count); `out` is float32
        of shape (channels, count, ny, nx).
        """
        i32, f32 = np.int32, np.float32
        _, _, ny, nx = region
        ring = (shape.images, first % shape.images, shape.sums, first % shape.sums)
        launch = self._join(
            queue,
            *self._join_grid(ny, nx, channels * count),
            *(noisy, *shape.layout, *map(i32, (*ring, count)), sums),
            *(levels, self._kaiser, f32(self._scale), f32(self._units), *map(i32, region), out),
        )
        return [("join", launch)]
