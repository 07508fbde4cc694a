"""The passes of BM4D on one device, one after another."""

from __future__ import annotations

import math

from napari_gpu_denoise.filters.bm3d.group_kernels import made_passes, yields_of_passes
from napari_gpu_denoise.filters.bm4d.cube_filter import CubeFilter
from napari_gpu_denoise.filters.bm4d.cube_search import Volumes
from napari_gpu_denoise.filters.bm4d.cube_settings import CubePass
from napari_gpu_denoise.filters.pixels import including_margins
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TilePlan, TileSigma, together
from napari_gpu_denoise.protocol.tiles import Tile


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
