"""What runs the passes of BM3D, one after another, on one device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from napari_gpu_denoise.filters.bm3d.group_filter import Found, GroupFilter
from napari_gpu_denoise.filters.bm3d.group_settings import GroupSettings
from napari_gpu_denoise.filters.channels.channel_mix import ChannelMix
from napari_gpu_denoise.filters.pixels import Noisy, Pixels, all_read, spread
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.plan import Launches, Sizes, TilePlan, TileSigma, together
from napari_gpu_denoise.run.tiles import Span, Tile


class Plan(TilePlan):
    """Kernels and buffers of BM3D on one device; belongs to one thread.

    Parameters
    ----------
    passes : dict of GroupSettings
        What to run, in order, by name: ``"prefilter"`` and ``"final"`` may be left out.
    channels : {"separate", "opponent", "joint"}
        How channels are filtered; with ``"auto"`` each on its own.
    guide : int
        Channel that joint matching looks at; -1 for all.
    arena : Arena
        Keeps the buffers.
    variants : dict, optional
        What to give `GroupFilter` for a pass, by its name.
    """

    def __init__(
        self,
        passes: dict[str, GroupSettings],
        channels: str,
        guide: int,
        arena: Arena,
        variants: dict[str, dict] | None = None,
    ):
        self.arena = arena
        variants = variants or {}
        self.passes = {
            name: GroupFilter(one, arena, **variants.get(name, {})) for name, one in passes.items()
        }
        mixes = channels in ("opponent", "joint")
        self._mix = ChannelMix(channels == "opponent", guide, arena) if mixes else None

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: passes share what they have no use for any more."""
        tile = self._as_frames(tile)
        sizes = [] if self._mix is None else [self._mix.buffers(all_read(tile))]
        for stage in self._stages(tile):
            one, made = self.passes[stage.name], stage.yields
            sizes.append(one.buffers(made, stage.held, stage.padded))
            if not stage.straight:
                sizes.append({f"{stage.name} estimate": 4 * made.channels * math.prod(made.shape)})
            if self._mix is not None and stage.guide:
                sizes.append(self._mix.guide_buffers(stage.held, stage.guide))
        return together(*sizes)

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue the filter for one tile; return the launches by name."""
        launches: Launches = []
        held = self.hold(tile)
        tile = self._as_frames(tile)
        whole = all_read(tile)
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
            image = searched.pixels
            place = one.searched(made, image.tile)
            matches = one.search.enqueue(queue, place, image.buffer, held=held)
            found = Found(matches, image, searched.levels)
            buffer = out if stage.straight else held[f"{stage.name} estimate"]
            steps = one.enqueue(queue, made, found, given, basic, buffer, held)
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
        """Return a tile whose channels share nothing else as one of so many frames."""
        if self._mix is not None or tile.channels == 1:
            return tile
        return replace(tile, t=Span.whole(tile.channels * tile.t.size), channels=1)

    def _stages(self, tile: Tile) -> list[_Stage]:
        """Return what each pass does for a tile."""
        mixes, last = self._mix is not None, list(self.passes)[-1]
        # What each pass must yield for the next one, from the last to the first.
        yields, wanted = {}, tile
        for name in reversed(self.passes):
            yields[name] = wanted
            wanted = spread(wanted, self.passes[name].settings.reach)
        stages, held, before = [], all_read(tile), ""
        for name in self.passes:
            made = replace(yields[name], channels=1) if name == "prefilter" else yields[name]
            # What is searched is one channel, or the image of the pass before.
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
    """What one pass does for a tile.

    Attributes
    ----------
    name : str
        The pass.
    yields : Tile
        What it makes.
    held : Tile
        What there is of the image that it searches.
    guide : str
        The image whose mixture of channels is searched; empty for what the prefilter made.
    padded : tuple of str
        Images that are laid out anew, as they are not what is searched.
    straight : bool
        Whether it writes the result.
    """

    name: str
    yields: Tile
    held: Tile
    guide: str
    padded: tuple[str, ...]
    straight: bool
