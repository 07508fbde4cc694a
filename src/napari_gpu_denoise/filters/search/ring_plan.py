"""A filter of tiles on one device over the frames of a time-lapse."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.pixels import send_table
from napari_gpu_denoise.filters.search.frame_links import FrameLinks
from napari_gpu_denoise.run.frame_notes import FrameNote
from napari_gpu_denoise.run.plan import FramePlan, Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.run.tiles import Span, Tile


class RingPlan(FramePlan):
    """Runs a filter over frames that come in order and stay in a ring while they are needed.

    `tiles` filters some frames of the ring, which is (channels, ring, nz, ny, nx). Its `enqueue`
    also takes the slot of the first frame and the length of the ring; how grey levels of the frames
    are brought to those of one, if they are (channels, frames, 3); which frame (t, z) of `out` is
    the first, and how many it holds; and the buffers. `frames` is how many it looks at before and
    after; `compared` changes a note before frames are compared for changes of brightness.
    """

    def __init__(
        self,
        tiles: TilePlan,
        frames: tuple[int, int],
        compared: Callable[[FrameNote], FrameNote] | None = None,
    ):
        self.arena = tiles.arena
        self._tiles, self._compared = tiles, compared
        self._before, self.ahead = frames

    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the ring of frames, the tables of a frame, and what `batch` frames need."""
        ring = batch + self._before + self.ahead
        frame = 4 * tile.channels * math.prod(tile.source_shape[1:])
        seen = replace(tile, t=Span(self._before, self._before + batch, 0, ring, ring))
        return {
            "frames": ring * frame,
            "frame sigma": 4 * tile.channels * batch * tile.z.size,
            "frame links": 12 * tile.channels * (self._before + 1 + self.ahead),
            **self._tiles.buffers(seen, is_map),
        }

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the frames of a video; see `FramePlan.begin`."""
        self._tile, self._variation = tile, variation
        self._first = self._known = first
        self._held = self.hold(tile, batch, variation is not None)
        self._ring = batch + self._before + self.ahead
        self._sigma: dict[int, np.ndarray] = {}
        frames, channels = (self._before, self.ahead), tile.channels
        mean = np.full(channels, 1 / channels)
        self._links = FrameLinks(frames, np.eye(channels), mean, noise_ratio=math.inf)

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Enqueue the storing of the next frames."""
        import pyopencl as cl

        channels, count = self._tile.channels, len(notes)
        nbytes = 4 * math.prod(self._tile.source_shape[1:])
        ring, launches = self._held["frames"], []
        compared = []
        for k, note in enumerate(notes):
            slot = (self._known + k) % self._ring
            for c in range(channels):
                copy = cl.enqueue_copy(
                    queue,
                    ring,
                    frames,
                    byte_count=nbytes,
                    src_offset=(c * count + k) * nbytes,
                    dst_offset=(c * self._ring + slot) * nbytes,
                )
                launches.append(("store", copy))
            begin, sigma = self._tile.z.start - note.first_slice, note.sigma.reshape(channels, -1)
            self._sigma[self._known + k] = sigma[:, begin : begin + self._tile.z.size]
            # A volume has no brightness to compare, and its slices may differ in noise.
            known = note.sigma if sigma.shape[1] == 1 else np.ones(channels)
            one = replace(note, sigma=known)
            compared.append(self._compared(one) if self._compared else one)
        self._links.add(self._known, *compared)
        self._known += count
        return launches

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        """Enqueue the filtering of the next frames."""
        filtered, _ = self._links.links(start, count)
        plain = np.all(filtered[..., 0] == 1) and np.all(filtered[..., 1] == 0)
        launches: Launches = []
        if plain and all(self._alike(links, start) for links in filtered):
            self._enqueue_some(queue, start, count, None, (0, count), out, launches)
        else:
            # For each frame the others are brought to its own brightness.
            for k in range(count):
                links = filtered[:, k]
                self._enqueue_some(queue, start + k, 1, links, (k, count), out, launches)
        before = start + count - self._before
        for t in [t for t in self._sigma if t < before]:
            del self._sigma[t]
        self._links.forget(before - 1)
        return launches

    def _alike(self, links: np.ndarray, start: int) -> bool:
        """Return whether every frame may be searched from every other."""
        before = self._before
        times = start - before + np.add.outer(*map(np.arange, links.shape[:2]))
        there = (times >= self._first) & (times < self._known)
        return bool(np.all(links[..., 2][there] > 0))

    def _enqueue_some(self, queue, start, count, links, place, out, launches: list) -> None:
        stop = start + count
        lowest = max(start - self._before, self._first)
        highest = min(stop + self.ahead, self._known)
        tile = replace(self._tile, t=Span(start, stop, lowest, highest, highest))
        sigma = np.concatenate([self._sigma[t] for t in range(start, stop)], axis=1)
        device, held = self.arena.session.device, self._held
        levels = send_table(queue, device, sigma, held["frame sigma"], launches)
        alike = None
        if links is not None:
            here = self._before
            links = links.copy()
            # A frame without noise is returned unchanged.
            links[links[:, here, 2] == 0, here] = (1, 0, 1)
            links = links[:, here - (start - lowest) :][:, : highest - lowest]
            alike = send_table(queue, device, links, held["frame links"], launches)
        places = tuple(one * tile.z.size for one in place)
        launches += self._tiles.enqueue(
            *(queue, tile, held["frames"], out, TileSigma(levels, self._variation)),
            *((lowest % self._ring, self._ring), alike, places, held),
        )
