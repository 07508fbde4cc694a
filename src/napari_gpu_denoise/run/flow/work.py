"""Frames to be filtered on one device, the stages of the filter, and its command queues."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise.image.axes import Frames
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.flow.frame_sigma import FrameSigma
from napari_gpu_denoise.run.flow.stabilisation import Stabilisation
from napari_gpu_denoise.run.plan import FramePlan, TilePlan
from napari_gpu_denoise.run.tiles import Span, Tile


@dataclass(frozen=True)
class Work:
    """Frames in memory to be filtered, and how.

    `sigma` is arranged as `source` is. If these are parts of larger arrays, `spans` are what is
    yielded and read along t, z, y, x. `stabilised` holds the models for variance stabilisation,
    `signed` says whether results may be negative, and `memory_limit` is in bytes.
    """

    filter: Filter
    source: Frames
    out: Frames
    levels: Levels
    sigma: FrameSigma
    session: Session
    spans: tuple[Span, Span, Span, Span] | None = None
    stabilised: Sequence[NoiseModel] = ()
    signed: bool = True
    memory_limit: int | None = None

    @property
    def whole(self) -> tuple[Span, Span, Span, Span]:
        """What is yielded and read along t, z, y, x."""
        return self.spans or tuple(map(Span.whole, self.source.shape[1:]))

    @property
    def sigma_unit(self) -> float:
        """Unit of sigma in kernels, in grey levels to the power that sigma has."""
        return self.levels.scale**self.filter.sigma_power

    def kept(self, tile: Tile) -> tuple[int, int]:
        """Return how many rows and columns of a tile are results; the rest is mirrored padding."""
        *_, y0, x0 = self.out.origin
        ny, nx = self.out.shape[-2:]
        y, x = tile.y, tile.x
        return max(min(y.stop, y0 + ny) - y.start, 0), max(min(x.stop, x0 + nx) - x.start, 0)


@dataclass(frozen=True)
class Stages:
    """What runs on the device: the filter, and variance stabilisation around it."""

    plan: TilePlan | FramePlan
    stabilisation: Stabilisation | None = None

    @classmethod
    def of(cls, work: Work, arena: Arena) -> Stages:
        """Make the kernels for a work; they belong to this thread."""
        filter, models = work.filter, work.stabilised
        # A plan takes longer to make than a small image to filter; over time, it has a state.
        if filter.over_time:
            plan = filter.plan(arena)
        else:
            plan = arena.keep(filter, lambda: filter.plan(arena))
        if not models:
            return cls(plan)
        return cls(plan, Stabilisation(models, arena, work.signed, filter.yields_map))


@dataclass(frozen=True)
class Queues:
    """Command queues of one flow; all the same one if the device shares the host's cores."""

    compute: Any
    up: Any
    down: Any

    @classmethod
    def of(cls, session: Session, profiling: bool = False) -> Queues:
        """Open the queues for a flow."""
        compute = session.queue(profiling)
        if session.device.shares_cores:
            return cls(compute, compute, compute)
        return cls(compute, session.queue(profiling), session.queue(profiling))

    def after_upload(self, uploads: list) -> None:
        """Make kernels that are enqueued from now on wait for uploads."""
        if self.up is not self.compute:
            import pyopencl as cl

            self.up.flush()
            cl.enqueue_barrier(self.compute, wait_for=uploads)

    def finish(self) -> None:
        """Wait until all commands are done, in every queue even if one fails."""
        with ExitStack() as stack:
            for queue in {self.up, self.compute, self.down}:
                stack.callback(queue.finish)
