"""The passes of BM4D over volumes that come in order of time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_kernels import made_passes, yields_of_passes
from napari_gpu_denoise.filters.bm4d.cube_filter import CubeFilter
from napari_gpu_denoise.filters.bm4d.cube_search import Volumes
from napari_gpu_denoise.filters.bm4d.cube_settings import CubePass
from napari_gpu_denoise.filters.pixels import including_margins, send_table
from napari_gpu_denoise.filters.search.frame_links import FrameLinks
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import (
    FrameNote,
    FramePlan,
    Launches,
    Sizes,
    TileSigma,
    together,
)
from napari_gpu_denoise.protocol.tiles import Span, Tile


@dataclass(frozen=True)
class _Ring:
    """Volumes that are still needed: that of time t is in slot t modulo `length`."""

    buffer: Any
    length: int
    tile: Tile  # what there is of each volume

    def between(self, first: int, stop: int, links: Any) -> Volumes:
        """Return the volumes from one time to another."""
        time = Span(first, stop, first, stop, stop)
        place = first % self.length
        return Volumes(self.buffer, replace(self.tile, t=time), place, self.length, links)


class SeriesPlan(FramePlan):
    """Runs BM4D over volumes that come in order and stay in rings while they are needed.

    Groups take cubes of other times to filter those of their own volume. For each volume the others
    are brought to its grey levels. Passes and `variants` are as in `Plan`.
    """

    def __init__(
        self,
        passes: dict[str, CubePass],
        arena: Arena,
        variants: dict[str, dict] | None = None,
    ):
        self.arena = arena
        self.passes = made_passes(CubeFilter, passes, arena, variants)
        self._before, self._after = next(iter(passes.values())).frames
        self.ahead = len(passes) * self._after

    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the rings, the tables of a volume, and what the passes need for one volume."""
        span, made = self._before + 1 + self._after, yields_of_passes(self.passes, tile)
        searched, sizes = including_margins(tile), []
        for name, one in self.passes.items():
            sizes.append(one.buffers(_at(made[name], 0, self._before, self._after), searched))
            searched = made[name]
        rings = {
            f"{name} ring": 4 * length * math.prod(held.shape[1:])
            for name, (length, held) in self._rings(tile, batch).items()
        }
        tables = {"volume links": 12 * span, "volume sigma": 4 * span * tile.z.source_size}
        return {**together(*sizes), **rings, **tables}

    def _rings(self, tile: Tile, batch: int) -> dict[str, tuple[int, Tile]]:
        """Return the length of each ring, and what there is of each volume in it."""
        rings = {"noisy": (self._before + batch + self.ahead, including_margins(tile))}
        if len(self.passes) > 1:
            made = yields_of_passes(self.passes, tile)["basic"]
            rings["basic"] = self._before + batch + self._after, made
        return rings

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the volumes of a series; see `FramePlan.begin`."""
        self._tile, self._variation = tile, variation
        self._held = self.hold(tile, batch, variation is not None)
        self._made = yields_of_passes(self.passes, tile)
        self._images = {
            name: _Ring(self._held[f"{name} ring"], length, held)
            for name, (length, held) in self._rings(tile, batch).items()
        }
        self._first = self._known = first
        # The next volume that a basic estimate is made of: those before are not needed.
        self._filtered = max(start - self._before, first)
        self._sigma: dict[int, np.ndarray] = {}
        self._links = FrameLinks((self._before, self._after), [[1.0]], [1.0])

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Enqueue the storing of the next volumes, and the first pass where it can be made."""
        import pyopencl as cl

        ring, launches = self._images["noisy"], []
        nbytes = 4 * math.prod(ring.tile.shape[1:])
        for k, note in enumerate(notes):
            copy = cl.enqueue_copy(
                queue,
                ring.buffer,
                frames,
                byte_count=nbytes,
                src_offset=k * nbytes,
                dst_offset=self._known % ring.length * nbytes,
            )
            launches.append(("store", copy))
            begin = self._tile.z.source_start - note.first_slice
            self._sigma[self._known] = note.sigma[begin : begin + self._tile.z.source_size]
            # One number says how noisy a volume is: its slices may differ.
            sigma = np.sqrt(np.mean(note.sigma**2, keepdims=True))
            self._links.add(self._known, replace(note, sigma=sigma))
            self._known += 1
        self._make_basic(queue, self._known - self._after, launches)
        return launches

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        """Enqueue the filtering of the next volumes; see `FramePlan.enqueue_frames`."""
        launches: Launches = []
        if ended:
            self._make_basic(queue, min(start + count + self._after, self._known), launches)
        last = list(self.passes)[-1]
        for k in range(count):
            self._filter(queue, last, start + k, out, k, launches)
        oldest = start + count - self._before
        for t in [t for t in self._sigma if t < oldest - self._before]:
            del self._sigma[t]
        self._links.forget(oldest - self._before - 1)
        return launches

    def _make_basic(self, queue, stop: int, launches: list) -> None:
        """Make the basic estimates of the volumes before `stop`."""
        if "basic" not in self._images:
            return
        ring = self._images["basic"]
        for t in range(self._filtered, stop):
            self._filter(queue, "basic", t, ring.buffer, t % ring.length, launches)
        self._filtered = max(self._filtered, stop)

    def _filter(self, queue, name: str, t: int, out, place: int, launches: list) -> None:
        """Run a pass on a volume; its result is number `place` in `out`."""
        lowest = max(t - self._before, self._first)
        highest = min(t + self._after + 1, self._known)
        device, held = self.arena.session.device, self._held
        links = self._links.links(t, 1)[0][0, 0].copy()
        level = float(links[self._before, 2])
        if level == 0:  # a volume without noise is returned unchanged
            links[self._before] = 1, 0, 1
        sigma = np.zeros((len(links), self._tile.z.source_size))
        for other in range(lowest, highest):
            k = other - t + self._before
            sigma[k] = self._sigma[other] * links[k, 0]
        levels = send_table(queue, device, sigma, held["volume sigma"], launches)
        first = lowest - t + self._before
        links = links[first : first + highest - lowest]
        alike = send_table(queue, device, links, held["volume links"], launches)
        images = [self._images["noisy"], self._images.get("basic") if name == "final" else None]
        noisy, basic = (ring and ring.between(lowest, highest, alike) for ring in images)
        tile = _at(self._made[name], t, self._before, self._after)
        noise = TileSigma(None, self._variation, read_levels=levels)
        steps = self.passes[name].enqueue(queue, tile, noisy, basic, noise, out, held, place, level)
        launches += [(f"{name} {step}", event) for step, event in steps]


def _at(tile: Tile, t: int, before: int, after: int) -> Tile:
    """Return a tile of one volume, which reads those around it, be they there or not."""
    return replace(tile, t=Span(t, t + 1, t - before, t + after + 1, t + after + 1))
