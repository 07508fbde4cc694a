"""The sliding 3D DCT of volumes, and PRI-NLM, which it guides (Manjón et al. 2012)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.filters.pixels import Launcher, spread
from napari_gpu_denoise.filters.volumes import VolumeFilter, cube_setting, voxel_setting
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach, Tile
from napari_gpu_denoise.run.denoise import filter_function

# Rows and slices that a work-item filters on a CPU, and slices on a GPU: more of them filter fewer
# voxels twice.
_BLOCK = 16
_DEPTH = 32
# Work-items along x of a work-group on a GPU; along y, by the height of a slice of a cube, so that
# each item has as many registers as it needs.
_ACROSS = 32
_DOWN = {16: 12, 32: 12, 64: 16}
# Bytes of local memory that values are exchanged in.
_LOCAL_BYTES = 32768


@dataclass(frozen=True)
class Group:
    """A work-group on a GPU: its shape, and the rows of cubes that are exchanged at a time."""

    across: int
    down: int
    rows: int

    @classmethod
    def of(cls, cube: tuple[int, int, int], device: Device) -> Group | None:
        """Return the group for cubes on a device; None where small groups would do little."""
        _, cy, cx = cube
        across, down = _ACROSS, _DOWN[cy * cx]
        while across * down > device.max_group and across > 4:
            across, down = (across // 2, down) if across > down else (across, down - down // 4)
        if device.float_lanes > 1 or across <= cx or down <= cy:
            return None
        limit = min(device.local_memory, _LOCAL_BYTES)
        for rows in (4, 2, 1):
            copied = (across + cx - 1) * (down + cy - 1)
            if 4 * (copied + across * down * (rows * cx + 1)) <= limit:
                return cls(across, down, rows)
        return None


class DCT3DPlan(TilePlan):
    """Kernels and buffers of the sliding DCT on one device; belongs to one thread."""

    def __init__(self, cube: tuple[int, int, int], step: int, threshold: float, arena: Arena):
        self.arena, self.cube, self.threshold = arena, cube, np.float32(threshold)
        self._group = group = Group.of(cube, arena.device)
        self._cube = {f"CUBE_{axis}": n for axis, n in zip("ZYX", cube, strict=True)}
        # Steps as long as a thin cube leave no gaps.
        steps = {f"STEP_{axis}": min(step, n) for axis, n in zip("ZYX", cube, strict=True)}
        self._constants = self._cube | steps
        if group is not None:
            shape = {"GROUP_X": group.across, "GROUP_Y": group.down, "ROWS": group.rows}
            self._constants |= {**shape, "DEPTH": _DEPTH}
        else:
            self._constants["LANES"] = self._lanes = arena.device.lanes

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: on a CPU a copy of it, and sums."""
        if self._group is not None:
            return {}
        pnz, pny, pitch = self._copied(tile)
        items = tile.t.size * math.prod(self._blocks(tile))
        return {
            "mirrored": 4 * tile.t.size * pnz * pny * pitch,
            "sums": 8 * items * math.prod(_block(tile)) * pitch,
        }

    def _copied(self, tile: Tile) -> tuple[int, int, int]:
        """Return the shape of the copy of a tile."""
        cz, cy, cx = self.cube
        lanes = self._lanes

        def rounded(n: int) -> int:
            return -(-n // lanes) * lanes

        pitch = rounded(rounded(tile.x.size + cx - 1) + cx - 1)
        return tile.z.size + 2 * (cz - 1), tile.y.size + 2 * (cy - 1), pitch

    def _blocks(self, tile: Tile) -> tuple[int, int]:
        """Return how many blocks of rows a tile has along y and z."""
        deep, high = _block(tile)
        return -(-tile.y.size // high), -(-tile.z.size // deep)

    def enqueue(
        self,
        queue,
        tile: Tile,
        source,
        out,
        sigma: TileSigma,
        held: Buffers | None = None,
    ) -> Launches:
        """Enqueue the filter for one tile, in buffers `held` or else allocated for it."""
        held, run = self.hold(tile) if held is None else held, Launcher(self.arena, queue)
        nt, nz, ny, nx = tile.shape
        read, spans = tile.source_shape[1:], (tile.z, tile.y, tile.x)
        corner = [span.source_start for span in spans]
        first, whole = [span.start for span in spans], [span.length for span in spans]
        constants = {**self._constants, "SIGMA_MAP": sigma.variation is not None}
        if self._group is not None:
            across, down = self._group.across, self._group.down
            groups_x = -(-nx // (across - self.cube[2] + 1))
            groups_y = -(-ny // (down - self.cube[1] + 1))
            run.run(
                *("shrink", self.arena.kernel("dct3d/shrink_columns", constants)),
                (groups_x * across, groups_y * down, -(-nz // _DEPTH) * nt),
                (across, down, 1),
                *(source, *read, *corner, nz, ny, nx, *first, *whole),
                *(sigma.read_levels, self.threshold, sigma.variation, out),
            )
            return run.launches
        pnz, pny, pitch = self._copied(tile)
        mirrored = held["mirrored"], pnz, pny, pitch
        run.over_pixels(
            *("mirror", self.arena.kernel("dct3d/mirror_around", self._cube)),
            *(pitch, pny, pnz * nt),
            *(source, *read, *corner, *whole, *first, *mirrored),
        )
        run.run(
            *("shrink", self.arena.kernel("dct3d/shrink_rows", constants)),
            (*self._blocks(tile), nt),
            (1, 1, 1),
            *(*mirrored, nz, ny, nx, *first, *whole, sigma.read_levels, corner[0], read[0]),
            *(self.threshold, sigma.variation, *corner[1:], read[2], held["sums"]),
            *(*_block(tile), out),
        )
        return run.launches


def _block(tile: Tile) -> tuple[int, int]:
    """Return slices and rows that a work-item filters on a CPU."""
    return min(_BLOCK, tile.z.size), min(_BLOCK, tile.y.size)


# Of a cube, with what is filtered twice at the borders of work-groups.
OPERATIONS = 1600.0


@dataclass(frozen=True)
class DCT3D(VolumeFilter):
    """Settings of the sliding 3D DCT.

    Every cube of 64 voxels is transformed, coefficients below a threshold are removed, and the
    results of all cubes that contain a voxel are averaged.
    """

    name: ClassVar[str] = "dct3d"
    title: ClassVar[str] = "Sliding 3D DCT"
    summary: ClassVar[str] = "Thresholds the DCT of every small cube: the fastest for volumes"

    cube: str = cube_setting()
    voxel: str = voxel_setting()
    step: int = setting(1, "Spacing of cubes (1 is slowest and best)", bounds=(1, 4), unit="voxels")
    threshold: float = setting(2.7, "Hard threshold", bounds=(0.0, 10.0), unit="sigma")

    @property
    def reach(self) -> Reach:
        """The cubes that hold a voxel."""
        return Reach((0, 0), *((n, n) for n in self.cube_around))

    @property
    def operations_per_pixel(self) -> float:
        """Those of a cube, by the spacing of cubes."""
        return OPERATIONS / math.prod(min(self.step, n) for n in self.cube_shape)

    def plan(self, arena: Arena) -> DCT3DPlan:
        """Return the plan for one device."""
        return DCT3DPlan(self.cube_shape, self.step, self.threshold, arena)


@filter_function(DCT3D)
def dct3d() -> np.ndarray:
    """Denoise a volume by thresholding the DCT of every small cube.

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
    pri_nlm : About 0.4 dB better and a few times slower; uses this result as a guide.
    bm3d : For images, and for slices that have little in common.

    Notes
    -----
    The mean of a cube is always kept. A cube has the weight ``1 / (coefficients kept)``. The volume
    is mirrored at its borders. If sigma differs from slice to slice, a cube gets the root mean
    square over its slices; for a map, the value in its middle. A larger `step` is faster and much
    worse: 1.6 dB for ``step=2``. Repeated runs on one device are bit-identical, with any tiles.

    References
    ----------
    J. V. Manjón, P. Coupé, A. Buades, D. L. Collins and M. Robles, "New methods for MRI denoising
    based on sparseness and self-similarity", Medical Image Analysis 16 (2012), 18-27, section 2.2,
    :doi:`10.1016/j.media.2011.04.003`.

    Examples
    --------
    >>> out = dct3d(volume, sigma=20, axes="ZYX")                      # doctest: +SKIP
    >>> out = dct3d(volumes, axes="TZYX", cube="2x4x8")                # doctest: +SKIP
    """


# Voxels along z that a work-item averages for; on a CPU as many as fit into its registers. Blocks
# of them begin at multiples of their depth.
DEPTH = 8
_CPU_DEPTH = 4
# Work-items of a group on a GPU.
_GROUP = (64, 2)
# Around a voxel, those of the mean of the guide.
MEAN_RADIUS = 1


class PRINLMPlan(TilePlan):
    """Kernels and buffers of PRI-NLM on one device; belongs to one thread.

    `guide` is the plan that makes the guide.
    """

    def __init__(self, settings: PRINLM, guide: DCT3DPlan, arena: Arena):
        self.arena, self.guide, self._strength = arena, guide, np.float32(settings.strength)
        self._radius_z, self._radius = settings.window_z // 2, settings.window // 2
        self._lanes = arena.device.lanes
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
        wider, run = self._guided(tile), Launcher(self.arena, queue)
        run.launches += self.guide.enqueue(queue, wider, source, held["guide"], sigma, held)
        nt, nz, ny, nx = tile.shape
        lanes, constants = self._lanes, {**self._radii, "EVEN": sigma.even}
        depth, blocks, skip = self._blocks(tile)
        spans, guided = (tile.z, tile.y, tile.x), (wider.z, wider.y, wider.x)
        pnz, pny, pitch = self._padded(tile)
        padded = held["spread"], nt, pnz, pny, pitch
        packed = {**constants, "PACKED": lanes == 1}
        run.over_pixels(
            *("spread", self.arena.kernel("pri_nlm/spread_guide", packed), pitch, pny, pnz * nt),
            *(source, *tile.source_shape[1:], *(span.source_start for span in spans)),
            *(held["guide"], *wider.shape[1:], *(span.start for span in guided)),
            *(span.length for span in spans),
            *(tile.z.start - skip, tile.y.start, tile.x.start),
            *(sigma.levels, self._strength, *padded),
        )
        constants |= {
            "DEPTH": depth,
            "LANES": lanes,
            "NVIDIA": lanes == 1 and run.device.is_nvidia,
        }
        constants["SIGMA_MAP"] = sigma.variation is not None
        fits = math.prod(_GROUP) <= run.device.max_group
        across, down = _GROUP if lanes == 1 and fits else (1, 1)
        columns = -(-nx // (lanes * across)) * across
        run.run(
            *("average", self.arena.kernel("pri_nlm/average_similar", constants)),
            (columns, -(-ny // down) * down, blocks * nt),
            (across, down, 1),
            *(*padded, nz, ny, nx, skip, blocks, sigma.levels, sigma.variation),
            *(tile.y.margin, tile.x.margin, tile.x.source_size, self._strength, out),
        )
        return run.launches


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

    def plan(self, arena: Arena) -> PRINLMPlan:
        """Return the plan for one device."""
        guide = DCT3DPlan(self.cube_shape, self.step, self.threshold, arena)
        return PRINLMPlan(self, guide, arena)


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
