"""NL-means on one device, tile by tile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.search.patch_search import (
    Grid,
    PatchSearch,
    SearchSettings,
    Variant,
)
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.tiles import Tile


class Plan(TilePlan):
    """Kernels and buffers of NL-means on one device; belongs to one thread.

    `strength`, `flat` and `rician` are those of `NLMeans`; `variant` is the search kernel to use,
    by default the one that fits the device.
    """

    def __init__(
        self,
        search: SearchSettings,
        arena: Arena,
        variant: Variant | None = None,
        *,
        strength: float,
        flat: float,
        rician: bool,
    ):
        self.arena = arena
        self.search = PatchSearch(search, arena, variant)
        self.rician = rician
        self._weights = np.float32(strength), np.float32(flat)
        self._group = _average_group(search, arena.session.device)
        squares = {"SQUARES": 1} if rician else {}
        self._constants = {
            **self.search.constants,
            "WINDOW": search.window,
            **self._group,
            **({"ROOTS": 1} if search.roots else squares),
        }
        self._aggregate = arena.kernel(
            "nl_means/aggregate_patches", {"PATCH": search.patch, "STEP": search.step, **squares}
        )

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: those of the search, and the estimates of all patches."""
        patch, step = self.search.settings.patch, self.search.settings.step
        references = math.prod(Grid.of(span, patch, step).count for span in (tile.y, tile.x))
        estimates = 4 * tile.t.size * tile.z.size * references * patch**2
        return {**self.search.buffers(tile), "estimates": estimates}

    def enqueue(
        self,
        queue,
        tile: Tile,
        source,
        out,
        sigma: TileSigma,
        ring: tuple[int, int] | None = None,
        alike: Any = None,
        place: tuple[int, int] = (0, 0),
        held: Buffers | None = None,
    ) -> Launches:
        """Enqueue the filter for one tile, in buffers `held` or else allocated for it.

        `ring` and `alike` are those of `PatchSearch.enqueue`; `place` is how many frames (t, z)
        of `out` come before those of this tile, and how many there are.
        """
        i32, settings = np.int32, self.search.settings
        held = held or self.hold(tile)
        matches = self.search.enqueue(queue, tile, source, ring, alike, held)
        nt, nz, ny, nx = tile.shape
        snt, snz, sny, snx = tile.source_shape
        frames, estimates = nt * nz, held["estimates"]
        group_x, group_y = self._group["GROUP_X"], self._group["GROUP_Y"]
        across, down = -(-matches.columns.count // group_x), -(-matches.rows.count // group_y)
        is_map = sigma.variation is not None
        constants = {**self._constants, "SIGMA_MAP": int(is_map)}
        average = self.arena.kernel("nl_means/average_patches", constants)(
            queue,
            (settings.patch, across * down * group_x * group_y, frames),
            (settings.patch, group_x * group_y, 1),
            *(matches.padded, *matches.layout, *matches.grid, i32(across)),
            *(matches.offsets, matches.keys),
            *(sigma.levels, *self._weights, estimates),
            *((sigma.variation, i32(snx)) if is_map else ()),
        )
        margins = (tile.t.margin, tile.z.margin, tile.y.margin, tile.x.margin)
        aggregate = self._aggregate(
            queue,
            *pixel_grid(self.arena.session.device, nx, ny, frames),
            *(estimates, *matches.grid, source),
            *map(i32, (*(ring or (0, snt)), snz, sny, snx)),
            *map(i32, margins),
            *(i32(nz), i32(ny), i32(nx), i32(place[0]), out),
        )
        return [*matches.events, ("average", average), ("aggregate", aggregate)]


def _average_group(settings: SearchSettings, device: Device) -> dict[str, int]:
    """Return the build constants for the number of references that a work-group averages.

    A GPU copies what they can reach to local memory, unless the search spans several frames.
    """
    patch, step, neighbours = settings.patch, settings.step, settings.neighbours
    copies = device.float_lanes == 1 and not (any(settings.frames) or settings.slices)
    limit = min(device.local_memory, 32768)
    # Neighbours share the pixels that they copy; with more than 320 items that gains nothing.
    for across, down in ((16, 4), (8, 4), (4, 4), (4, 2), (2, 2), (1, 1)):
        items = patch * across * down
        height, width = ((n - 1) * step + patch + settings.window - 1 for n in (down, across))
        nbytes = across * down * (12 * neighbours + 8 * patch) + 4 * height * width
        if copies and nbytes <= limit and items <= min(320, device.max_group):
            return {"GROUP_X": across, "GROUP_Y": down, "LOCAL_TILE": 1}
    each = 12 * neighbours + 8 * patch
    count = max(1, min(limit // each, 128 // patch, device.max_group // patch))
    return {"GROUP_X": count, "GROUP_Y": 1, "LOCAL_TILE": 0}
