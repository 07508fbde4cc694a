"""Filter the videos of an array in memory frame by frame; each frame is uploaded once."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np

from napari_gpu_denoise.image.levels import convert
from napari_gpu_denoise.image.threads import begin_each, in_bands
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow
from napari_gpu_denoise.run.flow.frame_transfer import FrameTypes
from napari_gpu_denoise.run.flow.tile_sizes import (
    frame_budget,
    frames_at_once,
    smallest_tile,
    spatial_tiles,
)
from napari_gpu_denoise.run.flow.transfer import converted_at_once, copy_as_is, frame_blocks
from napari_gpu_denoise.run.flow.work import Stages, Work
from napari_gpu_denoise.run.frame_notes import FrameNote, note_frame
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.tiles import Span, Tile


class ArrayFrameFlow:
    """Runs a filter over time over frames in memory: one video, and one part of it, after another.

    Each `shrink` halves the frames taken at once, or then the parts of frames, for a device that
    lacked memory; `size` says what was tried.
    """

    def __init__(self, work: Work, arena: Arena, shrink: int = 0):
        self.work, self.arena = work, arena
        self.stages = Stages.of(work, arena)
        filter, device, source = work.filter, work.session.device, work.source
        plan, is_map = self.stages.plan, work.sigma.is_map
        budget, pixels = frame_budget(plan, filter, device, source, work.memory_limit, is_map)
        most, smallest = math.inf, smallest_tile(filter, source)
        while True:
            self.tiles = spatial_tiles(filter, device, work.whole[1:], source.joined, pixels)
            largest = max(self.tiles, key=lambda tile: math.prod(tile.source_shape))
            self.batch = min(frames_at_once(plan, device, largest, budget), most)
            if shrink == 0:
                break
            shrink -= 1
            if self.batch > 1:
                most = self.batch // 2
            else:
                pixels = max(min(pixels, math.prod(largest.source_shape)) // 2, smallest)
        self.can_shrink = self.batch > 1 or pixels > smallest
        self.size = f"parts of {pixels} pixels"
        self._notes: dict[tuple[int, int], FrameNote] = {}
        self._saturated = 0

    def run(self) -> Generator[Progress, None, int]:
        """Filter all frames; yield before the first and after some, return the clipped values."""
        work = self.work
        sequences, nt, *_ = work.source.shape
        time = work.whole[0]
        videos = [(k, time) for k in range(sequences)]
        if "T" not in work.source.joint:
            # Independent frames, side by side: each is a video of its own.
            videos = [(0, Span(t, t + 1, t, t + 1, nt)) for t in range(time.start, time.stop)]
        frames = sum(span.size for _, span in videos)
        total, done = len(self.tiles) * frames, 0
        # As many as there are time points only where there is one video, filtered whole.
        unit = "part of a frame" if len(self.tiles) > 1 else "frame"
        if unit == "frame" and frames > time.size:
            unit = "plane"
        yield Progress(0, total, unit)
        for part in self.tiles:
            variation = work.sigma.variation(part)
            types = FrameTypes.of(work, part)
            stages = self.stages
            given = work.session, self.arena, stages, part, self.batch, variation, types
            flow = FrameFlow(*given, ahead=True)
            with closing(flow):
                for sequence, span in videos:
                    tile = replace(part, sequence=sequence)
                    read = partial(self._read, tile, span.source_stop)
                    write = partial(self._write, tile)
                    for count in flow.run(read, write, span.source_start, span.start, span.stop):
                        yield Progress(done + count, total, unit)
                    done += span.size
        return self._saturated

    def close(self) -> None:
        """Do nothing: every part waits for the device itself."""

    def _read(self, tile: Tile, end: int, t: int, host: np.ndarray) -> list[FrameNote]:
        source = self.work.source
        region = source.region(*tile.source_region)
        stop = min(t + host.shape[1], end)
        most = converted_at_once(source, self.work.levels)
        frame_bytes = source.view.itemsize * math.prod(source.shape[2:])
        keys = [(tile.sequence, number) for number in range(t, stop)]
        new = [key for key in keys if key not in self._notes]
        # Notes are made meanwhile.
        notes = begin_each(self._note, new, source.joined * frame_bytes)
        for c in range(tile.channels):
            for k, block in frame_blocks(source, tile.sequence, t, stop, c, most):
                values = host[c, k : k + len(block)]
                in_bands(self.work.levels.load, block[:, *region], values)
        self._notes |= zip(new, notes, strict=True)
        return [self._notes[key] for key in keys]

    def _note(self, key: tuple[int, int]) -> FrameNote:
        # Of the whole frame, whatever part of it is read: all parts have to agree.
        work = self.work
        planes = [work.source.frame(*key, c) for c in range(work.source.joined)]
        sigma, models = work.sigma.of_frame(*key, work.sigma_unit)
        compares, whole = work.filter.compares_brightness, work.filter.whole_volumes
        note = note_frame(planes, sigma, work.levels, brightness=compares, whole=whole)
        return replace(note, first_slice=work.source.origin[1], models=models)

    def _write(self, tile: Tile, t: int, values: np.ndarray, clipped: np.ndarray | None) -> None:
        source, out = self.work.source, self.work.out
        ny, nx = self.work.kept(tile)
        if not ny or not nx:
            return
        region = tile.kept_region(ny, nx)
        there, here = out.region(*region), source.region(*region)
        times = t, t + values.shape[1]
        empty = [self._notes[tile.sequence, number].empty for number in range(*times)]
        if clipped is not None:
            self._saturated += int(clipped[:, ~np.array(empty)].sum(dtype=np.int64))
            store, most = copy_as_is, None
        else:
            store, values = partial(self.work.levels.store, spare=True), values[..., :ny, :nx]
            most = 1 if any(empty) else converted_at_once(out, self.work.levels)
        for c in range(tile.channels):
            for k, block in frame_blocks(out, tile.sequence, *times, c, most):
                if not all(empty[k : k + len(block)]):
                    found = in_bands(store, values[c, k : k + len(block)], block[:, *there])
                    self._saturated += sum(found)
            # Copied from the source: the channels on the device may have been mixed.
            for k in np.flatnonzero(empty):
                place = tile.sequence, t + int(k), c
                self._saturated += convert(source.frame(*place)[here], out.frame(*place)[there])
