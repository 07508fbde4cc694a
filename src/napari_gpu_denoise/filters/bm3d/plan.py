"""BM3D on one device: the filtering of groups, its passes one after another, and scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from napari_gpu_denoise.filters.bm3d.groups import (
    PATCH,
    STACK_TRANSFORMS,
    TRANSFORMS,
    CollaborativeFilter,
    GroupSettings,
    Search,
    choose_group_variant,
    correlations,
    covariances,
    slab_shape,
)
from napari_gpu_denoise.filters.channels import ChannelMix
from napari_gpu_denoise.filters.pixels import (
    Launcher,
    Noisy,
    Pixels,
    channels_as_frames,
    including_margins,
    map_arguments,
    restrict_to,
    spread,
)
from napari_gpu_denoise.filters.search.patch_search import (
    Matches,
    PatchSearch,
    SearchLayout,
    SearchSettings,
    Variant,
)
from napari_gpu_denoise.filters.sums import sum_arguments
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.plan import (
    Launches,
    Sizes,
    TilePlan,
    TileSigma,
    together,
)
from napari_gpu_denoise.protocol.tiles import Span, Tile

# Pixels that a work-item joins: they share sums of weights.
_JOIN_PIXELS = 4
# What a patch takes away from a pixel, times its weight, is clipped at this many sigma, so that
# sums cannot overflow. With Haar stacks a pixel that is further off, about 8 sigma, leaves some
# coefficient above the threshold; what is taken away is then less, and weighs less.
_LARGEST_SIGMAS = 16


class GroupKernels(Generic[Search]):
    """Kernels and tables of one pass on one device; belongs to one thread.

    `video` tells VBM3D from BM3D; `sums` are numbers for `sum_arguments`, `constants` further build
    constants.
    """

    def __init__(
        self,
        settings: GroupSettings[Search],
        arena: Arena,
        variant: Variant,
        sums: tuple[int, int, float],
        *,
        video: bool,
        **constants: int,
    ):
        search, group = settings.search, variant.constants
        self.settings, self.arena, self.variant = settings, arena, variant
        self._joining, self._adding = sum_arguments(*sums)
        shared = {
            "PATCH": PATCH,
            "STEP": search.step,
            "WINDOW": search.window,
            "VIDEO": video,
        }
        self._constants = {
            **shared,
            "NEIGHBOURS": search.neighbours,
            "TRANSFORM": TRANSFORMS.index(settings.transform),
            "STACK": STACK_TRANSFORMS.index(settings.stack),
            "WIENER": settings.wiener,
            "KALMAN": settings.kalman,
            "SHARED_NOISE": settings.shared_noise,
            "SPECTRUM": bool(settings.spectra),
            **constants,
            **group,
        }
        self._join_group = (32, 8) if arena.device.max_group >= 256 else (8, 4)
        self._join = arena.kernel(
            "bm3d/join_slabs",
            {
                **shared,
                "GROUP_X": self._join_group[0],
                "GROUP_Y": self._join_group[1],
                "PIXELS": _JOIN_PIXELS,
                "SLAB_X": 1 if video else group["GROUP_X"],
                "SLAB_Y": 1 if video else group["GROUP_Y"],
            },
        )
        self._kaiser, self._correlation = _tables(settings, arena)

    def _shrink(self, is_map: bool):
        constants = {**self._constants, "SIGMA_MAP": is_map}
        return self.arena.kernel(f"bm3d/{self.variant.kernel}", constants)

    def _shrinkage(self) -> dict[str, Any]:
        """Return the arguments of that kernel that are the same for all tiles."""
        one = self.settings
        common = one.threshold if one.common is None else one.common
        return {
            **{"similar": one.similar * PATCH**2, "threshold": one.threshold**2},
            **{"common": common**2, "kaiser": self._kaiser, "correlation": self._correlation},
            **self._adding,
        }

    def _spectra(self, first: int, each: int) -> dict[str, int]:
        """Return the arguments that say which of the spectra, if any, each of the frames has."""
        if not self.settings.spectra:
            return {}
        return {"first_spectrum": first, "spectrum_frames": each}

    def _join_grid(self, ny: int, nx: int, frames: int) -> tuple[tuple, tuple]:
        """Return the work-items that join patches to images, and those of a work-group."""
        width, height = self._join_group
        down = -(-ny // (height * _JOIN_PIXELS))
        return (-(-nx // width) * width, down * height, frames), (width, height, 1)


def yields_of_passes(passes: dict[str, Any], tile: Tile) -> dict[str, Tile]:
    """Return what each pass must yield for the next one, from the last pass to the first."""
    yields = {}
    for name, one in reversed(passes.items()):
        yields[name] = tile
        tile = spread(tile, one.settings.reach)
    return yields


def _tables(settings: GroupSettings, arena: Arena) -> tuple[Any, Any]:
    """Return, on the device, the Kaiser window, and how noise of overlapping patches correlates.

    The second is one table for each of `settings.spectra`, see kernels/bm3d/shared_noise.h.
    """
    kaiser, transform = settings.kaiser, settings.transform
    window = arena.constant(
        f"Kaiser window of {kaiser}", lambda: np.kaiser(PATCH, kaiser).astype(np.float32)
    )
    if not settings.spectra:
        name = f"correlation of {transform}"
        return window, arena.constant(name, lambda: correlations(transform).astype(np.float32))
    tables = [covariances(transform, each) for each in settings.spectra]
    # The kernels want the frequency along y last, and after the last displacement one of 0.
    tables = [np.swapaxes(each, 2, 3).reshape(-1, PATCH**2) for each in tables]
    correlation = np.stack([np.pad(each, ((0, 1), (0, 0))) for each in tables])
    return window, constant_buffer(arena.session, correlation.astype(np.float32))


class GroupFilter(GroupKernels[SearchSettings]):
    """Kernels and buffers of one pass; passes on the same arena share buffers."""

    def __init__(self, settings: GroupSettings[SearchSettings], arena: Arena):
        search = settings.search
        self.search = PatchSearch(search, arena)
        variant = choose_group_variant(settings, arena.device)
        references = variant.constants["GROUP_X"] * variant.constants["GROUP_Y"]
        matched = ((search.window - 1) // search.step + 2) ** 2
        sums = references * search.neighbours, matched, _LARGEST_SIGMAS
        bits = self.search.offsets.index_bits
        super().__init__(settings, arena, variant, sums, video=False, **bits)

    def search_tile(self, tile: Tile, held: Tile) -> Tile:
        """Return the region searched to yield a tile, in an image of which `held` is available."""
        return restrict_to(spread(tile, self.settings.search.window // 2), held)

    def buffers(self, tile: Tile, searched: Tile, padded: Sequence[str] = ()) -> Sizes:
        """Return the buffers that a tile needs, those of the search included.

        `searched` is what `search_tile` returns; `padded` names the images, ``"noisy"`` or
        ``"basic"``, that are not the one that is searched.
        """
        at, frames = self.search.layout(searched), tile.channels * tile.frames
        *_, pny, pitch = at.shape
        plane = 4 * frames * pny * pitch
        groups = math.prod(self._groups(at))
        slabs = 4 * frames * groups * math.prod(slab_shape(self.settings.search, self.variant))
        copies = {f"padded {name}": plane for name in padded}
        return {**self.search.buffers(searched), "weights": plane, "slabs": slabs, **copies}

    def enqueue(
        self,
        run: Launcher,
        tile: Tile,
        matches: Matches,
        searched: Noisy,
        noisy: Noisy,
        basic: Pixels | None,
        padded: Sequence[str],
        out,
    ) -> None:
        """Enqueue the filtering of the groups of a tile.

        The channels of the tile share the matches that were found in `searched`; `basic` is their
        basic estimate, for a Wiener filter. `padded` names the images that are not the one that is
        searched. `out` is float32 of shape (channels, nt, nz, ny, nx).
        """
        settings, image, held = self.settings, searched.pixels, run.held
        matched = tile.frames
        frames = tile.channels * matched
        given = {"noisy": noisy.pixels, **({"basic": basic} if settings.wiener else {})}
        images = dict.fromkeys(given, matches.padded)
        layout = {name: matches.layout[name] for name in ("pny", "pitch", "y0", "x0")}
        pny, pitch, y0, x0 = layout.values()
        for name in padded:
            images[name], pixels = held[f"padded {name}"], given[name]
            y, x = pixels.tile.y, pixels.tile.x
            place = 0, 0, y0 + y.start - image.tile.y.start, x0 + x.start - image.tile.x.start
            shapes = (frames, 1, y.size, x.size), images[name], (frames, 1, pny, pitch)
            run.pad(pixels.buffer, *shapes, place)
        down, across = self._groups(matches)
        weights, slabs = held["weights"], held["slabs"]
        run.clear(weights, 4 * frames * pny * pitch)
        corner = image.tile.y.start - y0, image.tile.x.start - x0
        sigma_map = map_arguments(noisy.variation, *corner)
        if self.variant.kernel == "shrink_lanes":
            grid, local = (across, down, frames), (1, 1, 1)
        else:
            teams = self.variant.constants["TEAMS"]
            team = 8 * settings.search.neighbours // self.variant.constants["DEPTH"]
            grid, local = (team, teams * across * down, frames), (team, teams, 1)
        run.run(
            *("shrink", self._shrink(bool(sigma_map)), grid, local),
            **{**images, **layout, **matches.grid, **self._shrinkage(), "groups_x": across},
            **{"offsets": matches.offsets, "keys": matches.keys, "matched": matched},
            **{"levels": noisy.levels, "matched_levels": searched.levels, **sigma_map},
            **self._spectra(0, frames // max(len(settings.spectra), 1)),
            **{"slabs": slabs, "weights": weights},
        )
        top, left = tile.y.start - image.tile.y.start, tile.x.start - image.tile.x.start
        _, _, ny, nx = tile.shape
        run.run(
            *("join", self._join, *self._join_grid(ny, nx, frames)),
            **{"noisy": images["noisy"], **layout, "slabs": slabs, "weights": weights},
            **{"first_y": matches.rows.first, "last_y": matches.rows.last, "groups_y": down},
            **{"first_x": matches.columns.first, "last_x": matches.columns.last},
            **{"groups_x": across, "levels": noisy.levels, "kaiser": self._kaiser},
            **self._joining,
            **{"top": top, "left": left, "ny": ny, "nx": nx, "out": out},
        )

    def _groups(self, at: SearchLayout | Matches) -> tuple[int, int]:
        """Return the number of work-groups for all references, down and across."""
        group_x, group_y = (self.variant.constants[name] for name in ("GROUP_X", "GROUP_Y"))
        return -(-at.rows.count // group_y), -(-at.columns.count // group_x)


class Plan(TilePlan):
    """Kernels and buffers of BM3D on one device; belongs to one thread.

    Passes are in order, by name; ``"prefilter"`` and ``"final"`` may be absent.
    """

    def __init__(self, settings: CollaborativeFilter, arena: Arena):
        self.arena = arena
        self.passes = {name: GroupFilter(one, arena) for name, one in settings.passes.items()}
        self.mix = ChannelMix(settings.channels, arena, mixtures=settings.mixtures)

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile; passes reuse those of earlier ones."""
        tile = self._as_frames(tile)
        sizes = [self.mix.buffers(including_margins(tile))]
        for stage in self._stages(tile):
            one, made = self.passes[stage.name], stage.yields
            sizes.append(one.buffers(made, stage.searched, stage.padded))
            if not stage.straight:
                sizes.append({f"{stage.name} estimate": made.nbytes})
            if stage.guide:
                sizes.append(self.mix.guide_buffers(stage.held, stage.guide))
        return together(*sizes)

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        run = Launcher(self.arena, queue, self.hold(tile))
        tile = self._as_frames(tile)
        whole = including_margins(tile)
        noisy = Noisy(Pixels(source, whole), sigma.levels, Pixels(sigma.variation, whole))
        noisy = self.mix.begin(run, noisy)
        basic, searched, guide = None, noisy, noisy
        for stage in self._stages(tile):
            one, made = self.passes[stage.name], stage.yields
            if stage.guide:
                searched = self.mix.guide(run, searched, stage.guide)
            if stage.guide == "noisy":
                guide = searched
            given = guide if stage.name == "prefilter" else noisy
            buffer = out if stage.straight else run.held[f"{stage.name} estimate"]
            with run.named(stage.name):
                matches = one.search.enqueue(run, stage.searched, searched.pixels.buffer)
                one.enqueue(run, made, matches, searched, given, basic, stage.padded, buffer)
            estimate = Pixels(buffer, made)
            if stage.name == "prefilter":
                searched = replace(guide, pixels=estimate)
            else:
                basic, searched = estimate, replace(noisy, pixels=estimate)
        self.mix.end(run, searched, out)
        return run.launches

    def _as_frames(self, tile: Tile) -> Tile:
        """Return a tile with separate channels as one that has these as frames."""
        return tile if self.mix.joined or tile.channels == 1 else channels_as_frames(tile)

    def _stages(self, tile: Tile) -> list[_Stage]:
        """Return the work of each pass for a tile."""
        mixes, last = self.mix.joined, list(self.passes)[-1]
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
            straight = name == last and not self.mix.opponent
            searched = self.passes[name].search_tile(made, held)
            stages.append(_Stage(name, made, held, searched, guide, tuple(padded), straight))
            held, before = made, name
        return stages


