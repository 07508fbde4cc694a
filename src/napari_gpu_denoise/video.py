"""Move the frames of a video through a device, each once and in order, for a filter over time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from napari_gpu_denoise.axes import Frames, Levels, convert
from napari_gpu_denoise.bands import in_bands
from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.flicker import block_means, block_pixels
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.pipeline import Filter, Progress, execute
from napari_gpu_denoise.sigma import FrameSigma, sigma_unit
from napari_gpu_denoise.tile_sizes import SMALLEST_TILE, bytes_per_pixel, tile_yield
from napari_gpu_denoise.tiles import Reach, Span, Tile, split

# Pixels that a launch should be given, for small frames not to waste it, and most frames at once.
_BUSY = {"CPU": 1 << 16, "simulator": 1 << 14}
_BUSY_GPU = 1 << 23
_MOST_FRAMES = 16
# Memory that is not exceeded only to take more frames at once.
_MODEST_BYTES = 1 << 30


@dataclass(frozen=True)
class FrameNote:
    """What is known of one frame before it is filtered.

    Attributes
    ----------
    sigma : ndarray of float64, shape (channels * nz,)
        Noise standard deviation in units of the pixels; 0 where there is nothing to filter.
    means : ndarray of float64, shape (channels, blocks), or None
        Means of blocks of the frame; None where brightness is not to be compared.
    block_pixels : float
        Pixels that each mean is of.
    first_slice : int
        Which slice of the volume `sigma` begins with.
    models : ndarray of int, shape (channels,)
        Which model of noise each channel has.
    """

    sigma: np.ndarray
    means: np.ndarray | None = None
    block_pixels: float = 1.0
    first_slice: int = 0
    models: np.ndarray | None = None

    @property
    def empty(self) -> bool:
        """Whether the frame comes back as it is, and serves no other."""
        return not np.any(self.sigma > 0)


def note_frame(
    planes: list[np.ndarray], sigma: np.ndarray, levels: Levels, *, brightness: bool
) -> FrameNote:
    """Look at a frame before it is filtered.

    Parameters
    ----------
    planes : list of ndarray, shape (nz, ny, nx)
        Grey levels of the whole frame, one array a channel.
    sigma : ndarray, shape (channels * nz,)
        Noise standard deviation in units of the pixels.
    levels : Levels
        How grey levels become pixels.
    brightness : bool
        Whether its brightness is to be compared with that of other frames.
    """
    if planes[0].shape[0] > 1:
        # What is known of a volume must not depend on which of its slices are at hand.
        return FrameNote(sigma)
    if all(map(_is_constant, planes)):
        # A frame that was dropped: no pattern, no noise, and nothing to learn from it.
        return FrameNote(np.zeros(np.shape(sigma)))
    if not brightness:
        return FrameNote(sigma)
    means = np.array([block_means(plane[0]) for plane in planes], np.float64)
    means = (means - float(levels.offset)) / levels.scale
    return FrameNote(sigma, means, block_pixels(planes[0].shape[-2:]))


def _is_constant(plane: np.ndarray) -> bool:
    first = plane[0, 0, 0]
    # A few pixels tell nearly always.
    few = plane[:, :: max(1, plane.shape[1] // 8), :: max(1, plane.shape[2] // 8)]
    return bool(np.all(few == first)) and bool(np.all(plane == first))


class FramePlan(Protocol):
    """Programs and buffers of a filter over time on one device; belongs to one thread.

    Attributes
    ----------
    ahead : int
        Frames after it that a frame waits for.
    """

    ahead: int

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the frames from time `first` on, of which those from `start` are yielded."""

    def take(self, queue, frames, notes: list[FrameNote]) -> list[tuple[str, Any]]:
        """Enqueue what is done with the next frames; they may then be overwritten."""

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> list:
        """Enqueue what yields the next frames; `ended` tells that no more will be taken."""


@dataclass
class _Slot:
    """Frames on their way to the device, or back."""

    name: str
    start: int = 0
    count: int = 0
    host: np.ndarray | None = None
    done: Any = None
    written: Any = None
    launches: list | tuple = ()


