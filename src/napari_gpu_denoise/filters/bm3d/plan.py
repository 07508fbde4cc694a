"""The passes of BM3D on one device, one after another."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from napari_gpu_denoise.filters.bm3d.group_filter import GroupFilter
from napari_gpu_denoise.filters.bm3d.group_kernels import made_passes, yields_of_passes
from napari_gpu_denoise.filters.bm3d.group_settings import GroupSettings
from napari_gpu_denoise.filters.channels import JOINED, ChannelMix
from napari_gpu_denoise.filters.pixels import Noisy, Pixels, including_margins
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TilePlan, TileSigma, together
from napari_gpu_denoise.protocol.tiles import Span, Tile


class Plan(TilePlan):
    """Kernels and buffers of BM3D on one device; belongs to one thread.

    Passes are in order, by name; ``"prefilter"`` and ``"final"`` may be absent. `variants` holds
    arguments of `GroupFilter` by pass, for kernels other than those chosen for the device.
    `strengths` are as in `ChannelMix`.
    """

    def __init__(
        self,
        passes: dict[str, GroupSettings],
        channels: str,
        guide: int,
        arena: Arena,
        variants: dict[str, dict] | None = None,
        strengths: tuple[float, ...] = (1.0, 1.0, 1.0),
    ):
        self.arena = arena
        self.passes = made_passes(GroupFilter, passes, arena, variants)
        opponent = channels == "opponent"
        self._mix = None
        if channels in JOINED:
            self._mix = ChannelMix(opponent, guide, arena, strengths=strengths)

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile; passes reuse those of earlier ones."""
        tile = self._as_frames(tile)
        sizes = [] if self._mix is None else [self._mix.buffers(including_margins(tile))]
        for stage in self._stages(tile):
            one, made = self.passes[stage.name], stage.yields
            sizes.append(one.buffers(made, stage.held, stage.padded))
            if not stage.straight:
                sizes.append({f"{stage.name} estimate": 4 * made.channels * math.prod(made.shape)})
            if self._mix is not None and stage.guide:
                sizes.append(self._mix.guide_buffers(stage.held, stage.guide))
        return together(*sizes)

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue the passes for one tile."""
        launches: Launches = []
        held = self.hold(tile)
        tile = self._as_frames(tile)
        whole = including_margins(tile)
        noisy = Noisy(
            Pixels(source, whole),
            sigma.levels,
            None if sigma.variation is None else Pixels(sigma.variation, whole),
        )
        if self._mix is not None:
            noisy = self._mix.begin(queue, noisy, held, launches)
        basic, searched, guide = None, noisy, noisy
        for stage in self._stages(tile):
            one, made = self.passes[stage.name], stage.yields
            if self._mix is not None and stage.guide:
                searched = self._mix.guide(queue, searched, stage.guide, held, launches)
            if stage.guide == "noisy":
                guide = searched
            given = guide if stage.name == "prefilter" else noisy
            place = one.search_tile(made, searched.pixels.tile)
            matches = one.search.enqueue(queue, place, searched.pixels.buffer, held=held)
            buffer = out if stage.straight else held[f"{stage.name} estimate"]
            steps = one.enqueue(queue, made, matches, searched, given, basic, buffer, held)
            launches += [(f"{stage.name} {step}", event) for step, event in steps]
            estimate = Pixels(buffer, made)
            if stage.name == "prefilter":
                searched = replace(guide, pixels=estimate)
            else:
                basic, searched = estimate, replace(noisy, pixels=estimate)
        if self._mix is not None and self._mix.opponent:
            self._mix.end(queue, searched, out, launches)
        return launches

    def _as_frames(self, tile: Tile) -> Tile:
        """Return a tile with separate channels as one that has these as frames."""
        if self._mix is not None or tile.channels == 1:
            return tile
        return replace(tile, t=Span.whole(tile.channels * tile.t.size), channels=1)

    def _stages(self, tile: Tile) -> list[_Stage]:
        """Return what each pass does for a tile."""
        mixes, last = self._mix is not None, list(self.passes)[-1]
        yields = yields_of_passes(self.passes, tile)
        stages, held, before = [], including_margins(tile), ""
        for name in self.passes:
            made = replace(yields[name], channels=1) if name == "prefilter" else yields[name]
            # Images other than the one searched, which is one channel or the previous result.
            padded = []
            if name != "prefilter" and (mixes or before):
                padded.append("noisy")
            if name == "final" and mixes:
                padded.append("basic")
            guide = {"": "noisy", "prefilter": ""}.get(before, before)
            straight = name == last and not (mixes and self._mix.opponent)
            stages.append(_Stage(name, made, held, guide, tuple(padded), straight))
            held, before = made, name
        return stages


@dataclass(frozen=True)
class _Stage:
    """What one pass does for a tile."""

    name: str  # of the pass
    yields: Tile
    held: Tile  # what is available of the image that is searched
    guide: str  # image whose guide is searched; empty for the prefiltered image
    padded: tuple[str, ...]  # images to be padded, as they are not the one searched
    straight: bool  # whether the pass writes the result
