"""The isoline filter on one device: margins, padded images, kernels and buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.channels import ChannelMix
from napari_gpu_denoise.filters.pixels import Noisy, Pixels
from napari_gpu_denoise.opencl.kernel import pixel_grid
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.tiles import Reach, Span, Tile

# Radius of the smoothing of residuals, in blocks of 2 x 2 pixels.
SMOOTHED = 2
# Radius of the neighbourhood that limits how dark a speckled pixel may be, in pixels.
_FLOOR = 2


@dataclass(frozen=True)
class Margins:
    """Margin of each step around the output pixels, in pixels."""

    followed: int  # where isolines end
    fitted: int  # what planes are fitted to
    looked_at: int  # where lines and segments end
    read: int  # all that is read

    @classmethod
    def of(cls, settings: Filter) -> Margins:
        around = settings.staircase // 2
        if settings.soft:
            followed = settings.steps * settings.segment_length
            fitted = followed + around
            # A block may begin a pixel before; lines are thickened by one each side.
            looked_at = fitted + 1 + 2 * SMOOTHED + settings.segment_length + 1
            floor = _FLOOR if settings.relative_noise else 0
            return cls(followed, fitted, looked_at, looked_at + floor)
        looked_at = around + settings.segments * settings.segment_length + 1
        return cls(0, around, looked_at, looked_at)

    @property
    def reach(self) -> Reach:
        """Reach of the filter, with room for blocks that begin at even pixels of the image."""
        each = self.read + 1
        return Reach(y=(each, each), x=(each, each))


@dataclass(frozen=True)
class Padded:
    """A tile with its margins, mirrored at the borders of the image."""

    tile: Tile
    margins: Margins

    @cached_property
    def origin(self) -> tuple[int, int]:
        """Position in the image (y, x) of the first padded pixel; both are even."""
        starts = (self.tile.y.start, self.tile.x.start)
        return tuple((start - self.margins.looked_at) // 2 * 2 for start in starts)

    @cached_property
    def first(self) -> tuple[int, int]:
        """Position in the padded image (y, x) of the first output pixel."""
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
        """Return (y0, x0, ny, nx) of the output pixels with a margin, in the padded image."""
        y, x = (first - margin for first in self.first)
        return y, x, self.tile.y.size + 2 * margin, self.tile.x.size + 2 * margin

    def blocks(self, margin: int, more: int = 0) -> tuple[int, int, int, int]:
        """Return `region` in blocks of 2 x 2 pixels, with `more` blocks on every side."""
        y, x, ny, nx = self.region(margin)
        first_y, first_x = y // 2 - more, x // 2 - more
        stop_y, stop_x = (y + ny + 1) // 2 + more, (x + nx + 1) // 2 + more
        return first_y, first_x, stop_y - first_y, stop_x - first_x


@dataclass(frozen=True)
class PaddedImages:
    """Padded images on the device, and their noise."""

    buffer: Any  # float32, (count, padded height, pitch)
    along: tuple  # the same, averaged across lines that run along x, and along y
    count: int
    noise: tuple  # kernel arguments: levels, variation, relative noise
    speckle: bool  # whether the noise is relative to the mean

    @property
    def noise_constants(self) -> dict[str, int]:
        """Build constants for the kind of noise."""
        return {"SPECKLE": int(self.speckle), "SIGMA_MAP": int(self.noise[1] is not None)}

    @property
    def looks(self) -> np.float32:
        """Number of looks as a kernel argument; 0 for additive noise."""
        return np.float32(self.noise[2] ** -2 if self.speckle else 0)


class TileLaunches:
    """Launches kernels for one tile, in the buffers `held` for it, and lists the events."""

    def __init__(self, arena: Arena, queue, padded: Padded, held: Buffers):
        self.arena = arena
        self.queue = queue
        self.padded = padded
        self.held = held
        self.launches: Launches = []
        # Kernel arguments: height and pitch of padded images.
        self.layout = (np.int32(padded.shape[0]), np.int32(padded.pitch))

    def launch(self, name: str, constants: dict, region: tuple, count: int, *before, after=()):
        """Launch a kernel over a region of some images."""
        _, _, ny, nx = region
        arguments = (*before, *map(np.int32, region), *after)
        self._launch(name, name, constants, (nx, ny, count), arguments)

    def levels(self, level: float, count: int):
        """Return a buffer of noise levels with the same value for every frame."""
        import pyopencl as cl

        levels = self.held["isoline levels"]
        event = cl.enqueue_fill_buffer(self.queue, levels, np.float32(level), 0, 4 * count)
        self.launches.append(("levels", event))
        return levels

    def logarithm(self, source, count: int):
        """Return the logarithm of the images of the tile."""
        y, x = self.padded.tile.y, self.padded.tile.x
        lengths = (y.source_size, x.source_size, y.source_start, x.source_start, y.length, x.length)
        out = self.held["isoline logarithm"]
        sizes = (x.source_size, y.source_size, count)
        arguments = (source, *map(np.int32, lengths), out)
        self._launch("logarithm", "take_logarithm", {}, sizes, arguments)
        return out

    def mirrored(self, name: str, source, count: int, share: float = 0.0) -> tuple[Any, tuple]:
        """Pad images of the tile by mirroring; return `buffer` and `along` of `PaddedImages`.

        `share` is the weight of the pixels on either side of a line; with 0 all three are the same.
        """
        tile, (ny, nx) = self.padded.tile, self.padded.shape
        padded = self.held[f"isoline {name}"]
        along, more = (padded, padded), ()
        if share > 0:
            along = tuple(self.held[f"isoline {name} along {axis}"] for axis in "xy")
            more = (np.float32(share), *along)
        lengths = (
            *(tile.y.source_size, tile.x.source_size, tile.y.source_start, tile.x.source_start),
            *(tile.y.length, tile.x.length, *self.padded.origin, ny, nx, self.padded.pitch),
        )
        constants = {"THICKEN": int(share > 0)}
        arguments = (source, *map(np.int32, lengths), padded, *more)
        sizes = (self.padded.pitch, ny, count)
        self._launch("mirror", "mirror_tile", constants, sizes, arguments)
        return padded, along

    def _launch(self, name: str, file: str, constants: dict, sizes: tuple, arguments: tuple):
        kernel = self.arena.kernel(f"isoline/{file}", constants)
        grid = pixel_grid(self.arena.session.device, *sizes)
        self.launches.append((name, kernel(self.queue, *grid, *arguments)))


# Averages that may replace a pixel: 16 lines and a window.
_CANDIDATES = 17
_SHOW = {"image": 0, "classes": 1, "directions": 2}


class Plan(TilePlan):
    """Kernels and buffers of `Isoline` on one device; belongs to one thread."""

    def __init__(self, settings: Filter, arena: Arena):
        self.settings = settings
        self.arena = arena
        self.margins = Margins.of(settings)
        self.opponent = settings.channels == "opponent"
        # Maps are of the luminance: they are not converted back to colours.
        self.mixed_back = self.opponent and not settings.yields_map
        self._candidates = _CANDIDATES if settings.method == "hybrid" else _CANDIDATES - 1
        self._share = settings.share_beside if settings.soft else 0.0
        self._mix = None
        if settings.joint:
            weighted = settings.relative_noise == 0
            self._mix = ChannelMix(self.opponent, settings.guide, arena, weighted)

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the padded images and maps that a tile needs."""
        settings, plane = self.settings, Padded(tile, self.margins).plane
        frames = tile.t.size * tile.z.size
        count, whole = tile.channels * frames, _whole(tile)
        guided, share = self._guided(tile)
        guides = frames if guided else count
        images = {"pixels": count, **({"variation": 1} if is_map else {})}
        if guided:
            images["guide"] = guides
        for name in [name for name, on in (("pixels", share), ("guide", self._share)) if on]:
            if name in images:
                images |= {f"{name} along {axis}": images[name] for axis in "xy"}
        sizes, shown = {}, settings.show != "image"
        if settings.soft:
            piloted = guides if settings.staircase else count
            images["pilot"] = piloted
            if settings.staircase and not shown:
                images["fitted"] = count
            sizes["found"] = piloted * plane // 4
            sizes["residuals"] = guides * self._candidates * plane
            if guided and settings.relative_noise:
                sizes["logarithm"] = 4 * math.prod(whole.shape)
                sizes["levels"] = 4 * frames
        else:
            if settings.staircase and not shown:
                images["pilot"] = guides
            if settings.method != "pi-ld":
                sizes |= {"directions": guides * plane, "segments": 8 * guides * plane}
        if self.mixed_back:
            sizes["made"] = 4 * tile.channels * math.prod(tile.shape)
        sizes |= {name: 4 * number * plane for name, number in images.items()}
        mixed = {} if self._mix is None else self._mix.buffers(whole)
        if guided and tile.channels > 1:
            mixed |= self._mix.guide_buffers(whole, "isoline mixed")
        return {f"isoline {name}": nbytes for name, nbytes in sizes.items()} | mixed

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue the filter for one tile; return the launches by name."""
        settings = self.settings
        held = self.hold(tile, sigma.variation is not None)
        run = TileLaunches(self.arena, queue, Padded(tile, self.margins), held)
        frames = tile.t.size * tile.z.size
        variation = None
        if sigma.variation is not None:
            variation = run.mirrored("variation", sigma.variation, 1)[0]
        noisy = Noisy(Pixels(source, _whole(tile)), sigma.levels, sigma.variation)
        if self.opponent:
            noisy = self._mix.begin(queue, noisy, held, run.launches)
        noise = (noisy.levels, variation, np.float32(settings.relative_noise))
        speckle = settings.relative_noise > 0
        guided, share = self._guided(tile)
        count, given = tile.channels * frames, noisy.pixels.buffer
        pixels = PaddedImages(*run.mirrored("pixels", given, count, share), count, noise, speckle)
        guide = self._guide(run, noisy, variation) if guided else pixels
        made = held["isoline made"] if self.mixed_back else out
        (self._soft if settings.soft else self._hard)(run, pixels, guide, made)
        if self.mixed_back:
            self._mix.end(queue, replace(noisy, pixels=Pixels(made, tile)), out, run.launches)
        return run.launches

    def _guided(self, tile: Tile) -> tuple[bool, float]:
        """Return whether isolines are traced in a guide, and the channels' weight beside lines.

        Lines are compared in the guide; channels are averaged along them if no planes are fitted.
        """
        settings = self.settings
        guided = tile.channels > 1 and not self.mixed_back
        guided |= settings.relative_noise > 0 and settings.soft
        lines = settings.soft and not (guided and settings.staircase)
        return guided, settings.share_beside if lines else 0.0

    def _guide(self, run: TileLaunches, noisy: Noisy, variation) -> PaddedImages:
        """Return the guide that isolines are traced in: one channel, of speckle its logarithm."""
        settings, tile = self.settings, run.padded.tile
        frames = tile.t.size * tile.z.size
        relative = settings.relative_noise
        speckle = relative > 0
        if tile.channels > 1:
            noisy = self._mix.guide(run.queue, noisy, "isoline mixed", run.held, run.launches)
            if settings.guide < 0:
                relative /= math.sqrt(tile.channels)
        source = noisy.pixels.buffer
        noise = (noisy.levels, variation, np.float32(relative))
        if speckle and settings.soft:
            from scipy.special import polygamma

            # The logarithm of speckle has additive noise, the same everywhere.
            source, speckle = run.logarithm(source, frames), False
            levels = run.levels(math.sqrt(polygamma(1, relative**-2)), frames)
            noise = (levels, None, np.float32(0))
        made = run.mirrored("guide", source, frames, self._share)
        return PaddedImages(*made, frames, noise, speckle)

    def _soft(self, run: TileLaunches, pixels: PaddedImages, guide: PaddedImages, out) -> None:
        settings, margins = self.settings, self.margins
        i32, f32 = np.int32, np.float32
        length = {"LENGTH": settings.segment_length}
        lines = {**length, "CANDIDATES": self._candidates}
        block = (i32(run.padded.shape[0] // 2), i32(run.padded.pitch // 2))
        share = settings.share_beside

        residuals = run.held["isoline residuals"]
        run.launch(
            "line_residuals",
            {**lines, **guide.noise_constants},
            run.padded.blocks(margins.fitted, SMOOTHED),
            guide.count,
            *(guide.buffer, *guide.along, *block),
            after=(f32((1 - 2 * share) / (settings.segment_length + 1)), *guide.noise, residuals),
        )
        blocks = run.padded.blocks(margins.fitted)

        # Planes need a pilot of the guide; without them the pilot of the channels is the result.
        piloted = guide if settings.staircase else pixels
        pilot, found = run.held["isoline pilot"], run.held["isoline found"]
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
            fitted = run.held["isoline fitted"]
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
        grey = {"LENGTH": settings.segment_length, "SPECKLE": int(guide.speckle)}
        constants = {**grey, "SEGMENTS": settings.segments, "SHOW": _SHOW[settings.show]}
        final = (*map(i32, run.padded.region(0)[2:]), i32(0), i32(0))
        staircase = settings.staircase and settings.show == "image"
        if staircase:
            averaged, made = guide, run.held["isoline pilot"]
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
            directions, sums = run.held["isoline directions"], run.held["isoline segments"]
            limits = (f32(settings.t_max), f32(settings.t2_max))
            run.launch(
                "first_segments",
                grey,
                run.padded.region(margins.looked_at - settings.segment_length - 1),
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


def _whole(tile: Tile) -> Tile:
    """Return a tile that treats all that is read as a whole image."""
    return replace(tile, y=Span.whole(tile.y.source_size), x=Span.whole(tile.x.source_size))
