"""Exact pixelwise NL-means on one device, tile by tile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.pixelwise.blocks import Blocks
from napari_gpu_denoise.filters.pixelwise.settings import PixelwiseSettings
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.tiles import Tile

_WEIGHTS = ("exp", "plain", "bisquare")


class Plan(TilePlan):
    """Kernels and buffers of pixelwise NL-means on one device; belongs to one thread.

    `mixing` is what channels are multiplied by before they are compared.
    """

    def __init__(self, settings: PixelwiseSettings, arena: Arena, mixing: Any = None):
        self.arena, self.settings, self._mixing = arena, settings, None
        if mixing is not None:
            values = np.asarray(mixing, np.float32)
            self._mixing = constant_buffer(arena.session, values)
        device = arena.session.device
        self._taps = constant_buffer(arena.session, taps(settings))
        self._constants = {
            "RADIUS": settings.patch // 2,
            "RADIUS_Z": settings.patch_slices,
            "WINDOW": settings.window // 2,
            "WINDOW_Z": settings.slices,
            "BEFORE": settings.frames_before,
            "AFTER": settings.frames_after,
            "GAUSSIAN": int(settings.patch_shape == "gaussian"),
            "WEIGHTS": _WEIGHTS.index(settings.weights),
            "OWN_MAX": int(settings.own_weight == "max"),
            "COUNTS": int(settings.yields_map),
            "NVIDIA": int(device.float_lanes == 1 and "nvidia" in device.vendor.lower()),
        }

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: its frames with room around them, also whitened."""
        frames = tile.channels * tile.source_shape[0] * tile.source_shape[1]
        nbytes = 4 * frames * math.prod(self._blocks(tile).shape(tile))
        names = ("spread",) if self._mixing is None else ("spread", "whitened")
        return dict.fromkeys(names, nbytes)

    def _blocks(self, tile: Tile) -> Blocks:
        """Return how the pixels of a tile are shared out."""
        return Blocks.of(self.settings, self.arena.session.device, tile.channels)

    def enqueue(
        self,
        queue,
        tile: Tile,
        source,
        out,
        sigma: TileSigma,
        ring: tuple[int, int] | None = None,
        alike: Any = None,
        place: tuple[int, int] | None = None,
        held: Buffers | None = None,
    ) -> Launches:
        """Enqueue the filter for one tile, in buffers `held` or else allocated for it.

        `ring`, `alike` and `place` are those of `RingPlan`.
        """
        held = held or self.hold(tile)
        i32, settings = np.int32, self.settings
        nt, nz, ny, nx = tile.shape
        snt, snz, sny, snx = tile.source_shape
        blocks = self._blocks(tile)
        pny, pitch = blocks.shape(tile)
        skip_y, skip_x = blocks.skipped(tile)
        radius = settings.patch // 2
        constants = {"RADIUS": radius, "SPLIT": blocks.split, "ALIKE": int(alike is not None)}
        spread = self.arena.kernel("pixelwise/spread_pixels", constants)(
            queue,
            *pixel_grid(self.arena.session.device, pitch, pny, tile.channels * snt * snz),
            *(source, *map(i32, (*(ring or (0, snt)), snt, snz, sny, snx))),
            *(i32(tile.y.source_start), i32(tile.x.source_start)),
            *(i32(tile.y.length), i32(tile.x.length), held["spread"], i32(pny), i32(pitch)),
            *(*map(i32, blocks.corner(tile)), *(() if alike is None else (alike,))),
        )
        launches = [("spread", spread)]
        guided = tile.channels > 1 and settings.guide >= 0
        compared, first = held["spread"], settings.guide if guided else 0
        if self._mixing is not None:
            compared, first = held["whitened"], -1
            event = self.arena.kernel("pixelwise/whiten_channels", {"CHANNELS": tile.channels})(
                queue,
                *pixel_grid(self.arena.session.device, pitch, pny, snt * snz),
                *(held["spread"], i32(snt * snz), i32(pny), i32(pitch), self._mixing, compared),
            )
            launches.append(("whiten", event))
        constants = {
            **self._constants,
            "CHANNELS": tile.channels,
            "COMPARED": 1 if guided else tile.channels,
            "SIGMA_MAP": int(sigma.variation is not None),
        }
        margins = tile.t.margin, tile.z.margin, tile.z.source_start, tile.z.length, skip_y
        constants["ROWS"] = blocks.rows
        if blocks.group:
            name, margins, group = "columns", (*margins, skip_x), blocks.group
            constants |= {"GROUP_Y": group.group_y, "CHUNK": group.chunk, "PAIR": group.pair}
            even = constants["COMPARED"] == 1 or self._mixing is not None or sigma.even
            constants["EVEN"] = int(even and not constants["GAUSSIAN"])
            constants |= {"HELD": int(group.held), "COLUMNS": group.columns}
            constants["APART"] = int(compared is not held["spread"] or guided)
        else:
            name = "rows"
            constants |= {"WIDTH": blocks.width, "LANES": blocks.lanes}
        average = self.arena.kernel(f"pixelwise/average_{name}", constants)(
            queue,
            *blocks.grid(tile),
            *(held["spread"], compared, i32(first)),
            *map(i32, (snt, snz, pny, pitch, *margins, nt, nz, ny, nx)),
            *(sigma.levels, sigma.variation, i32(tile.y.margin), i32(tile.x.margin), i32(snx)),
            *(np.float32(settings.strength), self._taps, *map(i32, place or (0, nt * nz)), out),
        )
        return [*launches, ("average", average)]


def taps(settings: PixelwiseSettings) -> np.ndarray:
    """Return the weights of a patch along y and x, then along z; each sums to 1, or all are 1."""
    made = []
    for width in (settings.patch, 2 * settings.patch_slices + 1):
        weights = np.ones(width)
        if settings.patch_shape == "gaussian":
            places = np.arange(width) - width // 2
            weights = np.exp(-(places**2) / (2 * settings.deviation**2))
            weights /= weights.sum()
        made.append(weights)
    return np.concatenate(made).astype(np.float32)
