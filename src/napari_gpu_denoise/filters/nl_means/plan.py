"""What runs NL-means on one device, tile by tile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.search.patch_search import PatchSearch
from napari_gpu_denoise.filters.search.patches import Grid
from napari_gpu_denoise.filters.search.variants import SearchSettings, Variant
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.work_items import pixel_grid
from napari_gpu_denoise.run.plan import Buffers, Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.run.tiles import Tile


class Plan(TilePlan):
    """Kernels and buffers of NL-means on one device; belongs to one thread.

    Parameters
    ----------
    search : SearchSettings
        What is searched; with `roots` patches are compared as Pearson does.
    arena : Arena
        Keeps the buffers.
    variant : Variant, optional
        The search kernel to use, by default the one that fits the device.
    strength, flat : float
        Decay of the weights, and variance of a flat group, in sigma and sigma squared.
    rician : bool
        Whether squares are averaged, and the bias of magnitudes is taken off.
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
        self._weights = np.float32(strength), np.float32(flat)
        constants = self.search.constants
        # Given only where they are on: what is built otherwise is as it was without them.
        self._squares = {"SQUARES": 1} if rician else {}
        self._noise = {"ROOTS": 1} if search.roots else self._squares
        self.group = _average_group(search, arena.session.device)
        self._average: dict[bool, Any] = {}  # with and without a map of sigma
        self._aggregate = arena.kernel(
            "nl_means/aggregate_patches",
            {**{key: constants[key] for key in ("PATCH", "STEP")}, **self._squares},
        )

    def _averaging(self, is_map: bool):
        """Return the averaging kernel, made when it is first needed."""
        if is_map not in self._average:
            own = {"WINDOW": self.search.settings.window, "SIGMA_MAP": int(is_map)}
            self._average[is_map] = self.arena.kernel(
                "nl_means/average_patches",
                {**self.search.constants, **own, **self.group, **self._noise},
            )
        return self._average[is_map]

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: those of the search, and the estimate of each patch."""
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
        first_out: int = 0,
        held: Buffers | None = None,
    ) -> Launches:
        """Enqueue the filter for one tile.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        tile : Tile
            What is read and what is yielded.
        source, out : pyopencl.Buffer
            float32, of shape ``tile.source_shape`` and ``tile.shape``.
        sigma : TileSigma
            Noise of the frames, or of every pixel.
        ring, alike
            As `PatchSearch.enqueue` takes them.
        first_out : int, optional
            Frames (t, z) in `out` before those of this tile.
        held : Buffers, optional
            What `buffers` declares; by default it is allocated.

        Returns
        -------
        list of (str, pyopencl.Event)
            The launches, by name.
        """
        i32, settings = np.int32, self.search.settings
        held = held or self.hold(tile)
        matches = self.search.enqueue(queue, tile, source, ring, alike, held)
        nt, nz, ny, nx = tile.shape
        snt, snz, sny, snx = tile.source_shape
        frames, estimates = nt * nz, held["estimates"]
        group_x, group_y = self.group["GROUP_X"], self.group["GROUP_Y"]
        across, down = -(-matches.columns.count // group_x), -(-matches.rows.count // group_y)
        is_map = sigma.variation is not None
        average = self._averaging(is_map)(
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
            *(i32(nz), i32(ny), i32(nx), i32(first_out), out),
        )
        return [*matches.events, ("average", average), ("aggregate", aggregate)]


def _average_group(settings: SearchSettings, device: Device) -> dict[str, int]:
    """Return the build constants of the averaging kernel: the references a work-group serves.

    A GPU copies what they can reach to local memory, unless the search spans several frames.
    """
    patch, step, neighbours = settings.patch, settings.step, settings.neighbours
    copies = device.float_lanes == 1 and not (any(settings.frames) or settings.slices)
    limit = min(device.local_memory, 32768)
    for items in (128, 64, 32, 1):
        side = max(1, math.isqrt(items // patch))
        width = (side - 1) * step + patch + settings.window - 1
        nbytes = side**2 * (12 * neighbours + 8 * patch)
        if copies and nbytes + 4 * width**2 <= limit and patch * side**2 <= device.max_group:
            return {"GROUP_X": side, "GROUP_Y": side, "LOCAL_TILE": 1}
    each = 12 * neighbours + 8 * patch
    count = max(1, min(limit // each, 128 // patch, device.max_group // patch))
    return {"GROUP_X": count, "GROUP_Y": 1, "LOCAL_TILE": 0}
