"""BM3D on several scales: blotches larger than a patch are filtered in a halved image."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TilePlan, TileSigma, together
from napari_gpu_denoise.protocol.tiles import Span, Tile

_AROUND = 6  # pixels around a tile that its coarse part depends on, besides the reach of the filter


def scales_reach(one: int, scales: int) -> int:
    """Return the reach on several scales of a filter with the reach `one`, in pixels."""
    reach = one
    for _ in range(scales - 1):
        reach = max(one, 2 * reach) + _AROUND
    return reach


class ScalesPlan(TilePlan):
    """A plan for images, whose coarse part is replaced by that of another plan for halved images.

    `coarse` may be a `ScalesPlan` itself. `ratios` holds, for each channel or for all, sigma in the
    halved image over sigma in the image.
    """

    def __init__(self, fine: TilePlan, coarse: TilePlan, ratios: tuple[float, ...], arena: Arena):
        self.arena = arena
        self._fine, self._coarse, self._ratios = fine, coarse, ratios
        # Buffers of scales are held at the same time: each has names of its own.
        self._depth = coarse._depth + 1 if isinstance(coarse, ScalesPlan) else 1
        self._halve = arena.kernel("bm3d/halve_image", {})
        self._join = arena.kernel("bm3d/join_scales", {})
        self._scale_levels = arena.kernel("bm3d/mix_levels", {})
        self._matrices: dict[int, Any] = {}  # by the number of channels

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile; those of one scale are used by the next."""
        fine, coarse = _tiles(tile)
        frames = tile.channels * tile.t.size * tile.z.size
        own = {
            "given": math.prod(coarse.source_shape) * tile.channels,
            "coarse": math.prod(coarse.shape) * tile.channels,
            "halved": math.prod(coarse.shape) * tile.channels,
            "fine": math.prod(fine.shape) * tile.channels,
            "levels": frames,
        }
        scales = together(self._fine.buffers(fine), self._coarse.buffers(coarse))
        return {**{self._name(name): 4 * size for name, size in own.items()}, **scales}

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue both plans for one tile, and join their results."""
        held, (fine, coarse) = self.hold(tile), _tiles(tile)
        given, made, halved, detailed, levels = (
            held[self._name(name)] for name in ("given", "coarse", "halved", "fine", "levels")
        )
        launches: Launches = []
        self._halved(queue, tile, source, True, coarse, given, launches)
        self._levels(queue, tile, sigma.levels, levels, launches)
        coarse_sigma = replace(sigma, levels=levels)
        launches += _named("coarse", self._coarse.enqueue(queue, coarse, given, made, coarse_sigma))
        launches += self._fine.enqueue(queue, fine, source, detailed, sigma)
        self._halved(queue, fine, detailed, False, coarse, halved, launches)
        (*_, ny, nx), (*_, fine_ny, fine_nx), (*_, coarse_ny, coarse_nx) = (
            one.shape for one in (tile, fine, coarse)
        )
        launch = self._join(
            queue,
            *pixel_grid(self.arena.session.device, nx, ny, _frames(tile)),
            *(detailed, *map(np.int32, (fine_ny, fine_nx))),
            *(made, halved, *map(np.int32, (coarse_ny, coarse_nx))),
            *map(np.int32, (tile.y.start - fine.y.start, tile.x.start - fine.x.start, ny, nx)),
            out,
        )
        launches.append(("join scales", launch))
        return launches

    def _name(self, name: str) -> str:
        return f"scale {self._depth} {name}"

    def _halved(
        self, queue, tile: Tile, image, reads: bool, coarse: Tile, made, launches: Launches
    ) -> None:
        """Enqueue the halving of what a tile reads, or else yields, to what `coarse` does."""
        if reads:
            starts = [(one.source_start, to.source_start) for one, to in _yx(tile, coarse)]
            given, wanted = tile.source_shape[2:], coarse.source_shape[2:]
        else:
            starts = [(one.start, to.start) for one, to in _yx(tile, coarse)]
            given, wanted = tile.shape[2:], coarse.shape[2:]
        places = (2 * to - one for one, to in starts)
        launch = self._halve(
            queue,
            *pixel_grid(self.arena.session.device, wanted[1], wanted[0], _frames(tile)),
            *(image, *map(np.int32, (*given, *places, *wanted)), made),
        )
        launches.append(("halve", launch))

    def _levels(self, queue, tile: Tile, levels, made, launches: Launches) -> None:
        """Enqueue the computation of the noise of halved frames."""
        channels = tile.channels
        if channels not in self._matrices:
            ratios = np.diag(np.resize(np.array(self._ratios, np.float32), channels))
            self._matrices[channels] = constant_buffer(self.arena.session, ratios)
        launch = self._scale_levels(
            queue,
            (tile.t.size * tile.z.size, channels),
            (1, 1),
            *(levels, np.int32(channels), self._matrices[channels], np.int32(0), made),
        )
        launches.append(("scale levels", launch))


def _tiles(tile: Tile) -> tuple[Tile, Tile]:
    """Return what to filter to yield a tile: of the image, and of the halved image."""
    pairs = [_spans(span) for span in (tile.y, tile.x)]
    return tuple(replace(tile, y=y, x=x) for y, x in zip(*pairs, strict=True))


def _spans(span: Span) -> tuple[Span, Span]:
    """Return the spans of an axis and of the halved axis, with neighbours to enlarge it from."""
    length = (span.length + 1) // 2
    start, stop = max(span.start // 2 - 2, 0), min((span.stop - 1) // 2 + 3, length)
    whole = span.source_stop == span.length
    source_start = (span.source_start + 1) // 2
    source_stop = length if whole else span.source_stop // 2
    # Where a caller reads less than the reach, there may be no neighbours.
    start, stop = max(start, source_start), min(stop, source_stop)
    fine = replace(span, start=2 * start, stop=min(2 * stop, span.length))
    return fine, Span(start, stop, source_start, source_stop, length)


def _yx(one: Tile, other: Tile) -> tuple[tuple[Span, Span], tuple[Span, Span]]:
    return (one.y, other.y), (one.x, other.x)


def _frames(tile: Tile) -> int:
    return tile.channels * tile.t.size * tile.z.size


def _named(prefix: str, launches: Launches) -> Launches:
    return [(f"{prefix} {name}", event) for name, event in launches]
