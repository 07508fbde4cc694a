"""The isoline filter: averages along lines of equal grey level (Perrot et al. 2014)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.channels import ChannelMix, JointFilter, channels_setting
from napari_gpu_denoise.filters.pixels import Launcher, Noisy, Pixels
from napari_gpu_denoise.noise.models import NoiseModel, Speckle
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.settings import setting, within_bounds
from napari_gpu_denoise.protocol.tiles import Reach, Span, Tile
from napari_gpu_denoise.run.denoise import filter_function, shown_maps, with_settings
from napari_gpu_denoise.run.progress import Progress
from napari_gpu_denoise.run.request import Run

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
    def of(cls, settings: Isoline) -> Margins:
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


class Padded:
    """A tile with its margins, mirrored at the borders of the image.

    Attributes
    ----------
    origin, first : tuple of int
        Positions (y, x): in the image of the first padded pixel, both even; in the padded image of
        the first output pixel.
    shape, pitch, plane
        Height and width, both even; length of a row in memory, and pixels of an image there.
    """

    def __init__(self, tile: Tile, margins: Margins):
        self.tile, self.margins, spans = tile, margins, (tile.y, tile.x)
        self.origin = tuple((span.start - margins.looked_at) // 2 * 2 for span in spans)
        pairs = list(zip(spans, self.origin, strict=True))
        self.first = tuple(span.start - origin for span, origin in pairs)
        ends = (span.stop - origin + margins.looked_at for span, origin in pairs)
        self.shape = tuple(-(-end // 2) * 2 for end in ends)
        self.pitch = -(-self.shape[1] // 32) * 32
        self.plane = self.shape[0] * self.pitch

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
    noise: dict[str, Any]  # kernel arguments: levels, variation, relative noise
    speckle: bool  # whether the noise is relative to the mean

    @property
    def noise_constants(self) -> dict[str, int]:
        """Build constants for the kind of noise."""
        return {"SPECKLE": self.speckle, "SIGMA_MAP": self.noise["variation"] is not None}

    @property
    def looks(self) -> float:
        """Number of looks as a kernel argument; 0 for additive noise."""
        return float(np.float32(self.noise["relative"]) ** -2) if self.speckle else 0.0

    @property
    def lines(self) -> dict[str, Any]:
        """Kernel arguments: the images averaged across lines."""
        along_x, along_y = self.along
        return {"along_x": along_x, "along_y": along_y}


class TileLauncher(Launcher):
    """Launches kernels for one tile, in the buffers `held` for it."""

    def __init__(self, arena: Arena, queue, padded: Padded, held: Buffers):
        super().__init__(arena, queue, held)
        self.arena, self.padded = arena, padded
        # Kernel arguments: height and pitch of padded images.
        self.layout = {"pny": padded.shape[0], "pitch": padded.pitch}

    def launch(self, name: str, constants: dict, region: tuple, count: int, /, **arguments):
        """Launch a kernel over a region of some images."""
        y0, x0, ny, nx = region
        place = {"y0": y0, "x0": x0, "ny": ny, "nx": nx}
        self._launch(name, name, constants, (nx, ny, count), **place, **arguments)

    def place(self, margin: int) -> dict[str, int]:
        """Return the kernel arguments that put results, with a margin, in padded images."""
        (ny, _), (y0, x0, *_) = self.padded.shape, self.padded.region(margin)
        return {"out_ny": ny, "out_pitch": self.padded.pitch, "out_y0": y0, "out_x0": x0}

    def logarithm(self, source, count: int):
        """Return the logarithm of the images of the tile."""
        y, x = self.padded.tile.y, self.padded.tile.x
        made, sizes = self.held["isoline logarithm"], (x.source_size, y.source_size, count)
        arguments = {"tile": source, **self._lengths(), "logarithm": made}
        self._launch("logarithm", "take_logarithm", {}, sizes, **arguments)
        return made

    def mirrored(self, name: str, source, count: int, share: float = 0.0) -> tuple[Any, tuple]:
        """Pad images of the tile by mirroring; return `buffer` and `along` of `PaddedImages`.

        `share` is the weight of the pixels on either side of a line; with 0 all three are the same.
        """
        (ny, nx), (y0, x0) = self.padded.shape, self.padded.origin
        padded = self.held[f"isoline {name}"]
        along, more = (padded, padded), {}
        if share > 0:
            along = tuple(self.held[f"isoline {name} along {axis}"] for axis in "xy")
            more = {"share": share, "along_x": along[0], "along_y": along[1]}
        constants, sizes = {"THICKEN": share > 0}, (self.padded.pitch, ny, count)
        self._launch(
            *("mirror", "mirror_tile", constants, sizes),
            **{"tile": source, **self._lengths(), "y0": y0, "x0": x0, "pny": ny, "pnx": nx},
            **{"pitch": self.padded.pitch, "padded": padded, **more},
        )
        return padded, along

    def _lengths(self) -> dict[str, int]:
        """Return the kernel arguments that say where the tile lies in its image."""
        y, x = self.padded.tile.y, self.padded.tile.x
        return {
            **{"tile_ny": y.source_size, "tile_nx": x.source_size},
            **{"tile_y": y.source_start, "tile_x": x.source_start},
            **{"image_ny": y.length, "image_nx": x.length},
        }

    def _launch(self, name: str, file: str, constants: dict, sizes: tuple, /, **arguments):
        self.over_pixels(name, self.arena.kernel(f"isoline/{file}", constants), *sizes, **arguments)


# Log-ratios at which an isoline ends, and above which a pixel is an edge, where lines are picked.
_T_MAX, _T2_MAX = 1.0, 2.0
_DEVIATION = 2  # most steps of 11.25 degrees from one segment to the next, in pi-ld
# Tolerance for directions that fit worse than the best one, in sigma squared.
_SOFTNESS = 0.1
# Averages that may replace a pixel: 16 lines and a window.
_CANDIDATES = 17
_SHOW = {"image": 0, "classes": 1, "directions": 2}


class Plan(TilePlan):
    """Kernels and buffers of `Isoline` on one device; belongs to one thread."""

    def __init__(self, settings: Isoline, arena: Arena):
        self.settings = settings
        self.arena = arena
        self.margins = Margins.of(settings)
        self._mix = ChannelMix(settings.channels, arena, settings.relative_noise == 0)
        # Maps are of the luminance: they are not converted back to colours.
        self.mixed_back = self._mix.opponent and not settings.yields_map
        self._candidates = _CANDIDATES if settings.method == "hybrid" else _CANDIDATES - 1
        self._share = settings.share_beside if settings.soft else 0.0

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the padded images and maps that a tile needs."""
        settings, plane = self.settings, Padded(tile, self.margins).plane
        frames = tile.frames
        count, whole = tile.channels * frames, _whole(tile)
        guided, share = self._guided(tile)
        guides = frames if guided else count
        fits = settings.staircase and settings.show == "image"
        piloted = guides if settings.staircase else count
        images = {
            "pixels": count,
            "variation": int(is_map),
            "guide": guides if guided else 0,
            "pilot": piloted if settings.soft else guides if fits else 0,
            "fitted": count if settings.soft and fits else 0,
        }
        for name, along_axes in (("pixels", share), ("guide", self._share)):
            if along_axes:
                images |= {f"{name} along {axis}": images[name] for axis in "xy"}
        sizes = {}
        if settings.soft:
            sizes["found"] = piloted * plane // 4
            sizes["residuals"] = guides * self._candidates * plane
            if guided and settings.relative_noise:
                sizes["logarithm"] = 4 * math.prod(whole.shape)
                sizes["levels"] = 4 * frames
        elif settings.method != "pi-ld":
            sizes |= {"directions": guides * plane, "segments": 8 * guides * plane}
        if self.mixed_back:
            sizes["made"] = tile.nbytes
        sizes |= {name: 4 * number * plane for name, number in images.items() if number}
        mixed = self._mix.buffers(whole)
        if guided and tile.channels > 1:
            mixed |= self._mix.guide_buffers(whole, "isoline mixed")
        return {f"isoline {name}": nbytes for name, nbytes in sizes.items()} | mixed

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        settings = self.settings
        held = self.hold(tile, sigma.variation is not None)
        run = TileLauncher(self.arena, queue, Padded(tile, self.margins), held)
        frames = tile.frames
        variation = None
        if sigma.variation is not None:
            variation = run.mirrored("variation", sigma.variation, 1)[0]
        noisy = self._mix.begin(run, Noisy(Pixels(source, _whole(tile)), sigma.levels))
        noise = _noise(noisy.levels, variation, settings.relative_noise)
        speckle = settings.relative_noise > 0
        guided, share = self._guided(tile)
        count, given = tile.channels * frames, noisy.pixels.buffer
        pixels = PaddedImages(*run.mirrored("pixels", given, count, share), count, noise, speckle)
        guide = self._guide(run, noisy, variation) if guided else pixels
        made = held["isoline made"] if self.mixed_back else out
        (self._soft if settings.soft else self._hard)(run, pixels, guide, made)
        if self.mixed_back:
            self._mix.end(run, replace(noisy, pixels=Pixels(made, tile)), out)
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

    def _guide(self, run: TileLauncher, noisy: Noisy, variation) -> PaddedImages:
        """Return the guide that isolines are traced in: one channel, of speckle its logarithm."""
        settings, tile = self.settings, run.padded.tile
        frames = tile.frames
        relative = settings.relative_noise
        speckle = relative > 0
        if tile.channels > 1:
            noisy = self._mix.guide(run, noisy, "isoline mixed")
            relative /= math.sqrt(tile.channels)
        source = noisy.pixels.buffer
        noise = _noise(noisy.levels, variation, relative)
        if speckle and settings.soft:
            from scipy.special import polygamma

            # The logarithm of speckle has additive noise, the same everywhere.
            source, speckle = run.logarithm(source, frames), False
            level = math.sqrt(polygamma(1, relative**-2))
            levels = run.send(np.full(frames, level), "isoline levels")
            noise = _noise(levels, None, 0)
        made = run.mirrored("guide", source, frames, self._share)
        return PaddedImages(*made, frames, noise, speckle)

    def _soft(self, run: TileLauncher, pixels: PaddedImages, guide: PaddedImages, out) -> None:
        settings, margins, region = self.settings, self.margins, run.padded.region(0)
        length = {"LENGTH": settings.segment_length}
        lines = {**length, "CANDIDATES": self._candidates}
        block = {"block_ny": run.padded.shape[0] // 2, "block_pitch": run.padded.pitch // 2}
        weight = (1 - 2 * settings.share_beside) / (settings.segment_length + 1)

        residuals = run.held["isoline residuals"]
        compared = run.padded.blocks(margins.fitted, SMOOTHED)
        run.launch(
            *("line_residuals", {**lines, **guide.noise_constants}, compared, guide.count),
            **{"padded": guide.buffer, **guide.lines, **block, "middle": weight},
            **{**guide.noise, "residuals": residuals},
        )
        # Planes need a pilot of the guide; without them the pilot of the channels is the result.
        piloted = guide if settings.staircase else pixels
        pilot, found = run.held["isoline pilot"], run.held["isoline found"]
        run.launch(
            *("mix_candidates", lines, run.padded.blocks(margins.fitted), piloted.count),
            **{"pixels": piloted.buffer, **piloted.lines, **block, "residuals": residuals},
            **{"guides": guide.count, "softness": _SOFTNESS},
            **{"pilot": pilot, "found": found},
        )
        if settings.show != "image":
            run.launch(
                *("show_found", {"SHOW": _SHOW[settings.show]}, region, pixels.count),
                **{"found": found, "guides": guide.count, **run.layout, "out": out},
            )
            return
        fitted = pilot
        if settings.staircase:
            fitted = run.held["isoline fitted"]
            place = run.place(margins.followed)
            self._regress(run, pixels, guide, pilot, margins.followed, fitted, place)
        steps = {**length, "STEPS": settings.steps, **pixels.noise_constants}
        run.launch(
            *("extend_isolines", steps, region, pixels.count),
            **{"smooth": fitted, "found": found, "guides": guide.count, **run.layout},
            **{**pixels.noise, "out": out},
        )

    def _regress(
        self, run: TileLauncher, pixels, guide, pilot, margin: int, out, place: dict[str, int]
    ) -> None:
        constants = {"RADIUS": self.settings.staircase // 2, "OPPONENT": self.mixed_back}
        constants |= guide.noise_constants
        run.launch(
            *("regress_levels", constants, run.padded.region(margin), pixels.count),
            **{"pixels": pixels.buffer, "pilot": pilot, "guides": guide.count, **run.layout},
            **{**guide.noise, "out": out, **place},
        )

    def _hard(self, run: TileLauncher, pixels: PaddedImages, guide: PaddedImages, out) -> None:
        settings, margins = self.settings, self.margins
        grey = {"LENGTH": settings.segment_length, "SPECKLE": guide.speckle}
        constants = {**grey, "SEGMENTS": settings.segments, "SHOW": _SHOW[settings.show]}
        _, _, ny, nx = run.padded.region(0)
        final = {"out_ny": ny, "out_pitch": nx, "out_y0": 0, "out_x0": 0}
        staircase = settings.staircase and settings.show == "image"
        if staircase:
            averaged, made = guide, run.held["isoline pilot"]
            place = run.place(margins.fitted)
        else:
            averaged, made, place = pixels, out, final
        region = run.padded.region(margins.fitted if staircase else 0)
        given = {"padded": guide.buffer, "pixels": averaged.buffer, "guides": guide.count}
        given |= {"looks": guide.looks, "t_max": _T_MAX, "out": made, **place, **run.layout}
        if settings.method == "pi-ld":
            constants["DEVIATION"] = _DEVIATION
            run.launch("search_isolines", constants, region, averaged.count, **given)
        else:
            directions, sums = run.held["isoline directions"], run.held["isoline segments"]
            whole = run.padded.region(margins.looked_at - settings.segment_length - 1)
            run.launch(
                *("first_segments", grey, whole, guide.count),
                **{"padded": guide.buffer, **run.layout},
                **{"directions": directions, "segments": sums},
            )
            constants |= {"HYBRID": settings.method == "hybrid"}
            constants |= {"THICKNESS": settings.thickness, "ASIDE": averaged is not guide}
            run.launch(
                *("follow_isolines", constants, region, averaged.count),
                **{**given, "directions": directions, "segments": sums, "t2_max": _T2_MAX},
            )
        if staircase:
            self._regress(run, pixels, guide, made, 0, out, final)


def _noise(levels, variation, relative: float) -> dict[str, Any]:
    return {"levels": levels, "variation": variation, "relative": relative}


def _whole(tile: Tile) -> Tile:
    """Return a tile that treats all that is read as a whole image."""
    return replace(tile, y=Span.whole(tile.y.source_size), x=Span.whole(tile.x.source_size))


DIRECTIONS = 32  # of segments, 11.25 degrees apart


@dataclass(frozen=True)
class Isoline(JointFilter):
    """Settings of the isoline filter.

    Every pixel is averaged along the line of equal grey level through it: segments in the direction
    that fits best, each continued by the segment at its end.
    """

    name: ClassVar[str] = "isoline"
    title: ClassVar[str] = "Isoline"
    summary: ClassVar[str] = "Averages along lines of equal grey level: fast enough for live images"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fine": {"staircase": 15},
        "paper": {"choice": "hard", "thickness": 1, "staircase": 0},
    }

    method: str = setting(
        "hybrid",
        "How isolines are traced: along directions computed beforehand (pi-pd), the same except in "
        "flat regions (hybrid), or by trying all directions at every step (pi-ld, slow)",
        choices=("hybrid", "pi-pd", "pi-ld"),
    )
    choice: str = setting(
        "soft",
        "Weight directions and segments by how well they fit (soft), or pick the best one as in "
        "the paper (hard); pi-ld always picks",
        choices=("soft", "hard"),
    )
    segment_length: int = setting(5, "Length of a line segment", bounds=(2, 10), unit="pixels")
    max_length: int = setting(25, "Maximum length of an isoline", bounds=(2, 100), unit="pixels")
    thickness: int = setting(2, "Thickness of an isoline", bounds=(1, 3), unit="pixels")
    staircase: int = setting(
        11,
        "Window width of the staircase correction (odd); 0 turns it off",
        bounds=(0, 21),
        unit="pixels",
        odd=True,
    )
    channels: str = channels_setting("along shared isolines")
    criterion: str = setting(
        "additive",
        "Kind of noise: additive with standard deviation sigma, or multiplicative speckle "
        "(gamma-distributed; sigma is not used)",
        choices=("additive", "multiplicative"),
    )
    looks: float = setting(
        4.0,
        "Number of looks of the speckle: squared mean over variance in uniform regions",
        bounds=(0.1, 10000.0),
        unit="looks",
    )
    show: str = setting(
        "image",
        "Output: the denoised image, classes of pixels (0 flat, 1 edge, 2 isoline), or directions "
        "(in steps of 11.25 degrees)",
        choices=("image", "classes", "directions"),
        advanced=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < self.segment_length:
            raise SettingsError(
                f"max_length={self.max_length} is less than one segment of {self.segment_length}: "
                "choose at least the segment_length."
            )
        if self.show == "classes" and self.method == "pi-ld":
            raise SettingsError(
                "method='pi-ld' has no classes: choose show='directions' or method='hybrid'."
            )

    @property
    def soft(self) -> bool:
        """Whether directions and segments are weighted, not picked."""
        return self.choice == "soft" and self.method != "pi-ld"

    @property
    def segments(self) -> int:
        """Maximum number of segments of an isoline."""
        return self.max_length // self.segment_length

    @property
    def steps(self) -> int:
        """Segments added to either end of a weighted isoline."""
        return (self.segments - 1) // 2

    @property
    def share_beside(self) -> float:
        """Weight of the line on either side of a weighted one; binomial for a thickness of 3."""
        return (self.thickness - 1) / 8

    @property
    def relative_noise(self) -> float:
        """Standard deviation of multiplicative noise, relative to the mean; 0 if it is additive."""
        return self.looks**-0.5 if self.criterion == "multiplicative" else 0.0

    @property
    def keeps_zero(self) -> bool:
        return self.criterion == "multiplicative"

    @property
    def sigma_unused(self) -> str:
        """Multiplicative noise is given by its looks."""
        if self.criterion == "additive":
            return ""
        return f"not used: multiplicative noise of {self.looks:g} looks"

    @property
    def yields_map(self) -> bool:
        return self.show != "image"

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array, with its channels, and for speckle of these models."""
        fitting, speckle = super().prepare(context), self.relative_noise > 0
        # Opponent colours are differences: their noise is not multiplicative.
        if speckle and self.channels == "opponent":
            raise SettingsError(
                "channels='opponent' does not work with multiplicative noise: use 'separate' or "
                "'joint'."
            )
        fitting = fitting.with_channels(context, "separate" if speckle else "opponent")
        if context.noise and self.takes(context.noise):
            channels = "separate" if fitting.channels == "opponent" else fitting.channels
            (looks,) = _looks(context.noise)
            fitting = replace(fitting, criterion="multiplicative", looks=looks, channels=channels)
        if fitting.keeps_sigma and context.strength != 1:
            looks = within_bounds(self, "looks", fitting.looks / context.strength**2)
            fitting = replace(fitting, looks=looks)
        return fitting

    def takes(self, models: Sequence[NoiseModel]) -> bool:
        """Whether all is speckle of the same looks, of which there are not too many."""
        looks = _looks(models)
        return len(looks) == 1 and all(within_bounds(self, "looks", one) == one for one in looks)

    @property
    def keeps_sigma(self) -> bool:
        """Whether the looks stand for sigma."""
        return self.criterion == "multiplicative"

    @property
    def operations_per_pixel(self) -> float:
        """Estimate for tracing and for fitting planes."""
        if self.method == "pi-ld":
            tried = 1 + (self.segments - 1) * (2 * _DEVIATION + 1)
            return 8.0 * DIRECTIONS * self.segment_length * tried
        lines = 6.0 * DIRECTIONS * self.segment_length * (2 if self.soft else 1)
        return lines + 13.0 * self.staircase**2

    @property
    def reach(self) -> Reach:
        """The margin of all steps, with room for blocks that begin at even pixels of the image."""
        return Reach.of(Margins.of(self).read + 1)

    def plan(self, arena: Arena) -> Plan:
        return Plan(self, arena)


def _looks(models: Sequence[NoiseModel]) -> set[float]:
    return {model.looks for model in models if isinstance(model, Speckle)}


@filter_function(Isoline)
def isoline() -> None:
    """Denoise by averaging along lines of equal grey level.

    Parameters
    ----------
    {inputs}
    {profile}
        ``"fine"`` is ``staircase=15``; ``"paper"`` is the hybrid filter exactly as published,
        ``choice="hard", thickness=1, staircase=0``.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXS"``. Y and X are filtered, each
        plane separately. By default the last two are Y and X, the rest independent planes.
    {common}

    See Also
    --------
    isoline_maps : Edge and direction maps.
    denoise : The same with a record of the run.

    Notes
    -----
    With the defaults, averages along lines of ``2 * segment_length + 1`` pixels in 16 directions,
    and over a small window for regions of low slope, are weighted by how well they predict nearby
    pixels. Planes are then fitted to the noisy pixels of a window, weighted by how similar these
    averages are (staircase correction). Isolines are followed both ways along the directions found,
    and their ends averaged. The work is about ``700 + 15 * staircase**2`` operations per pixel.

    ``choice="hard"`` is the method of the paper, except that the first pixel counts in the mean;
    sigma is then used by the staircase correction only. ``method="pi-ld"`` always picks the best
    direction; it is slow, and meant for comparison.

    References
    ----------
    G. Perrot, S. Domas, R. Couturier and N. Bertaux, "Fast GPU-based denoising filter using isoline
    levels", 2014, sections 3 to 5.

    A. Buades, B. Coll and J.-M. Morel, "The staircasing effect in neighborhood filters and its
    solution", IEEE Transactions on Image Processing 15 (2006), pages 1499 to 1505.

    Examples
    --------
    >>> out = isoline(image, sigma=20)                                     # doctest: +SKIP
    >>> out = isoline(image, criterion="multiplicative", looks=4)              # doctest: +SKIP
    >>> out = isoline(image, profile="paper")                              # doctest: +SKIP
    """


@dataclass(frozen=True)
class IsolineMaps:
    """Edge and direction maps of the isoline filter.

    Attributes
    ----------
    classes : ndarray of uint8, or None
        0 where the slope is low, 1 at edges, 2 where isolines are followed: everywhere with
        ``method="pi-pd"``. None with ``method="pi-ld"``, which has no classes.
    directions : ndarray of float32
        Direction of the isoline of each pixel in degrees, counter-clockwise from +x (y points
        down), from 0 to below `period`, in steps of 11.25. Unreliable where the slope is low.
    period : float
        Degrees after which directions repeat: 180 for lines (``choice="soft"``), 360 for segments
        that leave a pixel (``choice="hard"``).
    """

    classes: np.ndarray | None
    directions: np.ndarray
    period: float


@with_settings(Isoline, without=("dtype",))
def isoline_maps(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    frames: int | slice | None = None,
    slices: int | slice | None = None,
    rows: slice | None = None,
    columns: slice | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Any = None,
    **given: Any,
) -> IsolineMaps:
    """Return maps of edges, flat regions and isoline directions, as found by the isoline filter.

    Parameters
    ----------
    {inputs}
    profile : {"normal", "fine", "paper"}, optional
        Settings to start from, as `isoline` takes it.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXS"``. By default the last two are Y
        and X, the rest independent planes.
    {settings}
    {part}
    slices : int or slice, optional
        The same along the axis Z.
    {run}
    {fields}

    Returns
    -------
    IsolineMaps
        Arrays of the shape of `image`, without the channel axis where channels share their
        isolines.

    Raises
    ------
    {errors}

    See Also
    --------
    isoline : The filter.

    Notes
    -----
    With ``choice="soft"`` both maps consist of blocks of 2 by 2 pixels, because the filter weights
    directions by blocks. The class tells which of its averages fits best, although all contribute.
    The plane fit and the extension do not change the maps. Each map takes as long as the filter up
    to that step.

    Examples
    --------
    >>> maps = isoline_maps(image, sigma=20)                               # doctest: +SKIP
    >>> share_of_edges = (maps.classes == 1).mean()                        # doctest: +SKIP
    """
    run = Run.of(Isoline, sigma, given, without=("dtype",))
    chosen = {"frames": frames, "slices": slices, "rows": rows, "columns": columns}
    settings: Any = run.filter
    names = ["directions"] + ["classes"] * (settings.method != "pi-ld")
    told = Progress.of(progress, cancel, "no maps were")
    maps = shown_maps(image, run, names, told, **chosen)
    classes = maps.get("classes")
    return IsolineMaps(
        classes=None if classes is None else classes.astype(np.uint8),
        directions=maps["directions"] * np.float32(360 / DIRECTIONS),
        period=180.0 if settings.soft else 360.0,
    )
