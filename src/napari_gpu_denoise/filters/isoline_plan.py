"""Kernels and buffers of the isoline filter on one device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.filters.channel_mix import ChannelMix
from napari_gpu_denoise.filters.group_filter import Noisy, Pixels
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.pipeline import TileSigma
from napari_gpu_denoise.tiles import Reach, Span, Tile

if TYPE_CHECKING:
    from napari_gpu_denoise.filters.isoline import Isoline

# Lines and the window that a pixel may be replaced by.
_CANDIDATES = 17
# Blocks of 2 x 2 pixels that residuals are smoothed over, each way.
_SMOOTHED = 2
# Pixels around that tell how dark a speckled one may be, each way.
_FLOOR = 2
# Shape of a work-group on a GPU.
_GROUP = (32, 8)
_SHOW = {"image": 0, "classes": 1, "directions": 2}


@dataclass(frozen=True)
class Margins:
    """How far around the pixels yielded each step works, in pixels."""

    followed: int  # where isolines end
    fitted: int  # what planes are fitted to
    looked_at: int  # where lines and segments end
    read: int  # all that is read

    @classmethod
    def of(cls, settings: Isoline) -> Margins:
        """Return those of some settings."""
        around = settings.staircase // 2
        if settings.soft:
            followed = settings.steps * settings.length
            fitted = followed + around
            # A block may begin a pixel before; lines are thickened by one each side.
            looked_at = fitted + 1 + 2 * _SMOOTHED + settings.length + 1
            floor = _FLOOR if settings.relative_noise else 0
            return cls(followed, fitted, looked_at, looked_at + floor)
        segments = max(settings.pixels // settings.length, 1)
        looked_at = around + segments * settings.length + 1
        return cls(0, around, looked_at, looked_at)

    @property
    def reach(self) -> Reach:
        """How far around a pixel the filter looks; blocks begin at even pixels of the image."""
        each = self.read + 1
        return Reach(y=(each, each), x=(each, each))


@dataclass(frozen=True)
class Padded:
    """A tile with its margins, mirrored where the image ends.

    Attributes
    ----------
    tile : Tile
        What is yielded.
    margins : Margins
        Of the filter.
    """

    tile: Tile
    margins: Margins

    @cached_property
    def origin(self) -> tuple[int, int]:
        """Where the first pixel lies in the image, (y, x): both even."""
        starts = (self.tile.y.start, self.tile.x.start)
        return tuple((start - self.margins.looked_at) // 2 * 2 for start in starts)

    @cached_property
    def first(self) -> tuple[int, int]:
        """Where the first pixel yielded lies, (y, x)."""
        return self.tile.y.start - self.origin[0], self.tile.x.start - self.origin[1]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Height and width, both even."""
        sizes = (self.tile.y.size, self.tile.x.size)
        ends = (
            first + size + self.margins.looked_at
            for first, size in zip(self.first, sizes, strict=True)
        )
        return tuple(-(-end // 2) * 2 for end in ends)

    @cached_property
    def pitch(self) -> int:
        """Length of a row in memory."""
        return -(-self.shape[1] // 32) * 32

    @property
    def plane(self) -> int:
        """Pixels of an image in memory."""
        return self.shape[0] * self.pitch

    def region(self, margin: int) -> tuple[int, int, int, int]:
        """Return first pixel and size, (y0, x0, ny, nx), of what is yielded and a margin."""
        y, x = (first - margin for first in self.first)
        return y, x, self.tile.y.size + 2 * margin, self.tile.x.size + 2 * margin

    def blocks(self, margin: int, more: int = 0) -> tuple[int, int, int, int]:
        """Return the same in blocks of 2 x 2 pixels, with `more` of them around."""
        y, x, ny, nx = self.region(margin)
        first_y, first_x = y // 2 - more, x // 2 - more
        stop_y, stop_x = (y + ny + 1) // 2 + more, (x + nx + 1) // 2 + more
        return first_y, first_x, stop_y - first_y, stop_x - first_x


@dataclass(frozen=True)
class _Images:
    """Padded images on the device, and their noise.

    Attributes
    ----------
    buffer : pyopencl.Buffer
        float32, (count, padded height, pitch).
    along : tuple of pyopencl.Buffer
        The same, every pixel averaged with those beside lines that run along x, and along y.
    count : int
        How many.
    noise : tuple
        Levels, variation and relative noise, as kernels take them.
    speckle : bool
        Whether the noise is relative to the mean.
    """

    buffer: Any
    along: tuple
    count: int
    noise: tuple
    speckle: bool

    @property
    def noise_constants(self) -> dict[str, int]:
        """What tells kernels of which kind the noise is."""
        return {"SPECKLE": int(self.speckle), "SIGMA_MAP": int(self.noise[1] is not None)}

    @property
    def looks(self) -> np.float32:
        """Looks of speckle, as kernels take them."""
        return np.float32(self.noise[2] ** -2 if self.speckle else 0)


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
        self._mix = None
        if settings.joint:
            weighted = settings.relative_noise == 0
            self._mix = ChannelMix(self.opponent, settings.guide, arena, weighted)

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> list[tuple[str, Any]]:
        """Enqueue the filter for one tile; return the launches by name."""
        settings = self.settings
        run = _Run(self, queue, Padded(tile, self.margins))
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
        guided = (tile.channels > 1 and not run.opponent) or (speckle and settings.soft)
        lines = settings.soft and not (guided and settings.staircase)
        count, given = tile.channels * frames, noisy.pixels.buffer
        pixels = _Images(*run.mirrored("pixels", given, count, lines), count, noise, speckle)
        guide = self._guide(run, noisy, variation) if guided else pixels
        made = out
        if run.opponent:
            made = self.arena.buffer("isoline made", 4 * tile.channels * math.prod(tile.shape))
        (self._soft if settings.soft else self._hard)(run, pixels, guide, made)
        if run.opponent:
            self._mix.end(queue, replace(noisy, pixels=Pixels(made, tile)), out, run.launches)
        return run.launches

    def _guide(self, run: _Run, noisy: Noisy, variation) -> _Images:
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
        made = run.mirrored("guide", source, frames, settings.soft)
        return _Images(*made, frames, noise, speckle)

    def _soft(self, run: _Run, pixels: _Images, guide: _Images, out) -> None:
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
            run.padded.blocks(margins.fitted, _SMOOTHED),
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

    def _regress(self, run: _Run, pixels, guide, pilot, margin: int, out, place: tuple) -> None:
        run.launch(
            "regress_levels",
            {
                "RADIUS": self.settings.staircase // 2,
                "OPPONENT": int(run.opponent),
                **guide.noise_constants,
            },
            run.padded.region(margin),
            pixels.count,
            *(pixels.buffer, pilot, np.int32(guide.count), *run.layout),
            after=(*guide.noise, out, *place),
        )

    def _hard(self, run: _Run, pixels: _Images, guide: _Images, out) -> None:
        settings, margins = self.settings, self.margins
        i32, f32 = np.int32, np.float32
        segments = max(settings.pixels // settings.length, 1)
        grey = {"LENGTH": settings.length, "SPECKLE": int(guide.speckle)}
        constants = {**grey, "SEGMENTS": segments, "SHOW": _SHOW[settings.show]}
        final = (*map(i32, run.padded.region(0)[2:]), i32(0), i32(0))
        # As in `_soft`, planes need a pilot of the guide alone.
        staircase = settings.staircase and settings.show == "image"
        averaged, made, place = (guide, run.images("pilot", guide.count), None)
        if staircase:
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

    def grid(self, nx: int, ny: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Return numbers of work-items, and of those in a group; a CPU chooses groups itself."""
        if self._alone:
            return (nx, ny, count), None
        across, down = _GROUP
        return (-(-nx // across) * across, -(-ny // down) * down, count), (across, down, 1)


class _Run:
    """The launches for one tile."""

    def __init__(self, plan: Plan, queue, padded: Padded):
        self.plan = plan
        self.queue = queue
        self.padded = padded
        self.launches: list[tuple[str, Any]] = []
        # A map is that of the luminance.
        self.opponent = plan.opponent and not plan.settings.yields_map
        self.layout = (np.int32(padded.shape[0]), np.int32(padded.pitch))

    def images(self, name: str, count: int):
        """Return a buffer of padded float32 images."""
        return self.plan.arena.buffer(f"isoline {name}", 4 * count * self.padded.plane)

    def launch(self, name: str, constants: dict, region: tuple, count: int, *before, after=()):
        """Launch a kernel over a region of some images."""
        _, _, ny, nx = region
        sizes, group = self.plan.grid(nx, ny, count)
        kernel = self.plan.arena.kernel(f"isoline/{name}", constants)
        event = kernel(self.queue, sizes, group, *before, *map(np.int32, region), *after)
        self.launches.append((name, event))

    def levels(self, level: float, count: int):
        """Return the same sigma for some frames."""
        import pyopencl as cl

        levels = self.plan.arena.buffer("isoline levels", 4 * count)
        event = cl.enqueue_fill_buffer(self.queue, levels, np.float32(level), 0, 4 * count)
        self.launches.append(("levels", event))
        return levels

    def logarithm(self, source, count: int):
        """Return the logarithm of the images of the tile."""
        y, x = self.padded.tile.y, self.padded.tile.x
        lengths = (y.source_size, x.source_size, y.source_start, x.source_start, y.length, x.length)
        out = self.plan.arena.buffer("isoline logarithm", 4 * count * y.source_size * x.source_size)
        kernel = self.plan.arena.kernel("isoline/take_logarithm", {})
        sizes, group = self.plan.grid(x.source_size, y.source_size, count)
        event = kernel(self.queue, sizes, group, source, *map(np.int32, lengths), out)
        self.launches.append(("logarithm", event))
        return out

    def mirrored(self, name: str, source, count: int, lines: bool = False) -> tuple[Any, tuple]:
        """Return padded images made of those of the tile, and with `lines` what `_Images` tells."""
        tile, (ny, nx) = self.padded.tile, self.padded.shape
        share = self.plan.settings.share_beside if lines else 0
        padded = self.images(name, count)
        along, more = (padded, padded), ()
        if share > 0:
            along = tuple(self.images(f"{name} along {axis}", count) for axis in "xy")
            more = (np.float32(share), *along)
        lengths = (
            *(tile.y.source_size, tile.x.source_size, tile.y.source_start, tile.x.source_start),
            *(tile.y.length, tile.x.length, *self.padded.origin, ny, nx, self.padded.pitch),
        )
        kernel = self.plan.arena.kernel("isoline/mirror_tile", {"THICKEN": int(share > 0)})
        sizes, group = self.plan.grid(self.padded.pitch, ny, count)
        event = kernel(self.queue, sizes, group, source, *map(np.int32, lengths), padded, *more)
        self.launches.append(("mirror", event))
        return padded, along
