"""Filter the frames of a video in memory, each once and in order."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import partial

import numpy as np

from napari_gpu_denoise.axes import Frames, Levels, convert
from napari_gpu_denoise.bands import in_bands
from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.frame_flow import FrameFlow
from napari_gpu_denoise.frame_notes import FrameNote, note_frame
from napari_gpu_denoise.frame_sizes import frame_budget, frames_at_once, spatial_tiles
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.pipeline import Filter, Progress, execute
from napari_gpu_denoise.sigma import FrameSigma, sigma_unit
from napari_gpu_denoise.tile_sizes import SMALLEST_TILE
from napari_gpu_denoise.tiles import Span, Tile


def over_time(settings: Filter) -> bool:
    """Return whether a filter takes the frames of a video in order, and keeps what it needs.

    One that joins the axis T and says nothing of its memory for frames is given them as tiles.
    """
    return "T" in settings.joint and hasattr(settings, "frame_bytes")


def execute_any(
    source: Frames,
    out: Frames,
    levels: Levels,
    settings: Filter,
    sigma: FrameSigma,
    session: Session,
    memory_limit: int | None = None,
    part: tuple[Span, Span, Span, Span] | None = None,
) -> Generator[Progress, None, int]:
    """Filter `source` into `out`, as `execute` does; over time frame by frame, each taken once."""
    run = execute_frames if over_time(settings) else execute
    return run(source, out, levels, settings, sigma, session, memory_limit, part)


def execute_frames(
    source: Frames,
    out: Frames,
    levels: Levels,
    settings: Filter,
    sigma: FrameSigma,
    session: Session,
    memory_limit: int | None = None,
    part: tuple[Span, Span, Span, Span] | None = None,
) -> Generator[Progress, None, int]:
    """Filter `source` into `out` frame by frame; when the device lacks memory, again in parts.

    `sigma` is arranged as `source` is. With `part` given, all are that part of larger arrays.

    Yields
    ------
    Progress
        Of frames: before the first one and after some.

    Returns
    -------
    int
        Number of values clipped to the range of the output.

    Raises
    ------
    DeviceMemoryError
        If even a small part of the frames does not fit, or `memory_limit` is too little for it.
    """
    sequences, nt, *_ = source.shape
    whole = part or tuple(Span.whole(length) for length in source.shape[1:])
    videos = [(k, whole[0]) for k in range(sequences)]
    if "T" not in source.joint:
        # Frames side by side that are not in time: each is a video of its own.
        videos = [(0, Span(t, t + 1, t, t + 1, nt)) for t in range(whole[0].start, whole[0].stop)]
    budget, pixels = frame_budget(settings, session.device, source, memory_limit, sigma.is_map)
    frames = _ArrayFrames(source, out, levels, settings, sigma)
    most_at_once = math.inf
    while True:
        tiles = spatial_tiles(settings, session.device, whole[1:], source.joined, pixels)
        batch = min(frames_at_once(settings, session.device, tiles[0], budget), most_at_once)
        total = len(tiles) * sum(span.size for _, span in videos)
        done = 0
        yield Progress(0, total, "frame")
        try:
            with device_errors(session), borrow(session) as arena:
                for tile in tiles:
                    flow = FrameFlow(
                        *(session, arena, settings, tile, batch, sigma.variation(tile))
                    )
                    try:
                        for sequence, span in videos:
                            for count in flow.run(*frames.on(sequence, span, tile)):
                                yield Progress(done + count, total, "frame")
                            done += span.size
                    finally:
                        flow.drain()
            return frames.saturated
        except DeviceMemoryError as error:
            frames.saturated = 0
            if batch > 1:
                most_at_once = batch // 2
                continue
            if pixels <= SMALLEST_TILE:
                raise DeviceMemoryError(
                    f"{session.device} has too little free memory even for parts of {pixels} "
                    "pixels: close other programs, use fewer frames, or choose another device."
                ) from error
            pixels = min(pixels, math.prod(tiles[0].source_shape)) // 2


class _ArrayFrames:
    """The frames of an array in memory, as `FrameFlow.run` reads and writes them."""

    def __init__(self, source: Frames, out: Frames, levels: Levels, settings: Filter, sigma):
        self.source, self.out, self.levels, self.sigma = source, out, levels, sigma
        self._unit = sigma_unit(settings, levels)
        self._store = partial(levels.store, spare=True)
        self._brightness = bool(getattr(settings, "flicker", False))
        self._notes: dict[tuple[int, int], FrameNote] = {}
        self.saturated = 0

    def on(self, sequence: int, span: Span, tile: Tile) -> tuple:
        """Return what `FrameFlow.run` is given for one video."""
        tile = replace(tile, sequence=sequence)
        read = partial(self._read, tile, span.source_stop)
        return read, partial(self._write, tile), span.source_start, span.start, span.stop

    def _read(self, tile: Tile, end: int, t: int, host: np.ndarray) -> list[FrameNote]:
        source, spans = self.source, (tile.z, tile.y, tile.x)
        region = source.region(*(slice(s.source_start, s.source_stop) for s in spans))
        count = min(host.shape[1], end - t)
        notes = []
        for k in range(count):
            planes = [source.frame(tile.sequence, t + k, c) for c in range(tile.channels)]
            for plane, values in zip(planes, host[:, k], strict=True):
                in_bands(self.levels.load, plane[region], values)
            notes.append(self._note(tile, t + k, planes))
        return notes

    def _note(self, tile: Tile, t: int, planes: list[np.ndarray]) -> FrameNote:
        # Of the whole frame, whatever part of it is read: all parts are to agree.
        key = tile.sequence, t
        if key not in self._notes:
            at = replace(tile, t=Span(t, t + 1, t, t + 1, t + 1))
            z0 = self.source.origin[1]
            z1 = z0 + planes[0].shape[0]
            at = replace(at, z=Span(z0, z1, z0, z1, z1))
            sigma = self.sigma.levels(at, self._unit).ravel().astype(np.float64)
            note = note_frame(planes, sigma, self.levels, brightness=self._brightness)
            models = self.sigma.models(at)[:, 0]
            self._notes[key] = replace(note, first_slice=z0, models=models)
        return self._notes[key]

    def _write(self, tile: Tile, t: int, values: np.ndarray) -> None:
        out = self.out
        # What was added by mirroring lies beyond the end and is dropped.
        y_stop = min(tile.y.stop, out.origin[2] + out.shape[-2])
        x_stop = min(tile.x.stop, out.origin[3] + out.shape[-1])
        if tile.y.start >= y_stop or tile.x.start >= x_stop:
            return
        spans = ((tile.z.start, tile.z.stop), (tile.y.start, y_stop), (tile.x.start, x_stop))
        part = [slice(*span) for span in spans]
        there, here = out.region(*part), self.source.region(*part)
        kept = values[..., : y_stop - tile.y.start, : x_stop - tile.x.start]
        for c in range(tile.channels):
            for k in range(kept.shape[1]):
                place = tile.sequence, t + k, c
                frame = out.frame(*place)[there]
                if self._notes[place[:2]].empty:
                    # As it was given, whatever its channels were mixed to meanwhile.
                    self.saturated += convert(self.source.frame(*place)[here], frame)
                else:
                    self.saturated += sum(in_bands(self._store, kept[c, k], frame))
