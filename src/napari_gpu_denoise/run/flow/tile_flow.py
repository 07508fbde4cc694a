"""Move frames tile by tile through a device, in tiles that suit its memory, time and margins."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DeviceMemoryError
from napari_gpu_denoise.image.threads import ahead, at_once
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena, kept_bytes
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import FramePlan, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.tiles import Reach, Span, Tile, split
from napari_gpu_denoise.run.flow.transfer import Transfer, read_frames, write_frames
from napari_gpu_denoise.run.flow.work import InFlight, Queues, Stages, Work
from napari_gpu_denoise.run.progress import SILENT, Progress

# Most pixels that a tile reads, on a GPU of each joined channel: what keeps it busy is the pixels
# that launches go over. There, a few tiles per image let transfers and kernels overlap; on a CPU,
# progress is reported and a cancel noticed after each tile.
_LARGEST_TILE = {"CPU": 1 << 18, "simulator": 1 << 16}
# With less memory, the first number.
_BUSY_GPU_TILE, _LARGEST_GPU_TILE = 1 << 22, 1 << 23
# Of a long stack tiles are larger, as each costs the host about a millisecond: this many in all.
_FEW_TILES, _LARGEST_STACK_TILE = 16, 1 << 24
_SMALLEST_TILE = 1 << 12

# A filter with a long reach gets larger tiles, up to a limit, so that at most this share of the
# pixels read are margins; it is larger on a CPU, where a tile takes long.
_MARGIN_SHARE = {"CPU": 0.4}
_GPU_MARGIN_SHARE = 0.06
_LARGEST_WIDE_TILE, _LARGEST_SHARE = 1 << 25, 0.6
# Operations that take about as long as the transfers of a pixel (H100).
_TRANSFER = 3000

# Longest time of a launch in seconds, far below the time limit of display drivers.
_LAUNCH_SECONDS = 0.06
# Operations per clock cycle and compute unit: a tenth of the peak, as with a poor driver. NVIDIA's
# keeps at least four times that pace; Intel's GPUs count small units.
_PER_CLOCK, _PER_CLOCK_OF = 12.8, {"nvidia": 51.2, "intel": 1.6}

# Longest time of a tile on a CPU in seconds, and so the longest delay of a cancel.
_TILE_SECONDS = 0.25

# Side of the tile that the bytes per pixel are taken from, and its frames or slices if the filter
# looks at several: large enough for padding to matter little.
_SIDE, _DEEP = 1024, 16

# Pixels that a launch should have, to be efficient for small frames, and most frames at once.
_BUSY = {"CPU": 1 << 16, "simulator": 1 << 14}
_BUSY_GPU = 1 << 25
MOST_FRAMES = 16


def bytes_per_pixel(
    plan: TilePlan | FramePlan, settings: Filter, channels: int = 1, is_map: bool = False
) -> float:
    """Return how many bytes of device memory a pixel of a tile needs, with input and output.

    It is what the plan declares for a large tile (over time, for one frame at once). Two tiles are
    in flight, with their part of sigma if that is a map.
    """
    buffers, pixels = _large(plan, settings, channels, is_map)
    return sum(buffers.values()) / pixels + (24 if is_map else 16)


def _large(plan, settings: Filter, channels: int, is_map: bool) -> tuple[Sizes, int]:
    """Return the buffers that a plan declares for a large tile, and the tile's pixels."""
    known, key = plan.arena.declared, (settings, channels, is_map)
    if key not in known:
        deep = any(settings.reach.t) and not settings.over_time, any(settings.reach.z)
        lengths = (_DEEP if one else 1 for one in deep)
        t, z, y, x = map(Span.whole, (*lengths, _SIDE, _SIDE))
        tile = Tile(0, t, z, y, x, channels)
        batch = (1,) if settings.over_time else ()
        buffers = plan.buffers(tile, *batch, is_map=is_map)
        known[key] = buffers, channels * math.prod(tile.source_shape)
    return known[key]


