"""What runs the passes of BM3D, one after another, on one device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from napari_gpu_denoise.filters.channel_mix import ChannelMix
from napari_gpu_denoise.filters.group_filter import GroupFilter, Noisy, Pixels, spread
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.pipeline import TileSigma
from napari_gpu_denoise.tiles import Span, Tile

if TYPE_CHECKING:
    from napari_gpu_denoise.filters.bm3d import BM3D
    from napari_gpu_denoise.filters.correlated_bm3d import CorrelatedBM3D


class Plan:
    """Kernels and buffers of BM3D on one device; belongs to one thread.

    Parameters
    ----------
    settings : BM3D or CorrelatedBM3D
        What to run, for one array (see `BM3D.for_array`).
    arena : Arena
        Keeps the buffers.
    variants : dict, optional
        What to give `GroupFilter` for a pass, by its name.
    """

    def __init__(
        self,
        settings: BM3D | CorrelatedBM3D,
        arena: Arena,
        variants: dict[str, dict] | None = None,
    ):
        self.settings = settings
        self.arena = arena
        variants = variants or {}
        self.passes = {
            name: GroupFilter(one, arena, **variants.get(name, {}))
            for name, one in settings.passes.items()
        }
        opponent = settings.channels == "opponent"
        mixes = settings.channels in ("opponent", "joint")
        self._mix = ChannelMix(opponent, settings.guide, arena) if mixes else None

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> list[tuple[str, Any]]:
        """Enqueue the filter for one tile; return the launches by name."""
        launches: list[tuple[str, Any]] = []
        if self._mix is None and tile.channels > 1:
            # Channels that share nothing but the tile: each is searched on its own, as a frame.
            frames = Span.whole(tile.channels * tile.t.size)
            tile = replace(tile, t=frames, channels=1)
        whole = spread(tile, max(tile.source_shape))
        noisy = Noisy(
            Pixels(source, whole),
            sigma.levels,
            None if sigma.variation is None else Pixels(sigma.variation, whole),
        )
        if self._mix is not None:
            noisy = self._mix.begin(queue, noisy, launches)
        # What each pass must yield for the next one, from the last to the first.
        yields, wanted = {}, tile
        for name in reversed(self.passes):
            yields[name] = wanted
            wanted = spread(wanted, self.passes[name].settings.reach)

        searched = guide = self._guide(queue, noisy, "noisy", launches)
        basic = None
        for name, one in self.passes.items():
            target, given = yields[name], noisy
            if name == "prefilter":
                target, given = replace(target, channels=1), guide
            found = replace(one.find(queue, target, searched.pixels), levels=searched.levels)
            mixed = self._mix is not None and self._mix.opponent
            straight = name == self._last and not mixed
            count = target.channels * math.prod(target.shape)
            buffer = out if straight else self.arena.buffer(f"{name} estimate", 4 * count)
            made = Pixels(buffer, target)
            steps = one.enqueue(queue, target, found, given, basic, made.buffer)
            launches += [(f"{name} {step}", event) for step, event in steps]
            if name == "prefilter":
                searched = replace(guide, pixels=made)
                continue
            basic = made
            if name != self._last:
                searched = self._guide(queue, replace(noisy, pixels=made), name, launches)
        if self._mix is not None and self._mix.opponent:
            self._mix.end(queue, replace(noisy, pixels=basic), out, launches)
        return launches

    @property
    def _last(self) -> str:
        return list(self.passes)[-1]

    def _guide(self, queue, image: Noisy, name: str, launches: list) -> Noisy:
        return image if self._mix is None else self._mix.guide(queue, image, name, launches)
