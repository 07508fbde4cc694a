"""The passes of VBM3D over the frames of a video, in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_kernels import made_passes, yields_of_passes
from napari_gpu_denoise.filters.bm3d.group_settings import GroupSettings
from napari_gpu_denoise.filters.channels import JOINED, OPPONENT, ChannelMix
from napari_gpu_denoise.filters.pixels import Noisy, Pixels, including_margins, send_table
from napari_gpu_denoise.filters.search.frame_links import FrameLinks, guide_levels
from napari_gpu_denoise.filters.search.patch_search import Grid
from napari_gpu_denoise.filters.vbm3d.block_motion import BLOCK, BlockMotion
from napari_gpu_denoise.filters.vbm3d.frame_rings import FrameRings, RingShape, ring_buffers
from napari_gpu_denoise.filters.vbm3d.predictive_search import margin_of
from napari_gpu_denoise.filters.vbm3d.video_pass import VideoPass
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import FrameNote, FramePlan, Launches, Sizes, together
from napari_gpu_denoise.protocol.tiles import Span, Tile


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
    Passes are in order, by name: ``"basic"``, ``"kalman"``, ``"final"``. `variants` holds arguments
    of `VideoPass` by pass, for kernels other than those chosen for the device. `strengths` are as
    in `ChannelMix`.
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
        self.passes = made_passes(VideoPass, passes, arena, variants)
        self._last = list(self.passes)[-1]
        # What each pass searches, and is guided by: the estimate of the pass before.
        self._searched = dict(zip(self.passes, ("noisy", *self.passes), strict=False))
        self._motion = None
        search = passes[self._last].search
        self._before, self._after = search.frames
        if search.blocks:
            self._motion = BlockMotion(search.nearest, search.frames, arena)
        self._late = search.late
        self.ahead = len(passes) * (self._late + self._after)
        self._margin = margin_of(search)
        self._opponent = channels == "opponent"
        self._strengths = strengths if self._opponent else None
        self._mix = ChannelMix(self._opponent, guide, arena) if channels in JOINED else None
        self._separate = self._mix is None and len(passes[self._last].spectra) > 1
        # Whether a guide is searched, and not the first of the channels that are filtered.
        self._guided = self._mix is not None and not self._opponent

    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the rings, the tables of frames, and what the passes need for `batch` frames."""
        channels, span = tile.channels, self._before + 1 + self._after
        passes, yields = list(self.passes), yields_of_passes(self.passes, tile)
        images = self._searched.values()
        shape = self._shape(tile, batch)
        sizes = [ring_buffers(shape, channels, images, passes, self._guided)]
        if self._motion is not None:
            sizes += [self._motion.buffers(shape), {"motion links": 12 * (batch + 1) * span}]
        for name in passes:
            one, made = self.passes[name], yields[name]
            # The last batch also yields the frames that waited for references of later frames.
            joined = batch if name == self._last else batch + self._late
            tables = {"links": 12 * channels * batch * span, "levels": 4 * channels * joined}
            if self._mix is not None:
                tables["guide links"] = 12 * batch * span
            if name != self._last or self._opponent:
                tables["estimate"] = 4 * channels * joined * made.y.size * made.x.size
            sizes += [
                one.search.buffers(batch, one.grid(made)),
                {f"{name} {what}": nbytes for what, nbytes in tables.items()},
            ]
        if self._mix is not None:
            whole = replace(including_margins(tile), t=Span.whole(batch))
            waited = batch + self._late * (len(passes) > 1)
            sizes += [
                {"weights of channels": 4 * channels * waited},
                self._mix.buffers(whole),
                self._mix.guide_buffers(whole, "noisy") if self._guided else {},
            ]
            if self._guided:
                for name in passes[:-1]:
                    made = replace(yields[name], t=Span.whole(waited))
                    sizes.append(self._mix.guide_buffers(made, name))
        return together(*sizes)

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any = None) -> None:
        """Prepare for the frames of a video; see `FramePlan.begin`."""
        before, after = self._before, self._after
        self._tile, self._batch, self._variation = tile, batch, variation
        self._held = self.hold(tile, batch, variation is not None)
        self._rings = FrameRings(self.arena, self._shape(tile, batch), tile, self._held)
        self._known = first
        self._progress: dict[str, _Progress] = {}
        self._motions = None
        yields, time = yields_of_passes(self.passes, tile), start
        for name, one in reversed(self.passes.items()):
            filtered = max(time - after, first)
            self._progress[name] = _Progress(
                yields[name],
                one.grid(yields[name]),
                filtered,
                joined=max(time, first),
                cleared=max(filtered - self._late, first),
            )
            time -= after + before
        self._spectrum = 0
        matrix = OPPONENT if self._opponent else np.eye(tile.channels)
        guide, weighted = matrix[0], False
        if self._mix is not None:
            guide, weighted = self._mix.guide_row(tile.channels)
        self._links = FrameLinks(
            (before, after), matrix, guide, weighted, strengths=self._strengths
        )

    def _shape(self, tile: Tile, batch: int) -> RingShape:
        """Return rings for all frames that the references of a batch add to and are matched in."""
        sums = batch + self._late + self._after
        images = sums + self._after + self._before
        shift = tile.y.source_start % BLOCK, tile.x.source_start % BLOCK
        return RingShape(images, sums, self._margin, *tile.source_shape[2:], shift)

    def compare(self, first: int, notes: list[FrameNote]) -> None:
        """Compare the brightness of the next frames with that of those before them."""
        self._links.add(first, *notes)

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Enqueue the storing of the next frames, and the filtering they allow."""
        first, count = self._known, len(notes)
        launches: Launches = []
        for note in notes:
            # Channels that are filtered separately are videos of one channel each.
            if self._separate and note.models is not None:
                self._spectrum = int(note.models[0])
        pixels = Pixels(frames, replace(including_margins(self._tile), t=Span.whole(count)))
        noisy = Noisy(pixels, self._weights(queue, [note.sigma for note in notes], launches))
        if self._mix is not None:
            noisy = self._mix.begin(queue, noisy, self._held, launches)
        self._keep(queue, "noisy", noisy, first, launches)
        self._known += count
        self._measure_motion(queue, first - 1, count, launches)
        self._advance(queue, None, launches)
        return launches

    def _measure_motion(self, queue, first: int, count: int, launches: list) -> None:
        """Measure how blocks move from the frame of time `first` to the next `count`, and back."""
        if self._motion is None:
            return
        rings = self._rings
        _, links = self._links.links(first, count + 1, repeated=1.0)
        images = rings.guides("noisy") if self._guided else rings.images("noisy")
        sent = self._sent(queue, "motion links", links, launches)
        self._motions, more = self._motion.enqueue(
            *(queue, images, rings.shape, first, count, sent, self._held)
        )
        launches += [(f"motion {step}", event) for step, event in more]

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        """Enqueue the filtering of the next frames; see `FramePlan.enqueue_frames`."""
        launches: Launches = []
        if ended:
            self._advance(queue, start + count + self._late, launches)
        self._join(queue, self._last, start + count, out, launches)
        oldest = self._progress[self._last].filtered - self._before - 1
        self._links.forget(min(oldest, start) - 1)
        return launches

    def _advance(self, queue, limit: int | None, launches: list) -> None:
        """Filter all that can be; a limit is not exceeded, and means that no more frames come."""
        ended, have = limit is not None, self._known
        for name in self.passes:
            at = self._progress[name]
            complete = ended and have == self._known
            stop = have if complete else have - self._after
            if name == self._last:
                stop = stop if limit is None else min(stop, limit)
            while at.filtered < stop:
                self._filter_some(queue, name, stop, launches)
                if name != self._last:
                    done = at.filtered
                    ready = done if ended and done == self._known else done - self._late
                    self._join(queue, name, ready, None, launches)
            have = at.joined

    def _filter_some(self, queue, name: str, last: int, launches: list) -> None:
        """Filter the groups of the next batch of frames before `last`."""
        one, at, rings = self.passes[name], self._progress[name], self._rings
        first = at.filtered
        count = min(self._batch, last - first)
        # Clear the sums of frames that are reached for the first time.
        reached = max(at.cleared, first + count + self._after)
        rings.clear(queue, name, at.cleared, reached, launches)
        at.cleared = reached
        links, guide_links = self._links.links(first, count, repeated=-1.0)
        sent = searched_links = self._sent(queue, f"{name} links", links, launches)
        if self._mix is not None:
            searched_links = self._sent(queue, f"{name} guide links", guide_links, launches)
        searched = self._searched[name]
        guide = rings.guides(searched) if self._guided else rings.images(searched)
        found, more = one.search.enqueue(
            *(queue, guide, rings.shape, first, count, at.grid, searched_links, self._held),
            motions=self._motions,
        )
        launches += [(f"{name} {step}", event) for step, event in more]
        images = (rings.images("noisy"),)
        if one.settings.wiener:
            images += (rings.images(searched),)
        more = one.shrink(
            *(queue, found, images, rings.shape, self._tile.channels, first, count, at.grid),
            *((sent, searched_links), rings.sums(name), self._variation, self._spectrum),
        )
        launches += [(f"{name} {step}", event) for step, event in more]
        at.filtered = first + count

    def _join(self, queue, name: str, stop: int, out, launches: list) -> None:
        """Make the estimate of the frames before `stop`, and store it for the next pass."""
        at, rings, source = self._progress[name], self._rings, self._tile
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
        levels = self._sent(queue, f"{name} levels", self._links.levels(first, count), launches)
        mixed_back = out is not None and self._opponent
        made = self._held[f"{name} estimate"] if out is None or mixed_back else out
        more = self.passes[name].join(
            *(queue, rings.images("noisy"), rings.shape, source.channels, first, count),
            *(rings.sums(name), levels, region, made),
        )
        launches += [(f"{name} {step}", event) for step, event in more]
        held = replace(yields, t=Span.whole(count))
        if mixed_back:
            self._mix.end(queue, Noisy(Pixels(made, held), levels), out, launches)
        elif out is None:
            weights = self._weights(queue, self._links.levels(first, count).T, launches)
            self._keep(queue, name, Noisy(Pixels(made, held), weights), first, launches)
        at.joined = stop

    def _keep(self, queue, name: str, image: Noisy, first: int, launches: list) -> None:
        """Store frames in their ring, and the guide that is searched in place of them."""
        rings = self._rings
        rings.store(queue, rings.images(name), image.pixels, first, launches)
        if self._guided:
            guide = self._mix.guide(queue, image, name, self._held, launches)
            rings.store(queue, rings.guides(name), guide.pixels, first, launches)

    def _weights(self, queue, sigmas, launches: list):
        """Return what channels are divided by in the guide, frame by frame."""
        if self._mix is None:
            return None
        weights = np.array([guide_levels(sigma) for sigma in sigmas]).T
        return self._sent(queue, "weights of channels", weights, launches)

    def _sent(self, queue, name: str, array: np.ndarray, launches: Launches):
        return send_table(queue, self.arena.session.device, array, self._held[name], launches)
