"""What runs NL-means on one device: tiles, and frames of a time-lapse."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.filters.frame_links import FrameLinks
from napari_gpu_denoise.filters.patch_search import PatchSearch, SearchSettings, Variant
from napari_gpu_denoise.frame_notes import FrameNote
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.pipeline import TileSigma
from napari_gpu_denoise.tiles import Span, Tile

if TYPE_CHECKING:
    from napari_gpu_denoise.filters.nl_means import NLMeans


class Plan:
    """Kernels and buffers of NL-means on one device; belongs to one thread.

    Parameters
    ----------
    settings : NLMeans
        What to run.
    arena : Arena
        Keeps the buffers.
    variant : Variant, optional
        The search kernel to use, by default the one that fits the device.
    """

    def __init__(self, settings: NLMeans, arena: Arena, variant: Variant | None = None):
        self.settings = settings
        self.arena = arena
        session = arena.session
        wanted = SearchSettings(
            settings.patch,
            settings.step,
            settings.window,
            settings.neighbours,
            (settings.frames_before, settings.frames_after),
            settings.slices,
            roots=settings.distance == "pearson",
        )
        self.search = PatchSearch(wanted, arena, variant)
        constants = self.search.constants
        # Given only where they are on: what is built otherwise is as it was without them.
        self._squares = {"SQUARES": 1} if settings.rician else {}
        self._noise = {"ROOTS": 1} if wanted.roots else self._squares
        self.group = _average_group(settings, session.device)
        self._average: dict[bool, Any] = {}  # with and without a map of sigma
        self._aggregate = arena.kernel(
            "nl_means/aggregate_patches",
            {**{key: constants[key] for key in ("PATCH", "STEP")}, **self._squares},
        )

    def _averaging(self, is_map: bool):
        """Return the averaging kernel, made when it is first needed."""
        if is_map not in self._average:
            own = {"WINDOW": self.settings.window, "SIGMA_MAP": int(is_map)}
            self._average[is_map] = self.arena.kernel(
                "nl_means/average_patches",
                {**self.search.constants, **own, **self.group, **self._noise},
            )
        return self._average[is_map]

    def enqueue(
        self,
        queue,
        tile: Tile,
        source,
        out,
        sigma: TileSigma,
        ring: tuple[int, int] | None = None,
        alike: Any = None,
        first_out: int = 0,
    ) -> list:
        """Enqueue the filter for one tile.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        tile : Tile
            What is read and what is yielded.
        source, out : pyopencl.Buffer
            float32, of shape ``tile.source_shape`` and ``tile.shape``.
        sigma : TileSigma
            Noise of the frames, or of every pixel.
        ring, alike
            As `PatchSearch.enqueue` takes them.
        first_out : int, optional
            Frames (t, z) in `out` before those of this tile.

        Returns
        -------
        list of (str, pyopencl.Event)
            The launches, by name, for whoever times them.
        """
        i32, f32, settings = np.int32, np.float32, self.settings
        matches = self.search.enqueue(queue, tile, source, ring, alike)
        nt, nz, ny, nx = tile.shape
        snt, snz, sny, snx = tile.source_shape
        frames, references = nt * nz, matches.rows.count * matches.columns.count
        estimates = self.arena.buffer("estimates", 4 * frames * references * settings.patch**2)
        group_x, group_y = self.group["GROUP_X"], self.group["GROUP_Y"]
        across, down = -(-matches.columns.count // group_x), -(-matches.rows.count // group_y)
        is_map = sigma.variation is not None
        average = self._averaging(is_map)(
            queue,
            (settings.patch, across * down * group_x * group_y, frames),
            (settings.patch, group_x * group_y, 1),
            *(matches.padded, *matches.layout, *matches.grid, i32(across)),
            *(matches.offsets, matches.keys),
            *(sigma.levels, f32(settings.strength), f32(settings.flat), estimates),
            *((sigma.variation, i32(snx)) if is_map else ()),
        )
        margins = (tile.t.margin, tile.z.margin, tile.y.margin, tile.x.margin)
        aggregate = self._aggregate(
            queue,
            (nx, ny, frames),
            None,
            *(estimates, *matches.grid, source),
            *map(i32, (*(ring or (0, snt)), snz, sny, snx)),
            *map(i32, margins),
            *(i32(nz), i32(ny), i32(nx), i32(first_out), out),
        )
        return [*matches.events, ("average", average), ("aggregate", aggregate)]


class FramePlan(Plan):
    """The same for a time-lapse, whose frames come in order and stay in a ring while needed.

    Parameters
    ----------
    settings : NLMeans
        What to run.
    arena : Arena
        Keeps the buffers.
    variant : Variant, optional
        As for `Plan`.
    """

    def __init__(self, settings: NLMeans, arena: Arena, variant: Variant | None = None):
        super().__init__(settings, arena, variant)
        self.ahead = settings.frames_after

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the frames of a video, or of a part of each; see `frame_flow.FramePlan`."""
        settings = self.settings
        self._tile, self._variation = tile, variation
        self._first = self._known = first
        self._ring = batch + settings.frames_before + settings.frames_after
        self._sigma: dict[int, np.ndarray] = {}
        self._links = FrameLinks(
            (settings.frames_before, settings.frames_after), [[1.0]], [1.0], unlike=math.inf
        )

    def take(self, queue, frames, notes: list[FrameNote]) -> list[tuple[str, Any]]:
        """Enqueue the storing of the next frames."""
        import pyopencl as cl

        nbytes = 4 * math.prod(self._tile.source_shape[1:])
        ring = self._held_frames(nbytes)
        launches = []
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
        """Return what is compared with other frames to find changes of brightness."""
        if self.settings.rician:
            # Squares of shifted magnitudes would no longer tell of the signal.
            return replace(note, means=None)
        if self.settings.distance == "pearson" and note.means is not None:
            level = float(note.means.mean())
            return replace(note, sigma=note.sigma * math.sqrt(level)) if level > 0 else note
        return note

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> list:
        """Enqueue what yields the next frames."""
        filtered, _ = self._links.links(start, count)
        plain = np.all(filtered[..., 0] == 1) and np.all(filtered[..., 1] == 0)
        launches: list = []
        if plain and self._alike(filtered[0], start):
            self._enqueue_some(queue, start, count, None, 0, out, launches)
        else:
            # Every frame sees the others as bright as itself.
            for k in range(count):
                self._enqueue_some(queue, start + k, 1, filtered[0, k], k, out, launches)
        before = start + count - self.settings.frames_before
        for t in [t for t in self._sigma if t < before]:
            del self._sigma[t]
        self._links.forget(before - 1)
        return launches

    def _alike(self, links: np.ndarray, start: int) -> bool:
        """Return whether every frame that is there may be searched from every other."""
        before = self.settings.frames_before
        there = np.array(
            [
                [self._first <= start + k + d - before < self._known for d in range(links.shape[1])]
                for k in range(len(links))
            ]
        )
        return bool(np.all(links[..., 2][there] > 0))

    def _enqueue_some(self, queue, start, count, links, first_out, out, launches: list) -> None:
        settings = self.settings
        stop = start + count
        lowest = max(start - settings.frames_before, self._first)
        highest = min(stop + settings.frames_after, self._known)
        tile = replace(self._tile, t=Span(start, stop, lowest, highest, highest))
        nz = tile.z.size
        sigma = np.concatenate([self._sigma[t] for t in range(start, stop)])
        levels = self._sent(queue, "frame sigma", sigma, launches)
        alike = None
        if links is not None:
            here = settings.frames_before
            links = links.copy()
            if links[here, 2] == 0:  # a frame that comes back as it is
                links[here] = (1, 0, 1)
            links = links[here - (start - lowest) :][: highest - lowest]
            alike = self._sent(queue, "frame links", links, launches)
        ring = self._held_frames(4 * math.prod(tile.source_shape[1:]))
        launches += self.enqueue(
            *(queue, tile, ring, out, TileSigma(levels, self._variation)),
            *((lowest % self._ring, self._ring), alike, first_out * nz),
        )

    def _sent(self, queue, name: str, values: np.ndarray, launches: list):
        """Copy a small array to the device; `launches` keeps it alive until it is there."""
        import pyopencl as cl

        array = np.ascontiguousarray(values, np.float32)
        buffer = self.arena.buffer(name, array.nbytes)
        # On a CPU there is nothing to gain by not waiting.
        waits = self.arena.session.device.shares_cores
        launches.append(("tables", cl.enqueue_copy(queue, buffer, array, is_blocking=waits)))
        return buffer

    def _held_frames(self, nbytes: int):
        return self.arena.buffer("frames", self._ring * nbytes)


def _average_group(settings: NLMeans, device: Device) -> dict[str, int]:
    """Return the build constants of the averaging kernel: the references a work-group serves.

    A GPU copies what they can reach to local memory, unless the search spans several frames.
    """
    patch, step, neighbours = settings.patch, settings.step, settings.neighbours
    copies = device.float_lanes == 1 and not settings.joint
    limit = min(device.local_memory, 32768)
    for items in (128, 64, 32, 1):
        side = max(1, math.isqrt(items // patch))
        width = (side - 1) * step + patch + settings.window - 1
        nbytes = side**2 * (12 * neighbours + 8 * patch)
        if copies and nbytes + 4 * width**2 <= limit and patch * side**2 <= device.max_group:
            return {"GROUP_X": side, "GROUP_Y": side, "LOCAL_TILE": 1}
    each = 12 * neighbours + 8 * patch
    count = max(1, min(limit // each, 128 // patch, device.max_group // patch))
    return {"GROUP_X": count, "GROUP_Y": 1, "LOCAL_TILE": 0}
