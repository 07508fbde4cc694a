"""NL-means on one device over the frames of a time-lapse."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.nl_means.plan import Plan
from napari_gpu_denoise.filters.pixels import send_table
from napari_gpu_denoise.filters.search.frame_links import FrameLinks
from napari_gpu_denoise.run.frame_notes import FrameNote
from napari_gpu_denoise.run.plan import FramePlan, Launches, Sizes, TileSigma
from napari_gpu_denoise.run.tiles import Span, Tile


class VideoPlan(FramePlan):
    """Runs NL-means over frames that come in order and stay in a ring while they are needed."""

    def __init__(self, tiles: Plan):
        self.arena = tiles.arena
        self._tiles = tiles
        self._before, self.ahead = tiles.search.settings.frames

    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the ring of frames, the tables of a frame, and what `batch` frames need."""
        ring = batch + self._before + self.ahead
        frame = 4 * math.prod(tile.source_shape[1:])
        seen = replace(tile, t=Span(self._before, self._before + batch, 0, ring, ring))
        return {
            "frames": ring * frame,
            "frame sigma": 4 * batch * tile.z.size,
            "frame links": 12 * (self._before + 1 + self.ahead),
            **self._tiles.buffers(seen, is_map),
        }

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the frames of a video; see `FramePlan.begin`."""
        self._tile, self._variation = tile, variation
        self._first = self._known = first
        self._held = self.hold(tile, batch, variation is not None)
        self._ring = batch + self._before + self.ahead
        self._sigma: dict[int, np.ndarray] = {}
        self._links = FrameLinks((self._before, self.ahead), [[1.0]], [1.0], noise_ratio=math.inf)

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Enqueue the storing of the next frames."""
        import pyopencl as cl

        nbytes = 4 * math.prod(self._tile.source_shape[1:])
        ring, launches = self._held["frames"], []
        for k, note in enumerate(notes):
            slot = self._known % self._ring
            copy = cl.enqueue_copy(
                queue,
                ring,
                frames,
                byte_count=nbytes,
                src_offset=k * nbytes,
                dst_offset=slot * nbytes,
            )
            launches.append(("store", copy))
            begin = self._tile.z.start - note.first_slice
            self._sigma[self._known] = note.sigma[begin : begin + self._tile.z.size]
            # A volume has no brightness to compare, and its slices may differ in noise.
            sigma = note.sigma if len(note.sigma) == 1 else np.ones(1)
            self._links.add(self._known, self._compared(replace(note, sigma=sigma)))
            self._known += 1
        return launches

    def _compared(self, note: FrameNote) -> FrameNote:
        """Return the note as it is compared with other frames to find changes of brightness."""
        if self._tiles.rician:
            # The bias of magnitudes could no longer be removed from shifted grey levels.
            return replace(note, means=None)
        if self._tiles.search.settings.roots and note.means is not None:
            level = float(note.means.mean())
            return replace(note, sigma=note.sigma * math.sqrt(level)) if level > 0 else note
        return note

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        """Enqueue the filtering of the next frames."""
        filtered, _ = self._links.links(start, count)
        plain = np.all(filtered[..., 0] == 1) and np.all(filtered[..., 1] == 0)
        launches: Launches = []
        if plain and self._alike(filtered[0], start):
            self._enqueue_some(queue, start, count, None, 0, out, launches)
        else:
            # For each frame the others are brought to its own brightness.
            for k in range(count):
                self._enqueue_some(queue, start + k, 1, filtered[0, k], k, out, launches)
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

    def _enqueue_some(self, queue, start, count, links, first_out, out, launches: list) -> None:
        stop = start + count
        lowest = max(start - self._before, self._first)
        highest = min(stop + self.ahead, self._known)
        tile = replace(self._tile, t=Span(start, stop, lowest, highest, highest))
        sigma = np.concatenate([self._sigma[t] for t in range(start, stop)])
        device, held = self.arena.session.device, self._held
        levels = send_table(queue, device, sigma, held["frame sigma"], launches)
        alike = None
        if links is not None:
            here = self._before
            links = links.copy()
            if links[here, 2] == 0:  # a frame without noise is returned unchanged
                links[here] = (1, 0, 1)
            links = links[here - (start - lowest) :][: highest - lowest]
            alike = send_table(queue, device, links, held["frame links"], launches)
        launches += self._tiles.enqueue(
            *(queue, tile, held["frames"], out, TileSigma(levels, self._variation)),
            *((lowest % self._ring, self._ring), alike, first_out * tile.z.size, held),
        )
