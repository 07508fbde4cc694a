"""Filter groups of similar patches of a video, on one device: a pass of VBM3D."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_settings import LINE, PATCH, GroupSettings, GroupVariant
from napari_gpu_denoise.filters.bm3d.group_tables import (
    fixed_point,
    group_constants,
    group_tables,
    weight_units,
)
from napari_gpu_denoise.filters.search.patches import Grid
from napari_gpu_denoise.filters.vbm3d.predictive_search import (
    PredictiveSearch,
    RingShape,
    VideoMatches,
    grid_arguments,
)
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.tiles import Span, Tile


def choose_video_group_variant(settings: GroupSettings, device: Device) -> GroupVariant:
    """Choose the kernel for a device: whole groups as vectors on a CPU, teams of items elsewhere.

    On a CPU groups are as wide as it takes for every second one to be out of reach of the others.
    """
    search = settings.search
    if device.float_lanes >= 4:
        side = -(-(2 * search.furthest + PATCH) // search.step)
        return GroupVariant("shrink_lanes", {"GROUP_X": side, "GROUP_Y": side})
    neighbours = search.neighbours
    depth = max(2, min(neighbours, 8) // (4 if settings.wiener else 2)) if neighbours > 1 else 1
    # A quarter of a group an item at least.
    depth = max(depth, neighbours // 4)
    most = 256 if settings.wiener and neighbours == 8 else 128
    teams = max(1, min(most, device.max_group) * depth // (8 * neighbours))
    constants = {
        "GROUP_X": 4 if teams >= 4 else teams,
        "GROUP_Y": max(1, teams // 4),
        "DEPTH": depth,
        "TEAMS": teams,
        "LOCAL_TILE": 0,
        "WARP_SYNC": int("nvidia" in device.vendor.lower()),
        "LINE": LINE,
    }
    return GroupVariant("shrink_shared", constants)


class VideoPass:
    """Kernels and buffers of one pass; belongs to one thread.

    Parameters
    ----------
    settings : GroupSettings
        The pass; its search is a `VideoSearch`.
    arena : Arena
        Keeps the buffers.
    variant : GroupVariant, optional
        The kernel to use, by default what `choose_video_group_variant` gives for the device.
    search_variant : Variant, optional
        The same for the search.
    """

    def __init__(
        self,
        settings: GroupSettings,
        arena: Arena,
        variant: GroupVariant | None = None,
        search_variant: Any = None,
    ):
        self.settings = settings
        self.arena = arena
        search, device = settings.search, arena.session.device
        self.search = PredictiveSearch(search, arena, search_variant)
        self.variant = variant or choose_video_group_variant(settings, device)
        self._constants = {
            "PATCH": PATCH,
            "STEP": search.step,
            "NEIGHBOURS": search.neighbours,
            "INDEX_BITS": 0,
            **group_constants(settings),
            "FLOAT_SUMS": 0,
            "ATOMIC_FLOAT": 0,
            "VIDEO": 1,
            **self.variant.constants,
        }
        self._shrink: dict[bool, Any] = {}
        self._join_group = (32, 8) if device.max_group >= 256 else (8, 4)
        self._join = arena.kernel(
            "bm3d/join_slabs",
            {
                **{name: self._constants[name] for name in ("PATCH", "STEP", "WINDOW")},
                **{"FLOAT_SUMS": 0, "VIDEO": 1, "SLAB_X": 1, "SLAB_Y": 1},
                "GROUP_X": self._join_group[0],
                "GROUP_Y": self._join_group[1],
            },
        )
        self._kaiser, self._correlation = group_tables(settings, arena)
        added = search.covering(PATCH)
        # So many cover a pixel only where all around is matched with it: less of a range will do.
        self._scale, self._largest = fixed_point(added, 12), np.float32(2.0**31 / added)
        self._units = weight_units(search.covering(1))

    def grid(self, tile: Tile) -> tuple[Grid, Grid]:
        """Return the references that what a tile yields needs, along Y and X."""
        around = self.settings.search.furthest
        return tuple(
            Grid.of(_wider(s, around), PATCH, self.settings.search.step) for s in (tile.y, tile.x)
        )

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
    ) -> list[tuple[str, Any]]:
        """Enqueue the filtering of the groups of some frames, which adds to `sums`.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        found : VideoMatches
            What the search found.
        images : tuple of pyopencl.Buffer
            Rings of the noisy frames and, for a Wiener filter, of the basic estimate, each of
            (channels, images, pny, pitch).
        shape : RingShape
            What the rings are like.
        channels : int
            Channels that share the matches.
        first, count : int
            The frames whose patches are the references.
        grid : tuple of Grid
            References along Y and X.
        links : tuple of pyopencl.Buffer
            Of the channels, float32 of shape (channels, count, span, 3), and of what was searched.
        sums : pyopencl.Buffer
            int32 of shape (channels, sums, 2, pny, pitch).
        variation : pyopencl.Buffer, optional
            A map that the noise is multiplied by, of the shape of a frame.
        """
        i32, f32, settings = np.int32, np.float32, self.settings
        search, constants = settings.search, self.variant.constants
        rows, columns = grid
        across = -(-columns.count // constants["GROUP_X"])
        down = -(-rows.count // constants["GROUP_Y"])
        ring = (shape.images, first % shape.images, shape.sums, first % shape.sums)
        maps = ()
        if variation is not None:
            maps = (variation, i32(shape.nx), i32(-shape.margin), i32(-shape.margin))
        before = (
            *(*images, *shape.layout, *grid_arguments(rows, columns), i32(across)),
            *map(i32, (*ring, *search.frames, -search.late)),
        )
        after = (
            *(found.places, found.keys, i32(count), *links, *maps),
            *(f32(settings.similar * PATCH**2), f32(settings.threshold**2)),
            *(self._kaiser, self._correlation),
            *(f32(self._scale), self._largest, f32(self._units), sums),
        )
        kernel = self._kernel(bool(maps))
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
    ) -> list[tuple[str, Any]]:
        """Enqueue the estimate of some frames from their sums.

        Parameters
        ----------
        noisy, shape, channels, first, count, sums
            As in `shrink`.
        levels : pyopencl.Buffer
            Noise of these frames, float32 of shape (channels, count).
        region : tuple of int
            (top, left, ny, nx) of what is made, within a frame.
        out : pyopencl.Buffer
            float32 of shape (channels, count, ny, nx).
        """
        i32, f32 = np.int32, np.float32
        _, _, ny, nx = region
        width, height = self._join_group
        ring = (shape.images, first % shape.images, shape.sums, first % shape.sums)
        launch = self._join(
            queue,
            (-(-nx // width) * width, -(-ny // height) * height, channels * count),
            (width, height, 1),
            *(noisy, *shape.layout, *map(i32, (*ring, count)), sums),
            *(levels, self._kaiser, f32(self._scale), f32(self._units), *map(i32, region), out),
        )
        return [("join", launch)]

    def _kernel(self, sigma_map: bool):
        if sigma_map not in self._shrink:
            self._shrink[sigma_map] = self.arena.kernel(
                f"bm3d/{self.variant.kernel}", {**self._constants, "SIGMA_MAP": int(sigma_map)}
            )
        return self._shrink[sigma_map]


def _wider(span: Span, around: int) -> Span:
    return replace(
        span,
        start=max(span.start - around, span.source_start),
        stop=min(span.stop + around, span.source_stop),
    )