def tile_pixels(plan: TilePlan, work: Work) -> int:
    """Return how many pixels a tile of a work may read, over all joined channels."""
    settings, device, channels = work.filter, work.session.device, work.source.joined
    pixels = channels * math.prod(work.source.shape)
    each = bytes_per_pixel(plan, settings, channels, work.sigma.is_map)
    buffers, size = _large(plan, settings, channels, work.sigma.is_map)
    largest_buffer = max(*buffers.values(), 4 * size) / size if buffers else 4.0
    largest = _LARGEST_TILE.get(device.kind)
    if largest is None:
        wanted = max(channels * _LARGEST_GPU_TILE, min(pixels // _FEW_TILES, _LARGEST_STACK_TILE))
        modest = min(wanted, int(kept_bytes(device) / each))
        largest = min(max(channels * _BUSY_GPU_TILE, modest), _LARGEST_WIDE_TILE)
    # Six float32 images besides the two copies in flight, and never a large share of the device:
    # other programs, and above all the display, need memory too.
    budget = max(24 * pixels, 1 << 26)
    if device.kind != "simulator":
        share = _MARGIN_SHARE.get(device.kind, _GPU_MARGIN_SHARE)
        wide = _wide_tile(settings.reach, channels, share)
        if device.kind not in _MARGIN_SHARE:
            wide = max(wide, channels * _wide_block(settings.reach, share))
            # Of a large image there are at least two, so that transfers overlap with kernels, if
            # the margins where a volume would be cut do not take longer than that saves.
            side = (pixels / channels) ** (1 / 3)
            if settings.operations_per_pixel * sum(settings.reach.z) < _TRANSFER * side:
                wide = min(wide, max(channels * _BUSY_GPU_TILE, int(_LARGEST_SHARE * pixels)))
        wide = min(wide, _LARGEST_WIDE_TILE)
        largest = max(largest, wide)
        budget = max(budget, min(min(wide, pixels) * each, device.memory // 4))
    budget = min(budget, _allowed(plan, work))
    limit = min(budget / each, device.max_alloc / largest_buffer, largest, pixels)
    return max(int(limit), 1)


def _allowed(plan: TilePlan | FramePlan, work: Work, videos: int = 1) -> int:
    """Return how many bytes of device memory may be used for so many `videos` at once.

    Refuses a memory limit that is too small for the smallest tiles.
    """
    half, limit = work.session.device.memory // 2, work.memory_limit
    if limit is None:
        return half
    each = bytes_per_pixel(plan, work.filter, work.source.joined, work.sigma.is_map)
    needed = math.ceil(smallest_tile(work) * each) * videos
    if limit < needed:
        part = "part" if work.filter.over_time else "tile"
        raise DeviceMemoryError(
            f"A memory limit of {limit} bytes is too small for a {part} of this run",
            f"allow at least {needed}",
            code="memory-limit",
            needed=needed,
        )
    return min(half, limit)


def smallest_tile(work: Work) -> int:
    """Return how many pixels the smallest tile of a work reads, over all joined channels.

    Along y and x it yields at least half as many as its margins, so that no pixel is read more than
    nine times: with still smaller tiles, a run would take minutes instead of seconds.
    """
    source, reach = work.source, work.filter.reach
    frames = 1 if work.filter.over_time else 1 + sum(reach.t)
    wanted = (frames, 1 + sum(reach.z), 1.5 * sum(reach.y), 1.5 * sum(reach.x))
    shape = (min(frames, source.shape[1]), *source.shape[2:])
    tile = math.prod(min(math.ceil(one), n) for one, n in zip(wanted, shape, strict=True))
    return max(source.joined * tile, min(_SMALLEST_TILE, source.joined * math.prod(shape)))


def _wide_tile(reach: Reach, channels: int, share: float) -> int:
    """Return how many pixels a tile has to read for its margins to be at most a share of them."""
    # Without its margins, a square of this size keeps all but the allowed share of its pixels.
    shrink = 1 - math.sqrt(1 - share)
    square = sum(reach.y) * sum(reach.x) / shrink**2
    return math.ceil(channels * (1 + sum(reach.t)) * (1 + sum(reach.z)) * square)


def _wide_block(reach: Reach, share: float) -> int:
    """Return the same for a filter of volumes, which looks about as far along z; else 0."""
    if 2 * sum(reach.z) < sum(reach.y):
        return 0
    shrink = 1 - (1 - share) ** (1 / 3)
    return math.ceil(sum(reach.z) * sum(reach.y) * sum(reach.x) / shrink**3)


def tile_yield(settings: Filter, device: Device) -> int:
    """Return how many pixels a tile may yield for its launches to stay within the time limit."""
    seconds, vendor = _LAUNCH_SECONDS, device.vendor.lower()
    per_clock = next((n for name, n in _PER_CLOCK_OF.items() if name in vendor), _PER_CLOCK)
    operations, least = settings.operations_per_launch, _SMALLEST_TILE
    if device.kind in _LARGEST_TILE:
        # No display waits: the usual number.
        seconds, per_clock = _TILE_SECONDS, 4.0
        operations = settings.operations_per_pixel
    if device.kind in _MARGIN_SHARE:
        share = _MARGIN_SHARE[device.kind]
        least = max(least, int(_wide_tile(settings.reach, 1, share) * (1 - share)))
    speed = per_clock * device.compute_units * max(device.clock, 500) * 1e6
    return max(int(seconds * speed / operations), least)


def frame_budget(plan: FramePlan, work: Work, videos: int = 1) -> tuple[int, int]:
    """Return how many bytes of device memory may be used, and how many pixels of a frame fit.

    `videos` are filtered at once.
    """
    source, budget = work.source, _allowed(plan, work, videos)
    frame = source.joined * math.prod(source.shape[2:])
    each = bytes_per_pixel(plan, work.filter, source.joined, work.sigma.is_map)
    # No buffer is more than half of what a filter needs.
    pixels = min(budget / videos / each, 2 * work.session.device.max_alloc / each, frame)
    return budget, int(pixels)


def spatial_tiles(work: Work, pixels: int) -> list[Tile]:
    """Cut frames into parts, each of which is filtered through all frames before the next."""
    settings, (_, *whole) = work.filter, work.whole
    reach = Reach((0, 0), settings.reach.z, settings.reach.y, settings.reach.x)
    lengths = (1, 1, *(span.length for span in whole))
    one, most = (Span.whole(1), *whole), tile_yield(settings, work.session.device)
    return split(lengths, reach, pixels, one, most, work.source.joined)


def frames_at_once(plan: FramePlan, device: Device, tile: Tile, budget: int) -> int:
    """Return how many frames of this size are taken at once: small ones together."""
    pixels = tile.channels * math.prod(tile.source_shape[1:])
    busy = _BUSY.get(device.kind, _BUSY_GPU)
    batch = max(1, min(busy // pixels, MOST_FRAMES))
    while batch > 1:
        buffers = plan.buffers(tile, batch).values()
        needed = sum(buffers) + 16 * batch * pixels
        if needed <= min(budget, kept_bytes(device)) and max(buffers) <= device.max_alloc:
            break
        batch -= 1
    return batch


# Tiles whose results may be on their way to the output, besides the last one enqueued.
_MOST_DOWNLOADS = 2


@dataclass
class _Slot(InFlight):
    """A tile in flight; its noise is kept until the device has it."""

    levels: np.ndarray | None = None
    read_levels: np.ndarray | None = None
    variation: np.ndarray | None = None
    seen: tuple[Span, Span] | None = None


class TileFlow:
    """Runs a filter over frames in memory, cut into tiles, on one device and from one thread.

    Each `shrink` halves the tiles, for a device that lacked memory; `size` says what was tried.
    With `profiling`, the events of every launch are kept in `events`.
    """

    def __init__(self, work: Work, arena: Arena, shrink: int = 0, profiling: bool = False):
        self.work, self.arena = work, arena
        self.stages = Stages.of(TilePlan, work, arena)
        self._pixels = tile_pixels(self.stages.plan, work)
        self.tiles = self._cut(self._pixels)
        for _ in range(shrink):
            self._pixels, self.tiles = self._smaller()
        self.size = f"tiles of {self._pixels} pixels"
        self.turn = work.session.exclusive()
        self.queues = Queues.of(work.session, profiling)
        alone = work.session.device.shares_cores
        self.slots = [_Slot(f"slot {k} ") for k in range(1 if alone else 2)]
        self.profiling = profiling
        self.events: list[tuple[str, Any]] = []

    @property
    def can_shrink(self) -> bool:
        """Whether the tiles could be smaller."""
        return self._smaller()[1] != self.tiles

    def _smaller(self) -> tuple[int, list[Tile]]:
        """Return tiles of half the size or less, if possible, and the pixels that one may read."""
        pixels, tiles = self._pixels, self.tiles
        smallest = smallest_tile(self.work)
        while tiles == self.tiles and pixels > smallest:
            pixels = max(pixels // 2, smallest)
            tiles = self._cut(pixels)
        return pixels, tiles

    def _cut(self, pixels: int) -> list[Tile]:
        work = self.work
        most = tile_yield(work.filter, work.session.device)
        whole, channels = work.whole, work.source.joined
        tiles = split(work.source.shape, work.filter.reach, pixels, whole, most, channels)
        return [tile for tile in tiles if all(work.kept(tile))]  # the others are padding

    def run(self, progress: Progress = SILENT) -> int:
        """Filter all tiles, and return the number of clipped values."""
        total, source = len(self.tiles), self.work.source
        progress.tell(0, total)
        read = source.joined * max(math.prod(tile.source_shape) for tile in self.tiles)
        made = source.joined * max(math.prod(tile.shape) for tile in self.tiles)
        with self.turn:
            self._transfer = Transfer(self.arena, self.work, read, made)
        for slot in self.slots:
            slot.seen = None
        places = zip(self.tiles, itertools.cycle(self.slots), strict=False)
        read, submit, most = map(self._read, places), at_once, 0
        writing: deque[Future] = deque()
        with ExitStack() as held:
            if total > 1 and len(self.slots) > 1:
                # Threads read the next tile and write the last ones while this one enqueues.
                pool = held.enter_context(ThreadPoolExecutor(1, "tiles out"))
                read = held.enter_context(closing(ahead(self._read, places, 1)))
                submit, most = pool.submit, _MOST_DOWNLOADS
            held.callback(lambda: [one.cancel() for one in writing])
            clipped = 0
            for number, (tile, slot, pixels) in enumerate(read):
                room = f"out {number % (most + 1)}"
                with self.turn:
                    writing.append(submit(self._enqueue(tile, slot, pixels, room)))
                while len(writing) > (most if number + 1 < total else 0):
                    clipped += writing.popleft().result()
                    progress.tell(number + 1 - len(writing), total)
        return clipped

    def _read(self, place: tuple[Tile, _Slot]) -> tuple[Tile, _Slot, np.ndarray]:
        """Read a tile into the memory of a slot."""
        tile, slot = place
        if slot.uploaded is not None:
            slot.uploaded.wait()
        shape = tile.channels, *tile.source_shape
        pixels = self._transfer.room(slot.name + "in", shape, self.queues.up)
        times = tile.t.source_start, tile.t.source_stop
        read_frames(self.work, tile, *times, pixels)
        return tile, slot, pixels

    def _enqueue(self, tile: Tile, slot: _Slot, pixels: np.ndarray, room: str) -> Callable[[], int]:
        """Enqueue all that a tile needs; return a function that writes it and counts."""
        work, transfer, compute = self.work, self._transfer, self.queues.compute
        stabilisation, models = self.stages.stabilisation, work.sigma.models(tile)
        if slot.done is not None:
            slot.done.wait()
        made = slot.name + "out"
        sigma, uploads = self._send_sigma(slot, tile)
        values, launches = transfer.send(self.queues, slot.name + "in", pixels, uploads)
        slot.uploaded = launches[0][1]
        launches += [("upload", each) for each in uploads]
        launches += stabilisation.forward_tile(compute, values, models, tile)
        out = transfer.result(made)
        launches += self.stages.plan.enqueue(compute, tile, values, out, sigma)
        plane = math.prod(tile.shape[2:])
        launches += stabilisation.inverse(compute, out, models.ravel(), plane)
        shape = tile.channels, *tile.shape
        names, kept = (made, room), work.kept(tile)
        arrived = transfer.fetch(
            self.queues, out, names, shape, kept, math.prod(shape[:3]), launches
        )
        slot.done, slot.launches = arrived[-1], launches
        if self.profiling:
            self.events += launches
        return partial(self._write, tile, made, *arrived)

    def _write(
        self, tile: Tile, name: str, host: np.ndarray, counts: np.ndarray | None, done: Any
    ) -> int:
        """Wait for a download and write the tile; return the number of values clipped."""
        done.wait()
        before = self._transfer.clipped(name, counts)
        clipped = write_frames(self.work, tile, tile.t.start, host)
        return clipped if before is None else clipped + int(before[0])

    def close(self) -> None:
        """Wait until the device is idle, so that buffers can be freed; run nothing after it."""
        self.queues.finish()

    def _send_sigma(self, slot: _Slot, tile: Tile) -> tuple[TileSigma, list]:
        """Upload the noise of a tile; return it and the events to wait for."""
        import pyopencl as cl

        sigma, uploads = self.work.sigma, []

        def sent(name: str, array: np.ndarray | None, *, known: bool = False):
            if array is None:
                return None
            buffer = self.arena.buffer(f"{slot.name}sigma {name}", array.nbytes)
            if not known:
                uploads.append(cl.enqueue_copy(self.queues.up, buffer, array, is_blocking=False))
            return buffer

        slot.levels = sigma.levels(tile, self.work.levels.scale)
        # A map is the same in all planes, so that tiles of a stack mostly use the same part of it.
        known = slot.seen == (tile.y, tile.x)
        if not known:
            slot.variation, slot.seen = sigma.variation(tile), (tile.y, tile.x)
        levels = read_levels = sent("levels", slot.levels)
        if tile.shape[:2] != tile.source_shape[:2]:
            slot.read_levels = sigma.read_levels(tile, self.work.levels.scale)
            read_levels = sent("read levels", slot.read_levels)
        variation = sent("variation", slot.variation, known=known)
        even = not sigma.is_map and bool(np.all(slot.levels == slot.levels.flat[0]))
        return TileSigma(levels, variation, read_levels, even), uploads
