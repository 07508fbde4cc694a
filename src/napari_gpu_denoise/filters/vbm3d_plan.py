"""What runs the passes of VBM3D over the frames of a video, in order, on one device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.filters.channel_mix import OPPONENT, ChannelMix
from napari_gpu_denoise.filters.frame_links import FrameLinks, guide_levels
from napari_gpu_denoise.filters.group_filter import Noisy, Pixels, spread
from napari_gpu_denoise.filters.predictive_search import RingShape, margin_of
from napari_gpu_denoise.filters.video_pass import VideoPass
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Span, Tile
from napari_gpu_denoise.video import FrameNote

if TYPE_CHECKING:
    from napari_gpu_denoise.filters.vbm3d import VBM3D


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
        self._store = arena.kernel("vbm3d/store_frames", {})

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
        self._shape = RingShape(*self.settings.rings(batch), margin_of(search), ny, nx)
        self._channels = tile.channels
        self._known = first
        # What each pass must yield for the next one, from the last to the first: pixels, and times
        # from which references are filtered and frames joined.
        self._yields, self._filtered, self._joined, self._cleared = {}, {}, {}, {}
        wanted, time = tile, start
        for name in reversed(self.passes):
            self._yields[name], self._joined[name] = wanted, max(time, first)
            self._filtered[name] = max(time - after, first)
            self._cleared[name] = max(self._filtered[name] - self._late, first)
            wanted = spread(wanted, self.passes[name].settings.reach)
            time -= after + before
        self._grids = {name: one.grid(self._yields[name]) for name, one in self.passes.items()}
        matrix, guide, weighted = np.eye(tile.channels), np.eye(tile.channels)[0], False
        if self._opponent:
            matrix, guide = OPPONENT, OPPONENT[0]
        elif self._mix is not None:
            weighted = self.settings.guide < 0
            guide = np.full(tile.channels, 1 / tile.channels)
            if not weighted:
                guide = np.eye(tile.channels)[self.settings.guide]
        self._links = FrameLinks((before, after), matrix, guide, weighted)

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
        self._keep(queue, "noisy", noisy, first, count, launches)
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
        oldest = self._filtered[self._last] - self.settings.frames_before - 1
        self._links.forget(min(oldest, start) - 1)
        return launches

    def _advance(self, queue, limit: int | None, launches: list) -> None:
        """Filter what can be; with a limit all frames are there, and it is not exceeded."""
        ended, have = limit is not None, self._known
        for name in self.passes:
            complete = ended and have == self._known
            stop = have if complete else have - self.settings.frames_after
            if name == self._last:
                stop = stop if limit is None else min(stop, limit)
            while self._filtered[name] < stop:
                self._filter_some(queue, name, stop, launches)
                if name != self._last:
                    done = self._filtered[name]
                    ready = done if ended and done == self._known else done - self._late
                    self._join(queue, name, ready, None, launches)
            have = self._joined[name]

    def _filter_some(self, queue, name: str, last: int, launches: list) -> None:
        """Filter the groups of the next frames, no more than a batch and none from `last` on."""
        one, shape = self.passes[name], self._shape
        first = self._filtered[name]
        count = min(self._batch, last - first)
        if count <= 0:
            return
        sums = self._sums(name)
        self._clear(queue, name, first + count + self.settings.frames_after, launches)
        links, guide_links = self._links.links(first, count)
        sent = self._sent(queue, f"{name} links", links, launches)
        searched_links = sent
        if self._mix is not None:
            searched_links = self._sent(queue, f"{name} guide links", guide_links, launches)
        searched = "noisy" if name == "basic" else "basic"
        guide = f"{searched} guide ring" if self._guided else f"{searched} ring"
        grid = self._grids[name]
        found, more = one.search.enqueue(
            queue, self._ring(guide), shape, first, count, grid, searched_links
        )
        launches += [(f"{name} {step}", event) for step, event in more]
        images = (self._ring("noisy ring"),)
        if name == "final":
            images += (self._ring("basic ring"),)
        more = one.shrink(
            *(queue, found, images, shape, self._filtering, first, count, grid),
            *((sent, searched_links), sums, self._variation),
        )
        launches += [(f"{name} {step}", event) for step, event in more]
        self._filtered[name] = first + count

    def _join(self, queue, name: str, stop: int, out, launches: list) -> None:
        """Make the estimate of the next frames, and store it where it is the basic one."""
        yields, source = self._yields[name], self._tile
        first = self._joined[name]
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
            nbytes = 4 * self._filtering * count * region[2] * region[3]
            made = self.arena.buffer(f"{name} estimate", nbytes)
        more = self.passes[name].join(
            *(queue, self._ring("noisy ring"), self._shape, self._filtering, first, count),
            *(self._sums(name), levels, region, made),
        )
        launches += [(f"{name} {step}", event) for step, event in more]
        held = replace(yields, t=Span.whole(count), channels=self._filtering)
        if mixed_back:
            self._mix.end(queue, Noisy(Pixels(made, held), levels), out, launches)
        elif out is None:
            weights = self._weights(queue, self._links.levels(first, count).T, launches)
            image = Noisy(Pixels(made, held), weights)
            self._keep(queue, "basic", image, first, count, launches)
        self._joined[name] = stop

    def _keep(self, queue, name: str, image: Noisy, first: int, count: int, launches: list) -> None:
        """Store frames in their ring, and what is searched of them."""
        self._store_frames(queue, f"{name} ring", image.pixels, first, count, launches)
        if self._guided:
            guide = self._mix.guide(queue, image, name, launches)
            self._store_frames(queue, f"{name} guide ring", guide.pixels, first, count, launches)

    def _weights(self, queue, sigmas, launches: list):
        """Return what channels are divided by in the image that is searched, frame by frame."""
        weights = np.array([guide_levels(sigma) for sigma in sigmas], np.float32).T
        return self._sent(queue, "weights of channels", np.ascontiguousarray(weights), launches)

    def _store_frames(
        self, queue, ring: str, pixels: Pixels, first: int, count: int, launches
    ) -> None:
        i32, shape, held = np.int32, self._shape, pixels.tile
        down = shape.margin + held.y.start - self._tile.y.source_start
        right = shape.margin + held.x.start - self._tile.x.source_start
        launch = self._store(
            queue,
            (shape.pitch, shape.pny, held.channels * count),
            None,
            *(pixels.buffer, i32(count), i32(held.y.size), i32(held.x.size)),
            *(self._ring(ring), i32(shape.images), i32(first % shape.images)),
            *(i32(shape.pny), i32(shape.pitch), i32(down), i32(right)),
        )
        launches.append(("store", launch))

    def _clear(self, queue, name: str, stop: int, launches: list) -> None:
        """Set the sums of the frames that are reached for the first time to 0."""
        import pyopencl as cl

        shape, sums = self._shape, self._sums(name)
        frame = 8 * shape.plane
        t = self._cleared[name]
        while t < stop:
            slot = t % shape.sums
            count = min(stop - t, shape.sums - slot)
            for c in range(self._filtering):
                offset = (c * shape.sums + slot) * frame
                event = cl.enqueue_fill_buffer(queue, sums, np.int32(0), offset, count * frame)
                launches.append(("clear", event))
            t += count
        self._cleared[name] = max(self._cleared[name], stop)

    def _sent(self, queue, name: str, array: np.ndarray, launches: list):
        """Copy a small array to the device; `launches` keeps it alive until it is there."""
        import pyopencl as cl

        buffer = self.arena.buffer(name, array.nbytes)
        # On a CPU there is nothing to gain by not waiting.
        waits = self.arena.session.device.shares_cores
        event = cl.enqueue_copy(queue, buffer, array, is_blocking=waits)
        launches.append(("tables", event))
        return buffer

    def _ring(self, name: str):
        channels = 1 if "guide" in name else self._filtering
        return self.arena.buffer(name, 4 * channels * self._shape.images * self._shape.plane)

    def _sums(self, name: str):
        nbytes = 8 * self._filtering * self._shape.sums * self._shape.plane
        return self.arena.buffer(f"{name} sums", nbytes)

    @property
    def _last(self) -> str:
        return list(self.passes)[-1]

    @property
    def _filtering(self) -> int:
        """Channels that are filtered."""
        return self._channels

    @property
    def _guided(self) -> bool:
        """Whether an image of its own is searched: not the first channel of what is filtered."""
        return self._mix is not None and not self._opponent