class FrameFlow:
    """Runs a filter over the frames of a video, or of a part of each, on one device and thread.

    Parameters
    ----------
    session : Session
        Device to run on.
    arena : Arena
        Keeps the buffers.
    settings : Filter
        What to run.
    tile : Tile
        What is read of each frame, and what is yielded; its time is not looked at.
    batch : int
        Most frames that are taken, or yielded, at once.
    variation : ndarray, optional
        A map that sigma is multiplied by, float32, of the shape of what is read.
    prompt : bool, optional
        Whether every frame is waited for before the next one is read, instead of the device having
        work all the time.
    profiling : bool, optional
        Whether to keep the events of every launch in `events`.
    """

    def __init__(
        self,
        session: Session,
        arena: Arena,
        settings: Filter,
        tile: Tile,
        batch: int,
        variation: np.ndarray | None = None,
        *,
        prompt: bool = False,
        profiling: bool = False,
    ):
        self.arena = arena
        self.plan: FramePlan = settings.plan(arena)
        self.tile, self.batch = tile, batch
        # On a CPU transfers and compute share the same cores: one queue does as well.
        alone = session.device.shares_cores
        self.turn = session.exclusive()
        self.compute = session.queue(profiling)
        self.up = self.compute if alone else session.queue(profiling)
        self.down = self.compute if alone else session.queue(profiling)
        self.profiling = profiling
        self.events: list[tuple[str, Any]] = []
        self._most_flying = 0 if alone or prompt else 2
        self._ins = [_Slot(f"frames in {k}") for k in range(1 if alone else 2)]
        self._outs = [_Slot(f"frames out {k}") for k in range(1 + self._most_flying)]
        # Results are converted while the next frames are, by a thread of their own.
        self._writer = None if alone else ThreadPoolExecutor(1, "frames out")
        self._variation = variation

    def run(
        self,
        read: Callable[[int, np.ndarray], list[FrameNote]],
        write: Callable[[int, np.ndarray], None],
        first: int = 0,
        start: int = 0,
        stop: int | None = None,
    ) -> Generator[int, None, None]:
        """Filter frames.

        Parameters
        ----------
        read : callable
            ``read(t, host)`` fills ``host`` (channels, count, nz, ny, nx) with frames from time t
            on and returns a note of each; fewer than there is room for only at the end.
        write : callable
            ``write(t, values)`` takes frames (channels, count, nz, ny, nx) from time t on.
        first, start, stop : int
            Times of the first frame that is read, of the first one that is written, and of the
            first one that is not; without `stop` all that there are.

        Yields
        ------
        int
            Number of frames written so far, whenever some were read or written.
        """
        with self.turn:
            self.plan.begin(self.tile, self.batch, first, start, self._sent_variation())
        flying: deque[_Slot] = deque()
        known, at, ended, done = first, start, False, 0
        while True:
            count = self.batch if stop is None else min(self.batch, stop - at)
            while not ended and count and known < at + count + self.plan.ahead:
                wanted = min(self.batch, at + count + self.plan.ahead - known)
                got = self._take(read, known, wanted)
                known, ended = known + got, got < wanted
                yield done  # a place to stop at, also before the first frame comes out
            with self.turn:
                count = min(count, (known if ended else known - self.plan.ahead) - at)
                if count > 0:
                    flying.append(self._yield_frames(at, count, ended, write))
                    at += count
            while len(flying) > (self._most_flying if count > 0 else 0):
                slot = flying.popleft()
                slot.written()
                done = slot.start + slot.count - start
                yield done
            if count <= 0:
                return

    def drain(self) -> None:
        """Wait until the device is idle, so that buffers may go."""
        if self._writer is not None:
            self._writer.shutdown(cancel_futures=True)
        for queue in {self.up, self.compute, self.down}:
            queue.finish()

    def _sent_variation(self):
        import pyopencl as cl

        if self._variation is None:
            return None
        buffer = self.arena.buffer("variation", self._variation.nbytes)
        cl.enqueue_copy(self.compute, buffer, self._variation)
        return buffer

    def _take(self, read, t: int, wanted: int) -> int:
        """Read frames and have the device take them; return how many there were."""
        import pyopencl as cl

        slot = self._ins[0]
        self._ins.append(self._ins.pop(0))
        if slot.done is not None:
            slot.done.wait()
        tile = self.tile
        shape = (tile.channels, wanted, *tile.source_shape[1:])
        most = tile.channels * self.batch * math.prod(shape[2:])
        host = self.arena.pinned(slot.name, most, self.up)
        # The device is not held meanwhile: what reads may use it, too.
        notes = read(t, host[: math.prod(shape)].reshape(shape))
        count = len(notes)
        if not count:
            return 0
        size = math.prod((tile.channels, count, *shape[2:]))
        given = host[: math.prod(shape)].reshape(shape)
        if count < wanted and tile.channels > 1:
            host[:size] = given[:, :count].copy().ravel()
        buffer = self.arena.buffer(slot.name, 4 * most)
        with self.turn:
            upload = cl.enqueue_copy(self.up, buffer, host[:size], is_blocking=False)
            if self.up is not self.compute:
                self.up.flush()
                cl.enqueue_barrier(self.compute, wait_for=[upload])
            slot.launches = [("upload", upload), *self.plan.take(self.compute, buffer, notes)]
            self.compute.flush()
        # What reads the buffer ends before the last of the launches, as the queue is in order.
        slot.done = slot.launches[-1][1]
        if self.profiling:
            self.events += slot.launches
        return count

    def _yield_frames(self, start: int, count: int, ended: bool, write) -> _Slot:
        import pyopencl as cl

        slot = self._outs[0]
        self._outs.append(self._outs.pop(0))
        tile = self.tile
        shape = (tile.channels, count, *tile.shape[1:])
        size = math.prod(shape)
        most = size // count * self.batch
        slot.host = self.arena.pinned(slot.name, most, self.up)[:size].reshape(shape)
        slot.start, slot.count = start, count
        buffer = self.arena.buffer(slot.name, 4 * most)
        launches = self.plan.enqueue_frames(self.compute, start, count, ended, buffer)
        self.compute.flush()
        slot.done = cl.enqueue_copy(
            self.down, slot.host, buffer, wait_for=[launches[-1][1]], is_blocking=False
        )
        self.down.flush()
        slot.launches = [*launches, ("download", slot.done)]
        if self.profiling:
            self.events += slot.launches
        finish = partial(_finish, slot.done, write, start, slot.host)
        if self._writer is None:
            finish()
            slot.written = _nothing
        else:
            slot.written = self._writer.submit(finish).result
        return slot


