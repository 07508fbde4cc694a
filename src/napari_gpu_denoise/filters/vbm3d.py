"""VBM3D: BM3D for videos, with groups of patches that follow motion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.filters.bm3d import groups
from napari_gpu_denoise.filters.bm3d.plan import GroupKernels, yields_of_passes
from napari_gpu_denoise.filters.channels import ChannelMix, channels_setting
from napari_gpu_denoise.filters.pixels import Launcher, Noisy, Pixels, including_margins, spread
from napari_gpu_denoise.filters.ridge import NEIGHBOURS, VideoRidge, VideoRidgeSettings
from napari_gpu_denoise.filters.search.frame_links import (
    FrameLinks,
    FrameSearch,
    frames_setting,
    guide_levels,
)
from napari_gpu_denoise.filters.search.likeness import FOUND, Likeness, compared
from napari_gpu_denoise.filters.search.patch_search import Grid, Variant, grid_arguments
from napari_gpu_denoise.filters.search.video_search import (
    BLOCK,
    BlockMotion,
    PredictiveSearch,
    ReferenceFrames,
    RingFrames,
    RingShape,
    VideoSearch,
    margin_of,
)
from napari_gpu_denoise.filters.sums import LARGEST_SIGMAS, blocks_in_turns
from napari_gpu_denoise.image.axes import UNNAMED
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.protocol.plan import FrameNote, FramePlan, Launches, Sizes, together
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach, Span, Tile
from napari_gpu_denoise.run.denoise import filter_function


def choose_video_group_variant(
    settings: groups.GroupSettings[VideoSearch], device: Device
) -> Variant:
    """Choose the kernel: whole groups as vectors on a CPU, a team of work-items a group on a GPU.

    On a CPU work-groups are so wide that every second one shares no pixel with the next.
    """
    search = settings.search
    if device.float_lanes >= 4:
        side = -(-(2 * search.furthest + groups.PATCH) // search.step)
        return Variant("shrink_lanes", {"GROUP_X": side, "GROUP_Y": side})
    neighbours = search.neighbours
    # A Wiener filter holds two spectra: fewer patches per item leave registers for more items, of
    # which each holds at least a quarter of a group.
    depth = max(2, min(neighbours, 8) // (4 if settings.wiener else 2), neighbours // 4)
    if neighbours == 1 or (neighbours <= 8 and (settings.kalman or not settings.wiener)):
        depth = neighbours
    teams = max(1, min(128, device.max_group) * depth // (8 * neighbours))
    # Nothing else is in local memory: there is room for whole stacks.
    fits = 256 * teams * (neighbours + 4) <= min(device.local_memory, 32768)
    wide = fits and depth in (2, 4) and neighbours > depth
    return groups.team_variant(device, (min(teams, 4), max(1, teams // 4)), depth, teams, wide=wide)


class VideoPass(GroupKernels[VideoSearch]):
    """Kernels of one pass, whose search is a `VideoSearch`.

    Its sums take `sum_bytes` a pixel, and nothing of the noise is `kept` to be combined.
    """

    sum_bytes = 8
    kept = False

    def __init__(self, settings: groups.GroupSettings[VideoSearch], arena: Arena):
        variant = choose_video_group_variant(settings, arena.device)
        search = settings.search
        sums = search.covering(groups.PATCH), search.covering(1), LARGEST_SIGMAS
        super().__init__(settings, arena, variant, sums, video=True, INDEX_BITS=0)
        self.search = PredictiveSearch(search, arena)

    def given(self, searched: str, begun: str) -> tuple[str, ...]:
        """Return the names of the images it takes, of what is searched, and of what is combined."""
        return ("noisy", searched) if self.settings.wiener else ("noisy",)

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
        """Enqueue the filtering of the groups of some frames, which adds to the ring `sums`.

        `images` are the rings of the noisy frames and, for a Wiener filter, of the basic estimate;
        `links` are the tables of the channels and of the guide. `variation` is a map of the shape
        of a frame that multiplies the noise; `first_spectrum` is the index of that of the first
        channel.
        """
        settings, shape, count = self.settings, frames.shape, frames.count
        search, constants = settings.search, self.variant.constants
        rows, columns = frames.grid
        across = -(-columns.count // constants["GROUP_X"])
        down = -(-rows.count // constants["GROUP_Y"])
        earlier, later = search.frames
        levels, matched_levels = links
        arguments = {
            **dict(zip(("noisy", "basic"), images, strict=False)),
            **{**shape.layout, **grid_arguments(rows, columns), "groups_x": across},
            **{**frames.slots, "frames_before": earlier, "frames_after": later},
            **{"earliest": -search.late, "keys": run.held["keys"]},
            "codes_found": run.held["places"],
            **{"matched": count, "levels": levels, "matched_levels": matched_levels},
            **{**shape.map_arguments(variation), **self._shrinkage(), "slabs": sums},
            **self._spectra(first_spectrum, count * (1 if len(settings.spectra) > 1 else channels)),
        }
        kernel = self._shrink(variation is not None)
        if self.variant.kernel == "shrink_shared":
            teams = constants["TEAMS"]
            team = 8 * search.neighbours // constants["DEPTH"]
            over = (team, teams * across * down, channels * count)
            run.run("shrink", kernel, over, (team, teams, 1), **arguments)
            return
        for frame in range(count):
            for (y, x), (high, wide) in blocks_in_turns((down, across), (1, 1)):
                turn = {"only": frame, "parity_y": y, "parity_x": x}
                run.run("shrink", kernel, (wide, high, channels), (1, 1, 1), **arguments, **turn)

    def join(
        self, run: Launcher, images, frames: RingFrames, channels: int, sums, levels, region, made
    ) -> None:
        """Enqueue the estimate of a region (top, left, ny, nx) of some frames from their sums.

        `levels`, the noise of these frames, is float32 of shape (channels, count); `made` has one
        buffer, float32 of shape (channels, count, ny, nx).
        """
        top, left, ny, nx = region
        count, (out,) = frames.count, made
        run.run(
            *("join", self._join, *self._join_grid(ny, nx, channels * count)),
            **{"noisy": images[0], **frames.shape.layout, **frames.slots, "frames": count},
            **{"slabs": sums, "levels": levels, "kaiser": self._kaiser, **self._joining},
            **{"top": top, "left": left, "ny": ny, "nx": nx, "out": out},
        )


@dataclass
class _Progress:
    """What a pass must yield for the next one, and the times of the frames it has reached."""

    yields: Tile
    grid: tuple[Grid, Grid]  # references along Y and X
    filtered: int  # next frame whose references are filtered
    joined: int  # next frame whose estimate is made from its sums
    cleared: int  # next frame whose sums are set to 0


class Plan(FramePlan):
    """Kernels and buffers of VBM3D on one device; belongs to one thread.

    Rings hold the noisy frames and their estimates, and for each pass the sums of what its
    groups take away. Every frame is searched and filtered once in each pass, whatever the batches.
    Passes are in order, by name: ``"basic"``, ``"kalman"``, ``"final"``.
    """

    def __init__(self, settings: VBM3D, arena: Arena):
        self.arena, passes = arena, settings.passes
        self.passes = {
            name: VideoRidge(one, arena)
            if isinstance(one, VideoRidgeSettings)
            else VideoPass(one, arena)
            for name, one in passes.items()
        }
        self._last = list(self.passes)[-1]
        # What each pass searches, and is guided by: the estimate of the pass before.
        self._searched = dict(zip(self.passes, ("noisy", *self.passes), strict=False))
        # What is combined after those that keep a part of the noise.
        kept = [name for name, one in self.passes.items() if one.kept]
        self._begun = {name: f"{name} kept" for name in kept}
        self._motion = None
        search = passes[self._last].search
        self._before, self._after = search.frames
        if any(search.frames):
            self._motion = BlockMotion(search.nearest, search.frames, arena)
        self._late = search.late
        self.ahead = len(passes) * (self._late + self._after)
        self._margin = max(margin_of(one.search) for one in passes.values())
        self._mixtures = settings.mixtures
        self._mix = ChannelMix(settings.channels, arena, mixtures=self._mixtures)
        self._separate = not self._mix.joined and len(settings.spectral) > 1

    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the rings, the tables of frames, and what the passes need for `batch` frames."""
        channels, span = tile.channels, self._before + 1 + self._after
        passes, yields = list(self.passes), yields_of_passes(self.passes, tile)
        shape, searched = self._shape(tile, batch), self._searched.values()
        images = {name: 4 * channels for name in (*searched, *self._begun.values())}
        if self._mix.averages:
            images |= {f"{name} guide": 4 for name in searched}
        plane = shape.images * shape.plane
        sizes = [{f"{name} ring": each * plane for name, each in images.items()}]
        plane = channels * shape.sums * shape.plane
        sizes.append({f"{name} sums": one.sum_bytes * plane for name, one in self.passes.items()})
        if self._motion is not None:
            sizes += [self._motion.buffers(shape), {"motion links": 12 * (batch + 1) * span}]
        for name in passes:
            one, made = self.passes[name], yields[name]
            # The last batch also yields the frames that waited for references of later frames.
            joined = batch if name == self._last else batch + self._late
            tables = {"links": 12 * channels * batch * span, "levels": 4 * channels * joined}
            if self._mix.joined:
                tables["guide links"] = 12 * batch * span
            pixels = 4 * channels * joined * made.y.size * made.x.size
            if name != self._last or self._mix.opponent:
                tables["estimate"] = pixels
            if name in self._begun:
                tables["kept"] = pixels
            sizes += [
                one.search.buffers(batch, references(one.settings.search, made)),
                {f"{name} {what}": nbytes for what, nbytes in tables.items()},
            ]
        if self._mix.joined:
            whole = replace(including_margins(tile), t=Span.whole(batch))
            waited = batch + self._late
            sizes += [{"weights of channels": 4 * channels * waited}, self._mix.buffers(whole)]
            sizes.append(self._mix.guide_buffers(whole, "noisy"))
            for name in passes[:-1]:
                made = replace(yields[name], t=Span.whole(waited))
                sizes.append(self._mix.guide_buffers(made, name))
        return together(*sizes)

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any = None) -> None:
        before, after = self._before, self._after
        self._tile, self._batch, self._variation = tile, batch, variation
        self._held = self.hold(tile, batch, variation is not None)
        self._rings = self._shape(tile, batch)
        self._known = first
        self._progress: dict[str, _Progress] = {}
        self._motions: dict[str, Any] = {}
        yields, time = yields_of_passes(self.passes, tile), start
        for name, one in reversed(self.passes.items()):
            filtered = max(time - after, first)
            self._progress[name] = _Progress(
                yields[name],
                references(one.settings.search, yields[name]),
                filtered,
                joined=max(time, first),
                cleared=max(filtered - self._late, first),
            )
            time -= after + before
        self._spectrum = 0
        matrix, strengths = np.eye(tile.channels), ()
        if self._mix.opponent:
            matrix, strengths = self._mixtures.matrix, self._mixtures.strengths
        guide, weighted = matrix[0], False
        if self._mix.joined:
            guide, weighted = self._mix.guide_row(tile.channels)
        self._links = FrameLinks((before, after), matrix, guide, weighted, strengths=strengths)

    def _shape(self, tile: Tile, batch: int) -> RingShape:
        """Return rings for all frames that the references of a batch add to and are matched in."""
        each = self._late + self._after
        # The last pass takes noisy frames too, and lags by what each pass before waits for.
        images = batch + (len(self.passes) - 1) * each + self._after + self._before
        shift = tile.y.source_start % BLOCK, tile.x.source_start % BLOCK
        return RingShape(images, batch + each, self._margin, *tile.source_shape[2:], shift)

    def compare(self, first: int, notes: list[FrameNote]) -> None:
        """Compare the brightness of the next frames with that of those before them."""
        self._links.add(first, *notes)

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Enqueue the storing of the next frames, and the filtering they allow."""
        first, count = self._known, len(notes)
        run = Launcher(self.arena, queue, self._held)
        for note in notes:
            # Channels that are filtered separately are videos of one channel each.
            if self._separate:
                self._spectrum = int(note.models[0])
        pixels = Pixels(frames, replace(including_margins(self._tile), t=Span.whole(count)))
        noisy = Noisy(pixels, self._weights(run, [note.sigma for note in notes]))
        noisy = self._mix.begin(run, noisy)
        self._keep(run, "noisy", noisy, first)
        self._known += count
        self._measure_motion(run, first - 1, count)
        self._advance(run, None)
        return run.launches

    def _measure_motion(self, run: Launcher, first: int, count: int) -> None:
        """Measure how blocks move from the frame of time `first` to the next `count`, and back."""
        if self._motion is None:
            return
        _, links = self._links.links(first, count + 1, repeated=1.0)
        sent = run.send(links, "motion links")
        with run.named("motion"):
            frames = RingFrames(self._rings, first, count)
            self._motions = self._motion.enqueue(run, self._guide("noisy"), frames, sent)

    def _guide(self, name: str):
        """Return the ring that is searched in place of the one of images: (images, pny, pitch)."""
        return self._held[f"{name} guide ring" if self._mix.averages else f"{name} ring"]

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        run = Launcher(self.arena, queue, self._held)
        if ended:
            self._advance(run, start + count + self._late)
        self._join(run, self._last, start + count, out)
        oldest = self._progress[self._last].filtered - self._before - 1
        self._links.forget(min(oldest, start) - 1)
        return run.launches

    def _advance(self, run: Launcher, limit: int | None) -> None:
        """Filter all that can be; a limit is not exceeded, and means that no more frames come."""
        ended, have = limit is not None, self._known
        for name in self.passes:
            at = self._progress[name]
            complete = ended and have == self._known
            stop = have if complete else have - self._after
            if name == self._last:
                stop = stop if limit is None else min(stop, limit)
            while at.filtered < stop:
                self._filter_some(run, name, stop)
                if name != self._last:
                    done = at.filtered
                    ready = done if ended and done == self._known else done - self._late
                    self._join(run, name, ready, None)
            have = at.joined

    def _filter_some(self, run: Launcher, name: str, last: int) -> None:
        """Filter the groups of the next batch of frames before `last`."""
        one, at, channels = self.passes[name], self._progress[name], self._tile.channels
        first, sums = at.filtered, self._held[f"{name} sums"]
        count = min(self._batch, last - first)
        # Clear the sums of frames that are reached for the first time.
        reached = max(at.cleared, first + count + self._after)
        self._rings.clear(run, sums, channels, one.sum_bytes, range(at.cleared, reached))
        at.cleared = reached
        links, guide_links = self._links.links(first, count, repeated=-1.0)
        sent = searched_links = run.send(links, f"{name} links")
        if self._mix.joined:
            searched_links = run.send(guide_links, f"{name} guide links")
        guide = self._guide(self._searched[name])
        frames = ReferenceFrames(self._rings, first, count, at.grid)
        with run.named(name):
            one.search.enqueue(run, guide, frames, searched_links, self._motions)
            one.filter_groups(
                *(run, self._given(name), frames, channels),
                *((sent, searched_links), sums, self._variation, self._spectrum),
            )
        at.filtered = first + count

    def _given(self, name: str) -> tuple:
        """Return the rings of images that a pass is given."""
        searched = self._searched[name]
        names = self.passes[name].given(searched, self._begun.get(searched, "noisy"))
        return tuple(self._held[f"{one} ring"] for one in names)

    def _join(self, run: Launcher, name: str, stop: int, out) -> None:
        """Make the estimate of the frames before `stop`, and store it for the next pass."""
        at, source = self._progress[name], self._tile
        yields, first = at.yields, at.joined
        count = stop - first
        if count <= 0:
            return
        region = (
            yields.y.start - source.y.source_start,
            yields.x.start - source.x.source_start,
            yields.y.size,
            yields.x.size,
        )
        levels = run.send(self._links.levels(first, count), f"{name} levels")
        mixed_back = out is not None and self._mix.opponent
        made = run.held[f"{name} estimate"] if out is None or mixed_back else out
        both = made, *([run.held[f"{name} kept"]] if name in self._begun else [])
        with run.named(name):
            self.passes[name].join(
                *(run, self._given(name), RingFrames(self._rings, first, count)),
                *(source.channels, self._held[f"{name} sums"], levels, region, both),
            )
        held = replace(yields, t=Span.whole(count))
        for buffer in both[1:]:
            ring = self._held[f"{self._begun[name]} ring"]
            self._rings.store(run, ring, Pixels(buffer, held), first, source)
        if mixed_back:
            self._mix.end(run, Noisy(Pixels(made, held), levels), out)
        elif out is None:
            weights = self._weights(run, self._links.levels(first, count).T)
            self._keep(run, name, Noisy(Pixels(made, held), weights), first)
        at.joined = stop

    def _keep(self, run: Launcher, name: str, image: Noisy, first: int) -> None:
        """Store frames in their ring, and the guide that is searched in place of them."""
        self._rings.store(run, self._held[f"{name} ring"], image.pixels, first, self._tile)
        if self._mix.averages:
            guide = self._mix.guide(run, image, name)
            self._rings.store(run, self._guide(name), guide.pixels, first, self._tile)

    def _weights(self, run: Launcher, sigmas):
        """Return what channels are divided by in the guide, frame by frame."""
        if not self._mix.joined:
            return None
        weights = np.array([guide_levels(sigma) for sigma in sigmas]).T
        return run.send(weights, "weights of channels")


def references(search: VideoSearch, tile: Tile) -> tuple[Grid, Grid]:
    """Return the references along Y and X that the output of a tile depends on."""
    wide = spread(tile, search.furthest)
    y, x = (Grid.of(span, search.patch, search.step) for span in (wide.y, wide.x))
    return y, x


# Without later frames only its own references estimate a frame: more of them are needed.
_STEP, _STEP_ALONE = 4, 2
_RIDGE_WINDOW, _RIDGE_NEXT = 21, 5  # of the search for combinations
_KALMAN_WINDOW = 5  # wider: it searches estimates, in which noise misleads less
# Windows in the frame of the reference and in others; patches kept of each frame.
_WINDOW, _WINDOW_NEXT, _KEPT = 3, 3, 2
# Subtracted from the mean squared difference of a patch that has not moved, in sigma squared.
_STILL = {"basic": 0.12, "final": 0.02}
# Windows in adjacent frames: the narrowest that finds the motion, the first if that is not known.
_NEAREST = 15, 19, 23, 31, 39
_FASTER = 1  # pixel a frame by which some structures move further than most
_FASTEST = 20  # pixels a frame that are followed in the widest one


def nearest_window(alike: Likeness) -> int:
    """Return the width to search in adjacent frames; 0 if structures move too fast for any."""
    if not (alike.found >= FOUND and alike.moved > 0):
        return _NEAREST[0]
    if alike.moved > _FASTEST:
        return 0
    return next((n for n in _NEAREST if n // 2 >= alike.moved + _FASTER), _NEAREST[-1])


def _step(of: str):
    help = (
        f"Spacing of reference patches {of} (1 is slowest and best); 0 chooses {_STEP}, or "
        f"{_STEP_ALONE} without later frames"
    )
    return setting(0, help, bounds=(0, groups.PATCH), unit="pixels", advanced=True)


def _common(default: float, what: str, of: str):
    help = f"{what} for the part that the patches of a group have in common, {of}"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma", advanced=True)


@dataclass(frozen=True)
class VBM3D(FrameSearch, groups.CollaborativeFilter):
    """Settings of VBM3D.

    Patches are followed from frame to frame, forward and backward, and filtered together: by hard
    thresholding in the first pass, by a Wiener filter based on the first result in the second.
    """

    name: ClassVar[str] = "vbm3d"
    title: ClassVar[str] = "VBM3D"
    summary: ClassVar[str] = "BM3D for time-lapses: follows motion, best quality over time"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fast": {"step_basic": 8, "step_final": 6, "frames_before": 2, "frames_after": 2},
        "high": {"step_basic": 3, "step_final": 2},
        "live": {
            **{"frames_before": 6, "frames_after": 0, "window_nearest": 19},
            **{"threshold": 3.0, "threshold_common": 2.2, "wiener_common": 0.8},
        },
        "best": {"refine": "chain"},
    }

    similar_basic: ClassVar[float] = 5.0
    similar_final: ClassVar[float] = 2.0
    kaiser: ClassVar[float] = 1.0
    frames_before: int = frames_setting(4, "Earlier frames to search")
    frames_after: int = frames_setting(4, "Later frames to search; 0 filters without delay")
    threshold: float = groups.threshold(3.4)
    threshold_common: float = _common(1.8, "Hard threshold", groups.BASIC)
    wiener_sigma: float = groups.wiener_sigma(1.2)
    wiener_common: float = _common(0.7, "Noise level assumed by the Wiener filter", groups.FINAL)
    channels: str = channels_setting("with shared patch matches")
    refine: str = groups.refine()
    window_nearest: int = setting(
        0,
        "Search window width in adjacent frames (odd), to follow motion; 0 chooses "
        f"{_NEAREST[0]}, or more where structures move fast",
        bounds=(0, 39),
        unit="pixels",
        advanced=True,
        odd=True,
    )
    step_basic: int = _step(groups.BASIC)
    step_final: int = _step(groups.FINAL)
    neighbours_basic: int = groups.neighbours(8, groups.BASIC)
    neighbours_final: int = groups.neighbours(8, groups.FINAL)

    @property
    def over_time(self) -> bool:
        return True

    @property
    def shared_noise(self) -> bool:
        """Only of correlated noise: patches of a frame share far more of it than of white."""
        return bool(self.spectral)

    def unrefined(self, noise: Sequence[NoiseModel]) -> str:
        """Why results are not refined: frames on one side only have gained little or nothing."""
        both = self.frames_before and self.frames_after
        alone = "" if both else "earlier and later frames are not both used"
        return super().unrefined(noise) or alone

    @property
    def joint(self) -> str:
        """Time, and channels that share matches."""
        return super().joint + "T"

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array, with a search as wide as motion asks for.

        Refuses an array with an unnamed axis that may be time.
        """
        fitting, names, shape = super().prepare(context), context.names, context.shape
        unnamed = [n for a, n in zip(names, shape, strict=True) if a == UNNAMED and n > 1]
        if "T" not in names and unnamed:
            raise AxesError(
                "VBM3D needs a time axis, but no axis is named T",
                "name the axes, as axes='TYX'",
                code="axis-needed",
                axis="T",
            )
        image, t = context.image, names.find("T")
        if image is not None and t < 0:
            note = "no axis is named T: each plane is filtered by itself"
            return replace(fitting, notes=(*fitting.notes, note))
        searched = max(fitting.frames_before, fitting.frames_after) > 0
        if image is None or fitting.window_nearest or not searched or image.shape[t] < 2:
            return fitting
        alike = compared(PlaneReader(image, names), t)
        width = nearest_window(alike)
        if width == _NEAREST[0]:
            return fitting
        note = f"structures move by about {alike.moved:.0f} pixels a frame"
        if not width:
            note += ", too far to follow: BM3D may be better"
            return replace(fitting, notes=(*fitting.notes, note))
        note += f": they are searched with window_nearest={width}"
        return replace(fitting, window_nearest=width, notes=(*fitting.notes, note))

    @property
    def steps(self) -> dict[str, int]:
        """Spacing of the reference patches in each pass, with 0 replaced by the default."""
        ordinary = _STEP if self.frames_after else _STEP_ALONE
        return {name: getattr(self, f"step_{name}") or ordinary for name in self.stages}

    @cached_property
    def passes(self) -> dict[str, groups.GroupSettings[VideoSearch] | VideoRidgeSettings]:
        """The passes, in order.

        ``"basic"``, ``"kalman"`` where it is of use, ``"final"``; to refine, ``"ridge 1"`` and on.
        """
        passes = {}
        for name in self.stages:
            search = VideoSearch(
                groups.PATCH,
                self.steps[name],
                first=_WINDOW,
                following=_WINDOW_NEXT,
                kept=_KEPT,
                neighbours=getattr(self, f"neighbours_{name}"),
                frames=(self.frames_before, self.frames_after),
                still=_STILL[name],
                nearest=self.window_nearest or _NEAREST[0],
                similar=getattr(self, f"similar_{name}"),
            )
            if name == "final" and self.frames_before and not self.frames_after:
                one_each = replace(search, step=2, kept=1, neighbours=4, following=_KALMAN_WINDOW)
                passes["kalman"] = self._pass(name, one_each, kalman=True, shared_noise=False)
            common = self.threshold_common if name == "basic" else self.wiener_common
            passes[name] = self._pass(name, search, common=common)
        combined, count = {}, self.iterations
        wide = {"first": _RIDGE_WINDOW, "following": _RIDGE_NEXT, "step": 4}
        # Patches of the own frame overlap, and share noise: a part of the group suffices.
        wide |= {"kept": _RIDGE_NEXT**2, "neighbours": NEIGHBOURS, "similar": math.inf}
        for k in range(count):
            combined[f"ridge {k + 1}"] = VideoRidgeSettings(replace(search, **wide), k, count)
        return {**self._with_spectra(passes), **combined}

    @cached_property
    def reach(self) -> Reach:
        """The sum over the passes, in space and time."""
        passes = self.passes.values()
        around = sum(one.reach for one in passes)
        before = len(passes) * (self.frames_before + self.frames_after)
        after = len(passes) * (min(self.frames_before, self.frames_after) + self.frames_after)
        return Reach.of(around, time=(before, after))

    def plan(self, arena: Arena) -> Plan:
        return Plan(self, arena)


