"""Plans, which run a filter on a device, over tiles or over frames in order of time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.tiles import Tile

Launches = list[tuple[str, Any]]
"""Names and events of what was enqueued, in order."""

Sizes = dict[str, int]
"""Names and bytes of the buffers of a plan, or of a part of one."""


class Buffers(dict[str, Any]):
    """The same buffers on the device, by name; `sent` are the bytes that small ones hold."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.sent: dict[str, bytes] = {}


def allocated(arena: Arena, sizes: Sizes) -> Buffers:
    """Allocate buffers of at least these sizes."""
    return Buffers((name, arena.buffer(name, nbytes)) for name, nbytes in sizes.items())


def together(*sizes: Sizes) -> Sizes:
    """Return the sizes for steps that follow each other and share buffers of the same name."""
    names = dict.fromkeys(name for one in sizes for name in one)
    return {name: max(one.get(name, 0) for one in sizes) for name in names}


@dataclass(frozen=True)
class TileSigma:
    """Noise standard deviation of a tile, on the device, in the units of its pixels.

    Attributes
    ----------
    levels : pyopencl.Buffer
        float32 of shape (channels, nt * nz): one value for each frame yielded.
    variation : pyopencl.Buffer or None
        If sigma varies within frames: float32 of shape (source ny, source nx), from 0 to 1, over
        all that the tile reads. Sigma of a pixel is the level of its frame times this.
    read_levels : pyopencl.Buffer
        As `levels`, of shape (channels, source nt * source nz): one value for each frame read.
    even : bool
        Whether all levels are equal and there is no variation. It may be so in some tiles only.
    """

    levels: Any
    variation: Any = None
    read_levels: Any = None
    even: bool = False


class TilePlan(ABC):
    """Kernels and buffers of one filter on one device; belongs to one thread.

    The next run with equal settings uses it again, so it remembers nothing of a tile or a run, and
    asks for its buffers anew for each tile.

    Attributes
    ----------
    arena : Arena
        Where the buffers are allocated.
    """

    arena: Arena

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the device buffers needed for a tile besides input and output, in bytes by name.

        `is_map` says whether sigma varies within a frame. Default: none.
        """
        return {}

    def hold(self, tile: Tile, is_map: bool = False) -> Buffers:
        """Return the buffers for a tile, allocated."""
        return allocated(self.arena, self.buffers(tile, is_map))

    @abstractmethod
    def enqueue(self, queue: Any, tile: Tile, source: Any, out: Any, sigma: TileSigma) -> Launches:
        """Enqueue the filter for one tile.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        tile : Tile
            What is read and what is yielded.
        source, out : pyopencl.Buffer
            float32 of shape ``(tile.channels, *tile.source_shape)`` and ``(tile.channels,
            *tile.shape)``.
        sigma : TileSigma
            Noise of the frames, or of every pixel.
        """


@dataclass(frozen=True)
class FrameNote:
    """What is known about a frame before it is filtered.

    `sigma`, float64 of shape (channels * nz,), is in units of the pixels, 0 if there is nothing to
    filter; `first_slice` is the slice of the volume that it begins with. `means`, (channels,
    blocks), are averages over `block_pixels`, None if brightness is not compared. `models` has the
    index of the noise model of each channel, or of all. Of frames that are stored twice the
    `digest` is the same; None if it would tell nothing.
    """

    sigma: np.ndarray
    means: np.ndarray | None = None
    block_pixels: float = 1.0
    first_slice: int = 0
    models: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int32))
    digest: bytes | None = None

    @property
    def empty(self) -> bool:
        """Whether the frame is returned as it is, and no other frame uses it."""
        return not np.any(self.sigma > 0)


class FramePlan(ABC):
    """Kernels and buffers of a filter over time on one device; belongs to one thread.

    Frames come in order (`take`) and go in order (`enqueue_frames`).

    Attributes
    ----------
    arena : Arena
        Where the buffers are allocated.
    ahead : int
        Number of later frames that a frame needs.
    """

    arena: Arena
    ahead: int

    @abstractmethod
    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the device buffers needed besides input and output, in bytes by name.

        `tile` and `batch` are those of `begin`; `is_map` says whether sigma varies within a frame.
        """

    def hold(self, tile: Tile, batch: int, is_map: bool = False) -> Buffers:
        """Return the buffers for frames of a size, allocated."""
        return allocated(self.arena, self.buffers(tile, batch, is_map))

    @abstractmethod
    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the frames of a video, or of a part of each.

        Parameters
        ----------
        tile : Tile
            What is read from each frame and what is yielded; its time is not used.
        batch : int
            Most frames that are taken or yielded at once.
        first, start : int
            Time of the first frame that is taken, and of the first one that is yielded.
        variation : pyopencl.Buffer or None
            A map that sigma is multiplied by, of the shape of what is read.
        """

    def compare(self, first: int, notes: list[FrameNote]) -> None:
        """Compare the next frames with those before them, on the host; default: nothing.

        They are frames from time `first` on, which `take` gets next. May be called in another
        thread, while frames before them are enqueued.
        """
        return

    @abstractmethod
    def take(self, queue: Any, frames: Any, notes: list[FrameNote]) -> Launches:
        """Enqueue the work on the next frames; their buffer may then be overwritten.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        frames : pyopencl.Buffer
            float32 of shape (channels, count, nz, source ny, source nx).
        notes : list of FrameNote
            Noise and brightness of each frame.
        """

    @abstractmethod
    def enqueue_frames(self, queue: Any, start: int, count: int, ended: bool, out: Any) -> Launches:
        """Enqueue the work that yields the next frames, after those yielded before.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        start, count : int
            Time of the first frame, and how many. `ahead` more have been taken, if there are.
        ended : bool
            Whether no more frames will be taken.
        out : pyopencl.Buffer
            float32 of shape (channels, count, nz, ny, nx).
        """
