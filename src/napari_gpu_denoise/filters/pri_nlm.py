"""Prefiltered, rotationally invariant NL-means of volumes (Manjón et al. 2012)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.filters.dct3d import OPERATIONS
from napari_gpu_denoise.filters.dct3d import Plan as GuidePlan
from napari_gpu_denoise.filters.pixels import spread
from napari_gpu_denoise.filters.volumes import VolumeFilter, cube_setting, voxel_setting
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach, Tile
from napari_gpu_denoise.run.denoise import filter_function

# Voxels along z that a work-item averages for; on a CPU as many as fit into its registers. Blocks
# of them begin at multiples of their depth.
DEPTH = 8
_CPU_DEPTH = 4
# Work-items of a group on a GPU.
_GROUP = (64, 2)
# Around a voxel, those of the mean of the guide.
MEAN_RADIUS = 1


class Plan(TilePlan):
    """Kernels and buffers of PRI-NLM on one device; belongs to one thread.

    `guide` is the plan that makes the guide.
    """

    def __init__(self, settings: PRINLM, guide: GuidePlan, arena: Arena):
        self.arena, self.guide, self._strength = arena, guide, np.float32(settings.strength)
        self._radius_z, self._radius = settings.window_z // 2, settings.window // 2
        lanes = arena.session.device.float_lanes
        self._lanes = max((n for n in (4, 8, 16) if n <= lanes), default=1)
        self._radii = {"RADIUS_Z": self._radius_z, "RADIUS": self._radius}

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: those of the guide, the guide, and three arrays."""
        wider = self._guided(tile)
        each = 16 if self._lanes == 1 else 12
        return {
            **self.guide.buffers(wider, is_map),
            "guide": 4 * math.prod(wider.shape),
            "spread": each * tile.t.size * math.prod(self._padded(tile)),
        }

    def _guided(self, tile: Tile) -> Tile:
        """Return the tile that yields the guide, wherever the window and the means look."""
        deep = max(self._radius_z + MEAN_RADIUS, DEPTH - 1)
        wide = self._radius + MEAN_RADIUS
        return spread(tile, (deep, wide, wide))

    def _blocks(self, tile: Tile) -> tuple[int, int, int]:
        """Return length and number of blocks along z, and what the first has before the tile."""
        most = DEPTH if self._lanes == 1 else _CPU_DEPTH
        depth = next(n for n in (1, 2, 4, 8) if n >= min(tile.z.length, most))
        skip = tile.z.start % depth
        return depth, -(-(skip + tile.z.size) // depth), skip

    def _padded(self, tile: Tile) -> tuple[int, int, int]:
        """Return the shape of the arrays around a tile."""
        (depth, blocks, _), lanes, around = self._blocks(tile), self._lanes, 2 * self._radius
        pitch = -(-tile.x.size // lanes) * lanes + around
        pnz = depth * blocks + 2 * self._radius_z
        return pnz, tile.y.size + around, -(-pitch // lanes) * lanes

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue the filter for one tile; return the launches by name."""
        held = self.hold(tile, sigma.variation is not None)
        wider, device = self._guided(tile), self.arena.session.device
        launches = self.guide.enqueue(queue, wider, source, held["guide"], sigma, held)
        nt, nz, ny, nx = tile.shape
        i32, lanes, strength = np.int32, self._lanes, self._strength
        depth, blocks, skip = self._blocks(tile)
        spans, guided = (tile.z, tile.y, tile.x), (wider.z, wider.y, wider.x)
        padded = [*map(i32, self._padded(tile))]
        spread = self.arena.kernel(
            "pri_nlm/spread_guide",
            {**self._radii, "PACKED": int(lanes == 1), "EVEN": int(sigma.even)},
        )(
            queue,
            *pixel_grid(device, *map(int, padded[:0:-1]), int(padded[0]) * nt),
            *(source, *map(i32, tile.source_shape[1:])),
            *(i32(span.source_start) for span in spans),
            *(held["guide"], *map(i32, wider.shape[1:])),
            *(i32(span.start) for span in guided),
            *(i32(span.length) for span in spans),
            *(i32(tile.z.start - skip), i32(tile.y.start), i32(tile.x.start)),
            *(sigma.levels, strength, held["spread"], i32(nt), *padded),
        )
        constants = {**self._radii, "DEPTH": depth, "LANES": lanes}
        constants["NVIDIA"] = int(lanes == 1 and "nvidia" in device.vendor.lower())
        constants["SIGMA_MAP"] = int(sigma.variation is not None)
        constants["EVEN"] = int(sigma.even)
        across, down = _GROUP if lanes == 1 and math.prod(_GROUP) <= device.max_group else (1, 1)
        columns = -(-nx // (lanes * across)) * across
        average = self.arena.kernel("pri_nlm/average_similar", constants)(
            queue,
            (columns, -(-ny // down) * down, blocks * nt),
            (across, down, 1),
            *(held["spread"], i32(nt), *padded, i32(nz), i32(ny), i32(nx), i32(skip), i32(blocks)),
            *(sigma.levels, sigma.variation, i32(tile.y.margin), i32(tile.x.margin)),
            *(i32(tile.source_shape[3]), strength, out),
        )
        return [*launches, ("spread", spread), ("average", average)]


@dataclass(frozen=True)
class PRINLM(VolumeFilter):
    """Settings of PRI-NLM.

    Noisy voxels of a window are averaged; weights compare the result of the sliding 3D DCT, and its
    mean over 3 x 3 x 3 voxels.
    """

    name: ClassVar[str] = "pri_nlm"
    title: ClassVar[str] = "PRI-NLM"
    summary: ClassVar[str] = "NL-means guided by the sliding 3D DCT: fast and good for volumes"

    window: int = setting(
        11, "Search window width in Y and X (odd)", bounds=(1, 31), unit="pixels", odd=True
    )
    window_z: int = setting(
        11, "Search window width in Z (odd)", bounds=(1, 31), unit="slices", odd=True
    )
    strength: float = setting(
        0.4, "Filtering strength h: decay of the weights", bounds=(0.05, 10.0), unit="sigma"
    )
    cube: str = cube_setting()
    voxel: str = voxel_setting()
    step: int = setting(
        1,
        "Spacing of the cubes of the guide (1 is slowest and best)",
        bounds=(1, 4),
        unit="voxels",
        advanced=True,
    )
    threshold: float = setting(
        2.7, "Hard threshold of the guide", bounds=(0.0, 10.0), unit="sigma", advanced=True
    )

    @property
    def reach(self) -> Reach:
        """The window, the mean of the guide or a block of voxels, and the cubes of the guide."""
        deep = max(self.window_z // 2 + MEAN_RADIUS, DEPTH - 1)
        wide = self.window // 2 + MEAN_RADIUS
        pairs = zip((deep, wide, wide), self.cube_around, strict=True)
        return Reach((0, 0), *((a + b,) * 2 for a, b in pairs))

    @property
    def operations_per_pixel(self) -> float:
        """About 12 for each voxel of the window, and those of the guide."""
        return 12.0 * self.window**2 * self.window_z + OPERATIONS

    def plan(self, arena: Arena) -> Plan:
        """Return the plan for one device."""
        guide = GuidePlan(self.cube_shape, self.step, self.threshold, arena)
        return Plan(self, guide, arena)


@filter_function(PRINLM)
def pri_nlm() -> np.ndarray:
    """Denoise a volume by PRI-NLM, prefiltered rotationally invariant NL-means.

    Parameters
    ----------
    {inputs}
    profile : {"normal"}, optional
        Settings to start from, by default ``"normal"``.
    axes : str
        Names of the axes, such as ``"ZYX"``, ``"TZYX"`` or ``"CZYX"``. Z, Y and X are required and
        filtered together; volumes along every other axis are independent.
    {settings}
    {options}
    {fields}

    {outcome}

    See Also
    --------
    dct3d : The guide alone, a few times faster.
    bm3d : For images, and for slices that have little in common.

    Notes
    -----
    The weights are ``exp(-((g - g')**2 + 3 * (m - m')**2) / (4 * h**2))`` with
    ``h = strength * sigma``, where g is the result of `dct3d` and m its mean over 3 x 3 x 3 voxels;
    a voxel itself has the weight 1. The window is cut off at the borders of the volume. Results are
    means of noisy voxels: they never leave the range of the volume. Repeated runs on one device are
    bit-identical, with any tiles.

    References
    ----------
    J. V. Manjón, P. Coupé, A. Buades, D. L. Collins and M. Robles, "New methods for MRI denoising
    based on sparseness and self-similarity", Medical Image Analysis 16 (2012), 18-27,
    :doi:`10.1016/j.media.2011.04.003`.

    Examples
    --------
    >>> out = pri_nlm(volume, sigma=20, axes="ZYX")                    # doctest: +SKIP
    >>> out = pri_nlm(volume, axes="ZYX", window_z=5)                  # doctest: +SKIP
    """
