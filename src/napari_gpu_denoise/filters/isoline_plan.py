"""Kernels and buffers of the isoline filter on one device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.filters.channel_mix import ChannelMix
from napari_gpu_denoise.filters.group_filter import Noisy, Pixels
from napari_gpu_denoise.filters.isoline_launches import PaddedImages, TileLaunches
from napari_gpu_denoise.filters.isoline_margins import SMOOTHED, Margins, Padded
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.pipeline import TileSigma
from napari_gpu_denoise.tiles import Span, Tile

if TYPE_CHECKING:
    from napari_gpu_denoise.filters.isoline import Isoline

# Lines and the window that a pixel may be replaced by.
_CANDIDATES = 17
_SHOW = {"image": 0, "classes": 1, "directions": 2}


class Plan:
    """Kernels and buffers of the isoline filter on one device; belongs to one thread.

    Parameters
    ----------
    settings : Isoline
        What to run.
    arena : Arena
        Keeps the buffers.
    """

    def __init__(self, settings: Isoline, arena: Arena):
        self.settings = settings
        self.arena = arena
        self.margins = Margins.of(settings)
        self._alone = arena.session.device.shares_cores
        self.opponent = settings.channels == "opponent"
        # A map is that of the luminance: nothing is to be made of it but what it is.
        self.mixed_back = self.opponent and not settings.yields_map
        self._mix = None
        if settings.joint:
            weighted = settings.relative_noise == 0
            self._mix = ChannelMix(self.opponent, settings.guide, arena, weighted)

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> list[tuple[str, Any]]:
        """Enqueue the filter for one tile; return the launches by name."""
        settings = self.settings
        run = TileLaunches(self.arena, queue, Padded(tile, self.margins), self._alone)
        frames = tile.t.size * tile.z.size
        variation = None
        if sigma.variation is not None:
            variation = run.mirrored("variation", sigma.variation, 1)[0]
        whole = replace(tile, y=Span.whole(tile.y.source_size), x=Span.whole(tile.x.source_size))
        noisy = Noisy(Pixels(source, whole), sigma.levels, sigma.variation)
        if self.opponent:
            noisy = self._mix.begin(queue, noisy, run.launches)
        noise = (noisy.levels, variation, np.float32(settings.relative_noise))
        # Lines are looked at in the guide, and averaged in the channels if no planes are fitted.
        speckle = settings.relative_noise > 0
        guided = (tile.channels > 1 and not self.mixed_back) or (speckle and settings.soft)
        lines = settings.soft and not (guided and settings.staircase)
        share = settings.share_beside if lines else 0.0
        count, given = tile.channels * frames, noisy.pixels.buffer
        pixels = PaddedImages(*run.mirrored("pixels", given, count, share), count, noise, speckle)
        guide = self._guide(run, noisy, variation) if guided else pixels
        made = out
        if self.mixed_back:
            made = self.arena.buffer("isoline made", 4 * tile.channels * math.prod(tile.shape))
        (self._soft if settings.soft else self._hard)(run, pixels, guide, made)
        if self.mixed_back:
            self._mix.end(queue, replace(noisy, pixels=Pixels(made, tile)), out, run.launches)
        return run.launches

    def _guide(self, run: TileLaunches, noisy: Noisy, variation) -> PaddedImages:
        """Return what isolines are found in: one channel, the logarithm of speckle."""
        settings, tile = self.settings, run.padded.tile
        frames = tile.t.size * tile.z.size
        relative = settings.relative_noise
        speckle = relative > 0
        if tile.channels > 1:
            noisy = self._mix.guide(run.queue, noisy, "isoline mixed", run.launches)
            if settings.guide < 0:
                relative /= math.sqrt(tile.channels)
        source = noisy.pixels.buffer
        noise = (noisy.levels, variation, np.float32(relative))
        if speckle and settings.soft:
            from scipy.special import polygamma

            # There noise is additive, and the same everywhere.
            source, speckle = run.logarithm(source, frames), False
            levels = run.levels(math.sqrt(polygamma(1, relative**-2)), frames)
            noise = (levels, None, np.float32(0))
        share = settings.share_beside if settings.soft else 0.0
        made = run.mirrored("guide", source, frames, share)
        return PaddedImages(*made, frames, noise, speckle)

    def _soft(self, run: TileLaunches, pixels: PaddedImages, guide: PaddedImages, out) -> None:
        settings, margins = self.settings, self.margins
        i32, f32 = np.int32, np.float32
        length = {"LENGTH": settings.length}
        candidates = _CANDIDATES if settings.method == "hybrid" else _CANDIDATES - 1
        lines = {**length, "CANDIDATES": candidates}
        block = (i32(run.padded.shape[0] // 2), i32(run.padded.pitch // 2))
        share = settings.share_beside

        maps = guide.count * candidates
        residuals = self.arena.buffer("isoline residuals", maps * run.padded.plane)
        run.launch(
            "line_residuals",
            {**lines, **guide.noise_constants},
            run.padded.blocks(margins.fitted, SMOOTHED),
            guide.count,
            *(guide.buffer, *guide.along, *block),
            after=(f32((1 - 2 * share) / (settings.length + 1)), *guide.noise, residuals),
        )
        blocks = run.padded.blocks(margins.fitted)

        # The pilot is of the guide where planes are fitted, and is the result where they are not.
        piloted = guide if settings.staircase else pixels
        pilot = run.images("pilot", piloted.count)
        found = self.arena.buffer("isoline found", piloted.count * run.padded.plane // 4)
        run.launch(
            "mix_candidates",
            lines,
            blocks,
            piloted.count,
            *(piloted.buffer, *piloted.along, *block),
            after=(residuals, i32(guide.count), f32(settings.softness), pilot, found),
        )
        if settings.show != "image":
            run.launch(
                "show_found",
                {"SHOW": _SHOW[settings.show]},
                run.padded.region(0),
                pixels.count,
                *(found, i32(guide.count), *run.layout),
                after=(out,),
            )
            return
        fitted = pilot
        if settings.staircase:
            fitted = run.images("fitted", pixels.count)
            place = (*run.layout, *map(i32, run.padded.region(margins.followed)[:2]))
            self._regress(run, pixels, guide, pilot, margins.followed, fitted, place)
        run.launch(
            "extend_isolines",
            {**length, "STEPS": settings.steps, **pixels.noise_constants},
            run.padded.region(0),
            pixels.count,
            *(fitted, found, i32(guide.count), *run.layout),
            after=(*pixels.noise, out),
        )

    def _regress(
        self, run: TileLaunches, pixels, guide, pilot, margin: int, out, place: tuple
    ) -> None:
        run.launch(
            "regress_levels",
            {
                "RADIUS": self.settings.staircase // 2,
                "OPPONENT": int(self.mixed_back),
                **guide.noise_constants,
            },
            run.padded.region(margin),
            pixels.count,
            *(pixels.buffer, pilot, np.int32(guide.count), *run.layout),
            after=(*guide.noise, out, *place),
        )

    def _hard(self, run: TileLaunches, pixels: PaddedImages, guide: PaddedImages, out) -> None:
        settings, margins = self.settings, self.margins
        i32, f32 = np.int32, np.float32
        segments = max(settings.pixels // settings.length, 1)
        grey = {"LENGTH": settings.length, "SPECKLE": int(guide.speckle)}
        constants = {**grey, "SEGMENTS": segments, "SHOW": _SHOW[settings.show]}
        final = (*map(i32, run.padded.region(0)[2:]), i32(0), i32(0))
        staircase = settings.staircase and settings.show == "image"
        if staircase:
            # As in `_soft`, planes need a pilot of the guide alone.
            averaged, made = guide, run.images("pilot", guide.count)
            place = (*run.layout, *map(i32, run.padded.region(margins.fitted)[:2]))
        else:
            averaged, made, place = pixels, out, final
        region = run.padded.region(margins.fitted if staircase else 0)
        given = (guide.buffer, averaged.buffer, i32(guide.count), *run.layout)
        if settings.method == "pi-ld":
            run.launch(
                "search_isolines",
                {**constants, "DEVIATION": settings.deviation},
                region,
                averaged.count,
                *given,
                after=(guide.looks, f32(settings.t_max), made, *place),
            )
        else:
            directions = self.arena.buffer("isoline directions", guide.count * run.padded.plane)
            limits = (f32(settings.t_max), f32(settings.t2_max))
            sums = self.arena.buffer("isoline segments", 8 * guide.count * run.padded.plane)
            run.launch(
                "first_segments",
                grey,
                run.padded.region(margins.looked_at - settings.length - 1),
                guide.count,
                *(guide.buffer, *run.layout),
                after=(directions, sums),
            )
            run.launch(
                "follow_isolines",
                {
                    **constants,
                    "THICKNESS": settings.thickness,
                    "HYBRID": int(settings.method == "hybrid"),
                    "ASIDE": int(averaged is not guide),
                },
                region,
                averaged.count,
                *given,
                after=(directions, sums, guide.looks, *limits, made, *place),
            )
        if staircase:
            self._regress(run, pixels, guide, made, 0, out, final)