@dataclass(frozen=True)
class _Stage:
    """What one pass does for a tile."""

    name: str  # of the pass
    yields: Tile
    held: Tile  # what is available of the image that is searched
    searched: Tile  # the region of it that is searched
    guide: str  # image whose guide is searched; empty for the prefiltered image
    padded: tuple[str, ...]  # images to be padded, as they are not the one searched
    straight: bool  # whether the pass writes the result


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
        planes = {
            **{"given": coarse.source_shape, "coarse": coarse.shape, "halved": coarse.shape},
            **{"fine": fine.shape, "levels": tile.shape[:2]},
        }
        own = {self._name(name): 4 * tile.channels * math.prod(n) for name, n in planes.items()}
        return {**own, **together(self._fine.buffers(fine), self._coarse.buffers(coarse))}

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        run, (fine, coarse) = Launcher(self.arena, queue, self.hold(tile)), _tiles(tile)
        given, made, halved, detailed, levels = (
            run.held[self._name(name)] for name in ("given", "coarse", "halved", "fine", "levels")
        )
        whole = including_margins(tile), including_margins(coarse)
        self._halved(run, whole[0], source, whole[1], given)
        self._levels(run, tile, sigma.levels, levels)
        coarse_sigma = replace(sigma, levels=levels)
        steps = self._coarse.enqueue(queue, coarse, given, made, coarse_sigma)
        run.launches += [(f"coarse {name}", event) for name, event in steps]
        run.launches += self._fine.enqueue(queue, fine, source, detailed, sigma)
        self._halved(run, fine, detailed, coarse, halved)
        (*_, ny, nx), (*_, fine_ny, fine_nx) = tile.shape, fine.shape
        *_, coarse_ny, coarse_nx = coarse.shape
        run.over_pixels(
            *("join scales", self._join, nx, ny, tile.channels * tile.frames),
            **{"fine": detailed, "fine_ny": fine_ny, "fine_nx": fine_nx, "coarse": made},
            **{"halved": halved, "coarse_ny": coarse_ny, "coarse_nx": coarse_nx},
            **{"top": tile.y.start - fine.y.start, "left": tile.x.start - fine.x.start},
            **{"ny": ny, "nx": nx, "out": out},
        )
        return run.launches

    def _name(self, name: str) -> str:
        return f"scale {self._depth} {name}"

    def _halved(self, run: Launcher, tile: Tile, image, coarse: Tile, made) -> None:
        (*_, ny, nx), (*_, given_ny, given_nx) = coarse.shape, tile.shape
        run.over_pixels(
            *("halve", self._halve, nx, ny, tile.channels * tile.frames),
            **{"given": image, "given_ny": given_ny, "given_nx": given_nx},
            **{"top": 2 * coarse.y.start - tile.y.start, "left": 2 * coarse.x.start - tile.x.start},
            **{"ny": ny, "nx": nx, "halved": made},
        )

    def _levels(self, run: Launcher, tile: Tile, levels, made) -> None:
        """Enqueue the computation of the noise of halved frames."""
        channels = tile.channels
        if channels not in self._matrices:
            ratios = np.diag(np.resize(np.array(self._ratios, np.float32), channels))
            self._matrices[channels] = constant_buffer(self.arena.session, ratios)
        run.run(
            *("scale levels", self._scale_levels, (tile.frames, channels), (1, 1)),
            **{"levels": levels, "channels": channels, "matrix": self._matrices[channels]},
            **{"weighted": 0, "made_levels": made},
        )


def _tiles(tile: Tile) -> tuple[Tile, Tile]:
    """Return what to filter to yield a tile: of the image, and of the halved image."""
    (y, coarse_y), (x, coarse_x) = _spans(tile.y), _spans(tile.x)
    return replace(tile, y=y, x=x), replace(tile, y=coarse_y, x=coarse_x)


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