def _finish(done, write, start: int, host: np.ndarray) -> None:
    done.wait()
    write(start, host)


def _nothing() -> None:
    """Be what there is to wait for where nothing is."""


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
    work = _Work(source, out, levels, settings, sigma)
    most_at_once = _MOST_FRAMES
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
                            for count in flow.run(*work.on(sequence, span, tile)):
                                yield Progress(done + count, total, "frame")
                            done += span.size
                    finally:
                        flow.drain()
            return work.saturated
        except DeviceMemoryError as error:
            work.saturated = 0
            if batch > 1:
                most_at_once = batch // 2
                continue
            if pixels <= SMALLEST_TILE:
                raise DeviceMemoryError(
                    f"{session.device} has too little free memory even for parts of {pixels} "
                    "pixels: close other programs, use fewer frames, or choose another device."
                ) from error
            pixels = min(pixels, math.prod(tiles[0].source_shape)) // 2


class _Work:
    """Reads the frames of an array, and writes them."""

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
        region = out.region(
            slice(tile.z.start, tile.z.stop),
            slice(tile.y.start, y_stop),
            slice(tile.x.start, x_stop),
        )
        kept = values[..., : y_stop - tile.y.start, : x_stop - tile.x.start]
        for c in range(tile.channels):
            for k in range(kept.shape[1]):
                frame = out.frame(tile.sequence, t + k, c)[region]
                if self._notes[tile.sequence, t + k].empty:
                    # As it was given, whatever its channels were mixed to meanwhile.
                    here = self.source.region(
                        slice(tile.z.start, tile.z.stop),
                        slice(tile.y.start, y_stop),
                        slice(tile.x.start, x_stop),
                    )
                    given = self.source.frame(tile.sequence, t + k, c)[here]
                    self.saturated += convert(given, frame)
                    continue
                self.saturated += sum(in_bands(self._store, kept[c, k], frame))


def frame_budget(
    settings: Filter,
    device: Device,
    source: Frames,
    memory_limit: int | None,
    is_map: bool,
    videos: int = 1,
) -> tuple[int, int]:
    """Return how many bytes of device memory may be used, and for how many pixels of a frame.

    `videos` are filtered at once.

    Raises
    ------
    DeviceMemoryError
        If `memory_limit` is too little.
    """
    frame = source.joined * math.prod(source.shape[2:])
    each = bytes_per_pixel(settings, is_map)
    budget = device.memory // 2
    if memory_limit is not None:
        needed = math.ceil(min(SMALLEST_TILE, frame) * each) * videos
        if memory_limit < needed:
            raise DeviceMemoryError(
                f"A memory limit of {memory_limit} bytes is too little for a part of this work: "
                f"allow at least {needed}."
            )
        budget = min(budget, memory_limit)
    # No buffer holds more than half of what a filter needs.
    pixels = min(budget / videos / each, 2 * device.max_alloc / each, frame)
    return budget, int(pixels)


def spatial_tiles(
    settings: Filter, device: Device, whole: tuple[Span, Span, Span], channels: int, pixels: int
) -> list[Tile]:
    """Cut frames into parts that are filtered one after another, each through the whole time."""
    reach = Reach((0, 0), settings.reach.z, settings.reach.y, settings.reach.x)
    lengths = (1, 1, *(span.length for span in whole))
    one = (Span.whole(1), *whole)
    return split(lengths, reach, pixels, one, tile_yield(settings, device), channels)


def frames_at_once(settings: Filter, device: Device, tile: Tile, budget: int) -> int:
    """Return how many frames of this size are taken at once: small ones together."""
    pixels = tile.channels * math.prod(tile.source_shape[1:])
    busy = _BUSY.get(device.kind, _BUSY_GPU)
    batch = max(1, min(busy // pixels, _MOST_FRAMES))
    limit = min(budget, _MODEST_BYTES)
    while batch > 1 and (settings.frame_bytes(batch) + 16 * batch) * pixels > limit:
        batch -= 1
    return batch