@filter_function(VBM3D)
def vbm3d() -> None:
    """Denoise a time-lapse by VBM3D, BM3D whose groups follow motion.

    Parameters
    ----------
    {inputs}
    {profile}
        ``"fast"`` uses two frames before and after, takes 0.6 of the time on a GPU and loses 0.3 to
        2 dB; ``"high"`` takes 2.4 times as long and gains 0.1 to 1.2 dB; ``"live"`` uses only
        earlier frames, so there is no delay, and loses 0.6 dB or more; ``"best"`` refines the
        result of ``"normal"`` in a chain of steps, and gains 0.6 to 1 dB.
    axes : str, optional
        Names of the axes, such as ``"TYX"``, ``"TZYX"`` (every slice is a video of its own),
        ``"TCYX"`` or ``"TYXS"``. Every axis except T, Y and X is independent, except channels (see
        `channels`). Without T, axes without a name are rejected, because one of them may be time.
    {common}

    See Also
    --------
    stream : The same for frames that arrive one by one, with the same result.
    denoise : The same with a record of the run, or for some of the frames.
    bm3d : For single images, volumes, and planes that are not a time series.
    nl_means : Also filters over time; better on speckle in single images.

    Notes
    -----
    In each pass, each of ``ny * nx / step**2`` patches of a frame is compared with about 80 others.
    Filtering takes about ``1600 * neighbours / step**2`` operations per pixel and pass.

    A frame depends on ``2 * (frames_before + frames_after)`` earlier frames and on
    ``2 * (frames_after + min(frames_before, frames_after))`` later ones, 16 and 16 by default:
    the delay of a stream. With ``frames_after=0`` there is none, and ``3 * frames_before`` earlier.

    Changes of brightness of whole frames, by a gain and an offset, are accounted for and kept.
    Constant frames are neither filtered nor used for others. Of identical frames only the nearest
    one is used, because copies contain the same noise. For correlated noise, thresholds and weights
    follow the variance of each coefficient, as in `bm3d`; noise shared by patches of a frame is
    then always accounted for. Repeated runs on one device are bit-identical, and so are parts,
    streams and the whole, for integers of 8 and 16 bits.

    References
    ----------
    K. Dabov, A. Foi and K. Egiazarian, "Video denoising by sparse 3D transform-domain
    collaborative filtering", 15th European Signal Processing Conference, EUSIPCO 2007.

    A. Davy and T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", Journal of Real-Time
    Image Processing 18 (2020), sections 2.3 and 4.2, :doi:`10.1007/s11554-020-00945-4`.

    Examples
    --------
    >>> out = vbm3d(video, sigma=20, axes="TYX")                       # doctest: +SKIP
    >>> out = vbm3d(video, axes="TYXS", profile="fast")                # doctest: +SKIP
    >>> out = vbm3d(cells, sigma=12, axes="TCYX", frames_after=0)      # doctest: +SKIP
    """
