"""The Shapiro-Wilk NL-means on one device, tile by tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from napari_gpu_denoise.filters.pixelwise.plan import Plan as ExactPlan
from napari_gpu_denoise.filters.swnlm import royston
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.tiles import Tile

# Work-items of a group on a GPU, fewest along x, and the local memory that it may take.
_ACROSS, _DOWN, _FEWEST = 32, 4, 8
_LOCAL_BYTES = 40960
# Rows and vectors that a work-item takes on a CPU.
_ROWS = 16
_VECTORS = 4


@dataclass(frozen=True)
class Similarity:
    """When the patches of two pixels count as similar, and what becomes of lonely pixels."""

    patch: int
    window: int
    alpha: float
    widen: float
    fewest: int

    @cached_property
    def limits(self) -> np.ndarray:
        """The limits of the tests of mean and deviation, as normality.h takes them."""
        n = self.patch**2
        error = self.widen / self.patch
        largest = (n / (1 - error)) ** 2 if error < 1 else math.inf
        return np.array([self.widen**2, (n / (1 + error)) ** 2, largest, 0], np.float32)


@dataclass(frozen=True)
class Group:
    """A work-group on a GPU: its shape, and the offsets that it compares at a time."""

    across: int
    down: int
    chunk: int

    @classmethod
    def of(cls, patch: int, window: int, device: Device) -> Group | None:
        """Return the group for a device; None where there is no room for one, and on CPUs."""
        down = _DOWN
        across = min(_ACROSS, device.max_group // down)
        if device.float_lanes > 1 or across < _FEWEST:
            return None
        tile = (across + window + patch - 2) * (down + window + patch - 2)
        sums = (across + window - 1) * (down + window - 1)
        held = 4 * (tile + sums + across * down)
        room = min(device.local_memory, max(_LOCAL_BYTES, held + 8192)) - held
        most = min(room // (4 * down * (across + patch - 1)), 32)
        if most < 1:
            return None
        # All chunks of a row of the window are of about the same size.
        return cls(across, down, -(-window // -(-window // most)))


class Plan(TilePlan):
    """Kernels and buffers of the filter on one device; belongs to one thread.

    `exact` filters pixels that too few resemble; None leaves them as they are. With `show`, the
    number of pixels averaged is yielded.
    """

    def __init__(self, similarity: Similarity, show: bool, exact: ExactPlan | None, arena: Arena):
        self.arena, self.similarity, self.exact = arena, similarity, exact
        device = arena.session.device
        n = similarity.patch**2
        self._weights = constant_buffer(arena.session, royston.weights(n).astype(np.float32))
        self._least = np.float32(royston.limit(n, similarity.alpha))
        self._around = similarity.window // 2 + similarity.patch // 2
        constants = {"PATCH": similarity.patch, "WINDOW": similarity.window, "SHOW": int(show)}
        group = Group.of(similarity.patch, similarity.window, device)
        if group is not None:
            self._block = group.across, group.down
            self._group = (*self._block, 1)
            self._kernel = "swnlm/average_group"
            sizes = {"GROUP_X": group.across, "GROUP_Y": group.down, "CHUNK": group.chunk}
            self._beyond = 0
        else:
            lanes = max((n for n in (4, 8, 16) if n <= device.float_lanes), default=1)
            self._block = (lanes * _VECTORS, _ROWS)
            self._group = (1, 1, 1)
            self._kernel = "swnlm/average_lanes"
            sizes = {"LANES": lanes, "ROWS": _ROWS, "VECTORS": _VECTORS}
            self._beyond = lanes
        self._constants = {**constants, **sizes}

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: the image with its surroundings, and sums of patches."""
        pny, pitch = self._padded(tile)
        frames = tile.t.size * tile.z.size
        sizes = {"swnlm padded": frames, "swnlm sums": frames}
        if is_map:
            sizes["swnlm variation"] = 1
        exact = {} if self.exact is None else self.exact.buffers(tile, is_map)
        return exact | {name: 4 * count * pny * pitch for name, count in sizes.items()}

    def _padded(self, tile: Tile) -> tuple[int, int]:
        """Return the shape of the image with its surroundings, whose rows have whole blocks."""
        across = self._block[0]
        pitch = -(-tile.x.size // across) * across + 2 * self._around + self._beyond
        return tile.y.size + 2 * self._around, pitch

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue the filter for one tile; return the launches by name."""
        held = self.hold(tile, sigma.variation is not None)
        i32, device = np.int32, self.arena.session.device
        similarity, (pny, pitch) = self.similarity, self._padded(tile)
        nt, nz, ny, nx = tile.shape
        frames = nt * nz

        def mirrored(pixels, name: str, planes: tuple[int, int]):
            kernel = self.arena.kernel(
                "pixelwise/spread_pixels", {"RADIUS": self._around, "SPLIT": 1, "ALIKE": 0}
            )
            y, x = tile.y, tile.x
            return kernel(
                queue,
                *pixel_grid(device, pitch, pny, math.prod(planes)),
                *(pixels, *map(i32, (0, planes[0], *planes, y.source_size, x.source_size))),
                *map(i32, (y.source_start, x.source_start, y.length, x.length)),
                *(held[name], i32(pny), i32(pitch)),
                *(i32(y.start - self._around), i32(x.start - self._around)),
            )

        launches: Launches = []
        if self.exact is not None:
            # The others are overwritten.
            launches += self.exact.enqueue(queue, tile, source, out, sigma, held=held)
        launches.append(("mirror", mirrored(source, "swnlm padded", (nt, nz))))
        variation = None
        if sigma.variation is not None:
            variation = held["swnlm variation"]
            launches.append(("mirror", mirrored(sigma.variation, "swnlm variation", (1, 1))))
        summed = self.arena.kernel("swnlm/sum_patches", {"PATCH": similarity.patch})(
            queue,
            *pixel_grid(device, pitch, pny, frames),
            *(held["swnlm padded"], i32(pny), i32(pitch), held["swnlm sums"]),
        )
        constants = {**self._constants, "SIGMA_MAP": int(variation is not None)}
        blocks = (-(-nx // self._block[0]), -(-ny // self._block[1]), frames)
        averaged = self.arena.kernel(self._kernel, constants)(
            queue,
            tuple(n * size for n, size in zip(blocks, self._group, strict=True)),
            self._group,
            *(held["swnlm padded"], held["swnlm sums"], i32(pny), i32(pitch), i32(ny), i32(nx)),
            *(sigma.levels, variation, self._weights, similarity.limits, self._least),
            *(i32(similarity.fewest), i32(self.exact is None), out),
        )
        return [*launches, ("sums", summed), ("similar", averaged)]
