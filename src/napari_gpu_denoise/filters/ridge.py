"""Ridge combinations: patches of a result are estimated again, from all that are similar."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from napari_gpu_denoise.filters.search.patch_search import SearchSettings, Variant, grid_arguments
from napari_gpu_denoise.filters.search.video_search import (
    PredictiveSearch,
    ReferenceFrames,
    RingFrames,
    VideoSearch,
)
from napari_gpu_denoise.filters.sums import block_constants, over_groups, sum_arguments
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TilePlan, TileSigma, together
from napari_gpu_denoise.protocol.tiles import Span, Tile

NEIGHBOURS = 64  # patches of a group; more would not fit the registers of a work-group
# Patches are searched again after so many iterations.
_SEARCH_AGAIN = 3
# The part of the noise that remains after the first of many iterations.
_FIRST_REMAINING = 0.75


@dataclass(frozen=True)
class RidgeSettings:
    """How groups of patches of an image, or cubes of a `volume`, are combined.

    Patches have `sides`, references lie `steps` apart, and are matched in `windows`, all along z, y
    and x. Of several `iterations` each removes a part of the noise. The first search is in the
    noisy image if `from_noisy`, else in the result of the filter before; others are in the partly
    filtered image.
    """

    sides: tuple[int, ...]
    steps: tuple[int, ...]
    windows: tuple[int, ...]
    iterations: int
    from_noisy: bool
    volume: bool = False
    neighbours: int = NEIGHBOURS

    @classmethod
    def of_image(cls, iterations: int, search: SearchSettings | VideoSearch) -> RidgeSettings:
        """Return the settings for an image, in which chains search what is combined."""
        sides, steps, windows = ((1, n, n) for n in (search.patch, search.step, search.window))
        chain = iterations > 1
        return cls(sides, steps, windows, iterations, chain, neighbours=search.neighbours)

    @property
    def reach(self) -> tuple[int, ...]:
        """Reach of all iterations along z, y, x: to a reference and on to its matches, in each."""
        return tuple(
            self.iterations * (2 * (window // 2) + side - 1)
            for window, side in zip(self.windows, self.sides, strict=True)
        )

    @property
    def operations_per_pixel(self) -> float:
        """Those of the searches and combinations."""
        pixels, neighbours = math.prod(self.sides), self.neighbours
        searched = 2.0 * pixels * math.prod(self.windows) * -(-self.iterations // _SEARCH_AGAIN)
        combined = 2.0 * neighbours**2 * (2 * pixels + neighbours) * self.iterations
        return (searched + combined) / math.prod(self.steps)


@dataclass(frozen=True)
class VideoRidgeSettings:
    """One of several `iterations` over a video, by its number; see `RidgeSettings`."""

    search: VideoSearch
    number: int
    iterations: int

    @property
    def reach(self) -> int:
        """Reach in pixels: to a reference patch, and from there to its matches."""
        return self.search.window - 1 + self.search.patch - 1 + self.search.beyond

    @property
    def remaining(self) -> float:
        """Part of the noise that remains after this iteration."""
        return remaining_after(self.number, self.iterations)

    @property
    def operations_per_pixel(self) -> tuple[float, float]:
        """Operations of the search, and of the combinations."""
        search = self.search
        pixels, neighbours, references = search.patch**2, search.neighbours, search.step**2
        combined = 2.0 * neighbours**2 * (2 * pixels + neighbours)
        return 2.0 * search.candidates * pixels / references, combined / references


def remaining_after(number: int, iterations: int) -> float:
    """Return the part of the noise that remains after an iteration, from number 0 on."""
    return _FIRST_REMAINING * (1 - (number + 1) / iterations)


def choose_combination(one: RidgeSettings, device: Device) -> Variant:
    """Choose the kernel that combines groups: a CPU takes blocks of them, a GPU a team for each."""
    if device.float_lanes >= 4 or device.max_group < one.neighbours:
        blocks = block_constants(one.windows, one.sides, one.steps)
        return Variant("combine_lanes", {"LANES": max(device.lanes, 4), **blocks})
    pixels = math.prod(one.sides)
    # Rows of 32 banks would all begin in the same one.
    return Variant("combine_groups", {"LINE": pixels if pixels % 32 else pixels + 4})


class RidgeKernels:
    """Kernels of ridge combinations on one device; belongs to one thread.

    Sums are of so many numbers as `added` says, and a patch is matched at most `matched` times.
    """

    def __init__(
        self,
        one: RidgeSettings,
        arena: Arena,
        added: int,
        matched: int,
        **constants: int,
    ):
        self.arena, self._team = arena, one.neighbours
        self.variant = choose_combination(one, arena.device)
        self._sides = {f"P{axis}": side for axis, side in zip("ZYX", one.sides, strict=True)}
        self._constants = {
            **self._sides,
            **{f"STEP_{axis}": step for axis, step in zip("ZYX", one.steps, strict=True)},
            "NEIGHBOURS": one.neighbours,
            "CHAIN": int(one.iterations > 1),
            **constants,
            **self.variant.constants,
        }
        self._joining, self._adding = sum_arguments(added, matched)

    def _combination(self, kept: bool, is_map: bool):
        """Return the kernel that combines groups; `kept` if a part of the noise remains."""
        more = {"KEPT": int(kept), "SIGMA_MAP": int(is_map)}
        return self.arena.kernel(f"ridge/{self.variant.kernel}", {**self._constants, **more})

    def _join(self, kept: bool):
        more = {"KEPT": int(kept), "VIDEO": self._constants["VIDEO"]}
        return self.arena.kernel("ridge/join_combined", {**self._sides, **more})

    def _combine(
        self, run: Launcher, kernel: Any, counts: Sequence[int], volumes: int, **arguments: Any
    ) -> None:
        """Enqueue the combinations of `counts` references along z or t, y and x of each volume."""
        of = self._constants, counts, volumes, self._team, bool(self._constants["VIDEO"])
        over_groups(run, ("combine", kernel), *of, **arguments)


# Kernel arguments: where a result begins and its shape; the same of the image that it is put in.
_MADE = "top_z", "top", "left", "made_z", "made_y", "made_x"
_OUT = "out_z", "out_y", "out_x", "out_nz", "out_ny", "out_nx"


class RidgeFilter(RidgeKernels):
    """Ridge combinations of images or volumes.

    A `region` is what there is of an image, as a tile that yields it; all iterations work on it. At
    its ends groups are not complete, and each iteration spoils as much as it reaches. `search` is a
    `PatchSearch`, or like one.
    """

    def __init__(self, one: RidgeSettings, search: Any, arena: Arena):
        self.settings, self.search = one, search
        lengths = list(zip(one.sides, one.steps, one.windows, strict=True))
        around = math.prod((width + side - 2) // step + 2 for side, step, width in lengths)
        super().__init__(
            *(one, arena, around * min(math.prod(one.sides), one.neighbours)),
            math.prod((width - 1) // step + 2 for _, step, width in lengths),
            VIDEO=0,
            **search.offsets.index_bits,
        )

    def buffers(self, region: Tile) -> Sizes:
        """Return the buffers for a region, those of the search included."""
        kinds = 1 + (self.settings.iterations > 1)
        sums = 4 * kinds * region.channels * math.prod(region.shape)
        more = {"combined": sums, "combined weights": sums}
        return {**self.search.buffers(self._inner(region)), **more}

    def enqueue(
        self,
        run: Launcher,
        region: Tile,
        images: tuple,
        guide: Callable[[Any], Pixels],
        noise: dict[str, Any],
        variation: dict[str, Any],
        tile: Tile,
        out,
    ) -> None:
        """Enqueue all iterations over what there is of each image, to yield a tile.

        `images` are buffers of the noisy image, the estimate, and what is combined; the last two
        are changed. `guide` returns what is searched in place of an image. `noise` and `variation`
        are kernel arguments: sigma of the slices, how many there are, and the first; and a map that
        it is multiplied by, if there is one. `out` is float32 of the shape of `tile`.
        """
        held, total = run.held, self.settings.iterations
        volumes, *shape = _volumes(region, self.settings.volume)
        sums, weights = held["combined"], held["combined weights"]
        noisy, estimate, begun = images
        added = {"estimate": estimate, "begun": begun, "sums": sums, "weights": weights, **noise}
        added |= dict(zip(("nz", "ny", "nx"), shape, strict=True))
        for m in range(total):
            remaining = remaining_after(m, total)
            if m % _SEARCH_AGAIN == 0:
                from_begun = m > 0 or self.settings.from_noisy
                searched = guide(begun if from_begun else estimate)
                grids, *found = self.search.find(run, self._inner(searched.tile), searched)
            for buffer in (sums, weights):
                run.clear(buffer, 4 * (1 + (remaining > 0)) * volumes * math.prod(shape))
            kernel = self._combination(remaining > 0, bool(variation))
            matched, keys = found
            arguments = {
                **{"noisy": noisy, **added, **variation, "least": remaining, **self._adding},
                **grid_arguments(grids[1], grids[2], grids[0]),
                **{"matched": matched, "offsets": self.search.offsets.table, "keys": keys},
            }
            self._combine(run, kernel, [grid.count for grid in grids], volumes, **arguments)
            last = m == total - 1
            made = tile if last else self._inner(region)
            into, place = ((out, out), tile) if last else ((estimate, begun), region)
            _, nz, ny, nx = _volumes(made, self.settings.volume)
            _, *whole = _volumes(place, self.settings.volume)
            run.over_pixels(
                *("join", self._join(remaining > 0), nx, ny, volumes * nz),
                **{**added, **self._joining, "out": into[0], "kept": into[1]},
                **dict(zip(_MADE, (*_shifts(made, region), nz, ny, nx), strict=True)),
                **dict(zip(_OUT, (*_shifts(place, region), *whole), strict=True)),
            )

    def _inner(self, region: Tile) -> Tile:
        """Return what is combined of a region: what patches cover that lie in it."""

        def inner(span: Span, side: int) -> Span:
            start = span.start + (side - 1) * (span.start > 0)
            stop = span.stop - (side - 1) * (span.stop < span.length)
            return replace(span, start=start, stop=stop)

        pairs = zip((region.z, region.y, region.x), self.settings.sides, strict=True)
        z, y, x = (inner(*pair) for pair in pairs)
        return restrict_to(replace(region, z=z, y=y, x=x), region)


class VideoRidge(RidgeKernels):
    """One iteration of ridge combinations of the frames of a video, as one of its passes."""

    def __init__(self, one: VideoRidgeSettings, arena: Arena):
        self.settings = one
        self.search = PredictiveSearch(one.search, arena)
        added, matched = (one.search.covering(width) for width in (one.search.patch, 1))
        each = RidgeSettings.of_image(one.iterations, one.search)
        super().__init__(each, arena, added, matched, VIDEO=1, INDEX_BITS=0)
        self.kept = one.remaining > 0
        self.sum_bytes = 8 * (1 + self.kept)

    def given(self, searched: str, begun: str) -> tuple[str, ...]:
        """Return the names of the images it takes; see `VideoPass.given`."""
        return "noisy", searched, begun

    def filter_groups(
        self,
        run: Launcher,
        images: tuple,
        frames: ReferenceFrames,
        channels: int,
        links: tuple,
        sums,
        variation: Any = None,
        first_spectrum: int = 0,
    ) -> None:
        """Enqueue the combination of the groups of some frames; see `VideoPass.filter_groups`.

        `images` are the rings of the noisy frames, of the estimate, and of what is combined.
        """
        shape, search, count = frames.shape, self.settings.search, frames.count
        rows, columns = frames.grid
        before, after = search.frames
        arguments = {
            **dict(zip(("noisy", "estimate", "begun"), images, strict=True)),
            **{"ny": shape.pny, "nx": shape.pitch, "y0": shape.margin, "x0": shape.margin},
            **{**grid_arguments(rows, columns), **frames.slots},
            **{"frames_before": before, "frames_after": after, "earliest": -search.late},
            **{"matched": count, "links": links[0]},
            **{"codes": run.held["places"], "keys": run.held["keys"]},
            **{**shape.map_arguments(variation), "least": self.settings.remaining},
            **{**self._adding, "sums": sums},
        }
        kernel = self._combination(self.kept, variation is not None)
        self._combine(run, kernel, (count, rows.count, columns.count), channels, **arguments)

    def join(
        self, run: Launcher, images, frames: RingFrames, channels: int, sums, levels, region, made
    ) -> None:
        """Enqueue the estimate of a region of some frames; see `VideoPass.join`.

        `made` are the results: the estimate, and what is combined next.
        """
        _, estimate, begun = images
        top, left, ny, nx = region
        shape, count = frames.shape, frames.count
        top, left = shape.margin + top, shape.margin + left
        run.over_pixels(
            *("join", self._join(self.kept), nx, ny, channels * count),
            **{"estimate": estimate, "begun": begun, "sums": sums, "levels": levels},
            **{"ny": shape.pny, "nx": shape.pitch, **frames.slots, "frames": count},
            **{**self._joining, "top_z": 0, "top": top, "left": left},
            **{"made_z": 1, "made_y": ny, "made_x": nx, "out": made[0], "kept": made[-1]},
            **{"out_z": 0, "out_y": top, "out_x": left, "out_nz": 1, "out_ny": ny, "out_nx": nx},
        )


class RidgePlan(TilePlan):
    """Runs ridge combinations after another plan, tile by tile; belongs to one thread.

    `mix` is given where channels share matches.
    """

    def __init__(
        self, first: TilePlan, one: RidgeSettings, search: Any, mix: ChannelMix | None = None
    ):
        self.arena, self._first = first.arena, first
        self._ridge = RidgeFilter(one, search, first.arena)
        self._mix = mix or ChannelMix("separate", first.arena)

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile; the combinations reuse those of the first plan."""
        region = self._region(tile)
        image = region.nbytes
        own = {"first result": image, "noisy region": image, "partly filtered": image}
        sizes = [self._first.buffers(region, is_map), self._ridge.buffers(self._as_frames(region))]
        sizes.append(self._mix.buffers(including_margins(tile)))
        sizes.append(self._mix.guide_buffers(region, "combined"))
        return {**together(*sizes), **own}

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue both for one tile."""
        run = Launcher(self.arena, queue, self.hold(tile, sigma.variation is not None))
        region, whole, held = self._region(tile), including_margins(tile), run.held
        first, mix = held["first result"], self._mix
        run.launches += self._first.enqueue(queue, region, source, first, sigma)
        noisy = mix.begin(run, Noisy(Pixels(source, whole), sigma.levels))
        shapes = [(tile.channels * tile.t.size, *one.shape[1:]) for one in (whole, region)]
        corner = 0, *_shifts(whole, region)
        for name in ("noisy region", "partly filtered"):
            run.pad(noisy.pixels.buffer, shapes[0], held[name], shapes[1], corner)
        estimate = mix.begin(run, Noisy(Pixels(first, region), sigma.levels)).pixels.buffer

        def guide(image) -> Pixels:
            given = replace(noisy, pixels=Pixels(image, self._as_frames(region)))
            return mix.guide(run, given, "combined").pixels

        noise = {"levels": noisy.levels, "slices": 1, "first_slice": 0}
        if self._ridge.settings.volume:
            noise = {"levels": sigma.read_levels, "slices": whole.z.size}
            noise["first_slice"] = region.z.start - whole.z.start
        variation = map_arguments(Pixels(sigma.variation, whole), region.y.start, region.x.start)
        images = held["noisy region"], estimate, held["partly filtered"]
        with run.named("ridge"):
            self._ridge.enqueue(
                *(run, self._as_frames(region), images, guide, noise, variation),
                *(self._as_frames(tile), first if mix.opponent else out),
            )
        mix.end(run, Noisy(Pixels(first, tile), noisy.levels), out)
        return run.launches

    def _region(self, tile: Tile) -> Tile:
        """Return what the first plan yields: a tile and all that the iterations reach around it."""
        return spread(tile, self._ridge.settings.reach)

    def _as_frames(self, tile: Tile) -> Tile:
        """Return a tile of images with separate channels as one that has these as frames."""
        if self._mix.joined or self._ridge.settings.volume or tile.channels == 1:
            return tile
        return channels_as_frames(tile)


def _volumes(tile: Tile, deep: bool) -> tuple[int, int, int, int]:
    """Return how many volumes a tile yields, and their shape; images are volumes of one slice."""
    nt, nz, ny, nx = tile.shape
    return (tile.channels * nt, nz, ny, nx) if deep else (tile.channels * nt * nz, 1, ny, nx)


def _shifts(tile: Tile, other: Tile) -> tuple[int, int, int]:
    """Return how far what a tile yields lies behind what another does, along z, y and x."""
    return tuple(getattr(tile, axis).start - getattr(other, axis).start for axis in "zyx")
