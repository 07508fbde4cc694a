"""Filter the videos of an array in memory frame by frame, each frame uploaded once."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np

from napari_gpu_denoise.image.bands import in_bands
from napari_gpu_denoise.image.levels import convert
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.frame_flow import FrameFlow
from napari_gpu_denoise.run.frame_notes import FrameNote, note_frame
from napari_gpu_denoise.run.frame_sizes import frame_budget, frames_at_once, spatial_tiles
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.tile_sizes import SMALLEST_TILE
from napari_gpu_denoise.run.tiles import Span, Tile
from napari_gpu_denoise.run.work import Stages, Work


class ArrayFrameFlow:
    """Runs a filter over time over frames in memory: one video, and one part of it, after another.

    Parameters
    ----------
    work : Work
        What to filter.
    arena : Arena
        Keeps the buffers.
    shrink : int, optional
        How often fewer frames at once, then smaller parts of frames are taken: 0 at first, more
        when the device lacked memory.

    Raises
    ------
    DeviceMemoryError
        If `work.memory_limit` is too little for the smallest part.
    """

    def __init__(self, work: Work, arena: Arena, shrink: int = 0):
        self.work, self.arena = work, arena
        self.stages = Stages.of(work.filter, work.stabilised, work.signed, arena)
        filter, device, source = work.filter, work.session.device, work.source
        plan, is_map = self.stages.plan, work.sigma.is_map
        budget, pixels = frame_budget(plan, filter, device, source, work.memory_limit, is_map)
        most = math.inf
        while True:
            self.tiles = spatial_tiles(filter, device, work.whole[1:], source.joined, pixels)
            self.batch = min(frames_at_once(plan, device, self.tiles[0], budget), most)
            if shrink == 0:
                break
            shrink -= 1
            if self.batch > 1:
                most = self.batch // 2
            else:
                pixels = min(pixels, math.prod(self.tiles[0].source_shape)) // 2
        self.can_shrink = self.batch > 1 or pixels > SMALLEST_TILE
        self._pixels = pixels

    def run(self) -> Generator[Progress, None, int]:
        """Filter all frames.

        Yields
        ------
        Progress
            Of frames: before the first one and after some.

        Returns
        -------
        int
            Number of values clipped to the range of the output.
        """
        work = self.work
        sequences, nt, *_ = work.source.shape
        time = work.whole[0]
        videos = [(k, time) for k in range(sequences)]
        if "T" not in work.source.joint:
            # Frames side by side that are not in time: each is a video of its own.
            videos = [(0, Span(t, t + 1, t, t + 1, nt)) for t in range(time.start, time.stop)]
        total, done = len(self.tiles) * sum(span.size for _, span in videos), 0
        yield Progress(0, total, "frame")
        frames = _ArrayFrames(work)
        for tile in self.tiles:
            variation = work.sigma.variation(tile)
            flow = FrameFlow(work.session, self.arena, self.stages, tile, self.batch, variation)
            with closing(flow):
                for sequence, span in videos:
                    for count in flow.run(*frames.on(sequence, span, tile)):
                        yield Progress(done + count, total, "frame")
                    done += span.size
        return frames.saturated

    def close(self) -> None:
        """Do nothing: every part waits for the device itself."""

    def too_large(self) -> str:
        """Say what the device had too little memory for."""
        return f"parts of {self._pixels} pixels"


class _ArrayFrames:
    """The frames of an array in memory, as `FrameFlow.run` reads and writes them."""

    def __init__(self, work: Work):
        self._work = work
        self._unit = work.levels.scale**work.filter.sigma_power
        self._store = partial(work.levels.store, spare=True)
        self._notes: dict[tuple[int, int], FrameNote] = {}
        self.saturated = 0

    def on(self, sequence: int, span: Span, tile: Tile) -> tuple:
        """Return what `FrameFlow.run` is given for one video."""
        tile = replace(tile, sequence=sequence)
        read = partial(self._read, tile, span.source_stop)
        return read, partial(self._write, tile), span.source_start, span.start, span.stop

    def _read(self, tile: Tile, end: int, t: int, host: np.ndarray) -> list[FrameNote]:
        source, spans = self._work.source, (tile.z, tile.y, tile.x)
        region = source.region(*(slice(s.source_start, s.source_stop) for s in spans))
        count = min(host.shape[1], end - t)
        notes = []
        for k in range(count):
            planes = [source.frame(tile.sequence, t + k, c) for c in range(tile.channels)]
            for plane, values in zip(planes, host[:, k], strict=True):
                in_bands(self._work.levels.load, plane[region], values)
            notes.append(self._note(tile, t + k, planes))
        return notes

    def _note(self, tile: Tile, t: int, planes: list[np.ndarray]) -> FrameNote:
        # Of the whole frame, whatever part of it is read: all parts are to agree.
        key = tile.sequence, t
        if key not in self._notes:
            work = self._work
            at = replace(tile, t=Span(t, t + 1, t, t + 1, t + 1))
            z0 = work.source.origin[1]
            z1 = z0 + planes[0].shape[0]
            at = replace(at, z=Span(z0, z1, z0, z1, z1))
            sigma = work.sigma.levels(at, self._unit).ravel().astype(np.float64)
            compares = work.filter.compares_brightness
            note = note_frame(planes, sigma, work.levels, brightness=compares)
            models = work.sigma.models(at)[:, 0]
            self._notes[key] = replace(note, first_slice=z0, models=models)
        return self._notes[key]

    def _write(self, tile: Tile, t: int, values: np.ndarray) -> None:
        source, out = self._work.source, self._work.out
        # What was added by mirroring lies beyond the end and is dropped.
        y_stop = min(tile.y.stop, out.origin[2] + out.shape[-2])
        x_stop = min(tile.x.stop, out.origin[3] + out.shape[-1])
        if tile.y.start >= y_stop or tile.x.start >= x_stop:
            return
        spans = ((tile.z.start, tile.z.stop), (tile.y.start, y_stop), (tile.x.start, x_stop))
        part = [slice(*span) for span in spans]
        there, here = out.region(*part), source.region(*part)
        kept = values[..., : y_stop - tile.y.start, : x_stop - tile.x.start]
        for c in range(tile.channels):
            for k in range(kept.shape[1]):
                place = tile.sequence, t + k, c
                frame = out.frame(*place)[there]
                if self._notes[place[:2]].empty:
                    # As it was given, whatever its channels were mixed to meanwhile.
                    self.saturated += convert(source.frame(*place)[here], frame)
                else:
                    self.saturated += sum(in_bands(self._store, kept[c, k], frame))
