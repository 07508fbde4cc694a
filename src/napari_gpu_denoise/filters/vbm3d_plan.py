"""What runs the passes of VBM3D over the frames of a video, in order, on one device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.filters.channel_mix import OPPONENT, ChannelMix
from napari_gpu_denoise.filters.frame_links import FrameLinks, guide_levels
from napari_gpu_denoise.filters.frame_rings import FrameRings
from napari_gpu_denoise.filters.group_filter import Noisy, Pixels, spread
from napari_gpu_denoise.filters.patches import Grid
from napari_gpu_denoise.filters.predictive_search import RingShape, margin_of
from napari_gpu_denoise.filters.video_pass import VideoPass
from napari_gpu_denoise.frame_notes import FrameNote
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Span, Tile

if TYPE_CHECKING:
    from napari_gpu_denoise.filters.vbm3d import VBM3D


@dataclass
class _Progress:
    """What a pass must yield for the next one, and how far it has come.

    Attributes
    ----------
    yields : Tile
        What is yielded of each frame.
    grid : tuple of Grid
        References along Y and X.
    filtered, joined, cleared : int
        Times of the next frame whose references are filtered, whose estimate is made, and whose
        sums are set to 0.
    """

    yields: Tile
    grid: tuple[Grid, Grid]
    filtered: int
    joined: int
    cleared: int


class Plan:
    """Kernels and buffers of VBM3D on one device; belongs to one thread.

    Frames come in order (`take`) and go in order (`enqueue_frames`). Between, the device holds, in
    rings: the noisy frames and their basic estimates, and for each pass the sums of what its groups
    take away. Every frame is searched and filtered once a pass, whatever the batches.

    Parameters
    ----------
    settings : VBM3D
        What to run, for one array (see `VBM3D.for_array`).
    arena : Arena
        Keeps the buffers.
    variants : dict, optional
        What to give `VideoPass` for a pass, by its name.
    """

    def __init__(self, settings: VBM3D, arena: Arena, variants: dict[str, dict] | None = None):
        self.settings = settings
        self.arena = arena
        variants = variants or {}
        self.passes = {
            name: VideoPass(one, arena, **variants.get(name, {}))
            for name, one in settings.passes.items()
        }
        self.ahead = settings.reach.t[1]
        self._opponent = settings.channels == "opponent"
        self._mix = None
        if "C" in settings.joint:
            self._mix = ChannelMix(self._opponent, settings.guide, arena)
        # Whether an image of its own is searched: not the first channel of what is filtered.
        self._guided = self._mix is not None and not self._opponent
        self._last = list(self.passes)[-1]

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any = None) -> None:
        """Prepare for the frames of a video, or of a part of each.

        Parameters
        ----------
        tile : Tile
            What is read of each frame, and what is yielded; its time is not looked at.
        batch : int
            Most frames that are taken or yielded at once.
        first, start : int
            Time of the first frame that is taken, and of the first one that is yielded.
        variation : pyopencl.Buffer, optional
            A map that sigma is multiplied by, of the shape of what is read.
        """
        before, after = self.settings.frames_before, self.settings.frames_after
        self._tile, self._batch, self._variation = tile, batch, variation
        _, _, ny, nx = tile.source_shape
        search = self.passes[self._last].settings.search
        self._late = search.late
        shape = RingShape(*self.settings.rings(batch), margin_of(search), ny, nx)
        self._rings = FrameRings(self.arena, shape, tile)
        self._known = first
        self._progress: dict[str, _Progress] = {}
        # From the last pass to the first: what each must yield for the next one.
        wanted, time = tile, start
        for name, one in reversed(self.passes.items()):
            filtered = max(time - after, first)
            self._progress[name] = _Progress(
                wanted,
                one.grid(wanted),
                filtered,
                joined=max(time, first),
                cleared=max(filtered - self._late, first),
            )
            wanted = spread(wanted, one.settings.reach)
            time -= after + before
        self._links = FrameLinks((before, after), *self._channels_linked(tile.channels))

    def _channels_linked(self, channels: int) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return what channels are filtered as, what they are matched by, and if by their noise."""
        if self._opponent:
            return OPPONENT, OPPONENT[0], False
        matrix = np.eye(channels)
        if self._mix is None:
            return matrix, matrix[0], False
        if self.settings.guide < 0:
            return matrix, np.full(channels, 1 / channels), True
        return matrix, matrix[self.settings.guide], False

    def take(self, queue, frames, notes: list[FrameNote]) -> list[tuple[str, Any]]:
        """Enqueue the storing of the next frames, and what can be done with them.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        frames : pyopencl.Buffer
            float32 of shape (channels, count, 1, source ny, source nx).
        notes : list of FrameNote
            What is known of each frame.

        Returns
        -------
        list of (str, pyopencl.Event)
            The launches, by name; to be kept until they are done.
        """
        first, count = self._known, len(notes)
        launches: list[tuple[str, Any]] = []
        for k, note in enumerate(notes):
            self._links.add(first + k, note)
        levels = self._weights(queue, [note.sigma for note in notes], launches)
        whole = replace(spread(self._tile, max(self._tile.source_shape)), t=Span.whole(count))
        noisy = Noisy(Pixels(frames, whole), levels)
        if self._mix is not None:
            noisy = self._mix.begin(queue, noisy, launches)
        self._keep(queue, "noisy", noisy, first, launches)
        self._known += count
        self._advance(queue, None, launches)
        return launches

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> list:
        """Enqueue what yields some frames; they follow those yielded before.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        start, count : int
            Time of the first frame, and how many. `ahead` more have been taken, or all there are.
        ended : bool
            Whether there are no more frames to be taken.
        out : pyopencl.Buffer
            float32 of shape (channels, count, 1, ny, nx).

        Returns
        -------
        list of (str, pyopencl.Event)
            The launches, by name; to be kept until they are done.
        """
        launches: list[tuple[str, Any]] = []
        if ended:
            self._advance(queue, start + count + self._late, launches)
        self._join(queue, self._last, start + count, out, launches)
        oldest = self._progress[self._last].filtered - self.settings.frames_before - 1
        self._links.forget(min(oldest, start) - 1)
        return launches

    def _advance(self, queue, limit: int | None, launches: list) -> None:
        """Filter what can be; with a limit all frames are there, and it is not exceeded."""
        ended, have = limit is not None, self._known
        for name in self.passes:
            at = self._progress[name]
            complete = ended and have == self._known
            stop = have if complete else have - self.settings.frames_after
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
        """Filter the groups of the next frames, no more than a batch and none from `last` on."""
        one, at, rings = self.passes[name], self._progress[name], self._rings
        first = at.filtered
        count = min(self._batch, last - first)
        if count <= 0:
            return
        # Sums of the frames that are reached for the first time.
        reached = max(at.cleared, first + count + self.settings.frames_after)
        rings.clear(queue, name, at.cleared, reached, launches)
        at.cleared = reached
        links, guide_links = self._links.links(first, count)
        sent = self._sent(queue, f"{name} links", links, launches)
        searched_links = sent
        if self._mix is not None:
            searched_links = self._sent(queue, f"{name} guide links", guide_links, launches)
        searched = "noisy" if name == "basic" else "basic"
        guide = rings.guides(searched) if self._guided else rings.images(searched)
        found, more = one.search.enqueue(
            queue, guide, rings.shape, first, count, at.grid, searched_links
        )
        launches += [(f"{name} {step}", event) for step, event in more]
        images = (rings.images("noisy"),)
        if name == "final":
            images += (rings.images("basic"),)
        more = one.shrink(
            *(queue, found, images, rings.shape, self._tile.channels, first, count, at.grid),
            *((sent, searched_links), rings.sums(name), self._variation),
        )
        launches += [(f"{name} {step}", event) for step, event in more]
        at.filtered = first + count

    def _join(self, queue, name: str, stop: int, out, launches: list) -> None:
        """Make the estimate of the next frames, and store it where it is the basic one."""
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
        made = out
        if out is None or mixed_back:
            nbytes = 4 * source.channels * count * region[2] * region[3]
            made = self.arena.buffer(f"{name} estimate", nbytes)
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
            self._keep(queue, "basic", Noisy(Pixels(made, held), weights), first, launches)
        at.joined = stop

    def _keep(self, queue, name: str, image: Noisy, first: int, launches: list) -> None:
        """Store frames in their ring, and what is searched of them."""
        rings = self._rings
        rings.store(queue, rings.images(name), image.pixels, first, launches)
        if self._guided:
            guide = self._mix.guide(queue, image, name, launches)
            rings.store(queue, rings.guides(name), guide.pixels, first, launches)

    def _weights(self, queue, sigmas, launches: list):
        """Return what channels are divided by in the image that is searched, frame by frame."""
        weights = np.array([guide_levels(sigma) for sigma in sigmas], np.float32).T
        return self._sent(queue, "weights of channels", np.ascontiguousarray(weights), launches)

    def _sent(self, queue, name: str, array: np.ndarray, launches: list):
        """Copy a small array to the device; `launches` keeps it alive until it is there."""
        import pyopencl as cl

        buffer = self.arena.buffer(name, array.nbytes)
        # On a CPU there is nothing to gain by not waiting.
        waits = self.arena.session.device.shares_cores
        event = cl.enqueue_copy(queue, buffer, array, is_blocking=waits)
        launches.append(("tables", event))
        return buffer
